"""The kinds of cases, and how each is played. A case is data; who plays it is in players.py."""

from __future__ import annotations

import asyncio
import resource
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

Loop = asyncio.AbstractEventLoop

TURN = 1000
"""How many operations a micro case puts into one turn of the loop, where it is not one a turn."""


@dataclass(frozen=True, kw_only=True)
class Case:
    text: str
    figure: str
    """What a loop is compared by: "cpu" or "rate" (operations a second), "p50", "p99", or "bytes"."""
    extras: tuple[str, ...] = ()
    """Labels of loops.py besides the loops."""
    pinned: bool | None = None
    """The loop has one core, and what loads it another; or the kernel places them; None: as --pin says."""
    turn: float = 0.03
    """Seconds of a player's turn."""
    solo: bool = False
    """The players are there one after the other, not at once: each would disturb the others even out of its turn."""
    service: str = ""
    """The server that it needs (devlib/services.py)."""


@dataclass(frozen=True, kw_only=True)
class Micro(Case):
    """Runs in one process and is measured there."""

    run: Callable[[Loop, int], Iterable[int] | None]
    """Does so many operations; may return times in ns, whose percentiles then count."""
    size: int
    """Operations a batch, which is a call of run(); a turn takes as many batches as its time holds."""
    counted: int = 0
    """The same where instructions are counted, some fifty times slower; 0 where the work is the kernel's."""
    figure: str = "cpu"
    pinned: bool | None = True  # all players of a case get the same core: they have the same neighbours there
    bare: Callable[[int], None] | None = None
    """The same by CPython's own blocking functions, where there are such."""


@dataclass(frozen=True, kw_only=True)
class Load(Case):
    """A server, loaded from another process; the server is what is measured."""

    server: str
    """Its name in servers.py."""
    transport: str = "tcp"
    connections: int = 10
    size: int = 1024
    depth: int = 1
    options: tuple[str, ...] = ()
    """Further options of native/load.c."""
    mode: str = "closed"
    """Or "fixed", "poisson" or "bursts" (one on each connection at once), and then: """
    rate: float = 0.0
    """Requests a second that are due; below 1.5 the share of what asyncio answers at most."""
    tuned: bool = False
    """With glibc told to keep freed memory: asyncio's reads of 256 KiB then cost no mmap and munmap each."""
    busy: int = 0
    """So many threads of the server's compute beside the loop."""
    drops: bool = False
    """The threads drop the GIL often, as numpy does."""
    interval: float = 0.0
    """sys.setswitchinterval() by the server's program, where not 0."""
    loops: int = 1
    """So many loops, each in a thread of the server's, share the address."""
    quota: float = 0.0
    """Of a core, which the server's processes have by a control group, where not 0."""
    figure: str = "rate"
    turn: float = 0.15


@dataclass(frozen=True, kw_only=True)
class Memory(Load):
    """What an idle connection costs the server in memory."""

    figure: str = "bytes"


def plain_and_tuned(name: str, load: Load) -> dict[str, Case]:
    """A case as it is, and with the settings for malloc."""
    return {name: load, f"{name}_t": replace(load, text=f"{load.text}, malloc tuned", tuned=True)}


def usage() -> tuple[float, float]:
    """This process's processor time so far, in user and system. The sum is exact, the split is by clock ticks."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime, used.ru_stime


def nothing() -> None:
    pass


def in_turns(loop: Loop, size: int, operations: Callable[[int], None]) -> None:
    """Calls operations(TURN) in one turn after the other until there were `size`."""
    left = size

    def turn() -> None:
        nonlocal left
        if left <= 0:
            loop.stop()
            return
        operations(min(left, TURN))
        left -= TURN
        loop.call_soon(turn)

    loop.call_soon(turn)
    loop.run_forever()
