// BytesPool: bytes objects for what is received. A place of the pool keeps a reference to the object that it gave out
// last; when nobody else has one any more, the object is filled anew in place of a free, a malloc and a header's making,
// which for the sizes that glibc keeps no quick list for (over 1,032 bytes) cost more than all of our own read path, and
// for those that it gives back to the kernel system calls and page faults. Knows nothing of transports.
// SPDX-License-Identifier: MIT
#pragma once

#include <Python.h>

#include <cstddef>
#include <cstring>

#include "py/compat.h"
#include "py/ref.h"

namespace uvpy::py {

class BytesPool {
 public:
  // bytes(data[:size]), a new reference; null with MemoryError set.
  Ref<> make(const char* data, Py_ssize_t size) {
    return kSoleOwnerIsTold && size >= kLeast && size <= kMost ? take(place_for(size), data, size)
                                                               : steal(PyBytes_FromStringAndSize(data, size));
  }

  // Room in an object for what is about to be received, where that is expected to be of a size: `lent()` makes it the
  // answer. No other call may come between. Empty with MemoryError set.
  struct Room {
    char* data = nullptr;
    std::size_t size = 0;
  };
  Room lend(Py_ssize_t expected) {
    lent_ = &place_for(expected);
    if (!fits(*lent_, expected)) {
      lent_->object = steal(PyBytes_FromStringAndSize(nullptr, expected));
      lent_->room = expected;
    }
    PyObject* object = lent_->object.get();
    return object != nullptr ? Room{PyBytes_AS_STRING(object), static_cast<std::size_t>(lent_->room)} : Room{};
  }
  // The first `size` bytes of the room. Null with MemoryError set.
  Ref<> lent(Py_ssize_t size) {
    if (!fits(*lent_, size)) {
      return steal(PyBytes_FromStringAndSize(PyBytes_AS_STRING(lent_->object.get()), size));
    }
    resize_bytes(lent_->object.get(), size);
    return lent_->object.dup();
  }
  // From how many bytes on the copy costs more than two places for one recv.
  static constexpr Py_ssize_t kLendFrom = 4 * 1024;
  static constexpr bool kLends = kSoleOwnerIsTold;
  void clear() {
    for (Place& place : places_) {
      place.object.reset();
    }
    big_.object.reset();
  }

 private:
  struct Place {
    Ref<> object;
    Py_ssize_t room = 0;
  };

  static bool is_free(const Place& place) { return !place.object || Py_REFCNT(place.object.get()) == 1; }
  // A sole owner may change bytes, as CPython's own concatenation does. A receiver that keeps the object keeps the room
  // that is not used, too: so little of it only.
  static bool fits(const Place& place, Py_ssize_t size) {
    return place.object && Py_REFCNT(place.object.get()) == 1 && size <= place.room &&
           place.room - size <= place.room / 8;
  }

  Place& place_for(Py_ssize_t size) {
    if (size > kSmall) {
      return big_;
    }
    // The last one again where it is free, which the processor's cache still has.
    if (!is_free(places_[next_])) {
      next_ = (next_ + 1) % kPlaces;
    }
    return places_[next_];
  }

  static Ref<> take(Place& place, const char* data, Py_ssize_t size) {
    if (fits(place, size)) {
      std::memcpy(PyBytes_AS_STRING(place.object.get()), data, static_cast<std::size_t>(size));
      resize_bytes(place.object.get(), size);
      return place.object.dup();
    }
    place.object = steal(PyBytes_FromStringAndSize(data, size));
    place.room = size;
    return place.object.dup();
  }

  static constexpr Py_ssize_t kLeast = 900;  // below, malloc is quick
  static constexpr Py_ssize_t kSmall = 16 * 1024;
  static constexpr Py_ssize_t kMost = 256 * 1024;
  static constexpr unsigned kPlaces = 16;  // as many as wait gathered in the turn of a busy server
  Place places_[kPlaces];
  Place big_;
  Place* lent_ = nullptr;
  unsigned next_ = 0;
};

}  // namespace uvpy::py
