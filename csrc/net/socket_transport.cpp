// The part of transports that is about sockets. Called by the streams and datagram transports.
// SPDX-License-Identifier: MIT
#include "net/socket_transport.h"

#include "py/call.h"

namespace uvpy::net {

bool SocketTransport::begin_socket(core::Loop& loop, PyObject* self, int fd, PyObject* sock, PyObject* protocol,
                                   PyObject* extra, PyObject* server) {
  sock_ = py::borrow(sock);
  if (server != nullptr && server != Py_None) {
    server_ = py::borrow(server);
  }
  if (extra != nullptr && extra != Py_None) {
    extra_ = py::steal(PyDict_Copy(extra));
    if (!extra_) {
      return false;
    }
  }
  return begin(loop, self, fd, protocol);
}

py::Ref<> SocketTransport::context_from_now() const {
  return context_ ? context_.dup() : py::steal(PyContext_CopyCurrent());
}

void SocketTransport::keep_addresses(const RawAddress* own, const RawAddress* peer) {
  file_ = core::FileIdentity::of(fd_);
  const auto keep = [this](KeptAddress* kept, const RawAddress* known, auto ask) {
    RawAddress asked;
    if (known == nullptr) {
      asked.size = sizeof asked.storage;
      if (ask(fd_, asked.get(), &asked.size) < 0) {
        asked.size = 0;
        asked.storage.ss_family = AF_UNSPEC;
      }
      known = &asked;
    }
    kept->set(known->storage, known->size);
    return known->storage.ss_family;
  };
  family_ = keep(&own_, own, getsockname);
  keep(&peer_, peer, getpeername);
}

bool SocketTransport::lose_connection(PyObject* exc) {
  ++conn_lost_;
  return schedule_connection_lost(exc);
}

// ---- the server

bool SocketTransport::start_serving(PyObject* waiter) {
  const ModuleState& state = loop().state();
  if (server_) {
    PyObject* transport = py::kServerKnowsTransports ? self_ : nullptr;
    const bool attached = transport != nullptr
                              ? static_cast<bool>(py::call_method(server_.get(), state.names._attach, transport))
                              : static_cast<bool>(py::call_method(server_.get(), state.names._attach));
    if (!attached) {
      server_.reset();  // not attached: not to be detached
      return false;
    }
  }
  return schedule_start(waiter);
}

bool SocketTransport::leave_server() {
  if (!server_) {
    return true;
  }
  py::Ref<> server = std::move(server_);
  const ModuleState& state = loop().state();
  return py::kServerKnowsTransports ? static_cast<bool>(py::call_method(server.get(), state.names._detach, self_))
                                    : static_cast<bool>(py::call_method(server.get(), state.names._detach));
}

void SocketTransport::close_unclosed() {
  if (abandon_later()) {
    return;
  }
  lost_ = true;
  if (!is_our_descriptor()) {
    detach_socket();  // its number is another file's by now
  } else if (sock_ && !py::steal(PyObject_CallMethod(sock_.get(), "close", nullptr))) {
    PyErr_WriteUnraisable(self_);
  }
}

// ---- the Python socket

PyObject* SocketTransport::make_socket() {
  if (!sock_ && fd_ >= 0 && !lost_ && !loop_ended_) {
    const ModuleState& state = loop().state();
    py::Ref<> args = py::steal(Py_BuildValue("(iiii)", family_, type_, 0, fd_));
    py::Ref<> made = args ? py::steal(PyObject_CallObject(state.socket_type, args.get())) : py::Ref<>();
    if (!made || !py::call_method(made.get(), state.names.setblocking, Py_False)) {
      if (made) {
        // The descriptor stays ours.
        py::SavedError error;
        py::call_method(made.get(), state.names.detach);
      }
      return nullptr;
    }
    sock_ = std::move(made);
  }
  return sock_ ? sock_.get() : Py_None;
}

// socket.socket counts the files made from it in _io_refs, and closes its descriptor when the last of them has gone.
namespace {
bool add_to_io_refs(const ModuleState& state, PyObject* sock, long step) {
  py::Ref<> before = py::get_attr(sock, state.names._io_refs);
  const long count = before ? PyLong_AsLong(before.get()) : -1;
  py::Ref<> after = count < 0 ? py::Ref<>() : py::steal(PyLong_FromLong(count + step));
  return after && PyObject_SetAttr(sock, state.names._io_refs, after.get()) == 0;
}
}  // namespace

void SocketTransport::release_socket() {
  if (held_) {
    held_ = false;
    py::SavedError error;
    // Null where the collector has cleared us already.
    if (sock_ && !py::call_method(sock_.get(), loop().state().names._decref_socketios)) {
      PyErr_Clear();
    }
  }
}

bool SocketTransport::hold_socket() {
  held_ = sock_ && add_to_io_refs(loop().state(), sock_.get(), 1);
  return held_ || !sock_;
}

void SocketTransport::detach_socket() {
  if (sock_) {
    // The transport closes the descriptor; the Python socket must not do so a second time.
    py::SavedError error;
    const ModuleState& state = loop().state();
    if (!py::call_method(sock_.get(), state.names.detach) || (held_ && !add_to_io_refs(state, sock_.get(), -1))) {
      PyErr_Clear();
    }
    held_ = false;
  }
}

bool SocketTransport::fill_extra(PyObject* dict) {
  const ModuleState& state = loop().state();
  if (PyDict_Contains(dict, state.names.sockname) == 0) {
    py::Ref<> own = own_.object();
    if (!own || PyDict_SetItem(dict, state.names.sockname, own.get()) < 0) {
      return false;
    }
  }
  if (PyDict_Contains(dict, state.names.peername) == 0) {
    py::Ref<> peer = peer_.object();
    if (!peer || PyDict_SetItem(dict, state.names.peername, peer.get()) < 0) {
      return false;
    }
  }
  if (PyDict_Contains(dict, state.names.socket) == 0) {
    PyObject* sock = make_socket();
    if (sock == nullptr) {
      return false;
    }
    if (sock == Py_None) {
      // Closed before anybody asked: a socket object without a descriptor stands for it, as a closed one would.
      py::Ref<> args = py::steal(Py_BuildValue("(ii)", family_, type_));
      py::Ref<> closed = args ? py::steal(PyObject_CallObject(state.socket_type, args.get())) : py::Ref<>();
      py::Ref<> done = closed ? py::steal(PyObject_CallMethod(closed.get(), "close", nullptr)) : py::Ref<>();
      if (!done) {
        return false;
      }
      sock_ = std::move(closed);
      sock = sock_.get();
    }
    py::Ref<> shown = py::call(state.transport_socket, sock);
    if (!shown || PyDict_SetItem(dict, state.names.socket, shown.get()) < 0) {
      return false;
    }
  }
  return true;
}

PyObject* SocketTransport::describe_as(const char* kind) const {
  py::Ref<> peer = peer_address();
  return peer ? Py_BuildValue("{sssisOsssn}", "kind", kind, "fd", fd_, "peer", peer.get(), "state",
                              closing_ ? "closing" : "open", "waiting", static_cast<Py_ssize_t>(waiting()))
              : nullptr;
}

PyObject* SocketTransport::get_server() { return Py_NewRef(server_ ? server_.get() : Py_None); }

PyObject* SocketTransport::get_sock() {
  if (lost_) {
    Py_RETURN_NONE;
  }
  return Py_XNewRef(make_socket());
}

int SocketTransport::visit_socket(visitproc visit, void* arg) const {
  Py_VISIT(sock_.get());
  Py_VISIT(server_.get());
  Py_VISIT(context_.get());
  return visit_common(visit, arg);
}

void SocketTransport::clear_socket() {
  sock_.reset();
  server_.reset();
  context_.reset();
  clear_common();
}

}  // namespace uvpy::net
