// Protocol: the only calls into user protocols. Methods are looked up at each call, as asyncio does, so that one assigned
// later is honoured. Each call may run any code: close the transport, switch the protocol, drop the last reference.
// SPDX-License-Identifier: MIT
#pragma once

#include "core/loop.h"
#include "py/ref.h"

namespace uvpy::net {

class Protocol {
 public:
  // Takes over; whether it is a BufferedProtocol is asked once. False with an exception set.
  bool set(core::Loop& loop, PyObject* protocol);
  void drop() { object_.reset(); }
  PyObject* get() const { return object_.get(); }
  bool is_buffered() const { return buffered_; }

  // protocol.name(*args); the caller has entered the context. In debug mode it is timed, but not in a handle, which is
  // timed itself: asyncio logs what is slow once. Null with an exception set.
  py::Ref<> call(core::Loop& loop, PyObject* name, PyObject* arg = nullptr, PyObject* second = nullptr) const {
    py::Ref<> protocol = object_.dup();  // the call may set another
    return loop.debug() && !loop.times_handle() ? call_timed(loop, protocol.get(), name, arg, second)
                                                : call_named(protocol.get(), name, arg, second);
  }

  int visit(visitproc visit, void* arg) const {
    Py_VISIT(object_.get());
    return 0;
  }

 private:
  static py::Ref<> call_named(PyObject* protocol, PyObject* name, PyObject* arg, PyObject* second) {
    PyObject* argv[] = {nullptr, protocol, arg, second};
    const std::size_t count = second != nullptr ? 3 : arg != nullptr ? 2 : 1;
    return py::steal(PyObject_VectorcallMethod(name, argv + 1, count | PY_VECTORCALL_ARGUMENTS_OFFSET, nullptr));
  }
  static py::Ref<> call_timed(core::Loop& loop, PyObject* protocol, PyObject* name, PyObject* arg, PyObject* second);

  py::Ref<> object_;
  bool buffered_ = false;
};

}  // namespace uvpy::net
