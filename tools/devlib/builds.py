"""Environments and builds, all under .work/: a venv for each interpreter, a build for each interpreter and variant.

    .work/venv/3.11.7/              the packages of pyproject.toml's groups
    .work/build/3.11.7/main/        Meson's folder of a variant
    .work/site/3.11.7/main/uvpy/    the package as it is imported: links to the sources and to the built module

The venv finds uvpy in .work/site, through a finder that a .pth file puts first: it wins over the current
directory (whose uvpy/ has no module), and UVPY_SITE in the environment picks another variant, for
subprocesses too. Python sources are the tree's own, so only C++ changes need a build.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import shutil
import tomllib
from pathlib import Path

from . import libuv
from .machine import Python, find_python, has_libuv, prepare
from .steps import ROOT, WORK, Command, Failure, answer, locked, quiet, relative, step

_FINDER = '''\
"""Written by tools/dev: makes `import uvpy` find the build in use, wherever Python is started."""
import os
import sys
from importlib.machinery import PathFinder

SITE = {site!r}


class Finder:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name == "uvpy" and path is None:
            return PathFinder.find_spec(name, [os.environ.get("UVPY_SITE") or SITE], target)
        return None


sys.meta_path.insert(0, Finder)
'''


@dataclasses.dataclass(frozen=True)
class Variant:
    """A way of building the extension."""

    name: str
    what: str
    options: tuple[str, ...] = ()
    bundled_libuv: bool = False


_SANITIZE = ("-Dbuildtype=debugoptimized", "-Doptimization=1", "-Ddebug_checks=true", "-Db_lundef=false")

MAIN = Variant("main", "release, as users get it, with warnings as errors")
CHECKS = Variant("checks", "with assertions and self-checks", ("-Ddebug_checks=true",))
STATIC = Variant("static", "libuv built in, static and hidden", bundled_libuv=True)
SANITIZED = Variant("sanitize", "AddressSanitizer and UBSan", (*_SANITIZE, "-Db_sanitize=address,undefined"))
VARIANTS = {v.name: v for v in (MAIN, CHECKS, STATIC, SANITIZED)}


def mutant(name: str) -> Variant:
    """The variant with a planted fault."""
    # Lightly optimised: there are many of them to compile, and speed is not what is tried.
    return Variant(f"mutant-{name}", f"with the planted fault {name}", ("-Doptimization=1", f"-Dmutant={name}"))


def groups() -> dict[str, list[str]]:
    """The dependency groups of pyproject.toml."""
    with (ROOT / "pyproject.toml").open("rb") as file:
        found: dict[str, list[str]] = tomllib.load(file)["dependency-groups"]
    return found


class Env:
    """The venv of an interpreter, and the builds for it."""

    def __init__(self, python: Python) -> None:
        self.base = prepare(python)
        self.key = self.base.version
        self.venv = WORK / "venv" / self.key
        self.bin = self.venv / "bin"
        self.python = self.bin / "python"

    @classmethod
    def of(cls, wanted: str | None) -> Env:
        return cls(find_python(wanted))

    def site(self, variant: Variant = MAIN) -> Path:
        return WORK / "site" / self.key / variant.name

    def environment(self, variant: Variant = MAIN) -> dict[str, str]:
        """The variables under which the venv's python imports this variant, and finds its tools."""
        path = f"{self.bin}{os.pathsep}{os.environ.get('PATH', os.defpath)}"
        return {"PATH": path, "UVPY_SITE": str(self.site(variant))}

    def install(self, *names: str) -> Env:
        """Makes the venv if need be and installs these dependency groups into it."""
        with locked(f"venv-{self.key}"):
            self._make()
            done_file = self.venv / "uvpy-groups.json"
            done: dict[str, str] = json.loads(done_file.read_text()) if done_file.exists() else {}
            known = groups()
            wanted = {name: hashlib.sha256(repr(known[name]).encode()).hexdigest() for name in names}
            todo = [name for name in names if done.get(name) != wanted[name]]
            if todo:
                requirements = sorted({r for name in todo for r in known[name]})
                step(f"venv {self.key}: pip install the packages of {', '.join(todo)}")
                pip: Command = [self.python, "-m", "pip", "install", "-q", "--prefer-binary"]
                quiet([*pip, *requirements], f"venv-{self.key}", what="pip install")
                done_file.write_text(json.dumps({**done, **{name: wanted[name] for name in todo}}))
        return self

    def try_install(self, name: str) -> Env:
        """Installs of a dependency group what there is a wheel of, each for itself; says once what there is not."""
        with locked(f"venv-{self.key}"):
            tried_file = self.venv / "uvpy-tried.json"
            tried: list[str] = json.loads(tried_file.read_text()) if tried_file.exists() else []
            wheels: Command = [self.python, "-m", "pip", "install", "-q", "--only-binary", ":all:"]
            for requirement in (r for r in groups()[name] if r not in tried):
                step(f"venv {self.key}: pip install {requirement}, if it can be")
                try:
                    quiet([*wheels, requirement], f"venv-{self.key}", what="pip install", shown=False)
                except Failure:
                    step(f"venv {self.key}: no wheel of {requirement} for this Python; it is done without")
                tried_file.write_text(json.dumps(tried := [*tried, requirement]))
        return self

    def _make(self) -> None:
        if self.python.exists() and answer([self.python, "-c", "import pip"]) is not None:
            made_by = answer([self.python, "-c", "import sys, os; print(os.path.realpath(sys._base_executable))"])
            if made_by == str(self.base.path):
                self._write_finder()
                return
        step(f"venv {self.key}: make it with {self.base.path}")
        shutil.rmtree(self.venv, ignore_errors=True)
        quiet([self.base.path, "-m", "venv", self.venv], f"venv-{self.key}", what="making the venv")
        self._write_finder()

    def _write_finder(self) -> None:
        packages = self.venv / "lib" / f"python{self.base.minor}" / "site-packages"
        _write(packages / "_uvpy_dev.py", _FINDER.format(site=str(self.site())))
        _write(packages / "uvpy_dev.pth", "import _uvpy_dev\n")

    def build(self, variant: Variant = MAIN) -> Env:
        """Brings the build of a variant up to date; quick when nothing changed."""
        self.install("build")
        with locked(f"build-{self.key}-{variant.name}"):
            self._build(variant)
        return self

    def _build(self, variant: Variant) -> None:
        folder = WORK / "build" / self.key / variant.name
        log = f"build-{self.key}-{variant.name}"
        env = self.environment(variant)
        options = ["--werror", "-Dbuildtype=release", *variant.options]
        if variant.bundled_libuv or not has_libuv():
            libuv.provide(self.python)
            options.append("-Dforce_fallback_for=libuv")
        stamp = folder / "uvpy-options.json"
        if not stamp.exists() or json.loads(stamp.read_text()) != options:
            step(f"build {self.key}/{variant.name}: configure ({variant.what})")
            shutil.rmtree(folder, ignore_errors=True)
            quiet([self.bin / "meson", "setup", folder, ROOT, *options], log, what="meson setup", env=env)
            stamp.write_text(json.dumps(options))
        step(f"build {self.key}/{variant.name}: compile")
        quiet([self.bin / "meson", "compile", "-C", folder], log, what="the compilation", env=env)
        modules = list(folder.glob("_core.*.so"))
        if len(modules) != 1:
            raise Failure(f"expected one _core module in {relative(folder)}, found {len(modules)}")
        self._lay_out(self.site(variant) / "uvpy", modules[0])

    @staticmethod
    def _lay_out(package: Path, module: Path) -> None:
        """Links the sources and the module into the package that is imported."""
        package.mkdir(parents=True, exist_ok=True)
        wanted = {path.name: path for path in (ROOT / "uvpy").iterdir() if path.suffix in (".py", ".pyi", ".typed")}
        wanted["py.typed"] = ROOT / "uvpy" / "py.typed"
        wanted["include"] = ROOT / "uvpy" / "include"
        wanted["_standin"] = ROOT / "uvpy" / "_standin"
        wanted[module.name] = module
        for path in package.iterdir():
            if path.is_symlink() and (path.name not in wanted or path.readlink() != wanted[path.name]):
                path.unlink()
        for name, target in wanted.items():
            if not (package / name).is_symlink():
                (package / name).symlink_to(target)


def _write(path: Path, text: str) -> None:
    """Writes a file unless it says so already (others may be reading it)."""
    if not path.exists() or path.read_text() != text:
        part = path.with_suffix(".part")
        part.write_text(text)
        part.replace(path)
