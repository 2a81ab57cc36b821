"""System calls of a process while it works: by perf's tracepoints where the kernel lets us, else by strace.

perf hardly disturbs; under strace each call takes many times as long, so that more of them find work for several.
"""

from __future__ import annotations

import contextlib
import functools
import os
import re
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

ALL = "raw_syscalls:sys_enter"
POLLS = tuple(f"syscalls:sys_enter_{name}" for name in ("epoll_wait", "epoll_pwait", "poll", "select"))
LIMIT = 10


@functools.cache
def tool() -> str:
    """perf, strace, or nothing."""
    if shutil.which("perf"):
        tried = subprocess.run(["perf", "stat", "-x,", "-e", ",".join((ALL, *POLLS)), "true"], capture_output=True)
        if tried.returncode == 0 and b"<not" not in tried.stderr:
            return "perf"
    return "strace" if shutil.which("strace") else ""


def count(pid: int, work: Callable[[], int]) -> dict[str, float]:
    """By operation, of which work() does so many as it says: system calls, and those among them that wait."""
    if tool() == "perf":
        return _perf(pid, work)
    return _strace(pid, work) if tool() == "strace" else {}


def _perf(pid: int, work: Callable[[], int]) -> dict[str, float]:
    control, ours = os.pipe()
    answers, theirs = os.pipe()
    try:
        with tempfile.NamedTemporaryFile("r") as out:
            events = ",".join((ALL, *POLLS))
            command = ["perf", "stat", "-x,", "-e", events, "-p", str(pid), "-D", "-1", "-o", out.name]
            command += ["--control", f"fd:{control},{theirs}"]
            perf = subprocess.Popen(command, pass_fds=(control, theirs), stderr=subprocess.DEVNULL)
            try:
                os.close(theirs)
                theirs = -1
                os.write(ours, b"enable\n")
                if not os.read(answers, 16):
                    return {}  # it ended instead
                operations = work()
                perf.send_signal(signal.SIGINT)
                perf.wait(LIMIT)
            finally:
                _end(perf)
            return _by_operation(from_perf(Path(out.name).read_text()), operations)
    finally:
        for fd in (control, ours, answers, theirs):
            if fd >= 0:
                os.close(fd)


def _strace(pid: int, work: Callable[[], int]) -> dict[str, float]:
    with tempfile.NamedTemporaryFile("r") as out:
        command = ["strace", "-c", "-f", "-p", str(pid), "-o", out.name]
        strace = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        try:
            assert strace.stderr
            if "attached" not in strace.stderr.readline():
                return {}
            operations = work()
            strace.send_signal(signal.SIGINT)
            strace.wait(LIMIT)
        finally:
            _end(strace)
            assert strace.stderr
            strace.stderr.close()
        return _by_operation(from_strace(Path(out.name).read_text()), operations)


def _end(process: subprocess.Popen[str] | subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        process.wait()


def from_perf(text: str) -> dict[str, int]:
    """Of `perf stat -x,`: all calls, and those that wait for events."""
    found = {"calls": 0, "polls": 0}
    for line in text.splitlines():
        fields = line.split(",")
        if len(fields) > 2 and fields[0].isdigit():
            found["calls" if fields[2] == ALL else "polls"] += int(fields[0])
    return found


def from_strace(text: str) -> dict[str, int]:
    """The same of `strace -c`, whose lines end with the name and have the calls in their fourth column."""
    found = {"calls": 0, "polls": 0}
    for line in text.splitlines():
        if row := re.match(r"\s*[\d.]+\s+[\d.]+\s+\d+\s+(\d+)\s+(?:\d+\s+)?(\w+)$", line):
            if row[2] == "total":
                continue
            found["calls"] += int(row[1])
            if f"syscalls:sys_enter_{row[2]}" in POLLS:
                found["polls"] += int(row[1])
    return found


def _by_operation(found: dict[str, int], operations: int) -> dict[str, float]:
    return {name: value / operations for name, value in found.items()} if found["calls"] and operations else {}
