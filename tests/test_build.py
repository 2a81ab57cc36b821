"""The build: what the module exports, that wheel, sdist and editable install work, and what a missing thing says.

The tests marked slow compile the extension; the others look at the build that is imported. Nothing here needs the
network: the build tools are those of the environment that runs the tests.

SPDX-License-Identifier: MIT
"""

from __future__ import annotations

import importlib.machinery
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import venv
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import uvpy
from uvpy import _core

ROOT = Path(__file__).resolve().parents[1]

# Without optimisation the extension compiles in a fraction of the time.
QUICK = ["-Csetup-args=-Doptimization=0"]


@pytest.fixture(autouse=True)
def clean() -> None:
    """In place of the fixture of this name that all tests share: no loop runs here, and a compilation takes longer
    than its watchdog waits.
    """


def output(*command: str | Path, cwd: Path | None = None, env: dict[str, str] | None = None) -> str:
    done = run(*command, cwd=cwd, env=env)
    assert done.returncode == 0, done.stdout
    return done.stdout


def run(
    *command: str | Path, cwd: Path | None = None, env: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    ours = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "UVPY_SITE", "LD_PRELOAD")}
    return subprocess.run(
        [str(c) for c in command],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        stdin=subprocess.DEVNULL,
        text=True,
        cwd=cwd,
        env={**ours, **(env or {})},
        check=False,
        timeout=600,
    )


# ---- the module that is imported


def symbols(module: str, *options: str) -> set[str]:
    if sys.platform == "darwin":
        options = ("-g", "-U") if "--defined-only" in options else ("-g", "-u")
    else:
        options = ("-D", *options)
    lines = output("nm", *options, module).splitlines()
    return {line.split()[-1].partition("@")[0].removeprefix("_" if sys.platform == "darwin" else "") for line in lines}


@pytest.fixture(scope="module")
def nm() -> None:
    if shutil.which("nm") is None:
        pytest.skip("needs nm (Debian/Ubuntu: apt install binutils)")


@pytest.mark.usefixtures("nm")
def test_the_module_exports_its_entry_and_nothing_else() -> None:
    exported = symbols(_core.__file__, "--defined-only")
    # What the sanitizers' instrumentation adds is not ours.
    assert {name for name in exported if not name.startswith(("__asan", "__ubsan", "__odr_asan"))} == {"PyInit__core"}


@pytest.mark.usefixtures("nm")
@pytest.mark.skipif(os.environ.get("UVPY_EXPECT_LIBUV") != "bundled", reason="for the build with libuv inside")
def test_a_libuv_inside_is_whole_and_hidden() -> None:
    assert not [name for name in symbols(_core.__file__, "--undefined-only") if name.startswith("uv_")]
    assert not [name for name in symbols(_core.__file__, "--defined-only") if name.startswith("uv_")]
    wrap = (ROOT / "subprojects" / "libuv.wrap").read_text()
    pinned = re.search(r"^directory = libuv-v(.+)$", wrap, re.MULTILINE)
    assert pinned is not None
    assert uvpy.libuv_version == pinned[1]


# ---- wheel, sdist, editable install


@pytest.fixture(scope="session")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the source tree as it would be committed now, in a git repository of its own."""
    copy = tmp_path_factory.mktemp("source") / "uvpy"
    names = output("git", "-C", ROOT, "ls-files", "-z", "--cached", "--others", "--exclude-standard").split("\0")
    for name in filter(None, names):
        if (ROOT / name).is_file() and not name.startswith(("tests/", "compat/", "tools/")):
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, copy / name)
    git = ["git", "-C", copy, "-c", "user.name=test", "-c", "user.email=test@localhost"]
    output("git", "init", "-q", copy)
    output(*git, "add", "-A")
    output(*git, "commit", "-q", "-m", "as it is now")
    return copy


@pytest.fixture
def fresh(tmp_path: Path) -> Iterator[Path]:
    """The python of an environment that sees our build tools, but neither this tree nor the build under test."""
    folder = tmp_path / "venv"
    venv.create(folder, with_pip=False, symlinks=True)
    paths = {"base": str(folder), "platbase": str(folder)}
    site = Path(sysconfig.get_path("purelib", "venv", paths))
    # A path in a .pth file is searched last, and .pth files there are not read: tools/dev's finder stays out.
    (site / "build-tools.pth").write_text(sysconfig.get_path("purelib") + "\n")
    yield folder / "bin" / "python"
    shutil.rmtree(folder)


@pytest.fixture(scope="session")
def wheel(tree: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel that the tree gives, by way of its sdist."""
    folder = tmp_path_factory.mktemp("dist")
    build = "import mesonpy, sys; print(mesonpy.build_sdist(sys.argv[1]))"
    output(sys.executable, "-c", build, folder, cwd=tree, env=tools())
    (sdist,) = folder.glob("uvpy_loop-*.tar.gz")
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {"meson.build", "pyproject.toml", "LICENSE", "csrc/module.cpp", "subprojects/libuv.wrap"} <= names
    output(*pip("wheel"), "--no-deps", "-w", folder, *QUICK, sdist, cwd=folder, env=tools())
    (wheel,) = folder.glob("uvpy_loop-*.whl")
    return wheel


def tools() -> dict[str, str]:
    """The environment in which Meson and Ninja of this Python's environment are found."""
    path = os.pathsep.join([sysconfig.get_path("scripts"), os.environ.get("PATH", os.defpath)])
    return {"PATH": path, "PIP_DISABLE_PIP_VERSION_CHECK": "1"}


def pip(command: str, python: Path = Path(sys.executable)) -> list[str | Path]:
    return [sys.executable, "-m", "pip", "--python", python, command, "--no-build-isolation", "--no-index"]


@pytest.mark.slow
def test_the_wheel_holds_the_package_only(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        (metadata,) = [archive.read(name).decode() for name in names if name.endswith("METADATA")]
    suffix = importlib.machinery.EXTENSION_SUFFIXES[0]
    package = {name for name in names if ".dist-info/" not in name}
    ours = {str(path.relative_to(ROOT)) for path in (ROOT / "uvpy").rglob("*") if path.suffix in PACKAGED}
    assert package == ours | {f"uvpy/_core{suffix}"}
    assert "License-Expression: MIT" in metadata
    assert "Requires-Python: >=3.11" in metadata
    assert f"\nVersion: {uvpy.__version__}\n" in metadata


PACKAGED = (".py", ".pyi", ".typed", ".h")
PROGRAM = """
import asyncio, uvpy
async def main():
    await asyncio.sleep(0)
    return type(asyncio.get_running_loop()).__module__
assert uvpy.run(main()).startswith("uvpy"), "another loop ran"
import os
assert os.listdir(uvpy.get_include()) == ["uvpy.h"]
print(uvpy.__file__)
"""


@pytest.mark.slow
def test_the_wheel_runs_outside_the_tree(wheel: Path, fresh: Path, tmp_path: Path) -> None:
    output(*pip("install", fresh), wheel)
    where = output(fresh, "-c", PROGRAM, cwd=tmp_path)
    assert where.startswith(str(fresh.parents[1]))


@pytest.mark.slow
def test_an_editable_install_rebuilds_on_import(tree: Path, fresh: Path, tmp_path: Path) -> None:
    copy = tmp_path / "editable"
    shutil.copytree(tree, copy)
    output(*pip("install", fresh), "-e", copy, *QUICK, env=tools())
    show = "import uvpy; print(uvpy.__version__, uvpy.__file__)"
    assert output(fresh, "-c", show, cwd=tmp_path, env=tools()).split() == [
        uvpy.__version__,
        str(copy / "uvpy" / "__init__.py"),
    ]
    assert output(fresh, "-c", "import uvpy; print(uvpy.get_include())", cwd=tmp_path, env=tools()).split() == [
        str(copy / "uvpy" / "include")
    ]
    module = copy / "csrc" / "module.cpp"
    module.write_text(module.read_text().replace('"__version__", UVPY_VERSION', '"__version__", "99.9.9"'))
    assert output(fresh, "-c", show, cwd=tmp_path, env=tools()).split()[0] == "99.9.9"


# ---- what a missing thing says


def configure(tree: Path, folder: Path, *options: str, env: dict[str, str] | None = None) -> str:
    """Meson's error line; the configuration must fail."""
    meson = Path(sysconfig.get_path("scripts"), "meson")
    done = run(meson, "setup", folder / "build", tree, *options, env={**tools(), **(env or {})})
    assert done.returncode != 0
    (line,) = [line for line in done.stdout.splitlines() if "ERROR:" in line]
    return line


def test_windows_is_refused(tree: Path, tmp_path: Path) -> None:
    cross = tmp_path / "windows.ini"
    machine = "system = 'windows'\ncpu_family = 'x86_64'\ncpu = 'x86_64'\nendian = 'little'\n"
    cross.write_text(f"[host_machine]\n{machine}")
    assert "does not support Windows" in configure(tree, tmp_path, "--cross-file", str(cross))


def test_a_missing_compiler_is_named(tree: Path, tmp_path: Path) -> None:
    line = configure(tree, tmp_path, env={"PATH": str(tmp_path), "CXX": ""})
    assert all(word in line for word in ("C++ compiler", "apt install g++", "dnf install gcc-c++", "macOS"))


def test_a_missing_libuv_is_named(tree: Path, tmp_path: Path) -> None:
    nothing = {"PKG_CONFIG_LIBDIR": str(tmp_path), "PKG_CONFIG_PATH": "", "CMAKE_PREFIX_PATH": ""}
    native = tmp_path / "native.ini"
    native.write_text("[binaries]\ncmake = 'no-cmake'\n")
    options = ["--wrap-mode=nodownload", "--native-file", str(native)]
    line = configure(tree, tmp_path, *options, env=nothing)
    assert all(word in line for word in ("libuv 1.44.2", "libuv1-dev", "libuv-devel", "brew install libuv"))


def test_missing_headers_are_named(tree: Path, tmp_path: Path) -> None:
    """A Python whose headers are not there: the environment's own, told to look elsewhere."""
    liar = tmp_path / "python3"
    liar.write_text(f"""#!/bin/sh
exec {sys.executable} -c '
import sys, sysconfig
nowhere = "{tmp_path}"
sysconfig.get_config_vars().update(INCLUDEPY=nowhere, CONFINCLUDEPY=nowhere, LIBPC=nowhere)
real = sysconfig.get_paths
def get_paths(*args, **kwargs):
    return {{**real(*args, **kwargs), "include": nowhere, "platinclude": nowhere}}
sysconfig.get_paths = get_paths
sys.argv = sys.argv[1:]
exec(open(sys.argv[0]).read())
' "$@"
""")
    liar.chmod(0o755)
    native = tmp_path / "native.ini"
    native.write_text(f"[binaries]\npython = '{liar}'\n")
    options = ["--wrap-mode=nodownload", "--native-file", str(native)]
    line = configure(tree, tmp_path, *options, env={"PKG_CONFIG_LIBDIR": str(tmp_path)})
    assert all(word in line for word in ("Python.h", "python3-dev", "python3-devel", "macOS"))
