// What guests call: libuv's functions behind a guard that refuses what would crash the process (a loop that is closed, a
// parent's loop in a forked child, another thread), and the few of our own. See uvpy/include/uvpy.h.
// SPDX-License-Identifier: MIT
#include "core/guest.h"

#include <uvpy.h>

#include <cassert>
#include <concepts>
#include <type_traits>

#include "core/loop.h"
#include "core/report.h"
#include "py/error.h"

namespace uvpy::core {

namespace {

// Whether the loop runs, and in another thread than this.
bool is_elsewhere(const Loop& loop) { return loop.is_running() && loop.thread_id() != PyThread_get_thread_ident(); }

// 0 when the loop's thread, or whoever holds the GIL while nobody runs it, may call libuv; otherwise what to answer.
int refusal(const Loop& loop) {
  if (loop.is_foreign()) {
    return UV_ECANCELED;
  }
  if (is_elsewhere(loop)) {
    return UV_EPERM;
  }
  return loop.guests().may_start() ? 0 : UV_ECANCELED;
}

template <class T>
concept HasLoop = requires(T handle) {
  { handle->loop } -> std::convertible_to<uv_loop_t*>;
};

// The loop of a call: the first argument that is one or has one. A handle behind a loop is not initialised yet.
template <class First, class... Rest>
uv_loop_t* loop_in(First first, Rest... rest) {
  if constexpr (std::is_same_v<First, uv_loop_t*>) {
    return first;
  } else if constexpr (HasLoop<First>) {
    return first->loop;
  } else {
    return loop_in(rest...);
  }
}

template <auto Function, class Signature>
struct Guard;
template <auto Function, class... Args>
struct Guard<Function, int (*)(Args...)> {
  static int call(Args... args) {
    const int refused = refusal(Guests::host(loop_in(args...)));
    return refused != 0 ? refused : Function(args...);
  }
};
template <auto Function, class... Args>
struct Guard<Function, void (*)(Args...)> {
  static void call(Args... args) {
    if (refusal(Guests::host(loop_in(args...))) == 0) {
      Function(args...);
    }
  }
};
template <auto Function>
constexpr auto guarded = &Guard<Function, decltype(Function)>::call;

// ---- our own

int is_open(const uv_loop_t* uv) {
  const Loop& loop = Guests::host(uv);
  return loop.guests().may_start() && !loop.is_foreign() ? 1 : 0;
}

int enter(uv_loop_t* uv) {
  Loop& loop = Guests::host(uv);
  if (is_elsewhere(loop)) {
    return UV_EPERM;
  }
  loop.gil().take();
  Guests::after_poll(loop);  // another guest's callback may have left its exception behind
  if (loop.is_leaving() || !loop.guests().may_start() || loop.is_foreign()) {
    return 0;
  }
  loop.count_callback();
  return 1;
}

void report_exception(uv_loop_t* uv, const char* message) { Guests::report(Guests::host(uv), message); }

// ---- timers

int timer_start(uv_timer_t* timer, uv_timer_cb on_timer, std::uint64_t timeout, std::uint64_t repeat) {
  const int refused = refusal(Guests::host(timer->loop));
  if (refused != 0) {
    return refused;
  }
  // libuv counts from when it last looked at the clock, which may be long ago where the loop does not run.
  uv_update_time(timer->loop);
  // Before 1.46 libuv runs the timers that are due until there is none: one that starts itself anew would stay for ever.
  const bool at_once = timeout == 0 && uv_version() < ((1U << 16) | (46U << 8));
  return uv_timer_start(timer, on_timer, at_once ? 1 : timeout, repeat);
}

int timer_again(uv_timer_t* timer) {
  const int refused = refusal(Guests::host(timer->loop));
  if (refused != 0) {
    return refused;
  }
  uv_update_time(timer->loop);
  return uv_timer_again(timer);
}

int async_send(uv_async_t* handle) {
  Loop& loop = Guests::host(handle->loop);
  return loop.is_foreign() ? UV_ECANCELED : loop.guests().send(handle);
}

// ---- closing

// What stands in the close_cb of a handle that the loop's end has closed, and when that is done.
void closed_by_the_loop(uv_handle_t*) {}
void on_closed_by_the_loop(uv_handle_t* handle) { handle->close_cb = &closed_by_the_loop; }

int close_handle(uv_handle_t* handle, uv_close_cb on_close) {
  const Loop& loop = Guests::host(handle->loop);
  if (!loop.is_foreign() && !loop.guests().are_given_up()) {
    if (is_elsewhere(loop)) {
      return UV_EPERM;
    }
    if (uv_is_closing(handle) == 0) {
      uv_close(handle, on_close);
      return 0;
    }
    if (handle->close_cb == &on_closed_by_the_loop) {
      if (on_close != nullptr) {
        handle->close_cb = on_close;  // it is about to come
      }
      return 0;
    }
    if (handle->close_cb != &closed_by_the_loop) {
      return 0;  // the guest closes it already
    }
    handle->close_cb = nullptr;
  }
  if (on_close != nullptr) {
    on_close(handle);
  }
  return 0;
}

const uvpy_guest* table() {
  static const uvpy_guest kTable = {
      .size = sizeof(uvpy_guest),
      .abi = UVPY_GUEST_ABI,
      .uv_version = uv_version(),
      .is_open = &is_open,
      .enter = &enter,
      .report = &report_exception,
      .handle_size = &uv_handle_size,
      .req_size = &uv_req_size,
      .strerror = &uv_strerror,
      .err_name = &uv_err_name,
      .hrtime = &uv_hrtime,
      .now = &uv_now,
      .update_time = guarded<&uv_update_time>,
      .close = &close_handle,
      .is_active = &uv_is_active,
      .is_closing = &uv_is_closing,
      .get_fd = &uv_fileno,
      .timer_init = guarded<&uv_timer_init>,
      .timer_start = &timer_start,
      .timer_stop = guarded<&uv_timer_stop>,
      .timer_again = &timer_again,
      .async_init = guarded<&uv_async_init>,
      .async_send = &async_send,
      .idle_init = guarded<&uv_idle_init>,
      .idle_start = guarded<&uv_idle_start>,
      .idle_stop = guarded<&uv_idle_stop>,
      .prepare_init = guarded<&uv_prepare_init>,
      .prepare_start = guarded<&uv_prepare_start>,
      .prepare_stop = guarded<&uv_prepare_stop>,
      .check_init = guarded<&uv_check_init>,
      .check_start = guarded<&uv_check_start>,
      .check_stop = guarded<&uv_check_stop>,
      .poll_init = guarded<&uv_poll_init>,
      .poll_start = guarded<&uv_poll_start>,
      .poll_stop = guarded<&uv_poll_stop>,
      .tcp_init = guarded<&uv_tcp_init>,
      .tcp_open = guarded<&uv_tcp_open>,
      .tcp_connect = guarded<&uv_tcp_connect>,
      .tcp_nodelay = guarded<&uv_tcp_nodelay>,
      .pipe_init = guarded<&uv_pipe_init>,
      .pipe_open = guarded<&uv_pipe_open>,
      .read_start = guarded<&uv_read_start>,
      .read_stop = guarded<&uv_read_stop>,
      .write = guarded<&uv_write>,
      .try_write = guarded<&uv_try_write>,
      .shutdown = guarded<&uv_shutdown>,
      .stream_write_queue_size = &uv_stream_get_write_queue_size,
      .udp_init = guarded<&uv_udp_init>,
      .udp_open = guarded<&uv_udp_open>,
      .udp_send = guarded<&uv_udp_send>,
      .udp_try_send = guarded<&uv_udp_try_send>,
      .udp_recv_start = guarded<&uv_udp_recv_start>,
      .udp_recv_stop = guarded<&uv_udp_recv_stop>,
      .fs_event_init = guarded<&uv_fs_event_init>,
      .fs_event_start = guarded<&uv_fs_event_start>,
      .fs_event_stop = guarded<&uv_fs_event_stop>,
  };
  return &kTable;
}

void drop_capsule(PyObject* capsule) {
  auto* uv = static_cast<uv_loop_t*>(PyCapsule_GetPointer(capsule, UVPY_CAPSULE_NAME));
  py::Ref<> loop = py::steal(Guests::host(uv).object());
}

}  // namespace

Loop& Guests::host(const uv_loop_t* uv) {
  const auto* bytes = reinterpret_cast<const char*>(uv) - Loop::offset_of_uv();
  return *reinterpret_cast<Loop*>(const_cast<char*>(bytes));
}

PyObject* Guests::capsule(Loop& loop) {
  if (!loop.check_closed()) {
    return nullptr;
  }
  if (loop.is_foreign()) {
    return Loop::refuse_foreign();
  }
  if (!here_) {
    const int error = uv_mutex_init(&lock_);
    if (error != 0) {
      return raise_uv_error(error);
    }
    here_ = true;
    open_ = true;
    loop.wake();  // in another thread than the loop's: a poll that does without libuv must end
  }
  py::Ref<> made = py::steal(PyCapsule_New(loop.uv(), UVPY_CAPSULE_NAME, nullptr));
  if (!made || PyCapsule_SetContext(made.get(), const_cast<uvpy_guest*>(table())) != 0 ||
      PyCapsule_SetDestructor(made.get(), &drop_capsule) != 0) {
    return nullptr;
  }
  Py_INCREF(loop.object());
  return made.release();
}

void Guests::report(Loop& loop, const char* message) {
  py::Ref<> exc = py::take_error();
  if (!exc) {
    return;
  }
  const bool is_over = !loop.guests().may_start() || loop.is_foreign();
  const bool ends_the_run = py::ends_the_loop(exc.get());
  if (is_over || (loop.is_leaving() && !ends_the_run)) {
    // The loop or its run ends, and calls no code of the program.
    py::restore_error(std::move(exc));
    PyErr_WriteUnraisable(loop.object());
  } else if (ends_the_run) {
    py::restore_error(std::move(exc));
    loop.leave_with_error();
  } else if (!report::call_exception_handler(
                 loop, message != nullptr ? message : "Exception in a libuv callback of an extension", exc.get())) {
    loop.leave_with_error();
  }
}

int Guests::send(uv_async_t* handle) {
  // A thread that sends does not know when the loop ends; its wake-up would go to a closed descriptor, or a stranger's.
  uv_mutex_lock(&lock_);
  const int result = open_ ? uv_async_send(handle) : UV_ECANCELED;
  uv_mutex_unlock(&lock_);
  return result;
}

void Guests::shut(const Loop& loop) {
  if (loop.is_foreign()) {
    open_ = false;  // the lock may be held for ever: by a thread that there is in the parent only
  } else if (here_) {
    uv_mutex_lock(&lock_);
    open_ = false;
    uv_mutex_unlock(&lock_);
  }
}

void Guests::close_left_open(Loop& loop) {
  // All of ours are closing by now: what is not, is a guest's.
  uv_walk(
      loop.uv(),
      [](uv_handle_t* handle, void* arg) {
        if (uv_is_closing(handle) == 0) {
          ++static_cast<Guests*>(arg)->left_[handle->type];
          uv_close(handle, &on_closed_by_the_loop);
        }
      },
      this);
}

bool Guests::warn_of_left_open(Loop& loop) {
  py::Ref<> first;
  for (int type = 0; type < UV_HANDLE_TYPE_MAX; ++type) {
    const unsigned count = left_[type];
    left_[type] = 0;
    if (count == 0) {
      continue;
    }
    const char* name = uv_handle_type_name(static_cast<uv_handle_type>(type));
    if (PyErr_ResourceWarning(loop.object(), 1, "%u handle%s uv_%s_t of an extension left open on %R", count,
                              count == 1 ? "" : "s", name, loop.object()) == 0) {
      continue;
    }
    if (first) {
      PyErr_WriteUnraisable(loop.object());
    } else {
      first = py::take_error();
    }
  }
  if (first) {
    py::restore_error(std::move(first));
    return false;
  }
  return true;
}

void Guests::free() {
  if (here_) {
    here_ = false;
    uv_mutex_destroy(&lock_);
  }
}

PyObject* libuv_loop_ptr(PyObject* module, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames) {
  static constexpr const char* kNames[] = {"loop"};
  PyObject* given = nullptr;
  if (!py::parse({"libuv_loop_ptr", kNames, 1, 1}, args, nargs, kwnames, &given)) {
    return nullptr;
  }
  Loop* loop = loop_of(module, given);
  return loop != nullptr ? loop->guests().capsule(*loop) : nullptr;
}

}  // namespace uvpy::core
