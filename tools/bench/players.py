"""A player is a contender at a case: fresh processes that work for a moment whenever they are asked to.

What is started here is ended here, by its own process id, after a bounded time.
"""

from __future__ import annotations

import contextlib
import json
import mmap
import os
import re
import select
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import loops
import native
import quota
import stats
import syscalls
from cases import CASES, Load, Memory
from native import Failed

HERE = Path(__file__).resolve().parent

LIMIT = 120
"""Seconds after which a process that was started here is ended, whatever it does."""

PERCENTILES = (50.0, 90.0, 99.0, 99.9, 99.99)
ALONE = 0.15
"""Seconds before each turn in which the busy threads are measured with no load on the loop."""

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


def environment(*, tuned: bool = False, more: Mapping[str, str] | None = None) -> dict[str, str]:
    env = {k: v for k, v in os.environ.items() if k not in _DROPPED and not k.startswith("MALLOC_")}
    return {**env, "PYTHONHASHSEED": "0", **(_TUNED if tuned else {}), **(more or {})}


def measured(kind: str, label: str, case: str, *options: object) -> list[str]:
    """The command of a measured process."""
    return [sys.executable, str(HERE / "measured.py"), kind, label, case, *map(str, options)]


def percentile_name(percent: float) -> str:
    return f"p{percent:g}".replace(".", "")


class Process:
    """A child that answers a line with a line."""

    def __init__(
        self, command: Sequence[str | Path], env: dict[str, str], limit: float = LIMIT, core: int | None = None
    ) -> None:
        self.name = Path(command[0]).name
        self.limit = limit
        self.errors = tempfile.TemporaryFile()  # noqa: SIM115 - close() closes it
        words = [str(word) for word in command]
        self.child = subprocess.Popen(
            words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.errors, env=env, cwd=HERE
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

    def alive(self) -> None:
        """Fails where it has ended."""
        if self.child.poll() is not None:
            raise self._failed(f"ended with status {self.child.returncode}")

    def kill(self) -> None:
        if self.child.poll() is None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.child.wait(1)  # it may be about to say why
            self.child.kill()
            self.child.wait()

    def close(self) -> None:
        """Ends it if need be, and gives all back."""
        if self.child.poll() is None:
            self.child.kill()
            self.child.wait()
        for file in (self.child.stdin, self.child.stdout, self.errors):
            assert file
            with contextlib.suppress(BrokenPipeError):
                file.close()

    def _failed(self, what: str) -> Failed:
        self.errors.seek(0)
        said = " / ".join(self.errors.read().decode(errors="replace").strip().splitlines()[-2:])
        return Failed(f"{self.name} {what}{f'; it said: {said[-600:]}' if said else ''}")


class Player:
    """Starts at once; ready() waits until it can be asked, slice() asks."""

    def __init__(self, label: str, env: Mapping[str, str], pinned: bool) -> None:
        self.label = label
        self.cores = cores() if pinned else (None, None)
        self.env = {**env, **loops.CONTENDERS[label].settings}
        self.stack = contextlib.ExitStack()
        self.loop = ""

    def start(self, command: Sequence[str | Path], *, tuned: bool = False, load: bool = False) -> Process:
        env = environment(tuned=tuned, more={} if load else self.env)
        process = Process(command, env, core=self.cores[1 if load else 0])
        self.stack.callback(process.close)
        return process

    def ready(self) -> None:
        raise NotImplementedError

    def slice(self, seconds: float) -> Told:
        """What it did in so many seconds: operations, and rate and processor time a single one of them."""
        raise NotImplementedError

    def calls(self, seconds: float) -> Told:
        """System calls an operation, where they can be counted."""
        return {}

    def end(self) -> None:
        raise NotImplementedError

    def close(self) -> None:
        self.stack.close()


class MicroPlayer(Player):
    def __init__(self, case: str, label: str, env: Mapping[str, str], pinned: bool) -> None:
        super().__init__(label, env, pinned)
        in_c = [str(native.floor()), case] if label == loops.FLOOR else None
        self.process = self.start(in_c or measured("micro", label, case, "--limit", LIMIT))

    def ready(self) -> None:
        self.loop = self.process.answer()["loop"]

    def slice(self, seconds: float) -> Told:
        return _by_operation(self.process.ask(f"{seconds:.4f}"))

    def end(self) -> None:
        self.process.end()


class LoadPlayer(Player):
    """`rate` is what is due in a second, where the case is not a closed loop."""

    def __init__(
        self, name: str, case: Load, label: str, env: Mapping[str, str], pinned: bool, rate: float = 0.0
    ) -> None:
        folder = tempfile.TemporaryDirectory()
        counters = Path(folder.name, "counters")
        counters.write_bytes(bytes(64))
        self.counters = counters
        paths = {"BENCH_PATH": str(Path(folder.name, "socket"))}
        if case.transport == "tls":
            paths["BENCH_CERTIFICATE"] = str(certificate())
        super().__init__(label, {**env, **paths}, pinned)
        self.stack.callback(folder.cleanup)
        self.case = case
        self.rate = rate
        group = self.stack.enter_context(quota.group(case.quota)) if case.quota else None
        self.server = self.start(self._command(name), tuned=case.tuned)
        if group:
            group.write_text(str(self.server.child.pid))

    def _command(self, name: str) -> Sequence[str | Path]:
        if self.label == loops.FLOOR and self.case.busy:
            return [native.floor(), "convoy", self.counters, str(self.case.busy)]
        if self.label == loops.FLOOR:
            path = [self.env["BENCH_PATH"]] if self.case.transport == "unix" else []
            return [native.floor(), "unix" if path else "echo", *path]
        beside = HERE / "neighbours"
        if self.label == "Node":
            return [shutil.which("node") or "node", beside / "echo.js"]
        if self.label == "Go":
            return [_go()]
        if self.label in loops.NEIGHBOURS:
            return [sys.executable, beside / "echo.py", self.label]
        return measured("serve", self.label, name, "--limit", LIMIT, "--counters", self.counters)

    def ready(self) -> None:
        told = self.server.answer()
        self.loop = told["loop"]
        self.address = told["address"]
        self.load = self.connect(self.case.connections, self.case.options)

    def connect(self, connections: int, options: Sequence[str]) -> Process:
        case = self.case
        command: list[str | Path] = [native.load_generator(), "--pid", str(self.server.child.pid), *options]
        for name, value in (("connections", connections), ("size", case.size), ("depth", case.depth), ("limit", LIMIT)):
            command += [f"--{name}", str(value)]
        load = self.start([*command, case.transport, self.address], load=True)
        load.answer()
        return load

    def slice(self, seconds: float) -> Told:
        line = f"{self.case.mode} {seconds:.4f}" + (f" {self.rate:.3f}" if self.rate else "")
        told: Told = {}
        alone = self._speed(lambda: time.sleep(ALONE)) if self.case.busy else 0.0
        speed = self._speed(lambda: told.update(self.load.ask(line)))
        self.server.alive()
        # The kernel splits processor time by the clock's ticks: nothing to take of a slice, but right in the sum.
        told["user"], told["system"] = told.pop("user_ticks"), told.pop("system_ticks")
        return {**_by_operation(told), **({"busy": speed / alone} if alone else {})}

    def _speed(self, work: Callable[[], object]) -> float:
        """How far the busy threads come in a second of it."""
        if not self.case.busy:
            work()
            return 0.0
        with self.counters.open("r+b") as file, mmap.mmap(file.fileno(), 0) as shared:
            counts = memoryview(shared).cast("Q")
            before, began = sum(counts), time.perf_counter()
            work()
            speed = (sum(counts) - before) / (time.perf_counter() - began)
            counts.release()
        return speed

    def calls(self, seconds: float) -> Told:
        return syscalls.count(self.server.child.pid, lambda: int(self.slice(seconds)["operations"]))

    def end(self) -> None:
        self.load.end()
        self.server.alive()


class MemoryPlayer(LoadPlayer):
    """A slice is all there is to measure, once: memory that was given back would be used again."""

    def __init__(self, name: str, case: Memory, label: str, env: Mapping[str, str], pinned: bool) -> None:
        self.many = case.connections
        super().__init__(name, replace(case, connections=100), label, env, pinned)

    def slice(self, seconds: float) -> Told:
        before = resident(self.server.child.pid)
        began = time.perf_counter()
        self.connect(self.many, ())
        self.server.alive()
        wall = time.perf_counter() - began
        grown = resident(self.server.child.pid) - before
        return {"operations": self.many, "wall": wall, "rate": self.many / wall, "bytes": grown / self.many}


def player(name: str, label: str, env: Mapping[str, str], pin: bool, rate: float = 0.0) -> Player:
    """The contender at a case of this name, with its processes started."""
    case = CASES[name]
    pinned = pin if case.pinned is None else case.pinned
    if isinstance(case, Memory):
        return MemoryPlayer(name, case, label, env, pinned)
    if isinstance(case, Load):
        return LoadPlayer(name, case, label, env, pinned, rate or case.rate)
    return MicroPlayer(name, label, env, pinned)


def most(name: str, env: Mapping[str, str], pin: bool, seconds: float = 0.7) -> float:
    """Requests a second that asyncio answers at most, for the cases that are due at a share of it."""
    case = CASES[name]
    assert isinstance(case, Load)
    asked = LoadPlayer(name, replace(case, mode="closed", rate=0.0), loops.BASE, env, pin)
    try:
        asked.ready()
        asked.slice(seconds / 3)
        return float(asked.slice(seconds)["rate"])
    finally:
        asked.close()


def _by_operation(told: Told) -> Told:
    """With processor time a single operation, the rate, and percentiles in seconds."""
    count = told["operations"]
    if not count:
        raise Failed("nothing was done in its time")
    found = {**told, "rate": count / told["wall"], "cpu": told["cpu"] / count}
    if "wakeups" in told:
        found["wakeups"] = told["wakeups"] / count
    if "histogram" in told:
        times = stats.Histogram(map(tuple, told["histogram"]))
        found |= {percentile_name(p): times.percentile(p) for p in PERCENTILES}
    return found


def resident(pid: int) -> int:
    """Bytes of a process that are in memory."""
    rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
    found = re.search(r"^Rss:\s+(\d+) kB", rollup, re.MULTILINE)
    assert found
    return int(found[1]) * 1024


def cores() -> tuple[int, int] | tuple[None, None]:
    """A core for the loop under test and one for what loads it, the same one if there is no other; None elsewhere."""
    if not hasattr(os, "sched_getaffinity"):
        return None, None
    usable = sorted(os.sched_getaffinity(0))
    return usable[-1], usable[0]


def certificate() -> Path:
    """A certificate and its key, made once."""
    path = native.WORK / "certificate.pem"
    if not path.exists():
        try:
            import trustme
        except ImportError:
            raise Failed("trustme is not installed") from None
        made = trustme.CA().issue_cert("localhost")
        native.WORK.mkdir(parents=True, exist_ok=True)
        part = path.with_suffix(f".{os.getpid()}")
        chain = b"".join(blob.bytes() for blob in made.cert_chain_pems)
        part.write_bytes(made.private_key_pem.bytes() + chain)
        part.replace(path)
    return path


def _go() -> Path:
    source = HERE / "neighbours" / "echo.go"
    program = native.WORK / "echo-go"
    if not program.exists() or program.stat().st_mtime < source.stat().st_mtime:
        native.WORK.mkdir(parents=True, exist_ok=True)
        try:
            env = environment(more={"GOCACHE": str(native.WORK / "go")})
            subprocess.run(["go", "build", "-o", str(program), str(source)], check=True, env=env)
        except (OSError, subprocess.CalledProcessError) as error:
            raise Failed(f"echo.go could not be compiled: {error}") from None
    return program
