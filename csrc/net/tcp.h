// TCPTransport: a stream for internet stream sockets.
// SPDX-License-Identifier: MIT
#pragma once

#include "net/socket_stream.h"

namespace uvpy::net {

class TCPTransport final : public SocketStream<TCPTransport> {
 public:
  static constexpr const char* kName = "TCPTransport";
  static constexpr const char* kKind = "tcp";
  // TCP_NODELAY, as asyncio sets it; is_tuned() says whether it is set.
  static void tune(int fd);
  static bool is_tuned(int fd);
};

PyTypeObject* make_tcp_transport_type(PyObject* module, ModuleState* state);

}  // namespace uvpy::net
