// Pool<T>: memory of freed objects of one type, kept for the next ones. For types whose objects come and go by the
// callback, as CPython has it for its own frames and contexts: no allocator, no clearing, and no part in the collector's
// counting, which makes it run the less. A T with kPooled gets one (py/object). Guarded by the GIL.
// Beside it stand the blanks: whole objects with one reference, unknown to the collector, that were emptied and not freed.
// They own no reference to their type: the type must be able to go.
// SPDX-License-Identifier: MIT
#pragma once

#include <Python.h>

#include <cstddef>

namespace uvpy::py {

template <class T>
class Pool {
 public:
  // Memory of an object of this type with the collector's head before it, or null.
  static void* take() { return count_ > 0 ? blocks_[--count_] : nullptr; }
  // Whether the memory is kept; otherwise the caller frees it.
  static bool give(void* block) {
    if (count_ >= limit_) {
      return false;
    }
    blocks_[count_++] = block;
    return true;
  }
  // A blank, whose state is as its constructor left it, as a new reference; null where there is none.
  static PyObject* take_blank(PyTypeObject* type) {
    if (blanks_count_ == 0) [[unlikely]] {
      return nullptr;
    }
    PyObject* blank = blanks_[--blanks_count_];
    Py_SET_TYPE(blank, type);
    Py_INCREF(type);
    return blank;
  }
  // Whether an emptied object, whose only reference is the caller's, is kept; then that reference is taken.
  static bool give_blank(PyObject* blank) {
    if (blanks_count_ >= limit_) {
      return false;
    }
    PyTypeObject* type = Py_TYPE(blank);
    blanks_[blanks_count_++] = blank;
    Py_DECREF(type);
    return true;
  }
  // From open() on, with the module, something is kept; close() frees it while the type, which freeing looks at, is there.
  static void open() { limit_ = kLimit; }
  static void close() {
    limit_ = 0;
    while (count_ > 0) {
      PyObject_GC_Del(blocks_[--count_]);
    }
    while (blanks_count_ > 0) {
      PyObject_GC_Del(blanks_[--blanks_count_]);
    }
  }

 private:
#ifdef __SANITIZE_ADDRESS__
  static constexpr std::size_t kLimit = 0;  // a use of freed memory is to be seen
#else
  static constexpr std::size_t kLimit = 1024;  // a busy turn's
#endif
  static inline void* blocks_[kLimit + 1];
  static inline PyObject* blanks_[kLimit + 1];
  static inline std::size_t count_ = 0;
  static inline std::size_t blanks_count_ = 0;
  static inline std::size_t limit_ = 0;
};

}  // namespace uvpy::py
