// TCPTransport: opening and closing the uv_tcp_t, and the Python type. Made by uvpy.Loop's hook and by the listener.
// SPDX-License-Identifier: MIT
#include "net/tcp.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <unistd.h>

#include <cstddef>

#include "core/report.h"
#include "py/args.h"
#include "py/call.h"
#include "py/compat.h"
#include "py/method.h"

namespace uvpy::net {

py::Ref<> TCPTransport::make(core::Loop& loop, const Options& options) {
  py::Ref<> self = py::steal(py::create<TCPTransport>(loop.state().tcp_transport_type));
  if (!self || !py::state_of<TCPTransport>(self.get())->take_over(loop, self.get(), options)) {
    return {};
  }
  return self;
}

bool TCPTransport::take_over(core::Loop& loop, PyObject* self, const Options& options) {
  lost_ = true;  // nothing to warn about until the descriptor is ours
  if (!begin(loop, self, options.fd, options.sock, options.protocol, options.extra, options.server)) {
    return false;
  }
  if (options.context != nullptr) {
    context_ = py::borrow(options.context);
  }
  const uv::Status made = uv_tcp_init(loop.uv(), tcp_.get());
  if (!made.ok()) {
    core::raise_uv_error(made);
    return false;
  }
  tcp_.opened(static_cast<Stream*>(this));
  loop.resources().add(this);
  const uv::Status opened = uv_tcp_open(tcp_.get(), options.fd);
  if (!opened.ok()) {
    tcp_.close(&TCPTransport::on_close);
    loop.closing_begins();
    core::raise_uv_error(opened);
    return false;
  }
  keep_addresses(options.peer, options.peer_size);
  const int on = 1;
  setsockopt(fd_, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  lost_ = false;
  if (loop.watchers().set_transport(fd_, self) && schedule_start(options.waiter)) {
    return true;
  }
  // The caller keeps the descriptor: a copy takes its place in libuv, which closes what it has.
  py::SavedError error;
  lost_ = true;
  closing_ = true;
  ++conn_lost_;
  loop.watchers().set_transport(fd_, nullptr);
  sock_.reset();
  const int copy = fcntl(fd_, F_DUPFD_CLOEXEC, 3);
  tcp_.close(&TCPTransport::on_close);
  loop.closing_begins();
  if (copy >= 0) {
    dup2(copy, fd_);
    ::close(copy);
  }
  return false;
}

void TCPTransport::release_descriptor() {
  if (!tcp_.is_open()) {
    return;
  }
  loop().watchers().set_transport(fd_, nullptr);
  detach_socket();
  loop().closing_begins();
  tcp_.close(&TCPTransport::on_close);
  if (fd_ <= STDERR_FILENO) {
    ::close(fd_);  // libuv leaves 0 to 2 open
  }
}

void TCPTransport::on_close(uv_handle_t* handle) {
  auto* self = static_cast<TCPTransport*>(uv::owner_of<Stream>(handle));
  core::Loop& loop = self->loop();
  loop.gil().take();
  self->tcp_.closed();
  loop.closing_ends();
  loop.resources().remove(self);  // the last act: this may be the last reference
}

void TCPTransport::finalize() {
  if (lost_) {
    return;
  }
  py::SavedError error;
  py::Ref<> text = py::steal(PyUnicode_FromFormat("unclosed transport %R", self_));
  if (!text || PyErr_ResourceWarning(self_, 1, "%U", text.get()) < 0) {
    // Warnings may be errors: nobody is there to catch one.
    if (PyErr_ExceptionMatches(PyExc_Warning) != 0) {
      PyErr_WriteUnraisable(self_);
    }
    PyErr_Clear();
  }
  lost_ = true;
}

PyObject* TCPTransport::describe() const {
  return Py_BuildValue("{sssisssn}", "kind", "tcp", "fd", fd_, "state", closing_ ? "closing" : "open", "waiting",
                       static_cast<Py_ssize_t>(waiting()));
}

PyObject* TCPTransport::repr() { return repr_with("TCPTransport"); }

// ---- made from Python

PyObject* make_tcp_transport(PyObject* module, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames) {
  static constexpr const char* kNames[] = {"loop", "sock", "protocol", "waiter", "extra", "server", "context"};
  enum { kLoop, kSock, kProtocol, kWaiter, kExtra, kServer, kContext, kCount };
  PyObject* given[kCount];
  if (!py::parse({"make_tcp_transport", kNames, 3, kCount, true}, args, nargs, kwnames, given)) {
    return nullptr;
  }
  core::Loop* loop = core::loop_of(module, given[kLoop]);
  if (loop == nullptr || !loop->check_closed()) {
    return nullptr;
  }
  const int fd = PyObject_AsFileDescriptor(given[kSock]);
  if (fd < 0) {
    return nullptr;
  }
  if (given[kExtra] != nullptr && given[kExtra] != Py_None && !PyDict_Check(given[kExtra])) {
    PyErr_SetString(PyExc_TypeError, "extra must be a dict or None");
    return nullptr;
  }
  return TCPTransport::make(*loop, {.sock = given[kSock],
                                    .fd = fd,
                                    .protocol = given[kProtocol],
                                    .waiter = given[kWaiter],
                                    .extra = given[kExtra],
                                    .server = given[kServer],
                                    .context = given[kContext] == Py_None ? nullptr : given[kContext]})
      .release();
}

// ---- tables

namespace {

PyObject* repr(PyObject* self) { return py::state_of<TCPTransport>(self)->repr(); }

PyMemberDef members[] = {
    {"__weaklistoffset__", T_PYSSIZET, offsetof(py::Object<TCPTransport>, weakrefs), READONLY, nullptr},
    {"__dictoffset__", T_PYSSIZET, offsetof(py::Object<TCPTransport>, dict), READONLY, nullptr},
    {nullptr, 0, 0, 0, nullptr},
};

template <auto F>
PyMethodDef method(const char* name, const char* doc) {
  return py::method_of<TCPTransport, F>(name, doc);
}
template <auto Get>
PyGetSetDef getter(const char* name, const char* doc) {
  return py::getter_of<TCPTransport, Get>(name, doc);
}

PyGetSetDef attributes[] = {
    getter<&Transport::get_extra>("_extra", "The dict behind get_extra_info()."),
    getter<&Transport::get_loop>("_loop", "The loop; None once the connection is lost."),
    getter<&Transport::get_server>("_server", "The server that accepted the connection, or None."),
    getter<&Transport::get_sock>("_sock", "The socket; None once the connection is lost."),
    getter<&Transport::get_sock_fd>("_sock_fd", "The number of the descriptor."),
    getter<&Transport::get_protocol>("_protocol", "The protocol; None once the connection is lost."),
    getter<&Transport::get_conn_lost>("_conn_lost", "Above 0 once connection_lost() is on its way."),
    getter<&Transport::is_closing>("_closing", "Whether it is closing or closed."),
    getter<&Stream::get_paused>("_paused", "Whether reading is paused."),
    getter<&Stream::get_protocol_paused>("_protocol_paused", "Whether pause_writing() was called last."),
    {nullptr, nullptr, nullptr, nullptr, nullptr},
};

PyMethodDef methods[] = {
    method<&Transport::get_extra_info>("get_extra_info", "get_extra_info(name, default=None)\n--\n\nWhat is known about the connection."),
    method<&Transport::is_closing>("is_closing", "Whether it is closing or closed."),
    method<&Transport::get_protocol>("get_protocol", "The protocol."),
    method<&Stream::set_protocol>("set_protocol", "Switch to another protocol."),
    method<&Stream::close>("close", "Send what is waiting, then close; connection_lost(None) follows."),
    method<&Stream::abort>("abort", "Close at once, dropping what is waiting; connection_lost(None) follows."),
    method<&Stream::write>("write", "Send bytes, now or as soon as the peer takes them."),
    method<&Stream::writelines>("writelines", "Send several chunks of bytes with one system call."),
    method<&Stream::write_eof>("write_eof", "Close the write side when everything is sent."),
    method<&Stream::can_write_eof>("can_write_eof", "True."),
    method<&Stream::pause_reading>("pause_reading", "Deliver no data until resume_reading()."),
    method<&Stream::resume_reading>("resume_reading", "Deliver data again."),
    method<&Stream::is_reading>("is_reading", "Whether data is delivered."),
    method<&Stream::get_write_buffer_size>("get_write_buffer_size", "Bytes written that the kernel has not taken."),
    method<&Stream::get_write_buffer_limits>("get_write_buffer_limits", "(low, high) in bytes."),
    method<&Stream::set_write_buffer_limits>("set_write_buffer_limits", "set_write_buffer_limits(high=None, low=None)\n--\n\nSet the marks, in bytes, at which the protocol is paused and resumed."),
    method<&Stream::force_close_method>("_force_close", "Close at once because of an exception."),
    method<&Stream::start_reading>("_start_reading", "Begin to read; runs after connection_made()."),
    method<&Stream::settle_reading>("_settle_reading", "Do what another thread's pause or resume asked for."),
    method<&Stream::close_deferred>("_close_deferred", "Do what another thread's close asked for."),
    method<&Stream::flush_method>("_flush", "Send what another thread wrote."),
    method<&Stream::drained_method>("_drained", "Tell the protocol that its data is sent."),
    method<&Transport::call_connection_lost>("_call_connection_lost", "Call the protocol's connection_lost() and let go."),
    method<&Stream::lend_descriptor>("_lend_descriptor", "Let sendfile watch the descriptor, or take it back."),
    method<&Stream::make_empty_waiter>("_make_empty_waiter", "A future that is done when everything is sent."),
    method<&Stream::reset_empty_waiter>("_reset_empty_waiter", "Allow writes again."),
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace

PyTypeObject* make_tcp_transport_type(PyObject* module, ModuleState* state) {
  auto* base = reinterpret_cast<PyTypeObject*>(state->flow_control_mixin);
  if (base->tp_basicsize != static_cast<Py_ssize_t>(offsetof(py::Object<TCPTransport>, weakrefs))) {
    PyErr_Format(PyExc_ImportError, "asyncio's transports have a layout that this uvpy does not know (%zd bytes)",
                 base->tp_basicsize);
    return nullptr;
  }
  PyType_Slot slots[] = {
      {Py_tp_doc, const_cast<char*>("A TCP connection; see asyncio.Transport.")},
      {Py_tp_dealloc, reinterpret_cast<void*>(&py::Slots<TCPTransport>::dealloc)},
      {Py_tp_traverse, reinterpret_cast<void*>(&py::Slots<TCPTransport>::traverse)},
      {Py_tp_clear, reinterpret_cast<void*>(&py::Slots<TCPTransport>::clear)},
      {Py_tp_finalize, reinterpret_cast<void*>(&py::Slots<TCPTransport>::finalize)},
      {Py_tp_repr, reinterpret_cast<void*>(&repr)},
      {Py_tp_members, members},
      {Py_tp_getset, attributes},
      {Py_tp_methods, methods},
      {0, nullptr},
  };
  PyType_Spec spec = {"uvpy._core.TCPTransport", sizeof(py::Object<TCPTransport>), 0,
                      Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION, slots};
  py::Ref<> type = py::steal(PyType_FromModuleAndSpec(module, &spec, state->flow_control_mixin));
  py::Ref<> fallback = py::steal(PyObject_GetAttrString(state->sendfile_mode, "TRY_NATIVE"));
  if (!type || !fallback || PyObject_SetAttrString(type.get(), "_start_tls_compatible", Py_True) < 0 ||
      PyObject_SetAttrString(type.get(), "_sendfile_compatible", fallback.get()) < 0) {
    return nullptr;
  }
  return reinterpret_cast<PyTypeObject*>(type.release());
}

}  // namespace uvpy::net
