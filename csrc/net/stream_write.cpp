// The write path of streams. At ease a write leaves at once; under load (the turn holds more than a handful of
// callbacks, or this transport has lately made several writes a turn) it is gathered and leaves by one writev at the end
// of the turn, before 64 KiB or the high mark are passed, after 200 us, or when anything could observe it. What the kernel
// refuses waits until the watchers say that it takes more.
// SPDX-License-Identifier: MIT
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>

#include "core/debug.h"
#include "core/report.h"
#include "net/stream.h"
#include "py/args.h"
#include "py/call.h"
#include "py/chunks.h"
#include "py/mutant.h"

namespace uvpy::net {

namespace {

constexpr std::size_t kPiece = 64 * 1024;
constexpr std::size_t kMostAtOnce = std::size_t{1} << 30;
// As many as one writev takes (IOV_MAX).
constexpr unsigned kVectors = 1024;
// Turns with several writes, of late, from which on a transport gathers.
constexpr unsigned kGatherFrom = 2;
constexpr unsigned kGatherMost = 4;

}  // namespace

// ---- taking data in

bool Stream::accepts(const char* function, PyObject** answer) {
  if (eof_) {
    PyErr_Format(PyExc_RuntimeError, "Cannot call %s() after write_eof()", function);
    return false;
  }
  if (empty_waiter_) {
    PyErr_Format(PyExc_RuntimeError, "unable to %s; sendfile is in progress", function);
    return false;
  }
  if (conn_lost_ > 0) {
    if (count_lost_write()) {
      *answer = Py_NewRef(Py_None);
    }
    return false;
  }
  return true;
}

PyObject* Stream::write(PyObject* data) {
  if (PyBytes_CheckExact(data)) [[likely]] {
    return write_bytes(data, PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data));
  }
  if (!check_data(data, py::kNotData)) {
    return nullptr;
  }
  py::BufferView view;
  if (!view.acquire(data, PyBUF_SIMPLE)) {
    return refuse_to_send();
  }
  // Only now the state: a subclass's buffer may have run code.
  return write_bytes(data, view.data(), view.size());
}

PyObject* Stream::write_bytes(PyObject* object, const char* data, Py_ssize_t size) {
  if (eof_ || empty_waiter_ || conn_lost_ > 0) [[unlikely]] {
    if (size == 0 && !eof_ && !empty_waiter_) {
      Py_RETURN_NONE;
    }
    PyObject* answer = nullptr;
    accepts("write", &answer);
    return answer;
  }
  if (size == 0) {
    Py_RETURN_NONE;
  }
  py::Ref<> alive = py::borrow(self_);
  if (!send(object, data, static_cast<std::size_t>(size))) {
    return nullptr;
  }
  Py_RETURN_NONE;
}

// What cannot be sent, a memoryview with gaps, is an error of sending in asyncio: it is fatal for the connection.
PyObject* Stream::refuse_to_send() {
  py::Ref<> exc = py::take_error();
  PyObject* answer = nullptr;
  if (!accepts("write", &answer)) {
    return answer;
  }
  if (!fatal_error(exc.get(), "Fatal write error on socket transport")) {
    return nullptr;
  }
  Py_RETURN_NONE;
}

PyObject* Stream::writelines(PyObject* chunks) {
  py::Ref<> items = py::list_of_chunks(chunks);
  if (!items) {
    return nullptr;
  }
  PyObject* answer = nullptr;
  if (!accepts(py::kWritelinesJoins ? "write" : "writelines", &answer)) {
    return answer;
  }
  py::Ref<> alive = py::borrow(self_);
  // All are taken before one is sent: what is wrong with the last one must not leave half of them on the wire.
  WriteQueue taken;
  for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(items.get()); ++i) {
    py::Ref<> item = py::borrow(PySequence_Fast_GET_ITEM(items.get(), i));
    py::Ref<> bytes = py::bytes_of_chunk(item.get());
    if (!bytes || !taken.push(std::move(bytes), 0)) {
      return nullptr;
    }
  }
  if (conn_lost_ > 0 || taken.empty()) {
    Py_RETURN_NONE;
  }
  if (!begin_waiting()) {
    return nullptr;
  }
  const bool direct = queue_.empty() && !writing_ && !must_defer() && !gathers_now();
  if (!taken.move_to(queue_, taken.bytes())) {
    return nullptr;
  }
  if (must_defer()) {
    if (!defer(loop().state().names._flush, nullptr)) {
      return nullptr;
    }
  } else if (direct || (!writing_ && waiting() > std::min(kPiece, flow_.high()))) {
    send_queue();
  } else if (!writing_) {
    settle_hold();
    loop().mark_dirty(this);
  }
  if (!pause_protocol_if_full()) {
    return nullptr;
  }
  Py_RETURN_NONE;
}

bool Stream::gathers_now() {
  const std::uint64_t turn = loop().turn();
  if (write_turn_ != turn) {
    // A new turn: what the last one showed counts, and is forgotten slowly.
    if (turn_writes_ > 1) {
      many_writes_ = std::min(many_writes_ + 1, kGatherMost);
    } else if (many_writes_ > 0) {
      --many_writes_;
    }
    write_turn_ = turn;
    turn_writes_ = 0;
  }
  ++turn_writes_;
  return loop().gathers(many_writes_ >= kGatherFrom);
}

bool Stream::send(PyObject* object, const char* data, std::size_t size) {
  std::size_t offset = 0;
  bool gather = false;
  const bool defers = must_defer();
  if (queue_.empty() && !writing_ && !defers) {
    gather = gathers_now();
    if (gather && size > std::min(kPiece, flow_.high())) {
      gather = false;
    }
    if (!gather) {
      const ssize_t sent = try_send(data, size);
      if (sent >= 0) {
        offset = static_cast<std::size_t>(sent);
        if (offset == size) [[likely]] {
          return true;
        }
      } else if (errno != EAGAIN && errno != ENOBUFS) {
        return fatal_os_error(py::os_error(errno), "Fatal write error on socket transport");
      }
      if constexpr (py::mutant("partial-write-lost")) {
        offset = offset > 0 ? size : 0;
        if (offset == size) {
          return true;
        }
      }
    }
  } else if (!writing_ && !defers) {
    ++turn_writes_;
    gather = true;  // behind what was gathered before
  }
  if (!keep(object, data, size, offset)) {
    return false;
  }
  if (defers) {
    if (!defer(loop().state().names._flush, nullptr)) {
      return false;
    }
  } else if (gather) {
    if (queue_.bytes() > std::min(kPiece, flow_.high())) {
      send_queue();
    } else {
      settle_hold();
      loop().mark_dirty(this);
      return true;  // not above the high mark
    }
  } else if (!writing_) {
    wait_to_write();
  }
  return pause_protocol_if_full();
}

// resume_writing() and what else the waiting data leads to happens in the context of the write that began it, where
// the transport has none of its own.
bool Stream::begin_waiting() {
  if (queue_.empty() && !writing_) {
    write_context_ = context_from_now();
  }
  return static_cast<bool>(write_context_);
}

// Keeps the part of `data` from `offset` on. Exact bytes are kept by reference, all else is copied now.
bool Stream::keep(PyObject* object, const char* data, std::size_t size, std::size_t offset) {
  if (!begin_waiting()) {
    return false;
  }
  if (PyBytes_CheckExact(object)) {
    return queue_.push(py::borrow(object), offset);
  }
  py::Ref<> copy = py::steal(PyBytes_FromStringAndSize(data + offset, static_cast<Py_ssize_t>(size - offset)));
  return copy && queue_.push(std::move(copy), 0);
}

// ---- sending

void Stream::flush() {
  if (!must_defer() && !writing_ && !queue_.empty() && conn_lost_ == 0) {
    send_queue();
    if (open_) {
      settle_hold();
    }
  }
}

PyObject* Stream::flush_method() {
  flush();
  if (conn_lost_ == 0) {
    drained();
  }
  Py_RETURN_NONE;
}

void Stream::write_failed(int code) {
  if (!fatal_os_error(py::os_error(code), "Fatal write error on socket transport")) {
    loop().leave_with_error();
  }
}

// What the kernel takes at once, or -1 with errno set.
ssize_t Stream::try_send(const char* data, std::size_t size) const {
  if (!open_) {
    errno = EBADF;  // the number may be another file's by now
    return -1;
  }
  ssize_t sent;
  do {
    sent = ::send(fd_, data, std::min(size, kMostAtOnce), MSG_DONTWAIT);
  } while (sent < 0 && errno == EINTR);
  return sent;
}

// The same of a few chunks.
ssize_t Stream::try_send(uv_buf_t* bufs, unsigned count) const {
  msghdr message{};
  message.msg_iov = reinterpret_cast<iovec*>(bufs);  // libuv promises the layout
  message.msg_iovlen = count;
  ssize_t sent;
  do {
    sent = ::sendmsg(fd_, &message, MSG_DONTWAIT);
  } while (sent < 0 && errno == EINTR);
  return sent;
}

// Sends from the front until the kernel refuses; the rest waits.
void Stream::send_queue() {
  while (!queue_.empty() && open_) {
    ssize_t sent;
    std::size_t wanted = 0;
    if (queue_.chunks() == 1) {
      const auto [data, size] = queue_.first();
      wanted = std::min(size, kMostAtOnce);
      sent = try_send(data, size);
    } else {
      uv_buf_t bufs[kVectors];
      const unsigned count = queue_.fill(bufs, kVectors, kMostAtOnce);
      for (unsigned i = 0; i < count; ++i) {
        wanted += bufs[i].len;
      }
      sent = try_send(bufs, count);
    }
    if (sent < 0 && errno != EAGAIN && errno != EWOULDBLOCK && errno != ENOBUFS) {
      write_failed(errno);
      return;
    }
    queue_.consume(sent < 0 ? 0 : static_cast<std::size_t>(sent));
    if (sent < 0 || static_cast<std::size_t>(sent) < wanted) {
      wait_to_write();
      return;
    }
  }
}

void Stream::wait_to_write() {
  if (writing_ || !has_descriptor()) {
    return;
  }
  writing_ = true;
  if (!watch()) {
    writing_ = false;
    py::Ref<> exc = py::take_error();
    if (!fatal_error(exc.get(), "Fatal write error on socket transport")) {
      loop().leave_with_error();
    }
    return;
  }
  settle_hold();
  if (loop().watchers().remove(loop(), fd_, core::kWritable) < 0) {
    loop().leave_with_error();
  }
}

void Stream::writable() {
  if (loop().is_foreign()) {
    return;
  }
  py::Ref<> context = write_context_.dup();
  py::ContextScope scope(context.get());
  if (scope.entered()) {
    written();
  } else {
    loop().leave_with_error();
  }
  if (open_) {
    settle_hold();
  }
}

void Stream::written() {
  send_queue();
  if (conn_lost_ > 0) {
    return;
  }
  if (queue_.empty()) {
    writing_ = false;
    if (!watch()) {
      PyErr_Clear();
    }
  }
  if (loop().is_leaving() || loop().must_queue_io()) {
    // No user code while the run is being left (the next run tells the protocol), nor before what was scheduled earlier.
    py::Ref<> method = py::get_attr(self_, loop().state().names._drained);
    if (!method || !loop().queue_io(method.get(), write_context_.get())) {
      loop().leave_with_error();
    }
    return;
  }
  drained();
}

PyObject* Stream::drained_method() {
  py::Ref<> alive = py::borrow(self_);
  if (conn_lost_ == 0) {
    drained();
  }
  Py_RETURN_NONE;
}

// After some of the buffer has gone: resume_writing(), which may write again, then what waited for the end of it.
void Stream::drained() {
  if constexpr (!py::mutant("resume-lost")) {
    if (!resume_protocol_if_drained()) {
      loop().leave_with_error();
    }
  }
  if (conn_lost_ > 0 || writing_ || !queue_.empty()) {
    return;
  }
  if (empty_waiter_) {
    const ModuleState& state = loop().state();
    py::Ref<> waiter = empty_waiter_.dup();
    py::Ref<> done = py::call_method(waiter.get(), state.names.done);
    const int is_done = done ? PyObject_IsTrue(done.get()) : -1;
    if (is_done < 0 || (is_done == 0 && !py::call_method(waiter.get(), state.names.set_result, Py_None))) {
      loop().leave_with_error();
    }
  }
  if (closing_) {
    if (!lose_connection(nullptr)) {
      loop().leave_with_error();
    }
  } else if (eof_) {
    shutdown_write(false);
  }
}

// ---- ending the write side

bool Stream::shutdown_write(bool raises) {
  if (::shutdown(fd_, SHUT_WR) == 0) {
    return true;
  }
  py::Ref<> exc = py::os_error(errno);
  if (raises && exc) {
    PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(exc.get())), exc.get());
    return false;
  }
  if (!fatal_os_error(std::move(exc), "Fatal write error on socket transport")) {
    loop().leave_with_error();
  }
  return false;
}

PyObject* Stream::write_eof() {
  if (closing_ || eof_) {
    Py_RETURN_NONE;
  }
  flush();
  eof_ = true;  // also where the flush met an error, which asyncio would meet later
  if (closing_) {
    Py_RETURN_NONE;
  }
  if (!writing_ && queue_.empty() && !shutdown_write(true)) {
    return nullptr;
  }
  Py_RETURN_NONE;
}

PyObject* Stream::can_write_eof() { Py_RETURN_TRUE; }

std::size_t Stream::waiting() const { return conn_lost_ > 0 ? 0 : queue_.bytes(); }

// ---- for sendfile

PyObject* Stream::make_empty_waiter() {
  if (empty_waiter_) {
    PyErr_SetString(PyExc_RuntimeError, "Empty waiter is already set");
    return nullptr;
  }
  flush();
  const ModuleState& state = loop().state();
  empty_waiter_ = py::call_method(loop().object(), state.names.create_future);
  if (!empty_waiter_) {
    return nullptr;
  }
  if (!writing_ && queue_.empty() && !py::call_method(empty_waiter_.get(), state.names.set_result, Py_None)) {
    return nullptr;
  }
  return Py_NewRef(empty_waiter_.get());
}

PyObject* Stream::reset_empty_waiter() {
  empty_waiter_.reset();
  Py_RETURN_NONE;
}

// While sendfile writes to the descriptor through the loop's watchers, it is not refused there.
PyObject* Stream::lend_descriptor(PyObject* lent) {
  const int truth = PyObject_IsTrue(lent);
  if (truth < 0 || (open_ && !loop().watchers().set_transport(fd_, truth != 0 ? nullptr : self_))) {
    return nullptr;
  }
  Py_RETURN_NONE;
}

}  // namespace uvpy::net
