// Steady clocks: one for what is told in seconds, cheap and coarse (a few milliseconds), and one to measure by.
// SPDX-License-Identifier: MIT
#pragma once

#include <time.h>

#include <cstdint>

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

inline std::int64_t monotonic_ns() {
  timespec t{};
  clock_gettime(CLOCK_MONOTONIC, &t);
  return static_cast<std::int64_t>(t.tv_sec) * 1'000'000'000 + t.tv_nsec;
}

}  // namespace uvpy::core
