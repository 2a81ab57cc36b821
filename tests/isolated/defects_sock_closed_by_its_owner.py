"""A socket that was given as sock= and that its owner closes: whatever is done next, the process lives, the connection
ends once, and a file that has the number by then stays open and untouched.
"""

import asyncio
import contextlib
import errno
import os
import socket
import warnings

from kinds import KIND, new_loop

warnings.simplefilter("ignore")
ACTS = (
    "write",
    "writelines",
    "write_eof",
    "peer sends",
    "peer closes",
    "peer sends and closes",
    "close",
    "abort",
    "pause_reading",
    "pause and resume",
    "look",
    "nothing",
)


class Notes(asyncio.Protocol):
    def __init__(self):
        self.lost, self.data = [], bytearray()

    def data_received(self, data):
        self.data += data

    def connection_lost(self, exc):
        self.lost.append(exc)


class Stranger:
    """Another file that takes the number as soon as it is free: one end of a pair, with bytes waiting in it."""

    def __init__(self, number):
        self.ours, self.theirs = socket.socketpair()
        self.theirs.send(b"private")
        self.number = number
        self.has_it = False
        try:
            os.fstat(number)
        except OSError:
            os.dup2(self.ours.fileno(), number)
            self.has_it = True

    def check(self):
        if self.has_it:
            assert os.path.sameopenfile(self.number, self.ours.fileno())
            os.close(self.number)
        assert self.ours.recv(99) == b"private"
        self.theirs.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            raise AssertionError(self.theirs.recv(99))
        self.ours.close()
        self.theirs.close()


def tcp():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        ours = socket.create_connection(listener.getsockname())
        theirs, _ = listener.accept()
    return ours, theirs


def do(act, transport, peer):
    if act == "write":
        transport.write(b"x")
    elif act == "writelines":
        transport.writelines([b"x", b"y"])
    elif act == "peer sends":
        peer.send(b"x")
    elif act == "peer closes":
        peer.close()
    elif act == "peer sends and closes":
        peer.send(b"x")
        peer.close()
    elif act == "pause and resume":
        transport.pause_reading()
        transport.resume_reading()
    elif act == "look":
        repr(transport)
        transport.get_extra_info("socket").fileno()
        transport.get_write_buffer_size()
        transport.is_reading()
    elif act != "nothing":
        getattr(transport, act)()


async def one(loop, make, act, kept, inside):
    ours, peer = make()
    ours.setblocking(False)
    peer.setblocking(False)
    number = ours.fileno()
    strangers = []

    class Closes(Notes):
        def connection_made(self, transport):
            if inside:
                ours.close()
                strangers.append(Stranger(number))

    transport, protocol = await loop.create_connection(Closes, sock=ours)
    if kept:
        transport.write(bytes(1 << 22))
    if not inside:
        ours.close()
        strangers.append(Stranger(number))
    with contextlib.suppress(OSError):  # stock's write_eof()
        do(act, transport, peer)
    await asyncio.sleep(0.002)
    transport.abort()
    for _ in range(200):
        if protocol.lost:
            break
        await asyncio.sleep(0.001)
    assert len(protocol.lost) == 1, protocol.lost
    (exc,) = protocol.lost
    assert exc is None or isinstance(exc, OSError), exc
    if isinstance(exc, OSError) and not isinstance(exc, ConnectionError):
        assert exc.errno == errno.EBADF, exc
    assert ours.fileno() == -1
    assert b"private" not in protocol.data
    await asyncio.sleep(0)
    for stranger in strangers:
        stranger.check()
    peer.close()


for make in (tcp, socket.socketpair):
    for act in ACTS:
        for kept in (False, True):
            for inside in (False, True):
                if KIND == "asyncio" and (kept or inside or act.startswith("pause")):
                    continue  # its selector raises at the closed number, out of the run or at the caller
                if KIND == "asyncio" and act in ("write", "writelines", "write_eof", "close", "abort"):
                    continue  # it sends to the stranger, or goes on watching it
                print(make.__name__, act, "kept" if kept else "", "inside" if inside else "", flush=True)
                loop = new_loop()
                loop.set_exception_handler(lambda loop, context: None)
                loop.run_until_complete(asyncio.wait_for(one(loop, make, act, kept, inside), 5))
                loop.close()
print("ok")
