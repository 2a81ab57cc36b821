// Pool<T>: memory of freed objects of one type, kept for the next ones. For types whose objects come and go by the
// callback, as CPython has it for its own frames and contexts: no allocator, no clearing, and no part in the collector's
// counting, which makes it run the less. A T with kPooled gets one (py/object). Guarded by the GIL.
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
  // From open() on, with the module, something is kept; close() frees it while the type, which freeing looks at, is there.
  static void open() { limit_ = kLimit; }
  static void close() {
    limit_ = 0;
    while (count_ > 0) {
      PyObject_GC_Del(blocks_[--count_]);
    }
  }

 private:
#ifdef __SANITIZE_ADDRESS__
  static constexpr std::size_t kLimit = 0;  // a use of freed memory is to be seen
#else
  static constexpr std::size_t kLimit = 1024;  // a busy turn's
#endif
  static inline void* blocks_[kLimit + 1];
  static inline std::size_t count_ = 0;
  static inline std::size_t limit_ = 0;
};

}  // namespace uvpy::py
