"""What programs take from the module uvloop.loop."""

from __future__ import annotations

from typing import Any

import uvpy
from uvpy import Loop as Loop


def libuv_get_version() -> int:
    """The version of libuv as the number that uv_version() gives: 0x013401 is 1.52.1."""
    major, minor, patch = (int(part) for part in uvpy.libuv_version.split(".")[:3])
    return major << 16 | minor << 8 | patch


def libuv_get_loop_t_ptr(loop: Loop) -> Any:
    """A capsule with the uv_loop_t* of a loop; see uvpy.libuv_loop_ptr."""
    return uvpy.libuv_loop_ptr(loop)
