"""A bare Debian system in a folder: laying it out with debootstrap, and running a command in it.

fresh.py and pythons.py are built on it. Whatever runs in a system has a mount namespace of its own, so
that nothing stays mounted and what is mounted there cannot be reached from outside: a folder of ours may
be seen inside, and the system's tree be removed at any time without harm to it. A tree gets from this
machine what leads to the package servers: name resolution, certificates, the pip configuration; packages
come from where the machine's own apt has them.
"""

from __future__ import annotations

import os
import shlex
import shutil
from collections.abc import Sequence
from pathlib import Path

from .machine import install_packages, may_install
from .steps import Command, Failure, answer, quiet, remove_tree

# It knows any suite by what Debian's unstable is; a debootstrap older than a suite does not know it by name.
SCRIPT = Path("/usr/share/debootstrap/scripts/sid")

_TOOLS = {
    "debootstrap": "debootstrap",
    "tar": "tar",
    "mount": "mount",
    "unshare": "util-linux",
    "chroot": "coreutils",
}

# Taken over where it exists: names, certificates, and where packages come from.
_NETWORK = (
    "etc/resolv.conf",
    "etc/hosts",
    "etc/pip.conf",
    "etc/xdg/pip",
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

# What a user says to our tools by variables is said to them inside, too.
_PASSED_ON = ("UVPY_", "PYTEST_", "PYTHONASYNCIODEBUG")


def require(what: str) -> None:
    """Installs the tools that are missing for it, where it may; raises a Failure that says all that stays missing."""
    missing = []
    if os.geteuid() != 0:
        missing.append(f"{what} needs root (debootstrap, mount, chroot)")
    absent = {tool: package for tool, package in _TOOLS.items() if not shutil.which(tool)}
    if absent and may_install():
        install_packages(", ".join(absent), list(absent.values()))
        absent = {tool: package for tool, package in absent.items() if not shutil.which(tool)}
    missing += [f"missing: {tool}. Debian/Ubuntu: apt install {package}" for tool, package in absent.items()]
    if not missing and answer(["unshare", "--mount", "true"]) is None:
        missing.append(f"{what} needs mount namespaces (CAP_SYS_ADMIN), which this machine or container refuses")
    if missing:
        raise Failure("\n".join(missing))


def mirror() -> str:
    """The archive that the machine's own apt takes Debian's packages from."""
    form = "$(LABEL)|$(COMPONENT)|$(REPO_URI)"
    told = answer(["apt-get", "indextargets", "--format", form, "Created-By: Packages"]) or ""
    for line in told.splitlines():
        label, component, uri = line.split("|", 2)
        if (label, component) == ("Debian", "main"):
            return uri
    raise Failure("apt's sources on this machine name no Debian archive, or none it has an index of (apt-get update)")


def lay_out(tree: Path, suite: str, packages: Sequence[str]) -> None:
    """Makes a minimal system with these packages and what they need."""
    part = tree.with_name(f"{tree.name}.part")
    remove_tree(part)
    part.parent.mkdir(parents=True, exist_ok=True)
    options = ["--variant=minbase", f"--include={','.join(packages)}"]
    quiet(["debootstrap", *options, suite, part, mirror(), SCRIPT], f"debootstrap-{suite}", what="debootstrap")
    remove_tree(tree)
    part.rename(tree)


def connect(tree: Path) -> None:
    """Gives a system what this machine has to reach the package servers."""
    for name in _NETWORK:
        source, target = Path("/", name), tree / name
        if source.is_dir():
            shutil.copytree(source, target, dirs_exist_ok=True)
        elif source.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            target.unlink(missing_ok=True)
            shutil.copyfile(source, target)


def inside(
    tree: Path, command: Command, *, folder: Path, shared: Sequence[Path] = (), own_processes: bool = False
) -> Command:
    """The command that runs one in a system, in a folder there.

    Folders of this machine that are shared are seen inside under the same path. With processes of its own,
    whatever the command leaves running is ended with it.
    """
    lines = ["set -e"]
    for name in ("dev", "sys") if own_processes else ("dev", "sys", "proc"):
        lines.append(f"mount --rbind /{name} {_quoted(tree / name)}")
    if own_processes:
        lines.append(f"mount -t proc proc {_quoted(tree / 'proc')}")
    for path in shared:
        target = tree / path.relative_to("/")
        # Not the mounts below it: the tree itself may lie there.
        lines += [f"mkdir -p {_quoted(target)}", f"mount --bind {_quoted(path)} {_quoted(target)}"]
    passed_on = {name: value for name, value in os.environ.items() if name.startswith(_PASSED_ON)}
    clean = [f"{name}={value}" for name, value in {**_ENVIRONMENT, **passed_on}.items()]
    run = ["env", "-i", *clean, "chroot", tree, "/usr/bin/env", "-C", folder, *command]
    lines.append(f"exec {shlex.join(map(str, run))}")
    processes = ["--pid", "--fork", "--kill-child"] if own_processes else []
    return ["unshare", "--mount", *processes, "sh", "-c", "\n".join(lines)]


def _quoted(path: Path) -> str:
    return shlex.quote(str(path))
