// TCPTransport: its option and its type; all else is in the stream.
// SPDX-License-Identifier: MIT
#include "net/tcp.h"

#include <netinet/in.h>
#include <netinet/tcp.h>

namespace uvpy::net {

void TCPTransport::tune(int fd) {
  const int on = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

bool TCPTransport::is_tuned(int fd) {
  int on = 0;
  socklen_t size = sizeof on;
  return getsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, &size) == 0 && on != 0;
}

PyTypeObject* make_tcp_transport_type(PyObject* module, ModuleState* state) {
  return make_stream_type<TCPTransport>(module, state, "uvpy._core.TCPTransport",
                                        "A TCP connection; see asyncio.Transport.");
}

}  // namespace uvpy::net
