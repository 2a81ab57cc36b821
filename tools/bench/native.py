"""The C programs: compiled on demand into .work/bench, anew when a source or the command changed."""

from __future__ import annotations

import functools
import hashlib
import os
import shlex
import subprocess
import sysconfig
from pathlib import Path

HERE = Path(__file__).resolve().parent
SOURCES = HERE / "native"
WORK = HERE.parents[1] / ".work" / "bench"


class Failed(Exception):
    """What could not be measured, and why."""


def compiler() -> list[str]:
    return [*shlex.split(os.environ.get("CC", "cc")), "-O2", "-std=gnu17", "-Wall", "-Wextra", "-Werror"]


def compiler_version() -> str:
    return _said([*shlex.split(os.environ.get("CC", "cc")), "--version"]).splitlines()[0]


@functools.cache
def load_generator() -> Path:
    """With TLS where OpenSSL's headers are there; without, the cases of TLS fail with a word."""
    sources = [SOURCES / "load.c", SOURCES / "histogram.h"]
    try:
        return _compiled("load", sources, ["-DWITH_TLS"], ["-lm", "-lssl", "-lcrypto"])
    except Failed:
        return _compiled("load", sources, [], ["-lm"])


@functools.cache
def floor() -> Path:
    """The C program on libuv: on the system's, which the main build of uvpy uses, too."""
    flags = shlex.split(_said(["pkg-config", "--cflags", "--libs", "libuv"]))
    return _compiled("floor", [SOURCES / "floor.c", SOURCES / "gil.h"], ["-pthread"], flags)


def floor_version() -> str:
    try:
        return _said([str(floor()), "version"]).strip()
    except Failed as failed:
        raise OSError(str(failed)) from None


@functools.cache
def marks() -> Path:
    """A library that tells callgrind when to count."""
    return _compiled("marks", [SOURCES / "marks.c"], ["-shared", "-fPIC"], [])


@functools.cache
def calls() -> Path:
    """A library that calls a protocol as a transport does, for the running interpreter."""
    flags = ["-shared", "-fPIC", f"-I{sysconfig.get_path('include')}"]
    return _compiled("calls", [SOURCES / "calls.c"], flags, [])


@functools.cache
def turns() -> Path:
    """A library of turns by CPython's own functions and epoll_wait."""
    include = sysconfig.get_path("include")
    return _compiled("turns", [SOURCES / "turns.c"], ["-shared", "-fPIC", "-isystem", include], [])


def _said(command: list[str]) -> str:
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError) as error:
        raise Failed(f"{shlex.join(command)}: {error}") from None


def _compiled(name: str, sources: list[Path], before: list[str], after: list[str]) -> Path:
    command = [*compiler(), *before]
    text = b"".join(source.read_bytes() for source in sources)
    key = hashlib.sha256(text + repr((command, after)).encode()).hexdigest()[:16]
    program = WORK / f"{name}-{key}"
    if not program.exists():
        WORK.mkdir(parents=True, exist_ok=True)
        part = program.with_suffix(f".{os.getpid()}")
        main = [str(source) for source in sources if source.suffix == ".c"]
        try:
            subprocess.run([*command, "-o", str(part), *main, *after], check=True, capture_output=True, text=True)
        except (OSError, subprocess.CalledProcessError) as error:
            said = getattr(error, "stderr", "") or ""
            raise Failed(f"{sources[0].name} could not be compiled: {error} {said[-300:]}") from None
        part.replace(program)
    return program
