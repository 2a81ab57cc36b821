"""`tools/dev python 3.14`: a Python that this machine does not have, from Debian's testing suite.

    .work/python/3.14/      a bare Debian forky (debian.py) with that Python, its own tests, a compiler and libuv

The system's own Python is not touched. A command of tools/dev that is given `--python 3.14` then runs whole
inside that system, where the repository and ../shared are seen under their own paths: so environments and
builds are in .work/ as ever, and an interpreter in .work/venv/3.14.* runs only inside
(`tools/dev run --python 3.14 ...`).
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NoReturn

from . import debian
from .steps import ROOT, WORK, Command, Failure, answer, locked, relative, step

FOLDER = WORK / "python"
SUITE = "forky"

# In a system's tree: says which Python it is there for.
_MARK = "etc/uvpy-python"

_SAY_VERSION = "import platform; print(platform.python_version())"
_PACKAGES = ("ca-certificates", "git", "g++", "libuv1-dev", "pkgconf")


def set_up(minor: str) -> None:
    """Makes the system for a minor version; quick when it is there."""
    if not re.fullmatch(r"3\.\d+", minor):
        raise Failure(f"say a minor version, such as 3.14, not {minor}")
    if running_inside():
        raise Failure("this is such a system already")
    debian.require("tools/dev python")
    tree = FOLDER / minor
    with locked(f"python-{minor}"):
        if version(minor):
            step(f"Python {version(minor)} is there already: {relative(tree)}")
            debian.connect(tree)
            return
        step(f"Python {minor}: debootstrap {SUITE} into {relative(tree)} (a minute or two)")
        name = f"python{minor}"
        debian.lay_out(tree, SUITE, [*_PACKAGES, name, f"{name}-dev", f"{name}-venv", f"lib{name}-testsuite"])
        debian.connect(tree)
        found = answer(debian.inside(tree, [name, "-c", _SAY_VERSION], folder=Path("/")))
        if not found:
            raise Failure(f"the Python in {relative(tree)} does not run")
        # Last, because it says that all is there.
        (tree / _MARK).write_text(f"{found}\n")
    step(f"Python {found} is there: tools/dev COMMAND --python {minor}")


def version(minor: str) -> str | None:
    """The version of the Python that was set up for a minor version, if one was."""
    mark = FOLDER / minor / _MARK
    return mark.read_text().strip() if mark.exists() else None


def found() -> Iterator[str]:
    """The minor versions that were set up; none inside such a system."""
    if not running_inside():
        yield from (path.name for path in sorted(FOLDER.glob("3.*")) if version(path.name))


def running_inside() -> bool:
    """Whether we run in one of these systems."""
    return Path("/", _MARK).exists()


def named_by(wanted: str | None) -> str | None:
    """The minor version of the system that --python means, if it means one."""
    if not wanted or "/" in wanted or running_inside():
        return None
    minor = ".".join(wanted.split(".")[:2])
    return minor if minor in found() and wanted in (minor, version(minor)) else None


def command(minor: str, arguments: Sequence[str]) -> Command:
    """What runs tools/dev with these arguments inside a system."""
    debian.require(f"--python {minor}")
    inner: Command = [f"python{minor}", ROOT / "tools" / "dev", *arguments]
    return debian.inside(FOLDER / minor, inner, folder=ROOT, shared=list(_shared()))


def enter(minor: str, arguments: Sequence[str]) -> NoReturn:
    """Goes on inside a system: this process becomes tools/dev there."""
    sys.stdout.flush()
    words = [str(word) for word in command(minor, arguments)]
    os.execvp(words[0], words)


def _shared() -> Iterator[Path]:
    yield ROOT
    beside = ROOT.parent / "shared"
    if beside.is_dir():
        yield beside
    # A work tree of git's keeps its history elsewhere.
    history = answer(["git", "-C", ROOT, "rev-parse", "--path-format=absolute", "--git-common-dir"])
    if history and not Path(history).is_relative_to(ROOT):
        yield Path(history)
