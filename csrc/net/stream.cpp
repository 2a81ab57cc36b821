// The read path of streams, and how they end. The write path is in stream_write.cpp.
// SPDX-License-Identifier: MIT
#include "net/stream.h"

#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "core/debug.h"
#include "core/report.h"
#include "net/stream_feed.h"
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

// From here on connection_lost() is to come: the loop holds the transport whether or not it was reading.
void Stream::begin_closing() {
  closing_ = true;
  if (open_) {
    settle_hold();
  }
}

// Tells the watchers what is wanted now. False with OSError set.
bool Stream::watch() {
  const unsigned sides = (reading_ ? core::kReadable : 0U) | (writing_ ? core::kWritable : 0U);
  core::Loop& on = loop();
  int error = 0;
  if (sides == 0) {
    on.watchers().remove_native(on, fd_, this);
  } else if (open_ && !loop_ended_) {
    error = on.watchers().watch_native(on, fd_, sides, &Stream::on_ready, this);
  }
  if (error != 0) {
    py::raise_os_error(error);
  }
  return error == 0;
}

// Before the kernel is told to watch: whether the number still means our socket. Where somebody has closed it, what has it
// by now is not to be read or written to; the connection is lost.
bool Stream::has_descriptor() {
  if (open_ && !is_our_descriptor()) {
    detach_socket();
    give_up_descriptor();
    if (!fatal_os_error(py::os_error(EBADF), "Fatal error: the descriptor was closed behind the transport's back")) {
      loop().leave_with_error();
    }
  }
  return open_;
}

bool Stream::start() {
  if (!reading_) {
    if (!has_descriptor()) {
      return true;
    }
    reading_ = true;
    if (!watch()) {
      reading_ = false;
      return false;
    }
    settle_hold();
  }
  // A reader that somebody has on the descriptor is replaced, as asyncio's transports replace it.
  return loop().watchers().remove(loop(), fd_, core::kReadable) >= 0;
}

void Stream::start_again() {
  if (!start()) {
    loop().leave_with_error();
  }
}

// The kernel goes on watching until it has something: who pauses and resumes in between costs no system call.
void Stream::stop() {
  if (reading_) {
    reading_ = false;
    if (open_) {
      settle_hold();
    }
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
  } else if (open_) {
    settle_hold();
  }
  Py_RETURN_NONE;
}

// ---- a byte in

void Stream::on_ready(void* owner, unsigned ready) {
  auto* self = static_cast<Stream*>(owner);
  py::Ref<> alive = py::borrow(self->self_);
  // In asyncio's order: the reader first.
  if ((ready & core::kReadable) != 0) {
    self->readable();
  }
  if ((ready & core::kWritable) != 0 && self->writing_) {
    self->writable();
  }
}

void Stream::readable() {
  core::Loop& on = loop();
  if (!reading_) {
    if (!watch()) {
      PyErr_Clear();  // the descriptor has gone: what is done with it next will say so
    }
    return;
  }
  // One read a turn, as asyncio. What is not read now the next poll finds again, or the next run.
  if (read_turn_ == on.turn() || paused_ || closing_ || unread_ || on.is_leaving() || on.is_foreign()) {
    return;
  }
  read_turn_ = on.turn();
  if (on.must_queue_io()) {
    queue_read();
    return;
  }
  py::ContextScope scope(read_context_.get());
  if (!scope.entered() || !receive()) {
    on.leave_with_error();
  }
}

void Stream::queue_read() {
  py::Ref<> method = py::get_attr(self_, loop().state().names._read_ready);
  if (!method || !loop().queue_io(method.get(), read_context_.get())) {
    loop().leave_with_error();
  }
}

// A read in its turn.
PyObject* Stream::read_ready() {
  if (!reading_ || paused_ || closing_ || unread_ || loop().is_foreign()) {
    Py_RETURN_NONE;
  }
  py::Ref<> alive = py::borrow(self_);
  return receive() ? Py_NewRef(Py_None) : nullptr;
}

// What asyncio does when its reader is ready. False with an exception set that ends the run.
bool Stream::receive() {
  const bool is_buffered = protocol_.is_buffered();
  if (!is_buffered && py::BytesPool::kLends && last_read_ >= py::BytesPool::kLendFrom) {
    return receive_directly();
  }
  const Room room = is_buffered ? offer() : Room{loop().slab(), core::Loop::kSlabSize};
  if (room.data == nullptr) {
    return true;
  }
  if (is_buffered && loop().is_foreign()) {
    // get_buffer() forked, and this is the child: the bytes are the parent's.
    release_buffer();
    return true;
  }
  ssize_t count;
  do {
    count = ::recv(fd_, room.data, room.size, MSG_DONTWAIT);
  } while (count < 0 && errno == EINTR);
  if (count > 0) [[likely]] {
    if (is_buffered) {
      filled(static_cast<std::size_t>(count));
    } else {
      last_read_ = static_cast<unsigned>(count);
      deliver(loop().received().make(room.data, count));
    }
    return true;
  }
  const int code = count < 0 ? errno : 0;
  release_buffer();
  return not_received(code);
}

// The same into the object that the protocol gets, which is made as big as what came last; what is more goes beside it.
bool Stream::receive_directly() {
  py::BytesPool& pool = loop().received();
  char* slab = loop().slab();
  const py::BytesPool::Room room = slab != nullptr ? pool.lend(last_read_) : py::BytesPool::Room{};
  if (room.data == nullptr) {
    PyErr_Clear();
    last_read_ = 0;
    return receive();
  }
  iovec parts[] = {{room.data, room.size}, {slab, core::Loop::kSlabSize - std::min(room.size, core::Loop::kSlabSize)}};
  msghdr message{};
  message.msg_iov = parts;
  message.msg_iovlen = 2;
  ssize_t count;
  do {
    count = ::recvmsg(fd_, &message, MSG_DONTWAIT);
  } while (count < 0 && errno == EINTR);
  if (count <= 0) {
    return not_received(count < 0 ? errno : 0);
  }
  const auto size = static_cast<std::size_t>(count);
  last_read_ = static_cast<unsigned>(size);
  if (size <= room.size) {
    deliver(pool.lent(count));
    return true;
  }
  py::Ref<> data = py::steal(PyBytes_FromStringAndSize(nullptr, count));
  if (data) {
    std::memcpy(PyBytes_AS_STRING(data.get()), room.data, room.size);
    std::memcpy(PyBytes_AS_STRING(data.get()) + room.size, slab, size - room.size);
  }
  deliver(std::move(data));
  return true;
}

// After a read that gave nothing, which is the end, or failed. False with an exception set that ends the run.
bool Stream::not_received(int code) {
  if (code == EAGAIN || code == EWOULDBLOCK) {
    return true;
  }
  stop();
  if (code == 0) {
    ended();
    return true;
  }
  return fatal_os_error(py::os_error(code), "Fatal read error on socket transport");
}

void Stream::release_buffer() {
  if (read_buffer_) {
    read_buffer_->release();
  }
}

// The buffer of a BufferedProtocol; none where it has failed.
Stream::Room Stream::offer() {
  const ModuleState& state = loop().state();
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
    return {read_buffer_->data(), static_cast<std::size_t>(read_buffer_->size())};
  }
  release_buffer();
  protocol_failed("Fatal error: protocol.get_buffer() call failed.");
  return {};
}

// buffer_updated(), after so many bytes have come into the buffer.
void Stream::filled(std::size_t size) {
  release_buffer();
  py::Ref<> count = py::steal(PyLong_FromSize_t(size));
  if (!count || !protocol_.call(loop(), loop().state().names.buffer_updated, count.get())) {
    protocol_failed("Fatal error: protocol.buffer_updated() call failed.");
  }
}

// data_received() of what was received; null with an exception set.
void Stream::deliver(py::Ref<>&& data) {
  loop().count_callback();
  py::Ref<> bytes = std::move(data);
  const Fed fed = bytes ? feed_stream_reader(loop(), protocol_.get(), bytes.get()) : Fed::failed;
  if (fed == Fed::failed ||
      (fed == Fed::no && !protocol_.call(loop(), loop().state().names.data_received, bytes.get()))) {
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
  const Room room = offer();
  if (room.data == nullptr) {
    Py_RETURN_NONE;
  }
  const auto size = static_cast<std::size_t>(PyBytes_GET_SIZE(data.get()));
  const std::size_t part = std::min(size, room.size);
  std::memcpy(room.data, PyBytes_AS_STRING(data.get()), part);
  if (part < size) {
    unread_ = py::steal(
        PyBytes_FromStringAndSize(PyBytes_AS_STRING(data.get()) + part, static_cast<Py_ssize_t>(size - part)));
    if (!unread_ || !schedule_unread()) {
      return nullptr;
    }
  }
  filled(part);
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
    if (!watch()) {
      PyErr_Clear();
    }
  }
}

// ---- ending

void Stream::opened() {
  open_ = true;
  loop().resources().add(this);
}

// The last act of whoever calls it: this may be the last reference.
void Stream::give_up_descriptor() {
  open_ = false;
  core::Loop& on = loop();
  on.watchers().remove_native(on, fd_, this);
  if (on.watchers().transport(fd_) == self_) {
    on.watchers().set_transport(fd_, nullptr);
  }
  release_socket();
  on.resources().remove(this);
}

bool Stream::release_descriptor() {
  if (open_) {
    // Before it is closed: a file that others share would stay in the kernel's set.
    loop().watchers().remove_native(loop(), fd_, this);
    const bool is_ours = is_our_descriptor();
    detach_socket();
    if (is_ours) {
      ::close(fd_);
    }
    give_up_descriptor();
  }
  return true;
}

// A socket that Python knows is left to it.
void Stream::leave_descriptor() {
  if (sock_ && open_ && is_our_descriptor()) {
    give_up_descriptor();
  } else {
    release_descriptor();
  }
}

void Stream::leak() {
  open_ = false;
  lost_ = true;  // its finalizer has nothing to close, and nobody to tell
}

PyObject* Stream::close() {
  if (closing_) {
    Py_RETURN_NONE;
  }
  if (must_defer()) {
    begin_closing();
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
  begin_closing();
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
    begin_closing();
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
  begin_closing();
  writing_ = false;
  stop();
  if (!watch()) {
    PyErr_Clear();
  }
  return lose_connection(exc);
}

// The transport was collected without having been closed: its descriptor goes. False when there is nothing left to do.
bool Stream::abandon_later() {
  if (!open_) {
    return false;
  }
  if (core::Resources::is_held(this)) {
    // Not collected: __del__ was called by hand.
    if (!force_close(nullptr)) {
      PyErr_WriteUnraisable(self_);
    }
    return true;
  }
  closing_ = true;
  ++conn_lost_;
  if (must_defer()) {
    // Collected in another thread while the loop is in its poll: a new life until then.
    loop().resources().hold(this);
    if (!defer(loop().state().names._abandon, nullptr)) {
      PyErr_WriteUnraisable(self_);
    }
  } else {
    py::Ref<> done = py::steal(abandon());
  }
  return true;
}

PyObject* Stream::abandon() {
  py::Ref<> alive = py::borrow(self_);
  lost_ = true;
  reading_ = false;
  writing_ = false;
  queue_.clear();
  release_descriptor();
  Py_RETURN_NONE;
}

void Stream::settle() {
  reading_ = false;
  writing_ = false;
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
  writing_ = false;
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
