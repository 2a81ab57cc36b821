"""The linters, one function each. A check prints what it found and returns whether it was content."""

from __future__ import annotations

import concurrent.futures
import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

from . import builds
from .builds import Env
from .steps import ROOT, WORK, Command, answer, environment, show, step

PYTHON_FOLDERS = ("uvpy", "tests", "compat", "tools")
STUBTEST_ALLOWLIST = ROOT / "tests" / "typing" / "stubtest_allowlist.txt"
TYPED_USE = ROOT / "tests" / "typing" / "use.py"


def cpp_files() -> list[Path]:
    return sorted(path for path in (ROOT / "csrc").rglob("*") if path.suffix in (".cpp", ".h"))


def _c_files() -> list[Path]:
    """The C of the benchmarks."""
    return sorted((ROOT / "tools" / "bench" / "native").glob("*.[ch]"))


def _python_files() -> list[str]:
    return [*(name for name in PYTHON_FOLDERS if (ROOT / name).exists()), "tools/dev"]


def clang_format(env: Env) -> bool:
    files = [*cpp_files(), *_c_files()]
    return not files or show([env.bin / "clang-format", "--dry-run", "-Werror", *files]) == 0


def layers(env: Env) -> bool:
    return show([sys.executable, ROOT / "tools" / "layers.py"]) == 0


def ruff(env: Env) -> bool:
    checked = show([env.bin / "ruff", "check", "--quiet", *_python_files()]) == 0
    return show([env.bin / "ruff", "format", "--check", "--quiet", "--diff", *_python_files()]) == 0 and checked


def mypy(env: Env) -> bool:
    good = show([env.bin / "mypy"]) == 0
    stubtest: Command = [env.python, "-m", "mypy.stubtest", "uvpy", "--concise", "--mypy-config-file", "pyproject.toml"]
    if STUBTEST_ALLOWLIST.exists():
        stubtest += ["--allowlist", STUBTEST_ALLOWLIST]
    return show(stubtest, env=env.environment()) == 0 and good


def typed_use(env: Env) -> bool:
    if not TYPED_USE.exists():
        return True
    good = show([env.bin / "mypy", "--strict", TYPED_USE]) == 0
    # basedpyright is pyright with its own rules on top; pyproject.toml puts it into pyright's standard mode.
    pyright: Command = [env.bin / "basedpyright", "--level", "error", "--pythonpath", env.python, TYPED_USE]
    return show(pyright, env=env.environment()) == 0 and good


def clang_tidy(env: Env) -> bool:
    """Each source on its own, as many at once as there are cores; one that passed is not looked at again."""
    # The build whose assertions are on: they tell the analyzer what cannot be.
    database = WORK / "build" / env.key / builds.CHECKS.name
    commands = json.loads((database / "compile_commands.json").read_text())
    compiled = {(database / entry["file"]).resolve(): entry["command"] for entry in commands}
    version = answer([env.bin / "clang-tidy", "--version"])
    common = hashlib.sha256(repr((version, (ROOT / ".clang-tidy").read_bytes())).encode())
    for path in cpp_files():
        if path.suffix == ".h":
            common.update(path.read_bytes())
    stamps = WORK / "tidy"
    stamps.mkdir(parents=True, exist_ok=True)

    def check(path: Path) -> str:
        mine = common.copy()
        mine.update(path.read_bytes() + str(compiled[path]).encode())
        stamp = stamps / mine.hexdigest()
        if stamp.exists():
            return ""
        command: Command = [env.bin / "clang-tidy", "--quiet", "-p", database, path]
        done = subprocess.run(command, capture_output=True, env=environment(), cwd=ROOT)
        if done.returncode == 0 and not done.stdout.strip():
            stamp.touch()
            return ""
        return done.stdout.decode(errors="replace") or done.stderr.decode(errors="replace")

    sources = [path for path in cpp_files() if path in compiled]
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        found = [text for text in pool.map(check, sources) if text.strip()]
    sys.stdout.write("".join(found))
    return not found


CHECKS = {
    "clang-format": clang_format,
    "layers": layers,
    "ruff": ruff,
    "mypy and stubtest": mypy,
    "typed use": typed_use,
    "clang-tidy": clang_tidy,
}


def everything(env: Env) -> list[str]:
    """Runs all checks; the names of those that found something."""
    found = []
    for name, check in CHECKS.items():
        step(f"lint: {name}")
        if not check(env):
            found.append(name)
    return found


def report(found: list[str]) -> int:
    step(f"lint: {', '.join(found)} found something" if found else "lint: nothing found")
    return 1 if found else 0


def fix(env: Env) -> None:
    """Lets the formatters, and ruff's safe fixes, change the files."""
    if files := [*cpp_files(), *_c_files()]:
        show([env.bin / "clang-format", "-i", *files])
    show([env.bin / "ruff", "check", "--quiet", "--fix-only", *_python_files()])
    show([env.bin / "ruff", "format", "--quiet", *_python_files()])
