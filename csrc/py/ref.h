// Ref<T>: the only owner of a Python reference. A raw pointer is always borrowed.
// Rules of use: made by steal() or borrow() only; moved, never copied (dup() is the visible copy); returned and
// stored, never a by-value parameter; release() only to hand the reference to C code that takes it.
// SPDX-License-Identifier: MIT
#pragma once

#include <Python.h>

#include <cassert>
#include <utility>

namespace uvpy::py {

template <class T = PyObject>
class Ref {
 public:
  constexpr Ref() = default;
  Ref(Ref&& other) noexcept : p_(other.release()) {}
  Ref& operator=(Ref&& other) noexcept {
    if (this != &other) {
      // The old object dies last: its destructor may run code that looks at this very member.
      T* old = std::exchange(p_, other.release());
      Py_XDECREF(reinterpret_cast<PyObject*>(old));
    }
    return *this;
  }
  Ref(const Ref&) = delete;
  Ref& operator=(const Ref&) = delete;
  ~Ref() { Py_XDECREF(reinterpret_cast<PyObject*>(p_)); }

  static Ref steal(T* p) { return Ref(p); }
  static Ref borrow(T* p) {
    Py_XINCREF(reinterpret_cast<PyObject*>(p));
    return Ref(p);
  }

  // As an assignment, for a Ref that is known to hold nothing.
  void put(Ref&& other) {
    assert(p_ == nullptr);
    p_ = other.release();
  }

  T* get() const { return p_; }
  PyObject* object() const { return reinterpret_cast<PyObject*>(p_); }
  T* operator->() const { return p_; }
  explicit operator bool() const { return p_ != nullptr; }
  Ref dup() const { return borrow(p_); }
  [[nodiscard]] T* release() { return std::exchange(p_, nullptr); }
  void reset() { *this = Ref(); }

 private:
  explicit Ref(T* p) : p_(p) {}
  T* p_ = nullptr;
};

inline Ref<> steal(PyObject* p) { return Ref<>::steal(p); }
inline Ref<> borrow(PyObject* p) { return Ref<>::borrow(p); }

}  // namespace uvpy::py
