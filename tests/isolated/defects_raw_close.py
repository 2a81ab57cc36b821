"""os.close() of a transport's descriptor: connection_lost(OSError EBADF, or ENOTSOCK of what has the number by now), or
nothing until the transport is ended; no abort, and no file of another closed or read.
"""

import asyncio
import contextlib
import errno
import gc
import logging
import os
import socket
import warnings

from kinds import KIND, new_loop, skip

if KIND == "asyncio":
    skip("asyncio's selector raises at the closed number, and closes whatever has it by then")
warnings.simplefilter("ignore")


class Notes(asyncio.Protocol):
    def __init__(self):
        self.lost, self.data = [], bytearray()

    def data_received(self, data):
        self.data += data

    def connection_lost(self, exc):
        self.lost.append(exc)


class Pipe:
    """A pipe that has taken the number, with bytes in it."""

    def __init__(self, number):
        self.number = number
        self.r, self.w = os.pipe()
        os.write(self.w, b"private")
        if self.r != number:
            os.dup2(self.r, number)
            os.close(self.r)
        self.stat = os.fstat(number)

    def check(self):
        now = os.fstat(self.number)
        assert (now.st_dev, now.st_ino) == (self.stat.st_dev, self.stat.st_ino)
        assert os.read(self.number, 99) == b"private"
        os.close(self.number)
        os.close(self.w)


WHERE = ("made", "data", "eof", "pause", "between", "twice")
THEN = ("wait", "write", "write much", "peer sends", "peer closes", "pause and resume", "close", "abort", "drop")


def close_behind(transport, reuse, pipes):
    number = transport.get_extra_info("socket").fileno()
    os.close(number)
    if reuse:
        pipes.append(Pipe(number))


async def one(loop, where, then, kept, reuse, given):
    ours, peer = socket.socketpair()
    peer.setblocking(False)
    ours.setblocking(False)
    pipes, closed = [], []

    class Closes(Notes):
        def strike(self, here):
            if where == here and not closed:
                closed.append(1)
                close_behind(self.transport, reuse, pipes)

        def connection_made(self, transport):
            self.transport = transport
            self.strike("made")

        def data_received(self, data):
            super().data_received(data)
            self.strike("data")

        def eof_received(self):
            self.strike("eof")
            return True

        def pause_writing(self):
            self.strike("pause")

    if given:
        transport, protocol = await loop.create_connection(Closes, sock=ours)
    else:
        transport, protocol = await loop.connect_accepted_socket(Closes, sock=socket.socket(fileno=ours.detach()))
    if kept or where == "pause":
        transport.write(bytes(1 << 22))
    if where in ("data", "eof"):
        peer.send(b"data")
        if where == "eof":
            peer.shutdown(socket.SHUT_WR)
        for _ in range(500):
            if closed:
                break
            await asyncio.sleep(0.001)
    elif where in ("between", "twice"):
        await asyncio.sleep(0.001)
        close_behind(transport, reuse, pipes)
        if where == "twice":
            transport.pause_reading()
            await asyncio.sleep(0)
            transport.resume_reading()
    with contextlib.suppress(OSError):
        if then == "write":
            transport.write(b"x")
        elif then == "write much":
            transport.write(bytes(1 << 22))
            transport.writelines([b"a", b"b"])
        elif then == "peer sends":
            peer.send(b"more")
        elif then == "peer closes":
            peer.close()
        elif then == "pause and resume":
            transport.pause_reading()
            transport.resume_reading()
        elif then in ("close", "abort"):
            getattr(transport, then)()
    await asyncio.sleep(0.001)
    if then == "drop":
        protocol.transport = transport = None
        gc.collect()
    else:
        transport.abort()
        for _ in range(200):
            if protocol.lost:
                break
            await asyncio.sleep(0.001)
        assert len(protocol.lost) == 1, protocol.lost
        (exc,) = protocol.lost
        assert exc is None or isinstance(exc, OSError), exc
        assert exc is None or isinstance(exc, ConnectionError) or exc.errno in (errno.EBADF, errno.ENOTSOCK), exc
    assert b"private" not in protocol.data
    peer.close()
    return pipes


async def lost_by_itself(loop):
    """A reading transport whose number was closed learns of it by the next thing that touches the kernel."""
    ours, peer = socket.socketpair()
    ours.setblocking(False)
    transport, protocol = await loop.create_connection(Notes, sock=ours)
    await asyncio.sleep(0)
    os.close(transport.get_extra_info("socket").fileno())
    transport.write(b"x")
    for _ in range(200):
        if protocol.lost:
            break
        await asyncio.sleep(0.001)
    assert [type(exc) for exc in protocol.lost] == [OSError], protocol.lost
    assert protocol.lost[0].errno == errno.EBADF
    peer.close()


async def nothing_is_written_to_another(loop):
    """What is logged of the loss makes somebody write: not to the socket that has the number by then."""
    ours, peer = socket.socketpair()
    ours.setblocking(False)
    transport, protocol = await loop.create_connection(Notes, sock=ours)
    await asyncio.sleep(0)
    number = transport.get_extra_info("socket").fileno()
    os.close(number)
    theirs, end = socket.socketpair()
    if theirs.fileno() != number:
        os.dup2(theirs.fileno(), number)
        theirs.close()
        theirs = socket.socket(fileno=number)
    said = []

    class Writes(logging.Handler):
        def emit(self, record):
            if "behind the transport" in record.getMessage():
                said.append(record)
                transport.write(b"stray")

    handler = Writes()
    logger = logging.getLogger("asyncio")
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG)
    loop.set_debug(True)
    transport.pause_reading()
    transport.resume_reading()
    for _ in range(200):
        if protocol.lost:
            break
        await asyncio.sleep(0.001)
    loop.set_debug(False)
    logger.removeHandler(handler)
    assert len(said) == 1 and protocol.lost, (said, protocol.lost)
    theirs.close()
    assert end.recv(9) == b""
    end.close()
    peer.close()


for where in WHERE:
    for then in THEN:
        for kept, reuse, given in ((a, b, c) for a in (0, 1) for b in (0, 1) for c in (0, 1)):
            print(where, then, f"kept={kept} reuse={reuse} given={given}", flush=True)
            loop = new_loop()
            loop.set_exception_handler(lambda loop, context: None)
            pipes = loop.run_until_complete(asyncio.wait_for(one(loop, where, then, kept, reuse, given), 5))
            loop.close()
            gc.collect(0)
            for pipe in pipes:
                pipe.check()
loop = new_loop()
loop.run_until_complete(lost_by_itself(loop))
loop.run_until_complete(nothing_is_written_to_another(loop))
loop.close()
print("ok")
