// UnixTransport: its handle and its type; all else is in the stream.
// SPDX-License-Identifier: MIT
#include "net/unix.h"

namespace uvpy::net {

uv::Status UnixTransport::init(uv_loop_t* loop, uv_pipe_t* handle) {
  const SpareDescriptorOff off(loop);
  return uv_pipe_init(loop, handle, 0);
}

PyTypeObject* make_unix_transport_type(PyObject* module, ModuleState* state) {
  return make_stream_type<UnixTransport>(module, state, "uvpy._core.UnixTransport",
                                         "A Unix stream connection; see asyncio.Transport.");
}

}  // namespace uvpy::net
