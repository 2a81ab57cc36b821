// The loop's turn: poll, timers, batch, flush; and running it until it is stopped.
// SPDX-License-Identifier: MIT
#include "core/loop.h"

#include <time.h>

#include <cerrno>
#include <cmath>
#include <cstdlib>

#include "core/debug.h"
#include "core/report.h"
#include "py/call.h"
#include "py/mutant.h"

namespace uvpy::core {

namespace {

std::int64_t monotonic_ns() {
  timespec t{};
  clock_gettime(CLOCK_MONOTONIC, &t);
  return static_cast<std::int64_t>(t.tv_sec) * 1'000'000'000 + t.tv_nsec;
}

}  // namespace

// ---- run

PyObject* Loop::refuse_foreign() {
  // The kernel's side of the loop is the parent's: to poll here would take its events away.
  PyErr_SetString(PyExc_RuntimeError, "This event loop belongs to the process that forked this one: make a new one");
  return nullptr;
}

PyObject* Loop::run_forever() {
  if (!check_closed()) {
    return nullptr;
  }
  if (foreign_) {
    return refuse_foreign();
  }
  // By name: a subclass may override the two hooks, as asyncio's own code allows since 3.13.
  if (!py::call_method(object(), state_->names._run_forever_setup)) {
    return nullptr;
  }
  const bool ok = run();
  {
    py::SavedError error;
    if (!py::call_method(object(), state_->names._run_forever_cleanup)) {
      // A signal may have raised half-way; the clean-up is the same however often it runs.
      py::SavedError interrupted;
      py::call_method(object(), state_->names._run_forever_cleanup);
    }
  }
  if (!ok || PyErr_Occurred() != nullptr) {
    return nullptr;
  }
  Py_RETURN_NONE;
}

PyObject* Loop::run_forever_setup() {
  const ModuleState& s = *state_;
  if (!check_closed()) {
    return nullptr;
  }
  if (running_) {
    PyErr_SetString(PyExc_RuntimeError, "This event loop is already running");
    return nullptr;
  }
  py::Ref<> other = py::call_method(s.events, s.names._get_running_loop);
  if (!other) {
    return nullptr;
  }
  if (other.get() != Py_None) {
    PyErr_SetString(PyExc_RuntimeError, "Cannot run the event loop while another loop is running");
    return nullptr;
  }
  py::Ref<> hooks = py::call(s.get_asyncgen_hooks);
  py::Ref<> first = py::get_attr(object(), s.names._asyncgen_firstiter_hook);
  py::Ref<> final = py::get_attr(object(), s.names._asyncgen_finalizer_hook);
  if (!hooks || !first || !final) {
    return nullptr;
  }
  if (debug_ && !py::call_method(object(), s.names._set_coroutine_origin_tracking, Py_True)) {
    return nullptr;
  }
  thread_id_ = PyThread_get_thread_ident();
  running_ = true;
  old_asyncgen_hooks_ = std::move(hooks);
  if (!py::call(s.set_asyncgen_hooks, first.get(), final.get()) ||
      !py::call_method(s.events, s.names._set_running_loop, object())) {
    py::SavedError error;
    py::Ref<> undone = py::steal(run_forever_cleanup());
    return nullptr;
  }
  Py_RETURN_NONE;
}

PyObject* Loop::run_forever_cleanup() {
  const ModuleState& s = *state_;
  // The one Python function among the steps, in which a signal handler may raise; the rest is done all the same, and
  // whoever calls again gets this step again. It does nothing where the tracking is off.
  bool ok = static_cast<bool>(py::call_method(object(), s.names._set_coroutine_origin_tracking, Py_False));
  if (running_) {
    py::SavedError error;
    stopping_ = false;
    thread_id_ = 0;
    running_ = false;
    ok = static_cast<bool>(py::call_method(s.events, s.names._set_running_loop, Py_None)) && ok;
    if (old_asyncgen_hooks_) {
      py::Ref<> hooks = std::move(old_asyncgen_hooks_);
      ok = py::call(s.set_asyncgen_hooks, PyTuple_GET_ITEM(hooks.get(), 0), PyTuple_GET_ITEM(hooks.get(), 1)) && ok;
    }
  }
  if (!ok) {
    return nullptr;
  }
  Py_RETURN_NONE;
}

bool Loop::run() {
  if (!interrupt_.begin(*this)) {
    return false;
  }
  bool ok = true;
  skip_poll_ = false;  // what held for the last turn of another run does not hold for the first of this one
  do {
    ok = turn_once();
  } while (ok && !stopping_);
  interrupt_.end(*this);
  return ok;
}

PyObject* Loop::run_once() {
  // One turn, for programs that drive the loop themselves between _run_forever_setup and _run_forever_cleanup.
  if (!check_closed()) {
    return nullptr;
  }
  if (in_turn_) {
    PyErr_SetString(PyExc_RuntimeError, "uvpy's loop cannot be run from inside one of its own callbacks");
    return nullptr;
  }
  const bool begun = !interrupt_.active();
  if (begun && !interrupt_.begin(*this)) {
    return nullptr;
  }
  const bool ok = turn_once();
  if (begun) {
    interrupt_.end(*this);
  }
  if (!ok) {
    return nullptr;
  }
  Py_RETURN_NONE;
}

PyObject* Loop::stop() {
  stopping_ = true;
  Py_RETURN_NONE;
}

// ---- the turn

bool Loop::turn_once() {
  ++turns_;
  in_turn_ = true;
  last_turn_callbacks_ = turn_callbacks_;
  turn_callbacks_ = 0;
  const bool ok = poll() && queue_due_timers() && run_batch();
  in_turn_ = false;
  if (!ok) {
    py::SavedError error;
    static_cast<void>(absorb_later());
  }
  if (!resources_.dirty.empty()) {
    py::SavedError error;
    flush_writes();
  }
  return ok && (!leaving_ || raise_leaving());
}

bool Loop::nothing_to_poll_for() const {
  return watchers_.foreign() == 0 && resources_.count() == 0 && closing_ == 0 && !watchers_.needs_arming() &&
         !guests_.are_here();
}

bool Loop::poll() {
  timer_mark_ = timers_.created();
  if (foreign_) {
    refuse_foreign();
    return false;
  }
  if (skip_poll_) {
    // The last poll's callbacks have scheduled what runs now. What a poll would find comes behind it in any case, so one
    // turn may do without: the turn after it polls.
    skip_poll_ = false;
    ++polls_skipped_;
    ++round_;
    hand_on();
    return !leaving_ || raise_leaving();
  }
  may_block_ = ready_.empty() && !stopping_ && resources_.holding.empty();
  ++round_;
  if (may_block_ && !timers_.empty()) {
    long ms = 0;
    if (!wait_for_timers(&ms)) {
      return false;
    }
    may_block_ = ms != 0;
  }
  if (!may_block_ && nothing_to_poll_for()) {
    ++polls_skipped_;
  } else {
    ++polls_;
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
    if (guests_.are_here()) {
      Guests::after_poll(*this);
    }
    in_poll_ = false;
    hand_on();
    if (leaving_) [[unlikely]] {
      return raise_leaving();
    }
  }
  // Handlers run between bytecodes, too; this is for turns that execute none.
  if (interrupt_.active() && PyErr_CheckSignals() < 0) {
    return false;
  }
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
  // Write callbacks that ran earlier in uv_run may have written, and filled the ring.
  flush_writes();
  while (Resource* resource = resources_.changed.pop()) {
    // libuv aborts the process when the kernel refuses a change because somebody has closed the descriptor.
    py::Ref<> alive = py::borrow(resource->object());
    resource->check_descriptor();
  }
  if (!may_block_) {
    return;
  }
  // What can run the program's code comes first (an overridden time(), writes of it): after the last look at the ring
  // nothing may fill it any more.
  long ms = -1;
  if (!wait_for_timers(&ms)) {
    leave_with_error();
  }
  flush_writes();
  const bool block =
      ms != 0 && ready_.empty() && later_.empty() && resources_.holding.empty() && !stopping_ && !leaving_;
  if (!block) {
    // The time-out is computed after the prepare callbacks, and an active idle handle makes it zero.
    uv_idle_start(idle_.get(), &Loop::on_idle);
    return;
  }
  bounded_ = gil_.impatient() && (ms < 0 || ms > Gil::kPatienceMs) && !py::mutant("patience-unbounded");
  if (bounded_) {
    ms = Gil::kPatienceMs;
  }
  if (ms >= 0) {
    uv_update_time(&uv_);
    uv_timer_start(timer_.get(), &Loop::on_timer, static_cast<std::uint64_t>(ms), 0);
  } else if (uv_is_active(timer_.base()) != 0) {
    uv_timer_stop(timer_.get());
  }
  woken_ = false;
  gil_.give();
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
      uv_async_send(async_.get());
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

bool Loop::queue_due_timers() {
  if (timers_.empty()) {
    return true;
  }
  double now = 0;
  if (!time_now(&now)) {
    return false;
  }
  // As asyncio: due within the resolution of the clock, which is a nanosecond, or what a double can tell apart.
  double end = now + 1e-9;
  if (end == now) {
    end = std::nextafter(now, HUGE_VAL);
  }
  if constexpr (py::mutant("timer-early")) {
    end += 0.005;
  }
  return timers_.move_due(end, timer_mark_, ready_);
}

bool Loop::push_ready(py::Ref<>&& handle) {
  // In asyncio a transport's callback is a handle of the batch, and what it schedules runs in the next one. Ours runs in
  // the poll, so what it schedules waits until the batch is counted. Another thread's call while we are parked does not.
  return (in_poll_ && !gil_.given() ? later_ : ready_).push(std::move(handle));
}

bool Loop::absorb_later() {
  while (!later_.empty()) {
    if (!ready_.push(later_.pop())) {
      return false;
    }
  }
  return true;
}

bool Loop::run_batch() {
  std::size_t batch = ready_.size();
  skip_poll_ = !later_.empty();
  if (!absorb_later()) {
    return false;
  }
  for (std::size_t left = batch; left > 0 && !ready_.empty(); --left) {
    py::Ref<> handle = ready_.pop();
    if (py::state_of<Handle>(handle.get())->is_cancelled()) {
      continue;
    }
    count_callback();
    if (!(debug_ ? debug::run_timed(*this, handle.get()) : run_handle(handle.get()))) {
      if constexpr (py::mutant("tail-dropped")) {
        py::SavedError error;
        while (--left > 0 && !ready_.empty()) {
          ready_.pop();
        }
      }
      return false;
    }
    if (leaving_) [[unlikely]] {
      return raise_leaving();
    }
  }
  return true;
}

void Loop::run_in_poll(PyObject* handle) {
  py::Ref<> alive = py::borrow(handle);
  count_callback();
  if (!(debug_ ? debug::run_timed(*this, handle) : run_handle(handle))) {
    leave_with_error();
  }
}

bool Loop::run_handle(PyObject* handle) {
  auto* state = py::state_of<Handle>(handle);
  if constexpr (py::kThreadSafeHandles) {
    if (Py_TYPE(handle) == state_->thread_safe_handle_type) {
      return py::state_of<ThreadSafeHandle>(handle)->run();
    }
  }
  return state->run();
}

// ---- leaving

void Loop::leave_with_error() {
  py::Ref<> exc = py::take_error();
  if (!leaving_) {
    leaving_ = std::move(exc);
  }
}

bool Loop::raise_leaving() {
  py::restore_error(std::move(leaving_));
  return false;
}

// ---- gathered writes

void Loop::count_callback() {
  ++turn_callbacks_;
  if (!resources_.dirty.empty() && monotonic_ns() - dirty_since_ > kGatherNs) {
    flush_writes();
  }
}

void Loop::mark_dirty(Resource* resource) {
  if (resources_.dirty.empty()) {
    dirty_since_ = monotonic_ns();
  }
  resources_.dirty.push(resource);
}

void Loop::flush_writes() {
  while (Resource* resource = resources_.dirty.pop()) {
    py::Ref<> alive = py::borrow(resource->object());
    resource->flush();
  }
}

char* Loop::slab() {
  if (slab_ == nullptr) {
    slab_ = static_cast<char*>(std::malloc(kSlabRoom));
  }
  return slab_;
}

}  // namespace uvpy::core
