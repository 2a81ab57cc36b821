// Status: a libuv return code that must be looked at.
// SPDX-License-Identifier: MIT
#pragma once

#include <uv.h>

namespace uvpy::uv {

class [[nodiscard]] Status {
 public:
  constexpr Status(int code) : code_(code) {}  // NOLINT(google-explicit-constructor): a code is a Status
  constexpr bool ok() const { return code_ >= 0; }
  constexpr int code() const { return code_; }
  // On Unix libuv's codes are negated errno values.
  constexpr int error() const { return -code_; }

 private:
  int code_;
};

}  // namespace uvpy::uv
