// Loop: the scheduler, base of uvpy.Loop beside asyncio.BaseEventLoop. One iteration, in asyncio's order: poll (the
// transports' callbacks run in it, readers and writers are queued by it), queue the timers that are due, run exactly the
// handles present, flush what was written; then honour stop(). loop.cpp has the turn, loop_poll.cpp its poll, loop_life.cpp
// making and closing,
// schedule.cpp what schedules callbacks, descriptors.cpp the add_reader family, loop_type.cpp attributes and tables.
// SPDX-License-Identifier: MIT
#pragma once
#include <cstddef>
#include <cstdint>

#include "core/contexts.h"
#include "core/file_identity.h"
#include "core/gil.h"
#include "core/guest.h"
#include "core/handle.h"
#include "core/interrupt.h"
#include "core/ready.h"
#include "core/resource.h"
#include "core/timer_queue.h"
#include "core/watched_files.h"
#include "core/watcher.h"
#include "py/args.h"
#include "py/bytes_pool.h"
#include "py/object.h"
#include "py/ref.h"
#include "state.h"
#include "uv/handle.h"

namespace uvpy::core {

class Loop {
 public:
  static constexpr bool kWeakrefs = false;  // uvpy.Loop, the Python subclass, brings both
  static constexpr bool kDict = false;
  static constexpr bool kFinalizer = false;  // the inherited BaseEventLoop.__del__ is the finalizer
  static constexpr std::size_t kBaseWords = 0;

  // Methods that asyncio's code finds by name on the loop, and ours calls directly unless somebody has overridden them.
  enum Hook : unsigned { kTime = 1, kCallSoon = 2, kCallAt = 4, kCallLater = 8, kNoTransport = 16 };

  Loop() = default;
  Loop(const Loop&) = delete;
  Loop& operator=(const Loop&) = delete;
  ~Loop();

  // Makes the libuv loop. False with an exception set.
  bool open(ModuleState* state);

  PyObject* object() const { return py::object_of(this); }
  ModuleState& state() const { return *state_; }
  uv_loop_t* uv() { return &uv_; }
  Gil& gil() { return gil_; }
  ReadyRing& ready() { return ready_; }
  TimerQueue& timers() { return timers_; }
  Contexts& contexts() { return contexts_; }
  Watchers& watchers() { return watchers_; }
  WatchedFiles& watched_files() { return watched_files_; }
  Interrupt& interrupt() { return interrupt_; }
  Resources& resources() { return resources_; }
  Guests& guests() { return guests_; }
  const Guests& guests() const { return guests_; }
  static std::size_t offset_of_uv() { return offsetof(Loop, uv_); }

  bool debug() const { return debug_; }
  bool is_running() const { return running_; }
  bool is_closed() const { return closed_; }
  unsigned long thread_id() const { return thread_id_; }
  bool is_foreign() const { return foreign_; }
  // Whether this run was begun by the process that forked this one.
  bool run_was_forked() const { return run_was_forked_; }
  void set_current_handle(PyObject* handle) { current_handle_ = py::borrow(handle); }
  bool times_handle() const { return static_cast<bool>(current_handle_); }

  // ---- for the rest of the core and for net

  // asyncio's self._loop.call_soon(callback[, arg][, context=context]): an override is honoured. False with an exception
  // set.
  bool call_soon_for(PyObject* callback, PyObject* arg, PyObject* context = nullptr);
  bool call_later_for(double delay, PyObject* callback);
  // The loop's clock, an overridden time() honoured. False with an exception set.
  bool time_now(double* now);
  // Whether somebody overrides that method on the instance or in a subclass; one compare where nobody does.
  bool overridden(unsigned hook) {
    if (Py_TYPE(object())->tp_version_tag != type_tag_ || type_tag_ == 0) [[unlikely]] {
      look_at_type();
    }
    return ((type_hooks_ | instance_hooks_) & hook) != 0;
  }
  bool check_closed() const;
  // Whether a descriptor is no transport's; else false with an exception set.
  bool refuse_transport(PyObject* fd);
  // Sets the RuntimeError of a parent's loop in a forked child; always null.
  static PyObject* refuse_foreign();

  // Queues a handle for the next batch. False with MemoryError set.
  bool push_ready(py::Ref<>&& handle) {
    // In asyncio a transport's callback is a handle of the batch, and what it schedules runs in the next one. Ours runs
    // in the poll, so what it schedules waits until the batch is counted. Another thread's call while we are parked does
    // not.
    return (in_poll_ && !gil_.given() ? later_ : ready_).push(std::move(handle));
  }
  // Whether a transport's event found by the poll must wait its turn: in asyncio it is a handle behind those that were
  // scheduled before. With nothing scheduled it may run in the poll at once.
  bool must_queue_io() const { return !ready_.empty(); }
  // Queues callback() in that place, in a context. False with an exception set.
  bool queue_io(PyObject* callback, PyObject* context);
  // Runs a handle at once, in the poll; its error ends the run.
  void run_in_poll(PyObject* handle);
  // Runs a handle of any kind. False when an exception is set that ends the run.
  bool run_handle(PyObject* handle);
  // Brings a parked loop out of its poll; from any thread that holds the GIL.
  void wake();
  // The exception set now ends the run; the first one counts. For callbacks of the poll, which have no caller.
  void leave_with_error();
  bool is_leaving() const { return static_cast<bool>(leaving_); }

  // Gathered writes: whether one made now is to wait for the end of the turn, by the load or because its transport
  // has been seen to write several times a turn.
  bool gathers(bool many_writes) const { return gather_writes_ && in_turn_ && (many_writes || busy()); }
  void mark_dirty(Resource* resource);
  void flush_writes() {
    if (!resources_.dirty.empty()) [[unlikely]] {
      flush_dirty();
    }
  }
  std::uint64_t turn() const { return turns_; }
  // A callback of the poll that runs user code counts as a callback of the turn.
  void count_callback() {
    ++turn_callbacks_;
    if (!resources_.dirty.empty()) {
      flush_old_writes();
    }
  }
  // A system call that sent so many datagrams that waited.
  void count_datagrams(unsigned sent) {
    ++datagram_calls_;
    datagrams_sent_ += sent;
  }
  // Memory to read into, the loop's one for all its transports. A stream uses the first kSlabSize bytes; batches of
  // datagrams all of it, of which the kernel commits what is written.
  char* slab() { return slab_ != nullptr ? slab_ : make_slab(); }
  static constexpr std::size_t kSlabSize = 256 * 1024;
  static constexpr std::size_t kSlabRoom = 1024 * 1024;
  // What becomes of it in data_received().
  py::BytesPool& received() { return received_; }
  // The resource holds input that it has taken from the kernel ahead: it is asked for one piece of it in the place where
  // a poll of asyncio would find the kernel's next one.
  void hold_input(Resource* resource);
  // Reports what callback() raised where it would run as a handle, for those that run in the poll. False with an
  // exception set.
  bool report_io(PyObject* callback, PyObject* context, PyObject* exc);

  // ---- Python methods: life
  PyObject* run_forever();
  PyObject* run_once();
  PyObject* run_forever_setup();
  PyObject* run_forever_cleanup();
  PyObject* stop();
  PyObject* shutdown();
  PyObject* is_running_method();
  PyObject* is_closed_method();
  PyObject* get_debug();
  PyObject* core_stats();
  PyObject* debug_handles();
  PyObject* set_gil_policy(PyObject* name);
  PyObject* get_gil_policy();

  // ---- Python methods: scheduling
  PyObject* time();
  PyObject* call_soon(PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames);
  PyObject* call_soon_threadsafe(PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames);
  PyObject* call_later(PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames);
  PyObject* call_at(PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames);
  PyObject* call_soon_private(PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames);
  PyObject* add_callback(PyObject* handle);
  PyObject* add_callback_signalsafe(PyObject* handle);
  PyObject* run_foreign_handle(PyObject* handle);
  PyObject* write_to_self();
  PyObject* create_future();
  PyObject* create_task(PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames);

  // ---- Python methods: descriptors
  PyObject* add_reader(PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames);
  PyObject* add_writer(PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames);
  PyObject* remove_reader(PyObject* fd);
  PyObject* remove_writer(PyObject* fd);
  PyObject* add_reader_private(PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames);
  PyObject* add_writer_private(PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames);
  PyObject* remove_reader_private(PyObject* fd);
  PyObject* remove_writer_private(PyObject* fd);
  PyObject* ensure_fd_no_transport(PyObject* fd);
  PyObject* watched(PyObject* fd);
  PyObject* wakeup_fd();

  // ---- attributes that BaseEventLoop keeps in the instance and its code reads
  PyObject* get_closed();
  int set_closed(PyObject* value);
  int set_debug_flag(PyObject* value);
  PyObject* get_stopping();
  int set_stopping(PyObject* value);
  PyObject* get_thread_id();
  int set_thread_id(PyObject* value);
  PyObject* get_current_handle();
  int set_current_handle_attr(PyObject* value);
  PyObject* get_task_factory();
  int set_task_factory(PyObject* value);
  PyObject* get_ready();
  PyObject* get_scheduled();
  int ignore(PyObject* value);
  PyObject* get_gather_writes();
  int set_gather_writes(PyObject* value);
  // After an attribute of the instance was set or deleted.
  void noticed(PyObject* name, bool is_set);

  void before_fork();
  void after_fork_in_child();

  int visit(visitproc visit, void* arg);
  void clear();

 private:
  friend struct LoopList;

  // ---- the turn (loop.cpp)
  bool run();
  void flush_dirty();
  void show_handles();
  bool turn_once();
  bool poll();
  bool nothing_to_poll_for() const;
  bool poll_by_libuv();
  bool poll_directly();
  bool decide_to_block(long* ms);
  void hand_on();
  bool is_timer_due();
  bool queue_due_timers();
  bool run_batch();
  bool absorb_later();
  void flush_old_writes();
  char* make_slab();
  // Milliseconds until the first deadline, rounded up; 0 when it is due, -1 when there is none. False on error.
  bool wait_for_timers(long* ms);
  bool raise_leaving();
  bool busy() const { return last_turn_callbacks_ > kHandful || turn_callbacks_ > kHandful; }
  void close_uv();
  bool has_backend() const;
  // In a forked child, ours become descriptors that the parent does not share. False with an exception set.
  bool adopt();
  // What a child's turn does before its poll: whether that is to be left out, or -1 with an exception set.
  int leaves_poll_out();
  void before_poll();
  static void on_prepare(uv_prepare_t* handle);
  static void on_check(uv_check_t* handle);
  static void on_idle(uv_idle_t* handle);
  static void on_async(uv_async_t* handle);
  static void on_timer(uv_timer_t* handle);
  static void on_closed(uv_handle_t* handle);

  // ---- what is open (introspect.cpp); each appends its rows, false with an exception set
  bool describe_resources(PyObject* rows);
  bool describe_watchers(PyObject* rows);
  bool describe_timers(PyObject* rows);
  bool describe_guests(PyObject* rows);

  // ---- scheduling (schedule.cpp)
  // A handle of a kind, with its type; the second is the plain kind.
  template <class Kind>
  py::Ref<> make(PyTypeObject* type, PyObject* callback, PyObject* const* args, Py_ssize_t nargs, PyObject* context);
  py::Ref<> make_handle(PyObject* callback, PyObject* const* args, Py_ssize_t nargs, PyObject* context);
  template <class Kind>
  PyObject* soon_parsed(PyTypeObject* type, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames, PyObject* name,
                        bool check_thread);
  template <class Kind>
  PyObject* queue_new(PyTypeObject* type, PyObject* callback, PyObject* const* args, Py_ssize_t nargs,
                      PyObject* context, PyObject* name, bool check_thread);
  template <class Kind>
  PyObject* soon(PyTypeObject* type, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames, PyObject* name,
                 bool check_thread);
  PyObject* schedule_at(double when, PyObject* given, PyObject* callback, PyObject* const* args, Py_ssize_t nargs,
                        PyObject* context);
  PyObject* call_later_by_name(PyObject* delay, const py::ScheduleArgs& given);
  void look_at_type();

  // ---- descriptors (descriptors.cpp)
  PyObject* add_watch(unsigned side, const char* name, bool is_public, PyObject* const* args, Py_ssize_t nargs,
                      PyObject* kwnames);
  PyObject* remove_watch(unsigned side, bool is_public, PyObject* fd);

  static constexpr unsigned kHandful = 8;
  static constexpr unsigned kQuietTurns = 100;
  static constexpr std::int64_t kGatherNs = 200'000;
  static constexpr unsigned kRounds = 32;
  static constexpr std::int64_t kRoundsNs = 50'000;

  // The collector cuts the ways from an object to its module; a loop, which everything of ours holds, holds it to the end.
  py::Ref<> module_;
  ModuleState* state_ = nullptr;
  Loop* previous_ = nullptr;  // the module's list of loops, for fork
  Loop* next_ = nullptr;

  uv_loop_t uv_{};
  uv::Handle<uv_prepare_t> prepare_;
  uv::Handle<uv_check_t> check_;
  uv::Handle<uv_idle_t> idle_;
  uv::Handle<uv_async_t> async_;
  uv::Handle<uv_timer_t> timer_;
  bool uv_open_ = false;

  Gil gil_;
  ReadyRing ready_;
  ReadyRing later_;  // scheduled by callbacks that run in the poll
  Contexts contexts_;
  TimerQueue timers_;
  Watchers watchers_;
  WatchedFiles watched_files_;
  Interrupt interrupt_;
  Resources resources_;
  Guests guests_;
  char* slab_ = nullptr;
  py::BytesPool received_;

  py::Ref<> leaving_;  // the exception that the run ends with
  py::Ref<> current_handle_;
  py::Ref<> task_factory_;
  py::Ref<> context_kwnames_;  // ("context",), the one that C code gives, whose string is not the interned one
  py::Ref<> old_asyncgen_hooks_;

  unsigned long thread_id_ = 0;
  unsigned type_tag_ = 0;
  unsigned type_hooks_ = 0;
  unsigned instance_hooks_ = 0;
  std::int64_t dirty_since_ = 0;
  FileIdentity backend_file_;
  std::uint64_t timer_mark_ = 0;  // timers made in the poll are for the next turn
  unsigned turn_callbacks_ = 0;
  unsigned last_turn_callbacks_ = 0;
  bool debug_ = false;
  bool closed_ = true;  // until BaseEventLoop.__init__ says otherwise: a loop whose __init__ failed is none to warn of
  bool running_ = false;
  bool in_turn_ = false;
  bool in_poll_ = false;
  bool skip_poll_ = false;
  bool stopping_ = false;
  bool may_block_ = false;
  bool woken_ = false;
  bool parked_directly_ = false;  // in a poll without libuv
  bool bounded_ = false;
  bool gather_writes_ = true;
  bool hides_handles_ = false;  // in run(), whose caller holds the loop
  bool foreign_ = false;  // a forked child's copy of its parent's loop, as long as its descriptors are the parent's too
  bool run_was_forked_ = false;
  bool listens_again_ = false;  // to signals, in the rest of that run
  unsigned quiet_turns_ = 0;    // in a child: how many more may do without a poll

  std::uint64_t round_ = 0;  // of handing on held input
  std::uint64_t turns_ = 0;
  std::uint64_t polls_ = 0;
  std::uint64_t polls_skipped_ = 0;
  std::uint64_t datagram_calls_ = 0;
  std::uint64_t datagrams_sent_ = 0;
};

// Every loop of the module: what happens around a fork concerns them all.
struct LoopList {
  static void add(Loop* loop);
  static void remove(Loop* loop);
  static Loop* next(const Loop* loop) { return loop->next_; }
  // Ends those that are garbage with the module.
  static void clear(const ModuleState* state);
};

// The Loop in an argument of one of the module's functions; null with TypeError set.
Loop* loop_of(PyObject* module, PyObject* object);
PyTypeObject* make_loop_type(PyObject* module);
// Takes what overridden() compares with from a class: uvpy.Loop, once it is made. False with an exception set.
bool remember_hooks(ModuleState* state, PyObject* type);

}  // namespace uvpy::core
