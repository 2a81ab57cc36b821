// The reading end of a pipe. Its reader is a handle of the loop, made when connection_made() has been called.
// SPDX-License-Identifier: MIT
#include "net/read_pipe.h"

#include <cerrno>

#include "core/debug.h"
#include "net/pipe_type.h"
#include "net/transport_type.h"
#include "py/args.h"
#include "py/call.h"

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

// As asyncio's transport begins, so that the report of a descriptor that cannot be watched names the same handle.
bool ReadPipeTransport::schedule_reading() {
  const ModuleState::Names& names = loop().state().names;
  py::Ref<> start = py::get_attr(self_, names._add_reader);
  py::Ref<> ready = start ? py::get_attr(self_, names._read_ready) : py::Ref<>();
  py::Ref<> fd = ready ? py::steal(PyLong_FromLong(fd_)) : py::Ref<>();
  return fd && py::call_method(loop().object(), names.call_soon, start.get(), fd.get(), ready.get());
}

PyObject* ReadPipeTransport::add_reader_method(PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames) {
  static constexpr const char* kNames[] = {"fd", "callback"};
  PyObject* given[2];
  if (!py::parse({"_add_reader", kNames, 2, 2}, args, nargs, kwnames, given)) {
    return nullptr;
  }
  if (!paused_ && !closing_ && !watch_for(core::kReadable, given[0], given[1])) {
    return nullptr;
  }
  Py_RETURN_NONE;
}

bool ReadPipeTransport::go_on_reading() { return watch(core::kReadable, loop().state().names._read_ready); }

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

PyObject* ReadPipeTransport::force_close_method(PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames) {
  static constexpr const char* kNames[] = {"exc"};
  PyObject* exc = nullptr;
  if (!py::parse({"_close", kNames, 1, 1}, args, nargs, kwnames, &exc)) {
    return nullptr;
  }
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

using Rows = PipeRows<Self>;

auto attributes =
    py::table_of(Rows::attributes(), std::array{
                                         Rows::getter<&Transport::get_paused>("_paused", "Whether reading is paused."),
                                     });

auto methods = py::table_of(
    Rows::methods(),
    std::array{
        Rows::method<&Transport::pause_reading>("pause_reading",
                                                "pause_reading($self)\n--\n\nDeliver no data until resume_reading()."),
        Rows::method<&Transport::resume_reading>("resume_reading", "resume_reading($self)\n--\n\nDeliver data again."),
        Rows::method<&Transport::is_reading>("is_reading", "is_reading($self)\n--\n\nWhether data is delivered."),
        Rows::method<&Self::add_reader_method>("_add_reader", "Begin to read; runs after connection_made()."),
    });

}  // namespace

PyTypeObject* make_read_pipe_type(PyObject* module, ModuleState* state) {
  const PyType_Slot more[] = {
      {Py_tp_repr, reinterpret_cast<void*>(&Rows::repr)},
      {Py_tp_getset, attributes.data()},
      {Py_tp_methods, methods.data()},
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
