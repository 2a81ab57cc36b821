// UnixTransport: its type; all else is in the stream.
// SPDX-License-Identifier: MIT
#include "net/unix.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "py/args.h"
#include "py/error.h"

namespace uvpy::net {

PyObject* unlink_socket(PyObject*, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames) {
  static constexpr const char* kNames[] = {"path", "inode"};
  PyObject* given[2];
  if (!py::parse({"unlink_socket", kNames, 2, 2}, args, nargs, kwnames, given)) {
    return nullptr;
  }
  const unsigned long long inode = PyLong_AsUnsignedLongLong(given[1]);
  if (PyErr_Occurred() != nullptr) {
    return nullptr;
  }
  PyObject* bytes = nullptr;
  if (PyUnicode_FSConverter(given[0], &bytes) == 0) {
    return nullptr;
  }
  py::Ref<> path = py::steal(bytes);
  struct stat found{};
  const char* name = PyBytes_AS_STRING(path.get());
  if (stat(name, &found) != 0 || (found.st_ino == inode && unlink(name) != 0)) {
    return py::raise_os_error(errno);
  }
  Py_RETURN_NONE;
}

PyTypeObject* make_unix_transport_type(PyObject* module, ModuleState* state) {
  return make_stream_type<UnixTransport>(module, state, "uvpy._core.UnixTransport",
                                         "A Unix stream connection; see asyncio.Transport.");
}

}  // namespace uvpy::net
