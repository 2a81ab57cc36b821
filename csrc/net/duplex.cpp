// Pausing both directions of a transport. Called by its methods and by the streams and datagram transports on it.
// SPDX-License-Identifier: MIT
#include "net/duplex.h"

#include <algorithm>

#include "core/debug.h"
#include "core/report.h"
#include "py/args.h"
#include "py/call.h"

namespace uvpy::net {

namespace {
// asyncio.constants.LOG_THRESHOLD_FOR_CONNLOST_WRITES
constexpr unsigned kWarnAfter = 5;
}  // namespace

// ---- reading

PyObject* Duplex::is_reading() { return PyBool_FromLong(!closing_ && !paused_ ? 1 : 0); }

PyObject* Duplex::pause_reading() {
  if (closing_ || paused_) {
    Py_RETURN_NONE;
  }
  paused_ = true;
  if (must_defer()) {
    // From another thread while the loop polls: no data is handed out any more; libuv is told by the loop itself.
    if (!defer(loop().state().names._settle_reading, nullptr)) {
      return nullptr;
    }
  } else {
    stop();
  }
  if (loop().debug() && !core::debug::log(loop(), "%r pauses reading", self_)) {
    return nullptr;
  }
  Py_RETURN_NONE;
}

PyObject* Duplex::resume_reading() {
  if (closing_ || !paused_) {
    Py_RETURN_NONE;
  }
  paused_ = false;
  if (must_defer()) {
    if (!defer(loop().state().names._settle_reading, nullptr)) {
      return nullptr;
    }
  } else {
    py::Ref<> started = py::steal(start_reading());
    if (!started) {
      return nullptr;
    }
  }
  if (loop().debug() && !core::debug::log(loop(), "%r resumes reading", self_)) {
    return nullptr;
  }
  Py_RETURN_NONE;
}

PyObject* Duplex::settle_reading() {
  // Brings libuv in line with what another thread asked for.
  if (closing_ || paused_) {
    stop();
    Py_RETURN_NONE;
  }
  return start_reading();
}

// ---- the protocol

PyObject* Duplex::set_protocol(PyObject* protocol) {
  flush();
  if (!protocol_.set(loop(), protocol)) {
    return nullptr;
  }
  Py_RETURN_NONE;
}

// ---- what is written

bool Duplex::check_data(PyObject* data) {
  if (PyBytes_Check(data) || PyByteArray_Check(data) || PyMemoryView_Check(data)) {
    return true;
  }
  py::Ref<> name = py::steal(PyObject_GetAttrString(reinterpret_cast<PyObject*>(Py_TYPE(data)), "__name__"));
  if (name) {
    PyErr_Format(PyExc_TypeError, "data argument must be a bytes-like object, not %R", name.get());
  }
  return false;
}

bool Duplex::count_lost_write() {
  if (conn_lost_ >= kWarnAfter) {
    const ModuleState& state = loop().state();
    py::Ref<> logger = py::get_attr(state.base_events, state.names.logger);
    py::Ref<> text = py::steal(PyUnicode_FromString("socket.send() raised exception."));
    if (!logger || !text || !py::call_method(logger.get(), state.names.warning, text.get())) {
      return false;
    }
  }
  ++conn_lost_;
  return true;
}

// ---- flow control

// False with an exception set that ends the run; any other is reported.
bool Duplex::tell_protocol(PyObject* name, const char* message) {
  py::Ref<> protocol = py::borrow(protocol_.get());
  if (!protocol || protocol_.call(loop(), name)) {
    return true;
  }
  py::Ref<> exc = py::take_error();
  if (py::ends_the_loop(exc.get())) {
    py::restore_error(std::move(exc));
    return false;
  }
  return core::report::call_exception_handler(loop(), message, exc.get(), {"transport", self_},
                                              {"protocol", protocol.get()});
}

bool Duplex::pause_protocol_if_full() {
  return !flow_.must_pause(waiting()) ||
         tell_protocol(loop().state().names.pause_writing, "protocol.pause_writing() failed");
}

void Duplex::resume_protocol_if_drained() {
  if (flow_.must_resume(waiting()) &&
      !tell_protocol(loop().state().names.resume_writing, "protocol.resume_writing() failed")) {
    loop().leave_with_error();
  }
}

PyObject* Duplex::get_write_buffer_size() {
  flush();
  return PyLong_FromSize_t(waiting());
}

PyObject* Duplex::get_write_buffer_limits() {
  return Py_BuildValue("(nn)", static_cast<Py_ssize_t>(flow_.low()), static_cast<Py_ssize_t>(flow_.high()));
}

namespace {

// A mark in bytes: any number that asyncio could compare with; what is out of reach never comes into play.
bool water_mark(PyObject* value, Py_ssize_t* mark) {
  constexpr Py_ssize_t kMost = PY_SSIZE_T_MAX / 8;
  if (PyFloat_Check(value)) {
    const double number = PyFloat_AS_DOUBLE(value);
    // What is below zero, or no number at all, is refused like any negative mark.
    *mark = number >= static_cast<double>(kMost) ? kMost : number >= 0 ? static_cast<Py_ssize_t>(number) : -1;
    return true;
  }
  *mark = PyNumber_AsSsize_t(value, nullptr);
  if (*mark == -1 && PyErr_Occurred() != nullptr) {
    return false;
  }
  *mark = std::clamp(*mark, -kMost, kMost);
  return true;
}

}  // namespace

PyObject* Duplex::set_write_buffer_limits(PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames) {
  static constexpr const char* kNames[] = {"high", "low"};
  PyObject* given[2];
  if (!py::parse({"set_write_buffer_limits", kNames, 0, 2}, args, nargs, kwnames, given)) {
    return nullptr;
  }
  const bool has_high = given[0] != nullptr && given[0] != Py_None;
  const bool has_low = given[1] != nullptr && given[1] != Py_None;
  Py_ssize_t high = static_cast<Py_ssize_t>(Flow::kHigh);
  Py_ssize_t low = 0;
  if ((has_high && !water_mark(given[0], &high)) || (has_low && !water_mark(given[1], &low))) {
    return nullptr;
  }
  if (!has_high && has_low) {
    high = 4 * low;
  }
  if (!has_low) {
    low = high >> 2;  // floored, as Python divides: the error names it
  }
  if (high < low || low < 0) {
    PyErr_Format(PyExc_ValueError, "high (%zd) must be >= low (%zd) must be >= 0", high, low);
    return nullptr;
  }
  flow_.set_limits(static_cast<std::size_t>(low), static_cast<std::size_t>(high));
  // asyncio pauses at once when the new mark is passed already.
  flush();
  if (!pause_protocol_if_full()) {
    return nullptr;
  }
  Py_RETURN_NONE;
}

PyObject* Duplex::get_protocol_paused() { return PyBool_FromLong(flow_.paused() ? 1 : 0); }
PyObject* Duplex::get_paused() { return PyBool_FromLong(paused_ ? 1 : 0); }

// ---- other threads

// Calls self.name(arg) in the loop's thread: for calls that would touch libuv while the loop is in its poll.
bool Duplex::defer(PyObject* name, PyObject* arg) {
  py::Ref<> method = py::get_attr(self_, name);
  if (!method) {
    return false;
  }
  PyObject* argv[] = {method.get(), arg};
  py::Ref<> handle = py::steal(loop().call_soon_threadsafe(argv, arg != nullptr ? 2 : 1, nullptr));
  return static_cast<bool>(handle);
}

PyObject* Duplex::repr_with(const char* name) {
  if (lost_) {
    return PyUnicode_FromFormat("<%s closed fd=%d>", name, fd_);
  }
  if (loop().is_closed()) {
    return PyUnicode_FromFormat("<%s%s fd=%d>", name, closing_ ? " closing" : "", fd_);
  }
  return PyUnicode_FromFormat("<%s%s fd=%d read=%s write=<%s, bufsize=%zu>>", name, closing_ ? " closing" : "", fd_,
                              reading_ ? "polling" : "idle", waiting() > 0 ? "polling" : "idle", waiting());
}

int Duplex::visit_duplex(visitproc visit, void* arg) const {
  Py_VISIT(read_context_.get());
  Py_VISIT(write_context_.get());
  return visit_common(visit, arg);
}

}  // namespace uvpy::net
