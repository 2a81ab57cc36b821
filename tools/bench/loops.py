"""Who is compared: the loops, what stands beside them as a floor or a neighbour, and which version each is."""

from __future__ import annotations

import asyncio
import importlib
import importlib.metadata
import platform
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

BASE = "asyncio"
CONTROL = "asyncio (A/A)"
"""asyncio a second time: how far it strays from the first is what this machine can be trusted with today."""

OURS = "uvpy"


@dataclass(frozen=True)
class Contender:
    """A row of the tables."""

    module: str = ""
    """Whose new_event_loop() makes the loop; empty where this is no loop of asyncio's."""
    fastnet: bool = False
    """With aiofastnet's transports patched onto the loop."""
    interval: float = 0.0
    """sys.setswitchinterval() for the whole process, where not 0."""
    settings: MappingProxyType[str, str] = field(default_factory=lambda: MappingProxyType({}))
    """Environment variables."""
    package: str = ""
    """The distribution that must be there for a neighbour which is a Python program."""
    program: str = ""
    """The command that must be there for one that is not."""


LOOPS = {
    BASE: Contender("asyncio"),
    CONTROL: Contender("asyncio"),
    "uvloop": Contender("uvloop"),
    "rloop": Contender("rloop"),
    "zuvloop": Contender("zuvloop"),
    OURS: Contender("uvpy"),
}
"""Those that play every case."""

FASTNET = {
    "asyncio + aiofastnet": Contender("asyncio", fastnet=True),
    "uvloop + aiofastnet": Contender("uvloop", fastnet=True),
    "uvpy + aiofastnet": Contender("uvpy", fastnet=True),
}
CONVOY = {
    "uvloop, interval 0.1 ms": Contender("uvloop", interval=1e-4),
    "uvpy, gil=plain": Contender("uvpy", settings=MappingProxyType({"UVPY_GIL": "plain"})),
}
FLOOR = "C on libuv"
BARE = "without a loop"
"""The same work by CPython's own functions alone."""
BAREST = "the barest loop"
"""What a protocol and the kernel cost: a loop that only calls what is ready (barest.py)."""
BAREST_FASTNET = "the barest loop + aiofastnet"
BARESTS = {BAREST: Contender("barest"), BAREST_FASTNET: Contender("barest", fastnet=True)}
FLOORS = {FLOOR: Contender(program="cc"), BARE: Contender(), **BARESTS}
NEIGHBOURS = {
    "Go": Contender(program="go"),
    "Node": Contender(program="node"),
    "gevent": Contender(package="gevent"),
    "Twisted": Contender(package="twisted"),
    "Tornado": Contender(package="tornado"),
    "Trio": Contender(package="trio"),
}

CONTENDERS = {**LOOPS, **FASTNET, **CONVOY, **FLOORS, **NEIGHBOURS}


def factory(label: str) -> Callable[[], asyncio.AbstractEventLoop]:
    """What makes a loop; called in the measured process, which imports no other loop's module."""
    contender = CONTENDERS[label]
    if contender.interval:
        sys.setswitchinterval(contender.interval)
    made: Callable[[], asyncio.AbstractEventLoop] = importlib.import_module(contender.module).new_event_loop
    if not contender.fastnet:
        return made
    patch: Callable[[asyncio.AbstractEventLoop], object] = importlib.import_module("aiofastnet").patch_loop

    def patched() -> asyncio.AbstractEventLoop:
        loop = made()
        patch(loop)
        return loop

    return patched


def version(label: str, floor: Callable[[], str]) -> str | None:
    """The version, with that of the libuv in use; None where it is not there. `floor` asks the C program."""
    contender = CONTENDERS[label]
    try:
        if contender.module:
            text = _module_version(contender.module)
            return f"{text}, aiofastnet {importlib.metadata.version('aiofastnet')}" if contender.fastnet else text
        if contender.package:
            return f"{contender.package} {importlib.metadata.version(contender.package)}"
        if label == FLOOR:
            return floor()
        if label == BARE:
            return f"Python {platform.python_version()}"
        program = shutil.which(contender.program)
        command = [program or "", "version" if contender.program == "go" else "--version"]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip() if program else None
    except (ImportError, OSError, subprocess.CalledProcessError):
        return None


def _module_version(module: str) -> str:
    if module in ("asyncio", "barest"):
        return f"Python {platform.python_version()}"
    found = importlib.import_module(module)
    text = f"{module} {importlib.metadata.version(module) if module != 'uvpy' else found.__version__}"
    if module == "uvloop":
        number = importlib.import_module("uvloop.loop").libuv_get_version()
        return f"{text}, libuv {number >> 16}.{number >> 8 & 255}.{number & 255}"
    return f"{text}, libuv {found.libuv_version}" if module == "uvpy" else text


def library(label: str) -> Path | None:
    """The shared library that is the loop's own code, where it has one."""
    module = CONTENDERS[label].module
    name = {"uvloop": "uvloop.loop", "uvpy": "uvpy._core", "rloop": "rloop._rloop", "zuvloop": "zuvloop._zuvloop"}.get(
        module
    )
    try:
        file = importlib.import_module(name).__file__ if name else None
    except ImportError:
        return None
    return Path(file).resolve() if file and ".so" in file else None
