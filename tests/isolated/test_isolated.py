"""What must not happen in the test's own process: ends of the interpreter, forks, crashes. Each is a script of
this folder.
"""

import os
import pathlib
import signal
import subprocess
import sys

import pytest

from support.script import environment, run_python

HERE = pathlib.Path(__file__).parent
SCRIPTS = sorted(path.stem for path in HERE.glob("script_*.py"))


def run_script(name, kind, *options, timeout=30):
    return run_python(*options, os.fspath(HERE / f"{name}.py"), kind, timeout=timeout)


@pytest.mark.parametrize("name", SCRIPTS)
def test_script(kind, name):
    """It ends with status 0, prints "ok" last and says nothing on standard error."""
    done = run_script(name, kind)
    if done.stdout.startswith("skip: "):
        pytest.skip(done.stdout.removeprefix("skip: ").strip())
    assert done.returncode == 0, f"status {done.returncode}\n{done.stdout}\n{done.stderr}"
    assert done.stdout.splitlines()[-1] == "ok", done.stdout
    assert done.stderr == ""


@pytest.mark.parametrize("name", SCRIPTS)
def test_script_in_dev_mode(kind, name):
    """The same with -X dev: no crash, no fatal error (warnings may be printed: leaving things open is what some
    scripts do).
    """
    done = run_script(name, kind, "-X", "dev")
    if done.stdout.startswith("skip: "):
        pytest.skip(done.stdout.removeprefix("skip: ").strip())
    assert done.returncode == 0, f"status {done.returncode}\n{done.stdout}\n{done.stderr}"
    assert "Fatal" not in done.stderr
    if kind == "uvpy":  # stock, left open, has something to say when it is collected this late
        assert "Traceback" not in done.stderr, done.stderr


@pytest.mark.parametrize("state", ["parked", "busy", "server", "thread"])
@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_a_script(kind, state, signum):
    """A program that runs for ever dies of SIGTERM at once and of Ctrl-C with a KeyboardInterrupt, as Python
    programs do.
    """
    # Told by its end of file that the program is gone, whatever became of its threads.
    with subprocess.Popen(
        [sys.executable, os.fspath(HERE / "forever.py"), kind, state],
        env=environment(PYTHONUNBUFFERED="1"),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        try:
            assert process.stdout.readline() == b"ready\n"
            process.send_signal(signum)
            _, err = process.communicate(timeout=10)
        finally:
            process.kill()
    assert process.returncode == -signum, err
    if signum == signal.SIGINT:
        assert err.rstrip().endswith(b"KeyboardInterrupt"), err
    else:
        assert err == b""


@pytest.mark.uvpy_only("about importing uvpy")
def test_a_subinterpreter_is_refused_in_plain_words(kind):
    body = """
try:
    import _interpreters as interpreters
except ImportError:
    try:
        import _xxsubinterpreters as interpreters
    except ImportError:
        print("skip")
        raise SystemExit
source = '''
import sys
try:
    import uvpy
except ImportError as exc:
    text = str(exc)
else:
    text = "imported"
with open(%r, "w") as f:
    f.write(text)
'''
import os, sys, tempfile
path = os.path.join(tempfile.mkdtemp(), "said")
interp = interpreters.create()
interpreters.run_string(interp, source % path)
interpreters.destroy(interp)
print(open(path).read())
import uvpy  # in the main interpreter it still works
loop = uvpy.new_event_loop()
import asyncio
loop.run_until_complete(asyncio.sleep(0))
loop.close()
sys.stdout.flush()
os._exit(0)  # 3.12 aborts at its end when a sub-interpreter has imported asyncio
"""
    done = run_python("-W", "ignore", "-c", body)
    assert done.returncode == 0, done.stderr
    if done.stdout.strip() == "skip":
        pytest.skip("no interpreters module")
    assert "subinterpreter" in done.stdout.lower().replace("-", ""), done.stdout


@pytest.mark.uvpy_only("about importing uvpy")
def test_importing_twice_and_after_the_module_was_dropped(kind):
    """The module can be dropped from sys.modules and imported anew, with loops of the old one at work."""
    body = """
import sys, asyncio, uvpy
old = uvpy.new_event_loop()
for name in [n for n in sys.modules if n.split(".")[0] == "uvpy"]:
    del sys.modules[name]
import uvpy as again
new = again.new_event_loop()
for loop in (old, new):
    assert loop.run_until_complete(asyncio.sleep(0.001, 5)) == 5
    loop.close()
print("ok")
"""
    done = run_python("-c", body)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "ok"
