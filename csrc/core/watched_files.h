// WatchedFiles: the objects by which watched descriptors were given to add_reader and add_writer. As with a selector's
// keys, each lives as long as its descriptor is watched for anybody (a socket that only the loop knows stays open), and
// stands for that descriptor when it is closed and has no number any more. Called by the add_reader family (core/
// descriptors) and by Watchers where it drops a watch by itself. It must not know readers, writers or the kernel.
// SPDX-License-Identifier: MIT
#pragma once

#include <Python.h>

#include <cstddef>

#include "py/array.h"
#include "py/ref.h"

namespace uvpy::core {

class WatchedFiles {
 public:
  // The object a descriptor is known by from now on; none for a bare number. The old one is given to the caller, to be
  // dropped when he is done: it may close a descriptor. False with MemoryError set, nothing changed.
  bool set(int fd, PyObject* file, py::Ref<>* old);
  // Borrowed, or null.
  PyObject* get(int fd) const;
  // Nobody watches the descriptor any more; what was known of it is the caller's to drop.
  py::Ref<> take(int fd);
  // The descriptor that this very object was given for, or -1.
  int find(PyObject* file) const;

  void clear();
  int visit(visitproc visit, void* arg) const;

 private:
  py::Array<PyObject*> table_;  // by descriptor; owned
};

}  // namespace uvpy::core
