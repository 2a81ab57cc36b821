// Debug mode. The logger is fetched from asyncio.base_events at each call: programs and tests replace it there.
// SPDX-License-Identifier: MIT
#include "core/debug.h"

#include "core/handle.h"
#include "core/loop.h"
#include "py/call.h"

namespace uvpy::core::debug {

py::Ref<> source_traceback(Loop& loop) {
  PyFrameObject* frame = PyEval_GetFrame();
  if (frame == nullptr) {
    return py::borrow(Py_None);
  }
  py::Ref<> alive = py::borrow(reinterpret_cast<PyObject*>(frame));
  return py::call(loop.state().extract_stack, alive.get());
}

bool check_call(Loop& loop, PyObject* callback, PyObject* method_name, bool check_thread) {
  if (check_thread && loop.is_running() && loop.thread_id() != PyThread_get_thread_ident()) {
    PyErr_SetString(PyExc_RuntimeError,
                    "Non-thread-safe operation invoked on an event loop other than the current one");
    return false;
  }
  return static_cast<bool>(py::call_method(loop.object(), loop.state().names._check_callback, callback, method_name));
}

bool run_timed(Loop& loop, PyObject* handle) {
  double start = 0;
  if (!loop.time_now(&start)) {
    return false;
  }
  loop.set_current_handle(handle);
  const bool ok = loop.run_handle(handle);
  double end = 0;
  bool timed = false;
  {
    py::SavedError error;
    timed = loop.time_now(&end);
    loop.set_current_handle(nullptr);
  }
  if (!ok || !timed) {
    return false;
  }
  const int slow = is_slow(loop, end - start);
  if (slow <= 0) {
    return slow == 0;
  }
  py::Ref<> text = py::call(loop.state().format_handle, py::state_of<Handle>(handle)->shown());
  return text && log_slow(loop, end - start, text.get());
}

int is_slow(Loop& loop, double seconds) {
  py::Ref<> limit = py::get_attr(loop.object(), loop.state().names.slow_callback_duration);
  py::Ref<> took = limit ? py::steal(PyFloat_FromDouble(seconds)) : py::Ref<>();
  return took ? PyObject_RichCompareBool(took.get(), limit.get(), Py_GE) : -1;
}

bool log_slow(Loop& loop, double seconds, PyObject* text) {
  const ModuleState& state = loop.state();
  py::Ref<> took = py::steal(PyFloat_FromDouble(seconds));
  py::Ref<> format = py::steal(PyUnicode_FromString("Executing %s took %.3f seconds"));
  py::Ref<> logger = py::get_attr(state.base_events, state.names.logger);
  return took && format && logger && py::call_method(logger.get(), state.names.warning, format.get(), text, took.get());
}

bool log(Loop& loop, const char* format, PyObject* first, PyObject* second, PyObject* third) {
  const ModuleState& state = loop.state();
  py::Ref<> text = py::steal(PyUnicode_FromString(format));
  py::Ref<> logger = py::get_attr(state.base_events, state.names.logger);
  if (!text || !logger) {
    return false;
  }
  PyObject* argv[] = {logger.get(), text.get(), first, second, third};
  std::size_t count = 2;
  while (count < 5 && argv[count] != nullptr) {
    ++count;
  }
  return static_cast<bool>(py::steal(PyObject_VectorcallMethod(state.names.debug, argv, count, nullptr)));
}

bool log_info(Loop& loop, const char* format, PyObject* subject) {
  const ModuleState& state = loop.state();
  py::Ref<> text = py::steal(PyUnicode_FromString(format));
  py::Ref<> logger = py::get_attr(state.base_events, state.names.logger);
  return text && logger && py::call_method(logger.get(), state.names.info, text.get(), subject);
}

bool log_error(Loop& loop, PyObject* subject, const char* message, PyObject* exc) {
  const ModuleState& state = loop.state();
  py::Ref<> format = py::steal(PyUnicode_FromString("%r: %s"));
  py::Ref<> text = py::steal(PyUnicode_FromString(message));
  py::Ref<> logger = py::get_attr(state.base_events, state.names.logger);
  py::Ref<> kwnames = py::steal(PyTuple_Pack(1, state.names.exc_info));
  if (!format || !text || !logger || !kwnames) {
    return false;
  }
  PyObject* argv[] = {logger.get(), format.get(), subject, text.get(), exc};
  return static_cast<bool>(py::steal(PyObject_VectorcallMethod(state.names.debug, argv, 4, kwnames.get())));
}

}  // namespace uvpy::core::debug
