// Guests: other extensions on our libuv loop. They get a capsule from libuv_loop_ptr() and call libuv through a table of
// guarded functions; uvpy/include/uvpy.h, which they include, says what holds for them. Their handles are theirs: nothing
// here looks at `data`. Called by Loop where a guest makes a difference: when it polls, when it ends, when it lists.
// SPDX-License-Identifier: MIT
#pragma once

#include <Python.h>
#include <uv.h>

#include <cstddef>

namespace uvpy::core {

class Loop;

class Guests {
 public:
  Guests() = default;
  Guests(const Guests&) = delete;
  Guests& operator=(const Guests&) = delete;

  // A new capsule, which keeps the loop alive; null with an exception set.
  PyObject* capsule(Loop& loop);
  // Whether a capsule was ever given away. From then on each turn polls: which handles there are, libuv alone knows.
  bool are_here() const { return here_; }
  // Whether handles may be made and started.
  bool may_start() const { return open_; }

  // Ends the exception that is set: in the exception handler, or in the run's end.
  static void report(Loop& loop, const char* message);
  // The poll is over; a guest's callback may have come back with an exception set.
  static void after_poll(Loop& loop) {
    if (PyErr_Occurred() != nullptr) [[unlikely]] {
      report(loop, nullptr);
    }
  }

  // The steps of the loop's end. No call gets through to libuv any more; not even an async_send that is under way.
  void shut(const Loop& loop);
  // Closes what they have left open, after all of ours.
  void close_left_open(Loop& loop);
  // When the loop is closed: warns of those. False with the exception set that a warning became.
  bool warn_of_left_open(Loop& loop);
  // In place of closing, where libuv's part is left as it is: handles are their owners' from now on.
  void give_up() { given_up_ = true; }
  bool are_given_up() const { return given_up_; }
  // Not in a forked child, where a thread of the parent may have had the lock.
  void free();

  // From any thread.
  int send(uv_async_t* handle);
  static Loop& host(const uv_loop_t* uv);

 private:
  bool here_ = false;
  bool open_ = false;
  bool given_up_ = false;
  uv_mutex_t lock_{};  // between a sender and the end of the loop
  unsigned left_[UV_HANDLE_TYPE_MAX] = {};
};

// uvpy.libuv_loop_ptr(loop).
PyObject* libuv_loop_ptr(PyObject* module, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames);

}  // namespace uvpy::core
