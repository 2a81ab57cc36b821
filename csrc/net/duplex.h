// Duplex: what a transport with two directions has, whatever it carries: reading that can be paused, and a write side
// with water marks that pauses and resumes the protocol. Streams and datagram transports build on it; it neither reads
// nor writes.
// SPDX-License-Identifier: MIT
#pragma once

#include "net/socket_transport.h"

namespace uvpy::net {

class Duplex : public SocketTransport {
 public:
  // ---- asyncio's methods
  virtual PyObject* start_reading() = 0;
  PyObject* settle_reading();
  PyObject* set_protocol(PyObject* protocol);
  PyObject* get_write_buffer_size();
  PyObject* get_protocol_connected();
  PyObject* add_reader_method(PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames);

 protected:
  ~Duplex() = default;

  virtual void stop() = 0;
  bool stop_reading() final;
  bool go_on_reading() final;

  bool must_defer() const { return loop().gil().given(); }
  bool defer(PyObject* name, PyObject* arg);
  // Whether data is what write() and sendto() take; TypeError set where not.
  static bool check_data(PyObject* data, const char* refusal);
  using Transport::count_lost_write;
  bool count_lost_write() { return count_lost_write("socket.send() raised exception."); }
  PyObject* repr_with(const char* name);
  int visit_duplex(visitproc visit, void* arg) const;
  void clear_duplex();

  py::Ref<> read_context_;   // of whoever started reading, as asyncio's reader handle has it
  py::Ref<> write_context_;  // of the write that began what is waiting
  bool reading_ = false;     // the kernel is watched
};

}  // namespace uvpy::net
