// The one exchange office for errors. The exception handler is looked up at each call: users replace it on the instance.
// SPDX-License-Identifier: MIT
#include "core/report.h"

#include "core/loop.h"
#include "py/call.h"

namespace uvpy::core {

py::Ref<> uv_error(uv::Status status) {
  if (status.code() <= UV_EAI_ADDRFAMILY) {
    // libuv's own codes (they start there) have no errno; none of the calls we make gives one, a newer libuv may.
    return py::steal(PyObject_CallFunction(PyExc_OSError, "s", uv_strerror(status.code())));
  }
  return py::os_error(status.error());
}

PyObject* raise_uv_error(uv::Status status) {
  py::Ref<> exc = uv_error(status);
  if (exc) {
    PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(exc.get())), exc.get());
  }
  return nullptr;
}

namespace report {

bool callback_failed(Loop& loop, PyObject* handle, PyObject* callback, PyObject* args, PyObject* exc,
                     PyObject* source_traceback) {
  const ModuleState& state = loop.state();
  const py::HandledScope handled(exc);
  py::Ref<> source;
  if (state.format_takes_debug) {
    PyObject* argv[] = {callback, args, loop.debug() ? Py_True : Py_False};
    py::Ref<> kwnames = py::steal(PyTuple_Pack(1, state.names.debug));
    if (!kwnames) {
      return false;
    }
    source = py::steal(PyObject_Vectorcall(state.format_callback_source, argv, 2, kwnames.get()));
  } else {
    source = py::call(state.format_callback_source, callback, args);
  }
  if (!source) {
    return false;
  }
  py::Ref<> context = py::steal(PyDict_New());
  py::Ref<> message = py::steal(PyUnicode_FromFormat("Exception in callback %U", source.get()));
  if (!context || !message || PyDict_SetItem(context.get(), state.names.message, message.get()) < 0 ||
      PyDict_SetItem(context.get(), state.names.exception, exc) < 0 ||
      PyDict_SetItem(context.get(), state.names.handle, handle) < 0) {
    return false;
  }
  if (source_traceback != nullptr && source_traceback != Py_None &&
      PyDict_SetItem(context.get(), state.names.source_traceback, source_traceback) < 0) {
    return false;
  }
  return static_cast<bool>(py::call_method(loop.object(), state.names.call_exception_handler, context.get()));
}

bool call_exception_handler(Loop& loop, const char* message, PyObject* exc, Entry first, Entry second) {
  const ModuleState& state = loop.state();
  const py::HandledScope handled(exc);
  py::Ref<> context = py::steal(PyDict_New());
  py::Ref<> text = py::steal(PyUnicode_FromString(message));
  if (!context || !text || PyDict_SetItem(context.get(), state.names.message, text.get()) < 0 ||
      PyDict_SetItem(context.get(), state.names.exception, exc) < 0) {
    return false;
  }
  for (const Entry& entry : {first, second}) {
    if (entry.value != nullptr && PyDict_SetItemString(context.get(), entry.name, entry.value) < 0) {
      return false;
    }
  }
  return static_cast<bool>(py::call_method(loop.object(), state.names.call_exception_handler, context.get()));
}

}  // namespace report
}  // namespace uvpy::core
