// What socket.getaddrinfo() says of a plain numeric address and port, without asking the resolver. For uvpy/_dns.py.
// SPDX-License-Identifier: MIT
#pragma once

#include <Python.h>

namespace uvpy::net {

// (loop, host, port, family, type, proto, flags): the list, or None for what the socket module is to read, answer or refuse.
PyObject* numeric_getaddrinfo(PyObject* module, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames);

}  // namespace uvpy::net
