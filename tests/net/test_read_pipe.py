"""ReadPipeTransport: connect_read_pipe() on whatever can be read, and the end of it."""

import asyncio
import contextlib
import contextvars
import errno
import gc
import os
import socket
import weakref

import pytest

from support.drive import eventually, run_until_stopped, turn, turns
from support.peers import KB, is_open, pattern, same
from support.pipes import ENDS, Counting, ends, pipe, put, reading, text
from support.protocols import Buffered, HalfOpen, Recorder

NOT_A_PIPE = "Pipe transport is for pipes/sockets only."


@pytest.mark.parametrize("what", ENDS)
async def test_data_and_the_end(loop, sockets, tmp_path, what):
    r, w = ends(sockets, what, tmp_path)
    transport, protocol = await reading(r)
    assert isinstance(transport, asyncio.ReadTransport)
    assert not isinstance(transport, asyncio.WriteTransport)
    assert transport.get_extra_info("pipe") is r
    assert transport.get_extra_info("socket", "none") == "none"
    assert transport.get_protocol() is protocol
    put(w, b"one")
    assert await protocol.got(3) == b"one"
    put(w, b"two")
    assert await protocol.got(6) == b"onetwo"
    w.close()
    assert await protocol.lost() is None
    assert protocol.order() == ["made", "data", "eof", "lost"]
    await turns(1)
    assert r.fileno() == -1 if what == "socket" else (r.closed, r.closes) == (True, ["open"])


async def test_what_eof_received_gives_is_not_asked_for(loop, sockets):
    r, w = pipe(sockets)
    transport, protocol = await reading(r, HalfOpen)
    w.close()
    await protocol.lost()
    assert protocol.events == ["made", "eof", "lost"]
    assert transport.is_closing()


async def test_methods_and_attributes(loop, sockets):
    r, _ = pipe(sockets)
    transport, protocol = await reading(r)
    assert not hasattr(transport, "abort") and not hasattr(transport, "write")
    assert transport.max_size == 256 * KB
    assert (transport._pipe, transport._fileno, transport._protocol, transport._loop) == (r, r.fileno(), protocol, loop)
    assert transport._extra == {"pipe": r}
    assert (transport._closing, transport._paused) == (False, False)
    transport.note = 1
    assert weakref.ref(transport)().note == 1
    other = Recorder()
    transport.set_protocol(protocol=other)
    assert transport.get_protocol() is other
    fd = r.fileno()
    transport.close()
    assert (transport._closing, transport._loop, transport._pipe) == (True, loop, r)
    await other.lost()
    await turns(1)
    assert (transport._pipe, transport._protocol, transport._loop, transport._fileno) == (None, None, None, fd)
    assert transport.get_extra_info("pipe") is r


async def test_extra_is_the_callers_own(loop, sockets):
    r, _ = pipe(sockets)
    extra, waiter, protocol = {"a": 1}, loop.create_future(), Recorder()
    transport = loop._make_read_pipe_transport(r, protocol, waiter, extra=extra)
    await waiter
    assert extra == {"a": 1, "pipe": r}
    assert transport._extra is extra
    transport.close()
    await protocol.lost()


async def test_the_text(loop, sockets):
    r, _ = pipe(sockets)
    transport, protocol = await reading(r)
    await turns(1)
    assert text(transport) == "<Read fd=N polling>"
    transport.pause_reading()
    assert text(transport) == "<Read fd=N idle>"
    transport.close()
    assert text(transport) == "<Read closing fd=N idle>"
    await protocol.lost()
    await turns(1)
    assert text(transport) == "<Read closed fd=N closed>"


# ---- what is no pipe


@pytest.mark.parametrize("what", ["file", "directory"])
async def test_what_is_no_pipe_is_refused_and_left_alone(loop, sockets, tmp_path, what):
    if what == "file":
        f = sockets.own(open(tmp_path / "file", "w+b"))
    else:

        class Directory:
            def __init__(self):
                self.fd = os.open(tmp_path, os.O_RDONLY)

            def fileno(self):
                return self.fd

            def close(self):
                os.close(self.fd)
                self.fd = -1

        f = sockets.own(Directory())
    fd = f.fileno()
    with pytest.raises(ValueError) as caught:
        await reading(f)
    assert str(caught.value) == NOT_A_PIPE
    gc.collect()
    assert is_open(fd) and os.get_blocking(fd)


@pytest.mark.parametrize("what", [5, None, "pipe", object()])
async def test_what_has_no_descriptor(loop, unraisable, what):
    with pytest.raises(AttributeError, match="fileno"):
        await reading(what)
    gc.collect()
    unraisable.take()  # stock: of a finalizer that looks for what was not set yet


async def test_a_number_that_means_nothing(loop, unraisable):
    class Wrong:
        closed = 0

        def fileno(self):
            return 2**20

        def close(self):
            self.closed += 1

    wrong = Wrong()
    with pytest.warns(ResourceWarning, match="unclosed transport"):
        with pytest.raises(OSError) as caught:
            await reading(wrong)
        assert caught.value.errno == errno.EBADF
        del caught
        gc.collect()
    assert wrong.closed == 1
    wrong.fileno = lambda: 2**40
    with pytest.raises(OverflowError):
        loop._make_read_pipe_transport(wrong, Recorder())
    gc.collect()
    unraisable.take()  # stock: the warning of its finalizer


async def test_what_the_kernel_cannot_watch(loop, sockets, errors):
    """epoll refuses /dev/null: in the callback that begins to read, and in resume_reading()."""
    null = sockets.own(Counting("/dev/null", "rb"))
    transport, protocol = await reading(null)
    await turns(2)
    (context,) = errors.take()
    assert isinstance(context["exception"], PermissionError)
    assert context["message"].startswith("Exception in callback ")
    assert protocol.events == ["made"]
    assert transport.is_reading()
    transport.pause_reading()
    with pytest.raises(PermissionError):
        transport.resume_reading()
    assert transport.is_reading()
    transport.close()
    assert await protocol.lost() is None
    await turns(1)
    assert null.closes == ["open"]


async def test_a_protocol_without_methods(loop, sockets):
    r, _ = pipe(sockets)
    with pytest.warns(ResourceWarning, match="unclosed transport"):
        with pytest.raises(AttributeError, match="connection_made"):
            await reading(r, object)
        gc.collect()
    assert r.closes == ["open"]


# ---- reading


async def test_no_more_than_256_kib_at_once(loop, sockets):
    class Sizes(Recorder):
        def __init__(self):
            super().__init__()
            self.sizes = []

        def data_received(self, data):
            self.sizes.append(len(data))
            super().data_received(data)

    a, b = sockets.pair()
    for sock in (a, b):
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 2000 * KB)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2000 * KB)
    sent = b.send(pattern(400 * KB))
    if sent <= 256 * KB:
        pytest.skip("the kernel's buffers are small here")
    transport, protocol = await reading(a, Sizes)
    same(await protocol.got(sent), pattern(400 * KB)[:sent])
    assert protocol.sizes[0] == 256 * KB
    transport.close()
    await protocol.lost()


async def test_pausing(loop, sockets):
    r, w = pipe(sockets)
    transport, protocol = await reading(r)
    for _ in range(2):
        transport.pause_reading()
        assert not transport.is_reading() and transport._paused
    w.write(b"data")
    await turns(5)
    assert protocol.events == ["made"]
    for _ in range(2):
        transport.resume_reading()
        assert transport.is_reading()
    await protocol.got(4)
    transport.pause_reading()
    w.close()
    await turns(5)
    assert protocol.events == ["made", "data"]
    transport.resume_reading()
    await protocol.lost()
    transport.pause_reading()
    transport.resume_reading()
    assert not transport.is_reading()


async def test_pausing_in_connection_made(loop, sockets):
    class Paused(Recorder):
        def connection_made(self, transport):
            super().connection_made(transport)
            transport.pause_reading()

    r, w = pipe(sockets)
    w.write(b"x")
    transport, protocol = await reading(r, Paused)
    await turns(5)
    assert protocol.events == ["made"]
    transport.resume_reading()
    await protocol.got(1)
    transport.close()
    await protocol.lost()


async def test_pausing_between_ready_and_read(loop, sockets):
    """What the poll found readable and a callback before it pauses is not read."""
    r, w = pipe(sockets)
    transport, protocol = await reading(r)
    await turns(2)
    r2, w2 = pipe(sockets)

    class First(Recorder):
        def data_received(self, data):
            super().data_received(data)
            transport.pause_reading()

    other, first = await reading(r2, First)
    await turns(2)
    w2.write(b"1")
    w.write(b"2")
    await first.got(1)
    seen = bytes(protocol.data)
    await turns(5)
    assert bytes(protocol.data) == seen
    transport.resume_reading()
    await protocol.got(1)
    for t, p in ((transport, protocol), (other, first)):
        t.close()
        await p.lost()


async def test_a_reader_of_the_programs_own_takes_our_place(loop, sockets):
    """add_reader() does not refuse a pipe's descriptor; pausing removes whoever reads there."""
    r, w = pipe(sockets)
    transport, protocol = await reading(r)
    await turns(2)
    seen = []
    loop.add_reader(r.fileno(), lambda: seen.append(os.read(r.fileno(), 9)))
    w.write(b"x")
    await eventually(lambda: seen)
    assert protocol.events == ["made"]
    transport.pause_reading()
    assert not loop.remove_reader(r.fileno())
    transport.resume_reading()
    w.write(b"y")
    assert await protocol.got(1) == b"y"
    transport.close()
    await protocol.lost()


async def test_a_stream_reader(loop, sockets):
    r, w = pipe(sockets)
    reader = asyncio.StreamReader()
    await reading(r, lambda: asyncio.StreamReaderProtocol(reader))
    w.write(b"one\ntw")
    assert await reader.readline() == b"one\n"
    w.write(b"o\n")
    w.close()
    assert [await reader.readline(), await reader.read()] == [b"two\n", b""]
    await turns(3)


async def test_a_buffered_protocol_is_not_served(loop, sockets, errors):
    r, w = pipe(sockets)
    transport, protocol = await reading(r, Buffered)
    w.write(b"x")
    await eventually(lambda: errors.entries)
    (context,) = errors.take()
    assert isinstance(context["exception"], AttributeError)
    transport.close()
    await protocol.lost()


async def test_contexts(loop, sockets):
    """data_received() runs in the context of the connect, or of the last resume_reading()."""
    var = contextvars.ContextVar("var", default="unset")

    class InContext(Recorder):
        def __init__(self):
            super().__init__()
            self.seen = []

        def data_received(self, data):
            self.seen.append(var.get())
            super().data_received(data)

        def connection_lost(self, exc):
            self.seen.append(var.get())
            super().connection_lost(exc)

    r, w = pipe(sockets)
    var.set("connect")
    transport, protocol = await reading(r, InContext)
    var.set("later")
    w.write(b"1")
    await protocol.got(1)
    transport.pause_reading()
    var.set("resume")
    transport.resume_reading()
    var.set("close")
    w.write(b"2")
    await protocol.got(2)
    transport.close()
    await protocol.lost()
    assert protocol.seen == ["connect", "resume", "close"]


# ---- protocol methods that misbehave


class Failing(Recorder):
    """Raises in the method named by `at`, after having noted it."""

    at, error = "", ValueError

    def _note(self, event):
        super()._note(event)
        if event == self.at:
            raise self.error("on purpose")


@pytest.mark.parametrize("at", ["made", "data", "eof", "lost"])
async def test_what_a_method_raises_is_reported_as_a_callbacks(loop, sockets, errors, at):
    class Bad(Failing):
        pass

    Bad.at = at
    r, w = pipe(sockets)
    transport, protocol = await reading(r, Bad)
    w.write(b"1")
    await protocol.got(1)
    w.write(b"2")
    await protocol.got(2)
    w.close()
    assert await protocol.lost() is None
    await turns(1)
    assert protocol.order() == ["made", "data", "eof", "lost"]
    contexts = errors.take()
    assert len(contexts) == (2 if at == "data" else 1)
    for context in contexts:
        assert isinstance(context["exception"], ValueError)
        assert set(context) == {"message", "exception", "handle"}
        assert context["message"].startswith("Exception in callback ")
    assert r.closes == ["open"]


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
@pytest.mark.parametrize("at", ["made", "data", "eof", "lost"])
def test_what_ends_the_run(loop, sockets, at, error):
    """The next run goes on where the last one was left."""

    class Bad(Failing):
        pass

    Bad.at, Bad.error = at, error
    r, w = pipe(sockets)
    w.write(b"1")
    w.close()
    protocol = Bad()
    transport = loop._make_read_pipe_transport(r, protocol)
    with pytest.raises(error, match="on purpose"):
        run_until_stopped(loop)
    Bad.at = ""
    turn(loop, 4)
    assert protocol.events == ["made", "data", "eof", "lost"]
    assert transport._pipe is None and r.closes == ["open"]


@pytest.mark.parametrize("at", ["made", "data", "eof", "lost"])
@pytest.mark.parametrize("what", ["close", "pause", "resume", "swap", "forget"])
async def test_what_a_method_does_to_the_transport(loop, sockets, at, what):
    class Busy(Recorder):
        def _note(self, event):
            super()._note(event)
            if event == at:
                if what == "close":
                    self.transport.close()
                elif what == "pause":
                    self.transport.pause_reading()
                    self.transport.resume_reading()
                elif what == "resume":
                    self.transport.resume_reading()
                elif what == "swap":
                    self.transport.set_protocol(other)
                else:
                    self.transport = None
                    gc.collect()

    other = Recorder()
    r, w = pipe(sockets)
    transport, protocol = await reading(r, Busy)
    ref = weakref.ref(transport)
    del transport
    with contextlib.suppress(BrokenPipeError):
        w.write(b"1")
        await turns(3)
        w.write(b"2")
    await turns(3)
    w.close()
    await eventually(lambda: "lost" in protocol.events + other.events)
    await turns(2)
    events = protocol.events + other.events
    assert events.count("lost") == 1 and events[-1] == "lost"
    assert r.closes == ["open"]
    if what == "close" and at in ("made", "data"):
        assert "eof" not in events
    protocol.transport = other.transport = None
    await turns(1)
    gc.collect()
    assert ref() is None


async def test_closing(loop, sockets):
    r, w = pipe(sockets)
    transport, protocol = await reading(r)
    w.write(b"never read")
    transport.close()
    transport.close()
    assert transport.is_closing() and not transport.is_reading()
    assert protocol.events == ["made"] and r.closes == []
    assert await protocol.lost() is None
    await turns(3)
    transport.close()
    await turns(3)
    assert protocol.events == ["made", "lost"] and r.closes == ["open"]


@pytest.mark.filterwarnings("ignore:unclosed transport:ResourceWarning")
@pytest.mark.parametrize("number", [2**31, 2**70])
async def test_a_number_that_is_no_descriptor(loop, number):
    class NoFile:
        def fileno(self):
            return number

        def close(self):
            pass

    with pytest.raises(OverflowError, match=r"^Python int too large to convert to C int$"):
        await loop.connect_read_pipe(asyncio.Protocol, NoFile())
    gc.collect()
