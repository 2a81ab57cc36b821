"""`tools/dev fresh`: tools/dev on a machine where nothing was prepared.

A bare Debian bookworm with git and python3 (debian.py) under .work/fresh, a clone of HEAD in it, and
../shared/behaviour beside the clone if it is here. What runs there has a process namespace of its own, so
nothing stays running.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from . import debian, gate
from .steps import ROOT, WORK, Command, quiet, relative, remove_tree, show, step

FOLDER = WORK / "fresh"
BASE = FOLDER / "base.tar"
TREE = FOLDER / "bookworm"
CLONE = "srv/uvpy"


def run(commands: list[str], *, again: bool) -> int:
    debian.require("tools/dev fresh")
    if not (again and TREE.exists()):
        _lay_out()
    _clone()
    status = 0
    for command in commands:
        step(f"fresh: tools/dev {command}")
        shell: Command = ["sh", "-c", f"exec tools/dev {command}"]
        status = show(debian.inside(TREE, shell, folder=Path("/", CLONE), own_processes=True)) or status
        step(f"fresh: tools/dev {command} ended with {status}")
    return status


def _lay_out() -> None:
    FOLDER.mkdir(parents=True, exist_ok=True)
    if not BASE.exists():
        step("fresh: debootstrap bookworm (a minute)")
        debian.lay_out(TREE, "bookworm", ["git", "python3"])
        quiet(["tar", "-C", TREE, "-cf", BASE, "."], "fresh", what="keeping the base system")
    step("fresh: unpack the base system")
    remove_tree(TREE)
    TREE.mkdir()
    quiet(["tar", "-C", TREE, "-xf", BASE], "fresh", what="unpacking the base system")
    debian.connect(TREE)


def _clone() -> None:
    """HEAD as a clone, and the behaviour probes beside it."""
    clone = TREE / CLONE
    step(f"fresh: clone HEAD into {relative(clone)}")
    if clone.exists():
        quiet(["git", "-C", clone, "pull", "-q", "--ff-only"], "fresh", what="git pull")
    else:
        quiet(["git", "clone", "-q", "--no-hardlinks", ROOT, clone], "fresh", what="git clone")
    shared = clone.parent / "shared" / "behaviour"
    shutil.rmtree(shared, ignore_errors=True)
    if gate.BEHAVIOUR.exists():
        shutil.copytree(gate.BEHAVIOUR.parent, shared)
