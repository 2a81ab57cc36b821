"""The recipes of compat/suites: what each suite is, and how its source comes into the work folder.

A recipe names a pinned release. Its source is the release's sdist as pip downloads it, or Debian's source package
where the sdist has no tests, or `workload`: a folder of ours in compat/suites/workloads. Addresses of registries
stand in no file: pip and apt know theirs.
"""

from __future__ import annotations

import dataclasses
import fnmatch
import shutil
import socket
import tarfile
import tomllib
from pathlib import Path

from .builds import Env
from .machine import install_packages
from .steps import ROOT, WORK, Command, Failure, answer, quiet, step

RECIPES = ROOT / "compat" / "suites"
FOLDER = WORK / "suites"
SETUP = "uvpy_suite_setup"
"""The module in a tree that holds the recipe's `setup`."""


def _has_ipv6() -> bool:
    """Whether this machine's localhost has an IPv6 address that one can listen at."""
    try:
        found = socket.getaddrinfo("localhost", 0, socket.AF_INET6, socket.SOCK_STREAM)
        with socket.socket(socket.AF_INET6) as sock:
            sock.bind(found[0][4])
    except OSError:
        return False
    return True


MACHINE = {"ipv6": _has_ipv6}


@dataclasses.dataclass(frozen=True)
class Case:
    """Tests that are treated apart, by a part of their id, and why."""

    tests: str
    why: str
    unless: str = ""
    """Only where the machine lacks this: a key of MACHINE."""

    @property
    def applies(self) -> bool:
        return not self.unless or not MACHINE[self.unless]()


@dataclasses.dataclass(frozen=True)
class Recipe:
    """A suite; the fields are those of its file, and README.md beside it says what they mean."""

    name: str
    what: str
    version: str
    source: str
    python: str
    install: tuple[str, ...]
    take: tuple[str, ...]
    arguments: tuple[str, ...]
    paths: tuple[str, ...]
    slice: tuple[str, ...]
    environment: dict[str, str]
    services: tuple[str, ...]
    setup: str
    limit: float
    test_limit: float
    left_out: tuple[Case, ...]
    foreign: tuple[Case, ...]
    excused: tuple[Case, ...]

    @classmethod
    def load(cls, path: Path) -> Recipe:
        with path.open("rb") as file:
            data = tomllib.load(file)

        def exceptions(key: str) -> tuple[Case, ...]:
            found = (Case(**entry) for entry in data.pop(key, []))
            return tuple(case for case in found if case.applies)

        left_out, foreign, excused = exceptions("left_out"), exceptions("foreign"), exceptions("excused")
        recipe = cls(
            name=path.stem,
            what=data.pop("what"),
            version=data.pop("version"),
            source=data.pop("source"),
            python=data.pop("python", "3.13"),
            install=tuple(data.pop("install")),
            take=tuple(data.pop("take", ())),
            arguments=tuple(data.pop("arguments", ())),
            paths=tuple(data.pop("paths")),
            slice=tuple(data.pop("slice", ())),
            environment=data.pop("environment", {}),
            services=tuple(data.pop("services", ())),
            setup=data.pop("setup", ""),
            limit=data.pop("limit", 900.0),
            test_limit=data.pop("test_limit", 60.0),
            left_out=left_out,
            foreign=foreign,
            excused=excused,
        )
        if data:
            raise Failure(f"{path.name}: unknown {', '.join(data)}")
        return recipe

    @property
    def folder(self) -> Path:
        return FOLDER / self.name

    @property
    def tree(self) -> Path:
        """Where its tests are run: what `take` names, without the library's own sources."""
        return self.folder / "tree"

    def reason(self, entries: tuple[Case, ...], test: str) -> str | None:
        """Why a test is treated apart, if it is."""
        return next((entry.why for entry in entries if matches(entry.tests, test)), None)


def matches(part: str, test: str) -> bool:
    """Whether `tests` of a recipe means this test; as in compat/suites/inject, which cannot import us."""
    return part in test or fnmatch.fnmatchcase(test, "*" + part.replace("[", "[[]") + "*")


def recipes() -> dict[str, Recipe]:
    """All recipes, by name."""
    return {path.stem: Recipe.load(path) for path in sorted(RECIPES.glob("*.toml"))}


def fetch(recipe: Recipe, env: Env) -> None:
    """Brings the suite's tests into its tree."""
    stamp = recipe.folder / "source.txt"
    wanted = repr((recipe.source, recipe.version, recipe.take, recipe.setup))
    workload = recipe.source == "workload"
    if not workload and stamp.exists() and stamp.read_text() == wanted and recipe.tree.exists():
        return
    shutil.rmtree(recipe.tree, ignore_errors=True)
    if workload:
        shutil.copytree(RECIPES / "workloads" / recipe.name, recipe.tree)
        _settle(recipe)
        return
    download = recipe.folder / "download"
    shutil.rmtree(download, ignore_errors=True)
    download.mkdir(parents=True)
    step(f"{recipe.name} {recipe.version}: fetch its source")
    if recipe.source == "sdist":
        _fetch_sdist(recipe, env, download)
    elif recipe.source.startswith("debian "):
        _fetch_debian(recipe, download)
    else:
        raise Failure(f"{recipe.name}: no source of the kind {recipe.source!r}")
    archives = [path for path in download.iterdir() if ".tar." in path.name]
    if len(archives) != 1:
        raise Failure(f"{recipe.name}: expected one archive, found {[path.name for path in archives]}")
    with tarfile.open(archives[0]) as archive:
        archive.extractall(download / "unpacked", filter="data")
    (root,) = (download / "unpacked").iterdir()
    for name in recipe.take:
        for path in sorted(root.glob(name)):
            target = recipe.tree / path.relative_to(root)
            target.parent.mkdir(parents=True, exist_ok=True)
            (shutil.copytree if path.is_dir() else shutil.copyfile)(path, target)
    _settle(recipe)
    shutil.rmtree(download)
    stamp.write_text(wanted)


def _settle(recipe: Recipe) -> None:
    """Gives the tree a configuration of pytest if it brought none: else pytest would find ours above it."""
    recipe.tree.mkdir(exist_ok=True)
    if not any((recipe.tree / name).exists() for name in ("pytest.ini", "pyproject.toml", "setup.cfg", "tox.ini")):
        (recipe.tree / "pytest.ini").write_text("[pytest]\n")
    (recipe.tree / f"{SETUP}.py").write_text(recipe.setup)


def _fetch_sdist(recipe: Recipe, env: Env, download: Path) -> None:
    package = recipe.name.partition("-")[0]
    pip: Command = [env.python, "-m", "pip", "download", "-q", "--no-deps", "--no-binary", package, "-d", download]
    quiet([*pip, f"{package}=={recipe.version}"], f"suite-{recipe.name}", what="pip download")


def _fetch_debian(recipe: Recipe, download: Path) -> None:
    """`debian RELEASE PACKAGE VERSION`: the upstream archive of a source package, from the mirror that apt uses."""
    _, release, package, version = recipe.source.split()
    mirrors = answer(
        ["apt-get", "indextargets", "--format", "$(ORIGIN) $(CODENAME) $(REPO_URI)", "Created-By: Packages"]
    )
    found = [line.split() for line in (mirrors or "").splitlines() if line.startswith("Debian ")]
    mirror = next((words[2] for words in found if "-" not in words[1]), None)
    keyring = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
    if mirror is None or not keyring.exists():
        raise Failure(f"{recipe.name}: its tests are in Debian's source package only, and this is no Debian")
    apt = FOLDER / "apt"
    for folder in ("lists/partial", "cache/archives/partial"):
        (apt / folder).mkdir(parents=True, exist_ok=True)
    sources = apt / f"{release}.list"
    sources.write_text(f"deb-src [signed-by={keyring}] {mirror} {release} main\n")
    options: Command = [
        *("-o", f"Dir::Etc::SourceList={sources}", "-o", "Dir::Etc::SourceParts=/dev/null"),
        *("-o", f"Dir::State::Lists={apt / 'lists'}", "-o", f"Dir::Cache={apt / 'cache'}"),
        *("-o", "APT::Get::List-Cleanup=0", "-o", "APT::Sandbox::User=root"),
    ]
    if shutil.which("dpkg-source") is None:
        install_packages("dpkg-source", ["dpkg-dev"])
    log = f"suite-{recipe.name}"
    quiet(["apt-get", *options, "-q", "update"], log, what="apt-get update")
    source: Command = ["source", "-q", "--download-only", "--tar-only", f"{package}={version}"]
    quiet(["apt-get", *options, *source], log, what="apt-get source", cwd=download)
