// Scheduling: call_soon and its siblings, futures and tasks. The part of the Loop that asyncio's accelerator and users
// call most; the checks and texts are BaseEventLoop's.
// SPDX-License-Identifier: MIT
#include <time.h>

#include <cmath>
#include <type_traits>
#include <utility>

#include "core/debug.h"
#include "core/loop.h"
#include "core/report.h"
#include "py/args.h"
#include "py/call.h"

namespace uvpy::core {

bool Loop::check_closed() const {
  if (closed_) [[unlikely]] {
    PyErr_SetString(PyExc_RuntimeError, "Event loop is closed");
    return false;
  }
  return true;
}

// ---- the clock

namespace {

// time.monotonic() to the last bit: CPython divides whole nanoseconds, and whole seconds apart.
double monotonic() {
  timespec t{};
  clock_gettime(CLOCK_MONOTONIC, &t);
  const auto ns = static_cast<std::int64_t>(t.tv_sec) * 1'000'000'000 + t.tv_nsec;
  return t.tv_nsec == 0 ? static_cast<double>(t.tv_sec) : static_cast<double>(ns) / 1e9;
}

}  // namespace

PyObject* Loop::time() { return PyFloat_FromDouble(monotonic()); }

bool Loop::time_now(double* now) {
  if (!overridden(kTime)) [[likely]] {
    *now = monotonic();
    return true;
  }
  py::Ref<> value = py::call_method(object(), state_->names.time);
  if (!value) {
    return false;
  }
  *now = PyFloat_AsDouble(value.get());
  return *now != -1.0 || PyErr_Occurred() == nullptr;
}

// ---- call_soon

template <class Kind>
[[gnu::always_inline]] inline py::Ref<> Loop::make(PyTypeObject* type, PyObject* callback, PyObject* const* args,
                                                   Py_ssize_t nargs, PyObject* context) {
  py::Ref<> handle;
  if constexpr (std::is_same_v<Kind, Handle>) {
    handle.put(py::steal(hides_handles_ ? Handle::create_hidden<Handle>(type) : py::create<Handle>(type)));
  } else if constexpr (std::is_same_v<Kind, Timer>) {
    handle.put(py::steal(Handle::create_hidden<Timer>(type)));
  } else {
    handle.put(py::steal(py::create<Kind>(type)));
  }
  if (!handle) {
    return {};
  }
  auto* state = py::state_of<Kind>(handle.get());
  if (!state->fill(object(), contexts_, callback, args, nargs, context) || (debug_ && !state->note_source(*this))) {
    return {};
  }
  return handle;
}

py::Ref<> Loop::make_handle(PyObject* callback, PyObject* const* args, Py_ssize_t nargs, PyObject* context) {
  return make<Handle>(state_->handle_type, callback, args, nargs, context);
}

template <class Kind>
[[gnu::always_inline]] inline PyObject* Loop::queue_new(PyTypeObject* type, PyObject* callback, PyObject* const* args,
                                                        Py_ssize_t nargs, PyObject* context, PyObject* name,
                                                        bool check_thread) {
  if (!check_closed() || (debug_ && !debug::check_call(*this, callback, name, check_thread))) {
    return nullptr;
  }
  py::Ref<> handle = make<Kind>(type, callback, args, nargs, context);
  if (!handle || !push_ready(handle.dup())) {
    return nullptr;
  }
  return handle.release();
}

template <class Kind>
[[gnu::noinline]] PyObject* Loop::soon_parsed(PyTypeObject* type, PyObject* const* args, Py_ssize_t nargs,
                                              PyObject* kwnames, PyObject* name, bool check_thread) {
  static constexpr const char* kNames[] = {"callback"};
  py::ScheduleArgs given;
  if (!py::parse_schedule(PyUnicode_AsUTF8(name), kNames, state_->names.context, args, nargs, kwnames, &given)) {
    return nullptr;
  }
  if (kwnames != nullptr && PyTuple_GET_SIZE(kwnames) == 1 && given.context != nullptr && nargs > 0) {
    context_kwnames_ = py::borrow(kwnames);
  }
  return queue_new<Kind>(type, given.named[0], given.rest, given.rest_count, given.context, name, check_thread);
}

template <class Kind>
[[gnu::always_inline]] inline PyObject* Loop::soon(PyTypeObject* type, PyObject* const* args, Py_ssize_t nargs,
                                                   PyObject* kwnames, PyObject* name, bool check_thread) {
  // The two forms of nearly all calls: no keywords, or `context` as asyncio's C code gives it.
  PyObject* context = nullptr;
  if (kwnames != nullptr) {
    const bool is_context = kwnames == context_kwnames_.get() ||
                            (PyTuple_GET_SIZE(kwnames) == 1 && PyTuple_GET_ITEM(kwnames, 0) == state_->names.context);
    if (!is_context || !PyContext_CheckExact(args[nargs])) [[unlikely]] {
      return soon_parsed<Kind>(type, args, nargs, kwnames, name, check_thread);
    }
    context = args[nargs];
  }
  if (nargs == 0) [[unlikely]] {
    return soon_parsed<Kind>(type, args, nargs, kwnames, name, check_thread);
  }
  return queue_new<Kind>(type, args[0], args + 1, nargs - 1, context, name, check_thread);
}

PyObject* Loop::call_soon(PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames) {
  return soon<Handle>(state_->handle_type, args, nargs, kwnames, state_->names.call_soon, true);
}

PyObject* Loop::call_soon_threadsafe(PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames) {
  PyObject* name = state_->names.call_soon_threadsafe;
  PyObject* handle = py::kThreadSafeHandles
                         ? soon<ThreadSafeHandle>(state_->thread_safe_handle_type, args, nargs, kwnames, name, false)
                         : soon<Handle>(state_->handle_type, args, nargs, kwnames, name, false);
  if (handle != nullptr) {
    wake();
  }
  return handle;
}

PyObject* Loop::call_soon_private(PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames) {
  // _call_soon(callback, args, context), which call_soon is made of in asyncio.
  static constexpr const char* kNames[] = {"callback", "args", "context"};
  PyObject* given[3];
  if (!py::parse({"_call_soon", kNames, 3, 3}, args, nargs, kwnames, given)) {
    return nullptr;
  }
  py::Ref<> items = py::steal(PySequence_Tuple(given[1]));
  if (!items) {
    return nullptr;
  }
  PyObject* context = given[2] == Py_None ? nullptr : given[2];
  py::Ref<> handle = make_handle(given[0], reinterpret_cast<PyTupleObject*>(items.get())->ob_item,
                                 PyTuple_GET_SIZE(items.get()), context);
  if (!handle || !push_ready(handle.dup())) {
    return nullptr;
  }
  return handle.release();
}

bool Loop::queue_io(PyObject* callback, PyObject* context) {
  py::Ref<> handle = make_handle(callback, nullptr, 0, context);
  return handle && ready_.push(std::move(handle));
}

bool Loop::report_io(PyObject* callback, PyObject* context, PyObject* exc) {
  py::Ref<> handle = make_handle(callback, nullptr, 0, context);
  py::Ref<> args = handle ? py::steal(PyTuple_New(0)) : py::Ref<>();
  return args && report::callback_failed(*this, handle.get(), callback, args.get(), exc, nullptr);
}

bool Loop::call_soon_for(PyObject* callback, PyObject* arg, PyObject* context) {
  PyObject* argv[] = {object(), callback, arg, context};
  const std::size_t count = arg != nullptr ? 2 : 1;
  if (arg == nullptr) {
    argv[2] = context;
  }
  PyObject* kwnames = context != nullptr ? state_->kwnames_context : nullptr;
  if (overridden(kCallSoon)) [[unlikely]] {
    return static_cast<bool>(py::steal(PyObject_VectorcallMethod(state_->names.call_soon, argv, 1 + count, kwnames)));
  }
  py::Ref<> handle = py::steal(call_soon(argv + 1, static_cast<Py_ssize_t>(count), kwnames));
  return static_cast<bool>(handle);
}

// ---- timers

PyObject* Loop::schedule_at(double when, PyObject* given, PyObject* callback, PyObject* const* args, Py_ssize_t nargs,
                            PyObject* context) {
  if (std::isnan(when)) [[unlikely]] {
    PyErr_SetString(PyExc_ValueError, "Invalid delay: NaN (not a number)");
    return nullptr;
  }
  py::Ref<> handle = make<Timer>(state_->timer_type, callback, args, nargs, context);
  if (!handle) {
    return nullptr;
  }
  auto* timer = py::state_of<Timer>(handle.get());
  timer->set_deadline(when, given);
  if (!in_turn_) [[unlikely]] {
    timer->show();  // nobody looks whether it is shared until the next turn ends, which need not come
  }
  if (!timers_.push(handle.dup())) {
    return nullptr;
  }
  return handle.release();
}

PyObject* Loop::call_at(PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames) {
  static constexpr const char* kNames[] = {"when", "callback"};
  py::ScheduleArgs given;
  if (!py::parse_schedule("call_at", kNames, state_->names.context, args, nargs, kwnames, &given)) {
    return nullptr;
  }
  PyObject* when = given.named[0];
  PyObject* callback = given.named[1];
  if (when == Py_None) {
    PyErr_SetString(PyExc_TypeError, "when cannot be None");
    return nullptr;
  }
  if (!check_closed() || (debug_ && !debug::check_call(*this, callback, state_->names.call_at, true))) {
    return nullptr;
  }
  const double seconds = PyFloat_AsDouble(when);
  if (seconds == -1.0 && PyErr_Occurred() != nullptr) {
    return nullptr;
  }
  return schedule_at(seconds, PyFloat_CheckExact(when) ? nullptr : when, callback, given.rest, given.rest_count,
                     given.context);
}

PyObject* Loop::call_later(PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames) {
  if (kwnames == nullptr && nargs > 1 && PyFloat_CheckExact(args[0]) && !closed_ && !debug_ &&
      !overridden(kTime | kCallAt)) [[likely]] {
    return schedule_at(monotonic() + PyFloat_AS_DOUBLE(args[0]), nullptr, args[1], args + 2, nargs - 2, nullptr);
  }
  static constexpr const char* kNames[] = {"delay", "callback"};
  py::ScheduleArgs given;
  if (!py::parse_schedule("call_later", kNames, state_->names.context, args, nargs, kwnames, &given)) {
    return nullptr;
  }
  PyObject* delay = given.named[0];
  if (delay == Py_None) {
    PyErr_SetString(PyExc_TypeError, "delay must not be None");
    return nullptr;
  }
  const bool plain = PyFloat_CheckExact(delay) || PyLong_CheckExact(delay);
  if (!plain || overridden(kTime | kCallAt)) [[unlikely]] {
    return call_later_by_name(delay, given);
  }
  if (!check_closed() || (debug_ && !debug::check_call(*this, given.named[1], state_->names.call_at, true))) {
    return nullptr;
  }
  const double seconds = PyFloat_AsDouble(delay);
  if (seconds == -1.0 && PyErr_Occurred() != nullptr) {
    return nullptr;
  }
  return schedule_at(monotonic() + seconds, nullptr, given.named[1], given.rest, given.rest_count, given.context);
}

// As BaseEventLoop has it: self.call_at(self.time() + delay, callback, *args, context=context).
PyObject* Loop::call_later_by_name(PyObject* delay, const py::ScheduleArgs& given) {
  py::Ref<> now = py::call_method(object(), state_->names.time);
  py::Ref<> when = now ? py::steal(PyNumber_Add(now.get(), delay)) : py::Ref<>();
  py::Ref<> kwnames = py::steal(PyTuple_Pack(1, state_->names.context));
  py::Array<PyObject*> argv;
  const auto count = static_cast<std::size_t>(given.rest_count);
  if (!when || !kwnames || !argv.reserve(count + 4)) {
    return nullptr;
  }
  argv[0] = object();
  argv[1] = when.get();
  argv[2] = given.named[1];
  for (std::size_t i = 0; i < count; ++i) {
    argv[3 + i] = given.rest[i];
  }
  argv[3 + count] = given.context != nullptr ? given.context : Py_None;
  return PyObject_VectorcallMethod(state_->names.call_at, argv.data(), 3 + count, kwnames.get());
}

bool Loop::call_later_for(double delay, PyObject* callback) {
  py::Ref<> seconds = py::steal(PyFloat_FromDouble(delay));
  if (!seconds) {
    return false;
  }
  if (overridden(kCallLater)) {
    return static_cast<bool>(py::call_method(object(), state_->names.call_later, seconds.get(), callback));
  }
  PyObject* argv[] = {seconds.get(), callback};
  py::Ref<> handle = py::steal(call_later(argv, 2, nullptr));
  return static_cast<bool>(handle);
}

// ---- handles made elsewhere

PyObject* Loop::add_callback(PyObject* handle) {
  // A handle of ours is queued as it is; one of asyncio's own (signal handlers have them) runs through its _run().
  PyTypeObject* type = Py_TYPE(handle);
  if (type == state_->handle_type || type == state_->timer_type || type == state_->thread_safe_handle_type) {
    if (!py::state_of<Handle>(handle)->is_cancelled() && !push_ready(py::borrow(handle))) {
      return nullptr;
    }
    Py_RETURN_NONE;
  }
  py::Ref<> runner = py::get_attr(object(), state_->names._run_foreign_handle);
  py::Ref<> bare = py::steal(py::create<Handle>(state_->handle_type));
  if (!runner || !bare) {
    return nullptr;
  }
  py::state_of<Handle>(bare.get())->init_bare(*this, runner.get(), handle);
  if (!push_ready(std::move(bare))) {
    return nullptr;
  }
  Py_RETURN_NONE;
}

PyObject* Loop::add_callback_signalsafe(PyObject* handle) {
  PyObject* result = add_callback(handle);
  if (result != nullptr) {
    wake();
  }
  return result;
}

PyObject* Loop::run_foreign_handle(PyObject* handle) {
  py::Ref<> cancelled = py::get_attr(handle, state_->names._cancelled);
  const int skip = cancelled ? PyObject_IsTrue(cancelled.get()) : -1;
  if (skip < 0) {
    return nullptr;
  }
  if (skip > 0) {
    Py_RETURN_NONE;
  }
  return py::call_method(handle, state_->names._run).release();
}

PyObject* Loop::write_to_self() {
  wake();
  Py_RETURN_NONE;
}

// ---- futures and tasks

PyObject* Loop::create_future() {
  // Looked up in its module at each call, as asyncio does: programs replace it there.
  PyObject* type = PyDict_GetItemWithError(state_->futures_dict, state_->names.Future);
  if (type == nullptr) {
    if (PyErr_Occurred() == nullptr) {
      PyErr_SetString(PyExc_AttributeError, "module 'asyncio.futures' has no attribute 'Future'");
    }
    return nullptr;
  }
  py::Ref<> callable = py::borrow(type);
  PyObject* argv[] = {nullptr, object()};
  return PyObject_Vectorcall(callable.get(), argv + 1, PY_VECTORCALL_ARGUMENTS_OFFSET, state_->kwnames_loop);
}

PyObject* Loop::create_task(PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames) {
  // The plain case, with a name or a context at most, goes straight to asyncio.Task; factories and the keywords that
  // newer versions add are BaseEventLoop's business, in the form of the version that runs.
  const Py_ssize_t keywords = kwnames == nullptr ? 0 : PyTuple_GET_SIZE(kwnames);
  bool plain = nargs == 1 && !task_factory_ && keywords <= 2;
  for (Py_ssize_t i = 0; plain && i < keywords; ++i) {
    PyObject* name = PyTuple_GET_ITEM(kwnames, i);
    plain = name == state_->names.name || name == state_->names.context;
  }
  PyObject* type = nullptr;
  if (plain) {
    type = PyDict_GetItemWithError(state_->tasks_dict, state_->names.Task);
    if (type == nullptr && PyErr_Occurred() != nullptr) {
      return nullptr;
    }
  }
  if (type == nullptr) {
    py::Array<PyObject*> argv;
    if (!argv.reserve(static_cast<std::size_t>(nargs + keywords + 1))) {
      return nullptr;
    }
    argv[0] = object();
    for (Py_ssize_t i = 0; i < nargs + keywords; ++i) {
      argv[static_cast<std::size_t>(i) + 1] = args[i];
    }
    return PyObject_Vectorcall(state_->base_create_task, argv.data(), static_cast<std::size_t>(nargs) + 1, kwnames);
  }
  if (!check_closed()) {
    return nullptr;
  }
  py::Ref<> callable = py::borrow(type);
  PyObject* argv[5] = {nullptr, args[0], object(), nullptr, nullptr};
  PyObject* names = state_->kwnames_loop;
  py::Ref<> made;
  if (keywords > 0) {
    made = py::steal(PyTuple_New(1 + keywords));
    if (!made) {
      return nullptr;
    }
    PyTuple_SET_ITEM(made.get(), 0, Py_NewRef(state_->names.loop));
    for (Py_ssize_t i = 0; i < keywords; ++i) {
      PyTuple_SET_ITEM(made.get(), 1 + i, Py_NewRef(PyTuple_GET_ITEM(kwnames, i)));
      argv[3 + i] = args[1 + i];
    }
    names = made.get();
  }
  return PyObject_Vectorcall(callable.get(), argv + 1, 1 | PY_VECTORCALL_ARGUMENTS_OFFSET, names);
}

// ---- overrides

void Loop::look_at_type() {
  // A subclass, or somebody who assigns to a class, changes the version tag of our type: look again then.
  const ModuleState& s = *state_;
  auto* type = reinterpret_cast<PyObject*>(Py_TYPE(object()));
  const struct {
    PyObject* name;
    PyObject* ours;
    unsigned hook;
  } hooks[] = {
      {s.names.time, s.own_time, kTime},
      {s.names.call_soon, s.own_call_soon, kCallSoon},
      {s.names.call_at, s.own_call_at, kCallAt},
      {s.names.call_later, s.own_call_later, kCallLater},
      {s.names._ensure_fd_no_transport, s.own_ensure_fd_no_transport, kNoTransport},
  };
  py::SavedError error;
  type_hooks_ = 0;
  for (const auto& hook : hooks) {
    py::Ref<> found = py::steal(PyObject_GetAttr(type, hook.name));
    if (found.get() != hook.ours) {
      type_hooks_ |= hook.hook;
    }
    PyErr_Clear();
  }
  type_tag_ = Py_TYPE(object())->tp_version_tag;
}

void Loop::noticed(PyObject* name, bool is_set) {
  const ModuleState& s = *state_;
  const struct {
    PyObject* name;
    unsigned hook;
  } hooks[] = {
      {s.names.time, kTime},
      {s.names.call_soon, kCallSoon},
      {s.names.call_at, kCallAt},
      {s.names.call_later, kCallLater},
      {s.names._ensure_fd_no_transport, kNoTransport},
  };
  // Names of attributes are interned nearly always, and then one object is one name.
  const bool may_be_equal = PyUnicode_Check(name) && !PyUnicode_CHECK_INTERNED(name);
  for (const auto& hook : hooks) {
    if (name == hook.name || (may_be_equal && PyUnicode_Compare(name, hook.name) == 0)) {
      instance_hooks_ = is_set ? instance_hooks_ | hook.hook : instance_hooks_ & ~hook.hook;
    }
  }
}

}  // namespace uvpy::core
