// Calling Python: methods by interned name, and a contextvars.Context entered for the length of a scope.
// SPDX-License-Identifier: MIT
#pragma once

#include "py/error.h"
#include "py/ref.h"

namespace uvpy::py {

template <class... Args>
Ref<> call(PyObject* callable, Args*... args) {
  PyObject* argv[] = {nullptr, args...};
  return steal(PyObject_Vectorcall(callable, argv + 1, sizeof...(args) | PY_VECTORCALL_ARGUMENTS_OFFSET, nullptr));
}

// self.name(*args), without a bound method in between where CPython can avoid it.
template <class... Args>
Ref<> call_method(PyObject* self, PyObject* name, Args*... args) {
  PyObject* argv[] = {nullptr, self, args...};
  return steal(
      PyObject_VectorcallMethod(name, argv + 1, (1 + sizeof...(args)) | PY_VECTORCALL_ARGUMENTS_OFFSET, nullptr));
}

inline Ref<> get_attr(PyObject* self, PyObject* name) { return steal(PyObject_GetAttr(self, name)); }

// Enters a context and leaves it again. entered() is false, with RuntimeError set, when it was entered already.
// The context must outlive the scope: the owner may drop it while it is entered.
class ContextScope {
 public:
  explicit ContextScope(PyObject* context) : context_(borrow(context)), entered_(PyContext_Enter(context) == 0) {}
  ContextScope(const ContextScope&) = delete;
  ContextScope& operator=(const ContextScope&) = delete;
  ~ContextScope() {
    if (entered_) {
      // Leaving the context we entered last cannot fail; an exception of the callback must survive it.
      if (PyErr_Occurred() != nullptr) {
        SavedError error;
        PyContext_Exit(context_.get());
      } else {
        PyContext_Exit(context_.get());
      }
    }
  }
  bool entered() const { return entered_; }

 private:
  Ref<> context_;
  bool entered_;
};

}  // namespace uvpy::py
