// Array<T>: a growable array of plain values whose growth can fail without ending the process, which std containers
// cannot do with exceptions off. Holds no references of its own: owners visit and drop what they put in.
// SPDX-License-Identifier: MIT
#pragma once

#include <Python.h>

#include <cstddef>
#include <type_traits>
#include <utility>

namespace uvpy::py {

template <class T>
class Array {
  static_assert(std::is_trivially_copyable_v<T>);

 public:
  Array() = default;
  Array(const Array&) = delete;
  Array& operator=(const Array&) = delete;
  ~Array() { PyMem_RawFree(data_); }

  T* data() { return data_; }
  const T* data() const { return data_; }
  std::size_t capacity() const { return capacity_; }
  T& operator[](std::size_t i) { return data_[i]; }
  const T& operator[](std::size_t i) const { return data_[i]; }

  // Room for `wanted` values, the new ones zeroed. False with MemoryError set.
  bool reserve(std::size_t wanted) {
    if (wanted <= capacity_) {
      return true;
    }
    std::size_t grown = capacity_ < 8 ? 8 : capacity_ * 2;
    while (grown < wanted) {
      grown *= 2;
    }
    auto* moved = static_cast<T*>(PyMem_RawRealloc(data_, grown * sizeof(T)));
    if (moved == nullptr) {
      PyErr_NoMemory();
      return false;
    }
    for (std::size_t i = capacity_; i < grown; ++i) {
      moved[i] = T{};
    }
    data_ = moved;
    capacity_ = grown;
    return true;
  }
  void swap(Array& other) {
    std::swap(data_, other.data_);
    std::swap(capacity_, other.capacity_);
  }
  void free() {
    PyMem_RawFree(data_);
    data_ = nullptr;
    capacity_ = 0;
  }

 private:
  T* data_ = nullptr;
  std::size_t capacity_ = 0;
};

}  // namespace uvpy::py
