"""uvpy: an asyncio event loop on libuv, in hand-written C++.

Run a program with `uvpy.run(main())`, or hand `uvpy.new_event_loop` to whatever takes a loop factory.
"""

from __future__ import annotations

import asyncio
import sys
import warnings
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from . import _core
from ._loop import Loop

__version__: str = _core.__version__
libuv_version: str = _core.libuv_version
"""The version of the libuv that is loaded, such as "1.52.1"."""

__all__ = (
    "EventLoopPolicy",
    "Loop",
    "__version__",
    "build_info",
    "install",
    "libuv_version",
    "new_event_loop",
    "run",
)

_T = TypeVar("_T")

# asyncio's policies: deprecated from 3.14 on, gone in 3.16.
_POLICIES_DEPRECATED = sys.version_info >= (3, 14)
_HAS_POLICIES = sys.version_info < (3, 16)

if sys.version_info[:2] > (3, _core.newest_tested_minor):
    warnings.warn(
        f"uvpy {__version__} has not been tested on Python {sys.version_info[0]}.{sys.version_info[1]};"
        f" the newest tested is 3.{_core.newest_tested_minor}",
        RuntimeWarning,
        stacklevel=2,
    )


def new_event_loop(*, gil: str | None = None) -> Loop:
    """A new loop; the factory to hand to asyncio.Runner, uvicorn and others.

    `gil` is "adaptive" or "plain" (see Loop); ValueError for anything else.
    """
    return Loop(gil=gil)


def run(
    main: Coroutine[Any, Any, _T],
    *,
    debug: bool | None = None,
    loop_factory: Callable[[], asyncio.AbstractEventLoop] | None = new_event_loop,
) -> _T:
    """asyncio.run() on a uvpy loop: run a coroutine, close the loop, give the result back.

    Errors are asyncio.Runner's: RuntimeError where a loop runs already, ValueError (TypeError from 3.14 on) for what
    is no coroutine. See https://docs.python.org/3/library/asyncio-runner.html.
    """
    if asyncio._get_running_loop() is not None:
        # As asyncio.run() says it; the Runner's own text names another function.
        raise RuntimeError("uvpy.run() cannot be called from a running event loop")
    with asyncio.Runner(debug=debug, loop_factory=loop_factory) as runner:
        return runner.run(main)


def build_info() -> dict[str, Any]:
    """What a bug report needs: versions, compiler, where libuv came from, and the state of the GIL."""
    gil_enabled = getattr(sys, "_is_gil_enabled", lambda: True)()
    return {
        "uvpy": __version__,
        "libuv": libuv_version,
        **_core.build,
        "python": sys.version.split()[0],
        "gil": "on" if gil_enabled else "off",
    }


def _other_loop() -> str | None:
    """The loop that is set or running in this thread and is not ours, as a text; None where there is none."""
    running = asyncio._get_running_loop()
    if running is not None:
        return None if isinstance(running, Loop) else f"{running!r} is running"
    local = getattr(asyncio.events, "_event_loop_policy", None)
    current = getattr(getattr(local, "_local", None), "_loop", None)
    if current is not None and not isinstance(current, Loop) and not current.is_closed():
        return f"{current!r} is set"
    return None


if _HAS_POLICIES:
    _PolicyBase: Any = getattr(asyncio, "_DefaultEventLoopPolicy", None) or asyncio.DefaultEventLoopPolicy

    class EventLoopPolicy(_PolicyBase):
        """An asyncio policy that makes uvpy loops. Deprecated from Python 3.14 on, as policies are: use a loop factory."""

        _loop_factory = Loop

        def __init__(self) -> None:
            if _POLICIES_DEPRECATED:
                warnings.warn(
                    "uvpy.EventLoopPolicy is deprecated, as asyncio's policies are, and will be gone in Python 3.16;"
                    " use uvpy.run() or loop_factory=uvpy.new_event_loop",
                    DeprecationWarning,
                    stacklevel=2,
                )
            super().__init__()


def install() -> None:
    """Make asyncio create uvpy loops from now on, in every thread.

    A loop of another kind that is already set or running in this thread is not replaced: then a RuntimeWarning says
    that uvpy is not in effect there. Deprecated from Python 3.14 on, RuntimeError from 3.16 on (there are no policies).
    """
    if not _HAS_POLICIES:
        raise RuntimeError("asyncio has no policies from Python 3.16 on: use uvpy.run() or a loop factory")
    if _POLICIES_DEPRECATED:
        warnings.warn(
            "uvpy.install() is deprecated, as asyncio's policies are; use uvpy.run() or"
            " loop_factory=uvpy.new_event_loop",
            DeprecationWarning,
            stacklevel=2,
        )
    other = _other_loop()
    if other is not None:
        warnings.warn(
            f"uvpy.install() comes too late here: {other}, and stays in use in this thread",
            RuntimeWarning,
            stacklevel=2,
        )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        asyncio.set_event_loop_policy(EventLoopPolicy())
