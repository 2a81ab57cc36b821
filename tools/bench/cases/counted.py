"""Echo for counting instructions: one connection, one request at a time, so that nothing depends on the clock."""

from __future__ import annotations

import subprocess
from functools import partial

import native
import servers
from loops import FASTNET

from cases.kinds import Case, Loop, Micro

_load: list[subprocess.Popen[bytes]] = []


class _Ending(servers.EchoProtocol):
    left = 0

    def data_received(self, data: bytes) -> None:
        self.write(data)
        _Ending.left -= 1
        if not _Ending.left:
            self.loop.stop()


def _echo(transport: str, loop: Loop, size: int) -> None:
    _Ending.left = size
    if not _load:
        _Ending.loop = loop
        context = servers.server_context() if transport == "tls" else None
        server = loop.run_until_complete(loop.create_server(_Ending, "127.0.0.1", 0, ssl=context))
        port = str(server.sockets[0].getsockname()[1])
        command = [str(native.load_generator()), "--limit", "250", transport, port]
        # It makes one request to see that it was accepted.
        _Ending.left += 1
        _load.append(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL))
    stdin = _load[0].stdin
    assert stdin
    stdin.write(b"count %d\n" % size)
    stdin.flush()
    loop.run_forever()


CASES: dict[str, Case] = {
    "tcp_echo": Micro(
        text="TCP echo, asyncio.Protocol, 1 KiB, one request at a time", run=partial(_echo, "tcp"), size=0, counted=500
    ),
    "tls_echo_1": Micro(
        text="TLS 1.3 echo, asyncio.Protocol, 1 KiB, one request at a time",
        run=partial(_echo, "tls"),
        size=0,
        counted=500,
        extras=tuple(FASTNET),
    ),
}
