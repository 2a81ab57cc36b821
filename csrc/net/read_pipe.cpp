// The reading end of a pipe. Its reader is a handle of the loop, made when connection_made() has been called.
// SPDX-License-Identifier: MIT
#include "net/read_pipe.h"

#include <cerrno>

#include "core/debug.h"
#include "net/transport_type.h"
#include "py/call.h"
#include "py/method.h"

namespace uvpy::net {

py::Ref<> ReadPipeTransport::make(core::Loop& loop, const PipeParts& parts) {
  py::Ref<> self = py::steal(py::create<ReadPipeTransport>(loop.state().read_pipe_type));
  if (!self) {
    return {};
  }
  auto* state = py::state_of<ReadPipeTransport>(self.get());
  if (!state->open(loop, self.get(), parts, "Pipe transport is for pipes/sockets only.") ||
      !state->schedule_start(parts.waiter)) {
    return {};
  }
  state->opened();
  return self;
}

// ---- reading

PyObject* ReadPipeTransport::start_reading() {
  if (!paused_ && !closing_ && !watch(core::kReadable, loop().state().names._read_ready)) {
    return nullptr;
  }
  Py_RETURN_NONE;
}

PyObject* ReadPipeTransport::is_reading() { return PyBool_FromLong(!closing_ && !paused_ ? 1 : 0); }

PyObject* ReadPipeTransport::pause_reading() {
  if (closing_ || paused_) {
    Py_RETURN_NONE;
  }
  paused_ = true;
  if (!unwatch(core::kReadable) || (loop().debug() && !core::debug::log(loop(), "%r pauses reading", self_))) {
    return nullptr;
  }
  Py_RETURN_NONE;
}

PyObject* ReadPipeTransport::resume_reading() {
  if (closing_ || !paused_) {
    Py_RETURN_NONE;
  }
  paused_ = false;
  if (!watch(core::kReadable, loop().state().names._read_ready) ||
      (loop().debug() && !core::debug::log(loop(), "%r resumes reading", self_))) {
    return nullptr;
  }
  Py_RETURN_NONE;
}

PyObject* ReadPipeTransport::read_ready() {
  if (ending_ || lost_ || loop().is_foreign()) {
    Py_RETURN_NONE;  // called by hand
  }
  py::Ref<> alive = py::borrow(self_);
  char* slab = loop().slab();
  if (slab == nullptr) {
    return PyErr_NoMemory();
  }
  const ssize_t count = read_some(slab, core::Loop::kSlabSize);
  if (count > 0) {
    py::Ref<> data = py::steal(PyBytes_FromStringAndSize(slab, count));
    py::Ref<> protocol = py::borrow(protocol_.get());
    // What it raises is an error of this callback, as in asyncio: the transport lives on.
    if (!data || !protocol || !py::call_method(protocol.get(), loop().state().names.data_received, data.get())) {
      return nullptr;
    }
    Py_RETURN_NONE;
  }
  if (count == -EAGAIN || count == -EWOULDBLOCK) {
    Py_RETURN_NONE;
  }
  if (count == kInterrupted) {
    return nullptr;
  }
  if (count == 0 ? !ended()
                 : !fatal_os_error(py::os_error(static_cast<int>(-count)), "Fatal read error on pipe transport")) {
    return nullptr;
  }
  Py_RETURN_NONE;
}

bool ReadPipeTransport::ended() {
  if (loop().debug() && !core::debug::log_info(loop(), "%r was closed by peer", self_)) {
    return false;
  }
  closing_ = true;
  ending_ = true;
  if (!unwatch(core::kReadable)) {
    return false;
  }
  // What eof_received() gives is not asked for: a pipe has one direction.
  py::Ref<> eof = py::get_attr(protocol_.get(), loop().state().names.eof_received);
  const bool told = eof && loop().call_soon_for(eof.get(), nullptr);
  py::SavedError error;  // a protocol without eof_received() is told of the end all the same
  const bool lost = schedule_connection_lost(nullptr);
  return told && lost;
}

// ---- ending

// A terminal whose other side has gone gives EIO.
bool ReadPipeTransport::is_everyday_error(PyObject* exc) const {
  if (!Transport::is_everyday_error(exc)) {
    return false;
  }
  py::SavedError error;
  py::Ref<> code = py::steal(PyObject_GetAttrString(exc, "errno"));
  const bool is_eio = code && PyLong_Check(code.get()) && PyLong_AsLong(code.get()) == EIO;
  PyErr_Clear();
  return is_eio;
}

PyObject* ReadPipeTransport::close() {
  if (!closing_ && !force_close(nullptr)) {
    return nullptr;
  }
  Py_RETURN_NONE;
}

PyObject* ReadPipeTransport::force_close_method(PyObject* exc) {
  return force_close(exc == Py_None ? nullptr : exc) ? Py_NewRef(Py_None) : nullptr;
}

bool ReadPipeTransport::force_close(PyObject* exc) {
  if (ending_ || lost_) {
    return true;
  }
  closing_ = true;
  if (!unwatch(core::kReadable) || !schedule_connection_lost(exc)) {
    return false;
  }
  ending_ = true;
  return true;
}

PyObject* ReadPipeTransport::get_paused() { return PyBool_FromLong(paused_ ? 1 : 0); }

// ---- from Python

PyObject* make_read_pipe_transport(PyObject* module, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames) {
  core::Loop* loop = nullptr;
  PipeParts parts;
  if (!parse_pipe(module, "make_read_pipe_transport", args, nargs, kwnames, &loop, &parts)) {
    return nullptr;
  }
  return ReadPipeTransport::make(*loop, parts).release();
}

// ---- tables

namespace {

using Self = ReadPipeTransport;

PyObject* repr(PyObject* self) { return py::state_of<Self>(self)->repr(); }

PyGetSetDef attributes[] = {
    py::getset_of<Self, &Pipe::get_pipe, &Pipe::set_pipe>("_pipe", "The file object; None once closed."),
    py::getter_of<Self, &Transport::get_extra>("_extra", "The dict behind get_extra_info()."),
    py::getter_of<Self, &Transport::get_loop>("_loop", "The loop; None once the connection is lost."),
    py::getter_of<Self, &Transport::get_fd>("_fileno", "The number of the descriptor."),
    py::getter_of<Self, &Transport::get_protocol>("_protocol", "The protocol; None once the connection is lost."),
    py::getter_of<Self, &Transport::is_closing>("_closing", "Whether it is closing or closed."),
    py::getter<&Self::get_paused>("_paused", "Whether reading is paused."),
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
    py::method<&Self::close>("close", "close($self)\n--\n\nClose; connection_lost(None) follows."),
    py::method<&Self::pause_reading>("pause_reading",
                                     "pause_reading($self)\n--\n\nDeliver no data until resume_reading()."),
    py::method<&Self::resume_reading>("resume_reading", "resume_reading($self)\n--\n\nDeliver data again."),
    py::method<&Self::is_reading>("is_reading", "is_reading($self)\n--\n\nWhether data is delivered."),
    py::method<&Self::start_reading>("_start_reading", "Begin to read; runs after connection_made()."),
    py::method<&Self::read_ready>("_read_ready", "Read what has come and deliver it."),
    py::keyword_method<&Self::force_close_method, "_close", "exc">("Close at once because of an exception."),
    py::method_of<Self, &Transport::call_connection_lost>("_call_connection_lost",
                                                          "Call the protocol's connection_lost() and close the file."),
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace

PyTypeObject* make_read_pipe_type(PyObject* module, ModuleState* state) {
  const PyType_Slot more[] = {
      {Py_tp_repr, reinterpret_cast<void*>(&repr)},
      {Py_tp_getset, attributes},
      {Py_tp_methods, methods},
  };
  py::Ref<> type = py::steal(reinterpret_cast<PyObject*>(make_transport_type<Self>(
      module, {"uvpy._core.ReadPipeTransport", "The reading end of a pipe; see asyncio.ReadTransport.", more,
               Py_TPFLAGS_DISALLOW_INSTANTIATION, state->read_transport})));
  py::Ref<> size = py::steal(PyLong_FromSize_t(core::Loop::kSlabSize));
  if (!type || !size || PyObject_SetAttrString(type.get(), "max_size", size.get()) < 0) {
    return nullptr;
  }
  return reinterpret_cast<PyTypeObject*>(type.release());
}

}  // namespace uvpy::net
