// make_transport_type<T>: the Python type of a transport. It derives, in C, from a class of asyncio's that is written in Python
// and has slots, so the layout of that class is checked first. Called once for each type, at import.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>

#include "py/type.h"

namespace uvpy::net {

// Null with an exception set.
template <class T>
PyTypeObject* make_transport_type(PyObject* module, const py::TypeParts& parts) {
  // Of several bases the first has the slots.
  const auto* base =
      reinterpret_cast<const PyTypeObject*>(PyTuple_Check(parts.base) ? PyTuple_GET_ITEM(parts.base, 0) : parts.base);
  if (base->tp_basicsize != static_cast<Py_ssize_t>(offsetof(py::Object<T>, weakrefs))) {
    PyErr_Format(PyExc_ImportError, "asyncio's transports have a layout that this uvpy does not know (%zd bytes)",
                 base->tp_basicsize);
    return nullptr;
  }
  return py::make_type<T>(module, parts);
}

}  // namespace uvpy::net
