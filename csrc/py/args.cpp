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

bool parse_schedule(const char* function, std::span<const char* const> names, PyObject* interned, PyObject* const* args,
                    Py_ssize_t nargs, PyObject* kwnames, ScheduleArgs* out) {
  const auto named = static_cast<Py_ssize_t>(names.size());
  std::copy_n(args, std::min(nargs, named), out->named);
  if (nargs > named) {
    out->rest = args + named;
    out->rest_count = nargs - named;
  }
  const Py_ssize_t keywords = kwnames == nullptr ? 0 : PyTuple_GET_SIZE(kwnames);
  for (Py_ssize_t i = 0; i < keywords; ++i) {
    PyObject* name = PyTuple_GET_ITEM(kwnames, i);
    PyObject* value = args[nargs + i];
    if (name == interned || PyUnicode_CompareWithASCIIString(name, "context") == 0) {
      out->context = value == Py_None ? nullptr : value;
      continue;
    }
    Py_ssize_t at = 0;
    while (at < named && PyUnicode_CompareWithASCIIString(name, names[static_cast<std::size_t>(at)]) != 0) {
      ++at;
    }
    if (at == named) {
      PyErr_Format(PyExc_TypeError, "%s() got an unexpected keyword argument '%U'", function, name);
      return false;
    }
    if (out->named[at] != nullptr) {
      PyErr_Format(PyExc_TypeError, "%s() got multiple values for argument '%U'", function, name);
      return false;
    }
    out->named[at] = value;
  }
  for (Py_ssize_t i = 0; i < named; ++i) {
    if (out->named[i] == nullptr) {
      PyErr_Format(PyExc_TypeError, "%s() missing required positional argument: '%s'", function,
                   names[static_cast<std::size_t>(i)]);
      return false;
    }
  }
  if (out->context != nullptr && !PyContext_CheckExact(out->context)) {
    PyErr_Format(PyExc_TypeError, "%s(): context must be a contextvars.Context, not %.200s", function,
                 Py_TYPE(out->context)->tp_name);
    return false;
  }
  return true;
}

}  // namespace uvpy::py
