// Making OSErrors. Called by whoever has an errno in hand; libuv's codes come here through core/report.
// SPDX-License-Identifier: MIT
#include "py/error.h"

#include <cstring>

namespace uvpy::py {

Ref<> os_error(int code) { return steal(PyObject_CallFunction(PyExc_OSError, "is", code, std::strerror(code))); }

PyObject* raise_os_error(int code) {
  Ref<> exc = os_error(code);
  if (exc) {
    PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(exc.get())), exc.get());
  }
  return nullptr;
}

}  // namespace uvpy::py
