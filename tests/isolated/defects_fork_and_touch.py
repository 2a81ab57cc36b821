"""What a child does to the loop that it has from its parent is its own affair: the parent goes on hearing
everything.
"""

import asyncio
import contextlib
import os
import socket
import warnings

from kinds import KIND, new_loop, skip

if KIND == "asyncio":
    skip("asyncio's child takes descriptors out of the epoll set that it shares with its parent")
warnings.simplefilter("ignore")
loop = new_loop()
got = []


class Echo(asyncio.Protocol):
    def connection_made(self, transport):
        self.transport = transport

    def data_received(self, data):
        self.transport.write(data.upper())


def in_a_child(*acts):
    """Each act in turn, errors of the child left alone; the child must end by itself."""
    pid = os.fork()
    if pid == 0:
        try:
            for act in acts:
                with contextlib.suppress(Exception):
                    act()
        finally:
            os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


async def ask(address):
    reader, writer = await asyncio.open_connection(*address)
    writer.write(b"hello")
    assert await asyncio.wait_for(reader.readexactly(5), 5) == b"HELLO"
    writer.close()


async def main():
    server = await loop.create_server(Echo, "127.0.0.1", 0)
    address = server.sockets[0].getsockname()
    a, b = socket.socketpair()
    spare, other = socket.socketpair()
    c, d = socket.socketpair()
    c.setblocking(False)
    transport, _ = await loop.create_connection(Echo, sock=c)
    loop.add_reader(a, lambda: got.append(a.recv(9)))
    handle = loop.call_later(0.001, got.append, b"timer")
    stale = os.dup(a.fileno())
    children = [
        [lambda: server.close()],
        [lambda: loop.remove_reader(a)],
        [lambda: loop.add_writer(a, print), lambda: loop.remove_writer(a), lambda: loop.add_reader(a, print)],
        [lambda: loop.add_reader(spare, print), lambda: loop.add_writer(other, print)],
        [lambda: os.dup2(stale, spare.fileno()), lambda: loop.add_reader(spare, print)],
        [transport.pause_reading, transport.resume_reading, lambda: transport.set_protocol(asyncio.Protocol())],
        [transport.pause_reading],
        [handle.cancel, lambda: loop.call_soon(print), lambda: loop.call_soon_threadsafe(print), loop.stop],
        [lambda: loop.add_signal_handler(10, print), lambda: loop.remove_signal_handler(10)],
        [lambda: loop.close()],
        [lambda: asyncio._set_running_loop(None), lambda: loop.close(), lambda: server.close(), transport.abort],
    ]
    for acts in children:
        in_a_child(*acts)
        await ask(address)
        b.send(b"!")
        d.send(b"data")
        for _ in range(2000):
            if got.count(b"!") and (len(got) > 1 or acts is not children[0]):
                break
            await asyncio.sleep(0.001)
        assert b"!" in got, (acts, got)
        got.clear()
        d.settimeout(5)
        assert await loop.run_in_executor(None, d.recv, 9) == b"DATA", acts
    loop.remove_reader(a)
    transport.close()
    server.close()
    await asyncio.sleep(0)
    for sock in (a, b, d, spare, other):
        sock.close()


loop.run_until_complete(main())
loop.run_until_complete(loop.shutdown_default_executor())
loop.close()
print("ok")
