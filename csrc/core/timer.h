// Timer: a callback with a deadline, asyncio.TimerHandle for everybody who asks. Those that wait are in a TimerQueue.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/handle.h"

namespace uvpy::core {

class Timer : public Handle {
 public:
  static constexpr std::size_t kNowhere = SIZE_MAX;  // no place in the queue

  // `when` in seconds of the loop's clock; `given` is the object that when() gives back, null for a plain float.
  void set_deadline(double when, PyObject* given) {
    when_ = when;
    given_ = py::borrow(given);
  }
  double deadline() const { return when_; }

  PyObject* cancel_timer();
  PyObject* when();
  PyObject* get_scheduled();
  PyObject* get_timer_class();

  bool has_weakrefs() const { return reinterpret_cast<py::Object<Timer>*>(object())->weakrefs != nullptr; }
  // For a timer of the queue's: as the queue's own what nobody else has, else the timer.
  int visit_in_queue(visitproc visit, void* arg);

  int visit(visitproc visit, void* arg);
  void clear();

 private:
  friend class TimerQueue;
  double when_ = 0;
  py::Ref<> given_;
  std::size_t place_ = kNowhere;
};

// A kind of Handle, in Python too.
PyTypeObject* make_timer_type(PyObject* module, PyTypeObject* handle_type);

}  // namespace uvpy::core
