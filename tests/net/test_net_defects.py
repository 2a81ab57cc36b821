"""Defects of transports and servers that were found once and must not come back. Those that could crash are in
`tests/isolated/defects_*.py`.
"""

import asyncio
import contextlib
import gc
import logging
import os
import signal
import socket
import sys
import time
import warnings

import pytest

from support.drive import eventually, run_until_stopped, start_thread, turn, turn_until, turns
from support.peers import KB, MB, is_open, pattern, reset, same
from support.protocols import Buffered, HalfOpen, Recorder, connect, finish, stuff, wire

EXITS = [SystemExit, KeyboardInterrupt]


# ---- exits


@pytest.mark.parametrize("kind_of_exit", EXITS)
@pytest.mark.parametrize("how", ["write", "writelines", "set_write_buffer_limits"])
@pytest.mark.asyncio_gap("writelines() does not look at the mark", since=(3, 12), until=(3, 14))
def test_an_exit_in_pause_writing_leaves_the_call(loop, sockets, kind_of_exit, how):
    """SystemExit and KeyboardInterrupt come out of write() itself; what was written is kept and sent."""

    class Exits(Recorder):
        def pause_writing(self):
            super().pause_writing()
            raise kind_of_exit("in pause_writing")

    transport, protocol, peer = connect(loop, sockets, Exits)
    total = stuff(transport, 16 * KB)
    assert "pause" not in protocol.events
    with pytest.raises(kind_of_exit, match="in pause_writing"):
        if how == "writelines":
            transport.writelines([bytes(100 * KB)] * 2)
        elif how == "write":
            transport.write(bytes(200 * KB))
        else:
            transport.set_write_buffer_limits(high=0)
    assert protocol.events == ["made", "pause"]
    assert not transport.is_closing()
    total += 0 if how == "set_write_buffer_limits" else 200 * KB
    got = start_thread(_recv, peer, total)
    turn_until(loop, lambda: transport.get_write_buffer_size() == 0)
    assert got() == total
    assert protocol.events == ["made", "pause", "resume"]
    finish(loop, transport, protocol)


def _recv(sock, count):
    got = 0
    while got < count and (chunk := sock.recv(256 * KB)):
        got += len(chunk)
    return got


@pytest.mark.parametrize("kind_of_exit", EXITS)
def test_an_exit_in_pause_writing_inside_a_callback_leaves_the_run(loop, sockets, kind_of_exit):
    class Exits(Recorder):
        def pause_writing(self):
            super().pause_writing()
            raise kind_of_exit("in pause_writing")

        def data_received(self, data):
            super().data_received(data)
            self.transport.write(bytes(8 * MB))

    transport, protocol, peer = connect(loop, sockets, Exits)
    peer.send(b"go")
    with pytest.raises(kind_of_exit, match="in pause_writing"):
        run_until_stopped(loop)
    assert protocol.events == ["made", "data", "pause"]
    got = start_thread(_recv, peer, 8 * MB)
    turn_until(loop, lambda: transport.get_write_buffer_size() == 0)
    assert got() == 8 * MB
    assert protocol.events == ["made", "data", "pause", "resume"]
    finish(loop, transport, protocol)


@pytest.mark.parametrize("kind_of_exit", EXITS)
@pytest.mark.parametrize("base", [Recorder, Buffered])
@pytest.mark.parametrize("answer", [None, True])
@pytest.mark.parametrize("tcp", [False, True])
def test_an_exit_in_eof_received_does_not_lose_the_end(loop, sockets, kind_of_exit, base, answer, tcp):
    """The next run calls eof_received() again, and its answer counts."""
    exits = [1, 2]

    class Exits(base):
        def eof_received(self):
            super().eof_received()
            if exits:
                exits.pop()
                raise kind_of_exit("in eof_received")
            return answer

    transport, protocol, peer = connect(loop, sockets, Exits, tcp)
    peer.send(b"last")
    peer.shutdown(socket.SHUT_WR)
    for n in (1, 2):
        with pytest.raises(kind_of_exit, match="in eof_received"):
            run_until_stopped(loop)
        assert protocol.events.count("eof") == n
        assert not transport.is_closing()
    turn_until(loop, lambda: protocol.events.count("eof") == 3)
    assert bytes(protocol.data) == b"last"
    if answer:
        turn(loop, 3)
        assert not transport.is_closing()
        transport.write(b"answer")
        assert peer.recv(9) == b"answer"
        transport.close()
    turn_until(loop, lambda: "lost" in protocol.events)
    assert protocol.events.count("eof") == 3
    assert protocol.exc is None
    assert peer.recv(9) == b""


@pytest.mark.parametrize("kind_of_exit", EXITS)
def test_an_exit_in_data_received_does_not_lose_what_follows(loop, sockets, kind_of_exit):
    class Exits(Recorder):
        def data_received(self, data):
            super().data_received(data)
            if len(self.data) == 3:
                raise kind_of_exit("in data_received")

    transport, protocol, peer = connect(loop, sockets, Exits)
    peer.send(b"one")
    with pytest.raises(kind_of_exit, match="in data_received"):
        run_until_stopped(loop)
    peer.send(b"two")
    peer.shutdown(socket.SHUT_WR)
    turn_until(loop, lambda: "lost" in protocol.events)
    assert protocol.events == ["made", "data", "data", "eof", "lost"]
    assert bytes(protocol.data) == b"onetwo"


# ---- pausing and resuming inside the protocol


@pytest.mark.parametrize("where", ["get_buffer", "buffer_updated"])
@pytest.mark.parametrize("acts", ["pr", "rpr", "prpr", "pprr"])
async def test_pausing_and_resuming_inside_changes_nothing(loop, sockets, where, acts):
    """In every call, and everything goes on: all the data, and the end."""

    class Pauses(Buffered):
        def act(self):
            for act in acts:
                self.transport.pause_reading() if act == "p" else self.transport.resume_reading()

        def get_buffer(self, sizehint):
            if where == "get_buffer":
                self.act()
            return super().get_buffer(sizehint)

        def buffer_updated(self, nbytes):
            super().buffer_updated(nbytes)
            if where == "buffer_updated":
                self.act()

    async with wire(sockets, lambda: Pauses(100), "unix") as (transport, protocol, peer):
        for n in range(1, 4):
            peer.sock.send(pattern(300))
            same(await protocol.got(300 * n), pattern(300) * n)
            assert transport.is_reading()
        peer.half_close()
        assert await protocol.lost() is None
        assert protocol.order() == ["made", "data", "eof", "lost"]


async def test_pausing_inside_and_resuming_from_outside(loop, sockets):
    class Pauses(Buffered):
        def get_buffer(self, sizehint):
            self.transport.pause_reading()
            loop.call_soon(self.transport.resume_reading)
            return super().get_buffer(sizehint)

    async with wire(sockets, lambda: Pauses(10), "unix") as (transport, protocol, peer):
        peer.sock.send(pattern(95))
        same(await protocol.got(95), pattern(95))
        peer.half_close()
        assert await protocol.lost() is None


@pytest.mark.parametrize("kind_of_exit", EXITS)
def test_pausing_and_resuming_with_an_exit_in_get_buffer(loop, sockets, kind_of_exit):
    class Exits(Buffered):
        def get_buffer(self, sizehint):
            if not self.hints:
                self.hints.append(0)
                self.transport.pause_reading()
                self.transport.resume_reading()
                raise kind_of_exit("in get_buffer")
            return super().get_buffer(sizehint)

    transport, protocol, peer = connect(loop, sockets, Exits)
    peer.send(b"data")
    with pytest.raises(kind_of_exit, match="in get_buffer"):
        run_until_stopped(loop)
    turn_until(loop, lambda: protocol.data == b"data")
    peer.send(b"more")
    turn_until(loop, lambda: protocol.data == b"datamore")
    finish(loop, transport, protocol)


@pytest.mark.parametrize("how", ["inside", "afterwards"])
async def test_pausing_and_resuming_at_the_end_of_file(loop, sockets, how):
    """Inside an eof_received() that keeps the transport open nothing is read again; resuming later finds the end."""

    class Pauses(HalfOpen):
        def eof_received(self):
            if how == "inside":
                self.transport.pause_reading()
                self.transport.resume_reading()
            return super().eof_received()

    async with wire(sockets, Pauses) as (transport, protocol, peer):
        peer.half_close()
        await protocol.has("eof")
        await asyncio.sleep(0.005)
        assert protocol.events == ["made", "eof"]
        if how == "afterwards":
            transport.pause_reading()
            transport.resume_reading()
            await protocol.has("eof", 2)
            await asyncio.sleep(0.005)
            assert protocol.events == ["made", "eof", "eof"]
        transport.write(b"still here")
        assert await peer.recv(10) == b"still here"


# ---- errors go to who called


@pytest.mark.parametrize("act", ["close", "abort", "write to a broken connection"])
def test_the_wrong_thread_gets_the_error_in_debug_mode(loop, sockets, act):
    """RuntimeError in the thread that closes a transport of a loop in debug mode; the loop's run goes on."""
    transport, protocol, peer = connect(loop, sockets, tcp=True)
    loop.set_debug(True)
    loop.slow_callback_duration = 60
    if act.startswith("write"):
        transport.pause_reading()
        reset(peer)
    said, after = [], []

    def other():
        try:
            if act.startswith("write"):
                for _ in range(200):
                    transport.write(b"x")
                    time.sleep(0.001)
            else:
                getattr(transport, act)()
        except RuntimeError as exc:
            said.append(str(exc))

    logger = logging.getLogger("asyncio")
    level = logger.level
    loop.call_soon(lambda: start_thread(other)())
    loop.call_soon(after.append, 1)
    loop.call_later(0.01, loop.stop)
    try:
        loop.run_forever()
    finally:
        logger.setLevel(level)
    assert len(said) == 1
    assert "Non-thread-safe operation" in said[0]
    assert after == [1]
    assert transport.is_closing()
    loop.set_debug(False)
    transport._call_connection_lost(None)  # the error has taken its place in the loop
    turn(loop)
    assert protocol.events.count("lost") == 1


async def test_writing_what_the_kernel_cannot_send_is_fatal(loop, sockets, errors):
    """A memoryview with gaps: a fatal error of the connection, as any error of sending, not the caller's."""
    async with wire(sockets) as (transport, protocol, _):
        transport.write(memoryview(b"abcdef")[::2])
        assert transport.is_closing()
        assert isinstance(await protocol.lost(), BufferError)
        (context,) = errors.take()
        assert context["message"] == "Fatal write error on socket transport"
        assert context["exception"] is protocol.exc


# ---- what an exception handler sees


@pytest.mark.parametrize(
    "method",
    [
        "connection_made",
        "data_received",
        "eof_received",
        "pause_writing",
        "resume_writing",
        "connection_lost",
        "get_buffer",
        "buffer_updated",
    ],
)
async def test_exception_handlers_run_as_in_an_except_block(loop, sockets, method):
    """sys.exc_info() in the handler is the protocol's error."""
    seen = []
    loop.set_exception_handler(lambda loop, context: seen.append((sys.exc_info()[1], context["exception"])))

    def fail(self, *args):
        self._note(method)
        if args and method == "connection_made":
            self.transport = args[0]
        raise ZeroDivisionError("boom")

    base = Buffered if "buffer" in method else Recorder
    async with wire(sockets, type("Fails", (base,), {method: fail})) as (transport, protocol, peer):
        if method in ("data_received", "get_buffer", "buffer_updated"):
            peer.sock.send(b"x")
        elif method == "eof_received":
            peer.half_close()
        elif method in ("pause_writing", "resume_writing"):
            transport.write(bytes(16 * MB))
            await peer.recv(16 * MB)
        elif method == "connection_lost":
            transport.close()
        await eventually(lambda: seen)
        await turns(3)
    ((handled, given),) = seen
    assert isinstance(handled, ZeroDivisionError)
    assert handled is given
    assert sys.exc_info() == (None, None, None)


async def test_the_debug_log_of_a_lost_connection_has_its_error(loop, sockets):
    """With exc_info, where the exception handler is not called because it is the peer's doing."""
    records = []

    class Keeps(logging.Handler):
        def emit(self, record):
            records.append(record)

    logger, handler = logging.getLogger("asyncio"), Keeps(logging.DEBUG)
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG)
    try:
        async with wire(sockets) as (transport, protocol, peer):
            loop.set_debug(True)
            peer.reset()
            exc = await protocol.lost()
            loop.set_debug(False)
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)
    assert isinstance(exc, ConnectionError)
    (record,) = [r for r in records if "Fatal read error" in r.getMessage()]
    assert record.exc_info[1] is exc


# ---- __del__() called by hand


@pytest.mark.parametrize("inside", [False, True])
def test_a_transport_deleted_by_hand_ends_its_connection(loop, sockets, inside):
    """It warns and the peer sees the end, at once or with the loop's next turns; connection_lost() comes once."""

    class Deletes(Recorder):
        def data_received(self, data):
            super().data_received(data)
            if inside:
                self.transport.__del__()

    transport, protocol, peer = connect(loop, sockets, Deletes)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        if inside:
            peer.send(b"x")
            turn_until(loop, lambda: protocol.data)
        else:
            transport.__del__()
        turn(loop, 2)
    assert [w.category for w in said] == [ResourceWarning]
    assert peer.recv(9) == b""
    finish(loop, transport, protocol)


# ---- debug mode


@pytest.mark.parametrize(
    "method",
    [
        "connection_made",
        "data_received",
        "eof_received",
        "pause_writing",
        "resume_writing",
        "connection_lost",
        "get_buffer",
        "buffer_updated",
    ],
)
async def test_a_slow_protocol_is_logged_in_debug_mode_and_nothing_else(loop, sockets, log, method):
    """It costs a warning, not the connection."""
    base = Buffered if "buffer" in method else HalfOpen

    def slowly(self, *args):
        time.sleep(0.03)
        return getattr(base, method)(self, *args)

    loop.slow_callback_duration = 0.02
    async with wire(sockets, type("Slow", (base,), {method: slowly}), "unix") as (transport, protocol, peer):
        if method != "connection_made":  # that has been called by now
            loop.set_debug(True)
            await turns(2)
        peer.sock.send(b"x")
        await protocol.got(1)
        if method in ("pause_writing", "resume_writing"):
            transport.write(bytes(2 * MB))
            await peer.recv(2 * MB)
            await protocol.has("resume")
        assert not transport.is_closing()
        if method == "eof_received":
            peer.half_close()
            await protocol.has("eof")
        transport.close()
        assert await protocol.lost() is None
        await turns(2)
    loop.set_debug(False)
    await turns(1)  # this very step was begun in debug mode, and may be slow on a busy machine
    said = [record.getMessage() for record in log.take()]
    if method != "connection_made":
        assert said
    assert all(text.startswith("Executing ") and " took 0." in text for text in said), said


def test_a_slow_signal_handler_is_logged_by_its_name(loop, log):
    def slow_handler():
        time.sleep(0.03)
        loop.stop()

    loop.slow_callback_duration = 0.02
    loop.add_signal_handler(signal.SIGUSR1, slow_handler)
    loop.set_debug(True)
    loop.call_soon(os.kill, os.getpid(), signal.SIGUSR1)
    run_until_stopped(loop)
    loop.set_debug(False)
    loop.remove_signal_handler(signal.SIGUSR1)
    (record,) = log.take()
    assert "slow_handler()" in record.getMessage()
    assert "foreign" not in record.getMessage()


# ---- whose the descriptor is


async def test_nobodys_transport_at_its_end_gives_the_descriptor_back(loop, sockets):
    """After an end of file that eof_received() kept open nothing watches the socket: it goes with its last user."""
    listener = sockets.listener()
    made = []

    class Keeps(asyncio.Protocol):
        def connection_made(self, transport):
            self.transport = transport

        def eof_received(self):
            made.append(self.transport.get_extra_info("socket").fileno())
            return True

    server = await loop.create_server(Keeps, sock=listener)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        for n in range(1, 4):
            sockets.own(socket.create_connection(listener.getsockname())).close()
            await eventually(lambda n=n: len(made) == n)
        await turns(3)
        gc.collect()
        await turns(3)
        gc.collect()
        left = [fd for fd in made if is_open(fd)]
    server.close()
    assert left == []


@pytest.mark.parametrize("how", ["returns", "gives up"])
async def test_a_dropped_stream_gives_its_descriptor_back(loop, sockets, how):
    """A handler of start_server() that does not close, and a client that is gone."""
    listener, numbers = sockets.listener(), []

    async def handler(reader, writer):
        numbers.append(writer.get_extra_info("socket").fileno())
        await reader.read()
        if how == "gives up":
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(asyncio.sleep(100), 0.002)

    server = await asyncio.start_server(handler, sock=listener)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        for n in range(1, 4):
            sockets.own(socket.create_connection(listener.getsockname())).close()
            await eventually(lambda n=n: len(numbers) == n)
        await asyncio.sleep(0.01)
        gc.collect()
        await turns(3)
        gc.collect()
        left = [fd for fd in numbers if is_open(fd)]
    server.close()
    await turns(2)
    assert left == []


def test_closing_the_loop_leaves_a_given_socket_to_its_owner(new_loop, sockets):
    """Under an open transport, which warns when it is collected and closes the socket then."""
    loop = new_loop()
    transport, protocol, peer = connect(loop, sockets)
    ours = transport.get_extra_info("socket")._sock
    loop.close()
    assert ours.fileno() >= 0
    ours.send(b"still mine")
    assert peer.recv(99) == b"still mine"
    with pytest.warns(ResourceWarning, match="unclosed transport"):
        del transport, protocol
        gc.collect()
    assert ours.fileno() == -1
    assert peer.recv(9) == b""


async def test_a_transport_takes_the_descriptor_from_a_pending_sock_recv(loop, sockets):
    """The reader of sock_recv() is replaced: all bytes are the transport's, and cancelling the other is silent."""
    ours, theirs = sockets.pair()
    pending = asyncio.ensure_future(loop.sock_recv(ours, 9))
    await turns(2)
    transport, protocol = await loop.create_connection(Recorder, sock=ours)
    for n in range(1, 6):
        theirs.send(b"12")
        await protocol.got(2 * n)
    assert not pending.done()
    pending.cancel()
    await turns(2)
    assert pending.cancelled()
    theirs.send(b"34")
    assert await protocol.got(12) == b"12" * 5 + b"34"
    transport.close()
    await protocol.lost()
