// WatchedFiles: see the header. Nothing here calls user code but by the references that clear() drops.
// SPDX-License-Identifier: MIT
#include "core/watched_files.h"

#include <utility>

namespace uvpy::core {

bool WatchedFiles::set(int fd, PyObject* file, py::Ref<>* old) {
  if (file == nullptr) {
    *old = take(fd);
    return true;
  }
  const auto at = static_cast<std::size_t>(fd);
  if (!table_.reserve(at + 1)) {
    return false;
  }
  *old = py::steal(std::exchange(table_[at], Py_NewRef(file)));
  return true;
}

PyObject* WatchedFiles::get(int fd) const {
  const auto at = static_cast<std::size_t>(fd);
  return at < table_.capacity() ? table_[at] : nullptr;
}

py::Ref<> WatchedFiles::take(int fd) {
  const auto at = static_cast<std::size_t>(fd);
  return at < table_.capacity() ? py::steal(std::exchange(table_[at], nullptr)) : py::Ref<>();
}

int WatchedFiles::find(PyObject* file) const {
  for (std::size_t at = 0; at < table_.capacity(); ++at) {
    if (table_[at] == file) {
      return static_cast<int>(at);
    }
  }
  return -1;
}

void WatchedFiles::clear() {
  for (std::size_t at = 0; at < table_.capacity(); ++at) {
    py::Ref<> gone = py::steal(std::exchange(table_[at], nullptr));
  }
}

int WatchedFiles::visit(visitproc visit, void* arg) const {
  for (std::size_t at = 0; at < table_.capacity(); ++at) {
    Py_VISIT(table_[at]);
  }
  return 0;
}

}  // namespace uvpy::core
