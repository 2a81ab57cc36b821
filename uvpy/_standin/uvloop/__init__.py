"""A stand-in for the package uvloop, for programs that ask for it by name: what they get is uvpy.

Found only where somebody asked for it: `uvpy.compat.as_uvloop()`, or `python -m uvpy exec`, which puts the folder
above this one first on PYTHONPATH. It offers uvloop's public names and nothing of its insides.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import uvpy
from uvpy import Loop, new_event_loop

from . import loop as loop

__version__ = f"0.23.0+uvpy.{uvpy.__version__}"
"""The uvloop whose names these are, and who stands in for it."""

__all__ = ["Loop", "new_event_loop", "run"]

_T = TypeVar("_T")


def run(
    main: Coroutine[Any, Any, _T],
    *,
    loop_factory: Callable[[], asyncio.AbstractEventLoop] | None = new_event_loop,
    debug: bool | None = None,
) -> _T:
    """asyncio.run() on this loop. TypeError where `loop_factory` makes one of another kind, as uvloop.run() has it."""

    async def checked() -> _T:
        if not isinstance(asyncio.get_running_loop(), Loop):
            main.close()
            raise TypeError("uvloop.run() uses a non-uvloop event loop")
        return await main

    return uvpy.run(checked(), debug=debug, loop_factory=loop_factory)


if sys.version_info < (3, 16):  # policies end there, and uvloop's names for them
    from uvpy import EventLoopPolicy as EventLoopPolicy
    from uvpy import install as install

    __all__ += ["EventLoopPolicy", "install"]
