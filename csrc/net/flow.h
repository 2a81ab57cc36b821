// Flow control of the write side: the water marks and when the protocol is to pause. Pure arithmetic, no Python.
// asyncio's rules: pause once the buffer is above the high mark, resume once it is at the low mark or below.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>

namespace uvpy::net {

class Flow {
 public:
  static constexpr std::size_t kHigh = 64 * 1024;

  std::size_t low() const { return low_; }
  std::size_t high() const { return high_; }
  void set_limits(std::size_t low, std::size_t high) {
    low_ = low;
    high_ = high;
  }
  bool paused() const { return paused_; }
  // By hand, as asyncio's own code does with its transports.
  void set_paused(bool paused) { paused_ = paused; }
  // Each says whether the protocol is to be told.
  bool must_pause(std::size_t waiting) {
    const bool now = !paused_ && waiting > high_;
    paused_ = paused_ || now;
    return now;
  }
  bool must_resume(std::size_t waiting) {
    const bool now = paused_ && waiting <= low_;
    paused_ = paused_ && !now;
    return now;
  }

 private:
  std::size_t low_ = kHigh / 4;
  std::size_t high_ = kHigh;
  bool paused_ = false;
};

}  // namespace uvpy::net
