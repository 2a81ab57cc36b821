// The Python type of datagram transports, and the function by which uvpy.Loop makes one. It is of asyncio's classes as
// asyncio's own datagram transport of this version is.
// SPDX-License-Identifier: MIT
#include "net/duplex_type.h"
#include "net/transport_type.h"
#include "net/udp.h"
#include "py/args.h"

namespace uvpy::net {

PyObject* UDPTransport::get_address() { return Py_NewRef(address_ ? address_.get() : Py_None); }

// A copy: what waits is not for others to change.
PyObject* UDPTransport::get_buffer() {
  py::Ref<> list = py::steal(PyList_New(0));
  for (std::size_t i = 0; list && i < backlog_.count(); ++i) {
    PyObject* address = backlog_.address(i);
    py::Ref<> pair = py::steal(PyTuple_Pack(2, backlog_.data(i), address != nullptr ? address : Py_None));
    if (!pair || PyList_Append(list.get(), pair.get()) < 0) {
      return nullptr;
    }
  }
  return list.release();
}

PyObject* make_datagram_transport(PyObject* module, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames) {
  static constexpr const char* kNames[] = {"loop", "sock", "family", "kind", "protocol", "address", "waiter", "extra"};
  enum { kLoop, kSock, kFamily, kType, kProtocol, kAddress, kWaiter, kExtra, kCount };
  PyObject* given[kCount];
  if (!py::parse({"make_datagram_transport", kNames, 5, kCount}, args, nargs, kwnames, given)) {
    return nullptr;
  }
  core::Loop* loop = core::loop_of(module, given[kLoop]);
  if (loop == nullptr || !loop->check_closed()) {
    return nullptr;
  }
  const long family = PyLong_AsLong(given[kFamily]);
  const long type = PyErr_Occurred() == nullptr ? PyLong_AsLong(given[kType]) : -1;
  if (PyErr_Occurred() != nullptr) {
    return nullptr;
  }
  if (family != AF_INET && family != AF_INET6 && family != AF_UNIX) {
    PyErr_Format(PyExc_ValueError, "no native transport for sockets of family %ld", family);
    return nullptr;
  }
  if (given[kExtra] != nullptr && given[kExtra] != Py_None && !PyDict_Check(given[kExtra])) {
    PyErr_SetString(PyExc_TypeError, "extra must be a dict or None");
    return nullptr;
  }
  // An address that is not true restricts nothing.
  PyObject* address = given[kAddress];
  const int restricts = address != nullptr ? PyObject_IsTrue(address) : 0;
  if (restricts < 0) {
    return nullptr;
  }
  return UDPTransport::make(*loop, {.sock = given[kSock],
                                    .family = static_cast<int>(family),
                                    .type = static_cast<int>(type),
                                    .protocol = given[kProtocol],
                                    .address = restricts != 0 ? address : nullptr,
                                    .waiter = given[kWaiter],
                                    .extra = given[kExtra]})
      .release();
}

// ---- tables

namespace {

PyObject* repr(PyObject* self) { return py::state_of<UDPTransport>(self)->repr(); }

using Rows = DuplexRows<UDPTransport>;

auto attributes = py::table_of(
    Rows::attributes(),
    std::array{
        Rows::getter<&UDPTransport::get_address>("_address", "The only address to send to, or None."),
        Rows::getter<&UDPTransport::get_buffer>("_buffer", "The datagrams that wait, with their addresses: a copy."),
        Rows::getter<&Duplex::get_write_buffer_size>("_buffer_size", "As get_write_buffer_size()."),
    });

auto methods = py::table_of(
    Rows::methods(),
    std::array{
        Rows::method<&UDPTransport::sendto>(
            "sendto", "sendto($self, data, addr=None)\n--\n\nSend a datagram, now or as soon as the kernel takes it."),
        Rows::method<&UDPTransport::close>(
            "close", "close($self)\n--\n\nSend what is waiting, then close; connection_lost(None) follows."),
        Rows::method<&UDPTransport::abort>(
            "abort", "abort($self)\n--\n\nClose at once, dropping what is waiting; connection_lost(None) follows."),
        Rows::method<&UDPTransport::force_close_method>("_force_close", "Close at once because of an exception."),
        Rows::method<&UDPTransport::read_ready>("_read_ready", "Receive a datagram and deliver it."),
        Rows::method<&UDPTransport::sendto_ready>("_sendto_ready", "Send what is waiting."),
    });

}  // namespace

PyTypeObject* make_udp_transport_type(PyObject* module, ModuleState* state) {
  const int is_datagram = PyObject_IsSubclass(state->selector_datagrams, state->datagram_transport);
  py::Ref<> bases = is_datagram > 0 ? py::steal(PyTuple_Pack(2, state->flow_control_mixin, state->datagram_transport))
                                    : py::steal(PyTuple_Pack(1, state->flow_control_mixin));
  if (is_datagram < 0 || !bases) {
    return nullptr;
  }
  const PyType_Slot more[] = {
      {Py_tp_repr, reinterpret_cast<void*>(&repr)},
      {Py_tp_getset, attributes.data()},
      {Py_tp_methods, methods.data()},
  };
  // Not immutable, as the types of streams.
  py::Ref<> type = py::steal(reinterpret_cast<PyObject*>(
      make_transport_type<UDPTransport>(module, {"uvpy._core.UDPTransport", "Datagrams; see asyncio.DatagramTransport.",
                                                 more, Py_TPFLAGS_DISALLOW_INSTANTIATION, bases.get()})));
  py::Ref<> longest = py::steal(PyLong_FromSize_t(core::Loop::kSlabSize));
  if (!type || !longest || PyObject_SetAttrString(type.get(), "max_size", longest.get()) < 0) {
    return nullptr;
  }
  return reinterpret_cast<PyTypeObject*>(type.release());
}

}  // namespace uvpy::net
