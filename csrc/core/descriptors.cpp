// add_reader, add_writer and their private twins. Public calls refuse a transport's descriptor, as asyncio's do; the
// texts are asyncio's and selectors'.
// SPDX-License-Identifier: MIT
#include <utility>

#include "core/debug.h"
#include "core/loop.h"
#include "py/args.h"
#include "py/call.h"
#include "py/error.h"

namespace uvpy::core {

namespace {

// ValueError in place of the exception that is set, which it remembers but does not show.
void raise_no_file(PyObject* fd) {
  py::Ref<> reason = py::take_error();
  PyErr_Format(PyExc_ValueError, "Invalid file object: %R", fd);
  py::Ref<> exc = py::take_error();
  if (exc && reason && exc.get() != reason.get()) {
    PyException_SetContext(exc.get(), reason.release());
    PyException_SetCause(exc.get(), nullptr);  // what `from None` does
  }
  py::restore_error(std::move(exc));
}

// The number of a descriptor or of an object with fileno(), a negative one too. Nothing with ValueError set.
py::Ref<> number_of(const ModuleState& state, PyObject* fd) {
  if (PyLong_Check(fd)) {
    return py::borrow(fd);
  }
  py::Ref<> made = py::call_method(fd, state.names.fileno);
  py::Ref<> number = made ? py::steal(PyNumber_Long(made.get())) : py::Ref<>();
  if (!number && (PyErr_ExceptionMatches(PyExc_AttributeError) != 0 || PyErr_ExceptionMatches(PyExc_TypeError) != 0 ||
                  PyErr_ExceptionMatches(PyExc_ValueError) != 0)) {
    raise_no_file(fd);
  }
  return number;
}

// As an int. -1 where it is negative; a number that no descriptor has, for the kernel to say so, where it is too large.
int as_int(PyObject* number) {
  int overflow = 0;
  const long value = PyLong_AsLongAndOverflow(number, &overflow);
  if (overflow < 0 || (overflow == 0 && value < 0)) {
    return -1;
  }
  return overflow > 0 || value > INT_MAX ? INT_MAX : static_cast<int>(value);
}

// The number of a descriptor; an object that is closed stands for the one that it was given for. -1 with ValueError set,
// or with OverflowError for a number that the kernel, which is to be told of it, cannot be told.
int file_number(Loop& loop, PyObject* fd, bool must_fit = false) {
  py::Ref<> number = number_of(loop.state(), fd);
  if (!number && PyErr_ExceptionMatches(PyExc_ValueError) == 0) {
    return -1;
  }
  const int value = number ? as_int(number.get()) : -1;
  if (value == INT_MAX && must_fit) {
    int overflow = 0;
    if (PyLong_AsLongAndOverflow(number.get(), &overflow) != INT_MAX) {
      PyErr_SetString(PyExc_OverflowError, "Python int too large to convert to C int");
      return -1;
    }
  }
  if (value >= 0) {
    return value;
  }
  const int known = PyLong_Check(fd) ? -1 : loop.watched_files().find(fd);
  if (known >= 0) {
    PyErr_Clear();
  } else if (number) {
    PyErr_Format(PyExc_ValueError, "Invalid file descriptor: %S", number.get());
  }
  return known;
}

// Whether an object that is known for a descriptor is still its: closed behind our back, the number may be another's.
bool is_still(const ModuleState& state, PyObject* file, int fd) {
  py::Ref<> held = py::borrow(file);
  py::Ref<> number = number_of(state, file);
  if (!number) {
    PyErr_Clear();
  }
  return number && as_int(number.get()) == fd;
}

}  // namespace

// Whether no transport of asyncio's own is on a loop: its table of them, which their code writes to, is empty.
static bool has_none_of_asyncio(const ModuleState& state, PyObject* loop) {
  py::Ref<> transports = py::get_attr(loop, state.names._transports);
  py::Ref<> data = transports ? py::get_attr(transports.get(), state.names.data) : py::Ref<>();
  if (!data) {
    PyErr_Clear();
  }
  return data && PyDict_CheckExact(data.get()) && PyDict_GET_SIZE(data.get()) == 0;
}

bool Loop::refuse_transport(PyObject* fd) {
  if (!overridden(kNoTransport) && has_none_of_asyncio(*state_, object())) [[likely]] {
    // What is left of uvpy.Loop's method; the other half of it ends in a KeyError that it swallows.
    return static_cast<bool>(py::steal(ensure_fd_no_transport(fd)));
  }
  return static_cast<bool>(py::call_method(object(), state_->names._ensure_fd_no_transport, fd));
}

PyObject* Loop::ensure_fd_no_transport(PyObject* fd) {
  // The native half: uvpy.Loop asks for asyncio's own transports as well.
  py::Ref<> known = number_of(*state_, fd);
  if (!known) {
    return nullptr;
  }
  const int number = as_int(known.get());  // a closed one is nobody's
  PyObject* found = watchers_.transport(number);
  if (found == nullptr) {
    watchers_.forget_kept(*this, number);
    Py_RETURN_NONE;
  }
  py::Ref<> transport = py::borrow(found);
  py::Ref<> closing = py::call_method(transport.get(), state_->names.is_closing);
  const int gone = closing ? PyObject_IsTrue(closing.get()) : -1;
  if (gone != 0) {
    return gone < 0 ? nullptr : Py_NewRef(Py_None);
  }
  PyErr_Format(PyExc_RuntimeError, "File descriptor %R is used by transport %R", fd, transport.get());
  return nullptr;
}

PyObject* Loop::add_watch(unsigned side, const char* name, bool is_public, PyObject* const* args, Py_ssize_t nargs,
                          PyObject* kwnames) {
  static constexpr const char* kNames[] = {"fd", "callback"};
  py::ScheduleArgs given;
  if (!py::parse_schedule(name, kNames, state_->names.context, args, nargs, kwnames, &given)) {
    return nullptr;
  }
  if (given.context != nullptr && (is_public || !py::kReadersTakeContext)) {
    PyErr_Format(PyExc_TypeError, "%s() got an unexpected keyword argument 'context'", name);
    return nullptr;
  }
  if ((is_public && !refuse_transport(given.named[0])) || !check_closed()) {
    return nullptr;
  }
  PyObject* file = given.named[0];
  const int fd = file_number(*this, file, true);
  if (fd < 0) {
    return nullptr;
  }
  // The first one that it is watched by stays the one it is known by.
  PyObject* known = watched_files_.get(fd);
  const bool is_first =
      watchers_.watched(fd) == 0 || (known != nullptr && known != file && !is_still(*state_, known, fd));
  py::Ref<> handle = make_handle(given.named[1], given.rest, given.rest_count, given.context);
  if (!handle || !watchers_.add(*this, fd, side, handle.dup())) {
    return nullptr;
  }
  py::Ref<> before;
  if (is_first && !watched_files_.set(fd, PyLong_Check(file) ? nullptr : file, &before)) {
    py::SavedError error;
    watchers_.remove(*this, fd, side);
    return nullptr;
  }
  if (is_public) {
    Py_RETURN_NONE;
  }
  return handle.release();
}

PyObject* Loop::remove_watch(unsigned side, bool is_public, PyObject* fd) {
  if (is_public && !refuse_transport(fd)) {
    return nullptr;
  }
  if (closed_) {
    Py_RETURN_FALSE;
  }
  const int number = file_number(*this, fd);
  if (number < 0) {
    return nullptr;
  }
  const int removed = watchers_.remove(*this, number, side);
  py::Ref<> file = watchers_.watched(number) == 0 ? watched_files_.take(number) : py::Ref<>();
  return removed < 0 ? nullptr : PyBool_FromLong(removed);
}

PyObject* Loop::add_reader(PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames) {
  return add_watch(kReadable, "add_reader", true, args, nargs, kwnames);
}
PyObject* Loop::add_writer(PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames) {
  return add_watch(kWritable, "add_writer", true, args, nargs, kwnames);
}
PyObject* Loop::add_reader_private(PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames) {
  return add_watch(kReadable, "_add_reader", false, args, nargs, kwnames);
}
PyObject* Loop::add_writer_private(PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames) {
  return add_watch(kWritable, "_add_writer", false, args, nargs, kwnames);
}
PyObject* Loop::remove_reader(PyObject* fd) { return remove_watch(kReadable, true, fd); }
PyObject* Loop::remove_writer(PyObject* fd) { return remove_watch(kWritable, true, fd); }
PyObject* Loop::remove_reader_private(PyObject* fd) { return remove_watch(kReadable, false, fd); }
PyObject* Loop::remove_writer_private(PyObject* fd) { return remove_watch(kWritable, false, fd); }

PyObject* Loop::watched(PyObject* fd) {
  // What asyncio's own transports ask a selector for: (events, reader, writer), or None.
  const int number = file_number(*this, fd);
  if (number < 0) {
    return nullptr;
  }
  const unsigned mask = watchers_.watched(number);
  if (mask == 0) {
    Py_RETURN_NONE;
  }
  PyObject* reader = watchers_.handle(number, kReadable);
  PyObject* writer = watchers_.handle(number, kWritable);
  // Held before the tuple is made, which may collect.
  return Py_BuildValue("(INN)", mask, Py_NewRef(reader != nullptr ? reader : Py_None),
                       Py_NewRef(writer != nullptr ? writer : Py_None));
}

PyObject* Loop::wakeup_fd() {
  if (!check_closed()) {
    return nullptr;
  }
  const int fd = interrupt_.write_end(*this);
  return fd < 0 ? nullptr : PyLong_FromLong(fd);
}

}  // namespace uvpy::core
