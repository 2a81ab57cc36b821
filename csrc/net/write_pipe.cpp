// The writing end of a pipe. A write leaves at once; what the kernel refuses waits for the writer, a handle of the loop.
// SPDX-License-Identifier: MIT
#include "net/write_pipe.h"

#include <algorithm>
#include <cerrno>

#include "core/debug.h"
#include "net/pipe_type.h"
#include "net/transport_type.h"
#include "py/args.h"
#include "py/buffer.h"
#include "py/call.h"

namespace uvpy::net {

namespace {

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
    // Dropped in silence; who goes on and on is warned.
    return count_lost_write("pipe closed by peer or os.write(pipe, data) raised exception.") ? Py_NewRef(Py_None)
                                                                                             : nullptr;
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
  const py::Ref<> first = py::borrow(queue_.front());  // only this one is written with the GIL given up
  iovec parts[kVectors];
  for (unsigned i = 0; i < count; ++i) {
    parts[i] = {bufs[i].base, bufs[i].len};
  }
  const ssize_t sent = write_some(parts, static_cast<int>(count));
  if (sent == -EAGAIN || sent == -EWOULDBLOCK || queue_.empty() || queue_.front() != first.get()) {
    Py_RETURN_NONE;  // or another thread has sent or dropped it meanwhile
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
  queue_.consume(std::min(static_cast<std::size_t>(sent), queue_.bytes()));
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

using Rows = PipeRows<Self>;

auto attributes = py::table_of(
    Rows::attributes(),
    std::array{
        Rows::getter<&Transport::get_conn_lost>("_conn_lost", "How many writes were dropped, a failed one counted."),
        Rows::getset<&Transport::get_protocol_paused, &Transport::set_protocol_paused>(
            "_protocol_paused", "Whether pause_writing() was called last."),
        Rows::getset<&Transport::get_high_water, &Transport::set_high_water>("_high_water",
                                                                             "Bytes above which to pause."),
        Rows::getset<&Transport::get_low_water, &Transport::set_low_water>("_low_water",
                                                                           "Bytes down to which to resume."),
        Rows::getter<&Self::get_buffer>("_buffer", "A copy of the bytes that wait."),
    });

auto methods = py::table_of(
    Rows::methods(),
    std::array{
        Rows::method<&Self::abort>(
            "abort", "abort($self)\n--\n\nClose at once, dropping what is waiting; connection_lost(None) follows."),
        Rows::keyword_method<&Self::write, "write", "data">(
            "write($self, data)\n--\n\nSend bytes, now or as soon as the pipe takes them."),
        Rows::method<&Self::write_eof>("write_eof",
                                       "write_eof($self)\n--\n\nThe same as close(): a pipe has one direction."),
        Rows::method<&Self::can_write_eof>("can_write_eof", "can_write_eof($self)\n--\n\nTrue."),
        Rows::method<&Self::get_write_buffer_size>(
            "get_write_buffer_size", "get_write_buffer_size($self)\n--\n\nBytes written that the pipe has not taken."),
        Rows::method<&Transport::get_write_buffer_limits>(
            "get_write_buffer_limits", "get_write_buffer_limits($self)\n--\n\n(low, high) in bytes."),
        Rows::method<&Transport::set_write_buffer_limits>(
            "set_write_buffer_limits",
            "set_write_buffer_limits($self, high=None, low=None)\n--\n\n"
            "Set the marks, in bytes, at which the protocol is paused and resumed."),
        Rows::method<&Self::start_reading>("_start_reading",
                                           "Begin to watch for the reader's end; runs after connection_made()."),
        Rows::method<&Self::write_ready>("_write_ready", "Send what waits."),
    });

}  // namespace

PyTypeObject* make_write_pipe_type(PyObject* module, ModuleState* state) {
  const PyType_Slot more[] = {
      {Py_tp_repr, reinterpret_cast<void*>(&Rows::repr)},
      {Py_tp_getset, attributes.data()},
      {Py_tp_methods, methods.data()},
  };
  return make_transport_type<Self>(
      module, {"uvpy._core.WritePipeTransport", "The writing end of a pipe; see asyncio.WriteTransport.", more,
               Py_TPFLAGS_DISALLOW_INSTANTIATION, state->flow_control_mixin});
}

}  // namespace uvpy::net
