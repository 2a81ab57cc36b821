// A clock for what is told in seconds: cheap, coarse (a few milliseconds), steady.
// SPDX-License-Identifier: MIT
#pragma once

#include <time.h>

namespace uvpy::core {

inline double coarse_seconds() {
#ifdef CLOCK_MONOTONIC_COARSE
  constexpr clockid_t kClock = CLOCK_MONOTONIC_COARSE;
#else
  constexpr clockid_t kClock = CLOCK_MONOTONIC;
#endif
  timespec t{};
  clock_gettime(kClock, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

}  // namespace uvpy::core
