// The rows that both ends of a pipe have in their tables. Used by the types of pipe transports; no logic.
// SPDX-License-Identifier: MIT
#pragma once

#include <array>

#include "net/pipe.h"
#include "py/method.h"

namespace uvpy::net {

template <class T>
struct PipeRows {
  template <auto F>
  static PyMethodDef method(const char* name, const char* doc) {
    return py::method_of<T, F>(name, doc);
  }
  template <auto F, py::Name Method, py::Name Parameter>
  static PyMethodDef keyword_method(const char* doc) {
    return py::keyword_method_of<T, F, Method, Parameter>(doc);
  }
  template <auto Get>
  static PyGetSetDef getter(const char* name, const char* doc) {
    return py::getter_of<T, Get>(name, doc);
  }
  template <auto Get, auto Set>
  static PyGetSetDef getset(const char* name, const char* doc) {
    return py::getset_of<T, Get, Set>(name, doc);
  }
  static PyObject* repr(PyObject* self) { return py::state_of<T>(self)->repr(); }

  static auto attributes() {
    return std::array{
        getset<&Pipe::get_pipe, &Pipe::set_pipe>("_pipe", "The file object; None once closed."),
        getter<&Transport::get_extra>("_extra", "The dict behind get_extra_info()."),
        getter<&Transport::get_loop>("_loop", "The loop; None once the connection is lost."),
        getter<&Transport::get_fd>("_fileno", "The number of the descriptor."),
        getter<&Transport::get_protocol>("_protocol", "The protocol; None once the connection is lost."),
        getter<&Transport::is_closing>("_closing", "Whether it is closing or closed."),
    };
  }

  static auto methods() {
    return std::array{
        method<&Transport::get_extra_info>(
            "get_extra_info", "get_extra_info($self, name, default=None)\n--\n\nWhat is known about the pipe."),
        method<&Transport::is_closing>("is_closing", "is_closing($self)\n--\n\nWhether it is closing or closed."),
        method<&Transport::get_protocol>("get_protocol", "get_protocol($self)\n--\n\nThe protocol."),
        keyword_method<&Pipe::set_protocol, "set_protocol", "protocol">(
            "set_protocol($self, protocol)\n--\n\nSwitch to another protocol."),
        method<&T::close>("close", T::kCloseDoc),
        method<&T::read_ready>("_read_ready", T::kReadyDoc),
        method<&T::force_close_method>("_close", "Close at once because of an exception."),
        method<&Transport::fatal_error_method>("_fatal_error", "Report an exception, and close because of it."),
        method<&Transport::call_connection_lost>("_call_connection_lost",
                                                 "Call the protocol's connection_lost() and close the file."),
    };
  }
};

}  // namespace uvpy::net
