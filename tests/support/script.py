"""Scripts in a fresh interpreter: what a test must not do in its own process."""

import os
import subprocess
import sys

LEFT_OUT = ("UVPY_GIL", "PYTHONASYNCIODEBUG", "PYTHONDEVMODE", "PYTHONWARNINGS")


def environment(**env):
    """The environment, without what would change the script's loop."""
    return {**{k: v for k, v in os.environ.items() if k not in LEFT_OUT}, **env}


def run_python(*args, timeout=30, env=None, **kwargs):
    """Run the interpreter with these arguments; the CompletedProcess with its output as text."""
    # The folder of the test run is not to be imported from; its uvpy/ has no compiled part. A script's own folder is.
    safe = () if any(a.endswith(".py") for a in args) else ("-P",)
    return subprocess.run(
        [sys.executable, *safe, *args],
        env=environment(**(env or {})),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=timeout,
        **kwargs,
    )


def output(body, *args, **kwargs):
    """What a script prints; it must end well and say nothing on standard error."""
    done = run_python("-c", body, *args, **kwargs)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout.strip()
