// Interrupt: Ctrl-C and other signals while the loop is parked. libuv retries its poll when a signal interrupts it, so
// Python's C handler must make a descriptor readable that the loop watches: a pipe of ours is Python's wakeup fd while
// the loop runs in the main thread, and the user's own is put back afterwards. The bytes only wake: which signals came
// Python knows itself, and no burst can lose one. But where a program has put a handler of its own in the place of the
// loop's, they are what asyncio would go by, and the loop is told of them.
// SPDX-License-Identifier: MIT
#pragma once

#include <csignal>

#include "py/ref.h"

namespace uvpy::core {

class Loop;

class Interrupt {
 public:
  // Around a run; begin() does nothing outside the main thread. False with an exception set.
  bool begin(Loop& loop);
  // Keeps a current exception.
  void end(Loop& loop);
  // The end that Python may write to, made when it is first asked for; -1 with an exception set.
  int write_end(Loop& loop);
  // Whether signals are this loop's business now.
  bool active() const { return active_; }
  // Leaves the pipe to the parent. Whether the run that was forked listened: then it is for the loop to begin again.
  bool after_fork_in_child(Loop& loop);
  void close(Loop& loop);

 private:
  bool open(Loop& loop);
  void drain();
  bool tell(Loop& loop);
  static void on_ready(void* owner, unsigned ready);

  int read_ = -1;
  int write_ = -1;
  int users_ = -1;  // the wakeup fd that was set before the run
  bool active_ = false;
  bool has_come_ = false;
  unsigned came_[NSIG] = {};  // how often each signal was read, until the loop is told
};

}  // namespace uvpy::core
