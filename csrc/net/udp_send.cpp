// Sending datagrams. sendto() sends and reports inside the call; what the kernel refuses is kept, and sent by as few
// system calls as the kernel allows when the descriptor is writable. What only the socket module can do with an address
// (resolving a name, refusing a wrong one with its own words) is left to the Python socket.
// SPDX-License-Identifier: MIT
#include <cerrno>
#include <string_view>

#include "core/report.h"
#include "net/datagram_io.h"
#include "net/udp.h"
#include "py/args.h"
#include "py/buffer.h"
#include "py/call.h"
#include "py/compat.h"

namespace uvpy::net {

PyObject* UDPTransport::sendto(PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames) {
  static constexpr const char* kNames[] = {"data", "addr"};
  PyObject* given[2] = {nullptr, nullptr};
  if (kwnames == nullptr && (nargs == 1 || nargs == 2)) [[likely]] {
    given[0] = args[0];
    given[1] = nargs == 2 ? args[1] : nullptr;
  } else if (!py::parse({"sendto", kNames, 1, 2}, args, nargs, kwnames, given)) {
    return nullptr;
  }
  if (!check_data(given[0], "data argument must be a bytes-like object, not %R")) {
    return nullptr;
  }
  if constexpr (!py::kSendsEmptyDatagrams) {
    const int truth =
        PyBytes_CheckExact(given[0]) ? static_cast<int>(PyBytes_GET_SIZE(given[0]) > 0) : PyObject_IsTrue(given[0]);
    if (truth <= 0) {
      return truth < 0 ? nullptr : Py_NewRef(Py_None);
    }
  }
  py::Ref<> alive = py::borrow(self_);
  if (!send(given[0], given[1] == Py_None ? nullptr : given[1])) {
    return nullptr;
  }
  Py_RETURN_NONE;
}

// Whether the address is the one that this transport sends to. False with ValueError set, or what comparing raised.
bool UDPTransport::check_address(PyObject* address) {
  if (address == nullptr || address == address_.get()) {
    return true;
  }
  for (PyObject* known : {Py_None, address_.get()}) {
    const int same = PyObject_RichCompareBool(known, address, Py_EQ);
    if (same != 0) {
      return same > 0;
    }
  }
  PyErr_Format(PyExc_ValueError, "Invalid address: must be None or %S", address_.get());
  return false;
}

// False with an exception set for the caller.
bool UDPTransport::send(PyObject* data, PyObject* given) {
  if (address_ && !check_address(given)) {
    return false;
  }
  py::Ref<> address = py::borrow(address_ ? address_.get() : given);
  // What may run code comes before the look at the state: audit hooks, a subclass's buffer.
  RawAddress raw;
  const bool is_known = !connected_ && address && addresses_.raw_of(family_, address.get(), &raw);
  bool ok = !is_known || PySys_Audit("socket.sendto", "OO", sock_.get(), address.get()) == 0;
  py::BufferView view;
  std::string_view bytes;
  if (PyBytes_CheckExact(data)) [[likely]] {
    bytes = {PyBytes_AS_STRING(data), static_cast<std::size_t>(PyBytes_GET_SIZE(data))};
  } else if (ok && backlog_.empty()) {
    ok = view.acquire(data, PyBUF_SIMPLE);
    bytes = ok ? std::string_view(view.data(), static_cast<std::size_t>(view.size())) : bytes;
  }
  if (lost_ || (conn_lost_ > 0 && address_)) {
    PyErr_Clear();
    return count_lost_write();
  }
  if (!ok) {
    return send_failed();
  }
  if (backlog_.empty()) {
    const Sent sent = connected_ || is_known ? transmit(bytes.data(), bytes.size(), is_known ? &raw : nullptr)
                                             : transmit_by_socket(data, address.get());
    if (sent != Sent::later) {
      return sent == Sent::yes || send_failed();
    }
    if (conn_lost_ > 0 || lost_) {
      return true;  // closing at the end of this turn: nobody will send it any more
    }
  }
  return keep(data, address.get()) && pause_protocol_if_full();
}

// One datagram to the kernel, to the peer where `to` is null. An exception is set when it failed.
UDPTransport::Sent UDPTransport::transmit(const char* data, std::size_t size, RawAddress* to) {
  const int error = send_datagram(fd_, data, size, to);
  if (error == 0) {
    return Sent::yes;
  }
  if (error == EAGAIN || error == EWOULDBLOCK) {
    return Sent::later;
  }
  py::raise_os_error(error);
  return Sent::failed;
}

// The same by sock.sendto(), which resolves a name and says what is wrong with an address.
UDPTransport::Sent UDPTransport::transmit_by_socket(PyObject* data, PyObject* address) {
  py::Ref<> sock = sock_.dup();
  if (py::call_method(sock.get(), loop().state().names.sendto, data, address != nullptr ? address : Py_None)) {
    return Sent::yes;
  }
  if (PyErr_ExceptionMatches(PyExc_BlockingIOError) != 0 || PyErr_ExceptionMatches(PyExc_InterruptedError) != 0) {
    PyErr_Clear();
    return Sent::later;
  }
  return Sent::failed;
}

// What asyncio makes of the exception that is set: the kernel's errors are the protocol's business, others are fatal.
// False with an exception set for the caller.
bool UDPTransport::send_failed() {
  py::Ref<> exc = py::take_error();
  if (PyErr_GivenExceptionMatches(exc.get(), PyExc_OSError) != 0) {
    return error_received(std::move(exc));
  }
  if (py::ends_the_loop(exc.get())) {
    py::restore_error(std::move(exc));
    return false;
  }
  return fatal_error(exc.get(), "Fatal write error on datagram transport");
}

// ---- the backlog

std::size_t UDPTransport::waiting() const { return backlog_.bytes() + backlog_.count() * py::kDatagramHeader; }

bool UDPTransport::keep(PyObject* data, PyObject* address) {
  py::Ref<> bytes = PyBytes_CheckExact(data) ? py::borrow(data) : py::steal(PyBytes_FromObject(data));
  if (!bytes) {
    return false;
  }
  if (!backlog_.empty()) {
    return backlog_.push(std::move(bytes), py::borrow(address));
  }
  write_context_ = context_from_now();
  if (!write_context_ || !backlog_.push(std::move(bytes), py::borrow(address))) {
    return false;
  }
  writing_ = true;
  if (!watch()) {
    py::SavedError error;
    writing_ = false;
    backlog_.clear();
    return false;
  }
  settle_hold();
  // A writer that somebody has on the descriptor is replaced, as asyncio's transports replace it.
  return loop().watchers().remove(loop(), fd_, core::kWritable) >= 0;
}

PyObject* UDPTransport::sendto_ready() {
  py::Ref<> alive = py::borrow(self_);
  if (!send_waiting()) {
    return nullptr;
  }
  Py_RETURN_NONE;
}

// What asyncio does when its writer is ready: sends until the kernel refuses; an error is the protocol's, and the rest
// waits for the next time. False with an exception set.
bool UDPTransport::send_waiting() {
  while (!backlog_.empty() && conn_lost_ == 0) {
    const Sent sent = transmit_waiting();
    if (sent == Sent::failed) {
      return send_failed();
    }
    if (sent == Sent::later) {
      break;
    }
  }
  if (conn_lost_ > 0 || lost_) {
    return true;
  }
  if (!resume_protocol_if_drained()) {  // may write again, or close
    loop().leave_with_error();
  }
  if (!backlog_.empty() || conn_lost_ > 0 || lost_) {
    return true;
  }
  writing_ = false;
  if (!watch()) {
    return false;
  }
  settle_hold();
  if (!closing_) {
    return true;
  }
  ++conn_lost_;
  return static_cast<bool>(py::steal(call_connection_lost(Py_None)));
}

// Sends from the front. What was sent has left the queue, and one that failed, too; its exception is set.
UDPTransport::Sent UDPTransport::transmit_waiting() {
  Outgoing batch[kDatagramsAtOnce];
  const unsigned count = fill(batch);
  if (count > 1) {
    const int sent = send_datagrams(fd_, batch, count);
    for (int i = 0; i < sent; ++i) {
      const Datagram gone = backlog_.pop();
    }
    if (sent > 0) {
      loop().count_datagrams(static_cast<unsigned>(sent));
      return Sent::yes;
    }
    if (sent == -EAGAIN || sent == -EWOULDBLOCK) {
      return Sent::later;
    }
    py::raise_os_error(-sent);
    py::SavedError error;
    const Datagram gone = backlog_.pop();
    return Sent::failed;
  }
  // The queue's own references may go while the socket runs code.
  py::Ref<> data = py::borrow(backlog_.data(0));
  py::Ref<> address = py::borrow(backlog_.address(0));
  const Sent sent = count == 1 ? transmit(batch[0].data, batch[0].size, batch[0].to.size > 0 ? &batch[0].to : nullptr)
                               : transmit_by_socket(data.get(), address.get());
  if (sent != Sent::later && !backlog_.empty() && backlog_.data(0) == data.get()) {
    py::SavedError error;
    const Datagram gone = backlog_.pop();
  }
  return sent;
}

// Describes what one system call may send from the front; none where the first needs the Python socket.
unsigned UDPTransport::fill(Outgoing* batch) {
  // On a connected internet socket one at a time: a pending error (ICMP) met by a later one of a batch would be lost, for
  // the call tells how many were sent and takes the error away.
  const std::size_t most = connected_ && family_ != AF_UNIX ? 1 : kDatagramsAtOnce;
  unsigned count = 0;
  for (; count < most && count < backlog_.count(); ++count) {
    Outgoing& one = batch[count];
    PyObject* data = backlog_.data(count);
    PyObject* address = backlog_.address(count);
    one.to.size = 0;
    if (!connected_ && (address == nullptr || !addresses_.raw_of(family_, address, &one.to))) {
      break;
    }
    one.data = PyBytes_AS_STRING(data);
    one.size = static_cast<std::size_t>(PyBytes_GET_SIZE(data));
  }
  return count;
}

}  // namespace uvpy::net
