#!/usr/bin/env python3
"""The table in the README of what is native: derived from the types, so that it cannot be wrong. Prints it, or puts it
into the README with --write; tests/seam/test_readme_table.py compares. Run it by an interpreter that has uvpy:
`tools/dev run tools/readme_table.py --write`.
"""

from __future__ import annotations

import asyncio
import inspect
import os
import socket
import ssl
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import uvpy

README = Path(__file__).resolve().parents[1] / "README.md"
BEGIN, END = "<!-- table: tools/readme_table.py -->\n", "<!-- end of table -->\n"

# What differs from asyncio, by method or transport: the one thing that the types do not say.
_KEPT = "after a wait the socket stays watched for the next call"
DIFFERENCES = {
    "run_forever": "an overridden `_run_once()` is not called",
    "call_soon": "`context=` of another type: TypeError at once",
    "call_soon_threadsafe": "`context=` of another type: TypeError at once",
    "call_later": "NaN: ValueError; equal deadlines run in order",
    "call_at": "NaN: ValueError; equal deadlines run in order",
    "getaddrinfo": "addresses are answered without a thread",
    "getnameinfo": "numbers are answered without a thread",
    "create_server": "`accept()` of a socket's subclass is not called",
    "create_unix_server": "`accept()` of a socket's subclass is not called",
    "start_tls": "what a StreamReader has taken of a handshake is given to TLS",
    "sendfile": "sends in C++; the file's position is set after a cancel, too",
    "sock_sendfile": "sends in C++; the file's position is set after a cancel, too",
    "sock_recv": _KEPT,
    "sock_recv_into": _KEPT,
    "sock_recvfrom": _KEPT,
    "sock_recvfrom_into": _KEPT,
    "sock_sendall": "memoryviews of wide items are sent whole",
    "sock_accept": "a client accepted while the call is cancelled is closed",
    "subprocess_exec": "no thread a child on 3.11",
    "subprocess_shell": "no thread a child on 3.11",
    "connect_read_pipe": "O_NONBLOCK is put back at the end",
    "connect_write_pipe": "O_NONBLOCK is put back at the end",
    "add_signal_handler": "no kind of signal is lost in a burst",
    "TCP": "gathers writes under load; its name and repr",
    "Unix stream": "gathers writes under load; its name and repr",
    "UDP": "up to 16 datagrams are received ahead; `_buffer` is a copy; its name and repr",
    "read pipe": "ends once, however often it is closed; its name and repr",
    "write pipe": "ends once, however often it is closed; its name and repr",
    "subprocess": "signals by the pidfd; a status that `close()` finds is told; its name and repr",
}


def origin(function: Any) -> str:
    """Who has written a method of the loop."""
    if not isinstance(function, types.FunctionType):
        return "C++"
    if function.__code__.co_freevars == ("native",) and function.__code__.co_filename.startswith("<"):
        return "C++"
    folder = os.path.dirname(os.path.abspath(uvpy.__file__))
    return "uvpy" if os.path.dirname(os.path.abspath(inspect.getfile(function))) == folder else "asyncio's"


def methods() -> list[tuple[str, str]]:
    """Each public method of AbstractEventLoop, and who has written ours."""
    names = [n for n, v in vars(asyncio.AbstractEventLoop).items() if not n.startswith("_") and callable(v)]
    return [(name, origin(getattr(uvpy.Loop, name))) for name in names]


async def _transports(keep: Callable[[Any], Any]) -> list[tuple[str, str, type]]:
    loop = asyncio.get_running_loop()
    here, there = map(keep, socket.socketpair())
    listener = keep(socket.create_server(("127.0.0.1", 0)))
    reading, writing = os.pipe()
    made: list[tuple[str, str, Any]] = []

    def add(kind: str, maker: str, transport: Any) -> None:
        made.append((kind, maker, transport))

    tcp, _ = await loop.create_connection(asyncio.Protocol, *listener.getsockname())
    add("TCP", "create_connection, create_server", tcp)
    unix, _ = await loop.create_unix_connection(asyncio.Protocol, sock=here)
    add("Unix stream", "create_unix_connection, create_unix_server", unix)
    tls: Any = loop._make_ssl_transport(  # type: ignore[attr-defined]
        there, asyncio.Protocol(), ssl.create_default_context(), server_hostname="test"
    )
    add("TLS", "ssl=, start_tls", tls)
    udp, _ = await loop.create_datagram_endpoint(asyncio.DatagramProtocol, local_addr=("127.0.0.1", 0))
    add("UDP", "create_datagram_endpoint", udp)
    add("read pipe", "connect_read_pipe", (await loop.connect_read_pipe(asyncio.Protocol, os.fdopen(reading, "rb")))[0])
    add(
        "write pipe",
        "connect_write_pipe",
        (await loop.connect_write_pipe(asyncio.Protocol, os.fdopen(writing, "wb")))[0],
    )
    child: Any
    child, _ = await loop.subprocess_exec(asyncio.SubprocessProtocol, "true", stdin=None, stdout=None, stderr=None)
    await child._wait()
    add("subprocess", "subprocess_exec, subprocess_shell", child)
    for _, _, transport in made:
        getattr(transport, "abort", transport.close)()
    await asyncio.sleep(0.01)
    return [(kind, maker, type(transport)) for kind, maker, transport in made]


_OWN = {"uvpy._core": "C++", "uvpy._process": "uvpy"}


def transports() -> list[tuple[str, str, str]]:
    """Each kind of transport, the methods that make it, and whose type it is."""
    sockets: list[socket.socket] = []

    def keep(sock: socket.socket) -> socket.socket:
        sockets.append(sock)
        return sock

    loop = uvpy.new_event_loop()
    loop.set_exception_handler(lambda loop, context: None)  # the TLS handshake comes to nothing
    try:
        found = loop.run_until_complete(_transports(keep))
    finally:
        loop.close()
        for sock in sockets:
            sock.close()
    return [
        (kind, maker, f"{_OWN[whose.__module__]}: `{whose.__name__}`" if whose.__module__ in _OWN else "asyncio's")
        for kind, maker, whose in found
    ]


def table() -> str:
    lines = ["| method of `AbstractEventLoop` | written in | what differs |", "| --- | --- | --- |"]
    lines += [f"| `{name}` | {whose} | {_difference(name)} |" for name, whose in methods()]
    lines += ["", "| transport | made by | written in | what differs |", "| --- | --- | --- | --- |"]
    for kind, maker, whose in transports():
        makers = ", ".join(f"`{m}`" for m in maker.split(", "))
        lines.append(f"| {kind} | {makers} | {whose} | {_difference(kind)} |")
    return "\n".join(lines) + "\n"


def _difference(name: str) -> str:
    return DIFFERENCES.get(name, "nothing")


def in_readme() -> str:
    """The table that the README has."""
    return README.read_text().partition(BEGIN)[2].partition(END)[0]


def main(argv: list[str]) -> int:
    if argv == ["--write"]:
        before, _, rest = README.read_text().partition(BEGIN)
        README.write_text(before + BEGIN + table() + END + rest.partition(END)[2])
        return 0
    print(table(), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
