// TCPTransport: a stream over a uv_tcp_t, made from a connected Python socket or from an accepted descriptor. An
// asyncio.Transport by type: it derives, in C, from asyncio's _FlowControlMixin, which the sendfile fallback demands.
// SPDX-License-Identifier: MIT
#pragma once

#include "net/stream.h"
#include "uv/handle.h"

namespace uvpy::net {

class TCPTransport final : public Stream {
 public:
  static constexpr bool kWeakrefs = true;
  static constexpr bool kDict = true;
  static constexpr bool kFinalizer = true;
  static constexpr std::size_t kBaseWords = 5;  // the slots of asyncio's BaseTransport and _FlowControlMixin

  struct Options {
    PyObject* sock = nullptr;  // null: `fd` alone
    int fd = -1;
    PyObject* protocol = nullptr;
    PyObject* waiter = nullptr;
    PyObject* extra = nullptr;
    PyObject* server = nullptr;
    PyObject* context = nullptr;  // null: a copy of the current one
    const sockaddr_storage* peer = nullptr;
    socklen_t peer_size = 0;
  };
  // A new transport that has taken the descriptor over; null with an exception set, the descriptor still the caller's.
  static py::Ref<> make(core::Loop& loop, const Options& options);

  void leak() override { tcp_.leak(); }
  PyObject* describe() const override;
  PyObject* repr();
  void finalize();
  int visit(visitproc visit, void* arg) { return visit_stream(visit, arg); }
  void clear() { clear_stream(); }

 protected:
  uv_stream_t* stream() override { return reinterpret_cast<uv_stream_t*>(tcp_.get()); }
  bool stream_is_open() const override { return tcp_.is_open(); }
  void release_descriptor() override;

 private:
  bool take_over(core::Loop& loop, PyObject* self, const Options& options);
  static void on_close(uv_handle_t* handle);

  uv::Handle<uv_tcp_t> tcp_;
};

PyTypeObject* make_tcp_transport_type(PyObject* module, ModuleState* state);
// make_tcp_transport(loop, sock, protocol, waiter, extra, server, context), a function of the module.
PyObject* make_tcp_transport(PyObject* module, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames);

}  // namespace uvpy::net
