// Transport: what every transport has: the protocol, extra info, the marks of its write buffer, closing, and the calls of
// connection_made and connection_lost. Sockets (socket_transport.h) and pipes (pipe.h) build on it. The laws of asyncio's
// own transports hold: connection_made comes by call_soon, reading starts after it; connection_lost comes once, last of all.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>

#include "core/loop.h"
#include "core/resource.h"
#include "net/flow.h"
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
  PyObject* get_fd();
  PyObject* get_conn_lost();
  PyObject* is_reading();
  PyObject* pause_reading();
  PyObject* resume_reading();
  PyObject* get_paused();
  PyObject* get_protocol_paused();
  PyObject* get_high_water();
  PyObject* get_low_water();
  // What asyncio's mixin for flow control sets; null to delete.
  int set_protocol_paused(PyObject* value);
  int set_high_water(PyObject* value);
  int set_low_water(PyObject* value);
  PyObject* get_write_buffer_limits();
  PyObject* set_write_buffer_limits(PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames);
  PyObject* call_connection_lost(PyObject* exc);
  PyObject* fatal_error_method(PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames);

 protected:
  ~Transport() = default;

  // Sets what is common.
  bool begin(core::Loop& loop, PyObject* self, int fd, PyObject* protocol);
  // What the transport's handles have for their context where it was given one to keep; null: the one they are made in.
  virtual PyObject* own_context() const { return nullptr; }
  // call_soon of what begins to read.
  virtual bool schedule_reading();
  // What _fatal_error() says where it is told nothing.
  virtual const char* default_error() const { return "Fatal error on transport"; }
  // call_soon(connection_made), schedule_reading() where something is to be read, and the waiter after both.
  bool schedule_start(PyObject* waiter, bool reads = true);
  // call_soon(_call_connection_lost, exc). Like the others that say bool: false with an exception set, which a method
  // gives to its caller and a callback of the poll to Loop::leave_with_error.
  bool schedule_connection_lost(PyObject* exc);
  // asyncio's _fatal_error: an OSError is logged in debug mode, anything else goes to the exception handler; then the
  // connection is lost with it.
  bool fatal_error(PyObject* exc, const char* message);
  bool fatal_os_error(py::Ref<>&& exc, const char* message);
  // Which errors fatal_error() does not report.
  virtual bool is_everyday_error(PyObject* exc) const;
  // The current exception of a protocol method: fatal for the connection, or for the run.
  void protocol_failed(const char* message);
  virtual bool force_close(PyObject* exc) = 0;
  // After connection_lost: the descriptor is given back. False with an exception set.
  virtual bool release_descriptor() = 0;
  // What connection_lost leaves to the kind of transport to settle.
  virtual void settle() {}
  // After connection_lost, last of all. False with an exception set.
  virtual bool leave_server() { return true; }

  // What asyncio's __del__ says of a transport that nobody closed; then it is closed.
  void warn_unclosed();
  virtual void close_unclosed() = 0;

  py::Ref<> replaced_get_extra_info() const;
  // The dict behind get_extra_info, made when first asked for.
  PyObject* extra();
  virtual bool fill_extra(PyObject* dict);

  // A write after the connection was lost: counted, and from the fifth on warned of. False with an exception set.
  bool count_lost_write(const char* warning);

  // ---- reading that can be paused, of those that have it
  // Each brings the watching in line with paused_. False with an exception set.
  virtual bool stop_reading() { return true; }
  virtual bool go_on_reading() { return true; }

  // ---- flow control
  // Bytes that were written and the kernel has not taken.
  virtual std::size_t waiting() const { return 0; }
  // pause_writing() and resume_writing(). False with an exception set that ends the run; any other is reported.
  bool tell_protocol(PyObject* name, const char* message);
  bool pause_protocol_if_full();
  bool resume_protocol_if_drained();

  int visit_common(visitproc visit, void* arg) const;
  void clear_common();

  PyObject* self_ = nullptr;
  py::Ref<> loop_;
  py::Ref<> extra_;
  Protocol protocol_;
  Flow flow_;
  int fd_ = -1;
  unsigned conn_lost_ = 0;  // as asyncio counts: what came after the connection was lost
  bool paused_ = false;
  bool closing_ = false;
  bool lost_ = false;  // connection_lost has come
  bool loop_ended_ = false;
};

}  // namespace uvpy::net
