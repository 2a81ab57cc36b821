// Which transport a connected socket gets, for uvpy.Loop's hook and for the listener.
// SPDX-License-Identifier: MIT
#pragma once

#include "net/socket_stream.h"

namespace uvpy::net {

// A transport over a connected descriptor of the family: internet or Unix. Null with an exception set, the descriptor
// still the caller's.
py::Ref<> make_transport(core::Loop& loop, int family, const Connection& connection);

// make_transport(loop, sock, family, protocol, waiter, extra, server, context), a function of the module.
PyObject* make_transport_method(PyObject* module, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames);

}  // namespace uvpy::net
