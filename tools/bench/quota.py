"""A control group with a share of a core, by the first or the second version of the kernel's interface."""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import Iterator
from pathlib import Path

from native import Failed

PERIOD = 100_000
_numbers = itertools.count()


@contextlib.contextmanager
def group(share: float) -> Iterator[Path]:
    """The file that takes the number of a process; the processes must have ended by the end."""
    name = f"uvpy-bench-{os.getpid()}-{next(_numbers)}"
    quota = round(share * PERIOD)
    for root, file, value in (
        ("/sys/fs/cgroup", "cpu.max", f"{quota} {PERIOD}"),
        ("/sys/fs/cgroup/cpu", "cpu.cfs_quota_us", str(quota)),  # of a tenth of a second where nothing else is set
    ):
        folder = Path(root, name)
        try:
            folder.mkdir()
        except OSError:
            continue
        try:
            if (folder / file).exists():
                (folder / file).write_text(value)
                yield folder / "cgroup.procs"
                return
        except PermissionError:
            continue
        finally:
            folder.rmdir()
    raise Failed("no control group for processor time can be made here")


def why_not() -> str:
    """Why there can be none; empty where there can."""
    try:
        with group(0.5):
            return ""
    except Failed as failed:
        return str(failed)
