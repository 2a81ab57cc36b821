// The order of the timers that wait. Called by the loop, from one place a turn to find what is due; nothing here looks at a
// clock or runs code of the program's, but for what a timer that clear() lets go may free.
// SPDX-License-Identifier: MIT
#include "core/timer_queue.h"

#include <algorithm>
#include <utility>

namespace uvpy::core {

double TimerQueue::first_deadline() {
  if (!is_first_exact_) {
    close_gaps();
  }
  const Entry* settled = first();
  return settled != nullptr ? std::min(settled->when, fresh_first_) : fresh_first_;
}

// The first of the run and the heap.
const TimerQueue::Entry* TimerQueue::first() const {
  const Entry* run = run_begin_ != run_end_ ? &run_[run_begin_] : nullptr;
  const Entry* heap = heap_count_ != 0 ? &heap_[0] : nullptr;
  if (run == nullptr || heap == nullptr) {
    return run != nullptr ? run : heap;
  }
  return heap->before(*run) ? heap : run;
}

bool TimerQueue::move_due(double end, std::uint64_t mark, ReadyRing& ring) {
  if ((fresh_first_ < end || fresh_count_ > kFreshLimit) && !settle(mark)) {
    return false;
  }
  // What is settled was made before the mark: only this function settles, and marks only rise.
  for (const Entry* next = first(); next != nullptr && next->when < end; next = first()) {
    if (run_begin_ + kAhead < run_end_) {
      __builtin_prefetch(run_[run_begin_ + kAhead].timer);
    }
    if (!ring.push(py::borrow(next->timer->object()))) {
      return false;
    }
    next->timer->show();  // the ring visits its handles only
    // The ring has its own reference now, so letting go of ours frees nothing.
    remove(next->timer);
  }
  return true;
}

// ---- removal

py::Ref<> TimerQueue::remove(Timer* timer) {
  const std::size_t place = timer->place_;
  if (place == Timer::kNowhere) {
    return {};
  }
  timer->place_ = Timer::kNowhere;
  --size_;
  const std::size_t index = place / kParts;
  if (place % kParts == kFresh) [[likely]] {
    take_from_fresh(index, timer->when_);
  } else if (place % kParts == kRun) {
    take_from_run(index);
  } else {
    take_from_heap(index);
  }
  return py::steal(timer->object());
}

inline void TimerQueue::take_from_fresh(std::size_t index, double when) {
  if (index + 1 != fresh_count_) {
    fresh_[index].timer = nullptr;
    ++fresh_gaps_;
  } else {
    --fresh_count_;
    while (fresh_gaps_ > 0 && fresh_[fresh_count_ - 1].timer == nullptr) {  // the last is never a gap
      --fresh_count_;
      --fresh_gaps_;
    }
  }
  if (fresh_count_ == 0) {
    fresh_first_ = kNever;
    is_first_exact_ = true;
  } else if (when <= fresh_first_) {
    is_first_exact_ = false;
  }
}

void TimerQueue::take_from_run(std::size_t index) {
  run_[index].timer = nullptr;
  ++run_gaps_;
  while (run_begin_ != run_end_ && run_[run_begin_].timer == nullptr) {
    ++run_begin_;
    --run_gaps_;
  }
  if (run_begin_ == run_end_) {
    run_begin_ = run_end_ = 0;
    if (run_.capacity() > kKept) {
      run_.free();
    }
  } else if (run_gaps_ > kFreshLimit && run_gaps_ > (run_end_ - run_begin_) / 2) {
    std::size_t kept = 0;
    for (std::size_t i = run_begin_; i < run_end_; ++i) {
      if (run_[i].timer != nullptr) {
        run_[i].timer->place_ = kept * kParts + kRun;
        run_[kept++] = run_[i];
      }
    }
    run_begin_ = run_gaps_ = 0;
    run_end_ = kept;
  }
}

void TimerQueue::take_from_heap(std::size_t index) {
  const Entry last = heap_[--heap_count_];
  if (index == heap_count_) {
    return;
  }
  if (index > 0 && last.before(heap_[(index - 1) / 4])) {
    sift_up(index, last);
  } else {
    sift_down(index, last);
  }
}

void TimerQueue::clear() {
  // One by one: what a timer frees may make or cancel others.
  while (size_ > 0) {
    const Entry& last = fresh_count_ > 0  ? fresh_[fresh_count_ - 1]
                        : heap_count_ > 0 ? heap_[heap_count_ - 1]
                                          : run_[run_begin_];
    py::Ref<> out = remove(last.timer);
  }
}

// ---- the new ones

bool TimerQueue::make_room() {
  if (fresh_gaps_ > fresh_count_ / 2) {
    close_gaps();
    return true;
  }
  return fresh_.reserve(fresh_count_ + 1);
}

void TimerQueue::close_gaps() {
  std::size_t kept = 0;
  fresh_first_ = kNever;
  for (std::size_t i = 0; i < fresh_count_; ++i) {
    const Entry entry = fresh_[i];
    if (entry.timer == nullptr) {
      continue;
    }
    fresh_first_ = std::min(fresh_first_, entry.when);
    if (kept != i) {
      entry.timer->place_ = kept * kParts + kFresh;
      fresh_[kept] = entry;
    }
    ++kept;
  }
  fresh_count_ = kept;
  fresh_gaps_ = 0;
  is_first_exact_ = true;
}

bool TimerQueue::settle(std::uint64_t mark) {
  track_shared();
  if (fresh_gaps_ > 0) {
    close_gaps();
  }
  std::size_t count = fresh_count_;
  while (count > 0 && fresh_[count - 1].order >= mark) {
    --count;
  }
  if (count == 0) {
    return true;
  }
  // Merging costs as much as both are long, so it is done where that is in proportion to what is new.
  const std::size_t waiting = run_end_ - run_begin_ - run_gaps_;
  const bool done = count >= kFew && waiting <= 2 * count ? into_run(count) : into_heap(count);
  if (!done) {
    return false;
  }
  // The rest moves to the front.
  fresh_first_ = kNever;
  for (std::size_t i = count; i < fresh_count_; ++i) {
    const Entry& entry = fresh_[i - count] = fresh_[i];
    entry.timer->place_ = (i - count) * kParts + kFresh;
    fresh_first_ = std::min(fresh_first_, entry.when);
  }
  fresh_count_ -= count;
  if (fresh_count_ == 0 && fresh_.capacity() > kKept) {
    fresh_.free();
  }
  return true;
}

bool TimerQueue::into_heap(std::size_t count) {
  if (!heap_.reserve(heap_count_ + count)) {
    return false;
  }
  for (std::size_t i = 0; i < count; ++i) {
    sift_up(heap_count_++, fresh_[i]);
  }
  return true;
}

bool TimerQueue::into_run(std::size_t count) {
  if (!next_run_.reserve(run_end_ - run_begin_ - run_gaps_ + count)) {
    return false;
  }
  std::sort(fresh_.data(), fresh_.data() + count, [](const Entry& a, const Entry& b) { return a.before(b); });
  std::size_t made = 0;
  const auto append = [&](const Entry& entry) {
    entry.timer->place_ = made * kParts + kRun;
    next_run_[made++] = entry;
  };
  std::size_t old = run_begin_;
  for (std::size_t i = 0; i < count; ++i) {
    while (old != run_end_ && (run_[old].timer == nullptr || run_[old].before(fresh_[i]))) {
      if (run_[old].timer != nullptr) {
        append(run_[old]);
      }
      ++old;
    }
    append(fresh_[i]);
  }
  for (; old != run_end_; ++old) {
    if (run_[old].timer != nullptr) {
      append(run_[old]);
    }
  }
  run_.swap(next_run_);
  run_begin_ = run_gaps_ = 0;
  run_end_ = made;
  if (next_run_.capacity() > kKept) {
    next_run_.free();
  }
  return true;
}

// ---- the heap

void TimerQueue::sift_up(std::size_t index, const Entry& entry) {
  while (index > 0) {
    const std::size_t parent = (index - 1) / 4;
    if (!entry.before(heap_[parent])) {
      break;
    }
    put(index, heap_[parent]);
    index = parent;
  }
  put(index, entry);
}

void TimerQueue::sift_down(std::size_t index, const Entry& entry) {
  for (;;) {
    const std::size_t first = 4 * index + 1;
    if (first >= heap_count_) {
      break;
    }
    const std::size_t end = std::min(first + 4, heap_count_);
    std::size_t best = first;
    for (std::size_t child = first + 1; child < end; ++child) {
      if (heap_[child].before(heap_[best])) {
        best = child;
      }
    }
    if (!heap_[best].before(entry)) {
      break;
    }
    put(index, heap_[best]);
    index = best;
  }
  put(index, entry);
}

// ---- what is there

// Calls see(entry) until it says something else than 0.
template <class F>
int TimerQueue::for_each(F see) const {
  const struct {
    const Entry* begin;
    std::size_t count;
  } parts[] = {
      {fresh_.data(), fresh_count_}, {run_.data() + run_begin_, run_end_ - run_begin_}, {heap_.data(), heap_count_}};
  for (const auto& part : parts) {
    for (std::size_t i = 0; i < part.count; ++i) {
      if (part.begin[i].timer == nullptr) {
        continue;
      }
      if (int result = see(part.begin[i])) {
        return result;
      }
    }
  }
  return 0;
}

int TimerQueue::visit(visitproc visit, void* arg) const {
  return for_each([&](const Entry& entry) { return entry.timer->visit_in_queue(visit, arg); });
}

void TimerQueue::track_shared() {
  // All that it has not looked at are among the new ones.
  for (std::size_t i = fresh_count_; i > 0 && fresh_[i - 1].order >= looked_at_; --i) {
    Timer* timer = fresh_[i - 1].timer;
    if (timer != nullptr && (Py_REFCNT(timer->object()) > 1 || timer->has_weakrefs())) {
      timer->show();
    }
  }
  looked_at_ = created_;
}

PyObject* TimerQueue::list() const {
  // Making the list may collect, and so change the queue: before that, nothing is looked at.
  py::Ref<> list = py::steal(PyList_New(0));
  py::Array<Entry> all;
  if (!list || size_ == 0) {
    return list.release();
  }
  if (!all.reserve(size_)) {
    return nullptr;
  }
  std::size_t count = 0;
  for_each([&](const Entry& entry) {
    all[count++] = entry;
    return 0;
  });
  std::sort(all.data(), all.data() + count, [](const Entry& a, const Entry& b) { return a.before(b); });
  // Appending allocates nothing that the collector knows.
  for (std::size_t i = 0; i < count; ++i) {
    all[i].timer->show();
    if (PyList_Append(list.get(), all[i].timer->object()) < 0) {
      return nullptr;
    }
  }
  return list.release();
}

}  // namespace uvpy::core
