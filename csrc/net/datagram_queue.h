// DatagramQueue: datagrams with their addresses, first in, first out: what was received ahead, and what waits to be sent.
// The data are exact bytes.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <utility>

#include "py/array.h"
#include "py/ref.h"

namespace uvpy::net {

struct Datagram {
  py::Ref<> data;
  py::Ref<> address;
};

class DatagramQueue {
 public:
  DatagramQueue() = default;
  DatagramQueue(const DatagramQueue&) = delete;
  DatagramQueue& operator=(const DatagramQueue&) = delete;
  ~DatagramQueue() { clear(); }

  bool empty() const { return first_ == end_; }
  std::size_t count() const { return end_ - first_; }
  // Of the data; addresses and headers do not count.
  std::size_t bytes() const { return bytes_; }
  // The one at that place from the front: borrowed, until the queue is changed.
  PyObject* data(std::size_t at) const { return items_[first_ + at].data; }
  PyObject* address(std::size_t at) const { return items_[first_ + at].address; }

  // False with MemoryError set.
  bool push(py::Ref<>&& data, py::Ref<>&& address) {
    if (first_ == end_) {
      first_ = end_ = 0;
    } else if (first_ > 64 && first_ > end_ - first_) {
      for (std::size_t i = first_; i < end_; ++i) {
        items_[i - first_] = items_[i];
      }
      end_ -= first_;
      first_ = 0;
    }
    if (!items_.reserve(end_ + 1)) {
      return false;
    }
    bytes_ += static_cast<std::size_t>(PyBytes_GET_SIZE(data.get()));
    items_[end_++] = {data.release(), address.release()};
    return true;
  }

  Datagram pop() {
    const Item item = items_[first_++];
    bytes_ -= static_cast<std::size_t>(PyBytes_GET_SIZE(item.data));
    return {py::steal(item.data), py::steal(item.address)};
  }

  void clear() {
    // An address can be of any class: out of the queue before it goes.
    while (!empty()) {
      const Datagram gone = pop();
    }
  }

  int visit(visitproc visit, void* arg) const {
    for (std::size_t i = first_; i < end_; ++i) {
      Py_VISIT(items_[i].data);
      Py_VISIT(items_[i].address);
    }
    return 0;
  }

 private:
  struct Item {
    PyObject* data;
    PyObject* address;  // any object that sendto() took; may be null
  };
  py::Array<Item> items_;
  std::size_t first_ = 0;
  std::size_t end_ = 0;
  std::size_t bytes_ = 0;
};

}  // namespace uvpy::net
