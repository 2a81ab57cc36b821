// The tries of SockCall. The calls that programs make in a loop (recv, recv_into, send) are system calls of ours where the
// socket is Python's own: trying costs no exception then. All else goes through the Python socket's methods, so that
// addresses, subclasses and replaced methods are what they are in asyncio.
// SPDX-License-Identifier: MIT
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#ifdef __linux__
#include <sys/sendfile.h>
#elif defined(__APPLE__)
#include <sys/uio.h>
#endif

#include "core/loop.h"
#include "core/sock.h"
#include "py/call.h"

namespace uvpy::core {

namespace {

// Bytes that one run of a sendfile sends before others get their turn, however fast the peer is.
constexpr Py_ssize_t kSendfileTurn = Py_ssize_t{4} * 1024 * 1024;

// The exception set by a try: one that says "not now" is none.
Attempt judge_error() {
  if (PyErr_ExceptionMatches(PyExc_BlockingIOError) != 0 || PyErr_ExceptionMatches(PyExc_InterruptedError) != 0) {
    PyErr_Clear();
    return Attempt::again;
  }
  return Attempt::failed;
}

Attempt judge(const py::Ref<>& result) { return result ? Attempt::done : judge_error(); }

// The number of a socket's descriptor; -1 where it is closed, of which its methods say so. -2 with an exception set.
int number_of(const ModuleState& state, PyObject* sock) {
  py::Ref<> number = py::call_method(sock, state.names.fileno);
  const long fd = number ? PyLong_AsLong(number.get()) : -1;
  return PyErr_Occurred() != nullptr ? -2 : static_cast<int>(fd);
}

// What a system call of ours on a plain socket came to.
enum class Raw { ok, again, failed, by_method };

// The kernel would have us wait. A socket that blocks, or has a time-out, does so in asyncio, too.
Raw not_now(const ModuleState& state, PyObject* sock) {
  py::Ref<> timeout = py::call_method(sock, state.names.gettimeout);
  if (!timeout) {
    return Raw::failed;
  }
  return PyFloat_Check(timeout.get()) && PyFloat_AS_DOUBLE(timeout.get()) == 0 ? Raw::again : Raw::by_method;
}

Raw judge_raw(const ModuleState& state, PyObject* sock, Py_ssize_t count) {
  if (count >= 0) {
    return Raw::ok;
  }
  const int error = errno;
  if (error == EINTR) {
    return Raw::by_method;
  }
  if (error != EAGAIN && error != EWOULDBLOCK) {
    py::raise_os_error(error);
    return Raw::failed;
  }
  return not_now(state, sock);
}

Raw raw_recv(Loop& loop, const SockRequest& request, py::Ref<>* result) {
  const ModuleState& state = loop.state();
  const Py_ssize_t wanted = PyLong_CheckExact(request.first) ? PyLong_AsSsize_t(request.first) : 0;
  if (wanted <= 0 || wanted > static_cast<Py_ssize_t>(Loop::kSlabSize)) {
    PyErr_Clear();
    return Raw::by_method;
  }
  const int fd = number_of(state, request.sock);
  char* room = loop.slab();
  if (fd < 0 || room == nullptr) {
    return fd < -1 ? Raw::failed : Raw::by_method;
  }
  const ssize_t count = ::recv(fd, room, static_cast<std::size_t>(wanted), MSG_DONTWAIT);
  const Raw outcome = judge_raw(state, request.sock, count);
  if (outcome == Raw::ok) {
    *result = py::steal(PyBytes_FromStringAndSize(room, count));
    return *result ? Raw::ok : Raw::failed;
  }
  return outcome;
}

Raw raw_recv_into(Loop& loop, const SockRequest& request, py::Ref<>* result) {
  py::BufferView view;
  if (!view.acquire(request.first, PyBUF_WRITABLE) || view.size() == 0) {
    PyErr_Clear();
    return Raw::by_method;
  }
  const int fd = number_of(loop.state(), request.sock);
  if (fd < 0) {
    return fd < -1 ? Raw::failed : Raw::by_method;
  }
  const ssize_t count = ::recv(fd, view.data(), static_cast<std::size_t>(view.size()), MSG_DONTWAIT);
  const Raw outcome = judge_raw(loop.state(), request.sock, count);
  if (outcome == Raw::ok) {
    *result = py::steal(PyLong_FromSsize_t(count));
    return *result ? Raw::ok : Raw::failed;
  }
  return outcome;
}

Raw raw_send(Loop& loop, SockRequest& request, py::Ref<>* result) {
  py::BufferView view;
  if (!view.acquire(request.first, PyBUF_SIMPLE)) {
    PyErr_Clear();
    return Raw::by_method;
  }
  request.total = view.size();
  const int fd = number_of(loop.state(), request.sock);
  if (fd < 0) {
    return fd < -1 ? Raw::failed : Raw::by_method;
  }
  // SIGPIPE as the program has set it, as in asyncio.
  const ssize_t count =
      ::send(fd, view.data() + request.sent, static_cast<std::size_t>(view.size() - request.sent), MSG_DONTWAIT);
  const Raw outcome = judge_raw(loop.state(), request.sock, count);
  if (outcome != Raw::ok) {
    return outcome;
  }
  request.sent += count;
  if (request.sent < request.total) {
    return not_now(loop.state(), request.sock);
  }
  *result = py::borrow(Py_None);
  return Raw::ok;
}

// What is left of the data of a sendall, as a memoryview of bytes whatever its format.
py::Ref<> rest_of(const SockRequest& request) {
  py::Ref<> view = py::steal(PyMemoryView_FromObject(request.first));
  const Py_buffer* shape = view ? PyMemoryView_GET_BUFFER(view.get()) : nullptr;
  if (shape != nullptr && (shape->ndim != 1 || shape->itemsize != 1)) {
    view = py::steal(PyObject_CallMethod(view.get(), "cast", "s", "B"));
  }
  return view ? py::steal(PySequence_GetSlice(view.get(), request.sent, PY_SSIZE_T_MAX)) : py::Ref<>();
}

Attempt send_by_method(const ModuleState& state, SockRequest& request, py::Ref<>* result) {
  py::Ref<> rest = request.waited || request.sent > 0 ? rest_of(request) : py::borrow(request.first);
  if (!rest) {
    return Attempt::failed;
  }
  py::Ref<> count = py::call_method(request.sock, state.names.send, rest.get());
  if (!count && judge_error() == Attempt::failed) {
    return Attempt::failed;
  }
  if (!request.waited) {
    py::BufferView view;
    const bool is_buffer = view.acquire(request.first, PyBUF_FULL_RO);
    PyErr_Clear();
    request.total = is_buffer ? view.size() : PyObject_Size(request.first);
    if (request.total < 0) {
      return Attempt::failed;
    }
  }
  const Py_ssize_t sent = count ? PyNumber_AsSsize_t(count.get(), PyExc_OverflowError) : 0;
  if (PyErr_Occurred() != nullptr) {
    return Attempt::failed;
  }
  request.sent += sent;
  if (request.sent < request.total) {
    return Attempt::again;
  }
  *result = py::borrow(Py_None);
  return Attempt::done;
}

Attempt accept_by_method(const ModuleState& state, const SockRequest& request, py::Ref<>* result) {
  py::Ref<> accepted = py::call_method(request.sock, state.names.accept);
  if (!accepted) {
    return judge_error();
  }
  py::Ref<> both = py::steal(PySequence_Tuple(accepted.get()));
  if (!both) {
    return Attempt::failed;
  }
  if (PyTuple_GET_SIZE(both.get()) != 2) {
    PyErr_SetString(PyExc_ValueError, "accept() must give a socket and an address");
    return Attempt::failed;
  }
  if (!py::call_method(PyTuple_GET_ITEM(both.get(), 0), state.names.setblocking, Py_False)) {
    return judge_error();
  }
  *result = std::move(both);
  return Attempt::done;
}

Attempt connect_by_method(const ModuleState& state, const SockRequest& request, py::Ref<>* result) {
  if (!request.waited) {
    py::Ref<> connected = py::call_method(request.sock, state.names.connect, request.first);
    if (!connected) {
      return judge_error();
    }
  } else {
    py::Ref<> level = py::steal(PyLong_FromLong(SOL_SOCKET));
    py::Ref<> option = py::steal(PyLong_FromLong(SO_ERROR));
    py::Ref<> found = level && option ? py::call_method(request.sock, state.names.getsockopt, level.get(), option.get())
                                      : py::Ref<>();
    const int failed = found ? PyObject_IsTrue(found.get()) : -1;
    if (failed < 0) {
      return judge_error();
    }
    if (failed > 0) {
      py::Ref<> text = py::steal(PyUnicode_FromFormat("Connect call failed %S", request.first));
      py::Ref<> exc = text ? py::call(PyExc_OSError, found.get(), text.get()) : py::Ref<>();
      if (exc) {
        PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(exc.get())), exc.get());
      }
      return exc ? judge_error() : Attempt::failed;
    }
  }
  *result = py::borrow(Py_None);
  return Attempt::done;
}

// ---- sendfile

// One system call without the GIL, since it may wait for the disk. An errno, or 0.
int send_some(int out, int in, off_t* offset, Py_ssize_t most, Py_ssize_t* sent) {
  int error = 0;
  Py_BEGIN_ALLOW_THREADS;
#ifdef __linux__
  const ssize_t count = ::sendfile(out, in, offset, static_cast<std::size_t>(most));
  error = count < 0 ? errno : 0;
  *sent = count < 0 ? 0 : count;
#elif defined(__APPLE__)
  off_t length = most;
  // What was sent before it would have blocked is told beside the error.
  error = ::sendfile(in, out, *offset, &length, nullptr, 0) < 0 ? errno : 0;
  *sent = static_cast<Py_ssize_t>(length);
  *offset += length;
  error = length > 0 ? 0 : error;
#else
  static_cast<void>(out), static_cast<void>(in), static_cast<void>(offset), static_cast<void>(most);
  *sent = 0;
  error = ENOSYS;
#endif
  Py_END_ALLOW_THREADS;
  return error;
}

// The exception of a sendfile that failed, in asyncio's words.
void raise_sendfile_error(const ModuleState& state, const SockRequest& request, int error) {
  if (request.sent == 0) {
    // Most often a file that cannot be sent so: the caller falls back on reading and writing.
    PyErr_SetString(state.sendfile_not_available, "os.sendfile call failed");
    return;
  }
  if (!request.waited || error != ENOTCONN) {
    py::raise_os_error(error);
    return;
  }
  py::Ref<> cause = py::os_error(error);
  py::Ref<> exc = cause
                      ? py::steal(PyObject_CallFunction(PyExc_ConnectionError, "si", "socket is not connected", error))
                      : py::Ref<>();
  if (exc) {
    PyException_SetCause(exc.get(), cause.release());
    PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(exc.get())), exc.get());
  }
}

Attempt attempt_sendfile(const ModuleState& state, SockRequest& request, py::Ref<>* result) {
  const int fd = number_of(state, request.sock);
  if (fd < -1) {
    return Attempt::failed;
  }
  // A GiB at most, which every system call takes.
  constexpr Py_ssize_t kMost = Py_ssize_t{1} << 30;
  Py_ssize_t in_this_turn = 0;
  int error = 0;
  bool is_at_end = false;
  while (error == 0 && !is_at_end && in_this_turn < kSendfileTurn) {
    Py_ssize_t most = request.total > 0 ? std::min(request.total - request.sent, kMost) : kMost;
    most = std::min(most, kSendfileTurn);
    Py_ssize_t sent = 0;
    error = send_some(fd, request.file, &request.offset, most, &sent);
    request.sent += sent;
    in_this_turn += sent;
    is_at_end = error == 0 && (sent == 0 || (request.total > 0 && request.sent >= request.total));
  }
  if (error == EAGAIN || error == EWOULDBLOCK || error == EINTR || (error == 0 && !is_at_end)) {
    // Of a signal's handler that raised, the loop hears at its next look.
    return Attempt::again;
  }
  if (error != 0) {
    raise_sendfile_error(state, request, error);
    return Attempt::failed;
  }
  *result = py::steal(PyLong_FromSsize_t(request.sent));
  return *result ? Attempt::done : Attempt::failed;
}

}  // namespace

void look_at_file(Loop& loop, SockRequest& request) {
  py::SavedError error;
  py::Ref<> number = py::call_method(request.first, loop.state().names.fileno);
  if (!number || !PyLong_Check(number.get()) || PyLong_AsLong(number.get()) != request.file) {
    request.file = -1;
  }
  PyErr_Clear();
}

bool leave_file_position(const SockRequest& request) {
  const bool seeks = request.file >= 0 && (request.sent > 0 || request.seeks_always);
  if (seeks && lseek(request.file, request.offset, SEEK_SET) < 0) {
    py::raise_os_error(errno);
    return false;
  }
  return true;
}

bool is_plain_socket(ModuleState& state, PyObject* sock) {
  auto* type = reinterpret_cast<PyTypeObject*>(state.socket_type);
  if (Py_TYPE(sock) != type) {
    return false;
  }
  PlainSocket& known = state.plain_socket;
  if (type->tp_version_tag != known.tag || known.tag == 0) [[unlikely]] {
    // The tag changes when somebody changes the class; instances have no dict.
    const auto& names = state.names;
    known.is_plain = true;
    for (PyObject* name : {names.recv, names.recv_into, names.recvfrom, names.recvfrom_into, names.send, names.fileno,
                           names.gettimeout}) {
      py::Ref<> found = py::steal(PyObject_GetAttr(state.socket_type, name));
      py::Ref<> original = py::steal(PyObject_GetAttr(state.c_socket_type, name));
      PyErr_Clear();
      known.is_plain = known.is_plain && found && found.get() == original.get();
    }
    known.tag = type->tp_version_tag;
  }
  return known.is_plain;
}

Attempt attempt(Loop& loop, SockRequest& request, py::Ref<>* result) {
  ModuleState& state = loop.state();
  const auto& names = state.names;
  Raw raw = Raw::by_method;
  switch (request.op) {
    case SockOp::recv:
      raw = is_plain_socket(state, request.sock) ? raw_recv(loop, request, result) : raw;
      break;
    case SockOp::recv_into:
      raw = is_plain_socket(state, request.sock) ? raw_recv_into(loop, request, result) : raw;
      break;
    case SockOp::sendall:
      raw = is_plain_socket(state, request.sock) ? raw_send(loop, request, result) : raw;
      break;
    case SockOp::sendfile:
      if (request.waited) {
        look_at_file(loop, request);
      }
      return attempt_sendfile(state, request, result);
    default:
      break;
  }
  switch (raw) {
    case Raw::ok:
      return Attempt::done;
    case Raw::again:
      return Attempt::again;
    case Raw::failed:
      return Attempt::failed;
    case Raw::by_method:
      break;
  }
  switch (request.op) {
    case SockOp::recv:
      *result = py::call_method(request.sock, names.recv, request.first);
      return judge(*result);
    case SockOp::recv_into:
      *result = py::call_method(request.sock, names.recv_into, request.first);
      return judge(*result);
    case SockOp::recvfrom:
      *result = py::call_method(request.sock, names.recvfrom, request.first);
      return judge(*result);
    case SockOp::recvfrom_into:
      *result = py::call_method(request.sock, names.recvfrom_into, request.first, request.second);
      return judge(*result);
    case SockOp::sendto: {
      py::Ref<> no_flags = request.waited ? py::steal(PyLong_FromLong(0)) : py::Ref<>();
      *result = no_flags ? py::call_method(request.sock, names.sendto, request.first, no_flags.get(), request.second)
                         : py::call_method(request.sock, names.sendto, request.first, request.second);
      return judge(*result);
    }
    case SockOp::sendall:
      return send_by_method(state, request, result);
    case SockOp::connect:
      return connect_by_method(state, request, result);
    case SockOp::accept:
    case SockOp::sendfile:
      break;
  }
  return accept_by_method(state, request, result);
}

}  // namespace uvpy::core
