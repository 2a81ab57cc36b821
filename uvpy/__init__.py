"""uvpy: an asyncio event loop in hand-written C++, with a libuv loop inside.

Run a program with `uvpy.run(main())`, or hand `uvpy.new_event_loop` to whatever takes a loop factory.
"""

from __future__ import annotations

import asyncio
import os
import sys
import warnings
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Literal, TypeAlias, TypeVar

if sys.platform == "win32":
    raise ImportError("uvpy does not run on Windows, only on Linux and other POSIX systems")

try:
    from . import _core
except ImportError as _error:
    if "subinterpreters" in str(_error):  # the interpreter's own refusal, from 3.12 on
        raise ImportError("uvpy does not run in sub-interpreters, only in the main one") from None
    if not any(name.startswith("_core.") and name.endswith(".so") for name in os.listdir(os.path.dirname(__file__))):
        raise ImportError(
            f"the extension module of uvpy is not in {os.path.dirname(__file__)}: build it (tools/dev build), or, where"
            " uvpy is installed, run Python outside this folder of sources"
        ) from None
    raise

from ._loop import Loop

__version__: str = _core.__version__
libuv_version: str = _core.libuv_version
"""The version of the libuv that is loaded, such as "1.52.1"."""
libuv_loop_ptr = _core.libuv_loop_ptr

__all__ = [
    "Loop",
    "__version__",
    "build_info",
    "get_include",
    "install",
    "libuv_loop_ptr",
    "libuv_version",
    "new_event_loop",
    "run",
]

_T = TypeVar("_T")
if sys.version_info >= (3, 14):
    _Main: TypeAlias = Awaitable[_T]
else:
    _Main: TypeAlias = Coroutine[Any, Any, _T]

if sys.version_info[:2] > (3, _core.newest_tested_minor):
    warnings.warn(
        f"uvpy {__version__} has not been tested on Python {sys.version_info[0]}.{sys.version_info[1]};"
        f" the newest tested is 3.{_core.newest_tested_minor}",
        RuntimeWarning,
        stacklevel=2,
    )


def new_event_loop(*, gil: Literal["adaptive", "plain"] | None = None) -> Loop:
    """A new loop; the factory to hand to asyncio.Runner, uvicorn and others.

    `gil` is "adaptive" or "plain" (see Loop); ValueError for anything else.
    """
    return Loop(gil=gil)


def run(
    main: _Main[_T],
    *,
    debug: bool | None = None,
    loop_factory: Callable[[], asyncio.AbstractEventLoop] | None = new_event_loop,
) -> _T:
    """asyncio.run() on a uvpy loop: run a coroutine, close the loop, give the result back.

    Errors are asyncio.run()'s: RuntimeError where a loop runs already, ValueError (TypeError from 3.14 on) for what
    is no coroutine. A `loop_factory` of None is asyncio's own choice of a loop. See
    https://docs.python.org/3/library/asyncio-runner.html.
    """
    if sys.version_info >= (3, 12):
        return asyncio.run(main, debug=debug, loop_factory=loop_factory)
    # asyncio.run() has no factory yet; this is what it does.
    if asyncio._get_running_loop() is not None:
        raise RuntimeError("asyncio.run() cannot be called from a running event loop")
    with asyncio.Runner(debug=debug, loop_factory=loop_factory) as runner:
        return runner.run(main)


def build_info() -> dict[str, str]:
    """What a bug report needs: versions, compiler, where libuv came from, and the state of the GIL."""
    gil_enabled = getattr(sys, "_is_gil_enabled", lambda: True)()
    return {
        "uvpy": __version__,
        "libuv": libuv_version,
        **_core.build,
        "python": sys.version.split()[0],
        "gil": "on" if gil_enabled else "off",
    }


def get_include() -> str:
    """The folder of uvpy.h, for extensions that use a loop's libuv: what `libuv_loop_ptr()` gives, and the rules."""
    return os.path.join(os.path.dirname(os.path.abspath(__file__)), "include")


def _policy() -> object:
    """The policy that was set, or None where nobody has set one or asked for one."""
    return getattr(asyncio.events, "_event_loop_policy", None)


def _loop_in_the_way() -> str | None:
    """The loop that is running or set in this thread and is not ours, as a text; None where there is none."""
    running = asyncio._get_running_loop()
    if running is not None:
        return None if isinstance(running, Loop) else f"{running!r} is running"
    # Not by asking the policy: it would make a loop where there is none.
    current = getattr(getattr(_policy(), "_local", None), "_loop", None)
    if current is None or isinstance(current, Loop) or current.is_closed():
        return None
    return f"{current!r} is set"


if sys.version_info < (3, 16):  # there are no policies from 3.16 on
    if sys.version_info >= (3, 14):
        # By the names that do not warn: we do so ourselves.
        _DefaultPolicy = asyncio.unix_events._DefaultEventLoopPolicy
        _set_policy = asyncio.events._set_event_loop_policy
    else:
        _DefaultPolicy = asyncio.DefaultEventLoopPolicy
        _set_policy = asyncio.set_event_loop_policy

    __all__ += ["EventLoopPolicy"]

    class EventLoopPolicy(_DefaultPolicy):
        """An asyncio policy that makes uvpy loops.

        Deprecated from Python 3.14 on, as policies are: use uvpy.run() or a loop factory.
        """

        _loop_factory = Loop

        def __init__(self) -> None:
            if sys.version_info >= (3, 14):
                _warn_of_policies("uvpy.EventLoopPolicy")
            super().__init__()


def _warn_of_policies(name: str) -> None:
    warnings.warn(
        f"{name} is deprecated, as asyncio's policies are, and will be gone in Python 3.16;"
        " use uvpy.run() or loop_factory=uvpy.new_event_loop",
        DeprecationWarning,
        stacklevel=3,
    )


def install() -> None:
    """Make asyncio create uvpy loops from now on, in every thread.

    A loop of another kind that is running or set in this thread already is not replaced for those who have it: a
    RuntimeWarning says so. Deprecated from Python 3.14 on; RuntimeError from 3.16 on, where there are no policies.
    """
    if sys.version_info >= (3, 16):
        raise RuntimeError("asyncio has no policies from Python 3.16 on: use uvpy.run() or a loop factory")
    else:  # noqa: RET506 - so that type checkers leave it out where the names above are not
        if sys.version_info >= (3, 14):
            _warn_of_policies("uvpy.install()")
        other = _loop_in_the_way()
        if other is not None:
            warnings.warn(
                f"uvpy.install() comes too late for what uses a loop already: {other} in this thread",
                RuntimeWarning,
                stacklevel=2,
            )
        if not isinstance(_policy(), EventLoopPolicy):  # a second one would not know the loops set in the first
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", DeprecationWarning)
                _set_policy(EventLoopPolicy())
