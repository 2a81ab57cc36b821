// Transport: what every transport has: its socket and extra info, the protocol, the server it belongs to, closing, and
// the calls of connection_made and connection_lost. Streams build on it. The laws of asyncio's own transports hold:
// connection_made comes by call_soon, reading starts after it; connection_lost comes once, by call_soon, last of all.
// SPDX-License-Identifier: MIT
#pragma once

#include <sys/socket.h>
#include <sys/types.h>

#include "core/loop.h"
#include "core/resource.h"
#include "net/protocol.h"
#include "py/ref.h"

namespace uvpy::net {

class Transport : public core::Resource {
 public:
  Transport() = default;
  Transport(const Transport&) = delete;
  Transport& operator=(const Transport&) = delete;

  core::Loop& loop() const { return *py::state_of<core::Loop>(loop_.get()); }
  PyObject* object() const final { return self_; }
  int fd() const { return fd_; }

  // ---- asyncio's methods and the attributes that its code and libraries read
  PyObject* get_extra_info(PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames);
  PyObject* is_closing();
  PyObject* get_protocol();
  PyObject* get_extra();
  PyObject* get_loop();
  PyObject* get_server();
  PyObject* get_sock();
  PyObject* get_sock_fd();
  PyObject* get_conn_lost();
  PyObject* call_connection_lost(PyObject* exc);

 protected:
  ~Transport() = default;

  // Sets what is common; `sock` is a Python socket, or null for one that is made when somebody asks for it.
  bool begin(core::Loop& loop, PyObject* self, int fd, PyObject* sock, PyObject* protocol, PyObject* extra,
             PyObject* server);
  // Addresses as the kernel has them, kept raw; the Python tuples are made on demand.
  void keep_addresses(const sockaddr_storage* peer, socklen_t peer_size);
  // call_soon(connection_made), call_soon(_start_reading), and the waiter after both.
  bool schedule_start(PyObject* waiter);
  // call_soon(_call_connection_lost, exc). Like the others that say bool: false with an exception set, which a method
  // gives to its caller and a libuv callback to Loop::leave_with_error.
  bool schedule_connection_lost(PyObject* exc);
  // asyncio's _fatal_error: an OSError is logged in debug mode, anything else goes to the exception handler; then the
  // connection is lost with it.
  bool fatal_error(PyObject* exc, const char* message);
  bool fatal_os_error(py::Ref<>&& exc, const char* message);
  // The current exception of a protocol method: fatal for the connection, or for the run.
  void protocol_failed(const char* message);
  virtual bool force_close(PyObject* exc) = 0;
  // After connection_lost: the descriptor is given back.
  virtual void release_descriptor() = 0;
  // The loop has closed under the transport: a socket that Python knows stays open, as it does under asyncio's, until the
  // transport is collected; a bare descriptor is closed.
  virtual void leave_descriptor() = 0;
  // For the finalizer: closes what is open, keeping the object alive until that is done. False with nothing open.
  virtual bool abandon_later() = 0;
  // What connection_lost leaves to the stream to settle.
  virtual void settle() = 0;

  // What asyncio's __del__ says of a transport that nobody closed.
  void warn_unclosed();

  py::Ref<> replaced_get_extra_info() const;
  // The dict behind get_extra_info, made when first asked for.
  PyObject* extra();
  PyObject* make_socket();
  // Holds the Python socket's descriptor open: its owner's close() only marks it, until detach_socket().
  bool hold_socket();
  void detach_socket();
  // Gives a socket back to its owner, as it was; one that its owner has closed meanwhile closes now.
  void release_socket();
  // Whether the number still means the socket that was opened; somebody may have closed it, and opened another file.
  bool is_our_descriptor() const;
  // Gives libuv's handle up without closing what the number means now.
  virtual void forget_descriptor() = 0;

  int visit_common(visitproc visit, void* arg) const;
  void clear_common();

  PyObject* self_ = nullptr;
  py::Ref<> loop_;
  py::Ref<> sock_;
  py::Ref<> extra_;
  py::Ref<> server_;
  py::Ref<> context_;  // the callbacks' context
  Protocol protocol_;
  int fd_ = -1;
  int family_ = 0;
  unsigned conn_lost_ = 0;  // how often connection_lost was asked for, and writes after it
  bool closing_ = false;
  bool lost_ = false;  // connection_lost has come
  bool loop_ended_ = false;
  bool held_ = false;  // hold_socket() holds

 private:
  socklen_t own_size_ = 0;
  socklen_t peer_size_ = 0;
  dev_t device_ = 0;
  ino_t inode_ = 0;
  sockaddr_storage own_{};
  sockaddr_storage peer_{};
};

// As the socket module gives it: (host, port), (host, port, flowinfo, scope_id), or a Unix path; None without an address.
py::Ref<> socket_address(const sockaddr_storage& address, socklen_t size);

}  // namespace uvpy::net
