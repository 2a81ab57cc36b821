// Handle and ThreadSafeHandle. Called by the loop (run), by users and asyncio (cancel, repr). Texts come from the
// interpreter's own asyncio.Handle, whose functions work on ours by duck typing, so they fit the version that runs.
// SPDX-License-Identifier: MIT
#include "core/handle.h"

#include <cstddef>
#include <iterator>

#include "core/debug.h"
#include "core/loop.h"
#include "core/report.h"
#include "core/timer.h"
#include "py/call.h"
#include "py/method.h"
#include "py/type.h"

namespace uvpy::core {

bool Handle::init(Loop& loop, PyObject* callback, PyObject* const* args, Py_ssize_t nargs, PyObject* context) {
  return fill(loop.object(), loop.contexts(), callback, args, nargs, context) && (!loop.debug() || note_source(loop));
}

bool Handle::note_source(Loop& loop) {
  source_traceback_ = debug::source_traceback(loop);
  return static_cast<bool>(source_traceback_);
}

bool Handle::pack(PyObject* const* args) {
  args_.put(py::steal(PyTuple_New(nargs_)));
  for (unsigned i = 0; args_ && i < nargs_; ++i) {
    PyTuple_SET_ITEM(args_.get(), i, Py_NewRef(args[i]));
  }
  return static_cast<bool>(args_);
}

void Handle::init_bare(Loop& loop, PyObject* callback, PyObject* arg) {
  loop_ = py::borrow(loop.object());
  callback_ = py::borrow(callback);
  args_ = py::borrow(arg);
  nargs_ = arg != nullptr ? 1 : 0;
}

Loop& Handle::loop() const { return *py::state_of<Loop>(loop_.get()); }

// A child forked in a callback has no running loop, and from 3.14 on a task that SystemExit ends there says that in its
// place: what the child is to end with is behind it.
static py::Ref<> what_ended_it(const Loop& loop, py::Ref<>&& exc) {
  if (!loop.run_was_forked() || py::ends_the_loop(exc.get())) [[likely]] {
    return std::move(exc);
  }
  py::Ref<> behind = py::steal(PyException_GetContext(exc.get()));
  return behind && py::ends_the_loop(behind.get()) ? std::move(behind) : std::move(exc);
}

bool Handle::run() { return run(loop().contexts()); }

bool Handle::failed(PyObject* callback, PyObject* args) {
  py::Ref<> exc = what_ended_it(loop(), py::take_error());
  if (py::ends_the_loop(exc.get())) {
    py::restore_error(std::move(exc));
    return false;
  }
  py::Ref<> given = py::steal(args_tuple(args, nargs_));
  return given && report::callback_failed(loop(), object(), callback, given.get(), exc.get(), source_traceback_.get());
}

bool Handle::mark_cancelled() {
  if (cancelled_) {
    return true;
  }
  cancelled_ = true;
  bool ok = true;
  if (loop_ && loop().debug()) {
    // Debug mode keeps the text, for a "took 2.5 seconds" that comes after the cancelling.
    repr_ = py::steal(PyObject_Repr(object()));
    ok = static_cast<bool>(repr_);
  }
  py::Ref<> callback = std::move(callback_);
  py::Ref<> args = std::move(args_);
  nargs_ = 0;
  return ok;
}

PyObject* Handle::cancel() {
  if (!mark_cancelled()) {
    return nullptr;
  }
  Py_RETURN_NONE;
}

PyObject* Handle::cancelled() { return PyBool_FromLong(cancelled_ ? 1 : 0); }

PyObject* Handle::run_method() {
  if (!run()) {
    return nullptr;
  }
  Py_RETURN_NONE;
}

PyObject* Handle::get_context() {
  if (shares_context_) {
    py::Ref<> own = py::steal(PyContext_Copy(context_.get()));
    if (!own) {
      return nullptr;
    }
    shares_context_ = false;
    context_ = std::move(own);
  }
  context_is_shown_ = true;
  return Py_NewRef(context_ ? context_.get() : Py_None);
}

PyObject* Handle::repr_info() {
  const ModuleState& state = loop().state();
  return py::call_method(state.asyncio_handle, state.names._repr_info, object()).release();
}

PyObject* Handle::get_callback() { return Py_NewRef(callback_ ? callback_.get() : Py_None); }

PyObject* Handle::get_args() {
  if (!callback_) {
    Py_RETURN_NONE;
  }
  return args_tuple(args_.get(), nargs_);
}

PyObject* Handle::get_cancelled() { return cancelled(); }
PyObject* Handle::get_loop() { return Py_NewRef(loop_ ? loop_.get() : Py_None); }

PyObject* Handle::get_source_traceback() { return Py_NewRef(source_traceback_ ? source_traceback_.get() : Py_None); }

PyObject* Handle::get_repr() { return Py_NewRef(repr_ ? repr_.get() : Py_None); }
PyObject* Handle::get_class() { return Py_NewRef(loop().state().asyncio_handle); }

void Handle::clear() {
  // loop_ stays: it breaks no cycle that the others do not, and methods lean on it.
  callback_.reset();
  args_.reset();
  nargs_ = 0;
  context_.reset();
  shares_context_ = false;
  source_traceback_.reset();
}

PyObject* args_tuple(PyObject* args, unsigned nargs) {
  if (nargs == 0) {
    return PyTuple_New(0);
  }
  return nargs == 1 ? PyTuple_Pack(1, args) : Py_NewRef(args);
}

// ---- threadsafe

ThreadSafeHandle::~ThreadSafeHandle() {
  if (waiters_ != nullptr) {
    PyThread_free_lock(waiters_);
  }
}

bool ThreadSafeHandle::run() {
  running_thread_ = PyThread_get_thread_ident();
  const bool ok = Handle::run();
  running_thread_ = 0;
  if (waiters_ != nullptr) {
    PyThread_release_lock(waiters_);
  }
  return ok;
}

void ThreadSafeHandle::wait_for_the_run() {
  if (running_thread_ == 0 || running_thread_ == PyThread_get_thread_ident()) {
    return;
  }
  py::Ref<> alive = py::borrow(object());
  if (waiters_ == nullptr) {
    waiters_ = PyThread_allocate_lock();
    if (waiters_ == nullptr) {
      return;
    }
    PyThread_acquire_lock(waiters_, NOWAIT_LOCK);  // on behalf of the run, which releases it
  }
  PyThreadState* saved = PyEval_SaveThread();
  PyThread_acquire_lock(waiters_, WAIT_LOCK);
  PyThread_release_lock(waiters_);  // for the next who waits
  PyEval_RestoreThread(saved);
}

PyObject* ThreadSafeHandle::cancel_and_wait() {
  wait_for_the_run();
  return cancel();
}

PyObject* ThreadSafeHandle::cancelled_and_wait() {
  wait_for_the_run();
  return cancelled();
}

PyObject* ThreadSafeHandle::get_thread_safe_class() {
  const ModuleState& state = loop().state();
  return Py_NewRef(state.asyncio_thread_safe_handle != nullptr ? state.asyncio_thread_safe_handle
                                                               : state.asyncio_handle);
}

// As asyncio's own: a handle, here of asyncio's type, that has all the attributes and is not scheduled.
PyObject* Handle::copy() {
  const ModuleState& state = loop().state();
  const bool is_timer = Py_IS_TYPE(object(), state.timer_type);
  PyObject* kind = is_timer ? state.asyncio_timer_handle : state.asyncio_handle;
  py::Ref<> made = py::steal(PyObject_CallMethod(kind, "__new__", "O", kind));
  // The last two are a timer's.
  static constexpr const char* kNames[] = {"_callback", "_args",    "_cancelled", "_loop",     "_source_traceback",
                                           "_repr",     "_context", "_when",      "_scheduled"};
  const std::size_t count = std::size(kNames) - (is_timer ? 0 : 2);
  for (std::size_t i = 0; made && i < count; ++i) {
    py::Ref<> value = py::steal(PyObject_GetAttrString(object(), kNames[i]));
    if (!value || PyObject_SetAttrString(made.get(), kNames[i], value.get()) < 0) {
      return nullptr;
    }
  }
  return made.release();
}

// ---- tables

PyObject* handle_repr(PyObject* self) {
  // Handle, Timer and ThreadSafeHandle share the place of their state, which starts with the Handle.
  const ModuleState& state = py::state_of<Handle>(self)->loop().state();
  return py::call_method(state.asyncio_handle, state.names.__repr__, self).release();
}

namespace {

static_assert(offsetof(py::Object<Handle>, state) == offsetof(py::Object<ThreadSafeHandle>, state));

PyGetSetDef attributes[] = {
    py::getter<&Handle::get_class>("__class__", "asyncio.Handle, so that isinstance() holds."),
    py::getter<&Handle::get_callback>("_callback", "The callback; None once cancelled."),
    py::getter<&Handle::get_args>("_args", "Its positional arguments; None once cancelled."),
    py::getter<&Handle::get_cancelled>("_cancelled", "Whether cancel() was called."),
    py::getter<&Handle::get_loop>("_loop", "The loop."),
    py::getter<&Handle::get_context>("_context", "The contextvars.Context that the callback runs in."),
    py::getter<&Handle::get_source_traceback>("_source_traceback", "Where it was made, in debug mode."),
    py::getter<&Handle::get_repr>("_repr", "The text kept by cancel() in debug mode."),
    {nullptr, nullptr, nullptr, nullptr, nullptr},
};

PyMethodDef methods[] = {
    py::method<&Handle::cancel>("cancel", "Cancel the callback. Calling it again, or after the run, does nothing."),
    py::method<&Handle::cancelled>("cancelled", "Whether the callback was cancelled."),
    py::method<&Handle::get_context>("get_context", "The contextvars.Context that the callback runs in."),
    py::method<&Handle::run_method>("_run", "Run the callback now, as the loop would."),
    py::method<&Handle::repr_info>("_repr_info", "The parts of the repr."),
    py::method<&Handle::copy>("__copy__", "A handle of asyncio's own type that is not scheduled."),
    {nullptr, nullptr, 0, nullptr},
};

PyGetSetDef thread_safe_attributes[] = {
    py::getter<&ThreadSafeHandle::get_thread_safe_class>("__class__", "The class of asyncio that isinstance() sees."),
    {nullptr, nullptr, nullptr, nullptr, nullptr},
};

PyMethodDef thread_safe_methods[] = {
    py::method<&ThreadSafeHandle::cancel_and_wait>("cancel",
                                                   "Cancel the callback; in another thread wait while it runs."),
    py::method<&ThreadSafeHandle::cancelled_and_wait>(
        "cancelled", "Whether it was cancelled; in another thread wait while it runs."),
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace

PyTypeObject* make_handle_type(PyObject* module) {
  const PyType_Slot more[] = {
      {Py_tp_repr, reinterpret_cast<void*>(&handle_repr)},
      {Py_tp_getset, attributes},
      {Py_tp_methods, methods},
  };
  return py::make_type<Handle>(module, {"uvpy._core.Handle", "A callback scheduled on a uvpy loop; see asyncio.Handle.",
                                        more, py::kClosedType | Py_TPFLAGS_BASETYPE});
}

PyTypeObject* make_thread_safe_handle_type(PyObject* module, PyTypeObject* handle_type) {
  const PyType_Slot more[] = {
      {Py_tp_getset, thread_safe_attributes},
      {Py_tp_methods, thread_safe_methods},
  };
  return py::make_type<ThreadSafeHandle>(
      module, {"uvpy._core.ThreadSafeHandle", "A callback scheduled with call_soon_threadsafe; see asyncio.Handle.",
               more, py::kClosedType, reinterpret_cast<PyObject*>(handle_type)});
}

void open_handle_pools() {
  py::Pool<Handle>::open();
  py::Pool<Timer>::open();
  py::Pool<ThreadSafeHandle>::open();
}

void close_handle_pools() {
  py::Pool<Handle>::close();
  py::Pool<Timer>::close();
  py::Pool<ThreadSafeHandle>::close();
}

}  // namespace uvpy::core
