// PollSet on epoll, and on kqueue where there is no epoll. Pure system calls; nothing of Python or libuv.
// SPDX-License-Identifier: MIT
#include "core/poll_set.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>

#ifdef __linux__
#include <sys/epoll.h>
#else
#include <sys/event.h>
#include <sys/time.h>
#endif

namespace uvpy::core {

namespace {
constexpr int kMost = 256;
}

void PollSet::close() {
  if (fd_ >= 0) {
    ::close(fd_);
    fd_ = -1;
  }
}

#ifdef __linux__

int PollSet::open() {
  fd_ = epoll_create1(EPOLL_CLOEXEC);
  return fd_ < 0 ? errno : 0;
}

int PollSet::watch(int fd, unsigned tag, unsigned before, unsigned wanted, bool* anew) {
  epoll_event event{};
  event.data.u64 = static_cast<std::uint64_t>(tag) << 32 | static_cast<unsigned>(fd);
  event.events = ((wanted & kReadable) != 0 ? static_cast<unsigned>(EPOLLIN) : 0U) |
                 ((wanted & kWritable) != 0 ? static_cast<unsigned>(EPOLLOUT) : 0U) |
                 ((wanted & kEdge) != 0 ? static_cast<unsigned>(EPOLLET) : 0U);
  if (wanted == 0) {
    epoll_ctl(fd_, EPOLL_CTL_DEL, fd, &event);
    return 0;
  }
  int result = epoll_ctl(fd_, before == 0 ? EPOLL_CTL_ADD : EPOLL_CTL_MOD, fd, &event);
  if (result < 0 && errno == ENOENT) {
    result = epoll_ctl(fd_, EPOLL_CTL_ADD, fd, &event);
    if (anew != nullptr) {
      *anew = result == 0;
    }
  } else if (result < 0 && errno == EEXIST) {
    result = epoll_ctl(fd_, EPOLL_CTL_MOD, fd, &event);
  }
  return result < 0 ? errno : 0;
}

int PollSet::ready(PollEvent* events, int room) const {
  epoll_event found[kMost];
  const int count = epoll_wait(fd_, found, std::min(room, kMost), 0);
  if (count < 0) {
    return -errno;
  }
  for (int i = 0; i < count; ++i) {
    const unsigned bits = found[i].events;
    events[i].fd = static_cast<int>(found[i].data.u64 & 0xffffffff);
    events[i].tag = static_cast<unsigned>(found[i].data.u64 >> 32);
    events[i].ready = ((bits & ~static_cast<unsigned>(EPOLLOUT)) != 0 ? kReadable : 0U) |
                      ((bits & ~static_cast<unsigned>(EPOLLIN)) != 0 ? kWritable : 0U);
  }
  return count;
}

#else

int PollSet::open() {
  fd_ = kqueue();
  return fd_ < 0 ? errno : 0;
}

int PollSet::watch(int fd, unsigned tag, unsigned before, unsigned wanted, bool*) {
  // A filter each; adding one that is there changes nothing, deleting one that is gone is ENOENT and fine.
  int failed = 0;
  for (const unsigned side : {kReadable, kWritable}) {
    const bool add = (wanted & side) != 0;
    if (!add && (before & side) == 0) {
      continue;
    }
    struct kevent change;
    const unsigned short how = !add ? EV_DELETE : (wanted & kEdge) != 0 ? EV_ADD | EV_CLEAR : EV_ADD;
    EV_SET(&change, fd, side == kReadable ? EVFILT_READ : EVFILT_WRITE, how, 0, 0,
           reinterpret_cast<void*>(static_cast<std::uintptr_t>(tag)));
    if (kevent(fd_, &change, 1, nullptr, 0, nullptr) < 0 && add) {
      failed = errno;
    }
  }
  return failed;
}

int PollSet::ready(PollEvent* events, int room) const {
  struct kevent found[kMost];
  const timespec none{};
  const int count = kevent(fd_, nullptr, 0, found, std::min(room, kMost), &none);
  if (count < 0) {
    return -errno;
  }
  for (int i = 0; i < count; ++i) {
    events[i].fd = static_cast<int>(found[i].ident);
    events[i].tag = static_cast<unsigned>(reinterpret_cast<std::uintptr_t>(found[i].udata));
    events[i].ready = found[i].filter == EVFILT_READ ? kReadable : kWritable;
  }
  return count;
}

#endif

}  // namespace uvpy::core
