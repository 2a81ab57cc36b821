// Protocol: the only calls into user protocols. Methods are looked up at each call, as asyncio does, so that one assigned
// later is honoured. Each call may run any code: close the transport, switch the protocol, drop the last reference.
// SPDX-License-Identifier: MIT
#pragma once

#include "py/ref.h"

namespace uvpy::core {
class Loop;
}

namespace uvpy::net {

class Protocol {
 public:
  // Takes over; whether it is a BufferedProtocol is asked once. False with an exception set.
  bool set(core::Loop& loop, PyObject* protocol);
  void drop() { object_.reset(); }
  PyObject* get() const { return object_.get(); }
  bool is_buffered() const { return buffered_; }

  // protocol.name(*args), timed in debug mode; the caller has entered the context. Null with an exception set.
  py::Ref<> call(core::Loop& loop, PyObject* name, PyObject* arg = nullptr, PyObject* second = nullptr) const;

  int visit(visitproc visit, void* arg) const {
    Py_VISIT(object_.get());
    return 0;
  }

 private:
  py::Ref<> object_;
  bool buffered_ = false;
};

}  // namespace uvpy::net
