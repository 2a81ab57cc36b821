// UnixTransport: a stream over a uv_pipe_t, for Unix stream sockets.
// SPDX-License-Identifier: MIT
#pragma once

#include "net/socket_stream.h"

namespace uvpy::net {

class UnixTransport final : public SocketStream<UnixTransport, uv_pipe_t> {
 public:
  static constexpr const char* kName = "UnixTransport";
  static constexpr const char* kKind = "unix";
  static uv::Status init(uv_loop_t* loop, uv_pipe_t* handle);
  static uv::Status open(uv_pipe_t* handle, int fd) { return uv_pipe_open(handle, fd); }
  static void tune(int) {}
};

PyTypeObject* make_unix_transport_type(PyObject* module, ModuleState* state);

}  // namespace uvpy::net
