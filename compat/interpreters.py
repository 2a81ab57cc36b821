# SPDX-License-Identifier: MIT
"""Finds the Python to test, and asks it what it has: its tests, and the loop."""

from __future__ import annotations

import dataclasses
import glob
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent

# Asked with `-c` in an empty directory, so that no source tree is mistaken for an installed package.
_QUESTIONS = """
import importlib, json, os, sys
answer = {"version": list(sys.version_info[:3]), "modules": [], "loop": "", "missing": ""}
try:
    import test.test_asyncio as tests
    names = os.listdir(os.path.dirname(tests.__file__))
    answer["modules"] = sorted(n[:-3] for n in names if n.startswith("test_") and n.endswith(".py"))
except ImportError:
    pass
try:
    loop = importlib.import_module(sys.argv[1])
    answer["loop"] = getattr(loop, "__version__", "%d.%d.%d" % sys.version_info[:3])
except Exception as exc:
    answer["missing"] = "%s: %s" % (type(exc).__name__, exc)
print(json.dumps(answer))
"""


@dataclasses.dataclass
class Interpreter:
    """A Python and what it has. `missing` is why the loop cannot be imported, or empty."""

    path: str
    version: tuple[int, int, int]
    modules: list[str]
    loop: str
    missing: str

    @property
    def minor(self) -> str:
        """As in 3.13."""
        return f"{self.version[0]}.{self.version[1]}"

    @property
    def full(self) -> str:
        """As in 3.13.0."""
        return ".".join(map(str, self.version))


def clean_environment() -> dict[str, str]:
    """Our environment without what would put the tests' Python into another mode."""
    unset = {"PYTHONASYNCIODEBUG", "PYTHONDEVMODE", "PYTHONWARNINGS", "PYTHONSTARTUP", "UVPY_COMPAT_LOOP"}
    return {name: value for name, value in os.environ.items() if name not in unset}


def ask(path: str, loop: str) -> Interpreter | None:
    """What the Python at `path` has, or None where it is not a Python that runs."""
    with tempfile.TemporaryDirectory(prefix="compat-") as empty:
        try:
            done = subprocess.run(
                [path, "-c", _QUESTIONS, loop],
                cwd=empty,
                env=clean_environment(),
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=600,  # an editable install may build on import
                check=True,
            )
            answer = json.loads(done.stdout.splitlines()[-1])
        except (OSError, subprocess.SubprocessError, ValueError, IndexError):
            return None
    answer["version"] = tuple(answer["version"])
    return Interpreter(path=path, **answer)


def candidates(minor: str) -> list[str]:
    """Where a Python of this minor version may be: environments of this work tree, PATH, pyenv."""
    found = sorted(glob.glob(str(REPOSITORY / ".work" / "*" / "bin" / f"python{minor}")))
    found += sorted(glob.glob(str(REPOSITORY / ".work" / "*" / "*" / "bin" / f"python{minor}")))
    for folder in os.get_exec_path():
        found.append(os.path.join(folder, f"python{minor}"))
    root = os.environ.get("PYENV_ROOT") or os.path.join(os.path.expanduser("~"), ".pyenv")
    versions = glob.glob(os.path.join(root, "versions", f"{minor}.*", "bin", "python"))
    found += sorted(versions, key=lambda path: [int(n) for n in re.findall(r"\d+", path)], reverse=True)
    return [path for path in dict.fromkeys(found) if os.access(path, os.X_OK)]


def find(wanted: str, loop: str) -> Interpreter | None:
    """The Python named by a path or a minor version; of several, the first that has both tests and loop."""
    if not re.fullmatch(r"\d+\.\d+", wanted):
        # Absolute but not resolved: a venv's Python is a link, and it is run in other directories.
        return ask(os.path.abspath(shutil.which(wanted) or wanted), loop)
    best: Interpreter | None = None
    for path in candidates(wanted):
        found = ask(path, loop)
        if found is None or found.minor != wanted:
            continue
        if found.modules and not found.missing:
            return found
        if best is None or (bool(found.modules), not found.missing) > (bool(best.modules), not best.missing):
            best = found
    return best


def default_python() -> str:
    """The Python we run on ourselves."""
    return sys.executable
