// UnixTransport: a stream for Unix stream sockets.
// SPDX-License-Identifier: MIT
#pragma once

#include "net/socket_stream.h"

namespace uvpy::net {

class UnixTransport final : public SocketStream<UnixTransport> {
 public:
  static constexpr const char* kName = "UnixTransport";
  static constexpr const char* kKind = "unix";
  static void tune(int) {}
};

// unlink_socket(path, inode), a function of the module: removes a listening socket's path while it is still that file.
// In C++, because tools that look for blocking calls in a loop know asyncio's own such calls by their file, not ours.
PyObject* unlink_socket(PyObject* module, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames);

PyTypeObject* make_unix_transport_type(PyObject* module, ModuleState* state);

}  // namespace uvpy::net
