// Whether two contexts hold the same variables, without a copy of either. CPython keeps the variables of a Context in one
// object that never changes: a context that sets one gets another object, a copy shares it until then. Where in a Context
// that object is referred to is found by trying at import; where it is not found nobody is told "the same".
// SPDX-License-Identifier: MIT
#pragma once

#include <Python.h>

#include <cstddef>

namespace uvpy::py {

// The place of that reference in a Context; 0 where it is not known.
inline std::size_t variables_at = 0;

// Tries, once an import. False with an exception set.
bool find_variables();

// What stands for the variables of a context: to be compared, while something keeps it alive.
inline const void* variables_of(PyObject* context) {
  return *reinterpret_cast<void* const*>(reinterpret_cast<const char*>(context) + variables_at);
}

// The thread's context, borrowed; null where it has none yet.
inline PyObject* current_context() { return PyThreadState_Get()->context; }

}  // namespace uvpy::py
