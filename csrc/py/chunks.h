// The argument of writelines(), taken apart as asyncio of this version takes it. For net/stream_write; knows nothing of
// transports.
// SPDX-License-Identifier: MIT
#pragma once

#include <Python.h>

#include "py/compat.h"
#include "py/ref.h"

namespace uvpy::py {

// The chunks as a list or tuple. Null with the exception set.
inline Ref<> list_of_chunks(PyObject* given) {
  if constexpr (kWritelinesJoins) {
    return steal(PySequence_Fast(given, "can only join an iterable"));
  }
  const int some = PyObject_IsTrue(given);
  if (some < 0) {
    return {};
  }
  if (some == 0) {
    return steal(PyTuple_New(0));
  }
  if (PyList_CheckExact(given) || PyTuple_CheckExact(given)) {
    return borrow(given);
  }
  return steal(PySequence_List(given));
}

// A chunk as an exact bytes object, empty for one that is left out. Null with the exception set.
inline Ref<> bytes_of_chunk(PyObject* chunk) {
  if (PyBytes_CheckExact(chunk)) {
    return borrow(chunk);
  }
  if constexpr (kWritelinesSkips) {
    const int some = PyObject_IsTrue(chunk);
    if (some <= 0) {
      return some < 0 ? Ref<>() : steal(PyBytes_FromStringAndSize(nullptr, 0));
    }
  }
  Ref<> view = steal(PyMemoryView_FromObject(chunk));
  return view ? steal(PyBytes_FromObject(view.get())) : Ref<>();
}

}  // namespace uvpy::py
