// What goes with the poll of a turn (loop.cpp): whether it may block, the timers' part in that, other threads' wake-ups, input
// that is handed on. Where a guest has handles in libuv's loop, the poll is uv_run, in whose set our PollSet is one
// descriptor; else we wait for the PollSet alone, which is one system call.
// SPDX-License-Identifier: MIT
#include <cerrno>
#include <cmath>

#include "core/clock.h"
#include "core/loop.h"
#include "py/call.h"
#include "py/mutant.h"

namespace uvpy::core {

// A child that only ends what it has from its parent, as one does in which sys.exit() ended the run, never waits: it takes
// no data of the connections that they share. One that waits goes on with them, as asyncio's does.
int Loop::leaves_poll_out() {
  if (foreign_ && !adopt()) {
    return -1;
  }
  if (listens_again_) {
    listens_again_ = false;
    if (!interrupt_.begin(*this)) {
      return -1;
    }
  }
  if (!may_block_ && --quiet_turns_ > 0) {
    return 1;
  }
  quiet_turns_ = 0;
  watchers_.watch_all_again();
  return 0;
}

bool Loop::poll_by_libuv() {
  if (!has_backend()) {
    // Somebody closed it: an error, as asyncio has it, where libuv would end the process.
    py::raise_os_error(EBADF);
    return false;
  }
  if (watchers_.needs_arming()) {
    const int error = watchers_.arm(*this);
    if (error != 0) {
      py::raise_os_error(error);
      return false;
    }
  }
  in_poll_ = true;
  uv_run(&uv_, may_block_ ? UV_RUN_ONCE : UV_RUN_NOWAIT);
  gil_.take();
  Guests::after_poll(*this);
  in_poll_ = false;
  return true;
}

void Loop::hold_input(Resource* resource) {
  resources_.hold_input(resource, round_);
  wake();  // resumed by another thread while the loop polls
}

// One piece of what each resource holds, as asyncio's poll would find one in the kernel for each of its readers. Then the
// same again, for as many iterations of asyncio as would run nothing else. Each puts the poll off, and what it would find:
// so only so many, and none after a callback that has taken its time.
void Loop::hand_on() {
  if (resources_.holding.empty()) [[likely]] {
    return;
  }
  in_poll_ = true;
  const std::int64_t begun = monotonic_ns();
  for (unsigned left = kRounds; left > 0; --left) {
    Resource* resource = nullptr;
    while (!leaving_ && !foreign_ && (resource = resources_.take_holding(round_)) != nullptr) {
      py::Ref<> alive = py::borrow(resource->object());
      resource->hand_on();
    }
    const bool is_free = (ready_.empty() && later_.empty()) || py::mutant("datagrams-overtake");
    if (resources_.holding.empty() || !is_free || stopping_ || leaving_ || foreign_ || is_timer_due() ||
        monotonic_ns() - begun > kRoundsNs) {
      break;
    }
    ++round_;
    timer_mark_ = timers_.created();
  }
  in_poll_ = false;
}

// Whether the next iteration would run a timer. What an overridden time() raises leaves the run, as it does in the turn.
bool Loop::is_timer_due() {
  double now = 0;
  if (timers_.empty()) {
    return false;
  }
  if (!time_now(&now)) {
    leave_with_error();
    return true;
  }
  return !timers_.empty() && timers_.first_deadline() <= now;
}

void Loop::on_prepare(uv_prepare_t* handle) { uv::owner_of<Loop>(handle)->before_poll(); }

void Loop::before_poll() {
  // A guest's callbacks that ran earlier in uv_run may have written, and filled the ring.
  flush_writes();
  if (!may_block_) {
    return;
  }
  long ms = -1;
  if (!decide_to_block(&ms)) {
    // The time-out is computed after the prepare callbacks, and an active idle handle makes it zero.
    uv_idle_start(idle_.get(), &Loop::on_idle);
    return;
  }
  if (ms >= 0) {
    uv_update_time(&uv_);
    uv_timer_start(timer_.get(), &Loop::on_timer, static_cast<std::uint64_t>(ms), 0);
  } else if (uv_is_active(timer_.base()) != 0) {
    uv_timer_stop(timer_.get());
  }
  gil_.give();
}

// The last look before a poll that may block: whether it does, and for how long at most.
bool Loop::decide_to_block(long* ms) {
  // What can run the program's code comes first (an overridden time(), writes of it): after the look at the ring nothing
  // may fill it any more.
  *ms = -1;
  if (!wait_for_timers(ms)) {
    leave_with_error();
  }
  flush_writes();
  if (*ms == 0 || !ready_.empty() || !later_.empty() || !resources_.holding.empty() || stopping_ || leaving_) {
    return false;
  }
  bounded_ = gil_.impatient() && (*ms < 0 || *ms > Gil::kPatienceMs) && !py::mutant("patience-unbounded");
  if (bounded_) {
    *ms = Gil::kPatienceMs;
  }
  woken_ = false;
  return true;
}

void Loop::on_check(uv_check_t* handle) {
  auto* loop = uv::owner_of<Loop>(handle);
  loop->gil_.take();
  uv_idle_stop(loop->idle_.get());
}

void Loop::on_idle(uv_idle_t*) {}

void Loop::on_async(uv_async_t* handle) { uv::owner_of<Loop>(handle)->gil_.take(); }

void Loop::on_timer(uv_timer_t* handle) {
  auto* loop = uv::owner_of<Loop>(handle);
  loop->gil_.take();
  if (loop->bounded_) {
    loop->gil_.forget();  // nothing came while we were impatient: the user's interval holds for the rest
  }
}

void Loop::wake() {
  if (gil_.given() && !woken_ && !foreign_) {
    woken_ = true;
    if constexpr (!py::mutant("wakeup-lost")) {
      if (parked_directly_) {
        watchers_.wake();
      } else {
        uv_async_send(async_.get());
      }
    }
  }
}

bool Loop::wait_for_timers(long* ms) {
  *ms = -1;
  if (timers_.empty()) {
    return true;
  }
  double now = 0;
  if (!time_now(&now)) {
    return false;
  }
  // asyncio parks for a day at most.
  constexpr double kLongest = 24 * 3600;
  double wait = timers_.empty() ? kLongest : timers_.first_deadline() - now;
  if (wait > kLongest) {
    wait = kLongest;
  }
  *ms = wait <= 0 ? 0 : static_cast<long>(std::ceil(wait * 1e3));
  return true;
}

}  // namespace uvpy::core
