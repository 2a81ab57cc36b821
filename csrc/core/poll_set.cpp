// PollSet on epoll, and on kqueue where there is no epoll. Pure system calls; nothing of Python or libuv.
// SPDX-License-Identifier: MIT
#include "core/poll_set.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <utility>

#ifdef __linux__
#include <sys/epoll.h>
#include <sys/eventfd.h>
#else
#include <sys/event.h>
#include <sys/time.h>
#endif

namespace uvpy::core {

void PollSet::close() {
  for (int* fd : {&fd_, &wake_}) {
    if (*fd >= 0) {
      ::close(*fd);
      *fd = -1;
    }
  }
}

int PollSet::renew() {
  PollSet fresh;
  int error = fresh.open();
  for (const auto& [made, number] : {std::pair{fresh.fd_, fd_}, std::pair{fresh.wake_, wake_}}) {
    if (error == 0 && made >= 0 && (dup2(made, number) < 0 || fcntl(number, F_SETFD, FD_CLOEXEC) < 0)) {
      error = errno;
    }
  }
  return error;
}

#ifdef __linux__

int PollSet::open() {
  fd_ = epoll_create1(EPOLL_CLOEXEC);
  wake_ = fd_ < 0 ? -1 : eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  epoll_event event{};
  // Each write is an edge of its own, so that nobody needs to read.
  event.events = static_cast<unsigned>(EPOLLIN) | static_cast<unsigned>(EPOLLET);
  event.data.u64 = UINT32_MAX;
  if (wake_ < 0 || epoll_ctl(fd_, EPOLL_CTL_ADD, wake_, &event) < 0) {
    const int error = errno;
    close();
    return error;
  }
  return 0;
}

void PollSet::wake() const {
  const std::uint64_t one = 1;
  static_cast<void>(!::write(wake_, &one, sizeof one));
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

#else

int PollSet::open() {
  fd_ = kqueue();
  struct kevent change;
  EV_SET(&change, 0, EVFILT_USER, EV_ADD | EV_CLEAR, 0, 0, nullptr);
  return fd_ < 0 || kevent(fd_, &change, 1, nullptr, 0, nullptr) < 0 ? errno : 0;
}

void PollSet::wake() const {
  struct kevent change;
  EV_SET(&change, 0, EVFILT_USER, 0, NOTE_TRIGGER, 0, nullptr);
  kevent(fd_, &change, 1, nullptr, 0, nullptr);
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

int PollSet::wait(PollEvent* events, int room, long ms) const {
  struct kevent found[kMost];
  const timespec most{.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1'000'000};
  const int count = kevent(fd_, nullptr, 0, found, std::min(room, kMost), ms < 0 ? nullptr : &most);
  if (count < 0) {
    return -errno;
  }
  for (int i = 0; i < count; ++i) {
    events[i].fd = found[i].filter == EVFILT_USER ? -1 : static_cast<int>(found[i].ident);
    events[i].tag = static_cast<unsigned>(reinterpret_cast<std::uintptr_t>(found[i].udata));
    events[i].ready = found[i].filter == EVFILT_READ ? kReadable : kWritable;
  }
  return count;
}

#endif

}  // namespace uvpy::core
