// The loop's turn: poll (what is rare of it in loop_poll.cpp), timers, batch, flush; and running it until it is stopped.
// SPDX-License-Identifier: MIT
#include "core/loop.h"

#include <cerrno>
#include <cmath>
#include <cstdlib>

#include "core/clock.h"
#include "core/debug.h"
#include "core/report.h"
#include "py/call.h"
#include "py/mutant.h"

namespace uvpy::core {

// ---- run

PyObject* Loop::refuse_foreign() {
  // The kernel's side of the loop is the parent's, and cannot become this process's own.
  PyErr_SetString(PyExc_RuntimeError, "This event loop belongs to the process that forked this one: make a new one");
  return nullptr;
}

PyObject* Loop::run_forever() {
  if (!check_closed()) {
    return nullptr;
  }
  // By name: a subclass may override the two hooks, as asyncio's own code allows since 3.13.
  if (!py::call_method(object(), state_->names._run_forever_setup)) {
    return nullptr;
  }
  const bool ok = run();
  {
    py::SavedError error;
    if (!py::call_method(object(), state_->names._run_forever_cleanup)) {
      // A signal may have raised half-way; the clean-up is the same however often it runs.
      py::SavedError interrupted;
      py::call_method(object(), state_->names._run_forever_cleanup);
    }
  }
  if (!ok || PyErr_Occurred() != nullptr) {
    return nullptr;
  }
  Py_RETURN_NONE;
}

PyObject* Loop::run_forever_setup() {
  const ModuleState& s = *state_;
  if (!check_closed()) {
    return nullptr;
  }
  if (running_) {
    PyErr_SetString(PyExc_RuntimeError, "This event loop is already running");
    return nullptr;
  }
  py::Ref<> other = py::call_method(s.events, s.names._get_running_loop);
  if (!other) {
    return nullptr;
  }
  if (other.get() != Py_None) {
    PyErr_SetString(PyExc_RuntimeError, "Cannot run the event loop while another loop is running");
    return nullptr;
  }
  py::Ref<> hooks = py::call(s.get_asyncgen_hooks);
  py::Ref<> first = py::get_attr(object(), s.names._asyncgen_firstiter_hook);
  py::Ref<> final = py::get_attr(object(), s.names._asyncgen_finalizer_hook);
  if (!hooks || !first || !final) {
    return nullptr;
  }
  if (debug_ && !py::call_method(object(), s.names._set_coroutine_origin_tracking, Py_True)) {
    return nullptr;
  }
  thread_id_ = PyThread_get_thread_ident();
  running_ = true;
  old_asyncgen_hooks_ = std::move(hooks);
  if (!py::call(s.set_asyncgen_hooks, first.get(), final.get()) ||
      !py::call_method(s.events, s.names._set_running_loop, object())) {
    py::SavedError error;
    py::Ref<> undone = py::steal(run_forever_cleanup());
    return nullptr;
  }
  Py_RETURN_NONE;
}

PyObject* Loop::run_forever_cleanup() {
  const ModuleState& s = *state_;
  // The one Python function among the steps, in which a signal handler may raise; the rest is done all the same, and
  // whoever calls again gets this step again. It does nothing where the tracking is off.
  bool ok = static_cast<bool>(py::call_method(object(), s.names._set_coroutine_origin_tracking, Py_False));
  if (running_) {
    py::SavedError error;
    stopping_ = false;
    thread_id_ = 0;
    running_ = false;
    ok = static_cast<bool>(py::call_method(s.events, s.names._set_running_loop, Py_None)) && ok;
    if (old_asyncgen_hooks_) {
      py::Ref<> hooks = std::move(old_asyncgen_hooks_);
      ok = py::call(s.set_asyncgen_hooks, PyTuple_GET_ITEM(hooks.get(), 0), PyTuple_GET_ITEM(hooks.get(), 1)) && ok;
    }
  }
  if (!ok) {
    return nullptr;
  }
  Py_RETURN_NONE;
}

PyObject* Loop::stop() {
  stopping_ = true;
  Py_RETURN_NONE;
}

// ---- the poll
// Here with the turn, and compiled into it: a turn of a busy loop is a system call and little else, and what returns after
// one is guessed wrong by the processor.

[[gnu::always_inline]] inline bool Loop::nothing_to_poll_for() const {
  return watchers_.foreign() == 0 && resources_.count() == 0 && !guests_.are_here();
}

[[gnu::always_inline]] inline bool Loop::poll_directly() {
  in_poll_ = true;
  long ms = 0;
  const bool blocks = may_block_ && decide_to_block(&ms);
  flush_writes();
  if (blocks) {
    parked_directly_ = true;
    gil_.give();
  }
  PollEvent events[Watchers::kRoom];
  const int count = watchers_.wait(events, blocks ? ms : 0);
  if (blocks) {
    gil_.take();
    parked_directly_ = false;
    if (count == 0 && bounded_) {
      gil_.forget();
    }
  }
  if (count > 0) {
    watchers_.dispatch(*this, events, count);
  }
  in_poll_ = false;
  if (count < 0 && count != -EINTR) {
    py::raise_os_error(EBADF);  // somebody closed it; its number may be another file's by now
    return false;
  }
  return true;
}

[[gnu::always_inline]] inline bool Loop::poll() {
  timer_mark_ = timers_.created();
  if (skip_poll_) {
    // The last poll's callbacks have scheduled what runs now. What a poll would find comes behind it in any case, so one
    // turn may do without: the turn after it polls.
    skip_poll_ = false;
    ++polls_skipped_;
    ++round_;
    hand_on();
    return !leaving_ || raise_leaving();
  }
  may_block_ = ready_.empty() && !stopping_ && resources_.holding.empty();
  ++round_;
  if (may_block_ && !timers_.empty()) {
    long ms = 0;
    if (!wait_for_timers(&ms)) {
      return false;
    }
    may_block_ = ms != 0;
  }
  const int left_out = quiet_turns_ != 0 ? leaves_poll_out() : 0;
  if (left_out < 0) {
    return false;
  }
  if (left_out > 0 || (!may_block_ && nothing_to_poll_for())) {
    ++polls_skipped_;
  } else {
    ++polls_;
    if (!(guests_.are_here() ? poll_by_libuv() : poll_directly())) {
      return false;
    }
    if (!resources_.holding.empty()) [[unlikely]] {
      hand_on();
    }
    if (leaving_) [[unlikely]] {
      return raise_leaving();
    }
  }
  if (foreign_ && !adopt()) [[unlikely]] {
    return false;  // forked in the poll; what follows may close what the parent has, too
  }
  // Handlers run between bytecodes, too; this is for turns that execute none.
  if (interrupt_.active() && PyErr_CheckSignals() < 0) {
    return false;
  }
  return true;
}

// ---- the turn

bool Loop::absorb_later() {
  while (!later_.empty()) {
    if (!ready_.push(later_.pop())) {
      return false;
    }
  }
  return true;
}

void Loop::run_in_poll(PyObject* handle) {
  py::Ref<> alive = py::borrow(handle);
  count_callback();
  if (!(debug_ ? debug::run_timed(*this, handle) : run_handle(handle))) {
    leave_with_error();
  }
}

bool Loop::run_handle(PyObject* handle) {
  auto* state = py::state_of<Handle>(handle);
  if constexpr (py::kThreadSafeHandles) {
    if (Py_TYPE(handle) == state_->thread_safe_handle_type) {
      return py::state_of<ThreadSafeHandle>(handle)->run();
    }
  }
  return state->run(contexts_);
}

bool Loop::queue_due_timers() {
  if (timers_.empty()) {
    return true;
  }
  double now = 0;
  if (!time_now(&now)) {
    return false;
  }
  // As asyncio: due within the resolution of the clock, which is a nanosecond, or what a double can tell apart.
  double end = now + 1e-9;
  if (end == now) {
    end = std::nextafter(now, HUGE_VAL);
  }
  if constexpr (py::mutant("timer-early")) {
    end += 0.005;
  }
  return timers_.move_due(end, timer_mark_, ready_);
}

// Compiled into the run, as the poll is, with the run of a handle.
[[gnu::always_inline]] inline bool Loop::run_batch() {
  std::size_t batch = ready_.size();
  skip_poll_ = !later_.empty();
  if (skip_poll_ && !absorb_later()) {
    return false;
  }
  for (std::size_t left = batch; left > 0 && !ready_.empty(); --left) {
    PyObject* handle = ready_.pop().release();
    bool ok = true;
    if (!py::state_of<Handle>(handle)->is_cancelled()) [[likely]] {
      count_callback();
      // Not by run_handle() for the plain kind, which is to be compiled in here.
      const bool is_plain = !py::kThreadSafeHandles || Py_TYPE(handle) != state_->thread_safe_handle_type;
      ok = debug_     ? debug::run_timed(*this, handle)
           : is_plain ? py::state_of<Handle>(handle)->run(contexts_)
                      : run_handle(handle);
    }
    Handle::finish(handle);
    if (!ok) [[unlikely]] {
      if constexpr (py::mutant("tail-dropped")) {
        py::SavedError error;
        while (--left > 0 && !ready_.empty()) {
          ready_.pop();
        }
      }
      return false;
    }
    if (leaving_) [[unlikely]] {
      return raise_leaving();
    }
  }
  return true;
}

[[gnu::always_inline]] inline bool Loop::turn_once() {
  ++turns_;
  in_turn_ = true;
  last_turn_callbacks_ = turn_callbacks_;
  turn_callbacks_ = 0;
  const bool ok = poll() && queue_due_timers() && run_batch();
  in_turn_ = false;
  contexts_.drop_unshared();
  timers_.track_shared();
  if (!ok) {
    py::SavedError error;
    static_cast<void>(absorb_later());
  }
  if (!resources_.dirty.empty()) {
    py::SavedError error;
    flush_writes();
  }
  return ok && (!leaving_ || raise_leaving());
}

bool Loop::run() {
  if (!interrupt_.begin(*this)) {
    return false;
  }
  bool ok = true;
  run_was_forked_ = listens_again_ = false;
  skip_poll_ = false;  // what held for the last turn of another run does not hold for the first of this one
  hides_handles_ = py::kSoleOwnerIsTold;
  contexts_.begin_run();
  do {
    ok = turn_once();
  } while (ok && !stopping_);
  hides_handles_ = false;
  contexts_.end_run();
  show_handles();
  interrupt_.end(*this);
  return ok;
}

void Loop::show_handles() {
  if constexpr (py::mutant("handles-stay-hidden")) {
    return;
  }
  for (const ReadyRing* ring : {&ready_, &later_}) {
    for (std::size_t i = 0; i < ring->size(); ++i) {
      py::state_of<Handle>(ring->at(i))->show();
    }
  }
}

PyObject* Loop::run_once() {
  // One turn, for programs that drive the loop themselves between _run_forever_setup and _run_forever_cleanup.
  if (!check_closed()) {
    return nullptr;
  }
  if (in_turn_) {
    PyErr_SetString(PyExc_RuntimeError, "uvpy's loop cannot be run from inside one of its own callbacks");
    return nullptr;
  }
  const bool begun = !interrupt_.active();
  if (begun && !interrupt_.begin(*this)) {
    return nullptr;
  }
  const bool ok = turn_once();
  if (begun) {
    interrupt_.end(*this);
  }
  if (!ok) {
    return nullptr;
  }
  Py_RETURN_NONE;
}

// ---- leaving

void Loop::leave_with_error() {
  py::Ref<> exc = py::take_error();
  if (!leaving_) {
    leaving_ = std::move(exc);
  }
}

bool Loop::raise_leaving() {
  py::restore_error(std::move(leaving_));
  return false;
}

// ---- gathered writes

void Loop::flush_old_writes() {
  if (monotonic_ns() - dirty_since_ > kGatherNs) {
    flush_dirty();
  }
}

void Loop::mark_dirty(Resource* resource) {
  if (resources_.dirty.empty()) {
    dirty_since_ = monotonic_ns();
  }
  resources_.dirty.push(resource);
}

void Loop::flush_dirty() {
  while (Resource* resource = resources_.dirty.pop()) {
    py::Ref<> alive = py::borrow(resource->object());
    resource->flush();
  }
}

char* Loop::make_slab() {
  slab_ = static_cast<char*>(std::malloc(kSlabRoom));
  return slab_;
}

}  // namespace uvpy::core
