// SocketTransport: what the transports over sockets have beside what every transport has: the Python socket, addresses, the
// server they belong to, and a descriptor that is given back once. Streams build on it.
// SPDX-License-Identifier: MIT
#pragma once

#include <sys/socket.h>

#include "core/file_identity.h"
#include "net/kept_address.h"
#include "net/transport.h"

namespace uvpy::net {

class SocketTransport : public Transport {
 public:
  PyObject* get_server();
  PyObject* get_sock();

 protected:
  ~SocketTransport() = default;

  // `sock` is a Python socket, or null for one that is made when somebody asks for it.
  bool begin_socket(core::Loop& loop, PyObject* self, int fd, PyObject* sock, PyObject* protocol, PyObject* extra,
                    PyObject* server);
  // Addresses as the kernel has them, kept raw; the Python tuples are made on demand.
  // What is null is asked of the kernel.
  void keep_addresses(const RawAddress* own, const RawAddress* peer);
  py::Ref<> peer_address() const { return peer_.object(); }
  // Joins the server, then as every transport.
  bool start_serving(PyObject* waiter);
  bool leave_server() final;
  // schedule_connection_lost(), after which what is written is dropped.
  bool lose_connection(PyObject* exc);
  // The loop has closed under the transport: a socket that Python knows stays open, as it does under asyncio's, until the
  // transport is collected; a bare descriptor is closed.
  virtual void leave_descriptor() = 0;
  // For the finalizer: closes what is open, keeping the object alive until that is done. False with nothing open.
  virtual bool abandon_later() = 0;
  void close_unclosed() final;

  bool fill_extra(PyObject* dict) final;
  PyObject* make_socket();
  PyObject* own_context() const final { return context_.get(); }
  // For a reader or writer that begins now: the transport's own context, or a copy of the caller's.
  py::Ref<> context_from_now() const;
  // Holds the Python socket's descriptor open: its owner's close() only marks it, until detach_socket().
  bool hold_socket();
  void detach_socket();
  // Gives a socket back to its owner, as it was; one that its owner has closed meanwhile closes now.
  void release_socket();
  // Whether the number still means the socket that was opened; somebody may have closed it, and opened another file.
  bool is_our_descriptor() const { return file_.is(fd_); }

  PyObject* describe_as(const char* kind) const;
  int visit_socket(visitproc visit, void* arg) const;
  void clear_socket();

  py::Ref<> sock_;
  py::Ref<> server_;
  py::Ref<> context_;  // given to be kept, from 3.15 on; a transport without runs its callbacks in those of its callers
  int family_ = 0;
  int type_ = SOCK_STREAM;
  bool held_ = false;  // hold_socket() holds

 private:
  core::FileIdentity file_;
  KeptAddress own_;
  KeptAddress peer_;
};

}  // namespace uvpy::net
