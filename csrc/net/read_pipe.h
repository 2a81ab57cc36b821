// ReadPipeTransport: the reading end of a pipe, for connect_read_pipe and the output of subprocesses. An asyncio.ReadTransport
// by type: it derives, in C, from asyncio's own class.
// SPDX-License-Identifier: MIT
#pragma once

#include "net/pipe.h"

namespace uvpy::net {

class ReadPipeTransport final : public Pipe {
 public:
  static constexpr std::size_t kBaseWords = 1;  // the slot of asyncio's BaseTransport
  static constexpr const char* kCloseDoc = "close($self)\n--\n\nClose; connection_lost(None) follows.";
  static constexpr const char* kReadyDoc = "Read what has come and deliver it.";

  static py::Ref<> make(core::Loop& loop, const PipeParts& parts);

  PyObject* describe() const final { return describe_as("read pipe"); }

  PyObject* close();
  PyObject* force_close_method(PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames);
  PyObject* add_reader_method(PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames);
  PyObject* read_ready();

  PyObject* repr() { return repr_with("ReadPipeTransport", core::kReadable, false); }
  int visit(visitproc visit, void* arg) { return visit_pipe(visit, arg); }
  void clear() { clear_pipe(); }

 protected:
  bool force_close(PyObject* exc) final;
  bool is_everyday_error(PyObject* exc) const final;
  bool schedule_reading() final;
  bool stop_reading() final { return unwatch(core::kReadable); }
  bool go_on_reading() final;

 private:
  bool ended();

  bool ending_ = false;  // connection_lost() is on its way
};

PyTypeObject* make_read_pipe_type(PyObject* module, ModuleState* state);
// make_read_pipe_transport(loop, pipe, protocol, waiter=None, extra=None), a function of the module.
PyObject* make_read_pipe_transport(PyObject* module, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames);

}  // namespace uvpy::net
