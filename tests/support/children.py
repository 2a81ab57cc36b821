"""Children under test: a protocol that keeps what it is told, programs to run, and what is known of a process."""

import asyncio
import contextlib
import os
import subprocess
import sys

from support.protocols import _Notes

PIPE = subprocess.PIPE
DEVNULL = subprocess.DEVNULL
SLEEP = ("sleep", "60")

PIDFD_TEXT = "child process pid {} exit status already read:  will report returncode 255"
THREAD_TEXT = "Unknown child process pid {}, will report returncode 255"
UNKNOWN_TEXT = THREAD_TEXT if sys.version_info < (3, 12) else PIDFD_TEXT


class ChildNotes(_Notes, asyncio.SubprocessProtocol):
    """Keeps what it is told of a child: "made", ("data", fd), ("pipe lost", fd), "exited", "lost"; .out by fd."""

    def __init__(self):
        super().__init__()
        self.out = {1: bytearray(), 2: bytearray()}

    def pipe_data_received(self, fd, data):
        self.out[fd] += data
        self._note(("data", fd))

    def pipe_connection_lost(self, fd, exc):
        self._note(("pipe lost", fd))

    def process_exited(self):
        self._note("exited")

    def connection_lost(self, exc):
        super().connection_lost(exc)
        if self.transport is not None:
            self.transport.close()  # one that is not closed warns, finished or not


def without_pipes(**more):
    """The keywords of a child that has no pipes."""
    return {"stdin": DEVNULL, "stdout": None, "stderr": None, **more}


async def spawn(*args, protocol=ChildNotes, **kwargs):
    """(transport, protocol) of a child; without pipes unless they are asked for."""
    loop = asyncio.get_running_loop()
    return await loop.subprocess_exec(protocol, *args, **without_pipes(**kwargs))


async def output(*args, **kwargs):
    """What a child writes to its standard output, stripped."""
    proc = await asyncio.create_subprocess_exec(*args, stdout=PIPE, **kwargs)
    out, _ = await proc.communicate()
    return out.decode().strip()


def wait_for_zombie(pid):
    """Block until a child has exited, and leave it to be reaped; where it was reaped already, so be it."""
    with contextlib.suppress(ChildProcessError):
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)


def has_children():
    """Whether this process has any child, running or not reaped."""
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True
