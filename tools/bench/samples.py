"""One sample: starts fresh processes, lets them work for a bounded time, and reads what they measured.

What is started here is ended here, by its own process id.
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
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Any, NamedTuple

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
    "PYTHONFAULTHANDLER",
    "UVPY_GIL",
)
_TUNED = {"MALLOC_MMAP_THRESHOLD_": "4194304", "MALLOC_TRIM_THRESHOLD_": "16777216"}

Sample = dict[str, Any]


class Failed(Exception):
    """A sample that could not be taken, and why."""


class Times(NamedTuple):
    """Seconds a sample measures, a case of each kind, and an echo's warm-up."""

    micro: float
    echo: float
    warm_up: float


def environment(*, tuned: bool = False) -> dict[str, str]:
    env = {k: v for k, v in os.environ.items() if k not in _DROPPED and not k.startswith("MALLOC_")}
    return {**env, "PYTHONHASHSEED": "0", **(_TUNED if tuned else {})}


def take(case: str, module: str, times: Times, load: Path | None) -> Sample:
    """Runs a case once. The result has cpu, user and system (seconds an operation) and rate (operations a second)."""
    if case in workloads.MICRO:
        told = _micro(case, module, times)
    else:
        assert load
        told = _echo(case, module, times, load)
    count = told["operations"]
    if not count:
        raise Failed("not one operation was done")
    user, system = told["user"] / count, told["system"] / count
    rate = count / told["wall"]
    return {"cpu": user + system, **told, "user": user, "system": system, "rate": rate}


def measured(kind: str, module: str, case: str, *options: object) -> list[str]:
    """The command of a measured process."""
    return [sys.executable, str(HERE / "measured.py"), kind, module, case, *map(str, options)]


def answer(command: Sequence[str], env: dict[str, str], limit: float = LIMIT) -> Sample:
    """The JSON that a command prints."""
    with _started(command, env, limit) as process:
        assert process.stdout
        return _parsed(process.stdout.read(), process)


def _micro(case: str, module: str, times: Times) -> Sample:
    return answer(measured("micro", module, case, "--seconds", times.micro, "--limit", LIMIT), environment())


def _echo(case: str, module: str, times: Times, load: Path) -> Sample:
    echo = workloads.ECHO[case]
    with _started(measured("serve", module, case, "--limit", LIMIT), environment(tuned=echo.tuned)) as server:
        assert server.stdout
        if not select.select([server.stdout], [], [], LIMIT / 2)[0]:
            raise Failed("the server did not start")
        place = _parsed(server.stdout.readline(), server)
        args = [load, place["port"], place["control"], echo.connections, echo.size, times.warm_up, times.echo]
        return {"class": place["class"], **answer([str(a) for a in args], environment())}


def _parsed(text: bytes, process: subprocess.Popen[bytes]) -> Sample:
    try:
        told: Sample = json.loads(text)
    except ValueError:
        raise Failed(f"printed {text[-200:]!r} (status {process.poll()})") from None
    return told


@contextlib.contextmanager
def _started(command: Sequence[str], env: dict[str, str], limit: float = LIMIT) -> Iterator[subprocess.Popen[bytes]]:
    """A process whose output can be read. It must have ended well by the end of the block, or soon after."""
    with tempfile.TemporaryFile() as errors:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors, env=env, cwd=HERE
        )
        trouble: Failed | None = None
        try:
            yield process
            if process.wait(limit):
                trouble = Failed(f"ended with status {process.returncode}")
        except Failed as failed:
            trouble = failed
        except subprocess.TimeoutExpired:
            trouble = Failed(f"did not end within {limit:g} s")
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
            assert process.stdout
            process.stdout.close()
        if trouble:
            raise Failed(f"{Path(command[0]).name}: {trouble}{_tail(errors)}")


def _tail(errors: IO[bytes]) -> str:
    errors.seek(0)
    text = errors.read().decode(errors="replace").strip()
    return f"; it said: {text[-600:]}" if text else ""


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
