// Giving the GIL up and taking it back, and the patience between. The interval is the interpreter's, so several loops
// count together in ModuleState: the first who waits sets the short one, the last who has waited restores the user's.
// SPDX-License-Identifier: MIT
#include "core/gil.h"

#ifdef __linux__
#include <sys/prctl.h>
#endif

#include <cmath>

#include "core/clock.h"
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
// Who is woken for the GIL needs a while until it runs: after a shorter park it may be that nobody could have had it.
constexpr std::int64_t kHandoverNs = 100'000;
// A thread that was there and forgotten since the loop slept on is known by its first slow wait for so long.
constexpr std::int64_t kKnownNs = 10'000'000'000;
constexpr unsigned kEnough = 3;  // as contended() has it

// A wait for the GIL with a time-out of 0.1 ms takes 0.15 where the kernel gathers timers by their slack, 50 us. While
// one lives this thread's is small.
class PunctualWait {
 public:
  explicit PunctualWait([[maybe_unused]] bool wanted) {
#ifdef __linux__
    if (wanted) {
      slack_ = prctl(PR_GET_TIMERSLACK);
    }
    if (slack_ > kSlackNs) {
      prctl(PR_SET_TIMERSLACK, static_cast<unsigned long>(kSlackNs));
    }
#endif
  }
  ~PunctualWait() {
#ifdef __linux__
    if (slack_ > kSlackNs) {
      prctl(PR_SET_TIMERSLACK, static_cast<unsigned long>(slack_));
    }
#endif
  }
  PunctualWait(const PunctualWait&) = delete;
  PunctualWait& operator=(const PunctualWait&) = delete;

 private:
  static constexpr int kSlackNs = 1000;
  int slack_ = 0;
};

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
    // Each setting starts the thread's turn on its core anew: many a millisecond, as a loop would that is never at rest,
    // and the others do not come to theirs.
    if (shortened_ && (!quick_ || py::mutant("slice-between-quick-returns"))) {
      slice_.shorten();
    }
  }
  given_at_ = history_ != 0 ? monotonic_ns() : 0;
  ++given_count_;
  // Before the GIL goes: from the next instruction on other threads ask given() to know whether they must wake us.
  saved_ = PyThreadState_Get();
  PyEval_SaveThread();
}

void Gil::take_back() {
  const std::int64_t start = monotonic_ns();
  PyThreadState* saved = saved_;
  {
    const PunctualWait punctual(shortened_);
    PyEval_RestoreThread(saved);
  }
  const std::int64_t waited = monotonic_ns() - start;
  saved_ = nullptr;  // only now: other threads ask given() under the GIL
  waited_ns_ += static_cast<std::uint64_t>(waited);
  quick_ = start - given_at_ < kHandoverNs;
  if (waited >= kWorthALookNs || slow_count_ != 0) {  // else there is nothing to remember, and nothing to forget
    remember(start, waited);
  }
  if (shortened_) {
    slice_.restore();
    restore();
  }
}

void Gil::remember(std::int64_t start, std::int64_t waited) {
  bool slow = false;
  if (waited >= kWorthALookNs) {
    const double interval = interval_now(state_);
    slow = interval > 0 && static_cast<double>(waited) >= 0.8e9 * interval;
  }
  if (slow) {
    ++contended_count_;
    slow_at_ = start;
    history_ = (history_ << 1) | 1U;
    // Known by waits of its own, not by one that was believed: else a process that is descheduled now and then would be
    // taken for contention for ever.
    if (++slow_count_ >= kEnough) {
      known_until_ = start + kKnownNs;
    } else if (start < known_until_ && !py::mutant("known-thread-needs-three-waits")) {
      history_ |= (1U << kEnough) - 1;
    }
  } else if (start - slow_at_ > kPatienceMs * 1'000'000LL) {
    forget();
  } else if (start - given_at_ >= kHandoverNs) {
    // Quick returns right after the GIL was given up do not count: by them a loop that is never at rest would forget
    // who is there.
    history_ <<= 1;
  }
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
