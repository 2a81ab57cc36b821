// Bytes owned by others: a Py_buffer that is released once.
// SPDX-License-Identifier: MIT
#pragma once

#include <Python.h>

namespace uvpy::py {

class BufferView {
 public:
  BufferView() = default;
  BufferView(const BufferView&) = delete;
  BufferView& operator=(const BufferView&) = delete;
  ~BufferView() { release(); }

  // False with an exception set when `object` has no contiguous (with PyBUF_WRITABLE: writable) bytes.
  bool acquire(PyObject* object, int flags) {
    release();
    held_ = PyObject_GetBuffer(object, &view_, flags) == 0;
    return held_;
  }
  void release() {
    if (held_) {
      held_ = false;
      PyBuffer_Release(&view_);
    }
  }
  bool held() const { return held_; }
  char* data() const { return static_cast<char*>(view_.buf); }
  Py_ssize_t size() const { return view_.len; }
  int visit(visitproc visit, void* arg) const {
    if (held_) {
      Py_VISIT(view_.obj);
    }
    return 0;
  }

 private:
  Py_buffer view_{};
  bool held_ = false;
};

}  // namespace uvpy::py
