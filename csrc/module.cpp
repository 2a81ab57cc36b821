// PyInit__core and the module's execution: makes the types and fills the state. No logic.
// SPDX-License-Identifier: MIT
#include <Python.h>
#include <uv.h>

#include <cstdlib>

#include "core/guest.h"
#include "core/handle.h"
#include "core/loop.h"
#include "core/sock.h"
#include "core/timer.h"
#include "net/connection.h"
#include "net/listener.h"
#include "net/numeric_host.h"
#include "net/read_pipe.h"
#include "net/stream_feed.h"
#include "net/tcp.h"
#include "net/udp.h"
#include "net/unix.h"
#include "net/write_pipe.h"
#include "process/process.h"
#include "py/args.h"
#include "py/compat.h"
#include "py/context.h"
#include "py/function.h"
#include "py/method.h"
#include "py/ref.h"
#include "state.h"

#ifndef UVPY_VERSION
#error "the build defines UVPY_VERSION"
#endif

namespace uvpy {

namespace {

PyObject* before_fork(PyObject* module, PyObject*) {
  for (core::Loop* loop = state_of_module(module)->loops; loop != nullptr; loop = core::LoopList::next(loop)) {
    loop->before_fork();
  }
  Py_RETURN_NONE;
}

PyObject* after_fork_in_child(PyObject* module, PyObject*) {
  ModuleState* state = state_of_module(module);
  ++state->forks;
  for (core::Loop* loop = state->loops; loop != nullptr; loop = core::LoopList::next(loop)) {
    loop->after_fork_in_child();
  }
  core::Gil::after_fork_in_child(state);
  Py_RETURN_NONE;
}

PyObject* native_function(PyObject* module, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames) {
  static constexpr const char* kNames[] = {"function", "method"};
  PyObject* given[2];
  if (!py::parse({"native_function", kNames, 2, 2}, args, nargs, kwnames, given)) {
    return nullptr;
  }
  return py::native_function(state_of_module(module)->stand_in_type, given[0], given[1]);
}

PyObject* remember_hooks(PyObject* module, PyObject* type) {
  if (!core::remember_hooks(state_of_module(module), type)) {
    return nullptr;
  }
  Py_RETURN_NONE;
}

PyMethodDef functions[] = {
    py::function<&native_function>("native_function", "Make a function call a method; gives what a class is to have."),
    {"remember_hooks", &remember_hooks, METH_O, "Take the methods of a class as those that nobody has overridden."},
    {"before_fork", &before_fork, METH_NOARGS, "For os.register_at_fork(before=)."},
    {"after_fork_in_child", &after_fork_in_child, METH_NOARGS, "For os.register_at_fork(after_in_child=)."},
    // What the coroutines of uvpy/_sock.py are made of: each gives a result, or a SockCall to wait for.
    py::function<&core::sock_check>("sock_check", "The checks of sock_connect(), which has to resolve first."),
    py::function<&core::sock_start<core::SockOp::recv>>("sock_recv", "sock_recv(loop, sock, n)"),
    py::function<&core::sock_start<core::SockOp::recv_into>>("sock_recv_into", "sock_recv_into(loop, sock, buf)"),
    py::function<&core::sock_start<core::SockOp::recvfrom>>("sock_recvfrom", "sock_recvfrom(loop, sock, bufsize)"),
    py::function<&core::sock_start<core::SockOp::recvfrom_into>>("sock_recvfrom_into",
                                                                 "sock_recvfrom_into(loop, sock, buf, nbytes)"),
    py::function<&core::sock_start<core::SockOp::accept>>("sock_accept", "sock_accept(loop, sock)"),
    py::function<&core::sock_start<core::SockOp::sendall>>("sock_sendall", "sock_sendall(loop, sock, data)"),
    py::function<&core::sock_start<core::SockOp::sendto>>("sock_sendto", "sock_sendto(loop, sock, data, address)"),
    py::function<&core::sock_start<core::SockOp::connect>>("sock_connect", "sock_connect(loop, sock, address)"),
    py::function<&core::sock_sendfile>("sock_sendfile",
                                       "sock_sendfile(loop, sock, file, fileno, offset, count, seeks_always)"),
    // What uvpy.Loop asks of net, which core does not know.
    py::function<&net::numeric_getaddrinfo>("numeric_getaddrinfo", "What uvpy/_dns.py need not ask the resolver."),
    py::function<&net::make_transport_method>("make_transport", "A transport over a connected socket."),
    py::function<&net::make_datagram_transport>("make_datagram_transport", "A transport over a datagram socket."),
    py::function<&net::listen>("listen", "Accept on a listening socket."),
    py::function<&net::stop_listening>("stop_listening", "Stop accepting on a descriptor."),
    py::function<&net::make_read_pipe_transport>("make_read_pipe_transport", "A transport over a pipe's reading end."),
    py::function<&net::make_write_pipe_transport>("make_write_pipe_transport",
                                                  "A transport over a pipe's writing end."),
    // And of process.
    py::function<&process::watch_child>("watch_child", "Watch a child for its transport."),
    py::function<&process::children>("children", "The children that a loop watches."),
    py::function<&core::libuv_loop_ptr>("libuv_loop_ptr",
                                        "libuv_loop_ptr(loop)\n--\n\nThe libuv loop, for other extensions."),
    py::function<&net::unlink_socket>("unlink_socket", "Remove a listening socket's path."),
    {nullptr, nullptr, 0, nullptr},
};

bool add_types(PyObject* module, ModuleState* state) {
  state->stand_in_type = py::make_stand_in_type(module);
  state->loop_type = state->stand_in_type != nullptr ? core::make_loop_type(module) : nullptr;
  state->handle_type = state->loop_type != nullptr ? core::make_handle_type(module) : nullptr;
  state->timer_type = state->handle_type != nullptr ? core::make_timer_type(module, state->handle_type) : nullptr;
  state->thread_safe_handle_type =
      state->timer_type != nullptr ? core::make_thread_safe_handle_type(module, state->handle_type) : nullptr;
  state->tcp_transport_type =
      state->thread_safe_handle_type != nullptr ? net::make_tcp_transport_type(module, state) : nullptr;
  state->unix_transport_type =
      state->tcp_transport_type != nullptr ? net::make_unix_transport_type(module, state) : nullptr;
  state->udp_transport_type =
      state->unix_transport_type != nullptr ? net::make_udp_transport_type(module, state) : nullptr;
  state->read_pipe_type = state->udp_transport_type != nullptr ? net::make_read_pipe_type(module, state) : nullptr;
  state->write_pipe_type = state->read_pipe_type != nullptr ? net::make_write_pipe_type(module, state) : nullptr;
  state->listener_type = state->write_pipe_type != nullptr ? net::make_listener_type(module) : nullptr;
  state->process_type = state->listener_type != nullptr ? process::make_process_type(module) : nullptr;
  state->sock_call_type = state->process_type != nullptr ? core::make_sock_call_type(module) : nullptr;
  net::remember_streams(state);
  return state->sock_call_type != nullptr && PyModule_AddType(module, state->sock_call_type) == 0 &&
         PyModule_AddType(module, state->loop_type) == 0 && PyModule_AddType(module, state->handle_type) == 0 &&
         PyModule_AddType(module, state->timer_type) == 0 && PyModule_AddType(module, state->tcp_transport_type) == 0 &&
         PyModule_AddType(module, state->unix_transport_type) == 0 &&
         PyModule_AddType(module, state->udp_transport_type) == 0 &&
         PyModule_AddType(module, state->read_pipe_type) == 0 &&
         PyModule_AddType(module, state->write_pipe_type) == 0 &&
         core::remember_hooks(state, reinterpret_cast<PyObject*>(state->loop_type));
}

// What build_info() shows of the C++ side.
bool add_build(PyObject* module) {
  py::Ref<> build = py::steal(Py_BuildValue("{ssssss}", "compiler", __VERSION__, "libuv_source", UVPY_LIBUV_SOURCE,
                                            "buildtype", UVPY_BUILDTYPE));
  return build && PyModule_AddObjectRef(module, "build", build.get()) == 0 &&
         PyModule_AddStringConstant(module, "__version__", UVPY_VERSION) == 0 &&
         PyModule_AddStringConstant(module, "libuv_version", uv_version_string()) == 0 &&
         PyModule_AddIntConstant(module, "newest_tested_minor", py::kNewestTestedMinor) == 0;
}

// libuv 1.45 to 1.48 start an io_uring with a kernel thread for each loop, and delay the removal of closed descriptors
// (libuv #4089, #4323). The switch is read once, at the first loop of the process: make that one here.
void tame_io_uring() {
  if (uv_version() < ((1U << 16) | (45U << 8)) || uv_version() >= ((1U << 16) | (49U << 8)) ||
      std::getenv("UV_USE_IO_URING") != nullptr) {
    return;
  }
  setenv("UV_USE_IO_URING", "0", 1);
  uv_loop_t first;
  if (uv_loop_init(&first) == 0) {
    uv_loop_close(&first);
  }
  unsetenv("UV_USE_IO_URING");
}

int execute(PyObject* module) {
  if (PyInterpreterState_Get() != PyInterpreterState_Main()) {
    PyErr_SetString(PyExc_ImportError, "uvpy does not run in sub-interpreters, only in the main one");
    return -1;
  }
  if (uv_version() < ((1U << 16) | (44U << 8) | 2U)) {
    PyErr_Format(PyExc_ImportError, "uvpy needs libuv 1.44.2 or newer; the one loaded is %s", uv_version_string());
    return -1;
  }
  tame_io_uring();
  ModuleState* state = state_of_module(module);
  state->module = module;
  if (!py::find_variables() || !state->fill() || !add_types(module, state) || !add_build(module)) {
    return -1;
  }
  core::open_handle_pools();
  return 0;
}

int traverse(PyObject* module, visitproc visit, void* arg) { return state_of_module(module)->visit(visit, arg); }

int clear(PyObject* module) {
  // The collector takes garbage in any order. What is still open on a loop is ended by what the module knows, so first.
  core::LoopList::clear(state_of_module(module));
  core::close_handle_pools();
  state_of_module(module)->clear();
  return 0;
}

void free_module(void* module) { clear(static_cast<PyObject*>(module)); }

PyModuleDef_Slot slots[] = {
    {Py_mod_exec, reinterpret_cast<void*>(&execute)},
#ifdef Py_mod_multiple_interpreters
    {Py_mod_multiple_interpreters, Py_MOD_MULTIPLE_INTERPRETERS_NOT_SUPPORTED},
#endif
    {0, nullptr},
};

PyModuleDef definition = {
    .m_base = PyModuleDef_HEAD_INIT,
    .m_name = "uvpy._core",
    .m_doc = "The native half of uvpy.",
    .m_size = sizeof(ModuleState),
    .m_methods = functions,
    .m_slots = slots,
    .m_traverse = &traverse,
    .m_clear = &clear,
    .m_free = &free_module,
};

}  // namespace

PyModuleDef* module_definition() { return &definition; }

}  // namespace uvpy

extern "C" __attribute__((visibility("default"))) PyObject* PyInit__core() {
  return PyModuleDef_Init(&uvpy::definition);
}
