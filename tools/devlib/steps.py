"""Where tools/dev's folders are, how it shows what it does, and how it runs commands.

Every long piece of work is a step: a line when it begins, with the seconds since the start. A quiet
command's output goes to a log and is shown when the command fails.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Literal

ROOT = Path(__file__).resolve().parents[2]
WORK = ROOT / ".work"
LOGS = WORK / "logs"

Command = list[str | Path]

_started = time.monotonic()


class Failure(Exception):
    """What the user must read; tools/dev prints it and exits with 1."""


def step(text: str) -> None:
    """Announces the next piece of work."""
    print(f"[{time.monotonic() - _started:6.1f}s] {text}", flush=True)


def environment(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """The environment of what we start: ours, without what would lead Python elsewhere."""
    env = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV")}
    env["PIP_DISABLE_PIP_VERSION_CHECK"] = "1"
    env["PIP_ROOT_USER_ACTION"] = "ignore"
    env.update(extra or {})
    return env


def quiet(
    command: Sequence[str | Path],
    log: str,
    *,
    what: str,
    env: Mapping[str, str] | None = None,
    cwd: Path = ROOT,
    shown: bool = True,
) -> None:
    """Runs a command with its output in a log of this name; the log is shown on failure, unless that is expected."""
    LOGS.mkdir(parents=True, exist_ok=True)
    path = LOGS / f"{log}.log"
    with path.open("ab", buffering=0) as out:
        begin = out.tell()
        out.write(f"\n$ {shlex.join(map(str, command))}\n".encode())
        done = subprocess.run(
            [str(c) for c in command],
            stdout=out,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            env=environment(env),
            cwd=cwd,
        )
    if done.returncode:
        text = path.read_bytes()[begin:].decode(errors="replace")
        if shown:
            sys.stdout.write(text)
        where = "above and in" if shown else "in"
        raise Failure(f"{what} failed (exit status {done.returncode}; the output is {where} {relative(path)})")


def show(command: Sequence[str | Path], *, env: Mapping[str, str] | None = None, limit: float | None = None) -> int:
    """Runs a command with its output on ours and returns its exit status (124 when it passed its time limit)."""
    sys.stdout.flush()
    return _wait(command, None, env, limit)


def logged(
    command: Sequence[str | Path],
    log: Path,
    *,
    env: Mapping[str, str] | None = None,
    limit: float,
    cwd: Path = ROOT,
    mode: Literal["wb", "ab"] = "wb",
) -> int:
    """Runs a command with its output in a file, and returns its exit status as show() does."""
    with log.open(mode) as out:
        return _wait(command, out, env, limit, cwd)


def _wait(
    command: Sequence[str | Path],
    out: IO[bytes] | None,
    env: Mapping[str, str] | None,
    limit: float | None,
    cwd: Path = ROOT,
) -> int:
    # A session of its own, so that what a test leaves running is ended with it. Then Ctrl-C does not reach it
    # from the terminal, but by the end_group() below.
    process = subprocess.Popen(
        [str(c) for c in command],
        env=environment(env),
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        stdout=out,
        stderr=subprocess.STDOUT if out else None,
        start_new_session=True,
    )
    try:
        return process.wait(limit)
    except subprocess.TimeoutExpired:
        print(f"time limit of {limit:.0f} s passed: {shlex.join(map(str, command))}", flush=True)
        return 124
    finally:
        end_group(process)


def end_group(process: subprocess.Popen[bytes]) -> None:
    """Ends a process that leads a session of its own, and what it started there."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, number)
        except (ProcessLookupError, PermissionError):
            break
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(5)
    process.poll()


def answer(command: Sequence[str | Path]) -> str | None:
    """What a command prints, or None when it cannot be run or fails."""
    try:
        done = subprocess.run(
            [str(c) for c in command],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            stdin=subprocess.DEVNULL,
            env=environment(),
            check=True,
            timeout=60,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.decode(errors="replace").strip()


@contextlib.contextmanager
def locked(name: str) -> Iterator[None]:
    """Keeps two runs of tools/dev from doing the same piece of work at once."""
    folder = WORK / "locks"
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / name).open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            step(f"waiting for another run of tools/dev ({name})")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def remove_tree(path: Path) -> None:
    """Removes a folder of ours, unless something is mounted below it: that is not ours."""
    mounts = Path("/proc/self/mountinfo")
    lines = mounts.read_text().splitlines() if mounts.exists() else []
    mounted = [re.sub(r"\\(\d{3})", lambda code: chr(int(code[1], 8)), line.split()[4]) for line in lines]
    below = [point for point in mounted if Path(point).is_relative_to(path)]
    if below:
        raise Failure(f"{relative(path)} is not removed: something is mounted on {', '.join(below)}")
    shutil.rmtree(path, ignore_errors=True)


def relative(path: Path) -> str:
    """A path as the user sees it from the repository's root."""
    try:
        return str(path.relative_to(ROOT))
    except ValueError:
        return str(path)
