// From a connected socket to its transport.
// SPDX-License-Identifier: MIT
#include "net/connection.h"

#include "net/tcp.h"
#include "net/unix.h"
#include "py/args.h"

namespace uvpy::net {

py::Ref<> make_transport(core::Loop& loop, int family, const Connection& connection) {
  switch (family) {
    case AF_INET:
    case AF_INET6:
      return TCPTransport::make(loop, loop.state().tcp_transport_type, connection);
    case AF_UNIX:
      return UnixTransport::make(loop, loop.state().unix_transport_type, connection);
    default:
      PyErr_Format(PyExc_ValueError, "no native transport for sockets of family %d", family);
      return {};
  }
}

PyObject* make_transport_method(PyObject* module, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames) {
  static constexpr const char* kNames[] = {"loop",   "sock",  "family", "protocol",
                                           "waiter", "extra", "server", "context"};
  enum { kLoop, kSock, kFamily, kProtocol, kWaiter, kExtra, kServer, kContext, kCount };
  PyObject* given[kCount];
  if (!py::parse({"make_transport", kNames, 4, kCount, true}, args, nargs, kwnames, given)) {
    return nullptr;
  }
  core::Loop* loop = core::loop_of(module, given[kLoop]);
  if (loop == nullptr || !loop->check_closed()) {
    return nullptr;
  }
  const int fd = PyObject_AsFileDescriptor(given[kSock]);
  const long family = fd < 0 ? -1 : PyLong_AsLong(given[kFamily]);
  if (fd < 0 || (family == -1 && PyErr_Occurred() != nullptr)) {
    return nullptr;
  }
  if (given[kExtra] != nullptr && given[kExtra] != Py_None && !PyDict_Check(given[kExtra])) {
    PyErr_SetString(PyExc_TypeError, "extra must be a dict or None");
    return nullptr;
  }
  return make_transport(*loop, static_cast<int>(family),
                        {.sock = given[kSock],
                         .fd = fd,
                         .protocol = given[kProtocol],
                         .waiter = given[kWaiter],
                         .extra = given[kExtra],
                         .server = given[kServer],
                         .context = given[kContext] == Py_None ? nullptr : given[kContext]})
      .release();
}

}  // namespace uvpy::net
