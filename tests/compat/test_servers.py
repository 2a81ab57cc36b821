"""Real servers whose loops are uvpy's: gunicorn's workers, and servers that know uvloop by name, by the stand-in."""

import contextlib
import http.client
import os
import pathlib
import signal
import socket
import subprocess
import sys
import time

import pytest

HERE = pathlib.Path(__file__).parent
LIMIT = 90  # seconds for the first answers, on a machine that others use, too
PATIENCE = 3  # for one answer: some servers listen before they serve, at a socket that they replace
EXEC = [sys.executable, "-m", "uvpy", "exec"]
GUNICORN = [sys.executable, "-m", "gunicorn"]
UVPY = "uvpy._loop.Loop"

pytestmark = pytest.mark.slow


class Connection(http.client.HTTPConnection):
    """HTTP over a Unix socket."""

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(PATIENCE)
        self.sock.connect(self.host)


def get(path):
    connection = Connection(str(path))
    try:
        connection.request("GET", "/", headers={"Host": "localhost"})
        response = connection.getresponse()
        assert response.status == 200
        return response.read().decode().split()
    finally:
        connection.close()


def served_by(command, path, workers=1):
    """Run a server until it has answered from so many workers; the loops' names, its exit status and its output."""
    process = subprocess.Popen(
        command,
        cwd=HERE,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
        text=True,
    )
    loops, pids, end = set(), set(), time.monotonic() + LIMIT
    try:
        while len(pids) < workers and time.monotonic() < end and process.poll() is None:
            try:
                name, pid = get(path)
            except OSError:
                time.sleep(0.05)  # not there yet: nothing tells us when it will be
                continue
            loops.add(name)
            pids.add(pid)
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
        output, _ = process.communicate(timeout=15)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    assert len(pids) == workers, output
    return loops, process.returncode, output


@pytest.fixture
def path(tmp_path_factory):
    return tmp_path_factory.mktemp("s") / "s"


@pytest.mark.parametrize(
    ("worker", "app"),
    [("UvicornWorker", "apps:asgi"), ("ASGIWorker", "apps:asgi"), ("AiohttpWorker", "apps:aiohttp_app")],
)
def test_gunicorn_workers(path, worker, app):
    pytest.importorskip("gunicorn")
    command = [*GUNICORN, "-k", f"uvpy.gunicorn.{worker}", "-w", "2", "-b", f"unix:{path}", app]
    loops, status, output = served_by(command, path, workers=2)
    assert loops == {UVPY}
    assert status == 0
    assert "Traceback" not in output


@pytest.mark.parametrize("worker", ["uvicorn_worker.UvicornWorker", "asgi"])
def test_gunicorn_that_looks_for_uvloop(path, worker):
    pytest.importorskip("gunicorn")
    command = [*EXEC, "-m", "gunicorn", "-k", worker, "-w", "1", "-b", f"unix:{path}", "apps:asgi"]
    loops, status, output = served_by(command, path)
    assert loops == {UVPY}
    assert status == 0
    assert "Traceback" not in output


def test_gunicorn_command_by_its_name(path):
    pytest.importorskip("gunicorn")
    script = pathlib.Path(sys.executable).parent / "gunicorn"
    command = [*EXEC, str(script), "-k", "aiohttp.GunicornUVLoopWebWorker", "-b", f"unix:{path}", "apps:aiohttp_app"]
    loops, status, output = served_by(command, path)
    assert loops == {UVPY}
    assert status == 0
    assert "Traceback" not in output


@pytest.mark.parametrize("workers", [1, 2])
def test_hypercorn_whose_workers_are_spawned(path, workers):
    pytest.importorskip("hypercorn")
    command = [*EXEC, "-m", "hypercorn", "-k", "uvloop", "-w", str(workers), "-b", f"unix:{path}", "apps:asgi"]
    loops, status, output = served_by(command, path)
    assert loops == {UVPY}
    assert status == 0, output
    assert "Traceback" not in output


@pytest.mark.parametrize("workers", [1, 2])
def test_sanic_which_sets_uvloops_policy(path, workers):
    pytest.importorskip("sanic")
    loops, status, output = served_by([*EXEC, "apps.py", str(path), str(workers)], path)
    assert loops == {UVPY}
    assert status == 0, output
    assert "Traceback" not in output


def test_without_exec_sanic_does_not_get_uvpy(path):
    pytest.importorskip("sanic")
    loops, _status, _output = served_by([sys.executable, "apps.py", str(path), "1"], path)
    assert UVPY not in loops
