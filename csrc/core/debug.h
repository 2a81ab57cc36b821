// asyncio's debug mode: where a handle was made, callbacks that took long, calls from the wrong thread. Nothing here runs
// outside debug mode.
// SPDX-License-Identifier: MIT
#pragma once

#include "py/ref.h"

namespace uvpy::core {

class Loop;

namespace debug {

// traceback.StackSummary of the Python code that runs now, None where there is none; null with an exception set.
py::Ref<> source_traceback(Loop& loop);

// The checks of call_soon and its siblings: the thread and the callback. False with RuntimeError or TypeError set.
bool check_call(Loop& loop, PyObject* callback, PyObject* method_name, bool check_thread);

// Runs a handle and logs it when it took slow_callback_duration or longer. False when the loop must end.
bool run_timed(Loop& loop, PyObject* handle);

// Whether that took slow_callback_duration or longer: 1, 0, or -1 with an exception set.
int is_slow(Loop& loop, double seconds);
// Logs "Executing %s took %.3f seconds". False with an exception set.
bool log_slow(Loop& loop, double seconds, PyObject* text);

// base_events.logger.debug(format, *args). False with an exception set.
bool log(Loop& loop, const char* format, PyObject* first, PyObject* second = nullptr, PyObject* third = nullptr);
// base_events.logger.info(format, subject).
bool log_info(Loop& loop, const char* format, PyObject* subject);
// logger.debug("%r: %s", subject, message, exc_info=exc).
bool log_error(Loop& loop, PyObject* subject, const char* message, PyObject* exc);

}  // namespace debug
}  // namespace uvpy::core
