// The read path of streams, and how they end. The write path is in stream_write.cpp.
// SPDX-License-Identifier: MIT
#include "net/stream.h"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "core/debug.h"
#include "core/report.h"
#include "py/call.h"
#include "py/mutant.h"

namespace uvpy::net {

// ---- starting and stopping

// The loop holds the transport while something is to come: data, the end of a write, its closing.
void Stream::settle_hold() {
  if (reading_ || writing_ || closing_ || !queue_.empty()) {
    loop().resources().hold(this);
  } else {
    core::Resources::let_go(this);
  }
}

bool Stream::start() {
  stop_pending_ = false;
  if (!reading_ && stream_is_open()) {
    const uv::Status started = uv_read_start(stream(), &Stream::on_alloc, &Stream::on_read);
    if (!started.ok()) {
      return fatal_os_error(core::uv_error(started), "Fatal read error on socket transport");
    }
    reading_ = true;
    settle_hold();
    loop().resources().changed.push(this);
  }
  // A reader that somebody has on the descriptor is replaced, as asyncio's transports replace it.
  return loop().watchers().remove(loop(), fd_, core::kReadable) >= 0;
}

void Stream::start_again() {
  if (!start()) {
    loop().leave_with_error();
  }
}

void Stream::stop() {
  if (!reading_) {
    return;
  }
  if (in_alloc_) {
    // libuv calls read_cb right after alloc_cb without looking again: it must still be there.
    stop_pending_ = true;
    return;
  }
  reading_ = false;
  stop_pending_ = false;
  if (stream_is_open()) {
    uv_read_stop(stream());
    if (writing_) {
      loop().resources().changed.push(this);  // the kernel hears of it at the next poll
    }
    settle_hold();
  }
}

PyObject* Stream::start_reading() {
  if (!closing_ && !paused_ && !loop_ended_) {
    read_context_ = context_from_now();
    if (!read_context_ || (unread_ && !schedule_unread())) {
      return nullptr;
    }
    if (!start()) {
      return nullptr;
    }
  } else if (stream_is_open()) {
    settle_hold();
  }
  Py_RETURN_NONE;
}

// ---- a byte in

void Stream::on_alloc(uv_handle_t* handle, std::size_t, uv_buf_t* buf) {
  auto* self = uv::owner_of<Stream>(handle);
  self->loop().gil().take();
  *buf = uv_buf_init(nullptr, 0);
  // One read a turn, as asyncio: libuv would go on while the buffer is filled. Refused a buffer it comes back with
  // UV_ENOBUFS and leaves the rest for the next poll, at no system call. So it is when the run is to be left.
  if (self->read_turn_ == self->loop().turn() || self->paused_ || self->closing_ || self->unread_ ||
      self->loop().is_leaving() || self->loop().is_foreign()) {
    return;
  }
  self->read_turn_ = self->loop().turn();
  if (self->loop().must_queue_io()) {
    self->queue_read();
    return;
  }
  if (!self->protocol_.is_buffered()) {
    if (char* slab = self->loop().slab()) {
      *buf = uv_buf_init(slab, core::Loop::kSlabSize);
    }
    return;
  }
  py::Ref<> alive = py::borrow(self->self_);
  py::ContextScope scope(self->read_context_.get());
  if (scope.entered()) {
    self->offer(buf);
  } else {
    self->loop().leave_with_error();
  }
  if (self->loop().is_foreign()) {
    // get_buffer() forked, and this is the child: the bytes are the parent's.
    self->release_buffer();
    *buf = uv_buf_init(nullptr, 0);
  }
}

void Stream::queue_read() {
  py::Ref<> method = py::get_attr(self_, loop().state().names._read_ready);
  if (!method || !loop().queue_io(method.get(), read_context_.get())) {
    loop().leave_with_error();
  }
}

// A read in its turn: what on_alloc and on_read do in the poll, by our own recv.
PyObject* Stream::read_ready() {
  if (!reading_ || paused_ || closing_ || unread_ || loop().is_foreign()) {
    Py_RETURN_NONE;
  }
  py::Ref<> alive = py::borrow(self_);
  uv_buf_t buf = uv_buf_init(nullptr, 0);
  if (protocol_.is_buffered()) {
    offer(&buf);
    if (stop_pending_) {
      stop();
    }
  } else if (char* slab = loop().slab()) {
    buf = uv_buf_init(slab, core::Loop::kSlabSize);
  }
  if (buf.base == nullptr || loop().is_foreign()) {
    release_buffer();
    Py_RETURN_NONE;
  }
  ssize_t count;
  do {
    count = ::recv(fd_, buf.base, buf.len, MSG_DONTWAIT);
  } while (count < 0 && errno == EINTR);
  const int code = count < 0 ? errno : 0;
  if (count > 0) {
    received(count, &buf);
    Py_RETURN_NONE;
  }
  release_buffer();
  if (code == EAGAIN || code == EWOULDBLOCK) {
    Py_RETURN_NONE;
  }
  stop();
  if (count == 0) {
    ended();
  } else if (!fatal_os_error(py::os_error(code), "Fatal read error on socket transport")) {
    return nullptr;
  }
  Py_RETURN_NONE;
}

void Stream::release_buffer() {
  if (read_buffer_) {
    read_buffer_->release();
  }
}

// The buffer of a BufferedProtocol; none where it has failed.
void Stream::offer(uv_buf_t* buf) {
  const ModuleState& state = loop().state();
  in_alloc_ = true;
  loop().count_callback();
  py::Ref<> hint = py::steal(PyLong_FromLong(-1));
  py::Ref<> given = hint ? protocol_.call(loop(), state.names.get_buffer, hint.get()) : py::Ref<>();
  if (!read_buffer_ && given) {
    read_buffer_.reset(new (std::nothrow) py::BufferView);
  }
  if (given && !read_buffer_) {
    PyErr_NoMemory();
  }
  bool ok = given && read_buffer_ && read_buffer_->acquire(given.get(), PyBUF_WRITABLE);
  if (ok && read_buffer_->size() == 0) {
    PyErr_SetString(PyExc_RuntimeError, "get_buffer() returned an empty buffer");
    ok = false;
  }
  if (ok) {
    // A view of more than libuv's length type is read in parts.
    const Py_ssize_t size = std::min<Py_ssize_t>(read_buffer_->size(), 1 << 30);
    *buf = uv_buf_init(read_buffer_->data(), static_cast<unsigned>(size));
  } else {
    release_buffer();
    protocol_failed("Fatal error: protocol.get_buffer() call failed.");
  }
  in_alloc_ = false;
}

void Stream::on_read(uv_stream_t* handle, ssize_t count, const uv_buf_t* buf) {
  auto* self = uv::owner_of<Stream>(handle);
  self->loop().gil().take();
  py::Ref<> alive = py::borrow(self->self_);
  if (self->stop_pending_) {
    self->stop();
  }
  if (count == UV_ENOBUFS || count == 0) {
    self->release_buffer();
    return;
  }
  if (count == UV_EOF && (buf == nullptr || buf->base == nullptr)) {
    // libuv concludes the end from a hang-up after a short read; a reset looks the same. Ask the kernel.
    char byte;
    const ssize_t got = ::recv(self->fd_, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
    if (got > 0) {
      // There is more: go on reading it.
      self->reading_ = false;
      self->start_again();
      return;
    }
    if (got < 0 && errno != EAGAIN && errno != EWOULDBLOCK) {
      count = -errno;
    }
  }
  py::ContextScope scope(self->read_context_.get());
  if (!scope.entered()) {
    self->loop().leave_with_error();
    return;
  }
  if (count > 0) {
    self->received(count, buf);
    return;
  }
  self->release_buffer();
  // At the end and after an error libuv has stopped reading by itself.
  self->reading_ = false;
  if (self->writing_) {
    self->loop().resources().changed.push(self);
  }
  if (self->closing_) {
    return;
  }
  if (count == UV_EOF) {
    self->ended();
  } else {
    if (!self->fatal_os_error(core::uv_error(static_cast<int>(count)), "Fatal read error on socket transport")) {
      self->loop().leave_with_error();
    }
  }
}

void Stream::received(ssize_t count, const uv_buf_t* buf) {
  const ModuleState& state = loop().state();
  if (read_buffer_ && read_buffer_->held()) {
    read_buffer_->release();
    py::Ref<> size = py::steal(PyLong_FromSsize_t(count));
    if (!size || !protocol_.call(loop(), state.names.buffer_updated, size.get())) {
      protocol_failed("Fatal error: protocol.buffer_updated() call failed.");
    }
    return;
  }
  loop().count_callback();
  py::Ref<> data = loop().received().make(buf->base, count);
  if (!data || !protocol_.call(loop(), state.names.data_received, data.get())) {
    protocol_failed("Fatal error: protocol.data_received() call failed.");
  }
}

// ---- bytes that a StreamReader had taken before start_tls()

PyObject* Stream::unread(PyObject* data) {
  if (!PyBytes_CheckExact(data)) {
    PyErr_SetString(PyExc_TypeError, "bytes are required");
    return nullptr;
  }
  unread_ = py::borrow(data);
  Py_RETURN_NONE;
}

PyObject* Stream::deliver_unread() {
  if (closing_ || paused_ || !unread_) {
    Py_RETURN_NONE;
  }
  py::Ref<> alive = py::borrow(self_);
  py::Ref<> data = std::move(unread_);
  const ModuleState& state = loop().state();
  if (!protocol_.is_buffered()) {
    if (!protocol_.call(loop(), state.names.data_received, data.get())) {
      protocol_failed("Fatal error: protocol.data_received() call failed.");
    }
    Py_RETURN_NONE;
  }
  // A BufferedProtocol takes as much as its buffer has room for; the rest comes in another turn.
  uv_buf_t buf = uv_buf_init(nullptr, 0);
  offer(&buf);
  if (buf.base == nullptr) {
    Py_RETURN_NONE;
  }
  const auto size = static_cast<std::size_t>(PyBytes_GET_SIZE(data.get()));
  const std::size_t part = std::min(size, static_cast<std::size_t>(buf.len));
  std::memcpy(buf.base, PyBytes_AS_STRING(data.get()), part);
  if (part < size) {
    unread_ = py::steal(
        PyBytes_FromStringAndSize(PyBytes_AS_STRING(data.get()) + part, static_cast<Py_ssize_t>(size - part)));
    if (!unread_ || !schedule_unread()) {
      return nullptr;
    }
  }
  received(static_cast<ssize_t>(part), &buf);
  Py_RETURN_NONE;
}

bool Stream::schedule_unread() {
  py::Ref<> method = py::get_attr(self_, loop().state().names._deliver_unread);
  return method && loop().call_soon_for(method.get(), nullptr, own_context());
}

void Stream::ended() {
  if (loop().debug() && !core::debug::log(loop(), "%r received EOF", self_)) {
    loop().leave_with_error();
    start_again();
    return;
  }
  loop().count_callback();
  py::Ref<> keep = protocol_.call(loop(), loop().state().names.eof_received);
  const int keep_open = keep ? PyObject_IsTrue(keep.get()) : -1;
  if (keep_open < 0) {
    protocol_failed("Fatal error: protocol.eof_received() call failed.");
    if (!closing_) {
      start_again();  // the run is left: the next one finds the end again, as asyncio's does
    }
  } else if (keep_open == 0) {
    py::Ref<> closed = py::steal(close());
    if (!closed) {
      loop().leave_with_error();
    }
  } else {
    stop();  // a pause and resume in eof_received() has begun to read again
    if (stream_is_open()) {
      settle_hold();
    }
  }
}

// ---- ending

void Stream::check_descriptor() {
  if (stream_is_open() && !is_our_descriptor()) {
    py::Ref<> exc = py::os_error(EBADF);
    forget_descriptor();
    if (!fatal_os_error(std::move(exc), "Fatal error: the descriptor was closed behind the transport's back")) {
      loop().leave_with_error();
    }
  }
}

PyObject* Stream::close() {
  if (closing_) {
    Py_RETURN_NONE;
  }
  if (must_defer()) {
    closing_ = true;
    if (!defer(loop().state().names._close_deferred, nullptr)) {
      return nullptr;
    }
    Py_RETURN_NONE;
  }
  if constexpr (py::mutant("gathered-lost-at-close")) {
    if (!writing_) {
      queue_.clear();
    }
  }
  flush();
  if (closing_) {
    Py_RETURN_NONE;  // the flush met an error
  }
  closing_ = true;
  return close_deferred();
}

PyObject* Stream::close_deferred() {
  stop();
  if (!writing_ && queue_.empty()) {
    if (!loop().check_closed()) {
      return nullptr;
    }
    if (!lose_connection(nullptr)) {
      return nullptr;
    }
  }
  Py_RETURN_NONE;
}

PyObject* Stream::abort() {
  if (must_defer()) {
    closing_ = true;
    if (!defer(loop().state().names.abort, nullptr)) {
      return nullptr;
    }
    Py_RETURN_NONE;
  }
  if (conn_lost_ == 0) {
    flush();  // asyncio would have sent it when it was written
  }
  if (conn_lost_ == 0 && !loop().check_closed()) {
    return nullptr;
  }
  return force_close(nullptr) ? Py_NewRef(Py_None) : nullptr;
}

PyObject* Stream::force_close_method(PyObject* exc) {
  return force_close(exc == Py_None ? nullptr : exc) ? Py_NewRef(Py_None) : nullptr;
}

bool Stream::force_close(PyObject* exc) {
  if (conn_lost_ > 0) {
    return true;
  }
  queue_.clear();
  closing_ = true;
  stop();
  return lose_connection(exc);
}

// The transport was collected without having been closed: its handle and its descriptor go. False when there is nothing
// left to do.
bool Stream::abandon_later() {
  if (!stream_is_open()) {
    return false;
  }
  if (core::Resources::is_held(this)) {
    // Not collected: __del__ was called by hand.
    if (!force_close(nullptr)) {
      PyErr_WriteUnraisable(self_);
    }
    return true;
  }
  loop().resources().hold(this);  // a new life, until the handle has closed
  closing_ = true;
  ++conn_lost_;
  if (must_defer()) {
    // Collected in another thread while the loop is in its poll.
    if (!defer(loop().state().names._abandon, nullptr)) {
      PyErr_WriteUnraisable(self_);
    }
  } else {
    py::Ref<> done = py::steal(abandon());
  }
  return true;
}

PyObject* Stream::abandon() {
  lost_ = true;
  reading_ = false;
  queue_.clear();
  release_descriptor();
  Py_RETURN_NONE;
}

void Stream::settle() {
  queue_.clear();
  release_buffer();
  if (empty_waiter_) {
    // A sendfile in progress learns that its peer is gone.
    py::Ref<> waiter = std::move(empty_waiter_);
    const ModuleState& state = loop().state();
    py::Ref<> done = py::call_method(waiter.get(), state.names.done);
    if (done && PyObject_IsTrue(done.get()) == 0) {
      py::Ref<> exc = py::steal(PyObject_CallFunction(PyExc_ConnectionError, "s", "Connection is closed by peer"));
      if (exc) {
        py::call_method(waiter.get(), state.names.set_exception, exc.get());
      }
    }
    PyErr_Clear();
  }
}

void Stream::end_with_loop() {
  loop_ended_ = true;
  reading_ = false;
  queue_.clear();
  if (conn_lost_ == 0) {
    conn_lost_ = 1;  // what is written from now on is dropped, as on a lost connection
  }
  leave_descriptor();
}

int Stream::visit_stream(visitproc visit, void* arg) const {
  Py_VISIT(empty_waiter_.get());
  Py_VISIT(unread_.get());
  if (int result = read_buffer_ ? read_buffer_->visit(visit, arg) : 0) {
    return result;
  }
  return visit_duplex(visit, arg);
}

void Stream::clear_stream() {
  empty_waiter_.reset();
  unread_.reset();
  release_buffer();
  clear_duplex();
}

}  // namespace uvpy::net
