"""The loops that are compared: what each is called, how one is made, which version it is."""

from __future__ import annotations

import asyncio
import importlib
import platform
from collections.abc import Callable
from pathlib import Path

BASE = "asyncio"
CONTROL = "asyncio (A/A)"
"""asyncio a second time: how far it strays from the first is what this machine can be trusted with today."""

# The label in the tables, and the module whose new_event_loop() makes the loop.
MODULES = {BASE: "asyncio", CONTROL: "asyncio", "uvloop": "uvloop", "uvpy": "uvpy"}


def factory(module: str) -> Callable[[], asyncio.AbstractEventLoop]:
    """What makes a loop; called in the measured process, which imports no other loop's module."""
    made: Callable[[], asyncio.AbstractEventLoop] = importlib.import_module(module).new_event_loop
    return made


def version(module: str) -> str | None:
    """The version, with that of the libuv in use; None where the module cannot be imported."""
    if module == "asyncio":
        return f"Python {platform.python_version()}"
    try:
        found = importlib.import_module(module)
    except ImportError:
        return None
    if module == "uvloop":
        number = importlib.import_module("uvloop.loop").libuv_get_version()
        libuv = f"{number >> 16}.{number >> 8 & 255}.{number & 255}"
    else:
        libuv = found.libuv_version
    return f"{module} {found.__version__}, libuv {libuv}"


def library(module: str) -> Path | None:
    """The shared library that is the loop's own code, where it has one."""
    name = {"uvloop": "uvloop.loop", "uvpy": "uvpy._core"}.get(module)
    if name is None:
        return None
    file = importlib.import_module(name).__file__
    assert file
    return Path(file).resolve()
