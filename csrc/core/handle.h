// Handle: a callback that waits to be run, asyncio.Handle for everybody who asks. Timers and threadsafe calls are kinds
// of it. The ready ring owns one reference while the handle is queued; asyncio's accelerator throws the one it gets away.
// SPDX-License-Identifier: MIT
#pragma once

#include <type_traits>

#include "core/contexts.h"
#include "py/error.h"
#include "py/object.h"
#include "py/ref.h"
#include "state.h"

namespace uvpy::core {

class Loop;

class Handle {
 public:
  static constexpr bool kWeakrefs = true;
  static constexpr bool kDict = false;
  static constexpr bool kFinalizer = false;
  static constexpr std::size_t kBaseWords = 0;
  static constexpr bool kPooled = true;

  Handle() = default;
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;

  // Fills a new handle; the context is copied when none is given. False with an exception set.
  bool init(Loop& loop, PyObject* callback, PyObject* const* args, Py_ssize_t nargs, PyObject* context);
  // The parts of it: all but what debug mode keeps, here to be compiled into the calls that make a handle each; and that.
  bool fill(PyObject* loop, Contexts& contexts, PyObject* callback, PyObject* const* args, Py_ssize_t nargs,
            PyObject* context) {
    loop_.put(py::borrow(loop));
    callback_.put(py::borrow(callback));
    nargs_ = static_cast<unsigned>(nargs);
    if (nargs == 1) {
      args_.put(py::borrow(args[0]));
    } else if (nargs > 1 && !pack(args)) {
      return false;
    }
    if (context != nullptr) {
      context_.put(py::borrow(context));
      return true;
    }
    context_.put(contexts.copy_current());
    shares_context_ = contexts.shares();
    return static_cast<bool>(context_);
  }
  bool note_source(Loop& loop);
  // For a handle whose callback brings its own context along.
  void init_bare(Loop& loop, PyObject* callback, PyObject* arg);

  PyObject* object() const { return py::object_of(this); }
  Loop& loop() const;
  bool is_cancelled() const { return cancelled_; }
  // A transport's reader or writer: where nothing is scheduled before it, it runs in the poll that finds it ready.
  bool runs_in_poll() const { return runs_in_poll_; }
  void run_in_poll() { runs_in_poll_ = true; }
  // What logs name: the handle, or the one of asyncio's own that it runs. Borrowed.
  PyObject* shown() const { return context_ || !args_ ? object() : args_.get(); }

  // ---- hidden handles
  // The collector need not know a handle that waits in the ring of a loop that runs, nor one that runs itself: there it is
  // reachable. So nearly all are never shown to it. One that has a reference besides is when it has run, and all that are
  // left are when the loop stops. A timer is hidden while nobody but the queue has it (core/timer_queue).

  // A new hidden one; null with MemoryError set.
  template <class Kind>
  static PyObject* create_hidden(PyTypeObject* type) {
    PyObject* self = nullptr;
    if constexpr (std::is_same_v<Kind, Handle>) {
      self = py::Pool<Handle>::take_blank(type);
    }
    if (self == nullptr) {
      self = py::create<Kind, false>(type);
    }
    if (self != nullptr) [[likely]] {
      py::state_of<Kind>(self)->hidden_ = true;
    }
    return self;
  }
  bool is_hidden() const { return hidden_; }
  void show() {
    if (hidden_) {
      hidden_ = false;
      PyObject_GC_Track(object());
    }
  }
  // Drops a reference that the ring had, of a handle of any kind.
  static void finish(PyObject* self) {
    auto* state = py::state_of<Handle>(self);
    if (state->hidden_) [[likely]] {
      if (Py_REFCNT(self) == 1 && reinterpret_cast<py::Object<Handle>*>(self)->weakrefs == nullptr) [[likely]] {
        state->empty();
        if (py::Pool<Handle>::give_blank(self)) [[likely]] {
          return;
        }
      } else {
        state->show();
      }
    }
    Py_DECREF(self);
  }

  // Runs the callback in its context. False when an exception is set that ends the loop. Here to be compiled into the loop's
  // batch.
  [[gnu::always_inline]] bool run(Contexts& contexts) {
    if (!callback_) {
      return true;  // cleared by the collector
    }
    // The callback may cancel this very handle, which drops its fields.
    py::Ref<> callback = callback_.dup();
    py::Ref<> args = args_.dup();
    const unsigned nargs = nargs_;
    const bool shares = shares_context_;
    py::Ref<> shared;
    if (shares) [[likely]] {
      shared.put(std::move(context_));
      context_.put(contexts.take(shared));
      shares_context_ = false;
    }
    // The context outlives the run: nothing but the collector takes it from a handle, and not from one that is running.
    PyObject* context = context_.get();
    if ((shares && context == nullptr) || (context != nullptr && PyContext_Enter(context) < 0)) [[unlikely]] {
      return failed(callback.get(), args.get());
    }
    PyObject* result = nullptr;
    if (nargs <= 1) [[likely]] {
      PyObject* argv[] = {nullptr, args.get()};
      result = PyObject_Vectorcall(callback.get(), argv + 1, nargs | PY_VECTORCALL_ARGUMENTS_OFFSET, nullptr);
    } else {
      PyObject** items = reinterpret_cast<PyTupleObject*>(args.get())->ob_item;
      result = PyObject_Vectorcall(callback.get(), items, nargs, nullptr);
    }
    const bool done = result != nullptr;
    if (done) [[likely]] {
      Py_DECREF(result);
    }
    if (context != nullptr) {
      leave(context, done);
    }
    py::Ref<> dropped;
    if (shares) [[likely]] {
      // One that the program has seen is this handle's for good: it may have kept a weak reference.
      if (!context_is_shown_ && contexts.give_back(context_, shared, dropped)) [[likely]] {
        context_.put(std::move(shared));
        shares_context_ = true;
      } else {
        shared.reset();
        contexts.drop_unshared();
      }
    }
    return done || failed(callback.get(), args.get());
  }
  bool run();

  // What asyncio and its users call.
  PyObject* cancel();
  PyObject* cancelled();
  PyObject* run_method();
  PyObject* get_context();
  PyObject* repr_info();
  PyObject* copy();
  PyObject* get_callback();
  PyObject* get_args();
  PyObject* get_cancelled();
  PyObject* get_loop();
  PyObject* get_source_traceback();
  PyObject* get_repr();
  PyObject* get_class();

  // Here, because a young collection has many of them to visit.
  int visit(visitproc visit, void* arg) {
    Py_VISIT(loop_.get());
    Py_VISIT(callback_.get());
    Py_VISIT(args_.get());
    Py_VISIT(context_.get());
    Py_VISIT(source_traceback_.get());
    return 0;
  }
  void clear();

 protected:
  // cancel() without the waiting and without taking a timer out of its queue. False with an exception set.
  bool mark_cancelled();

 private:
  // What the destructor does, and the constructor.
  void empty() {
    callback_.reset();
    args_.reset();
    context_.reset();
    if (source_traceback_ || repr_) [[unlikely]] {
      source_traceback_.reset();
      repr_.reset();
    }
    nargs_ = 0;
    shares_context_ = context_is_shown_ = cancelled_ = runs_in_poll_ = hidden_ = false;
    loop_.reset();
  }
  bool pack(PyObject* const* args);
  // Leaving the context that was entered last cannot fail; an exception of the callback must survive it.
  static void leave(PyObject* context, bool done) {
    if (done) [[likely]] {
      PyContext_Exit(context);
    } else {
      py::SavedError error;
      PyContext_Exit(context);
    }
  }
  // What becomes of the exception that is set: false where it ends the loop.
  bool failed(PyObject* callback, PyObject* args);

  py::Ref<> loop_;
  py::Ref<> callback_;
  py::Ref<> args_;  // nothing, the one argument, or a tuple of more
  py::Ref<> context_;
  py::Ref<> source_traceback_;
  py::Ref<> repr_;
  unsigned nargs_ = 0;
  bool shares_context_ = false;    // context_ is one of Contexts' copies
  bool context_is_shown_ = false;  // get_context() has given it
  bool cancelled_ = false;
  bool runs_in_poll_ = false;
  bool hidden_ = false;  // from the collector
};

// From call_soon_threadsafe since 3.14: cancel() and cancelled() in another thread wait while the callback runs.
class ThreadSafeHandle : public Handle {
 public:
  ~ThreadSafeHandle();
  bool run();
  PyObject* cancel_and_wait();
  PyObject* cancelled_and_wait();
  PyObject* get_thread_safe_class();

 private:
  void wait_for_the_run();

  unsigned long running_thread_ = 0;
  PyThread_type_lock waiters_ = nullptr;  // held by the run; made by the first who waits
};

// The arguments of a handle as a new tuple: none, one, or the tuple that they already are.
PyObject* args_tuple(PyObject* args, unsigned nargs);

PyTypeObject* make_handle_type(PyObject* module);
// The memory that is kept for handles of all kinds, while a module is there.
void open_handle_pools();
void close_handle_pools();
// A kind of Handle, in Python too.
PyTypeObject* make_thread_safe_handle_type(PyObject* module, PyTypeObject* handle_type);
// repr of a handle of any kind: the interpreter's own text.
PyObject* handle_repr(PyObject* self);

}  // namespace uvpy::core
