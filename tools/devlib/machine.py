"""What the machine must have: a compiler, Python with its headers, libuv. Installs it where it may."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import json
import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

from .steps import Failure, answer, quiet, step

LIBUV_FLOOR = "1.44.2"
CA_BUNDLE = Path("/etc/ssl/certs/ca-certificates.crt")

_PROBE = """
import importlib.util, json, os, platform, sys, sysconfig
include = sysconfig.get_path("include")
print(json.dumps({
    "executable": os.path.realpath(getattr(sys, "_base_executable", None) or sys.executable),
    "implementation": platform.python_implementation(),
    "version": platform.python_version(),
    "free_threaded": bool(sysconfig.get_config_var("Py_GIL_DISABLED")),
    "headers": os.path.exists(os.path.join(include, "Python.h")),
    "venv": bool(importlib.util.find_spec("venv") and importlib.util.find_spec("ensurepip")),
}))
"""


@dataclasses.dataclass(frozen=True)
class Python:
    """An interpreter of the machine that we build for."""

    path: Path
    version: str
    headers: bool
    venv: bool

    @property
    def minor(self) -> str:
        return ".".join(self.version.split(".")[:2])

    @property
    def of_debian(self) -> bool:
        return self.path.parent == Path("/usr/bin") and shutil.which("apt-get") is not None


def _ask(candidate: str | Path) -> Python | None:
    """What an interpreter says of itself; None when it is none, or not a CPython of 3.11 or newer."""
    text = answer([candidate, "-I", "-c", _PROBE])
    if not text:
        return None
    told = json.loads(text)
    if told["implementation"] != "CPython" or told["free_threaded"]:
        return None
    if tuple(map(int, told["version"].split(".")[:2])) < (3, 11):
        return None
    return Python(Path(told["executable"]), told["version"], told["headers"], told["venv"])


def _candidates(wanted: str) -> Iterator[str | Path]:
    """Where an interpreter of a version such as 3.12 or 3.12.1 may be: our own, PATH, pyenv."""
    yield sys.executable
    minor = ".".join(wanted.split(".")[:2])
    for folder in os.get_exec_path():
        for name in (f"python{minor}", "python3"):
            if (Path(folder) / name).exists():
                yield Path(folder) / name
    root = answer(["pyenv", "root"])
    if root:
        yield from sorted(Path(root, "versions").glob(f"{wanted}*/bin/python{minor}"), reverse=True)


@functools.cache
def find_python(wanted: str | None) -> Python:
    """The interpreter for --python: a path, a version, or None for the one that runs tools/dev."""
    if wanted and "/" in wanted:
        found = _ask(wanted)
        if found is None:
            raise Failure(f"{wanted} is not a CPython of 3.11 or newer (with a GIL)")
        return found
    if wanted is None:
        found = _ask(sys.executable)
        if found:
            return found
        raise Failure("tools/dev must be run by CPython 3.11 or newer, or be told --python PATH")
    for candidate in _candidates(wanted):
        found = _ask(candidate)
        if found and (found.version == wanted or found.version.startswith(wanted + ".")):
            return found
    raise Failure(
        f"no CPython {wanted} on this machine (looked in PATH and pyenv); say --python PATH, or set up one of\n"
        f"Debian's with tools/dev python {'.'.join(wanted.split('.')[:2])}"
    )


def supported_pythons() -> Iterator[Python]:
    """One interpreter of each supported minor version that is on this machine."""
    for minor in range(11, 16):
        with contextlib.suppress(Failure):
            yield find_python(f"3.{minor}")


def has_libuv() -> bool:
    """Is there a libuv for the compiler, new enough?"""
    return answer(["pkg-config", "--exists", f"libuv >= {LIBUV_FLOOR}"]) is not None


def compiler() -> str | None:
    """The C++ compiler that Meson will find first."""
    for name in (os.environ.get("CXX", ""), "c++", "g++", "clang++"):
        if name and shutil.which(name.split()[0]):
            return name
    return None


def _missing(python: Python) -> list[tuple[str, str, str]]:
    """What is missing: (what, the package in Debian, what to install elsewhere)."""
    missing = []
    if not compiler():
        missing.append(("a C++20 compiler", "g++", "Fedora: dnf install gcc-c++; macOS: xcode-select --install"))
    if not shutil.which("nm"):
        missing.append(("nm", "binutils", "Fedora: dnf install binutils; macOS: xcode-select --install"))
    if not shutil.which("git"):
        missing.append(("git", "git", "Fedora: dnf install git; macOS: xcode-select --install"))
    if not python.headers:
        package = "python3-dev" if python.of_debian else ""
        missing.append((f"the headers of Python {python.version}", package, "Fedora: dnf install python3-devel"))
    if not python.venv:
        package = "python3-venv" if python.of_debian else ""
        missing.append((f"venv and ensurepip of Python {python.version}", package, "they belong to a full Python"))
    if Path("/etc/debian_version").exists() and not CA_BUNDLE.exists():
        missing.append(("the certificates that pip needs", "ca-certificates", ""))
    return missing


def may_install() -> bool:
    """Whether packages of Debian can be installed by us."""
    return os.geteuid() == 0 and shutil.which("apt-get") is not None


def _apt_install(packages: list[str]) -> None:
    step(f"apt-get install {' '.join(packages)}")
    noninteractive = {"DEBIAN_FRONTEND": "noninteractive"}
    wait = ["-o", "DPkg::Lock::Timeout=300"]
    quiet(["apt-get", *wait, "-q", "update"], "apt", what="apt-get update", env=noninteractive)
    quiet(
        ["apt-get", *wait, "-q", "install", "-y", "--no-install-recommends", *packages],
        "apt",
        what="apt-get install",
        env=noninteractive,
    )


@contextlib.contextmanager
def _no_services() -> Iterator[None]:
    """Keeps Debian's packages from starting what they bring: their scripts ask this program before they do."""
    policy = Path("/usr/sbin/policy-rc.d")
    if policy.exists():  # the machine has a policy of its own; that of containers is the same
        yield
        return
    policy.write_text("#!/bin/sh\nexit 101\n")
    policy.chmod(0o755)
    try:
        yield
    finally:
        policy.unlink(missing_ok=True)


def install_packages(what: str, packages: list[str]) -> None:
    """Installs packages of Debian, and leaves no system service of theirs running, now or after the next boot."""
    if not may_install():
        raise Failure(f"missing: {what}. Debian/Ubuntu: apt install {' '.join(packages)}")
    with _no_services():
        _apt_install(packages)
    if Path("/run/systemd/system").exists():
        for package in packages:
            answer(["systemctl", "disable", "--now", package])


def prepare(python: Python) -> Python:
    """Installs what is missing where it may (root, apt-get), else says it, a line each; asks the interpreter anew."""
    missing = _missing(python)
    packages = [package for _, package, _ in missing]
    if not has_libuv():
        # No reason to give up: where it cannot be installed, our own copy is built in.
        packages += ["libuv1-dev", "pkg-config"]
    if not packages:
        return python
    if may_install() and all(packages):
        _apt_install(packages)
        again = _ask(python.path)
        if again is None:
            raise Failure(f"{python.path} does not run any more")
        missing = _missing(again)
        if not missing:
            return again
    lines = []
    for what, package, elsewhere in missing:
        ways = ([f"Debian/Ubuntu: apt install {package}"] if package else []) + ([elsewhere] if elsewhere else [])
        lines.append(f"missing: {what}. {'; '.join(ways)}")
    raise Failure("\n".join(lines))
