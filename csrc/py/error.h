// Python errors: SavedError keeps one over code that must run without, and the tests that decide what it means.
// SPDX-License-Identifier: MIT
#pragma once

#include "py/compat.h"
#include "py/ref.h"

namespace uvpy::py {

// Takes the current exception away for its lifetime and puts it back at the end, unless a newer one has come, which
// then is the one that counts.
class SavedError {
 public:
  SavedError() : exc_(take_raised()) {}
  SavedError(const SavedError&) = delete;
  SavedError& operator=(const SavedError&) = delete;
  ~SavedError() {
    if (exc_ != nullptr) {
      if (PyErr_Occurred() != nullptr) {
        Py_DECREF(exc_);
      } else {
        put_raised(exc_);
      }
    }
  }

 private:
  PyObject* exc_;
};

// The exception set now, taken out.
inline Ref<> take_error() { return steal(take_raised()); }
inline void restore_error(Ref<>&& exc) { put_raised(exc.release()); }

// Makes an exception the one being handled, what sys.exc_info() gives, for its lifetime: code that is called because of
// it runs as in an `except` block.
class HandledScope {
 public:
  explicit HandledScope(PyObject* exc) : before_(PyErr_GetHandledException()) { PyErr_SetHandledException(exc); }
  HandledScope(const HandledScope&) = delete;
  HandledScope& operator=(const HandledScope&) = delete;
  ~HandledScope() {
    PyErr_SetHandledException(before_);
    Py_XDECREF(before_);
  }

 private:
  PyObject* before_;
};

// SystemExit and KeyboardInterrupt end the loop; everything else is reported and the loop goes on.
inline bool ends_the_loop(PyObject* exc) {
  return PyErr_GivenExceptionMatches(exc, PyExc_SystemExit) != 0 ||
         PyErr_GivenExceptionMatches(exc, PyExc_KeyboardInterrupt) != 0;
}

// OSError(code, text): its constructor picks the subclass. Null with an error set when even that fails.
Ref<> os_error(int code);
// Sets that exception; always null, so that `return raise_os_error(errno)` raises and leaves.
PyObject* raise_os_error(int code);

}  // namespace uvpy::py
