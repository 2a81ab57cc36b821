// ReadyRing: the handles that are due, in order. Owns one reference to each. Pushed to under the GIL from any thread:
// the GIL makes the ring the inbox of other threads too, so that one order holds for all, as in asyncio.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>

#include "py/array.h"
#include "py/mutant.h"
#include "py/ref.h"

namespace uvpy::core {

class ReadyRing {
 public:
  bool empty() const { return count_ == 0; }
  std::size_t size() const { return count_; }
  // The i-th handle from the front, borrowed.
  PyObject* at(std::size_t i) const { return ring_[(first_ + i) & mask()]; }

  // False with MemoryError set, the reference still the caller's.
  bool push(py::Ref<>&& handle) {
    if (count_ == ring_.capacity() && !grow()) {
      return false;
    }
    if constexpr (py::mutant("ring-lifo")) {
      first_ = (first_ - 1) & mask();
      ring_[first_] = handle.release();
    } else {
      ring_[(first_ + count_) & mask()] = handle.release();
    }
    ++count_;
    return true;
  }
  py::Ref<> pop() {
    PyObject* handle = ring_[first_];
    first_ = (first_ + 1) & mask();
    --count_;
    return py::steal(handle);
  }
  void clear() {
    while (count_ > 0) {
      py::Ref<> out = pop();  // one by one: what a handle frees may push
    }
  }
  int visit(visitproc visit, void* arg) const {
    for (std::size_t i = 0; i < count_; ++i) {
      Py_VISIT(at(i));
    }
    return 0;
  }

 private:
  // The capacity is a power of two: Array doubles from eight.
  std::size_t mask() const { return ring_.capacity() - 1; }
  [[gnu::noinline]] bool grow() {
    const std::size_t old = ring_.capacity();
    if (!ring_.reserve(old + 1)) {
      return false;
    }
    // The part that had wrapped round to the start goes behind the part that had not.
    for (std::size_t i = 0; i < first_; ++i) {
      ring_[old + i] = ring_[i];
    }
    return true;
  }

  py::Array<PyObject*> ring_;
  std::size_t first_ = 0;
  std::size_t count_ = 0;
};

}  // namespace uvpy::core
