// The common part of transports. Called by the streams; connection_made and connection_lost run as handles of the loop.
// SPDX-License-Identifier: MIT
#include "net/transport.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <cstddef>
#include <cstring>

#include "core/debug.h"
#include "core/report.h"
#include "py/args.h"
#include "py/call.h"
#include "py/mutant.h"

namespace uvpy::net {

py::Ref<> socket_address(const sockaddr_storage& address, socklen_t size) {
  char host[INET6_ADDRSTRLEN];
  if (size >= sizeof(sockaddr_in) && address.ss_family == AF_INET) {
    sockaddr_in in{};
    std::memcpy(&in, &address, sizeof in);
    inet_ntop(AF_INET, &in.sin_addr, host, sizeof host);
    return py::steal(Py_BuildValue("(si)", host, static_cast<int>(ntohs(in.sin_port))));
  }
  if (size >= sizeof(sockaddr_in6) && address.ss_family == AF_INET6) {
    sockaddr_in6 in{};
    std::memcpy(&in, &address, sizeof in);
    inet_ntop(AF_INET6, &in.sin6_addr, host, sizeof host);
    return py::steal(Py_BuildValue("(siII)", host, static_cast<int>(ntohs(in.sin6_port)),
                                   static_cast<unsigned>(ntohl(in.sin6_flowinfo)),
                                   static_cast<unsigned>(in.sin6_scope_id)));
  }
  constexpr std::size_t kPath = offsetof(sockaddr_un, sun_path);
  if (size >= kPath && address.ss_family == AF_UNIX) {
    const char* path = reinterpret_cast<const char*>(&address) + kPath;
    const auto length = static_cast<Py_ssize_t>(size - kPath);
    if (length > 0 && path[0] == '\0') {
      return py::steal(PyBytes_FromStringAndSize(path, length));  // abstract
    }
    return py::steal(PyUnicode_DecodeFSDefaultAndSize(path, static_cast<Py_ssize_t>(strnlen(path, size - kPath))));
  }
  return py::borrow(Py_None);
}

bool Transport::begin(core::Loop& loop, PyObject* self, int fd, PyObject* sock, PyObject* protocol, PyObject* extra,
                      PyObject* server) {
  self_ = self;
  loop_ = py::borrow(loop.object());
  sock_ = py::borrow(sock);
  fd_ = fd;
  if (server != nullptr && server != Py_None) {
    server_ = py::borrow(server);
  }
  if (extra != nullptr && extra != Py_None) {
    extra_ = py::steal(PyDict_Copy(extra));
    if (!extra_) {
      return false;
    }
  }
  context_ = py::steal(PyContext_CopyCurrent());
  return context_ && protocol_.set(loop, protocol);
}

void Transport::keep_addresses(const sockaddr_storage* peer, socklen_t peer_size) {
  own_size_ = sizeof own_;
  if (getsockname(fd_, reinterpret_cast<sockaddr*>(&own_), &own_size_) < 0) {
    own_size_ = 0;
  }
  family_ = own_.ss_family;
  struct stat found{};
  if (fstat(fd_, &found) == 0) {
    device_ = found.st_dev;
    inode_ = found.st_ino;
  }
  if (peer != nullptr) {
    peer_ = *peer;
    peer_size_ = peer_size;
    return;
  }
  peer_size_ = sizeof peer_;
  if (getpeername(fd_, reinterpret_cast<sockaddr*>(&peer_), &peer_size_) < 0) {
    peer_size_ = 0;
  }
}

bool Transport::schedule_start(PyObject* waiter) {
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
  py::Ref<> made = py::get_attr(protocol_.get(), state.names.connection_made);
  py::Ref<> start = made ? py::get_attr(self_, state.names._start_reading) : py::Ref<>();
  if (!start || !loop().call_soon_for(made.get(), self_) || !loop().call_soon_for(start.get(), nullptr)) {
    return false;
  }
  if (waiter == nullptr || waiter == Py_None) {
    return true;
  }
  // The waiter is woken only when connection_made has been called.
  PyObject* argv[] = {loop().object(), state.set_result_unless_cancelled, waiter, Py_None};
  return static_cast<bool>(py::steal(PyObject_VectorcallMethod(state.names.call_soon, argv, 4, nullptr)));
}

// ---- ending

bool Transport::schedule_connection_lost(PyObject* exc) {
  ++conn_lost_;
  py::Ref<> method = py::get_attr(self_, loop().state().names._call_connection_lost);
  if (!method || !loop().call_soon_for(method.get(), exc != nullptr ? exc : Py_None)) {
    return false;
  }
  if constexpr (py::mutant("connection-lost-twice")) {
    return loop().call_soon_for(method.get(), exc != nullptr ? exc : Py_None);
  }
  return true;
}

PyObject* Transport::call_connection_lost(PyObject* exc) {
  if (lost_ && !py::mutant("connection-lost-twice")) {
    Py_RETURN_NONE;
  }
  py::Ref<> alive = py::borrow(self_);
  lost_ = true;
  closing_ = true;
  bool ok = true;
  if (protocol_.get() != nullptr) {
    // In the caller's context: this runs as a handle, which brings its own.
    py::Ref<> protocol = py::borrow(protocol_.get());
    ok = static_cast<bool>(py::call_method(protocol.get(), loop().state().names.connection_lost, exc));
  }
  {
    // What follows must happen whatever the protocol did.
    py::SavedError error;
    settle();
    release_descriptor();
    if constexpr (!py::mutant("connection-lost-twice")) {
      protocol_.drop();
    }
    if (server_) {
      py::Ref<> server = std::move(server_);
      const ModuleState& state = loop().state();
      const bool detached = py::kServerKnowsTransports
                                ? static_cast<bool>(py::call_method(server.get(), state.names._detach, self_))
                                : static_cast<bool>(py::call_method(server.get(), state.names._detach));
      ok = detached && ok;
    }
  }
  if (!ok) {
    return nullptr;
  }
  Py_RETURN_NONE;
}

bool Transport::fatal_error(PyObject* exc, const char* message) {
  bool told = true;
  if (PyErr_GivenExceptionMatches(exc, PyExc_OSError) == 0) {
    told =
        core::report::call_exception_handler(loop(), message, exc, {"transport", self_}, {"protocol", protocol_.get()});
  } else if (loop().debug()) {
    told = core::debug::log_error(loop(), self_, message, exc);
  }
  if (told) {
    return force_close(exc);
  }
  py::SavedError error;  // the connection is lost all the same
  force_close(exc);
  return false;
}

bool Transport::fatal_os_error(py::Ref<>&& exc, const char* message) { return exc && fatal_error(exc.get(), message); }

void Transport::protocol_failed(const char* message) {
  py::Ref<> exc = py::take_error();
  if (py::ends_the_loop(exc.get())) {
    py::restore_error(std::move(exc));
    loop().leave_with_error();
  } else if (!fatal_error(exc.get(), message)) {
    loop().leave_with_error();
  }
}

void Transport::warn_unclosed() {
  if (lost_) {
    return;
  }
  py::SavedError error;
  if (!loop_ended_ && closing_) {
    return;  // __del__ called by hand, while connection_lost() is on its way
  }
  if (PyErr_ResourceWarning(self_, 1, "unclosed transport %R", self_) < 0) {
    PyErr_WriteUnraisable(self_);  // warnings may be errors: nobody is there to catch one
  }
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

// ---- extra info

PyObject* Transport::make_socket() {
  if (!sock_ && fd_ >= 0 && !lost_ && !loop_ended_) {
    const ModuleState& state = loop().state();
    py::Ref<> args = py::steal(Py_BuildValue("(iiii)", family_, static_cast<int>(SOCK_STREAM), 0, fd_));
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

bool Transport::is_our_descriptor() const {
  struct stat found{};
  return fstat(fd_, &found) == 0 && found.st_dev == device_ && found.st_ino == inode_;
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

void Transport::release_socket() {
  if (held_) {
    held_ = false;
    py::SavedError error;
    if (!py::call_method(sock_.get(), loop().state().names._decref_socketios)) {
      PyErr_Clear();
    }
  }
}

bool Transport::hold_socket() {
  held_ = sock_ && add_to_io_refs(loop().state(), sock_.get(), 1);
  return held_ || !sock_;
}

void Transport::detach_socket() {
  if (sock_) {
    // libuv closes the descriptor; the Python socket must not do so a second time.
    py::SavedError error;
    const ModuleState& state = loop().state();
    if (!py::call_method(sock_.get(), state.names.detach) || (held_ && !add_to_io_refs(state, sock_.get(), -1))) {
      PyErr_Clear();
    }
    held_ = false;
  }
}

PyObject* Transport::extra() {
  const ModuleState& state = loop().state();
  if (!extra_) {
    extra_ = py::steal(PyDict_New());
    if (!extra_) {
      return nullptr;
    }
  }
  PyObject* dict = extra_.get();
  if (PyDict_Contains(dict, state.names.sockname) == 0) {
    py::Ref<> own = socket_address(own_, own_size_);
    if (!own || PyDict_SetItem(dict, state.names.sockname, own.get()) < 0) {
      return nullptr;
    }
  }
  if (PyDict_Contains(dict, state.names.peername) == 0) {
    py::Ref<> peer = socket_address(peer_, peer_size_);
    if (!peer || PyDict_SetItem(dict, state.names.peername, peer.get()) < 0) {
      return nullptr;
    }
  }
  if (PyDict_Contains(dict, state.names.socket) == 0) {
    PyObject* sock = make_socket();
    if (sock == nullptr) {
      return nullptr;
    }
    if (sock == Py_None) {
      // Closed before anybody asked: a socket object without a descriptor stands for it, as a closed one would.
      py::Ref<> args = py::steal(Py_BuildValue("(ii)", family_, static_cast<int>(SOCK_STREAM)));
      py::Ref<> closed = args ? py::steal(PyObject_CallObject(state.socket_type, args.get())) : py::Ref<>();
      py::Ref<> done = closed ? py::steal(PyObject_CallMethod(closed.get(), "close", nullptr)) : py::Ref<>();
      if (!done) {
        return nullptr;
      }
      sock_ = std::move(closed);
      sock = sock_.get();
    }
    py::Ref<> shown = py::call(state.transport_socket, sock);
    if (!shown || PyDict_SetItem(dict, state.names.socket, shown.get()) < 0) {
      return nullptr;
    }
  }
  return dict;
}

// What asyncio's transports inherit, a test or a tracer may replace on asyncio's base class for all transports: the
// replacement, bound to this one as an inherited attribute would be. Null without an error where there is none.
py::Ref<> Transport::replaced_get_extra_info() const {
  const ModuleState& state = loop().state();
  py::Ref<> found = py::get_attr(state.flow_control_mixin, state.names.get_extra_info);
  if (!found || found.get() == state.base_get_extra_info) {
    return {};
  }
  const descrgetfunc bind = Py_TYPE(found.get())->tp_descr_get;
  return bind == nullptr ? std::move(found)
                         : py::steal(bind(found.get(), self_, reinterpret_cast<PyObject*>(Py_TYPE(self_))));
}

PyObject* Transport::get_extra_info(PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames) {
  if (py::Ref<> replaced = replaced_get_extra_info()) {
    return PyObject_Vectorcall(replaced.get(), args, static_cast<std::size_t>(nargs), kwnames);
  }
  if (PyErr_Occurred() != nullptr) {
    return nullptr;
  }
  static constexpr const char* kNames[] = {"name", "default"};
  PyObject* given[2];
  if (!py::parse({"get_extra_info", kNames, 1, 2}, args, nargs, kwnames, given)) {
    return nullptr;
  }
  PyObject* dict = extra();
  if (dict == nullptr) {
    return nullptr;
  }
  if (PyUnicode_Check(given[0]) && PyUnicode_Compare(given[0], loop().state().names.socket) == 0) {
    flush();  // who takes the socket may look at the wire
  }
  PyObject* found = PyDict_GetItemWithError(dict, given[0]);
  if (found == nullptr) {
    if (PyErr_Occurred() != nullptr) {
      return nullptr;
    }
    found = given[1] != nullptr ? given[1] : Py_None;
  }
  return Py_NewRef(found);
}

PyObject* Transport::is_closing() { return PyBool_FromLong(closing_ ? 1 : 0); }
PyObject* Transport::get_protocol() { return Py_NewRef(protocol_.get() != nullptr ? protocol_.get() : Py_None); }
PyObject* Transport::get_extra() { return Py_XNewRef(extra()); }
PyObject* Transport::get_loop() { return Py_NewRef(lost_ ? Py_None : loop_.get()); }
PyObject* Transport::get_server() { return Py_NewRef(server_ ? server_.get() : Py_None); }

PyObject* Transport::get_sock() {
  if (lost_) {
    Py_RETURN_NONE;
  }
  return Py_XNewRef(make_socket());
}

PyObject* Transport::get_sock_fd() { return PyLong_FromLong(fd_); }
PyObject* Transport::get_conn_lost() { return PyLong_FromUnsignedLong(conn_lost_); }

int Transport::visit_common(visitproc visit, void* arg) const {
  Py_VISIT(loop_.get());
  Py_VISIT(sock_.get());
  Py_VISIT(extra_.get());
  Py_VISIT(server_.get());
  Py_VISIT(context_.get());
  return protocol_.visit(visit, arg);
}

void Transport::clear_common() {
  // loop_ stays: methods lean on it.
  sock_.reset();
  extra_.reset();
  server_.reset();
  protocol_.drop();
}

}  // namespace uvpy::net
