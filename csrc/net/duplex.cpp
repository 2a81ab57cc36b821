// Pausing both directions of a transport. Called by its methods and by the streams and datagram transports on it.
// SPDX-License-Identifier: MIT
#include "net/duplex.h"

#include "py/call.h"

namespace uvpy::net {

// ---- reading

// From another thread while the loop polls no data is handed out any more at once; whoever watches the descriptor is told
// by the loop itself.
bool Duplex::stop_reading() {
  if (must_defer()) {
    return defer(loop().state().names._settle_reading, nullptr);
  }
  stop();
  return true;
}

bool Duplex::go_on_reading() {
  return must_defer() ? defer(loop().state().names._settle_reading, nullptr)
                      : static_cast<bool>(py::steal(start_reading()));
}

PyObject* Duplex::get_protocol_connected() { Py_RETURN_TRUE; }

PyObject* Duplex::add_reader_method(PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames) {
  if (closing_ || paused_) {
    Py_RETURN_NONE;
  }
  // Our own descriptor for our own method is what we watch anyhow.
  if (nargs == 2 && kwnames == nullptr && PyCFunction_Check(args[1]) && PyCFunction_GET_SELF(args[1]) == self_ &&
      PyLong_Check(args[0]) && PyLong_AsLong(args[0]) == fd_) {
    return start_reading();
  }
  PyErr_Clear();  // a number that is out of reach: the loop says so
  return py::steal(loop().add_reader_private(args, nargs, kwnames)) ? Py_NewRef(Py_None) : nullptr;
}

PyObject* Duplex::settle_reading() {
  // Brings the watching in line with what another thread asked for.
  if (closing_ || paused_) {
    stop();
    Py_RETURN_NONE;
  }
  return start_reading();
}

// ---- the protocol

PyObject* Duplex::set_protocol(PyObject* protocol) {
  flush();
  if (!protocol_.set(loop(), protocol)) {
    return nullptr;
  }
  Py_RETURN_NONE;
}

// ---- what is written

bool Duplex::check_data(PyObject* data, const char* refusal) {
  if (PyBytes_Check(data) || PyByteArray_Check(data) || PyMemoryView_Check(data)) {
    return true;
  }
  py::Ref<> name = py::steal(PyObject_GetAttrString(reinterpret_cast<PyObject*>(Py_TYPE(data)), "__name__"));
  if (name) {
    PyErr_Format(PyExc_TypeError, refusal, name.get());
  }
  return false;
}

PyObject* Duplex::get_write_buffer_size() {
  flush();
  return PyLong_FromSize_t(waiting());
}

// ---- other threads

// Calls self.name(arg) in the loop's thread: for calls that would change what is watched while the loop is in its poll.
bool Duplex::defer(PyObject* name, PyObject* arg) {
  py::Ref<> method = py::get_attr(self_, name);
  if (!method) {
    return false;
  }
  PyObject* argv[] = {method.get(), arg};
  py::Ref<> handle = py::steal(loop().call_soon_threadsafe(argv, arg != nullptr ? 2 : 1, nullptr));
  return static_cast<bool>(handle);
}

PyObject* Duplex::repr_with(const char* name) {
  if (lost_) {
    return PyUnicode_FromFormat("<%s closed fd=%d>", name, fd_);
  }
  if (loop().is_closed()) {
    return PyUnicode_FromFormat("<%s%s fd=%d>", name, closing_ ? " closing" : "", fd_);
  }
  return PyUnicode_FromFormat("<%s%s fd=%d read=%s write=<%s, bufsize=%zu>>", name, closing_ ? " closing" : "", fd_,
                              reading_ ? "polling" : "idle", waiting() > 0 ? "polling" : "idle", waiting());
}

int Duplex::visit_duplex(visitproc visit, void* arg) const {
  Py_VISIT(read_context_.get());
  Py_VISIT(write_context_.get());
  return visit_socket(visit, arg);
}

void Duplex::clear_duplex() {
  read_context_.reset();
  write_context_.reset();
  clear_socket();
}

}  // namespace uvpy::net
