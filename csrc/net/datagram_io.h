// Several datagrams with one system call where the kernel has that, one after the other elsewhere. Pure system calls,
// nothing of Python. Called by the datagram transport.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>

#include "net/address.h"

namespace uvpy::net {

struct Received {
  const char* data;
  std::size_t size;
  RawAddress from;
};

struct Outgoing {
  const char* data;
  std::size_t size;
  RawAddress to;  // size 0: to the peer that the socket is connected to
};

inline constexpr unsigned kDatagramsAtOnce = 16;

// Receives up to `count` datagrams, at most kDatagramsAtOnce, into slots of `slot` bytes, without blocking; what a slot
// does not hold is cut off. How many, or an errno below zero.
int receive_datagrams(int fd, char* slots, std::size_t slot, Received* received, unsigned count);

// Sends one datagram, without blocking. An errno, or 0.
int send_datagram(int fd, const char* data, std::size_t size, RawAddress* to);

// Sends up to `count` datagrams, at most kDatagramsAtOnce, from the front. How many the kernel took, at least one; or the
// errno of the first, below zero. Why it took no more is not told.
int send_datagrams(int fd, Outgoing* outgoing, unsigned count);

}  // namespace uvpy::net
