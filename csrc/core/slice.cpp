// Linux from 6.12 on keeps a slice for each thread of SCHED_OTHER (sched_setattr(2), no privilege needed); older kernels
// tell 0 and are not asked again for anything. Whatever fails has no effect and is no error.
// SPDX-License-Identifier: MIT
#include "core/slice.h"

#ifdef __linux__
#include <sched.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

#include "py/mutant.h"

namespace uvpy::core {

#ifdef SYS_sched_setattr  // Linux, and headers that know of it

namespace {

// The least that the kernel takes.
constexpr std::uint64_t kSliceNs = 100'000;

// The kernel's first version of it: what came later is not ours to set.
struct Attributes {
  std::uint32_t size;
  std::uint32_t policy;
  std::uint64_t flags;
  std::int32_t nice;
  std::uint32_t priority;
  std::uint64_t slice;
  std::uint64_t deadline;
  std::uint64_t period;
};

// False also where another policy is in force. A filter of system calls may end the process for the call that sets
// (systemd's @resources): beside any filter nothing is tried.
bool read(Attributes* found) {
  *found = {};
  return (prctl(PR_GET_SECCOMP) == 0 || py::mutant("slice-beside-a-filter")) &&
         syscall(SYS_sched_getattr, 0, found, sizeof *found, 0) == 0 &&
         (found->policy == SCHED_OTHER || py::mutant("slice-of-another-policy")) && found->slice != 0;
}

// With all else as it was read just before: nice, and whether children start with a policy of their own.
bool write(Attributes attributes, std::uint64_t slice) {
  attributes.size = sizeof attributes;
  attributes.slice = slice;
  if constexpr (py::mutant("slice-takes-nice-away")) {
    attributes.nice = 0;
  }
  return syscall(SYS_sched_setattr, 0, &attributes, 0) == 0;
}

}  // namespace

void Slice::shorten() {
  Attributes found{};
  if (refused_) {
    return;
  }
  if (!read(&found)) {
    refused_ = found.size != 0 && found.policy == SCHED_OTHER;  // a kernel without slices
  } else if (is_the_default(found.slice)) {
    shortened_ = write(found, kSliceNs);
    refused_ = !shortened_;
  }
}

void Slice::restore() {
  Attributes found{};
  if (shortened_ && !py::mutant("slice-kept")) {
    shortened_ = false;
    if (read(&found) && found.slice == kSliceNs) {
      write(found, 0);
    }
  }
}

// The kernel does not say whether a slice is somebody's choice. It is where it changes when the default is asked for.
bool Slice::is_the_default(std::uint64_t found) {
  if (found == default_ns_ || found == users_ns_) {
    return found == default_ns_;
  }
  Attributes attributes{};
  if (!read(&attributes) || !write(attributes, 0)) {
    refused_ = true;
    return false;
  }
  Attributes now{};
  if ((read(&now) && now.slice == found) || py::mutant("slice-of-the-user-replaced")) {
    default_ns_ = found;
    return true;
  }
  users_ns_ = found;
  write(attributes, found);
  return false;
}

#else

void Slice::shorten() {}
void Slice::restore() {}

#endif

}  // namespace uvpy::core
