// The kernel's slice of the loop's own thread: short while the loop waits beside threads that hold the GIL, so that a
// wake-up is followed by running. Only gil.cpp uses it; a slice says how often a thread gets its turn, not how much.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>

namespace uvpy::core {

class Slice {
 public:
  // Both by the thread itself, in pairs, and nothing of the program's runs on it between them: so nobody inherits it.
  void shorten();
  void restore();

 private:
  bool is_the_default(std::uint64_t found);

  bool shortened_ = false;
  bool refused_ = false;          // by an old kernel, or a module whose log more attempts would only fill
  std::uint64_t default_ns_ = 0;  // what the kernel gives, once it is known
  std::uint64_t users_ns_ = 0;    // what is known to be somebody's choice
};

}  // namespace uvpy::core
