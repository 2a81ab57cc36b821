// The argument parser. No Python code runs in it.
// SPDX-License-Identifier: MIT
#include "py/args.h"

#include <algorithm>

namespace uvpy::py {

bool parse(const Signature& signature, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames, PyObject** out) {
  const auto total = static_cast<Py_ssize_t>(signature.names.size());
  std::fill_n(out, total, nullptr);
  if (nargs > signature.positional) {
    PyErr_Format(PyExc_TypeError, "%s() takes at most %zd positional argument%s (%zd given)", signature.function,
                 signature.positional, signature.positional == 1 ? "" : "s", nargs);
    return false;
  }
  std::copy_n(args, nargs, out);
  const Py_ssize_t keywords = kwnames == nullptr ? 0 : PyTuple_GET_SIZE(kwnames);
  for (Py_ssize_t i = 0; i < keywords; ++i) {
    PyObject* name = PyTuple_GET_ITEM(kwnames, i);
    const auto* found = std::find_if(signature.names.data(), signature.names.data() + total, [name](const char* known) {
      return PyUnicode_CompareWithASCIIString(name, known) == 0;
    });
    const Py_ssize_t at = found - signature.names.data();
    if (at == total) {
      if (signature.ignores_unknown) {
        continue;
      }
      PyErr_Format(PyExc_TypeError, "%s() got an unexpected keyword argument '%U'", signature.function, name);
      return false;
    }
    if (out[at] != nullptr) {
      PyErr_Format(PyExc_TypeError, "%s() got multiple values for argument '%U'", signature.function, name);
      return false;
    }
    out[at] = args[nargs + i];
  }
  for (Py_ssize_t i = 0; i < signature.required; ++i) {
    if (out[i] == nullptr) {
      PyErr_Format(PyExc_TypeError, "%s() missing required argument: '%s'", signature.function,
                   signature.names[static_cast<std::size_t>(i)]);
      return false;
    }
  }
  return true;
}

bool parse_context(const char* function, PyObject* interned, PyObject* const* values, PyObject* kwnames,
                   PyObject** context) {
  *context = nullptr;
  const Py_ssize_t keywords = kwnames == nullptr ? 0 : PyTuple_GET_SIZE(kwnames);
  for (Py_ssize_t i = 0; i < keywords; ++i) {
    PyObject* name = PyTuple_GET_ITEM(kwnames, i);
    if (name != interned && PyUnicode_CompareWithASCIIString(name, "context") != 0) {
      PyErr_Format(PyExc_TypeError, "%s() got an unexpected keyword argument '%U'", function, name);
      return false;
    }
    *context = values[i] == Py_None ? nullptr : values[i];
  }
  if (*context != nullptr && !PyContext_CheckExact(*context)) {
    PyErr_Format(PyExc_TypeError, "%s(): context must be a contextvars.Context, not %.200s", function,
                 Py_TYPE(*context)->tp_name);
    return false;
  }
  return true;
}

}  // namespace uvpy::py
