// recvmmsg and sendmmsg, and what stands for them elsewhere.
// SPDX-License-Identifier: MIT
#include "net/datagram_io.h"

#include <cerrno>

#include "py/mutant.h"

namespace uvpy::net {

namespace {

#ifdef MSG_NOSIGNAL
constexpr int kSendFlags = MSG_DONTWAIT | MSG_NOSIGNAL;
#else
constexpr int kSendFlags = MSG_DONTWAIT;
#endif

}  // namespace

int send_datagram(int fd, const char* data, std::size_t size, RawAddress* to) {
  ssize_t sent;
  do {
    sent =
        to != nullptr ? ::sendto(fd, data, size, kSendFlags, to->get(), to->size) : ::send(fd, data, size, kSendFlags);
  } while (sent < 0 && errno == EINTR);
  return sent < 0 ? errno : 0;
}

namespace {

int receive_one(int fd, char* slot, std::size_t room, Received* one) {
  ssize_t got;
  do {
    one->from.size = sizeof one->from.storage;
    got = ::recvfrom(fd, slot, room, MSG_DONTWAIT, one->from.get(), &one->from.size);
  } while (got < 0 && errno == EINTR);
  if (got < 0) {
    return -errno;
  }
  one->data = slot;
  one->size = static_cast<std::size_t>(got);
  return 1;
}

}  // namespace

#ifdef __linux__

int receive_datagrams(int fd, char* slots, std::size_t slot, Received* received, unsigned count) {
  if constexpr (py::mutant("datagrams-received-singly")) {
    count = 1;
  }
  if (count == 1) {
    return receive_one(fd, slots, slot, received);  // a seventh less than a recvmmsg of one
  }
  mmsghdr headers[kDatagramsAtOnce];
  iovec vectors[kDatagramsAtOnce];
  for (unsigned i = 0; i < count; ++i) {
    vectors[i] = {slots + i * slot, slot};
    headers[i] = {};
    headers[i].msg_hdr.msg_name = received[i].from.get();
    headers[i].msg_hdr.msg_namelen = sizeof received[i].from.storage;
    headers[i].msg_hdr.msg_iov = &vectors[i];
    headers[i].msg_hdr.msg_iovlen = 1;
  }
  int got;
  do {
    got = recvmmsg(fd, headers, count, MSG_DONTWAIT, nullptr);
  } while (got < 0 && errno == EINTR);
  for (int i = 0; i < got; ++i) {
    received[i].data = slots + static_cast<unsigned>(i) * slot;
    received[i].size = headers[i].msg_len;
    received[i].from.size = headers[i].msg_hdr.msg_namelen;
  }
  return got < 0 ? -errno : got;
}

int send_datagrams(int fd, Outgoing* outgoing, unsigned count) {
  if constexpr (py::mutant("datagrams-sent-singly")) {
    count = 1;
  }
  mmsghdr headers[kDatagramsAtOnce];
  iovec vectors[kDatagramsAtOnce];
  for (unsigned i = 0; i < count; ++i) {
    vectors[i] = {const_cast<char*>(outgoing[i].data), outgoing[i].size};
    headers[i] = {};
    if (outgoing[i].to.size > 0) {
      headers[i].msg_hdr.msg_name = outgoing[i].to.get();
      headers[i].msg_hdr.msg_namelen = outgoing[i].to.size;
    }
    headers[i].msg_hdr.msg_iov = &vectors[i];
    headers[i].msg_hdr.msg_iovlen = 1;
  }
  int sent;
  do {
    sent = sendmmsg(fd, headers, count, kSendFlags);
  } while (sent < 0 && errno == EINTR);
  return sent < 0 ? -errno : sent;
}

#else

int receive_datagrams(int fd, char* slots, std::size_t slot, Received* received, unsigned) {
  return receive_one(fd, slots, slot, received);
}

int send_datagrams(int fd, Outgoing* outgoing, unsigned) {
  const int error = send_datagram(fd, outgoing->data, outgoing->size, outgoing->to.size > 0 ? &outgoing->to : nullptr);
  return error != 0 ? -error : 1;
}

#endif

}  // namespace uvpy::net
