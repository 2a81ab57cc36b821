// ModuleState: everything that belongs to one interpreter's uvpy._core: its types, interned names, and the objects of
// asyncio and the standard library that C++ calls. No static PyObject anywhere else. Loops keep a pointer to it; the
// GIL protects it, and only the loop's thread and import touch it but for `loops` and `switch_interval`.
// SPDX-License-Identifier: MIT
#pragma once

#include <Python.h>
#include <structmember.h>

#include <cstddef>
#include <span>

namespace uvpy {

namespace core {
class Loop;
}
namespace net {
class Pipe;
}

// How many lists the open pipe transports are kept in, by their file.
inline constexpr std::size_t kPipeLists = 256;

// Interned names, each a member of ModuleState::names.
#define UVPY_NAMES(X)               \
  X(Future)                         \
  X(Task)                           \
  X(__repr__)                       \
  X(_asyncgen_finalizer_hook)       \
  X(_asyncgen_firstiter_hook)       \
  X(_abandon)                       \
  X(_accept_ready)                  \
  X(_add_reader)                    \
  X(_add_writer)                    \
  X(_attach)                        \
  X(_close_deferred)                \
  X(_connect_waiting)               \
  X(_drained)                       \
  X(_exited)                        \
  X(_flush)                         \
  X(_buffer)                        \
  X(_eof)                           \
  X(_limit)                         \
  X(_sendto_ready)                  \
  X(_stream_reader)                 \
  X(_stream_reader_wr)              \
  X(_waiter)                        \
  X(_wakeup_waiter)                 \
  X(_get_running_loop)              \
  X(_io_refs)                       \
  X(_noticed)                       \
  X(_proc)                          \
  X(_process_exited)                \
  X(_set_running_loop)              \
  X(_signal_seen)                   \
  X(_settle_reading)                \
  X(abort)                          \
  X(_call_connection_lost)          \
  X(_cancelled)                     \
  X(_check_callback)                \
  X(_check_ssl_socket)              \
  X(_decref_socketios)              \
  X(_deliver_unread)                \
  X(_detach)                        \
  X(_ensure_fd_no_transport)        \
  X(_transports)                    \
  X(_read_ready)                    \
  X(_repr_info)                     \
  X(_resume_accepting)              \
  X(_run)                           \
  X(_run_foreign_handle)            \
  X(_run_forever_cleanup)           \
  X(_run_forever_setup)             \
  X(_set_coroutine_origin_tracking) \
  X(_start_reading)                 \
  X(_write_ready)                   \
  X(accept)                         \
  X(buffer_updated)                 \
  X(call_at)                        \
  X(cancelled)                      \
  X(call_exception_handler)         \
  X(call_later)                     \
  X(call_soon)                      \
  X(call_soon_threadsafe)           \
  X(connect)                        \
  X(connection_lost)                \
  X(connection_made)                \
  X(context)                        \
  X(create_future)                  \
  X(data_received)                  \
  X(datagram_received)              \
  X(debug)                          \
  X(detach)                         \
  X(done)                           \
  X(eof_received)                   \
  X(error_received)                 \
  X(exc_info)                       \
  X(exception)                      \
  X(feed_data)                      \
  X(fileno)                         \
  X(get_buffer)                     \
  X(get_extra_info)                 \
  X(getsockopt)                     \
  X(gettimeout)                     \
  X(handle)                         \
  X(info)                           \
  X(ident)                          \
  X(is_closing)                     \
  X(logger)                         \
  X(loop)                           \
  X(message)                        \
  X(data)                           \
  X(name)                           \
  X(pause_writing)                  \
  X(peername)                       \
  X(pidfd_open)                     \
  X(pipe)                           \
  X(recv)                           \
  X(recv_into)                      \
  X(recvfrom)                       \
  X(recvfrom_into)                  \
  X(result)                         \
  X(resume_writing)                 \
  X(returncode)                     \
  X(send)                           \
  X(sendto)                         \
  X(setblocking)                    \
  X(set_exception)                  \
  X(set_result)                     \
  X(slow_callback_duration)         \
  X(socket)                         \
  X(sockname)                       \
  X(source_traceback)               \
  X(time)                           \
  X(warn_on_full_buffer)            \
  X(warning)

// Objects found in other modules at import: member, module, attribute.
#define UVPY_IMPORTS(X)                                                             \
  X(asyncio_handle, "asyncio.events", "Handle")                                     \
  X(asyncio_timer_handle, "asyncio.events", "TimerHandle")                          \
  X(events, "asyncio", "events")                                                    \
  X(extract_stack, "asyncio.format_helpers", "extract_stack")                       \
  X(format_callback_source, "asyncio.format_helpers", "_format_callback_source")    \
  X(format_handle, "asyncio.base_events", "_format_handle")                         \
  X(base_event_loop, "asyncio.base_events", "BaseEventLoop")                        \
  X(set_result_unless_cancelled, "asyncio.futures", "_set_result_unless_cancelled") \
  X(buffered_protocol, "asyncio.protocols", "BufferedProtocol")                     \
  X(flow_control_mixin, "asyncio.transports", "_FlowControlMixin")                  \
  X(datagram_transport, "asyncio.transports", "DatagramTransport")                  \
  X(selector_datagrams, "asyncio.selector_events", "_SelectorDatagramTransport")    \
  X(read_transport, "asyncio.transports", "ReadTransport")                          \
  X(stream_reader, "asyncio.streams", "StreamReader")                               \
  X(stream_reader_protocol, "asyncio.streams", "StreamReaderProtocol")              \
  X(transport_socket, "asyncio.trsock", "TransportSocket")                          \
  X(sendfile_mode, "asyncio.constants", "_SendfileMode")                            \
  X(sendfile_not_available, "asyncio.exceptions", "SendfileNotAvailableError")      \
  X(socket_type, "socket", "socket")                                                \
  X(c_socket_type, "_socket", "socket")                                             \
  X(af_inet, "socket", "AF_INET")                                                   \
  X(af_inet6, "socket", "AF_INET6")                                                 \
  X(sock_stream, "socket", "SOCK_STREAM")                                           \
  X(sock_dgram, "socket", "SOCK_DGRAM")                                             \
  X(sock_raw, "socket", "SOCK_RAW")                                                 \
  X(set_wakeup_fd, "signal", "set_wakeup_fd")                                       \
  X(main_thread, "threading", "main_thread")                                        \
  X(getswitchinterval, "sys", "getswitchinterval")                                  \
  X(setswitchinterval, "sys", "setswitchinterval")                                  \
  X(get_asyncgen_hooks, "sys", "get_asyncgen_hooks")                                \
  X(set_asyncgen_hooks, "sys", "set_asyncgen_hooks")

// The switch interval is the interpreter's: how many loops wait with the short one (core/gil).
struct SwitchInterval {
  int waiting = 0;
};

// Whether socket.socket has the methods that it was born with, as of that version of the class (core/sock).
struct PlainSocket {
  unsigned tag = 0;
  bool is_plain = false;
};

// The functions by which data comes into a StreamReader, as asyncio has them at import, with their codes; and whether the
// classes had them in those versions (net/stream_feed).
struct StreamClasses {
  PyObject* data_received;
  PyObject* stream_reader;  // a property
  PyObject* getter;         // its function
  PyObject* feed_data;
  PyObject* wakeup_waiter;
  PyObject* codes[4];
  bool known;  // they do what we do in their place
  bool is_plain;
  unsigned protocol_tag;
  unsigned reader_tag;
};

struct ModuleState {
  struct Names {
#define UVPY_MEMBER(name) PyObject* name;
    UVPY_NAMES(UVPY_MEMBER)
#undef UVPY_MEMBER
  };
  Names names;

#define UVPY_MEMBER(member, module, attribute) PyObject* member;
  UVPY_IMPORTS(UVPY_MEMBER)
#undef UVPY_MEMBER
  PyObject* asyncio_thread_safe_handle;  // null before 3.14
  PyObject* base_events;                 // the module: its logger is fetched at each use
  PyObject* base_create_task;            // BaseEventLoop.create_task
  PyObject* base_get_extra_info;         // BaseTransport.get_extra_info, as it was at import
  PyObject* futures_dict;                // of asyncio.futures
  PyObject* tasks_dict;                  // of asyncio.tasks
  PyObject* kwnames_loop;                // ("loop",)
  PyObject* kwnames_context;             // ("context",)
  PyObject* own_time;                    // our methods as found on the type, to see overrides by
  PyObject* own_call_soon;
  PyObject* own_call_at;
  PyObject* own_call_later;
  PyObject* own_ensure_fd_no_transport;
  bool format_takes_debug;  // _format_callback_source(func, args, *, debug=), in newer versions

  PyTypeObject* stand_in_type;  // of functions, before 3.12
  PyTypeObject* loop_type;
  PyTypeObject* handle_type;
  PyTypeObject* timer_type;
  PyTypeObject* thread_safe_handle_type;
  PyTypeObject* tcp_transport_type;
  PyTypeObject* unix_transport_type;
  PyTypeObject* udp_transport_type;
  PyTypeObject* listener_type;
  PyTypeObject* read_pipe_type;
  PyTypeObject* write_pipe_type;
  PyTypeObject* process_type;
  PyTypeObject* sock_call_type;

  PyObject* module;              // whose state this is; borrowed
  core::Loop* loops;             // all that are not deallocated
  net::Pipe* pipes[kPipeLists];  // the open transports over pipes, of all loops (net/pipe)
  SwitchInterval switch_interval;
  unsigned forks;  // how many forks of the program lie between its start and this process
  PlainSocket plain_socket;
  StreamClasses stream_classes;

  // Fills names and imports; the types are module.cpp's business. False with an exception set.
  bool fill();
  int visit(visitproc visit, void* arg) const;
  void clear();
};

// The module's definition (module.cpp), by which a type finds its module.
PyModuleDef* module_definition();
inline ModuleState* state_of_module(PyObject* module) { return static_cast<ModuleState*>(PyModule_GetState(module)); }

}  // namespace uvpy
