"""PostgreSQL and Redis for the suites: servers of our own, on loopback, with a fresh data folder under .work/services.

Each runs in the foreground as a child of ours, on a free port, and ends with the `with` block that it serves. The
machine's own servers, their data and their ports are left alone. As root they run as another user: PostgreSQL
refuses root, and neither needs it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import pwd
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from .machine import install_packages
from .steps import LOGS, WORK, Command, Failure, answer, end_group, environment, relative, step

HOST = "127.0.0.1"
USERS = ("postgres", "nobody")
"""Who runs a server if we are root: the first that exists."""


@dataclasses.dataclass(frozen=True)
class Service:
    """A server that runs."""

    name: str
    port: int
    version: str


def unprivileged() -> str | None:
    """The user that servers run as, None for ours."""
    if os.geteuid() != 0:
        return None
    known = {entry.pw_name for entry in pwd.getpwall()}
    found = next((name for name in USERS if name in known), None)
    if found is None:
        raise Failure(f"as root a server must run as another user, and there is none of {', '.join(USERS)}")
    return found


def _free_port() -> int:
    with socket.socket() as sock:
        sock.bind((HOST, 0))
        return int(sock.getsockname()[1])


def _fresh_folder(name: str, user: str | None) -> Path:
    folder = WORK / "services" / f"{name}-{os.getpid()}"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True, mode=0o700)
    if user is not None:
        shutil.chown(folder, user, pwd.getpwnam(user).pw_gid)
        if answer(["setpriv", "--reuid", user, "--clear-groups", "test", "-w", folder]) is None:
            raise Failure(f"the user {user} cannot reach {folder}: a folder above it is closed to others")
    return folder


@contextlib.contextmanager
def _running(
    name: str, command: Command, folder: Path, user: str | None, ready: Callable[[], bool], stop: signal.Signals
) -> Iterator[None]:
    """Runs a server until the block ends."""
    LOGS.mkdir(parents=True, exist_ok=True)
    log = LOGS / f"{name}.log"
    with log.open("wb") as out:
        process = subprocess.Popen(
            [str(part) for part in command],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            cwd=folder,
            env=environment(),
            start_new_session=True,
            user=user,
            group=pwd.getpwnam(user).pw_gid if user else None,
            extra_groups=[] if user else None,
        )
    try:
        deadline = time.monotonic() + 60
        while not ready():
            if process.poll() is not None or time.monotonic() > deadline:
                raise Failure(f"{name} does not start; its output is in {relative(log)}")
            time.sleep(0.1)
        yield
    finally:
        process.send_signal(stop)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(20)
        end_group(process)
        shutil.rmtree(folder, ignore_errors=True)


def postgresql_binaries() -> Path:
    """The folder of the newest PostgreSQL's programs; Debian keeps them out of PATH."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"), key=lambda path: float(path.parts[-3]))
    if found:
        return found[-1].parent
    program = shutil.which("postgres")
    if program:
        return Path(program).resolve().parent
    install_packages("a PostgreSQL server", ["postgresql"])
    return postgresql_binaries()


def postgresql_wrappers(folder: Path) -> Path:
    """PostgreSQL's programs for suites that make clusters of their own: as root, run by another user.

    They make their data folders with Python's tempfile, so a folder is given to that user before it is used.
    """
    binaries, user = postgresql_binaries(), unprivileged()
    if user is None:
        return binaries
    folder.mkdir(parents=True, exist_ok=True)
    for program in binaries.iterdir():
        wrapper = folder / program.name
        wrapper.unlink(missing_ok=True)
        wrapper.write_text(
            "#!/bin/sh\n"
            "take= folder=\n"
            'for word; do [ "$take" ] && folder=$word; take=; [ "$word" = -D ] && take=1; done\n'
            f'[ -z "$folder" ] || [ ! -d "$folder" ] || chown -R {user}: "$folder"\n'
            "cd /\n"
            f'exec setpriv --reuid {user} --regid {pwd.getpwnam(user).pw_gid} --clear-groups {program} "$@"\n'
        )
        wrapper.chmod(0o755)
    return folder


@contextlib.contextmanager
def postgresql() -> Iterator[Service]:
    """A PostgreSQL server: user postgres, no password, TCP only."""
    binaries, user, port = postgresql_binaries(), unprivileged(), _free_port()
    folder = _fresh_folder("postgresql", user)
    as_user: Command = [] if user is None else ["setpriv", "--reuid", user, "--clear-groups"]
    data = folder / "data"
    made = answer(
        [*as_user, binaries / "initdb", "-D", data, "-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-sync"]
    )
    if made is None:
        raise Failure(f"initdb of {binaries} failed in {relative(folder)}")
    settings = {
        "listen_addresses": HOST,
        "port": str(port),
        "unix_socket_directories": "",
        "fsync": "off",
        "max_connections": "200",
        "max_prepared_transactions": "10",
        "wal_level": "logical",
    }
    options = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
    command: Command = [binaries / "postgres", "-D", data, *options]

    def ready() -> bool:
        return answer([binaries / "pg_isready", "-q", "-h", HOST, "-p", str(port)]) is not None

    version = (answer([binaries / "postgres", "--version"]) or "").split()[2]
    step(f"PostgreSQL {version} on {HOST}:{port}")
    # SIGINT is its fast shutdown: it ends its sessions.
    with _running("postgresql", command, folder, user, ready, signal.SIGINT):
        yield Service("postgresql", port, version)


@contextlib.contextmanager
def redis() -> Iterator[Service]:
    """A Redis server without persistence, with the DEBUG command that redis-py's tests use."""
    if shutil.which("redis-server") is None:
        install_packages("a Redis server", ["redis-server"])
    program = Path(shutil.which("redis-server") or "/usr/bin/redis-server")
    user, port = unprivileged(), _free_port()
    folder = _fresh_folder("redis", user)
    options = {
        "--bind": HOST,
        "--port": str(port),
        "--save": "",
        "--appendonly": "no",
        "--dir": str(folder),
        "--enable-debug-command": "yes",
        "--enable-module-command": "yes",
    }
    command: Command = [program, *(word for pair in options.items() for word in pair)]

    def ready() -> bool:
        try:
            with socket.create_connection((HOST, port), 1) as sock:
                sock.sendall(b"PING\r\n")
                return sock.recv(16).startswith(b"+PONG")
        except OSError:
            return False

    version = (answer([program, "--version"]) or "v=?").partition("v=")[2].split()[0]
    step(f"Redis {version} on {HOST}:{port}")
    with _running("redis", command, folder, user, ready, signal.SIGTERM):
        yield Service("redis", port, version)


SERVICES: dict[str, Callable[[], contextlib.AbstractContextManager[Service]]] = {
    "postgresql": postgresql,
    "redis": redis,
}
