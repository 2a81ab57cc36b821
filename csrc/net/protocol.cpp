// Calls into user protocols. Called by the transports only.
// SPDX-License-Identifier: MIT
#include "net/protocol.h"

#include "core/debug.h"
#include "core/loop.h"
#include "py/call.h"

namespace uvpy::net {

bool Protocol::set(core::Loop& loop, PyObject* protocol) {
  const int buffered = PyObject_IsInstance(protocol, loop.state().buffered_protocol);
  if (buffered < 0) {
    return false;
  }
  buffered_ = buffered != 0;
  object_ = py::borrow(protocol);
  return true;
}

namespace {

// Logs a slow I/O callback as asyncio logs its handle. False with an exception set.
bool log_slow_call(core::Loop& loop, double seconds, PyObject* protocol, PyObject* name) {
  const int slow = core::debug::is_slow(loop, seconds);
  if (slow <= 0) {
    return slow == 0;
  }
  py::Ref<> text = py::steal(PyUnicode_FromFormat("<Handle %s.%U()>", Py_TYPE(protocol)->tp_name, name));
  return text && core::debug::log_slow(loop, seconds, text.get());
}

}  // namespace

py::Ref<> Protocol::call_timed(core::Loop& loop, PyObject* protocol, PyObject* name, PyObject* arg, PyObject* second) {
  double start = 0;
  double end = 0;
  if (!loop.time_now(&start)) {
    return {};
  }
  py::Ref<> result = call_named(protocol, name, arg, second);
  py::SavedError error;
  if (!loop.time_now(&end) || !log_slow_call(loop, end - start, protocol, name)) {
    return {};
  }
  return result;
}

}  // namespace uvpy::net
