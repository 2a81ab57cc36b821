// Giving the GIL up and taking it back, and the patience between. The interval is the interpreter's, so several loops
// count together in ModuleState: the first who waits sets the short one, the last who has waited restores the user's.
// SPDX-License-Identifier: MIT
#include "core/gil.h"

#include <time.h>

#include <cmath>

#include "py/call.h"

namespace uvpy::core {

namespace {

// CPython's own value: a program that has set another knows what it wants, and is left alone.
constexpr double kDefaultInterval = 0.005;
constexpr double kShortInterval = 0.0001;
// A wait shorter than this is no contention whatever the interval; it saves asking for it.
constexpr std::int64_t kWorthALookNs = 40'000;

std::int64_t now_ns() {
  timespec t{};
  clock_gettime(CLOCK_MONOTONIC, &t);
  return static_cast<std::int64_t>(t.tv_sec) * 1'000'000'000 + t.tv_nsec;
}

// The interpreter keeps whole microseconds, and loses one where somebody saves a value and sets it again.
bool same(double a, double b) { return std::fabs(a - b) < 1.5e-6; }

// sys.getswitchinterval(); negative when it fails, which it does not.
double interval_now(ModuleState* state) {
  py::Ref<> value = py::call(state->getswitchinterval);
  if (!value) {
    PyErr_Clear();
    return -1;
  }
  return PyFloat_AsDouble(value.get());
}

void set_interval(ModuleState* state, double seconds) {
  py::Ref<> value = py::steal(PyFloat_FromDouble(seconds));
  if (!value || !py::call(state->setswitchinterval, value.get())) {
    PyErr_Clear();
  }
}

}  // namespace

void Gil::give() {
  if (impatient()) {
    shorten();
  }
  ++given_count_;
  // Before the GIL goes: from the next instruction on other threads ask given() to know whether they must wake us.
  saved_ = PyThreadState_Get();
  PyEval_SaveThread();
}

void Gil::take_back() {
  const std::int64_t start = now_ns();
  PyThreadState* saved = saved_;
  PyEval_RestoreThread(saved);
  const std::int64_t waited = now_ns() - start;
  saved_ = nullptr;  // only now: other threads ask given() under the GIL
  waited_ns_ += static_cast<std::uint64_t>(waited);
  bool slow = false;
  if (waited >= kWorthALookNs) {
    const double interval = interval_now(state_);
    slow = interval > 0 && static_cast<double>(waited) >= 0.8e9 * interval;
  }
  history_ = (history_ << 1) | (slow ? 1U : 0U);
  contended_count_ += slow ? 1 : 0;
  if (shortened_) {
    restore();
  }
}

void Gil::shorten() {
  SwitchInterval& shared = state_->switch_interval;
  if (shared.waiting == 0) {
    const double now = interval_now(state_);
    // The short value with nobody waiting is ours, put back by somebody who had saved it while we waited.
    if (!same(now, kDefaultInterval) && !same(now, kShortInterval)) {
      return;
    }
    set_interval(state_, kShortInterval);
  }
  ++shared.waiting;
  shortened_ = true;
}

void Gil::restore() {
  SwitchInterval& shared = state_->switch_interval;
  shortened_ = false;
  // A value that somebody set while we waited is the user's and stays.
  if (--shared.waiting == 0 && same(interval_now(state_), kShortInterval)) {
    set_interval(state_, kDefaultInterval);
  }
}

void Gil::after_fork_in_child(ModuleState* state) {
  SwitchInterval& shared = state->switch_interval;
  if (shared.waiting > 0) {
    shared.waiting = 0;
    if (same(interval_now(state), kShortInterval)) {
      set_interval(state, kDefaultInterval);
    }
  }
}

}  // namespace uvpy::core
