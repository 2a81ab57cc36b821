// Receiving datagrams, and the life of their transport. Sending is in udp_send.cpp, the type in udp_type.cpp.
// SPDX-License-Identifier: MIT
#include "net/udp.h"

#include <cerrno>
#include <cstddef>
#include <utility>

#include "core/debug.h"
#include "core/report.h"
#include "net/datagram_io.h"
#include "py/call.h"

namespace uvpy::net {

namespace {

// asyncio's max_size: what is longer is cut off. No internet datagram is longer than the shorter slot.
constexpr std::size_t kLongest = core::Loop::kSlabSize;
constexpr std::size_t kInternetSlot = 64 * 1024;
static_assert(kInternetSlot * kDatagramsAtOnce <= core::Loop::kSlabRoom);
constexpr unsigned kProbeEach = 8;

}  // namespace

// ---- making one

py::Ref<> UDPTransport::make(core::Loop& loop, const Endpoint& endpoint) {
  py::Ref<> self = py::steal(py::create<UDPTransport>(loop.state().udp_transport_type));
  if (!self || !py::state_of<UDPTransport>(self.get())->take_over(loop, self.get(), endpoint)) {
    return {};
  }
  return self;
}

bool UDPTransport::take_over(core::Loop& loop, PyObject* self, const Endpoint& endpoint) {
  lost_ = true;  // nothing to warn about until the descriptor is ours
  const int fd = PyObject_AsFileDescriptor(endpoint.sock);
  if (fd < 0 || !begin_socket(loop, self, fd, endpoint.sock, endpoint.protocol, endpoint.extra, nullptr)) {
    return false;
  }
  keep_addresses(nullptr, nullptr);
  family_ = endpoint.family;
  type_ = endpoint.type;
  address_ = py::borrow(endpoint.address);
  if (!find_out_connected(endpoint.extra)) {
    return false;
  }
  loop.resources().add(this);
  lost_ = false;
  if (hold_socket() && loop.watchers().set_transport(fd, self) && schedule_start(endpoint.waiter)) {
    return true;
  }
  // The socket stays its owner's.
  py::SavedError error;
  lost_ = true;
  closing_ = true;
  ++conn_lost_;
  loop.watchers().set_transport(fd, nullptr);
  release_socket();
  loop.resources().remove(this);
  return false;
}

// Whether asyncio would call send(): it goes by the truth of the peer's name, and an unnamed Unix peer's is empty.
bool UDPTransport::find_out_connected(PyObject* extra) {
  py::Ref<> name;
  if (extra != nullptr && extra != Py_None) {
    name = py::borrow(PyDict_GetItemWithError(extra, loop().state().names.peername));
    if (!name && PyErr_Occurred() != nullptr) {
      return false;
    }
  }
  if (!name) {
    name = peer_address();
  }
  const int truth = name ? PyObject_IsTrue(name.get()) : -1;
  connected_ = truth > 0;
  return truth >= 0;
}

// ---- being watched

// Tells the watchers what is wanted now. False with OSError set.
bool UDPTransport::watch() {
  const unsigned sides = (reading_ ? core::kReadable : 0U) | (writing_ ? core::kWritable : 0U);
  core::Loop& on = loop();
  int error = 0;
  if (sides == 0) {
    on.watchers().remove_native(on, fd_, this);
  } else if (!loop_ended_) {
    error = on.watchers().watch_native(on, fd_, sides, &UDPTransport::on_ready, this);
  }
  if (error != 0) {
    py::raise_os_error(error);
  }
  return error == 0;
}

// The loop holds the transport while something is to come: a datagram, the end of the backlog, its closing.
void UDPTransport::settle_hold() {
  if (loop_ended_ || lost_) {
    return;
  }
  if (reading_ || closing_ || writing_) {
    loop().resources().hold(this);
  } else {
    core::Resources::let_go(this);
  }
}

PyObject* UDPTransport::start_reading() {
  if (closing_ || paused_ || loop_ended_) {
    settle_hold();
    Py_RETURN_NONE;
  }
  read_context_ = context_from_now();
  if (!read_context_) {
    return nullptr;
  }
  reading_ = true;
  if (!watch()) {
    reading_ = false;
    return nullptr;
  }
  settle_hold();
  if (!held_.empty()) {
    loop().hold_input(this);
  }
  // A reader that somebody has on the descriptor is replaced, as asyncio's transports replace it.
  if (loop().watchers().remove(loop(), fd_, core::kReadable) < 0) {
    return nullptr;
  }
  Py_RETURN_NONE;
}

void UDPTransport::stop() {
  if (!reading_) {
    return;
  }
  reading_ = false;
  loop().resources().holding.remove(this);
  if (!watch()) {
    PyErr_Clear();  // the descriptor has gone: what is sent next will say so
  }
  settle_hold();
}

// ---- in the poll

void UDPTransport::on_ready(void* owner, unsigned ready) {
  auto* self = static_cast<UDPTransport*>(owner);
  py::Ref<> alive = py::borrow(self->self_);
  // In asyncio's order: the reader first.
  if ((ready & core::kReadable) != 0 && self->held_.empty()) {
    self->readable();
  }
  if ((ready & core::kWritable) != 0) {
    self->writable();
  }
}

void UDPTransport::hand_on() {
  if (reading_ && !held_.empty()) {
    readable();
  }
}

void UDPTransport::readable() {
  run_in_poll(&UDPTransport::receive_one, read_context_.get(), loop().state().names._read_ready);
}

void UDPTransport::writable() {
  // With nothing left, too: after an error asyncio goes on with the next event.
  if (writing_) {
    run_in_poll(&UDPTransport::send_waiting, write_context_.get(), loop().state().names._sendto_ready);
  }
}

// Takes a step at once where nothing was scheduled before it, and queues it as the handle that asyncio has for it
// otherwise.
void UDPTransport::run_in_poll(Step step, PyObject* given_context, PyObject* name) {
  core::Loop& on = loop();
  if (on.is_leaving() || on.is_foreign()) {
    return;  // the next run finds the same
  }
  py::Ref<> context = py::borrow(given_context);
  if (on.must_queue_io()) {
    py::Ref<> method = py::get_attr(self_, name);
    if (!method || !on.queue_io(method.get(), context.get())) {
      on.leave_with_error();
    }
    return;
  }
  on.count_callback();
  bool ok = false;
  {
    py::ContextScope scope(context.get());
    in_poll_ = true;
    ok = scope.entered() && (this->*step)();
    in_poll_ = false;
  }
  if (ok) [[likely]] {
    return;
  }
  py::Ref<> exc = py::take_error();
  if (py::ends_the_loop(exc.get())) {
    py::restore_error(std::move(exc));
    on.leave_with_error();
    return;
  }
  py::Ref<> method = py::get_attr(self_, name);
  if (!method || !on.report_io(method.get(), context.get(), exc.get())) {
    on.leave_with_error();
  }
}

// ---- receiving

PyObject* UDPTransport::read_ready() {
  py::Ref<> alive = py::borrow(self_);
  if (!receive_one()) {
    return nullptr;
  }
  Py_RETURN_NONE;
}

// What asyncio does when its reader is ready: one datagram, or one error, for the protocol. False with an exception set,
// the protocol's own.
bool UDPTransport::receive_one() {
  if (conn_lost_ > 0 || !reading_ || paused_ || loop().is_foreign()) {
    return true;
  }
  if (held_.empty()) {
    if (!receive()) {
      return false;
    }
    if (held_.empty() || conn_lost_ > 0 || !reading_) {
      return true;
    }
  }
  const Datagram datagram = held_.pop();
  if (!held_.empty()) {
    loop().hold_input(this);
  }
  return call_protocol(loop().state().names.datagram_received, datagram.data.get(), datagram.address.get());
}

// Takes what the kernel has, a batch of it. False with the protocol's exception set.
bool UDPTransport::receive() {
  Received received[kDatagramsAtOnce];
  const std::size_t slot = family_ == AF_UNIX ? kLongest : kInternetSlot;
  const auto most = static_cast<unsigned>(core::Loop::kSlabRoom / slot);
  const unsigned count = expected_ < most ? expected_ : most;
  char* slab = loop().slab();
  int got = slab != nullptr ? receive_datagrams(fd_, slab, slot, received, count) : -ENOMEM;
  if (got < 0) {
    return got == -EAGAIN || got == -EWOULDBLOCK || error_received(py::os_error(-got));
  }
  // One more than there were shows whether there are more by now; a full batch asks for the biggest. Where they come one
  // by one, most are asked for alone.
  if (got == 1 && (count == 1 || count == 2)) {
    expected_ = ++singles_ % kProbeEach == 0 ? 2 : 1;
  } else {
    expected_ = static_cast<unsigned>(got) == count ? kDatagramsAtOnce : static_cast<unsigned>(got) + 1;
  }
  for (int i = 0; i < got; ++i) {
    const Received& one = received[i];
    py::Ref<> data = loop().received().make(one.data, static_cast<Py_ssize_t>(one.size));
    py::Ref<> address = data ? addresses_.object_of(one.from) : py::Ref<>();
    if (!address || !held_.push(std::move(data), std::move(address))) {
      py::Ref<> exc = py::take_error();
      return fatal_error(exc.get(), "Fatal read error on datagram transport");
    }
  }
  return true;
}

bool UDPTransport::call_protocol(PyObject* name, PyObject* first, PyObject* second) {
  if (std::exchange(in_poll_, false)) {
    return static_cast<bool>(protocol_.call(loop(), name, first, second));  // timed in debug mode
  }
  py::Ref<> protocol = py::borrow(protocol_.get());
  return second != nullptr ? static_cast<bool>(py::call_method(protocol.get(), name, first, second))
                           : static_cast<bool>(py::call_method(protocol.get(), name, first));
}

// protocol.error_received(exc), as from an `except` block. False with the protocol's exception set.
bool UDPTransport::error_received(py::Ref<>&& exc) {
  if (!exc) {
    return false;
  }
  if (protocol_.get() == nullptr) {
    return true;  // connection_lost() has come: there is nobody to tell
  }
  const py::HandledScope handled(exc.get());
  return call_protocol(loop().state().names.error_received, exc.get(), nullptr);
}

// ---- ending

PyObject* UDPTransport::close() {
  if (closing_) {
    Py_RETURN_NONE;
  }
  closing_ = true;
  writing_ = !backlog_.empty();
  stop();
  held_.clear();
  if (writing_) {
    settle_hold();
    Py_RETURN_NONE;
  }
  if (!watch()) {
    PyErr_Clear();  // nothing is wanted any more
  }
  settle_hold();
  return lose_connection(nullptr) ? Py_NewRef(Py_None) : nullptr;
}

PyObject* UDPTransport::abort() { return force_close(nullptr) ? Py_NewRef(Py_None) : nullptr; }

PyObject* UDPTransport::force_close_method(PyObject* exc) {
  return force_close(exc == Py_None ? nullptr : exc) ? Py_NewRef(Py_None) : nullptr;
}

bool UDPTransport::force_close(PyObject* exc) {
  if (conn_lost_ > 0 || lost_) {
    return true;
  }
  closing_ = true;
  const bool scheduled = lose_connection(exc);
  // A datagram's address may run code when it goes.
  py::SavedError error;
  writing_ = false;
  stop();
  if (!watch()) {
    PyErr_Clear();
  }
  backlog_.clear();
  held_.clear();
  settle_hold();
  return scheduled;
}

void UDPTransport::settle() {
  reading_ = false;
  writing_ = false;
  held_.clear();
  backlog_.clear();
}

bool UDPTransport::release_descriptor() {
  core::Loop& on = loop();
  on.watchers().remove_native(on, fd_, this);
  if (on.watchers().transport(fd_) == self_) {
    on.watchers().set_transport(fd_, nullptr);
  }
  if (!is_our_descriptor()) {
    detach_socket();  // the number is another file's by now
  } else {
    release_socket();
    // Its owner may have closed it, or may have made files of it that still hold it: Python counts them.
    if (!py::steal(PyObject_CallMethod(sock_.get(), "close", nullptr))) {
      PyErr_WriteUnraisable(self_);
    }
  }
  on.resources().remove(this);
  return true;
}

// The loop closes: the socket stays open, as it does under asyncio's, until the transport is collected.
void UDPTransport::end_with_loop() {
  core::Loop& on = loop();
  loop_ended_ = true;
  reading_ = false;
  writing_ = false;
  if (conn_lost_ == 0) {
    conn_lost_ = 1;
  }
  held_.clear();
  backlog_.clear();
  on.watchers().remove_native(on, fd_, this);
  on.watchers().set_transport(fd_, nullptr);
  release_socket();
  on.resources().remove(this);
}

// For the finalizer. Nothing of libuv's is left to close: all can go at once, unless __del__ was called by hand.
bool UDPTransport::abandon_later() {
  if (lost_ || loop_ended_) {
    return false;
  }
  if (core::Resources::is_held(this)) {
    if (!force_close(nullptr)) {
      PyErr_WriteUnraisable(self_);
    }
    return true;
  }
  closing_ = true;
  ++conn_lost_;
  settle();
  lost_ = true;
  release_descriptor();
  return true;
}

PyObject* UDPTransport::describe() const { return describe_as(family_ == AF_UNIX ? "unix datagram" : "udp"); }

int UDPTransport::visit(visitproc visit, void* arg) {
  Py_VISIT(address_.get());
  if (int result = held_.visit(visit, arg)) {
    return result;
  }
  if (int result = backlog_.visit(visit, arg)) {
    return result;
  }
  if (int result = addresses_.visit(visit, arg)) {
    return result;
  }
  return visit_duplex(visit, arg);
}

void UDPTransport::clear() {
  held_.clear();
  backlog_.clear();
  addresses_.clear();
  address_.reset();
  clear_duplex();
}

}  // namespace uvpy::net
