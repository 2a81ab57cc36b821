"""Echoes for counting instructions: one connection, one request at a time, so that nothing depends on the clock."""

from __future__ import annotations

import ctypes
import functools
import os
import subprocess
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import native
import servers
from loops import BARESTS, FASTNET

from cases.kinds import Case, Load, Loop, Micro

_load: list[subprocess.Popen[bytes]] = []


def _echo(case: Load, loop: Loop, size: int) -> None:
    """The end is what the load generator says when it has all answers: nothing of the measuring is in the protocol."""

    def answered() -> None:
        if os.read(stdout, 65536).endswith(b"\n"):
            loop.stop()

    def wait() -> None:
        loop.add_reader(stdout, answered)
        loop.run_forever()
        loop.remove_reader(stdout)

    first = not _load
    if first:
        port = loop.run_until_complete(servers.SERVERS[case.server](loop, case))
        command = [str(native.load_generator()), "--limit", "250", case.transport, port]
        _load.append(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE))
    stdin, told = _load[0].stdin, _load[0].stdout
    assert stdin
    assert told
    stdout = told.fileno()
    if first:
        wait()  # it makes one request to see that it was accepted
    stdin.write(b"count %d\n" % size)
    stdin.flush()
    wait()


@functools.cache
def _calls() -> tuple[ctypes.PyDLL, servers.EchoProtocol]:
    library = ctypes.PyDLL(str(native.calls()))
    library.quiet_write.restype = ctypes.py_object
    for function in (library.receive, library.receive_after_waiting):
        function.argtypes = (ctypes.py_object, ctypes.py_object, ctypes.py_object, ctypes.c_int)
    protocol = servers.EchoProtocol()
    protocol.write = library.quiet_write()
    return library, protocol


def _echo_bare(size: int) -> None:
    """The two calls of a request, data_received() and write(), and nothing else."""
    library, protocol = _calls()
    library.receive(protocol, "data_received", bytes(1024), size)


def _echo_bare_waiting(size: int) -> None:
    """With the wait before, and the object and the context for it."""
    library, protocol = _calls()
    library.receive_after_waiting(protocol, "data_received", bytes(1024), size)


def _counted(text: str, server: str, transport: str = "tcp", bare: Callable[[int], None] | None = None) -> Micro:
    text += ", 1 KiB, one request at a time"
    return Micro(
        text=text,
        run=partial(_echo, Load(text=text, server=server, transport=transport)),
        size=0,
        counted=500,
        bare=bare,
    )


CASES: dict[str, Case] = {
    "tcp_echo": _counted("TCP echo, asyncio.Protocol", "protocol", bare=_echo_bare),
    "tcp_echo_waiting": _counted("TCP echo; its floor with a wait", "protocol", bare=_echo_bare_waiting),
    "tcp_echo_buffered": _counted("TCP echo, asyncio.BufferedProtocol", "buffered"),
    "tcp_echo_streams": _counted("TCP echo, streams", "streams"),
    "tcp_echo_writes2": _counted("TCP echo in two writes", "writes2"),
    "udp_echo_one": _counted("UDP echo", "udp", "udp"),
    "tls_echo_1": replace(_counted("TLS 1.3 echo, asyncio.Protocol", "tls", "tls"), extras=(*FASTNET, *BARESTS)),
}
