// Giving the GIL up and taking it back, and the patience between. The interval is the interpreter's, so several loops
// count together in ModuleState: the first who waits sets the short one, the last who has waited restores the user's.
// SPDX-License-Identifier: MIT
#include "core/gil.h"

#include <poll.h>
#include <time.h>

#include <cmath>

#include "py/call.h"
#include "py/mutant.h"

namespace uvpy::core {

namespace {

// CPython's own value: a program that has set another knows what it wants, and is left alone.
constexpr double kDefaultInterval = 0.005;
// Not a round figure: 0.1 ms is what programs set that know of the matter.
constexpr double kShortInterval = 0.000103;
// A wait shorter than this is no contention whatever the interval; it saves asking for it.
constexpr std::int64_t kWorthALookNs = 40'000;
// How long a loop looks for its next packet with the GIL, where the last came as soon.
constexpr std::int64_t kStayNs = 50'000;
// Who is woken for the GIL needs a while until it runs: after a shorter park nobody else can have had it.
constexpr std::int64_t kHandoverNs = 100'000;
// The loop's share: this many times as long as it waited.
constexpr double kShare = 1.25;

std::int64_t now_ns() {
  timespec t{};
  clock_gettime(CLOCK_MONOTONIC, &t);
  return static_cast<std::int64_t>(t.tv_sec) * 1'000'000'000 + t.tv_nsec;
}

// Long enough for another thread to wake up and take the GIL; a sleep of nothing lasts as long as the timer's slack.
void yield() {
  const timespec moment{0, 1000};
  nanosleep(&moment, nullptr);
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
    shortened_ = shorten();
  }
  given_at_ = history_ != 0 ? now_ns() : 0;
  ++given_count_;
  // Before the GIL goes: from the next instruction on other threads ask given() to know whether they must wake us.
  saved_ = PyThreadState_Get();
  PyEval_SaveThread();
}

void Gil::take_back() {
  std::int64_t start = now_ns();
  const std::int64_t parked = given_at_ != 0 ? start - given_at_ : kHandoverNs;
  if (shortened_) {
    gap_is_short_ = parked < kStayNs;
    if (gap_is_short_ && start >= share_until_) {
      yield();
      ++yielded_count_;
      start = now_ns();
    }
  }
  PyThreadState* saved = saved_;
  PyEval_RestoreThread(saved);
  const std::int64_t end = now_ns();
  saved_ = nullptr;  // only now: other threads ask given() under the GIL
  waited_ns_ += static_cast<std::uint64_t>(end - start);
  judge(given_at_ != 0 ? start - given_at_ : kHandoverNs, end - start);
  if (shortened_) {
    restore();
  }
}

// What a wait for the GIL tells.
void Gil::judge(std::int64_t parked, std::int64_t waited) {
  double interval = 0;
  if (waited >= kWorthALookNs) {
    interval = interval_now(state_);
  }
  const bool slow = interval > 0 && static_cast<double>(waited) >= 0.8e9 * interval;
  if (slow) {
    ++contended_count_;
    share_until_ = now_ns() + static_cast<std::int64_t>(kShare * static_cast<double>(waited));
  }
  // A quick return right after the GIL was given up says nothing: nobody could have had it.
  if (slow || parked >= kHandoverNs || history_ == 0) {
    history_ = (history_ << 1) | (slow ? 1U : 0U);
  }
}

bool Gil::look(int backend) {
  const std::int64_t start = now_ns();
  if (start >= share_until_) {
    return false;
  }
  std::int64_t end = gap_is_short_ ? start + kStayNs : start;
  end = end < share_until_ ? end : share_until_;
  pollfd events{backend, POLLIN, 0};
  do {
    if (poll(&events, 1, 0) != 0) {
      ++stayed_count_;
      return true;
    }
  } while (now_ns() < end);
  return false;
}

// False where the interval is the user's own: then there is nothing to do, and nothing to remember.
bool Gil::shorten() {
  SwitchInterval& shared = state_->switch_interval;
  if (shared.waiting == 0) {
    const double now = interval_now(state_);
    // The short value with nobody waiting is ours, put back by somebody who had saved it while we waited.
    if (!same(now, kDefaultInterval) && !same(now, kShortInterval) && !py::mutant("interval-of-the-user-shortened")) {
      forget();
      return false;
    }
    set_interval(state_, kShortInterval);
  }
  ++shared.waiting;
  return true;
}

void Gil::restore() {
  SwitchInterval& shared = state_->switch_interval;
  shortened_ = false;
  // A value that somebody set while we waited is the user's and stays.
  const bool last = --shared.waiting == 0 || py::mutant("interval-back-under-another-loop");
  if (last && same(interval_now(state_), kShortInterval) && !py::mutant("interval-kept")) {
    set_interval(state_, kDefaultInterval);
  }
}

void Gil::after_fork_in_child(ModuleState* state) {
  SwitchInterval& shared = state->switch_interval;
  if (shared.waiting > 0 && !py::mutant("interval-kept-in-a-child")) {
    shared.waiting = 0;
    if (same(interval_now(state), kShortInterval)) {
      set_interval(state, kDefaultInterval);
    }
  }
}

}  // namespace uvpy::core
