// What a stream does for asyncio's own StreamReaderProtocol and StreamReader, in place of the four Python functions that
// data_received() of the one goes through to the buffer of the other. Called by streams for each piece of data.
// SPDX-License-Identifier: MIT
#pragma once

#include "core/loop.h"
#include "py/ref.h"

namespace uvpy::net {

// Takes asyncio's functions from its classes, at import.
void remember_streams(ModuleState* state);

enum class Fed : unsigned char { no, yes, failed };

// protocol.data_received(data), where only a profiler or tracer can tell that it was not called: the two objects are exactly of asyncio's
// classes, and none of the functions is replaced, in the classes or the objects. Else, and where it would pause reading or
// fail, `no`, with nothing done. `failed` with an exception set.
Fed feed_stream_reader(core::Loop& loop, PyObject* protocol, PyObject* data);

}  // namespace uvpy::net
