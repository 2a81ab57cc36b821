// Addresses of sockets between the kernel's form and Python's: tuples and paths, as the socket module has them. Called by
// the transports. What only the socket module can read (names to resolve, what is wrong) is left to it.
// SPDX-License-Identifier: MIT
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>

#include "py/ref.h"

namespace uvpy::net {

struct RawAddress {
  sockaddr_storage storage;
  socklen_t size;
  sockaddr* get() { return reinterpret_cast<sockaddr*>(&storage); }
};

// As the socket module gives it: (host, port), (host, port, flowinfo, scope_id), or a Unix path; None without an address.
py::Ref<> socket_address(const sockaddr_storage& address, socklen_t size);

// The other way, for what needs no resolver and no conversion: false, without an exception, for all else.
bool read_address(int family, PyObject* address, RawAddress* raw);

// The addresses that a datagram transport has lately met: a peer's tuple is made once, and read again without parsing.
class AddressCache {
 public:
  // As socket_address().
  py::Ref<> object_of(const RawAddress& raw);
  // As read_address().
  bool raw_of(int family, PyObject* address, RawAddress* raw);

  int visit(visitproc visit, void* arg) const;
  void clear();

 private:
  static constexpr unsigned kPlaces = 8;
  struct Place {
    py::Ref<> object;
    sockaddr_in6 raw;  // the bigger one of the two kinds that are kept
    socklen_t size;
  };
  Place* place_of(const RawAddress& raw);

  Place places_[kPlaces] = {};
};

}  // namespace uvpy::net
