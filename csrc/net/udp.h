// UDPTransport: datagrams over a socket of the program's, internet or Unix, connected or not. The descriptor is watched by
// the loop's own watchers; libuv knows nothing of it, and the Python socket closes it. A datagram in: watchers -> recvmmsg
// -> held -> one a round to the protocol. One out: sendto -> at once; what the kernel refuses waits -> sendmmsg.
// SPDX-License-Identifier: MIT
#pragma once

#include "net/datagram_io.h"
#include "net/datagram_queue.h"
#include "net/duplex.h"

namespace uvpy::net {

class UDPTransport final : public Duplex {
 public:
  static constexpr bool kWeakrefs = true;
  static constexpr bool kDict = true;
  static constexpr bool kFinalizer = true;
  static constexpr std::size_t kBaseWords = 5;  // as SocketStream

  struct Endpoint {
    PyObject* sock;
    int family;
    int type;
    PyObject* protocol;
    PyObject* address;  // the only one to send to, or null
    PyObject* waiter;
    PyObject* extra;
  };
  // Null with an exception set, the descriptor still the caller's.
  static py::Ref<> make(core::Loop& loop, const Endpoint& endpoint);

  void end_with_loop() override;
  void leak() override { lost_ = true; }
  void forget_input() override { held_.clear(); }
  void hand_on() override;
  PyObject* describe() const override;

  // ---- asyncio's methods
  PyObject* sendto(PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames);
  PyObject* close();
  PyObject* abort();
  PyObject* force_close_method(PyObject* exc);
  PyObject* start_reading() override;
  PyObject* read_ready();
  PyObject* sendto_ready();
  PyObject* get_address();
  PyObject* get_buffer();
  PyObject* repr() { return repr_with("UDPTransport"); }

  void finalize() { warn_unclosed(); }
  int visit(visitproc visit, void* arg);
  void clear();

 private:
  bool take_over(core::Loop& loop, PyObject* self, const Endpoint& endpoint);
  bool find_out_connected(PyObject* extra);
  bool watch();
  void settle_hold();

  // ---- what the transport has to say
  void stop() override;
  std::size_t waiting() const override;
  bool force_close(PyObject* exc) override;
  bool release_descriptor() override;
  void leave_descriptor() override {}
  bool abandon_later() override;
  void settle() override;

  // ---- receiving
  static void on_ready(void* owner, unsigned ready);
  void readable();
  void writable();
  using Step = bool (UDPTransport::*)();
  void run_in_poll(Step step, PyObject* context, PyObject* name);
  bool receive_one();
  bool receive();
  bool call_protocol(PyObject* name, PyObject* first, PyObject* second);
  bool error_received(py::Ref<>&& exc);

  // ---- sending
  enum class Sent { yes, later, failed };
  bool check_address(PyObject* address);
  bool send(PyObject* data, PyObject* given);
  Sent transmit(const char* data, std::size_t size, RawAddress* to);
  Sent transmit_by_socket(PyObject* data, PyObject* address);
  bool send_failed();
  bool keep(PyObject* data, PyObject* address);
  bool send_waiting();
  Sent transmit_waiting();
  unsigned fill(Outgoing* batch);

  DatagramQueue held_;     // received ahead of their turn
  DatagramQueue backlog_;  // to be sent
  AddressCache addresses_;
  py::Ref<> address_;
  unsigned expected_ = 2;  // datagrams, as the last reads have been
  unsigned singles_ = 0;   // how often one came alone
  bool connected_ = false;
  bool writing_ = false;  // watched for writing, which may outlast the backlog by an event
  bool in_poll_ = false;  // the protocol is called in the poll, not by a handle
};

// The text of the type's methods is in udp_type.cpp.
PyTypeObject* make_udp_transport_type(PyObject* module, ModuleState* state);
// make_datagram_transport(loop, sock, family, kind, protocol, address, waiter, extra), a function of the module.
PyObject* make_datagram_transport(PyObject* module, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames);

}  // namespace uvpy::net
