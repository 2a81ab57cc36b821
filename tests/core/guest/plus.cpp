// That uvpy.h is C++, too. Only compiled.
// SPDX-License-Identifier: MIT
#include "uvpy.h"

extern "C" PyObject* plus(PyObject* capsule) {
  uv_loop_t* loop = nullptr;
  const uvpy_guest* host = uvpy_guest_from(capsule, &loop);
  return host == nullptr ? nullptr : PyBool_FromLong(host->is_open(loop));
}
