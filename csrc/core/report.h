// Where errors go. A callback of the poll has no caller: its error ends here as a call of the loop's exception handler, as an
// OSError for a transport, or as the exception that the loop leaves with (Loop::leave_with).
// SPDX-License-Identifier: MIT
#pragma once

#include "py/ref.h"
#include "uv/status.h"

namespace uvpy::core {

class Loop;

// The OSError of a libuv code.
py::Ref<> uv_error(uv::Status status);
// Sets it; always null.
PyObject* raise_uv_error(uv::Status status);

namespace report {

// loop.call_exception_handler(context) for what a callback raised. False when that itself raised: the loop then ends
// with that exception, which is set.
bool callback_failed(Loop& loop, PyObject* handle, PyObject* callback, PyObject* args, PyObject* exc,
                     PyObject* source_traceback);

// The same with a message and up to three further entries; a null value leaves its entry out.
struct Entry {
  const char* name;
  PyObject* value;
};
bool call_exception_handler(Loop& loop, const char* message, PyObject* exc, Entry first = {nullptr, nullptr},
                            Entry second = {nullptr, nullptr});

}  // namespace report
}  // namespace uvpy::core
