// KeptAddress: a socket's address for as long as a transport lives, in little memory: an IPv4 address, or none, stands in
// the object, others in memory of their own. There may be tens of thousands; sockaddr_storage has 128 bytes.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstring>
#include <memory>
#include <new>

#include "net/address.h"

namespace uvpy::net {

class KeptAddress {
 public:
  void set(const sockaddr_storage& address, socklen_t size) {
    size_ = size;
    if (size > sizeof here_) {
      elsewhere_.reset(new (std::nothrow) char[size]);
      size_ = elsewhere_ ? size : 0;  // without memory there is no address to show, and no connection is lost for it
    }
    std::memcpy(place(), &address, size_);
  }
  py::Ref<> object() const {
    sockaddr_storage address{};
    std::memcpy(&address, size_ > sizeof here_ ? elsewhere_.get() : here_, size_);
    return socket_address(address, size_);
  }

 private:
  char* place() { return size_ > sizeof here_ ? elsewhere_.get() : here_; }

  char here_[sizeof(sockaddr_in)]{};
  std::unique_ptr<char[]> elsewhere_;
  socklen_t size_ = 0;
};

}  // namespace uvpy::net
