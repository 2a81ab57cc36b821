"""`tools/dev fresh`: tools/dev on a machine where nothing was prepared.

A bare Debian bookworm with git and python3 (debootstrap, minbase) under .work/fresh, a clone of HEAD in
it, and ../shared/behaviour beside the clone if it is here. Of this machine it gets what leads to the
package servers: name resolution, certificates, the pip and apt configuration. It runs in mount and
process namespaces of its own, so nothing stays mounted or running.
"""

from __future__ import annotations

import os
import shlex
import shutil
from pathlib import Path

from . import gate
from .steps import ROOT, WORK, Command, Failure, quiet, relative, show, step

FOLDER = WORK / "fresh"
BASE = FOLDER / "base.tar"
TREE = FOLDER / "bookworm"
CLONE = "srv/uvpy"

# Taken over where it exists: names, certificates, and where packages come from.
_NETWORK = (
    "etc/resolv.conf",
    "etc/hosts",
    "etc/pip.conf",
    "etc/ssl/certs/ca-certificates.crt",
    "usr/local/share/ca-certificates",
)

_ENVIRONMENT = {
    "HOME": "/root",
    "TERM": "dumb",
    "LANG": "C.UTF-8",
    "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
    "CI": os.environ.get("CI", ""),
}


def run(commands: list[str], *, again: bool) -> int:
    if os.geteuid() != 0:
        raise Failure("tools/dev fresh needs root (debootstrap, chroot)")
    for tool in ("debootstrap", "unshare", "chroot", "tar"):
        if not shutil.which(tool):
            raise Failure(f"missing: {tool}. Debian/Ubuntu: apt install {tool}")
    if not (again and TREE.exists()):
        _lay_out()
    _clone()
    status = 0
    for command in commands:
        step(f"fresh: tools/dev {command}")
        status = _inside(f"cd /{CLONE} && exec tools/dev {command}") or status
        step(f"fresh: tools/dev {command} ended with {status}")
    return status


def _lay_out() -> None:
    FOLDER.mkdir(parents=True, exist_ok=True)
    if not BASE.exists():
        step("fresh: debootstrap bookworm (a minute)")
        shutil.rmtree(TREE, ignore_errors=True)
        bootstrap: Command = ["debootstrap", "--variant=minbase", "--include=git,python3", "bookworm", TREE]
        quiet(bootstrap, "fresh", what="debootstrap")
        quiet(["tar", "-C", TREE, "-cf", BASE, "."], "fresh", what="keeping the base system")
    step("fresh: unpack the base system")
    shutil.rmtree(TREE, ignore_errors=True)
    TREE.mkdir()
    quiet(["tar", "-C", TREE, "-xf", BASE], "fresh", what="unpacking the base system")
    for name in _NETWORK:
        source, target = Path("/", name), TREE / name
        if source.is_dir():
            shutil.copytree(source, target, dirs_exist_ok=True)
        elif source.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            target.unlink(missing_ok=True)
            shutil.copyfile(source, target)


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


def _inside(command: str) -> int:
    """Runs a shell command in the bare system."""
    clean = "env -i " + shlex.join(f"{name}={value}" for name, value in _ENVIRONMENT.items())
    script = "; ".join(
        [
            "set -e",
            *(f"mount --rbind /{name} {shlex.quote(str(TREE / name))}" for name in ("dev", "sys")),
            f"mount -t proc proc {shlex.quote(str(TREE / 'proc'))}",
            f"exec {clean} chroot {shlex.quote(str(TREE))} /bin/sh -c {shlex.quote(command)}",
        ]
    )
    return show(["unshare", "--mount", "--pid", "--fork", "--kill-child", "sh", "-c", script])
