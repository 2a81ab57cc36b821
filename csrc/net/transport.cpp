// The common part of transports. Called by streams and pipes; connection_made and connection_lost run as handles of the loop.
// SPDX-License-Identifier: MIT
#include "net/transport.h"

#include <algorithm>

#include "core/debug.h"
#include "core/report.h"
#include "py/args.h"
#include "py/call.h"
#include "py/mutant.h"

namespace uvpy::net {

bool Transport::begin(core::Loop& loop, PyObject* self, int fd, PyObject* protocol) {
  self_ = self;
  loop_ = py::borrow(loop.object());
  fd_ = fd;
  return protocol_.set(loop, protocol);
}

bool Transport::schedule_start(PyObject* waiter, bool reads) {
  const ModuleState& state = loop().state();
  py::Ref<> made = py::get_attr(protocol_.get(), state.names.connection_made);
  if (!made || !loop().call_soon_for(made.get(), self_, own_context())) {
    return false;
  }
  if (reads && !schedule_reading()) {
    return false;
  }
  if (waiter == nullptr || waiter == Py_None) {
    return true;
  }
  // The waiter is woken only when connection_made has been called.
  PyObject* context = own_context();
  PyObject* argv[] = {loop().object(), state.set_result_unless_cancelled, waiter, Py_None, context};
  PyObject* kwnames = context != nullptr ? state.kwnames_context : nullptr;
  return static_cast<bool>(py::steal(PyObject_VectorcallMethod(state.names.call_soon, argv, 4, kwnames)));
}

bool Transport::schedule_reading() {
  py::Ref<> start = py::get_attr(self_, loop().state().names._start_reading);
  return start && loop().call_soon_for(start.get(), nullptr, own_context());
}

// ---- ending

bool Transport::schedule_connection_lost(PyObject* exc) {
  py::Ref<> method = py::get_attr(self_, loop().state().names._call_connection_lost);
  if (!method || !loop().call_soon_for(method.get(), exc != nullptr ? exc : Py_None, own_context())) {
    return false;
  }
  if constexpr (py::mutant("connection-lost-twice")) {
    return loop().call_soon_for(method.get(), exc != nullptr ? exc : Py_None);
  }
  return true;
}

PyObject* Transport::call_connection_lost(PyObject* exc) {
  if (lost_ && !py::mutant("connection-lost-twice")) {
    Py_RETURN_NONE;
  }
  py::Ref<> alive = py::borrow(self_);
  lost_ = true;
  closing_ = true;
  bool ok = true;
  if (protocol_.get() != nullptr) {
    // In the caller's context: this runs as a handle, which brings its own.
    py::Ref<> protocol = py::borrow(protocol_.get());
    ok = static_cast<bool>(py::call_method(protocol.get(), loop().state().names.connection_lost, exc));
  }
  {
    // What follows must happen whatever the protocol did.
    py::SavedError error;
    settle();
    ok = release_descriptor() && ok;
    if constexpr (!py::mutant("connection-lost-twice")) {
      protocol_.drop();
    }
    ok = leave_server() && ok;
  }
  if (!ok) {
    return nullptr;
  }
  Py_RETURN_NONE;
}

bool Transport::is_everyday_error(PyObject* exc) const { return PyErr_GivenExceptionMatches(exc, PyExc_OSError) != 0; }

bool Transport::fatal_error(PyObject* exc, const char* message) {
  bool told = true;
  if (!is_everyday_error(exc)) {
    told =
        core::report::call_exception_handler(loop(), message, exc, {"transport", self_}, {"protocol", protocol_.get()});
  } else if (loop().debug()) {
    told = core::debug::log_error(loop(), self_, message, exc);
  }
  if (told) {
    return force_close(exc);
  }
  py::SavedError error;  // the connection is lost all the same
  force_close(exc);
  return false;
}

bool Transport::fatal_os_error(py::Ref<>&& exc, const char* message) { return exc && fatal_error(exc.get(), message); }

PyObject* Transport::fatal_error_method(PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames) {
  static constexpr const char* kNames[] = {"exc", "message"};
  PyObject* given[2];
  if (!py::parse({"_fatal_error", kNames, 1, 2}, args, nargs, kwnames, given)) {
    return nullptr;
  }
  const char* message = default_error();
  py::Ref<> text;
  if (given[1] != nullptr) {
    text = py::steal(PyObject_Str(given[1]));
    message = text ? PyUnicode_AsUTF8(text.get()) : nullptr;
    if (message == nullptr) {
      return nullptr;
    }
  }
  py::Ref<> alive = py::borrow(self_);
  py::Ref<> exc = py::borrow(given[0]);
  bool told = true;
  if (exc.get() == Py_None) {
    told = core::report::call_exception_handler(loop(), message, Py_None, {"transport", self_},
                                                {"protocol", protocol_.get()}) &&
           force_close(nullptr);
  } else {
    told = fatal_error(exc.get(), message);
  }
  return told ? Py_NewRef(Py_None) : nullptr;
}

void Transport::protocol_failed(const char* message) {
  py::Ref<> exc = py::take_error();
  if (py::ends_the_loop(exc.get())) {
    py::restore_error(std::move(exc));
    loop().leave_with_error();
  } else if (!fatal_error(exc.get(), message)) {
    loop().leave_with_error();
  }
}

void Transport::warn_unclosed() {
  if (lost_) {
    return;
  }
  py::SavedError error;
  if (!loop_ended_ && closing_) {
    return;  // __del__ called by hand, while connection_lost() is on its way
  }
  if (PyErr_ResourceWarning(self_, 1, "unclosed transport %R", self_) < 0) {
    PyErr_WriteUnraisable(self_);  // warnings may be errors: nobody is there to catch one
  }
  close_unclosed();
}

// ---- extra info

bool Transport::fill_extra(PyObject*) { return true; }

PyObject* Transport::extra() {
  if (!extra_) {
    extra_ = py::steal(PyDict_New());
    if (!extra_) {
      return nullptr;
    }
  }
  return fill_extra(extra_.get()) ? extra_.get() : nullptr;
}

// What asyncio's transports inherit, a test or a tracer may replace on asyncio's base class for all transports: the
// replacement, bound to this one as an inherited attribute would be. Null without an error where there is none.
py::Ref<> Transport::replaced_get_extra_info() const {
  const ModuleState& state = loop().state();
  py::Ref<> found = py::get_attr(state.flow_control_mixin, state.names.get_extra_info);
  if (!found || found.get() == state.base_get_extra_info) {
    return {};
  }
  const descrgetfunc bind = Py_TYPE(found.get())->tp_descr_get;
  return bind == nullptr ? std::move(found)
                         : py::steal(bind(found.get(), self_, reinterpret_cast<PyObject*>(Py_TYPE(self_))));
}

PyObject* Transport::get_extra_info(PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames) {
  if (py::Ref<> replaced = replaced_get_extra_info()) {
    return PyObject_Vectorcall(replaced.get(), args, static_cast<std::size_t>(nargs), kwnames);
  }
  if (PyErr_Occurred() != nullptr) {
    return nullptr;
  }
  static constexpr const char* kNames[] = {"name", "default"};
  PyObject* given[2];
  if (!py::parse({"get_extra_info", kNames, 1, 2}, args, nargs, kwnames, given)) {
    return nullptr;
  }
  PyObject* dict = extra();
  if (dict == nullptr) {
    return nullptr;
  }
  if (PyUnicode_Check(given[0]) && PyUnicode_Compare(given[0], loop().state().names.socket) == 0) {
    flush();  // who takes the socket may look at the wire
  }
  PyObject* found = PyDict_GetItemWithError(dict, given[0]);
  if (found == nullptr) {
    if (PyErr_Occurred() != nullptr) {
      return nullptr;
    }
    found = given[1] != nullptr ? given[1] : Py_None;
  }
  return Py_NewRef(found);
}

PyObject* Transport::is_closing() { return PyBool_FromLong(closing_ ? 1 : 0); }
PyObject* Transport::get_protocol() { return Py_NewRef(protocol_.get() != nullptr ? protocol_.get() : Py_None); }
PyObject* Transport::get_extra() { return Py_XNewRef(extra()); }
PyObject* Transport::get_loop() { return Py_NewRef(lost_ ? Py_None : loop_.get()); }
PyObject* Transport::get_fd() { return PyLong_FromLong(fd_); }
PyObject* Transport::get_conn_lost() { return PyLong_FromUnsignedLong(conn_lost_); }

// ---- pausing

PyObject* Transport::is_reading() { return PyBool_FromLong(!closing_ && !paused_ ? 1 : 0); }
PyObject* Transport::get_paused() { return PyBool_FromLong(paused_ ? 1 : 0); }

PyObject* Transport::pause_reading() {
  if (closing_ || paused_) {
    Py_RETURN_NONE;
  }
  paused_ = true;
  if (!stop_reading() || (loop().debug() && !core::debug::log(loop(), "%r pauses reading", self_))) {
    return nullptr;
  }
  Py_RETURN_NONE;
}

PyObject* Transport::resume_reading() {
  if (closing_ || !paused_) {
    Py_RETURN_NONE;
  }
  paused_ = false;
  if (!go_on_reading() || (loop().debug() && !core::debug::log(loop(), "%r resumes reading", self_))) {
    return nullptr;
  }
  Py_RETURN_NONE;
}

// ---- writing

bool Transport::count_lost_write(const char* warning) {
  constexpr unsigned kWarnAfter = 5;  // asyncio.constants.LOG_THRESHOLD_FOR_CONNLOST_WRITES
  if (conn_lost_ >= kWarnAfter) {
    const ModuleState& state = loop().state();
    py::Ref<> logger = py::get_attr(state.base_events, state.names.logger);
    py::Ref<> text = py::steal(PyUnicode_FromString(warning));
    if (!logger || !text || !py::call_method(logger.get(), state.names.warning, text.get())) {
      return false;
    }
  }
  ++conn_lost_;
  return true;
}

// ---- flow control

bool Transport::tell_protocol(PyObject* name, const char* message) {
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

bool Transport::pause_protocol_if_full() {
  return !flow_.must_pause(waiting()) ||
         tell_protocol(loop().state().names.pause_writing, "protocol.pause_writing() failed");
}

bool Transport::resume_protocol_if_drained() {
  return !flow_.must_resume(waiting()) ||
         tell_protocol(loop().state().names.resume_writing, "protocol.resume_writing() failed");
}

PyObject* Transport::get_write_buffer_limits() {
  return Py_BuildValue("(nn)", static_cast<Py_ssize_t>(flow_.low()), static_cast<Py_ssize_t>(flow_.high()));
}

namespace {

// A mark in bytes, one that asyncio's comparisons have let pass; what is out of reach never comes into play.
bool water_mark(PyObject* value, Py_ssize_t* mark) {
  constexpr Py_ssize_t kMost = PY_SSIZE_T_MAX / 8;
  if (value == nullptr) {
    PyErr_SetString(PyExc_AttributeError, "a water mark cannot be deleted");
    return false;
  }
  if (PyLong_Check(value)) {
    *mark = std::min(PyNumber_AsSsize_t(value, nullptr), kMost);
    return *mark != -1 || PyErr_Occurred() == nullptr;
  }
  const double number = PyFloat_AsDouble(value);
  if (number == -1 && PyErr_Occurred() != nullptr) {
    return false;
  }
  *mark = number >= static_cast<double>(kMost) ? kMost : number >= 0 ? static_cast<Py_ssize_t>(number) : 0;
  return true;
}

}  // namespace

PyObject* Transport::set_write_buffer_limits(PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames) {
  static constexpr const char* kNames[] = {"high", "low"};
  PyObject* given[2];
  if (!py::parse({"set_write_buffer_limits", kNames, 0, 2}, args, nargs, kwnames, given)) {
    return nullptr;
  }
  // Computed as asyncio computes it, with the objects given: so the errors of what is no number are the same.
  py::Ref<> high = py::borrow(given[0] != Py_None ? given[0] : nullptr);
  py::Ref<> low = py::borrow(given[1] != Py_None ? given[1] : nullptr);
  py::Ref<> four = py::steal(PyLong_FromLong(4));
  py::Ref<> zero = py::steal(PyLong_FromLong(0));
  if (four && !high) {
    high = py::steal(low ? PyNumber_Multiply(four.get(), low.get()) : PyLong_FromSize_t(Flow::kHigh));
  }
  if (high && !low) {
    low = py::steal(PyNumber_FloorDivide(high.get(), four.get()));
  }
  if (!zero || !high || !low) {
    return nullptr;
  }
  int fits = PyObject_RichCompareBool(high.get(), low.get(), Py_GE);
  fits = fits > 0 ? PyObject_RichCompareBool(low.get(), zero.get(), Py_GE) : fits;
  if (fits == 0) {
    PyErr_Format(PyExc_ValueError, "high (%R) must be >= low (%R) must be >= 0", high.get(), low.get());
  }
  Py_ssize_t high_mark = 0;
  Py_ssize_t low_mark = 0;
  if (fits <= 0 || !water_mark(high.get(), &high_mark) || !water_mark(low.get(), &low_mark)) {
    return nullptr;
  }
  flow_.set_limits(static_cast<std::size_t>(low_mark), static_cast<std::size_t>(high_mark));
  // asyncio pauses at once when the new mark is passed already.
  flush();
  if (!pause_protocol_if_full()) {
    return nullptr;
  }
  Py_RETURN_NONE;
}

PyObject* Transport::get_protocol_paused() { return PyBool_FromLong(flow_.paused() ? 1 : 0); }
PyObject* Transport::get_high_water() { return PyLong_FromSize_t(flow_.high()); }
PyObject* Transport::get_low_water() { return PyLong_FromSize_t(flow_.low()); }

int Transport::set_protocol_paused(PyObject* value) {
  const int paused = value != nullptr ? PyObject_IsTrue(value) : -1;
  if (value == nullptr) {
    PyErr_SetString(PyExc_AttributeError, "_protocol_paused cannot be deleted");
  } else if (paused >= 0) {
    flow_.set_paused(paused > 0);
  }
  return paused < 0 ? -1 : 0;
}

int Transport::set_high_water(PyObject* value) {
  Py_ssize_t mark = 0;
  if (!water_mark(value, &mark)) {
    return -1;
  }
  flow_.set_limits(flow_.low(), static_cast<std::size_t>(std::max(mark, Py_ssize_t{0})));
  return 0;
}

int Transport::set_low_water(PyObject* value) {
  Py_ssize_t mark = 0;
  if (!water_mark(value, &mark)) {
    return -1;
  }
  flow_.set_limits(static_cast<std::size_t>(std::max(mark, Py_ssize_t{0})), flow_.high());
  return 0;
}

int Transport::visit_common(visitproc visit, void* arg) const {
  Py_VISIT(loop_.get());
  Py_VISIT(extra_.get());
  return protocol_.visit(visit, arg);
}

void Transport::clear_common() {
  // loop_ stays: methods lean on it.
  extra_.reset();
  protocol_.drop();
}

}  // namespace uvpy::net
