// Arguments of METH_FASTCALL|METH_KEYWORDS methods, with CPython's wording of what is wrong.
// SPDX-License-Identifier: MIT
#pragma once

#include <Python.h>

#include <span>

namespace uvpy::py {

// Parameters of a method in order. The first `required` must be given, those from `positional` on by keyword only.
// Hooks that asyncio calls ignore keywords they do not know: newer versions add some (research/asyncio.md 1.5).
struct Signature {
  const char* function;
  std::span<const char* const> names;
  Py_ssize_t required;
  Py_ssize_t positional;
  bool ignores_unknown = false;
};

// Fills `out`, one borrowed pointer a parameter, null where nothing was given. False with TypeError set.
bool parse(const Signature& signature, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames, PyObject** out);

// The arguments of call_soon and its siblings: up to two named parameters, *args, and the keyword context.
struct ScheduleArgs {
  PyObject* named[2] = {};  // borrowed
  PyObject* const* rest = nullptr;
  Py_ssize_t rest_count = 0;
  PyObject* context = nullptr;  // null for none or None
};
// False with TypeError set. `interned` is the name "context", compared by identity first.
bool parse_schedule(const char* function, std::span<const char* const> names, PyObject* interned, PyObject* const* args,
                    Py_ssize_t nargs, PyObject* kwnames, ScheduleArgs* out);

}  // namespace uvpy::py
