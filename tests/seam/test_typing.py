"""The types: what a user writes against uvpy passes the checkers, and what is wrong does not."""

import os
import pathlib
import subprocess
import sys

import pytest

pytestmark = pytest.mark.uvpy_only("about uvpy's types")

USE = pathlib.Path(__file__).parent.parent / "typing" / "use.py"


def test_the_package_is_marked_as_typed(kind):
    import uvpy

    assert (pathlib.Path(uvpy.__file__).parent / "py.typed").exists()


def test_mypy_accepts_typed_use(kind, tmp_path):
    pytest.importorskip("mypy")
    import uvpy

    package = pathlib.Path(uvpy.__file__).parent.parent
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "mypy",
            "--strict",
            "--warn-unused-ignores",
            "--follow-imports=silent",
            f"--cache-dir={tmp_path}",
            USE,
        ],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "MYPYPATH": str(package)},
        timeout=200,
    )
    assert done.returncode == 0, done.stdout + done.stderr
