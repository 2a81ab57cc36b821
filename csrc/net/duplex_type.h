// The rows that every transport over a socket has in its tables. Used by the types of streams and of datagram transports;
// no logic.
// SPDX-License-Identifier: MIT
#pragma once

#include <array>

#include "net/duplex.h"
#include "py/method.h"

namespace uvpy::net {

template <class T>
struct DuplexRows {
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

  static auto attributes() {
    return std::array{
        getter<&Transport::get_extra>("_extra", "The dict behind get_extra_info()."),
        getter<&Transport::get_loop>("_loop", "The loop; None once the connection is lost."),
        getter<&SocketTransport::get_server>("_server", "The server that accepted the connection, or None."),
        getter<&SocketTransport::get_sock>("_sock", "The socket; None once the connection is lost."),
        getter<&Transport::get_fd>("_sock_fd", "The number of the descriptor."),
        getter<&Transport::get_protocol>("_protocol", "The protocol; None once the connection is lost."),
        getter<&Transport::get_conn_lost>("_conn_lost", "Above 0 once connection_lost() is on its way."),
        getter<&Transport::is_closing>("_closing", "Whether it is closing or closed."),
        getter<&Transport::get_paused>("_paused", "Whether reading is paused."),
        getset<&Transport::get_protocol_paused, &Transport::set_protocol_paused>(
            "_protocol_paused", "Whether pause_writing() was called last."),
        getset<&Transport::get_high_water, &Transport::set_high_water>("_high_water", "Bytes above which to pause."),
        getset<&Transport::get_low_water, &Transport::set_low_water>("_low_water", "Bytes down to which to resume."),
        getter<&Duplex::get_protocol_connected>("_protocol_connected",
                                                "True: the transport has a protocol from its start."),
    };
  }

  static auto methods() {
    return std::array{
        method<&Transport::get_extra_info>(
            "get_extra_info", "get_extra_info($self, name, default=None)\n--\n\nWhat is known about the connection."),
        method<&Transport::is_closing>("is_closing", "is_closing($self)\n--\n\nWhether it is closing or closed."),
        method<&Transport::get_protocol>("get_protocol", "get_protocol($self)\n--\n\nThe protocol."),
        keyword_method<&Duplex::set_protocol, "set_protocol", "protocol">(
            "set_protocol($self, protocol)\n--\n\nSwitch to another protocol."),
        method<&Transport::pause_reading>("pause_reading",
                                          "pause_reading($self)\n--\n\nDeliver no data until resume_reading()."),
        method<&Transport::resume_reading>("resume_reading", "resume_reading($self)\n--\n\nDeliver data again."),
        method<&Transport::is_reading>("is_reading", "is_reading($self)\n--\n\nWhether data is delivered."),
        method<&Duplex::get_write_buffer_size>(
            "get_write_buffer_size",
            "get_write_buffer_size($self)\n--\n\nBytes written that the kernel has not taken."),
        method<&Transport::get_write_buffer_limits>("get_write_buffer_limits",
                                                    "get_write_buffer_limits($self)\n--\n\n(low, high) in bytes."),
        method<&Transport::set_write_buffer_limits>(
            "set_write_buffer_limits",
            "set_write_buffer_limits($self, high=None, low=None)\n--\n\n"
            "Set the marks, in bytes, at which the protocol is paused and resumed."),
        method<&Duplex::start_reading>("_start_reading", "Begin to read; runs after connection_made()."),
        method<&Duplex::settle_reading>("_settle_reading", "Do what another thread's pause or resume asked for."),
        method<&Duplex::add_reader_method>("_add_reader", "Watch a descriptor, unless reading is paused or has ended."),
        method<&Transport::fatal_error_method>("_fatal_error", "Report an exception, and close because of it."),
        method<&Transport::call_connection_lost>("_call_connection_lost",
                                                 "Call the protocol's connection_lost() and let go."),
    };
  }
};

}  // namespace uvpy::net
