# SPDX-License-Identifier: MIT
"""Puts a loop in the place of asyncio's own, counts how often it runs, and notes loops that are not it.

Imported by sitecustomize.py beside it, in every Python process of a suite whose environment names a loop. The same
for asyncio, uvloop and uvpy: each time a counting subclass, put where suites and libraries come by a loop. It must
not look at suites or results: that is suites_pytest.py's part.
"""

from __future__ import annotations

import asyncio
import importlib
import os
import sys
from typing import Any, cast

LOOP_VARIABLE = "UVPY_SUITES_LOOP"
"""asyncio, uvloop or uvpy."""
PATH_VARIABLE = "UVPY_SUITES_PATH"
"""The folder to import it from: it is not among the packages of the suite's venv."""


class Count:
    """What happened so far in this process."""

    started = 0
    """Calls of the injected loop's run_forever."""
    running = 0
    """Injected loops that run now, in whichever thread."""


foreign: list[str] = []
"""The types of loops that ran though they are not the injected one."""

injected = {"loop": "", "file": ""}
"""The class that was injected and the package it is from; the runner holds them against what it asked for."""


def _base(name: str) -> type:
    """The loop's class. Before anything is patched: uvpy borrows from asyncio."""
    if name == "asyncio":
        return _noted(asyncio.SelectorEventLoop, asyncio.__file__)
    folder = os.environ[PATH_VARIABLE]
    sys.path.insert(0, folder)
    try:
        module = importlib.import_module(name)
    finally:
        sys.path.remove(folder)
    loop = _noted(module.Loop, module.__file__)
    # A suite that asks whether uvloop can be imported must get the same answer whichever loop drives it.
    if name == "uvloop":
        for known in [known for known in sys.modules if known.partition(".")[0] == name]:
            del sys.modules[known]
    return loop


def _noted(loop: Any, file: str | None) -> type:
    injected.update(loop=f"{loop.__module__}.{loop.__qualname__}", file=file or "")
    return cast("type", loop)


def _counting(base: Any) -> type:
    """A subclass that counts its runs, and takes asyncio's `selector` argument also where the base has none."""
    own_selector = base is asyncio.SelectorEventLoop

    class Loop(base):  # type: ignore[misc]
        def __new__(cls, selector: Any = None) -> Any:
            return super().__new__(cls)

        def __init__(self, selector: Any = None) -> None:
            if own_selector:
                super().__init__(selector)
                return
            if selector is not None:
                selector.close()
            super().__init__()

        def run_forever(self) -> None:
            Count.started += 1
            Count.running += 1
            try:
                super().run_forever()
            finally:
                Count.running -= 1

    # Told apart by isinstance() alone: what prints or compares the type's name sees the loop's own.
    Loop.__module__, Loop.__name__, Loop.__qualname__ = base.__module__, base.__name__, base.__qualname__
    return Loop


def _watch_for_others(ours: type) -> None:
    """Note the type of any other loop that becomes the running one through asyncio's own machinery."""
    real = asyncio.events._set_running_loop

    def _set_running_loop(loop: Any) -> None:
        if loop is not None and not isinstance(loop, ours):
            foreign.append(f"{type(loop).__module__}.{type(loop).__qualname__}")
        real(loop)

    asyncio.events._set_running_loop = asyncio._set_running_loop = _set_running_loop


def inject(name: str) -> None:
    """Make every way in which a suite comes by a loop lead to this one.

    The factory is set on the policy class, not on a policy: suites reset the policy and make ones of their own.
    It must be a class: a plain function would become a method.
    """
    unix: Any = asyncio.unix_events
    ours = _counting(_base(name))
    policy = getattr(unix, "_UnixDefaultEventLoopPolicy", None) or getattr(unix, "_DefaultEventLoopPolicy", None)
    if policy is not None:
        policy._loop_factory = ours
    for module in (asyncio, unix):
        for attribute in ("SelectorEventLoop", "EventLoop"):
            if hasattr(module, attribute):
                setattr(module, attribute, ours)
    _watch_for_others(ours)
