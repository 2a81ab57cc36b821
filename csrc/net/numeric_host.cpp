// Only for the plainest arguments: what is left out is not refused, it is the socket module's. Whatever is answered here is what
// the resolver would say: it is not asked because encoding the host by a codec in Python costs twice what the answer does.
// SPDX-License-Identifier: MIT
#include "net/numeric_host.h"

#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cstddef>
#include <iterator>

#include "core/loop.h"
#include "net/address.h"
#include "py/ref.h"
#include "state.h"

namespace uvpy::net {

namespace {

struct Kind {
  int type;
  int proto;
};

constexpr Kind kKinds[] = {
    {SOCK_STREAM, IPPROTO_TCP},
    {SOCK_DGRAM, IPPROTO_UDP},
#ifdef __GLIBC__
    {SOCK_RAW, IPPROTO_IP},  // its resolver's third answer to whoever asks for no kind
#endif
};

// Those that say nothing about a host and a port that are numbers.
constexpr int kIdleFlags = AI_PASSIVE | AI_NUMERICHOST | AI_NUMERICSERV;

bool read_int(PyObject* object, int* value) {
  if (!PyLong_Check(object)) {
    return false;
  }
  int overflow = 0;
  const long read = PyLong_AsLongAndOverflow(object, &overflow);
  *value = static_cast<int>(read);
  return overflow == 0 && *value == read;
}

// The address as getaddrinfo() gives it, and its family; null, perhaps with an exception set, for what is not plain.
py::Ref<> plain_address(PyObject* host, PyObject* port, int* family) {
  py::Ref<> given =
      port == Py_None ? py::steal(Py_BuildValue("(Oi)", host, 0)) : py::steal(PyTuple_Pack(2, host, port));
  RawAddress raw;
  if (!given) {
    return {};
  }
  if (*family != AF_INET6 && read_address(AF_INET, given.get(), &raw)) {
    *family = AF_INET;
    return given;  // inet_pton() takes no other spelling than the one that the resolver gives back
  }
  if (*family != AF_INET && read_address(AF_INET6, given.get(), &raw)) {
    *family = AF_INET6;
    return socket_address(raw.storage, raw.size);
  }
  return {};
}

}  // namespace

PyObject* numeric_getaddrinfo(PyObject* module, PyObject* const* args, Py_ssize_t nargs, PyObject*) {
  core::Loop* loop = nargs == 7 ? core::loop_of(module, args[0]) : nullptr;
  if (loop == nullptr || !loop->check_closed()) {
    if (PyErr_Occurred() == nullptr) {
      PyErr_SetString(PyExc_TypeError, "numeric_getaddrinfo() takes 7 arguments");
    }
    return nullptr;
  }
  PyObject* host = args[1];
  PyObject* port = args[2];
  int family = 0;
  int type = 0;
  int proto = 0;
  int flags = 0;
  if (!read_int(args[3], &family) || !read_int(args[4], &type) || !read_int(args[5], &proto) ||
      !read_int(args[6], &flags) || (flags & ~kIdleFlags) != 0 ||
      (family != AF_UNSPEC && family != AF_INET && family != AF_INET6)) {
    Py_RETURN_NONE;
  }
  Kind found[std::size(kKinds)];
  std::size_t count = 0;
  for (const Kind& kind : kKinds) {
    // A raw socket has the protocol that is asked for, which is no matter for us.
    const bool fits = (type == 0 || type == kind.type) && (proto == 0 || proto == kind.proto);
    if (fits && (kind.type != SOCK_RAW || (type == 0 && proto == 0))) {
      found[count++] = kind;
    }
  }
  const int asked = family;
  py::Ref<> address = count > 0 ? plain_address(host, port, &family) : py::Ref<>();
  if (!address) {
    return PyErr_Occurred() != nullptr ? nullptr : Py_NewRef(Py_None);
  }
  if (PySys_Audit("socket.getaddrinfo", "OOiii", host, port, asked, type, proto) < 0) {
    return nullptr;
  }
  const ModuleState& state = loop->state();
  py::Ref<> list = py::steal(PyList_New(static_cast<Py_ssize_t>(count)));
  for (std::size_t i = 0; list && i < count; ++i) {
    PyObject* kind = found[i].type == SOCK_STREAM  ? state.sock_stream
                     : found[i].type == SOCK_DGRAM ? state.sock_dgram
                                                   : state.sock_raw;
    PyObject* row = Py_BuildValue("OOisO", family == AF_INET ? state.af_inet : state.af_inet6, kind, found[i].proto, "",
                                  address.get());
    if (row == nullptr) {
      return nullptr;
    }
    PyList_SET_ITEM(list.get(), static_cast<Py_ssize_t>(i), row);
  }
  return list.release();
}

}  // namespace uvpy::net
