// TimerQueue: the timers of a loop that wait. A new one is only noted down; timers are put in order when one of the new ones is
// due, or when there are many of them. So one that is cancelled soon, as most are, costs no ordering, and many that are made
// at once are sorted in one go and leave one by one from the front, which is dense in memory where a heap jumps.
// Cancelled timers are removed really, so that none keeps memory; equal deadlines are in order of creation.
// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>

#include "core/ready.h"
#include "core/timer.h"
#include "py/array.h"
#include "py/mutant.h"

namespace uvpy::core {

// Owns one reference to each timer in it.
class TimerQueue {
 public:
  bool empty() const { return size_ == 0; }
  std::size_t size() const { return size_; }
  // Of a queue that is not empty.
  double first_deadline();

  // Takes the reference; false with MemoryError set, the reference still the caller's.
  bool push(py::Ref<>&& timer) {
    if (fresh_count_ == fresh_.capacity() && !make_room()) [[unlikely]] {
      return false;
    }
    auto* state = py::state_of<Timer>(timer.release());
    state->place_ = fresh_count_ * kParts + kFresh;
    fresh_[fresh_count_++] = {state->when_, created_++, state};
    fresh_first_ = std::min(fresh_first_, state->when_);
    ++size_;
    return true;
  }
  // Moves the timers with a deadline before `end` to the ring, in order. Those made since `mark` (a value of created())
  // stay: they are for the next turn. False with MemoryError set.
  bool move_due(double end, std::uint64_t mark, ReadyRing& ring);
  std::uint64_t created() const { return created_; }
  // Takes a timer out wherever it is; its reference goes to the caller. Null when it is not there.
  py::Ref<> remove(Timer* timer);
  // At the end of each turn, and before new ones go elsewhere: has the collector track those that others hold too.
  void track_shared();
  // Lets all timers go.
  void clear();
  // A new list of them, in order; null with an exception set.
  PyObject* list() const;
  int visit(visitproc visit, void* arg) const;

 private:
  // Where a timer is: its index in one of three arrays, times kParts, plus which.
  static constexpr std::size_t kParts = 4;
  static constexpr std::size_t kHeap = 0;
  static constexpr std::size_t kRun = 1;
  static constexpr std::size_t kFresh = 2;
  static constexpr double kNever = HUGE_VAL;
  // So many new ones stay unordered, if none is due: they may all be looked at to find the first.
  static constexpr std::size_t kFreshLimit = 128;
  // Fewer go to the heap one by one; and an array that is larger is not kept when it is empty.
  static constexpr std::size_t kFew = 16;
  static constexpr std::size_t kKept = 4096;
  // The timer so far behind the first of the run is asked for from memory.
  static constexpr std::size_t kAhead = 8;

  struct Entry {
    double when;
    std::uint64_t order;
    Timer* timer;  // null: it was taken out (of the run, of the new ones)
    bool before(const Entry& other) const {
      const bool earlier = py::mutant("timer-order-lost") ? order > other.order : order < other.order;
      return when < other.when || (when == other.when && earlier);
    }
  };

  bool make_room();
  void close_gaps();
  // Puts the new ones that were made before `mark` in order. False with MemoryError set.
  bool settle(std::uint64_t mark);
  bool into_run(std::size_t count);
  bool into_heap(std::size_t count);
  const Entry* first() const;
  void take_from_run(std::size_t index);
  void take_from_heap(std::size_t index);
  void take_from_fresh(std::size_t index, double when);
  template <class F>
  int for_each(F see) const;

  void put(std::size_t index, const Entry& entry) {
    heap_[index] = entry;
    entry.timer->place_ = index * kParts + kHeap;
  }
  void sift_up(std::size_t index, const Entry& entry);
  void sift_down(std::size_t index, const Entry& entry);

  // The new ones in order of creation, and their first deadline: exactly, or, after a removal, at the earliest.
  py::Array<Entry> fresh_;
  std::size_t fresh_count_ = 0;
  std::size_t fresh_gaps_ = 0;
  double fresh_first_ = kNever;
  bool is_first_exact_ = true;
  // Many at once, sorted: [run_begin_, run_end_), of which the first is no gap.
  py::Array<Entry> run_;
  py::Array<Entry> next_run_;  // where the next is made
  std::size_t run_begin_ = 0;
  std::size_t run_end_ = 0;
  std::size_t run_gaps_ = 0;
  // The others: a 4-ary heap.
  py::Array<Entry> heap_;
  std::size_t heap_count_ = 0;

  std::size_t size_ = 0;
  std::uint64_t created_ = 0;
  std::uint64_t looked_at_ = 0;  // by track_shared(): those made before
};

}  // namespace uvpy::core
