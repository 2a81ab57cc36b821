// WritePipeTransport: the writing end of a pipe, for connect_write_pipe and the input of subprocesses. Over FIFOs and sockets
// it watches for readability too: that is how the kernel says that the reader has gone. An asyncio.WriteTransport by type: it
// derives, in C, from asyncio's _FlowControlMixin.
// SPDX-License-Identifier: MIT
#pragma once

#include "net/pipe.h"
#include "net/write_queue.h"

namespace uvpy::net {

class WritePipeTransport final : public Pipe {
 public:
  static constexpr std::size_t kBaseWords = 5;  // the slots of asyncio's BaseTransport and _FlowControlMixin
  static constexpr const char* kCloseDoc =
      "close($self)\n--\n\nSend what is waiting, then close; connection_lost(None) follows.";
  static constexpr const char* kReadyDoc = "The reader has gone.";

  static py::Ref<> make(core::Loop& loop, const PipeParts& parts);

  PyObject* describe() const final { return describe_as("write pipe"); }

  PyObject* write(PyObject* data);
  PyObject* write_eof();
  PyObject* can_write_eof();
  PyObject* close();
  PyObject* abort();
  PyObject* force_close_method(PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames);
  PyObject* get_write_buffer_size();
  PyObject* start_reading();
  PyObject* read_ready();
  PyObject* write_ready();
  PyObject* get_buffer();

  PyObject* repr() { return repr_with("WritePipeTransport", core::kWritable, true); }
  int visit(visitproc visit, void* arg) { return visit_pipe(visit, arg); }
  void clear() { clear_pipe(); }

 protected:
  bool force_close(PyObject* exc) final;
  std::size_t waiting() const final { return queue_.bytes(); }

 private:
  bool notices_the_reader() const;
  bool write_failed(py::Ref<>&& exc);
  bool send(PyObject* object, const char* data, std::size_t size);

  WriteQueue queue_;
  bool ending_ = false;  // connection_lost() is on its way
};

PyTypeObject* make_write_pipe_type(PyObject* module, ModuleState* state);
// make_write_pipe_transport(loop, pipe, protocol, waiter=None, extra=None), a function of the module.
PyObject* make_write_pipe_transport(PyObject* module, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames);

}  // namespace uvpy::net
