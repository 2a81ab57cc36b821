"""The extension of tests/core/guest, built as users build theirs and loaded."""

import os
import shutil
import subprocess
import sys
from importlib.machinery import ExtensionFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCES = ROOT / "tests" / "core" / "guest"
SETUP = """
from setuptools import Extension, setup
import os

flags = ["-Wall", "-Wextra", "-Werror", "-Wno-unused-function"]
include = [os.environ["UVPY_INCLUDE"], *filter(None, [os.environ.get("UV_INCLUDE")])]
setup(
    name="guest",
    ext_modules=[
        Extension("guest", ["guest.c"], include_dirs=include, extra_compile_args=[*flags, "-std=c11", "-pthread"]),
        Extension("plus", ["plus.cpp"], include_dirs=include, extra_compile_args=[*flags, "-std=c++17"]),
    ],
)
"""


def build(folder, uv_include=""):
    """Compile it in a folder, with another uv.h than the system's if one is given; the path of the module."""
    import uvpy

    for source in SOURCES.iterdir():
        shutil.copy(source, folder)
    (folder / "setup.py").write_text(SETUP)
    # A uvpy that is built for a sanitizer cannot be imported there: the compiler runs without.
    env = {k: v for k, v in os.environ.items() if k not in ("LD_PRELOAD", "PYTHONWARNINGS")}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "setup.py", "-q", "build_ext", "--inplace"],
        cwd=folder,
        env={**env, "UV_INCLUDE": uv_include, "UVPY_INCLUDE": uvpy.get_include()},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    (path,) = folder.glob("guest.*.so")
    return path


def load(path):
    """A fresh module."""
    loader = ExtensionFileLoader("guest", os.fspath(path))
    module = module_from_spec(spec_from_loader("guest", loader))
    loader.exec_module(module)
    return module


def own_headers():
    """The uv.h of a libuv that tools/dev has fetched, if any: another version than the system's."""
    return next((os.fspath(path) for path in sorted((ROOT / "subprojects").glob("libuv-v*/include"))), "")


def build_somehow(folder):
    """With the uv.h that is there; a skip where there is none, or no compiler."""
    pytest.importorskip("setuptools")
    if shutil.which(os.environ.get("CC", "cc").split()[0]) is None:
        pytest.skip("no C compiler")
    found = Path("/usr/include/uv.h").exists() or Path("/usr/local/include/uv.h").exists()
    if not found and not own_headers():
        pytest.skip("no uv.h (Debian/Ubuntu: apt install libuv1-dev)")
    return build(folder, "" if found else own_headers())
