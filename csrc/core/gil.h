// The GIL law of a loop (DESIGN.md laws 4 and 5): held throughout, given up for a blocking poll only, taken back by the
// first callback after it. give() is called in the prepare callback, take() first in every other libuv callback.
// Where taking it back was seen to be slow (a busy thread holds the GIL for a whole switch interval) there is more:
// patience, a short interval while the loop waits; staying, polls with the GIL while the loop has its share of it; and
// yielding, when it has had more.
// SPDX-License-Identifier: MIT
#pragma once

#include <Python.h>

#include <cstdint>

#include "py/mutant.h"
#include "state.h"

namespace uvpy::core {

class Gil {
 public:
  enum class Policy : unsigned char { adaptive, plain };

  void set_state(ModuleState* state) { state_ = state; }
  void set_policy(Policy policy) { policy_ = policy; }
  Policy policy() const { return policy_; }

  bool given() const { return saved_ != nullptr; }
  void give();
  void take() {
    if (saved_ != nullptr) [[unlikely]] {
      take_back();
    }
  }

  // Whether the next give() will shorten the switch interval. Such a park is bounded: a program whose loop sleeps on
  // gets its own interval back after kPatienceMs at the latest, and forget() is called.
  bool impatient() const { return policy_ == Policy::adaptive && contended(); }
  void forget() { history_ = 0; }
  static constexpr int kPatienceMs = 1000;

  // Instead of give(): whether `backend`, the descriptor that libuv polls, has something already, so that the poll need
  // not wait and the GIL can stay. Looks only while impatient and within the loop's share.
  bool stays(int backend) { return impatient() && look(backend); }
  // What ended the wait came from a thread of this process, which needs the GIL for it: nothing to stay for.
  void woken_by_thread() { gap_is_short_ = false; }

  std::uint64_t given_count() const { return given_count_; }
  std::uint64_t contended_count() const { return contended_count_; }
  std::uint64_t waited_ns() const { return waited_ns_; }
  std::uint64_t stayed_count() const { return stayed_count_; }
  std::uint64_t yielded_count() const { return yielded_count_; }

  // In a forked child: the waits of the parent's other threads do not exist here.
  static void after_fork_in_child(ModuleState* state);

 private:
  // Three of the last sixteen waits: one descheduled process does not make a convoy.
  bool contended() const {
    return __builtin_popcount(history_ & 0xFFFFU) >= 3 || py::mutant("patience-without-contention");
  }
  void take_back();
  bool look(int backend);
  void judge(std::int64_t parked, std::int64_t waited);
  bool shorten();
  void restore();

  ModuleState* state_ = nullptr;
  PyThreadState* saved_ = nullptr;
  std::uint32_t history_ = 0;
  Policy policy_ = Policy::adaptive;
  bool shortened_ = false;
  bool gap_is_short_ = false;     // what the loop waited for last came within kStayNs
  std::int64_t given_at_ = 0;     // read only where something slow is remembered, else 0
  std::int64_t share_until_ = 0;  // when the loop has had as much of the GIL as the others before it
  std::uint64_t given_count_ = 0;
  std::uint64_t contended_count_ = 0;
  std::uint64_t waited_ns_ = 0;
  std::uint64_t stayed_count_ = 0;
  std::uint64_t yielded_count_ = 0;
};

}  // namespace uvpy::core
