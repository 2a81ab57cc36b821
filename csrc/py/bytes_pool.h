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
    if (kSoleOwnerIsTold && size >= kLeast && size <= kMost) {
      if (size > kSmall) {
        return take(big_, data, size);
      }
      // The last one again where it is free, which the processor's cache still has.
      if (!is_free(places_[next_])) {
        next_ = (next_ + 1) % kPlaces;
      }
      return take(places_[next_], data, size);
    }
    return steal(PyBytes_FromStringAndSize(data, size));
  }
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

  static Ref<> take(Place& place, const char* data, Py_ssize_t size) {
    PyObject* spare = place.object.get();
    // A sole owner may change bytes, as CPython's own concatenation does. A receiver that keeps the object keeps the room
    // that is not used, too: so little of it only.
    if (spare != nullptr && Py_REFCNT(spare) == 1 && size <= place.room && place.room - size <= place.room / 8) {
      refill_bytes(spare, data, size);
      return place.object.dup();
    }
    place.object = steal(PyBytes_FromStringAndSize(data, size));
    place.room = size;
    return place.object.dup();
  }

  static constexpr Py_ssize_t kLeast = 900;  // below, malloc is quick
  static constexpr Py_ssize_t kSmall = 4 * 1024;
  static constexpr Py_ssize_t kMost = 256 * 1024;
  static constexpr unsigned kPlaces = 16;  // as many as wait gathered in the turn of a busy server
  Place places_[kPlaces];
  Place big_;
  unsigned next_ = 0;
};

}  // namespace uvpy::py
