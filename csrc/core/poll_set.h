// PollSet: a set of descriptors inside the kernel (epoll; kqueue elsewhere) that is itself one descriptor. A loop has
// one, for all that it waits for, instead of a libuv handle for each: adding and removing costs two system calls as in
// asyncio, errors are asyncio's, O_NONBLOCK is left alone, and a descriptor that is closed behind our back cannot abort the
// process, as it would through libuv's own set (research/libuv.md 3.8).
// SPDX-License-Identifier: MIT
#pragma once

#ifdef __linux__
#include <sys/epoll.h>

#include <algorithm>
#include <cerrno>
#endif

namespace uvpy::core {

inline constexpr unsigned kReadable = 1;
inline constexpr unsigned kWritable = 2;
// Beside the sides: a report when a side becomes ready, and not again for as long as it is.
inline constexpr unsigned kEdge = 4;

struct PollEvent {
  int fd;
  unsigned tag;    // as it was given to watch()
  unsigned ready;  // an error or a hang-up is both, as selectors.EpollSelector has it
};

class PollSet {
 public:
  PollSet() = default;
  PollSet(const PollSet&) = delete;
  PollSet& operator=(const PollSet&) = delete;
  ~PollSet() { close(); }

  // Each gives 0 or an errno.
  int open();
  // In a forked child, whose parent has the set as well: an empty one takes its place and its numbers.
  int renew();
  // Changes what is watched of `fd`. A set that no longer knows the descriptor (it was closed, its number used again)
  // learns it anew and says so in `*anew`; taking a gone one away is no error. Events bring the `tag` back: a file that
  // outlives its number (it has another one, here or in a child) stays in the set, and cannot be told from what the number
  // means by then otherwise.
  int watch(int fd, unsigned tag, unsigned before, unsigned wanted, bool* anew = nullptr);
  // Fills up to `room` events, and waits for one up to `ms` milliseconds, or without end (-1); the number, or a negated
  // errno. An event of descriptor -1 is a call of wake(), which ends a wait that goes on or the next one; from any thread.
  int wait(PollEvent* events, int room, long ms) const;
  void wake() const;

  bool is_open() const { return fd_ >= 0; }
  int fd() const { return fd_; }
  void close();
  void forget() { fd_ = wake_ = -1; }
  static constexpr int kMost = 256;  // events of one wait()

 private:
  int fd_ = -1;
  int wake_ = -1;
};

#ifdef __linux__
// Compiled into the loop's turn.
[[gnu::always_inline]] inline int PollSet::wait(PollEvent* events, int room, long ms) const {
  epoll_event found[kMost];
  const int count = epoll_wait(fd_, found, std::min(room, kMost), static_cast<int>(ms));
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
#endif

}  // namespace uvpy::core
