// The writing end of a pipe. A write leaves at once; what the kernel refuses waits for the writer, a handle of the loop.
// SPDX-License-Identifier: MIT
#include "net/write_pipe.h"

#include <cerrno>

#include "core/debug.h"
#include "net/transport_type.h"
#include "py/args.h"
#include "py/buffer.h"
#include "py/call.h"
#include "py/method.h"

namespace uvpy::net {

namespace {

// asyncio.constants.LOG_THRESHOLD_FOR_CONNLOST_WRITES
constexpr unsigned kWarnAfter = 5;
// As many as one writev takes (IOV_MAX).
constexpr unsigned kVectors = 1024;
constexpr std::size_t kMostAtOnce = std::size_t{1} << 30;

// asyncio has an assert where the kind of the data is checked.
bool asserts_are_on() {
  py::SavedError error;
  PyObject* flags = PySys_GetObject("flags");
  py::Ref<> level = flags != nullptr ? py::steal(PyObject_GetAttrString(flags, "optimize")) : py::Ref<>();
  PyErr_Clear();
  return !level || PyObject_IsTrue(level.get()) == 0;
}

}  // namespace

py::Ref<> WritePipeTransport::make(core::Loop& loop, const PipeParts& parts) {
  py::Ref<> self = py::steal(py::create<WritePipeTransport>(loop.state().write_pipe_type));
  if (!self) {
    return {};
  }
  auto* state = py::state_of<WritePipeTransport>(self.get());
  if (!state->open(loop, self.get(), parts, "Pipe transport is only for pipes, sockets and character devices") ||
      !state->schedule_start(parts.waiter, state->notices_the_reader())) {
    return {};
  }
  state->opened();
  return self;
}

// ---- the reader

// Where the kernel tells a writer that the reader has gone by making the descriptor readable.
bool WritePipeTransport::notices_the_reader() const {
#ifdef _AIX
  return kind() == Kind::socket;
#elif defined(__APPLE__) || defined(__sun)
  // A FIFO of the file system is readable there while anything waits in it (gh-145030).
  return kind() == Kind::socket || kind() == Kind::fifo;
#else
  return kind() != Kind::device;
#endif
}

PyObject* WritePipeTransport::start_reading() {
  // Also while it is closing and something waits: the reader may go before that is sent.
  if (!ending_ && !lost_ && !watch(core::kReadable, loop().state().names._read_ready)) {
    return nullptr;
  }
  Py_RETURN_NONE;
}

PyObject* WritePipeTransport::read_ready() {
  py::Ref<> alive = py::borrow(self_);
  if (loop().debug() && !core::debug::log_info(loop(), "%r was closed by peer", self_)) {
    return nullptr;
  }
  py::Ref<> exc;
  if (!queue_.empty()) {
    exc = py::steal(PyObject_CallNoArgs(PyExc_BrokenPipeError));
    if (!exc) {
      return nullptr;
    }
  }
  return force_close(exc.get()) ? Py_NewRef(Py_None) : nullptr;
}

// ---- writing

// What is written to a pipe that is closing or lost is dropped in silence; who goes on and on is warned.
bool WritePipeTransport::drop_write() {
  if (conn_lost_ >= kWarnAfter) {
    const ModuleState& state = loop().state();
    py::Ref<> logger = py::get_attr(state.base_events, state.names.logger);
    py::Ref<> text = py::steal(PyUnicode_FromString("pipe closed by peer or os.write(pipe, data) raised exception."));
    if (!logger || !text || !py::call_method(logger.get(), state.names.warning, text.get())) {
      return false;
    }
  }
  ++conn_lost_;
  return true;
}

bool WritePipeTransport::write_failed(py::Ref<>&& exc) {
  if (!exc) {
    return false;
  }
  if (py::ends_the_loop(exc.get())) {
    py::restore_error(std::move(exc));
    return false;
  }
  ++conn_lost_;
  return fatal_error(exc.get(), "Fatal write error on pipe transport");
}

PyObject* WritePipeTransport::write(PyObject* data) {
  py::Ref<> alive = py::borrow(self_);
  if (!PyBytes_Check(data) && !PyByteArray_Check(data) && !PyMemoryView_Check(data) && asserts_are_on()) {
    py::Ref<> text = py::steal(PyObject_Repr(data));
    if (text) {
      PyErr_SetObject(PyExc_AssertionError, text.get());
    }
    return nullptr;
  }
  const int any = PyObject_IsTrue(data);
  if (any <= 0) {
    return any < 0 ? nullptr : Py_NewRef(Py_None);
  }
  py::BufferView view;
  const bool viewed = view.acquire(data, PyBUF_SIMPLE);
  py::Ref<> refused = viewed ? py::Ref<>() : py::take_error();
  // Only now the state: a subclass's buffer may have run code.
  if (conn_lost_ > 0 || closing_) {
    return drop_write() ? Py_NewRef(Py_None) : nullptr;
  }
  bool ok = false;
  if (viewed) {
    ok = send(data, view.data(), static_cast<std::size_t>(view.size()));
  } else if (queue_.empty()) {
    // What cannot be sent, a memoryview with gaps, is an error of sending in asyncio: fatal for the transport.
    ok = write_failed(std::move(refused));
  } else {
    PyErr_Format(PyExc_TypeError, "can't concat %.100s to bytearray", Py_TYPE(data)->tp_name);
  }
  return ok ? Py_NewRef(Py_None) : nullptr;
}

bool WritePipeTransport::send(PyObject* object, const char* data, std::size_t size) {
  std::size_t offset = 0;
  if (queue_.empty()) {
    const iovec part = {const_cast<char*>(data), size};
    const ssize_t sent = write_some(&part, 1);
    if (sent == kInterrupted) {
      return write_failed(py::take_error());
    }
    if (sent < 0 && sent != -EAGAIN && sent != -EWOULDBLOCK) {
      return write_failed(py::os_error(static_cast<int>(-sent)));
    }
    offset = sent > 0 ? static_cast<std::size_t>(sent) : 0;
    if (offset == size || ending_ || lost_) {
      return true;
    }
    if (!watch(core::kWritable, loop().state().names._write_ready)) {
      return false;
    }
  }
  // Exact bytes are kept by reference, all else is copied now.
  py::Ref<> kept = PyBytes_CheckExact(object)
                       ? py::borrow(object)
                       : py::steal(PyBytes_FromStringAndSize(data + offset, static_cast<Py_ssize_t>(size - offset)));
  const bool whole = kept.get() == object;
  return kept && queue_.push(std::move(kept), whole ? offset : 0) && pause_protocol_if_full();
}

PyObject* WritePipeTransport::write_ready() {
  if (queue_.empty() || loop().is_foreign()) {
    Py_RETURN_NONE;  // called by hand
  }
  py::Ref<> alive = py::borrow(self_);
  uv_buf_t bufs[kVectors];
  const unsigned count = queue_.fill(bufs, kVectors, kMostAtOnce);
  iovec parts[kVectors];
  for (unsigned i = 0; i < count; ++i) {
    parts[i] = {bufs[i].base, bufs[i].len};
  }
  const ssize_t sent = write_some(parts, static_cast<int>(count));
  if (sent == -EAGAIN || sent == -EWOULDBLOCK) {
    Py_RETURN_NONE;
  }
  if (sent < 0) {
    py::Ref<> exc = sent == kInterrupted ? py::take_error() : py::os_error(static_cast<int>(-sent));
    if (exc && !py::ends_the_loop(exc.get())) {
      queue_.clear();
      if (!unwatch(core::kWritable)) {
        return nullptr;
      }
    }
    return write_failed(std::move(exc)) ? Py_NewRef(Py_None) : nullptr;
  }
  queue_.consume(static_cast<std::size_t>(sent));
  if (!queue_.empty()) {
    Py_RETURN_NONE;  // asyncio resumes the protocol only when all is sent
  }
  bool ok = unwatch(core::kWritable) && resume_protocol_if_drained();  // which may write
  if (closing_ && queue_.empty() && !lost_) {
    py::SavedError error;
    ending_ = true;
    if (!unwatch(core::kReadable)) {
      return nullptr;
    }
    py::Ref<> done = py::steal(call_connection_lost(Py_None));
    ok = done && ok;
  }
  return ok ? Py_NewRef(Py_None) : nullptr;
}

PyObject* WritePipeTransport::get_write_buffer_size() { return PyLong_FromSize_t(queue_.bytes()); }

PyObject* WritePipeTransport::get_buffer() {
  py::Ref<> all = py::steal(PyByteArray_FromStringAndSize(nullptr, static_cast<Py_ssize_t>(queue_.bytes())));
  if (all) {
    queue_.copy_to(PyByteArray_AS_STRING(all.get()));
  }
  return all.release();
}

// ---- ending

PyObject* WritePipeTransport::can_write_eof() { Py_RETURN_TRUE; }

PyObject* WritePipeTransport::write_eof() {
  if (closing_) {
    Py_RETURN_NONE;
  }
  closing_ = true;
  if (queue_.empty()) {
    if (!unwatch(core::kReadable) || !schedule_connection_lost(nullptr)) {
      return nullptr;
    }
    ending_ = true;
  }
  Py_RETURN_NONE;
}

PyObject* WritePipeTransport::close() { return write_eof(); }

PyObject* WritePipeTransport::abort() { return force_close(nullptr) ? Py_NewRef(Py_None) : nullptr; }

PyObject* WritePipeTransport::force_close_method(PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames) {
  static constexpr const char* kNames[] = {"exc"};
  PyObject* exc = nullptr;
  if (!py::parse({"_close", kNames, 0, 1}, args, nargs, kwnames, &exc)) {
    return nullptr;
  }
  return force_close(exc == Py_None ? nullptr : exc) ? Py_NewRef(Py_None) : nullptr;
}

bool WritePipeTransport::force_close(PyObject* exc) {
  if (ending_ || lost_) {
    return true;
  }
  closing_ = true;
  const bool was_waiting = !queue_.empty();
  queue_.clear();
  if ((was_waiting && !unwatch(core::kWritable)) || !unwatch(core::kReadable) || !schedule_connection_lost(exc)) {
    return false;
  }
  ending_ = true;
  return true;
}

// ---- from Python

PyObject* make_write_pipe_transport(PyObject* module, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames) {
  core::Loop* loop = nullptr;
  PipeParts parts;
  if (!parse_pipe(module, "make_write_pipe_transport", args, nargs, kwnames, &loop, &parts)) {
    return nullptr;
  }
  return WritePipeTransport::make(*loop, parts).release();
}

// ---- tables

namespace {

using Self = WritePipeTransport;

PyObject* repr(PyObject* self) { return py::state_of<Self>(self)->repr(); }

PyGetSetDef attributes[] = {
    py::getset_of<Self, &Pipe::get_pipe, &Pipe::set_pipe>("_pipe", "The file object; None once closed."),
    py::getter_of<Self, &Transport::get_extra>("_extra", "The dict behind get_extra_info()."),
    py::getter_of<Self, &Transport::get_loop>("_loop", "The loop; None once the connection is lost."),
    py::getter_of<Self, &Transport::get_fd>("_fileno", "The number of the descriptor."),
    py::getter_of<Self, &Transport::get_protocol>("_protocol", "The protocol; None once the connection is lost."),
    py::getter_of<Self, &Transport::get_conn_lost>("_conn_lost", "How many writes were dropped, a failed one counted."),
    py::getter_of<Self, &Transport::is_closing>("_closing", "Whether it is closing or closed."),
    py::getter_of<Self, &Transport::get_protocol_paused>("_protocol_paused",
                                                         "Whether pause_writing() was called last."),
    py::getter<&Self::get_buffer>("_buffer", "A copy of the bytes that wait."),
    {nullptr, nullptr, nullptr, nullptr, nullptr},
};

PyMethodDef methods[] = {
    py::method_of<Self, &Transport::get_extra_info>(
        "get_extra_info", "get_extra_info($self, name, default=None)\n--\n\nWhat is known about the pipe."),
    py::method_of<Self, &Transport::is_closing>("is_closing",
                                                "is_closing($self)\n--\n\nWhether it is closing or closed."),
    py::method_of<Self, &Transport::get_protocol>("get_protocol", "get_protocol($self)\n--\n\nThe protocol."),
    py::keyword_method_of<Self, &Pipe::set_protocol, "set_protocol", "protocol">(
        "set_protocol($self, protocol)\n--\n\nSwitch to another protocol."),
    py::method<&Self::close>("close",
                             "close($self)\n--\n\nSend what is waiting, then close; connection_lost(None) follows."),
    py::method<&Self::abort>(
        "abort", "abort($self)\n--\n\nClose at once, dropping what is waiting; connection_lost(None) follows."),
    py::keyword_method<&Self::write, "write", "data">(
        "write($self, data)\n--\n\nSend bytes, now or as soon as the pipe takes them."),
    py::method<&Self::write_eof>("write_eof", "write_eof($self)\n--\n\nThe same as close(): a pipe has one direction."),
    py::method<&Self::can_write_eof>("can_write_eof", "can_write_eof($self)\n--\n\nTrue."),
    py::method<&Self::get_write_buffer_size>(
        "get_write_buffer_size", "get_write_buffer_size($self)\n--\n\nBytes written that the pipe has not taken."),
    py::method_of<Self, &Transport::get_write_buffer_limits>(
        "get_write_buffer_limits", "get_write_buffer_limits($self)\n--\n\n(low, high) in bytes."),
    py::method_of<Self, &Transport::set_write_buffer_limits>(
        "set_write_buffer_limits",
        "set_write_buffer_limits($self, high=None, low=None)\n--\n\n"
        "Set the marks, in bytes, at which the protocol is paused and resumed."),
    py::method<&Self::start_reading>("_start_reading",
                                     "Begin to watch for the reader's end; runs after connection_made()."),
    py::method<&Self::read_ready>("_read_ready", "The reader has gone."),
    py::method<&Self::write_ready>("_write_ready", "Send what waits."),
    py::method<&Self::force_close_method>("_close", "Close at once because of an exception."),
    py::method_of<Self, &Transport::call_connection_lost>("_call_connection_lost",
                                                          "Call the protocol's connection_lost() and close the file."),
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace

PyTypeObject* make_write_pipe_type(PyObject* module, ModuleState* state) {
  const PyType_Slot more[] = {
      {Py_tp_repr, reinterpret_cast<void*>(&repr)},
      {Py_tp_getset, attributes},
      {Py_tp_methods, methods},
  };
  return make_transport_type<Self>(
      module, {"uvpy._core.WritePipeTransport", "The writing end of a pipe; see asyncio.WriteTransport.", more,
               Py_TPFLAGS_DISALLOW_INSTANTIATION, state->flow_control_mixin});
}

}  // namespace uvpy::net
