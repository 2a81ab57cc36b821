// WriteQueue: the bytes accepted by write() that the kernel has not taken. Chunks are exact bytes objects held by
// reference; everything that can change under our hands was copied before it came here.
// SPDX-License-Identifier: MIT
#pragma once

#include <uv.h>

#include <cstddef>
#include <cstring>
#include <utility>

#include "py/array.h"
#include "py/ref.h"

namespace uvpy::net {

class WriteQueue {
 public:
  ~WriteQueue() { clear(); }

  bool empty() const { return first_ == end_; }
  std::size_t bytes() const { return bytes_; }
  std::size_t chunks() const { return end_ - first_; }

  // The first chunk, borrowed; of one that is not empty.
  PyObject* front() const { return chunks_[first_].object; }

  // What is to be sent of the first chunk; of one that is not empty.
  std::pair<const char*, std::size_t> first() const {
    const Chunk& chunk = chunks_[first_];
    return {PyBytes_AS_STRING(chunk.object) + chunk.offset, chunk.size()};
  }

  // Takes the part of a bytes object from `offset` on. False with MemoryError set.
  bool push(py::Ref<>&& chunk, std::size_t offset) {
    const auto size = static_cast<std::size_t>(PyBytes_GET_SIZE(chunk.get())) - offset;
    if (size == 0) {
      return true;
    }
    if (first_ == end_) {
      first_ = end_ = 0;
    } else if (first_ > 64 && first_ > end_ - first_) {
      for (std::size_t i = first_; i < end_; ++i) {
        chunks_[i - first_] = chunks_[i];
      }
      end_ -= first_;
      first_ = 0;
    }
    if (!chunks_.reserve(end_ + 1)) {
      return false;
    }
    chunks_[end_++] = {chunk.release(), offset};
    bytes_ += size;
    return true;
  }

  // Describes up to `room` chunks and `most` bytes from the front; the number of entries.
  unsigned fill(uv_buf_t* bufs, unsigned room, std::size_t most) const {
    unsigned count = 0;
    for (std::size_t i = first_; i < end_ && count < room && most > 0; ++i, ++count) {
      const Chunk& chunk = chunks_[i];
      std::size_t size = chunk.size();
      size = size < most ? size : most;
      bufs[count] = uv_buf_init(PyBytes_AS_STRING(chunk.object) + chunk.offset, static_cast<unsigned>(size));
      most -= size;
    }
    return count;
  }

  void copy_to(char* to) const {
    for (std::size_t i = first_; i < end_; ++i) {
      const Chunk& chunk = chunks_[i];
      std::memcpy(to, PyBytes_AS_STRING(chunk.object) + chunk.offset, chunk.size());
      to += chunk.size();
    }
  }

  // The kernel has taken so many bytes from the front.
  void consume(std::size_t taken) {
    bytes_ -= taken;
    while (taken > 0) {
      Chunk& chunk = chunks_[first_];
      const std::size_t size = chunk.size();
      if (taken < size) {
        chunk.offset += taken;
        return;
      }
      taken -= size;
      ++first_;
      Py_DECREF(chunk.object);
    }
  }

  // Moves what fill() described (so many bytes) to another queue, which keeps it alive while it is written.
  bool move_to(WriteQueue& other, std::size_t count) {
    while (count > 0) {
      Chunk& chunk = chunks_[first_];
      const std::size_t size = chunk.size();
      if (!other.push(py::borrow(chunk.object), chunk.offset)) {
        return false;
      }
      const std::size_t moved = size < count ? size : count;
      other.bytes_ -= size - moved;
      count -= moved;
      consume(moved);
    }
    return true;
  }

  void clear() {
    // Emptied before the references go: bytes free nothing but themselves, yet keep the rule.
    const std::size_t first = first_;
    const std::size_t end = end_;
    first_ = end_ = 0;
    bytes_ = 0;
    for (std::size_t i = first; i < end; ++i) {
      Py_DECREF(chunks_[i].object);
    }
  }

 private:
  struct Chunk {
    PyObject* object;
    std::size_t offset;
    std::size_t size() const { return static_cast<std::size_t>(PyBytes_GET_SIZE(object)) - offset; }
  };
  py::Array<Chunk> chunks_;
  std::size_t first_ = 0;
  std::size_t end_ = 0;
  std::size_t bytes_ = 0;
};

}  // namespace uvpy::net
