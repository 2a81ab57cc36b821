// SocketStream: what the types of streams over connected sockets share: taking a descriptor over from a Python socket or
// from accept, and the Python type. TCPTransport and UnixTransport are two
// lines each beside it. They are asyncio.Transports by type: they derive, in C, from asyncio's _FlowControlMixin, which
// the sendfile fallback demands.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>

#include "core/report.h"
#include "net/duplex_type.h"
#include "net/stream.h"
#include "net/transport_type.h"
#include "py/call.h"

namespace uvpy::net {

// What a new transport is made from.
struct Connection {
  PyObject* sock = nullptr;  // null: `fd` alone
  int fd = -1;
  PyObject* protocol = nullptr;
  PyObject* waiter = nullptr;
  PyObject* extra = nullptr;
  PyObject* server = nullptr;
  PyObject* context = nullptr;  // to be kept; null: none
  bool tuned = false;           // tune() would change nothing
  // Null: to be asked of the kernel.
  const RawAddress* own = nullptr;
  const RawAddress* peer = nullptr;
};

// Self is the final class. It has kName and kKind, and static tune(fd).
template <class Self>
class SocketStream : public Stream {
 public:
  static constexpr bool kWeakrefs = true;
  static constexpr bool kDict = true;
  static constexpr bool kFinalizer = true;
  static constexpr std::size_t kBaseWords = 5;  // the slots of asyncio's BaseTransport and _FlowControlMixin

  // A new transport that has taken the descriptor over; null with an exception set, the descriptor still the caller's.
  static py::Ref<> make(core::Loop& loop, PyTypeObject* type, const Connection& connection) {
    py::Ref<> self = py::steal(py::create<Self>(type));
    if (!self || !py::state_of<Self>(self.get())->take_over(loop, self.get(), connection)) {
      return {};
    }
    return self;
  }

  PyObject* describe() const final { return describe_as(Self::kKind); }
  PyObject* repr() { return repr_with(Self::kName); }
  void finalize() { warn_unclosed(); }
  int visit(visitproc visit, void* arg) { return visit_stream(visit, arg); }
  void clear() { clear_stream(); }

 protected:
  ~SocketStream() = default;

 private:
  bool take_over(core::Loop& loop, PyObject* self, const Connection& connection) {
    lost_ = true;  // nothing to warn about until the descriptor is ours
    if (!begin_socket(loop, self, connection.fd, connection.sock, connection.protocol, connection.extra,
                      connection.server)) {
      return false;
    }
    if (connection.context != nullptr) {
      context_ = py::borrow(connection.context);
    }
    opened();
    keep_addresses(connection.own, connection.peer);
    if (!connection.tuned) {
      Self::tune(fd_);
    }
    lost_ = false;
    if (hold_socket() && loop.watchers().set_transport(fd_, self) && start_serving(connection.waiter)) {
      return true;
    }
    py::SavedError error;
    give_back();
    return false;
  }

  // The caller keeps the descriptor after a failure.
  void give_back() {
    lost_ = true;
    closing_ = true;
    ++conn_lost_;
    give_up_descriptor();
    sock_.reset();
  }
};

// What the stream types have beyond every transport's rows, for a boxed class T.
template <class T>
struct StreamTables {
  template <auto F>
  static PyMethodDef method(const char* name, const char* doc) {
    return py::method_of<T, F>(name, doc);
  }
  template <auto F, py::Name Method, py::Name Parameter>
  static PyMethodDef keyword_method(const char* doc) {
    return py::keyword_method_of<T, F, Method, Parameter>(doc);
  }
  static PyObject* repr(PyObject* self) { return py::state_of<T>(self)->repr(); }

  static inline auto attributes = py::table_of(DuplexRows<T>::attributes(), std::array<PyGetSetDef, 0>{});
  static inline auto methods = py::table_of(
      DuplexRows<T>::methods(),
      std::array{
          method<&Stream::close>(
              "close", "close($self)\n--\n\nSend what is waiting, then close; connection_lost(None) follows."),
          method<&Stream::abort>(
              "abort", "abort($self)\n--\n\nClose at once, dropping what is waiting; connection_lost(None) follows."),
          keyword_method<&Stream::write, "write", "data">(
              "write($self, data)\n--\n\nSend bytes, now or as soon as the peer takes them."),
          keyword_method<&Stream::writelines, "writelines", "list_of_data">(
              "writelines($self, list_of_data)\n--\n\nSend several chunks of bytes with one system call."),
          method<&Stream::write_eof>("write_eof",
                                     "write_eof($self)\n--\n\nClose the write side when everything is sent."),
          method<&Stream::can_write_eof>("can_write_eof", "can_write_eof($self)\n--\n\nTrue."),
          method<&Stream::force_close_method>("_force_close", "Close at once because of an exception."),
          method<&Stream::close_deferred>("_close_deferred", "Do what another thread's close asked for."),
          method<&Stream::flush_method>("_flush", "Send what another thread wrote."),
          method<&Stream::drained_method>("_drained", "Tell the protocol that its data is sent."),
          method<&Stream::lend_descriptor>("_lend_descriptor", "Let sendfile watch the descriptor, or take it back."),
          method<&Stream::unread>("_unread", "Deliver these bytes, already taken by a reader, before what comes next."),
          method<&Stream::abandon>("_abandon", "Close what nobody wants any more."),
          method<&Stream::read_ready>("_read_ready", "Read what has come and deliver it."),
          method<&Stream::deliver_unread>("_deliver_unread", "Deliver what _unread() put back."),
          method<&Stream::make_empty_waiter>("_make_empty_waiter", "A future that is done when everything is sent."),
          method<&Stream::reset_empty_waiter>("_reset_empty_waiter", "Allow writes again."),
      });
};

// Makes the type of a stream. Null with an exception set.
template <class T>
PyTypeObject* make_stream_type(PyObject* module, ModuleState* state, const char* name, const char* doc) {
  using Tables = StreamTables<T>;
  const PyType_Slot more[] = {
      {Py_tp_repr, reinterpret_cast<void*>(&Tables::repr)},
      {Py_tp_getset, Tables::attributes.data()},
      {Py_tp_methods, Tables::methods.data()},
  };
  // Not immutable: its base is written in Python and is not (an error from 3.14 on).
  py::Ref<> type = py::steal(reinterpret_cast<PyObject*>(
      make_transport_type<T>(module, {name, doc, more, Py_TPFLAGS_DISALLOW_INSTANTIATION, state->flow_control_mixin})));
  py::Ref<> sendfile = py::steal(PyObject_GetAttrString(state->sendfile_mode, "TRY_NATIVE"));
  if (!type || !sendfile || PyObject_SetAttrString(type.get(), "_start_tls_compatible", Py_True) < 0 ||
      PyObject_SetAttrString(type.get(), "_sendfile_compatible", sendfile.get()) < 0) {
    return nullptr;
  }
  return reinterpret_cast<PyTypeObject*>(type.release());
}

}  // namespace uvpy::net
