// The GIL law of a loop (DESIGN.md laws 4 and 5): held throughout, given up for a blocking poll only, taken back
// right after it. Where a guest needs libuv's poll, give() is called in the prepare callback and take() first in every other
// libuv callback.
// Patience: where taking it back was seen to be slow (a busy thread holds the GIL for a whole switch interval), the
// loop sets a short interval just before it gives the GIL up and puts the user's back as soon as it has it again. So it
// does with its thread's slice (slice.h).
// SPDX-License-Identifier: MIT
#pragma once

#include <Python.h>

#include <cstdint>

#include "core/slice.h"
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
  // gets its own interval back after kPatienceMs at the latest, and forget() is called. So do waits all of which were
  // quick for as long.
  bool impatient() const { return policy_ == Policy::adaptive && contended(); }
  void forget() {
    history_ = 0;
    slow_count_ = 0;
  }
  static constexpr int kPatienceMs = 1000;

  std::uint64_t given_count() const { return given_count_; }
  std::uint64_t contended_count() const { return contended_count_; }
  std::uint64_t waited_ns() const { return waited_ns_; }

  // In a forked child: the waits of the parent's other threads do not exist here.
  static void after_fork_in_child(ModuleState* state);

 private:
  // Three of the last sixteen waits that tell something: one descheduled process does not make a convoy.
  bool contended() const {
    std::uint32_t left = history_ & 0xFFFFU;
    left &= left - 1;  // the lowest of them goes, twice
    left &= left - 1;
    return left != 0 || py::mutant("patience-without-contention");
  }
  void take_back();
  void remember(std::int64_t start, std::int64_t waited);
  bool shorten();
  void restore();

  ModuleState* state_ = nullptr;
  PyThreadState* saved_ = nullptr;
  std::uint32_t history_ = 0;
  Policy policy_ = Policy::adaptive;
  bool shortened_ = false;
  bool quick_ = false;  // what came last came within kHandoverNs
  Slice slice_;
  std::int64_t given_at_ = 0;  // read only where a slow wait is remembered, else 0
  std::int64_t slow_at_ = 0;
  std::int64_t known_until_ = 0;  // so long one slow wait is enough
  unsigned slow_count_ = 0;       // since the waits were forgotten
  std::uint64_t given_count_ = 0;
  std::uint64_t contended_count_ = 0;
  std::uint64_t waited_ns_ = 0;
};

}  // namespace uvpy::core
