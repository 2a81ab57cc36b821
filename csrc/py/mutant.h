// Planted faults: `tools/dev mutants` builds the extension with one of them at a time (-DUVPY_MUTANT="name") and demands
// that the tests catch it. No release has any; the list with what each does is tools/mutants.toml.
// SPDX-License-Identifier: MIT
#pragma once

#include <string_view>

namespace uvpy::py {

// Whether this build has the fault `name`.
constexpr bool mutant([[maybe_unused]] std::string_view name) {
#ifdef UVPY_MUTANT
  return name == UVPY_MUTANT;
#else
  return false;
#endif
}

}  // namespace uvpy::py
