// Making a loop and closing it; what happens to it around a fork; the collector.
// SPDX-License-Identifier: MIT
#include <fcntl.h>
#include <unistd.h>

#include <cassert>
#include <cerrno>
#include <cstdlib>

#include "core/loop.h"
#include "core/report.h"
#include "py/error.h"

namespace uvpy::core {

namespace {

// libuv refuses to close descriptors 0 to 2, and aborts where it holds one of them itself. In a program that was started
// without its standard streams their numbers are free: they are taken while libuv makes its own.
class StandardNumbers {
 public:
  StandardNumbers() {
    for (int fd = 0; fd <= STDERR_FILENO; ++fd) {
      if (fcntl(fd, F_GETFD) < 0 && ::open("/dev/null", O_RDONLY | O_CLOEXEC) == fd) {
        taken_[fd] = true;
      }
    }
  }
  StandardNumbers(const StandardNumbers&) = delete;
  StandardNumbers& operator=(const StandardNumbers&) = delete;
  ~StandardNumbers() {
    for (int fd = 0; fd <= STDERR_FILENO; ++fd) {
      if (taken_[fd]) {
        ::close(fd);
      }
    }
  }

 private:
  bool taken_[3] = {};
};

}  // namespace

bool Loop::open(ModuleState* state) {
  module_ = py::borrow(state->module);
  state_ = state;
  gil_.set_state(state);
  resources_.set_loop(this);
  const StandardNumbers taken;
  const uv::Status made = uv_loop_init(&uv_);
  if (!made.ok()) {
    if (uv_.backend_fd > STDERR_FILENO && fcntl(uv_.backend_fd, F_GETFD) >= 0) {
      ::close(uv_.backend_fd);  // libuv 1.44 forgets it when a later step fails
    }
    raise_uv_error(made);
    return false;
  }
  backend_file_ = FileIdentity::of(uv_backend_fd(&uv_));
  uv_open_ = true;
  LoopList::add(this);
  // Prepare handles run in reverse order of their start: the one that gives the GIL up is started before any other, and
  // so stays the last. It is also the active handle that keeps uv_run from returning at once.
  uv_prepare_init(&uv_, prepare_.get());
  prepare_.opened(this);
  uv_prepare_start(prepare_.get(), &Loop::on_prepare);
  uv_check_init(&uv_, check_.get());
  check_.opened(this);
  uv_check_start(check_.get(), &Loop::on_check);
  uv_idle_init(&uv_, idle_.get());
  idle_.opened(this);
  uv_timer_init(&uv_, timer_.get());
  timer_.opened(this);
  const uv::Status async = uv_async_init(&uv_, async_.get(), &Loop::on_async);
  if (!async.ok()) {
    raise_uv_error(async);
    return false;
  }
  async_.opened(this);
  // libuv tells the kernel of its own descriptor only when it runs, and aborts where that is closed by then.
  uv_run(&uv_, UV_RUN_NOWAIT);
  const int error = watchers_.open();
  if (error != 0) {
    py::raise_os_error(error);
    return false;
  }
  return true;
}

Loop::~Loop() {
  close_uv();
  if (!foreign_) {
    guests_.free();
  }
  if (state_ != nullptr) {
    LoopList::remove(this);
  }
  std::free(slab_);
}

bool Loop::has_backend() const {
  // A program that makes itself a daemon closes every descriptor; libuv aborts where it finds its own gone.
  return backend_file_.is(uv_backend_fd(&uv_));
}

void Loop::close_uv() {
  if (!uv_open_) {
    return;
  }
  uv_open_ = false;
  closed_ = true;
  guests_.shut(*this);
  if (foreign_ || !has_backend()) {
    // The kernel's side of these is the parent's, too: closing would make the parent deaf. The memory is given up.
    prepare_.leak();
    check_.leak();
    idle_.leak();
    timer_.leak();
    async_.leak();
    watchers_.leak();
    for (Resource* r = resources_.first(); r != nullptr; r = Resources::next(r)) {
      r->leak();
    }
    guests_.give_up();
    return;
  }
  interrupt_.close(*this);
  watchers_.close(&Loop::on_closed);
  while (Resource* resource = resources_.take_to_end()) {
    py::Ref<> alive = py::borrow(resource->object());
    resource->end_with_loop();
  }
  prepare_.close(&Loop::on_closed);
  check_.close(&Loop::on_closed);
  idle_.close(&Loop::on_closed);
  timer_.close(&Loop::on_closed);
  async_.close(&Loop::on_closed);
  guests_.close_left_open(*this);
  // Close callbacks are left to run, and with them the last callbacks of writes.
  uv_run(&uv_, UV_RUN_DEFAULT);
  [[maybe_unused]] const int closed = uv_loop_close(&uv_);
  assert(closed == 0);
}

void Loop::on_closed(uv_handle_t* handle) {
  auto* loop = static_cast<Loop*>(handle->data);
  if (handle == loop->prepare_.base()) {
    loop->prepare_.closed();
  } else if (handle == loop->check_.base()) {
    loop->check_.closed();
  } else if (handle == loop->idle_.base()) {
    loop->idle_.closed();
  } else if (handle == loop->timer_.base()) {
    loop->timer_.closed();
  } else if (handle == loop->async_.base()) {
    loop->async_.closed();
  } else {
    loop->watchers_.closed();
  }
}

PyObject* Loop::shutdown() {
  if (in_turn_) {
    PyErr_SetString(PyExc_RuntimeError, "Cannot close a running event loop");
    return nullptr;
  }
  // The last step of close(). References go first: what they free may still look at the (closed) loop.
  ready_.clear();
  later_.clear();
  timers_.clear();
  contexts_.drop();
  close_uv();
  watched_files_.clear();
  task_factory_.reset();
  current_handle_.reset();
  received_.clear();
  if (!guests_.warn_of_left_open(*this)) {
    return nullptr;
  }
  Py_RETURN_NONE;
}

void Loop::before_fork() {
  if (!gil_.given() && in_turn_ && thread_id_ == PyThread_get_thread_ident()) {
    flush_writes();
  }
}

void Loop::after_fork_in_child() {
  foreign_ = true;
  run_was_forked_ = running_;
  listens_again_ = interrupt_.after_fork_in_child(*this);
  quiet_turns_ = kQuietTurns;
  skip_poll_ = false;
  for (Resource* r = resources_.first(); r != nullptr; r = Resources::next(r)) {
    r->forget_input();
    resources_.holding.remove(r);
  }
  // Inside uv_run libuv is in the middle of the parent's events: after it, then (poll()).
  if (!in_poll_ && uv_open_ && !adopt()) {
    PyErr_Clear();  // tried again, and told, by the first turn
  }
}

// What libuv closes it takes out of its set, which would make the parent deaf while they share one. From here on a child
// does with the loop as it likes: with the connections, too, which asyncio's child has in common with its parent.
bool Loop::adopt() {
  if (gil_.given() || guests_.are_here()) {
    // Forked by another thread than the one in whose poll it is; or extensions have handles here, of which nobody knows
    // what a child may do with them.
    refuse_foreign();
    return false;
  }
  if (!has_backend()) {
    py::raise_os_error(EBADF);
    return false;
  }
  interrupt_.close(*this);
  const int error = watchers_.renew();
  if (error != 0) {
    py::raise_os_error(error);
    return false;
  }
  const uv::Status made = uv_loop_fork(&uv_);
  if (!made.ok()) {
    raise_uv_error(made);
    return false;
  }
  backend_file_ = FileIdentity::of(uv_backend_fd(&uv_));
  foreign_ = false;
  return true;
}

int Loop::visit(visitproc visit, void* arg) {
  Py_VISIT(module_.get());
  Py_VISIT(leaving_.get());
  Py_VISIT(current_handle_.get());
  Py_VISIT(task_factory_.get());
  Py_VISIT(old_asyncgen_hooks_.get());
  if (int result = contexts_.visit(visit, arg)) {
    return result;
  }
  if (int result = ready_.visit(visit, arg)) {
    return result;
  }
  if (int result = later_.visit(visit, arg)) {
    return result;
  }
  if (int result = timers_.visit(visit, arg)) {
    return result;
  }
  if (int result = watchers_.visit(visit, arg)) {
    return result;
  }
  if (int result = watched_files_.visit(visit, arg)) {
    return result;
  }
  return resources_.visit(visit, arg);
}

void Loop::clear() {
  // Nobody can reach the loop any more. One whose __del__ failed (warnings may be errors) is still open.
  close_uv();
  watched_files_.clear();
  ready_.clear();
  later_.clear();
  timers_.clear();
  contexts_.drop();
  task_factory_.reset();
  current_handle_.reset();
  old_asyncgen_hooks_.reset();
  leaving_.reset();
}

// ---- the module's loops

void LoopList::add(Loop* loop) {
  Loop*& first = loop->state_->loops;
  loop->next_ = first;
  if (first != nullptr) {
    first->previous_ = loop;
  }
  first = loop;
}

void LoopList::remove(Loop* loop) {
  Loop*& first = loop->state_->loops;
  if (loop->previous_ == nullptr && first != loop) {
    return;  // open() failed before it was listed
  }
  (loop->previous_ != nullptr ? loop->previous_->next_ : first) = loop->next_;
  if (loop->next_ != nullptr) {
    loop->next_->previous_ = loop->previous_;
  }
}

void LoopList::clear(const ModuleState* state) {
  for (Loop* loop = state->loops; loop != nullptr;) {
    if (!loop->uv_open_) {
      loop = loop->next_;
      continue;
    }
    // What goes with it may take others from the list.
    py::Ref<> alive = py::borrow(loop->object());
    loop->clear();
    loop = state->loops;
  }
}

}  // namespace uvpy::core
