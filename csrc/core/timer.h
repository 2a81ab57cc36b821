// Timer: a callback with a deadline, asyncio.TimerHandle for everybody who asks; and TimerHeap, the deadlines of a loop.
// The heap removes cancelled timers really, so that none keeps memory, and orders equal deadlines by creation.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/handle.h"
#include "core/ready.h"
#include "py/array.h"
#include "py/mutant.h"

namespace uvpy::core {

class Timer : public Handle {
 public:
  static constexpr std::size_t kNotInHeap = SIZE_MAX;

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

  int visit(visitproc visit, void* arg);
  void clear();

 private:
  friend class TimerHeap;
  double when_ = 0;
  py::Ref<> given_;
  std::size_t place_ = kNotInHeap;
};

// A 4-ary heap of deadlines. Owns one reference to each timer in it.
class TimerHeap {
 public:
  bool empty() const { return count_ == 0; }
  std::size_t size() const { return count_; }
  double first_deadline() const { return heap_[0].when; }
  Timer* at(std::size_t place) const { return heap_[place].timer; }

  // Takes the reference; false with MemoryError set, the reference still the caller's.
  bool push(py::Ref<>&& timer);
  // Moves the timers with a deadline before `end` to the ring, in order. Those made since `mark` (a value of created())
  // stay: they are for the next turn. False with MemoryError set.
  bool move_due(double end, std::uint64_t mark, ReadyRing& ring);
  std::uint64_t created() const { return created_; }
  // Takes a timer out wherever it is; its reference goes to the caller. Null when it is not in the heap.
  py::Ref<> remove(Timer* timer);
  // Lets all timers go.
  void clear();
  int visit(visitproc visit, void* arg) const;

 private:
  struct Entry {
    double when;
    std::uint64_t order;
    Timer* timer;
    bool before(const Entry& other) const {
      const bool earlier = py::mutant("timer-order-lost") ? order > other.order : order < other.order;
      return when < other.when || (when == other.when && earlier);
    }
  };
  void put(std::size_t place, const Entry& entry) {
    heap_[place] = entry;
    entry.timer->place_ = place;
  }
  void sift_up(std::size_t place, const Entry& entry);
  void sift_down(std::size_t place, const Entry& entry);

  py::Array<Entry> heap_;
  py::Array<Entry> aside_;
  std::size_t count_ = 0;
  std::uint64_t created_ = 0;
};

// A kind of Handle, in Python too.
PyTypeObject* make_timer_type(PyObject* module, PyTypeObject* handle_type);

}  // namespace uvpy::core
