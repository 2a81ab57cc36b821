// Handle<uv_x_t>: a libuv handle and the law of its life: idle -> open -> closing -> closed. init succeeded means that
// close() will be called; close() may be called again; memory is free only once on_close has come (libuv's rule), which
// the destructor asserts. Knows nothing of Python.
// SPDX-License-Identifier: MIT
#pragma once

#include <uv.h>

#include <cassert>

namespace uvpy::uv {

enum class State : unsigned char { idle, open, closing, closed };

template <class T>
class Handle {
 public:
  Handle() = default;
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;
  ~Handle() { assert(state_ == State::idle || state_ == State::closed || leaked_); }

  T* get() { return &handle_; }
  const T* get() const { return &handle_; }
  uv_handle_t* base() { return reinterpret_cast<uv_handle_t*>(&handle_); }
  bool is_open() const { return state_ == State::open; }
  State state() const { return state_; }

  // To be called when the handle's uv_x_init has succeeded; `owner` is what callbacks find in data.
  void opened(void* owner) {
    state_ = State::open;
    handle_.data = owner;
  }
  void close(uv_close_cb on_close) {
    if (state_ == State::open) {
      state_ = State::closing;
      uv_close(base(), on_close);
    }
  }
  // The first thing that on_close does.
  void closed() { state_ = State::closed; }
  // In a forked child the loop belongs to the parent: nothing is closed, the memory is given up.
  void leak() { leaked_ = true; }

 private:
  T handle_{};
  State state_ = State::idle;
  bool leaked_ = false;
};

template <class Owner, class T>
Owner* owner_of(T* handle) {
  return static_cast<Owner*>(handle->data);
}

}  // namespace uvpy::uv
