"""Defects that were found once and must not come back: those that crashed or spoilt a process. Each is a script
`defects_NAME.py KIND` of this folder, which prints "ok" last and ends with status 0, as the others here do.
"""

import os
import pathlib

import pytest

from support.script import run_python

HERE = pathlib.Path(__file__).parent
SCRIPTS = sorted(path.stem for path in HERE.glob("defects_*.py"))


@pytest.mark.parametrize("options", [(), ("-X", "dev")], ids=["plain", "dev"])
@pytest.mark.parametrize("name", SCRIPTS)
def test_script(kind, name, options):
    """In dev mode warnings may be printed: leaving things open is what some of them do."""
    done = run_python(*options, os.fspath(HERE / f"{name}.py"), kind)
    if done.stdout.startswith("skip: "):
        pytest.skip(done.stdout.removeprefix("skip: ").strip())
    assert done.returncode == 0, f"status {done.returncode}\n{done.stdout}\n{done.stderr}"
    assert done.stdout.splitlines()[-1] == "ok", done.stdout
    if options:
        assert "Fatal" not in done.stderr
    else:
        assert done.stderr == ""
