// Signals while parked. Called by the loop around a run and by its watchers when the pipe is readable.
// SPDX-License-Identifier: MIT
#include "core/interrupt.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <utility>

#include "core/loop.h"
#include "py/call.h"

namespace uvpy::core {

namespace {

// signal.set_wakeup_fd(fd), quietly when the pipe is full: one byte is as good as a thousand. The fd before, or -2
// with an exception set.
int set_wakeup_fd(const ModuleState& state, int fd, bool quiet) {
  py::Ref<> number = py::steal(PyLong_FromLong(fd));
  py::Ref<> kwnames = py::steal(PyTuple_Pack(1, state.names.warn_on_full_buffer));
  if (!number || !kwnames) {
    return -2;
  }
  PyObject* argv[] = {number.get(), quiet ? Py_False : Py_True};
  py::Ref<> before = py::steal(PyObject_Vectorcall(state.set_wakeup_fd, argv, 1, kwnames.get()));
  return before ? static_cast<int>(PyLong_AsLong(before.get())) : -2;
}

bool in_main_thread(const ModuleState& state, bool* answer) {
  py::Ref<> main = py::call(state.main_thread);
  py::Ref<> ident = main ? py::get_attr(main.get(), state.names.ident) : py::Ref<>();
  if (!ident) {
    return false;
  }
  *answer = ident.get() != Py_None && PyLong_AsUnsignedLong(ident.get()) == PyThread_get_thread_ident();
  return PyErr_Occurred() == nullptr;
}

}  // namespace

bool Interrupt::open(Loop& loop) {
  if (read_ >= 0) {
    return true;
  }
  int ends[2];
#ifdef __linux__
  if (pipe2(ends, O_NONBLOCK | O_CLOEXEC) < 0) {
    py::raise_os_error(errno);
    return false;
  }
#else
  if (pipe(ends) < 0) {
    py::raise_os_error(errno);
    return false;
  }
  for (int fd : ends) {
    fcntl(fd, F_SETFL, O_NONBLOCK);
    fcntl(fd, F_SETFD, FD_CLOEXEC);
  }
#endif
  const int error = loop.watchers().watch_native(loop, ends[0], kReadable, &Interrupt::on_ready, &loop);
  if (error != 0) {
    ::close(ends[0]);
    ::close(ends[1]);
    py::raise_os_error(error);
    return false;
  }
  --loop.watchers().foreign_;  // our own wake-up: it alone need not be polled for
  read_ = ends[0];
  write_ = ends[1];
  return true;
}

int Interrupt::write_end(Loop& loop) { return open(loop) ? write_ : -1; }

bool Interrupt::begin(Loop& loop) {
  const ModuleState& state = loop.state();
  bool main = false;
  if (!in_main_thread(state, &main)) {
    return false;
  }
  if (!main) {
    return true;
  }
  if (!open(loop)) {
    return false;
  }
  int before = set_wakeup_fd(state, write_, true);
  if (before == -2) {
    // Somebody has closed the pipe: its numbers mean something else now, or nothing.
    PyErr_Clear();
    ++loop.watchers().foreign_;
    loop.watchers().remove_native(loop, read_, &loop);
    read_ = write_ = -1;
    before = open(loop) ? set_wakeup_fd(state, write_, true) : -2;
  }
  if (before == -2) {
    return false;
  }
  users_ = before == write_ ? -1 : before;
  active_ = true;
  if (!tell(loop)) {
    end(loop);
    return false;
  }
  return true;
}

void Interrupt::end(Loop& loop) {
  if (!active_) {
    return;
  }
  py::SavedError error;
  const ModuleState& state = loop.state();
  const int ours = set_wakeup_fd(state, users_, false);
  if (ours == -2) {
    PyErr_Clear();  // the user's descriptor was closed meanwhile: there is nothing to put back
    set_wakeup_fd(state, -1, false);
  } else if (ours != write_ && ours >= 0) {
    set_wakeup_fd(state, ours, false);  // set by the program during the run: that one stays
  }
  PyErr_Clear();
  drain();  // what came last is the program's to hear, too; the loop is told at its next run
  active_ = false;
}

void Interrupt::drain() {
  unsigned char bytes[512];
  ssize_t count;
  while ((count = ::read(read_, bytes, sizeof bytes)) > 0) {
    for (ssize_t i = 0; i < count; ++i) {
      if (bytes[i] > 0 && bytes[i] < NSIG) {  // 0 is asyncio's own wake-up
        ++came_[bytes[i]];
        has_come_ = true;
      }
    }
    if (active_ && users_ >= 0) {
      // A program that watches a wakeup fd of its own hears its signals during the run, too.
      static_cast<void>(!::write(users_, bytes, static_cast<std::size_t>(count)));
    }
  }
}

// Tells the loop which signals came. Python's handlers ran before. False with an exception set.
bool Interrupt::tell(Loop& loop) {
  if (!has_come_) {
    return true;
  }
  has_come_ = false;
  for (int signum = 1; signum < NSIG; ++signum) {
    for (unsigned times = std::exchange(came_[signum], 0); times > 0; --times) {
      py::Ref<> number = py::steal(PyLong_FromLong(signum));
      if (!number || !py::call_method(loop.object(), loop.state().names._signal_seen, number.get())) {
        return false;
      }
    }
  }
  return true;
}

void Interrupt::on_ready(void* owner, unsigned) {
  auto* loop = static_cast<Loop*>(owner);
  loop->interrupt().drain();
  // Runs Python's handlers; what one raises leaves the run.
  if (PyErr_CheckSignals() < 0) {
    loop->leave_with_error();
  }
  if (!loop->interrupt().tell(*loop)) {
    loop->leave_with_error();
  }
}

bool Interrupt::after_fork_in_child(Loop& loop) {
  const bool was_active = active_;
  if (active_) {
    // The pipe is the parent's: a signal of the child must not wake it.
    active_ = false;
    if (set_wakeup_fd(loop.state(), users_, false) == -2) {
      PyErr_Clear();
      set_wakeup_fd(loop.state(), -1, false);
      PyErr_Clear();
    }
  }
  return was_active;
}

void Interrupt::close(Loop& loop) {
  if (read_ >= 0) {
    ++loop.watchers().foreign_;
    loop.watchers().remove_native(loop, read_, &loop);
    ::close(read_);
    ::close(write_);
    read_ = write_ = -1;
  }
}

}  // namespace uvpy::core
