"""A player is a loop at a case: fresh processes that work for a moment whenever they are asked to.

What is started here is ended here, by its own process id, after a bounded time.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import select
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import workloads

HERE = Path(__file__).resolve().parent
WORK = HERE.parents[1] / ".work" / "bench"

LIMIT = 60
"""Seconds after which a process that was started here is ended, whatever it does."""

# Settings of the caller's that would be measured with the loop.
_DROPPED = (
    "PYTHONASYNCIODEBUG",
    "PYTHONDEVMODE",
    "PYTHONMALLOC",
    "PYTHONTRACEMALLOC",
    "UVPY_GIL",
)
_TUNED = {"MALLOC_MMAP_THRESHOLD_": "4194304", "MALLOC_TRIM_THRESHOLD_": "16777216"}

Told = dict[str, Any]
"""What a process said, in JSON."""


class Failed(Exception):
    """What could not be measured, and why."""


def environment(*, tuned: bool = False) -> dict[str, str]:
    env = {k: v for k, v in os.environ.items() if k not in _DROPPED and not k.startswith("MALLOC_")}
    return {**env, "PYTHONHASHSEED": "0", **(_TUNED if tuned else {})}


def measured(kind: str, module: str, case: str, *options: object) -> list[str]:
    """The command of a measured process."""
    return [sys.executable, str(HERE / "measured.py"), kind, module, case, *map(str, options)]


class Process:
    """A child that answers a line with a line."""

    def __init__(
        self, command: Sequence[str], env: dict[str, str], limit: float = LIMIT, core: int | None = None
    ) -> None:
        self.name = Path(command[0]).name
        self.limit = limit
        self.errors = tempfile.TemporaryFile()  # noqa: SIM115 - close() closes it
        self.child = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.errors, env=env, cwd=HERE
        )
        if core is not None:
            with contextlib.suppress(ProcessLookupError):
                os.sched_setaffinity(self.child.pid, {core})

    def ask(self, line: str) -> Told:
        assert self.child.stdin
        with contextlib.suppress(BrokenPipeError):  # then there is no answer either
            self.child.stdin.write(f"{line}\n".encode())
            self.child.stdin.flush()
        return self.answer()

    def answer(self) -> Told:
        """Its next line. There is never more than one on its way, so none can hide in a buffer."""
        assert self.child.stdout
        if not select.select([self.child.stdout], [], [], self.limit)[0]:
            raise self._failed(f"did not answer within {self.limit:g} s")
        line = self.child.stdout.readline()
        try:
            told: Told = json.loads(line)
        except ValueError:
            self.kill()
            raise self._failed(f"answered {line[-100:]!r} and ended with status {self.child.returncode}") from None
        return told

    def end(self) -> None:
        """Closes its input, and fails where it does not end well by that."""
        assert self.child.stdin
        with contextlib.suppress(BrokenPipeError):
            self.child.stdin.close()
        try:
            status = self.child.wait(self.limit)
        except subprocess.TimeoutExpired:
            raise self._failed(f"did not end within {self.limit:g} s") from None
        if status:
            raise self._failed(f"ended with status {status}")

    def kill(self) -> None:
        if self.child.poll() is None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.child.wait(1)  # it may be about to say why
            self.child.kill()
            self.child.wait()

    def close(self) -> None:
        """Ends it if need be, and gives all back."""
        self.kill()
        for file in (self.child.stdin, self.child.stdout, self.errors):
            assert file
            with contextlib.suppress(BrokenPipeError):
                file.close()

    def _failed(self, what: str) -> Failed:
        self.errors.seek(0)
        said = " / ".join(self.errors.read().decode(errors="replace").strip().splitlines()[-2:])
        return Failed(f"{self.name} {what}{f'; it said: {said[-600:]}' if said else ''}")


class Player:
    """Starts at once; ready() waits until it can be asked. `load` is the compiled load.c, for the echo cases.

    All players of a micro case get the same core, so that they have the same neighbours on it. An echo's server and
    load run where the kernel puts them, or with `pin` on a core each.
    """

    def __init__(self, case: str, module: str, load: Path | None, pin: bool) -> None:
        self.echo = workloads.ECHO.get(case)
        self.load = load
        self.cores = cores() if pin or not self.echo else (None, None)
        self.loop = ""
        tuned = self.echo is not None and self.echo.tuned
        kind = "serve" if self.echo else "micro"
        command = measured(kind, module, case, "--limit", LIMIT)
        self.processes = [Process(command, environment(tuned=tuned), core=self.cores[0])]

    def ready(self) -> None:
        told = self.processes[0].answer()
        self.loop = told["loop"]
        if self.echo:
            assert self.load
            transport = "udp" if self.echo.datagrams else "tcp"
            command = [self.load, transport, *told["ports"], self.echo.connections, self.echo.size, LIMIT]
            self.processes.append(Process([str(c) for c in command], environment(), core=self.cores[1]))

    def slice(self, seconds: float) -> Told:
        """What it did in so many seconds: operations, and a rate and processor time a single one of them."""
        told = self.processes[-1].ask(f"{seconds:.4f}")
        count = told["operations"]
        user, system = told["user"] / count, told["system"] / count
        if user + system <= 0:
            raise Failed("no processor time was used")
        return {**told, "user": user, "system": system, "cpu": user + system, "rate": count / told["wall"]}

    def end(self) -> None:
        """The load generator ends with its input, and tells the server to end."""
        for process in reversed(self.processes):
            process.end()

    def close(self) -> None:
        for process in self.processes:
            process.close()


def cores() -> tuple[int, int] | tuple[None, None]:
    """A core for the loop under test and one for what loads it, the same one if there is no other; None elsewhere."""
    if not hasattr(os, "sched_getaffinity"):
        return None, None
    usable = sorted(os.sched_getaffinity(0))
    return usable[-1], usable[0]


def load_generator() -> Path:
    """The compiled load.c, compiled anew when the source or the compiler's options changed."""
    source = HERE / "load.c"
    command = [os.environ.get("CC", "cc"), "-O2", "-std=gnu17", "-Wall", "-Wextra", "-Werror"]
    key = hashlib.sha256(source.read_bytes() + repr(command).encode()).hexdigest()[:16]
    program = WORK / f"load-{key}"
    if not program.exists():
        WORK.mkdir(parents=True, exist_ok=True)
        part = program.with_suffix(f".{os.getpid()}")
        try:
            subprocess.run([*command, "-o", str(part), str(source)], check=True)
        except (OSError, subprocess.CalledProcessError) as error:
            raise Failed(f"load.c could not be compiled: {error}") from None
        part.replace(program)
    return program
