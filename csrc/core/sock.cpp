// SockCall: a call of sock_recv() and its siblings that waits; and how such a call starts. The loop's watchers run it as a
// reader or writer's handle, in asyncio's order; the coroutine in uvpy/_sock.py awaits its future and lets go of it when
// it is thrown out of the waiting.
// SPDX-License-Identifier: MIT
#include "core/sock.h"

#include <sys/stat.h>

#include <climits>
#include <utility>

#include "core/debug.h"
#include "core/loop.h"
#include "py/args.h"
#include "py/call.h"
#include "py/method.h"
#include "py/type.h"

namespace uvpy::core {

namespace {

// asyncio's checks before anything is tried. False with TypeError or ValueError set.
bool check_socket(Loop& loop, PyObject* sock) {
  const ModuleState& state = loop.state();
  if (reinterpret_cast<PyObject*>(Py_TYPE(sock)) != state.socket_type &&
      !py::call_method(state.base_events, state.names._check_ssl_socket, sock)) {
    return false;
  }
  if (!loop.debug()) {
    return true;
  }
  py::Ref<> timeout = py::call_method(sock, state.names.gettimeout);
  py::Ref<> zero = py::steal(PyLong_FromLong(0));
  const int blocks = timeout && zero ? PyObject_RichCompareBool(timeout.get(), zero.get(), Py_NE) : -1;
  if (blocks > 0) {
    PyErr_SetString(PyExc_ValueError, "the socket must be non-blocking");
  }
  return blocks == 0;
}

}  // namespace

PyObject* SockCall::start(Loop& loop, SockRequest& request) {
  py::Ref<> result;
  const Attempt outcome = attempt(loop, request, &result);
  if (outcome == Attempt::done) {
    return result.release();
  }
  if (outcome == Attempt::failed) {
    return nullptr;
  }
  py::Ref<> self = py::steal(py::create<SockCall>(loop.state().sock_call_type));
  if (!self) {
    return nullptr;
  }
  auto* call = py::state_of<SockCall>(self.get());
  if (!call->wait(loop, request)) {
    // No cycle may be left of what was begun.
    py::SavedError error;
    call->stop_watching();
    call->let_go();
    call->future_.reset();
    return nullptr;
  }
  return self.release();
}

bool SockCall::wait(Loop& loop, const SockRequest& request) {
  const ModuleState& state = loop.state();
  const auto& names = state.names;
  loop_ = py::borrow(loop.object());
  request_ = request;
  request_.waited = true;
  request_.number = nullptr;
  sock_ = py::borrow(request.sock);
  first_ = py::borrow(request.first);
  second_ = py::borrow(request.second);
  if (request.op == SockOp::sendall && !held_.acquire(request.first, PyBUF_FULL_RO)) {
    return false;
  }
  future_ = py::call_method(loop.object(), names.create_future);
  py::Ref<> number = py::borrow(request.number);
  if (future_ && !number) {
    number = py::call_method(request.sock, names.fileno);
  }
  if (!future_ || !number) {
    return false;
  }
  const long fd = PyLong_Check(number.get()) ? PyLong_AsLong(number.get()) : -1;
  PyErr_Clear();
  fd_ = fd >= 0 && fd < INT_MAX ? static_cast<int>(fd) : -1;
  // An accept() goes through Python: nobody can tell what somebody has put in its place, and whether it has tried.
  const bool keeps = fd_ >= 0 && request.op < SockOp::accept && is_plain_socket(loop.state(), request.sock);
  if (!keeps || !loop.watchers().keeps(fd_, request.sock)) {
    if (!loop.refuse_transport(number.get())) {
      return false;
    }
  }
  if (keeps) {
    return watch_kept(loop, fd_);
  }
  handle_ =
      py::call_method(loop.object(), request.writes() ? names._add_writer : names._add_reader, number.get(), object());
  return static_cast<bool>(handle_);
}

bool SockCall::watch_kept(Loop& loop, int fd) {
  if (!loop.check_closed()) {
    return false;
  }
  handle_ = py::steal(py::create<Handle>(loop.state().handle_type));
  if (!handle_) {
    return false;
  }
  auto* handle = py::state_of<Handle>(handle_.get());
  // No code of the program runs in it, so that it needs a context only where debug mode shows it.
  if (loop.debug()) {
    if (!handle->init(loop, object(), nullptr, 0, nullptr)) {
      return false;
    }
  } else {
    handle->init_bare(loop, object(), nullptr);
  }
  return loop.watchers().add_kept(loop, fd, sock_.get(), handle_.dup());
}

Loop& SockCall::loop() const { return *py::state_of<Loop>(loop_.get()); }

void SockCall::stop_watching() {
  py::Ref<> handle = std::move(handle_);
  if (handle && !loop().watchers().release(loop(), fd_, request_.writes() ? kWritable : kReadable, handle.get())) {
    PyErr_Clear();  // a repr of debug mode that failed
  }
}

void SockCall::let_go() {
  held_.release();
  py::Ref<> sock = std::move(sock_);
  py::Ref<> first = std::move(first_);
  py::Ref<> second = std::move(second_);
}

PyObject* SockCall::run() {
  py::Ref<> alive = py::borrow(object());
  py::Ref<> future = future_.dup();
  if (!future || !sock_) {
    Py_RETURN_NONE;  // let go of, or cleared by the collector
  }
  const auto& names = loop().state().names;
  py::Ref<> done = py::call_method(future.get(), names.done);
  const int is_done = done ? PyObject_IsTrue(done.get()) : -1;
  if (is_done != 0) {
    // Cancelled in this turn: what is there stays for the next who asks.
    return is_done < 0 ? nullptr : Py_NewRef(Py_None);
  }
  // A method of the program's socket may make the coroutine let go of this call.
  py::Ref<> sock = sock_.dup();
  py::Ref<> first = first_.dup();
  py::Ref<> second = second_.dup();
  py::Ref<> result;
  const Attempt outcome = attempt(loop(), request_, &result);
  if (outcome == Attempt::again) {
    Py_RETURN_NONE;
  }
  py::Ref<> exc;
  if (outcome == Attempt::failed) {
    exc = py::take_error();
    if (py::ends_the_loop(exc.get())) {
      py::restore_error(std::move(exc));
      return nullptr;
    }
  }
  if (request_.op == SockOp::sendfile && !leave_file_position(request_)) {
    exc = py::take_error();
  }
  stop_watching();
  let_go();
  return (exc ? py::call_method(future.get(), names.set_exception, exc.get())
              : py::call_method(future.get(), names.set_result, result.get()))
      .release();
}

PyObject* SockCall::get_future() { return Py_NewRef(future_ ? future_.get() : Py_None); }

// The coroutine was thrown out of its waiting. Gives what was had for it in the same turn, and nobody gets: the connection
// of an accept, which is to be closed; otherwise None.
PyObject* SockCall::release() {
  py::Ref<> future = std::move(future_);
  const bool waits = static_cast<bool>(handle_);
  stop_watching();
  if (waits && request_.op == SockOp::sendfile && first_) {
    look_at_file(loop(), request_);
    if (!leave_file_position(request_)) {
      PyErr_Clear();  // what has thrown the coroutine out is what counts
    }
  }
  const bool was_accept = request_.op == SockOp::accept;
  let_go();
  py::Ref<> lost;
  if (was_accept && future) {
    lost = py::call_method(future.get(), loop().state().names.result);
    PyErr_Clear();
  }
  return lost ? lost.release() : Py_NewRef(Py_None);
}

PyObject* SockCall::repr() const {
  static constexpr const char* kNames[] = {"sock_recv",          "sock_recv_into", "sock_recvfrom",
                                           "sock_recvfrom_into", "sock_accept",    "sock_sendall",
                                           "sock_sendto",        "sock_connect",   "sock_sendfile"};
  return PyUnicode_FromFormat("<%s of %R>", kNames[static_cast<std::size_t>(request_.op)],
                              sock_ ? sock_.get() : Py_None);
}

int SockCall::visit(visitproc visit, void* arg) {
  Py_VISIT(loop_.get());
  Py_VISIT(future_.get());
  Py_VISIT(handle_.get());
  Py_VISIT(sock_.get());
  Py_VISIT(first_.get());
  Py_VISIT(second_.get());
  return held_.visit(visit, arg);
}

void SockCall::clear() {
  // loop_ stays: methods lean on it, and it breaks no cycle that the others do not.
  future_.reset();
  handle_.reset();
  let_go();
}

// ---- from Python

namespace {

// The loop and the socket of a call, checked; null with an exception set.
Loop* begin(PyObject* module, PyObject* const* args, Py_ssize_t nargs, Py_ssize_t wanted) {
  if (nargs != wanted) {
    PyErr_Format(PyExc_TypeError, "%zd arguments are required, not %zd", wanted, nargs);
    return nullptr;
  }
  Loop* loop = loop_of(module, args[0]);
  return loop != nullptr && check_socket(*loop, args[1]) ? loop : nullptr;
}

// A number of a sendfile that must fit; the largest where it may be cut off. False with an exception set.
bool number_in(PyObject* object, bool may_cut, long* number) {
  *number = PyLong_AsLong(object);
  if (PyErr_Occurred() == nullptr) {
    return true;
  }
  if (may_cut && PyErr_ExceptionMatches(PyExc_OverflowError) != 0) {
    PyErr_Clear();
    *number = LONG_MAX;
    return true;
  }
  return false;
}

}  // namespace

PyObject* sock_check(PyObject* module, PyObject* const* args, Py_ssize_t nargs, PyObject*) {
  if (begin(module, args, nargs, 2) == nullptr) {
    return nullptr;
  }
  Py_RETURN_NONE;
}

template <SockOp op>
PyObject* sock_start(PyObject* module, PyObject* const* args, Py_ssize_t nargs, PyObject*) {
  constexpr Py_ssize_t kCount = op == SockOp::accept ? 2 : op == SockOp::recvfrom_into || op == SockOp::sendto ? 4 : 3;
  Loop* loop = begin(module, args, nargs, kCount);
  if (loop == nullptr) {
    return nullptr;
  }
  SockRequest request{.op = op, .sock = args[1]};
  if constexpr (kCount > 2) {
    request.first = args[2];
  }
  if constexpr (kCount > 3) {
    request.second = args[3];
  }
  py::Ref<> size;
  if constexpr (op == SockOp::recvfrom_into) {
    const int given = PyObject_IsTrue(request.second);
    if (given == 0) {
      const Py_ssize_t length = PyObject_Size(request.first);
      size = length < 0 ? py::Ref<>() : py::steal(PyLong_FromSsize_t(length));
      request.second = size.get();
    }
    if (given < 0 || request.second == nullptr) {
      return nullptr;
    }
  }
  py::Ref<> number;
  if constexpr (op == SockOp::accept || op == SockOp::connect) {
    // asyncio asks for the number before it tries, which what is no socket fails at.
    number = py::call_method(request.sock, loop->state().names.fileno);
    if (!number) {
      return nullptr;
    }
    request.number = number.get();
  }
  return SockCall::start(*loop, request);
}

template PyObject* sock_start<SockOp::recv>(PyObject*, PyObject* const*, Py_ssize_t, PyObject*);
template PyObject* sock_start<SockOp::recv_into>(PyObject*, PyObject* const*, Py_ssize_t, PyObject*);
template PyObject* sock_start<SockOp::recvfrom>(PyObject*, PyObject* const*, Py_ssize_t, PyObject*);
template PyObject* sock_start<SockOp::recvfrom_into>(PyObject*, PyObject* const*, Py_ssize_t, PyObject*);
template PyObject* sock_start<SockOp::accept>(PyObject*, PyObject* const*, Py_ssize_t, PyObject*);
template PyObject* sock_start<SockOp::sendall>(PyObject*, PyObject* const*, Py_ssize_t, PyObject*);
template PyObject* sock_start<SockOp::sendto>(PyObject*, PyObject* const*, Py_ssize_t, PyObject*);
template PyObject* sock_start<SockOp::connect>(PyObject*, PyObject* const*, Py_ssize_t, PyObject*);

// sock_sendfile(loop, sock, file, its number, offset, count, seeks_always)
PyObject* sock_sendfile(PyObject* module, PyObject* const* args, Py_ssize_t nargs, PyObject*) {
  if (nargs != 7) {
    PyErr_Format(PyExc_TypeError, "7 arguments are required, not %zd", nargs);
    return nullptr;
  }
  Loop* loop = loop_of(module, args[0]);
  if (loop == nullptr) {
    return nullptr;
  }
  long file = -1;
  long offset = 0;
  long count = 0;
  if (!number_in(args[3], false, &file) || (args[5] != Py_None && !number_in(args[5], true, &count))) {
    return nullptr;
  }
  struct stat found{};
  int failed = -1;
  if (file >= INT_MIN && file <= INT_MAX) {
    Py_BEGIN_ALLOW_THREADS;
    failed = fstat(static_cast<int>(file), &found);
    Py_END_ALLOW_THREADS;
  }
  if (failed != 0) {
    PyErr_SetString(loop->state().sendfile_not_available, "not a regular file");
    return nullptr;
  }
  if (count == 0 && found.st_size == 0) {
    return PyLong_FromLong(0);  // an empty file
  }
  if (!number_in(args[4], false, &offset)) {
    return nullptr;
  }
  SockRequest request{.op = SockOp::sendfile, .sock = args[1], .first = args[2], .total = count};
  request.file = static_cast<int>(file);
  request.offset = offset;
  request.seeks_always = args[6] == Py_True;
  py::Ref<> result = py::steal(SockCall::start(*loop, request));
  if (result && Py_TYPE(result.get()) == loop->state().sock_call_type) {
    return result.release();
  }
  py::Ref<> error = result ? py::Ref<>() : py::take_error();
  if (!leave_file_position(request)) {
    return nullptr;
  }
  if (error) {
    py::restore_error(std::move(error));
  }
  return result.release();
}

// ---- table

namespace {

PyObject* call_run(PyObject* self, PyObject*, PyObject*) { return py::state_of<SockCall>(self)->run(); }
PyObject* call_repr(PyObject* self) { return py::state_of<SockCall>(self)->repr(); }

PyGetSetDef attributes[] = {
    py::getter<&SockCall::get_future>("future", "What the coroutine awaits; None once let go of."),
    {nullptr, nullptr, nullptr, nullptr, nullptr},
};

PyMethodDef methods[] = {
    py::method<&SockCall::release>("release",
                                   "Wait no more; gives what was had meanwhile and must be closed, or None."),
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace

PyTypeObject* make_sock_call_type(PyObject* module) {
  const PyType_Slot more[] = {
      {Py_tp_call, reinterpret_cast<void*>(&call_run)},
      {Py_tp_repr, reinterpret_cast<void*>(&call_repr)},
      {Py_tp_getset, attributes},
      {Py_tp_methods, methods},
  };
  return py::make_type<SockCall>(module,
                                 {"uvpy._core.SockCall", "A call of sock_recv() or a sibling that waits.", more});
}

}  // namespace uvpy::core
