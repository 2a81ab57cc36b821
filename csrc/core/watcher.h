// Watchers: what is known of each descriptor that the loop waits for: the readers and writers of add_reader and
// add_writer, streams, listening sockets, datagram sockets, pipes, pidfds, the signal wake-up; and which descriptor is a
// transport's.
// All are watched through one PollSet, which is under one uv_poll_t where a guest needs libuv's poll.
// The read side of a socket that sock_recv() and its siblings wait for stays watched when nobody waits any more, edge
// triggered, so that waiting in a loop costs no system call; the first who wants the descriptor otherwise, or a report
// that nobody waits for, ends that.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>

#include "core/poll_set.h"
#include "py/array.h"
#include "py/ref.h"
#include "uv/handle.h"

namespace uvpy::core {

class Loop;

class Watchers {
 public:
  // Called in the poll, with the GIL; `ready` are the sides that are, of those wanted. May not fail: errors end in a report
  // or in Loop::leave_with_error.
  using Ready = void (*)(void* owner, unsigned ready);

  // Makes the set, with the loop: made later it could get the number of a descriptor that a program still thinks of.
  // An errno, or 0.
  int open() { return set_.open(); }
  // Watches one side of a descriptor for a Handle, in place of the one before, which is cancelled. False with an
  // exception set, nothing changed.
  bool add(Loop& loop, int fd, unsigned side, py::Ref<>&& handle);
  // 1 when there was one, which is cancelled; 0 when not; -1 with an exception set.
  int remove(Loop& loop, int fd, unsigned side);
  // The same as add() for the read side of a socket that gives EAGAIN before it waits, as sock_recv() and its siblings do:
  // the kernel is told only where it does not know this very socket. `release` ends the waiting; nothing where another
  // handle has taken the place.
  bool add_kept(Loop& loop, int fd, PyObject* sock, py::Ref<>&& handle);
  bool release(Loop& loop, int fd, unsigned side, PyObject* handle);
  // Whether the kernel watches this very socket for the next add_kept().
  bool keeps(int fd, PyObject* sock) const;
  // Ends that, where nobody waits: others are about to use the descriptor in their way.
  void forget_kept(Loop& loop, int fd);
  // The mask of what is watched for handles.
  unsigned watched(int fd) const;
  // When it began to be watched for handles, by coarse_seconds().
  double since(int fd) const { return table_[static_cast<std::size_t>(fd)].since; }
  // The handle of one side, borrowed, or null.
  PyObject* handle(int fd, unsigned side) const;

  // The same for our own: `ready` is called when one of the sides is ready. A descriptor has one native owner; called again
  // it changes the sides. Handles of add_reader may stand beside it. An errno, or 0.
  int watch_native(Loop& loop, int fd, unsigned sides, Ready ready, void* owner);
  // Does nothing where the number is another owner's by now.
  void remove_native(Loop& loop, int fd, const void* owner);

  // A transport's descriptor is its own: add_reader refuses it. Borrowed; forgotten by null.
  bool set_transport(int fd, PyObject* transport);
  PyObject* transport(int fd) const;

  // How many descriptors are watched, the loop's own wake-up not counted.
  std::size_t foreign() const { return foreign_; }
  std::size_t limit() const { return table_.capacity(); }
  // Lets libuv watch the set; to be called in the loop's thread before a poll. An errno, or 0.
  int arm(Loop& loop);
  bool needs_arming() const { return used_ && poll_.state() == uv::State::idle; }
  // Waits for the set itself, `ms` milliseconds at most or without end (-1): how many events there are, or a negated errno.
  static constexpr int kRoom = 256;
  int wait(PollEvent* events, long ms) const { return set_.wait(events, kRoom, ms); }
  void dispatch(Loop& loop, const PollEvent* events, int count);
  // Ends such a wait; from any thread that holds the GIL.
  void wake() const { set_.wake(); }

  // Cancels and drops everything; libuv's part is closed, `on_closed` comes from the loop's last run.
  void close(uv_close_cb on_closed);
  void closed() { poll_.closed(); }
  // The set is given up with the loop: its number may be another file's by now.
  void leak() {
    poll_.leak();
    set_.forget();
  }
  // In a forked child: the set becomes an empty one of its own. An errno, or 0.
  int renew();
  // What it is to watch is told to that; later, since a child that does not wait needs none of it.
  void watch_all_again();
  int visit(visitproc visit, void* arg) const;

 private:
  struct Watch {
    PyObject* reader;  // owned
    PyObject* writer;  // owned
    Ready ready;
    void* owner;
    unsigned sides;  // that the owner wants
    double since;
    unsigned told;   // what the kernel was told
    unsigned tag;    // with it, another one for each file that has had the number
    PyObject* kept;  // owned: a weak reference to the socket whose read side is kept watched
    // Who waits. A side kept for nobody is none: it must cost the loop no poll.
    unsigned taken() const {
      return (reader != nullptr ? kReadable : 0U) | (writer != nullptr ? kWritable : 0U) | sides;
    }
    // Edges do where nobody but a call that keeps the read side watches: it tries before it waits.
    unsigned wanted() const {
      return kept == nullptr ? taken() : taken() | kReadable | (writer == nullptr && sides == 0 ? kEdge : 0U);
    }
    void forget_owner() {
      ready = nullptr;
      owner = nullptr;
      sides = 0;
    }
  };
  void use(Loop& loop);
  Watch look(int fd) const;
  bool put(Loop& loop, int fd, unsigned side, PyObject* sock, py::Ref<>&& handle);
  void settle(Loop& loop, int fd, bool was_taken);
  py::Ref<> drop_kept(Watch& watch);
  int tell_kernel(Loop& loop, int fd, Watch& next, bool* anew);
  void dispatch_more(Loop& loop);
  void dispatch_one(Loop& loop, const PollEvent& event);
  void queue(Loop& loop, int fd, unsigned side, PyObject* handle);
  static void on_poll(uv_poll_t* handle, int status, int events);

  PollSet set_;
  uv::Handle<uv_poll_t> poll_;
  py::Array<Watch> table_;           // by descriptor
  py::Array<PyObject*> transports_;  // by descriptor; apart, since most descriptors are no transport's
  std::size_t foreign_ = 0;
  std::size_t kept_ = 0;
  bool used_ = false;
  friend class Interrupt;
};

}  // namespace uvpy::core
