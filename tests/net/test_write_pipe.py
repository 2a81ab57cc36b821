"""WritePipeTransport: connect_write_pipe(), what the pipe takes and what waits, the reader's end, and ours."""

import array
import asyncio
import contextvars
import errno
import fcntl
import gc
import logging
import os
import re
import weakref

import pytest

from support.drive import run, turn, turns
from support.peers import KB, MB, pattern, same
from support.pipes import ENDS, Counting, drain, ends, fill, pair, pipe, take, text, writing
from support.protocols import Recorder

NOT_A_PIPE = "Pipe transport is only for pipes, sockets and character devices"


@pytest.mark.parametrize("what", ENDS)
async def test_a_write_leaves_at_once(loop, sockets, tmp_path, what):
    r, w = ends(sockets, what, tmp_path)
    transport, protocol = await writing(w)
    assert isinstance(transport, asyncio.WriteTransport)
    assert transport.get_extra_info("pipe") is w
    for data in (b"bytes", bytearray(b"array"), memoryview(b"xviewx")[1:-1], memoryview(b"a-b-c-")[::1]):
        transport.write(data)
        assert take(r) == bytes(data)
    transport.writelines([b"a", bytearray(b"b"), memoryview(b"c")])
    assert take(r) == b"abc"
    for nothing in (b"", bytearray(), memoryview(b"")):
        transport.write(nothing)
    assert take(r) is None
    assert transport.get_write_buffer_size() == 0
    transport.close()
    assert await protocol.lost() is None
    assert protocol.events == ["made", "lost"]
    await turns(1)
    assert take(r) == b""
    assert w.fileno() == -1 if what == "socket" else w.closes == ["open"]


async def test_what_is_no_bytes(loop, sockets):
    r, w = pipe(sockets)
    transport, protocol = await writing(w)
    for wrong in ("text", None, 5, [1], array.array("i", [1])):
        with pytest.raises(AssertionError) as caught:
            transport.write(wrong)
        assert str(caught.value) == repr(wrong)
    for wrong in ([b"a", "b"], [1]):
        with pytest.raises(TypeError, match="expected a bytes-like object"):
            transport.writelines(wrong)
    transport.write(b"still there")
    assert take(r) == b"still there"
    transport.close()
    await protocol.lost()


async def test_a_view_with_gaps_is_fatal(loop, sockets, errors):
    _, w = pipe(sockets)
    transport, protocol = await writing(w)
    transport.write(memoryview(b"abcdef")[::2])
    assert transport.is_closing()
    exc = await protocol.lost()
    assert isinstance(exc, BufferError)
    (context,) = errors.take()
    assert context == {
        "message": "Fatal write error on pipe transport",
        "exception": exc,
        "transport": transport,
        "protocol": protocol,
    }


async def test_a_view_with_gaps_behind_what_waits(loop, sockets):
    r, w = pipe(sockets)
    transport, protocol = await writing(w)
    data = fill(transport)
    with pytest.raises(TypeError, match="can't concat memoryview to bytearray"):
        transport.write(memoryview(b"abcdef")[::2])
    assert not transport.is_closing()
    same(await drain(r, len(data)), data)
    transport.close()
    await protocol.lost()


@pytest.mark.uvpy_only("asyncio takes items for bytes and spins")
async def test_a_view_of_wide_items(loop, sockets):
    r, w = pipe(sockets)
    transport, protocol = await writing(w)
    view = memoryview(array.array("i", range(100_000)))
    transport.write(view)
    transport.close()
    same(await drain(r, view.nbytes), view.tobytes())
    await protocol.lost()


async def test_methods_and_attributes(loop, sockets):
    _, w = pipe(sockets)
    transport, protocol = await writing(w)
    assert transport.can_write_eof() is True
    for name in ("pause_reading", "resume_reading", "is_reading"):
        with pytest.raises(NotImplementedError):
            getattr(transport, name)()
    assert (transport._pipe, transport._fileno, transport._protocol, transport._loop) == (w, w.fileno(), protocol, loop)
    assert (transport._closing, transport._conn_lost, transport._buffer) == (False, 0, bytearray())
    assert transport._extra == {"pipe": w}
    transport.note = 1
    assert weakref.ref(transport)().note == 1
    other = Recorder()
    transport.set_protocol(protocol=other)
    assert transport.get_protocol() is other
    transport.write(data=b"x")
    transport.close()
    await other.lost()
    await turns(1)
    assert (transport._pipe, transport._protocol, transport._loop) == (None, None, None)
    assert protocol.events == ["made"]


async def test_the_text(loop, sockets):
    _, w = pipe(sockets)
    transport, protocol = await writing(w)
    await turns(1)
    assert text(transport) == "<Write fd=N idle bufsize=0>"
    fill(transport)
    size = transport.get_write_buffer_size()
    assert text(transport) == f"<Write fd=N polling bufsize={size}>"
    transport.close()
    assert text(transport) == f"<Write closing fd=N polling bufsize={size}>"
    transport.abort()
    assert text(transport) == "<Write closing fd=N idle bufsize=0>"
    await protocol.lost()
    await turns(1)
    assert text(transport) == "<Write closed fd=N closed>"


@pytest.mark.parametrize("mode", ["wb", "r+b"])
async def test_a_file_is_refused_and_left_alone(loop, sockets, tmp_path, mode):
    (tmp_path / "file").touch()
    f = sockets.own(open(tmp_path / "file", mode, buffering=0))
    with pytest.raises(ValueError) as caught:
        await writing(f)
    assert str(caught.value) == NOT_A_PIPE
    gc.collect()
    f.write(b"still mine")
    assert os.get_blocking(f.fileno())


async def test_devices(loop, sockets):
    null = sockets.own(Counting("/dev/null", "wb"))
    transport, protocol = await writing(null)
    await turns(2)
    transport.write(bytes(MB))
    assert transport.get_write_buffer_size() == 0
    transport.write_eof()
    await protocol.lost()
    await turns(1)
    assert null.closes == ["open"]
    if os.path.exists("/dev/full"):
        full = sockets.own(Counting("/dev/full", "wb"))
        transport, protocol = await writing(full)
        transport.write(b"x")
        assert (await protocol.lost()).errno == errno.ENOSPC
        await turns(1)


# ---- the reader goes away


@pytest.mark.parametrize("what", ENDS)
async def test_the_readers_end_is_noticed(loop, sockets, tmp_path, what):
    r, w = ends(sockets, what, tmp_path)
    transport, protocol = await writing(w)
    await turns(3)
    assert protocol.events == ["made"]
    r.close()
    assert await protocol.lost() is None
    assert protocol.events == ["made", "lost"]
    await turns(1)
    assert transport._pipe is None


@pytest.mark.parametrize("closing", [False, True])
@pytest.mark.parametrize("what", ENDS)
async def test_the_readers_end_while_something_waits(loop, sockets, tmp_path, what, closing):
    r, w = ends(sockets, what, tmp_path)
    transport, protocol = await writing(w)
    await turns(2)
    fill(transport)
    if closing:
        transport.close()
        await turns(2)
    r.close()
    exc = await protocol.lost()
    assert isinstance(exc, BrokenPipeError) and exc.args == ()
    assert transport.get_write_buffer_size() == 0
    await turns(1)


def test_the_readers_end_after_a_close_before_the_first_turn(loop, sockets):
    """What waits keeps the watch for the reader's end, though closing was asked for before it began."""
    r, w = pipe(sockets)
    protocol = Recorder()
    transport = loop._make_write_pipe_transport(w, protocol)
    fill(transport)
    transport.close()
    turn(loop, 2)
    r.close()
    run(loop, protocol.lost())
    assert protocol.exc.args == ()
    assert transport._conn_lost == 0
    turn(loop, 1)


async def test_what_the_reader_of_a_socket_says_ends_it(loop, sockets):
    """A write pipe does not read: that there is something to read stands for the end."""
    a, b = pair(sockets)
    _, protocol = await writing(a)
    b.sendall(b"hello")
    assert await protocol.lost() is None
    await turns(1)


async def test_the_reader_has_gone_before(loop, sockets):
    r, w = pipe(sockets)
    r.close()
    transport, protocol = await writing(w)
    assert await protocol.lost() is None
    await turns(1)
    assert transport.is_closing()


async def test_a_failed_write_is_silent_then_warned_of(loop, sockets, log):
    r, w = pipe(sockets)
    transport, protocol = await writing(w)
    r.close()
    transport.write(b"x")
    assert (transport._conn_lost, transport.is_closing()) == (1, True)
    for count in range(2, 6):
        transport.write(b"x")
        assert transport._conn_lost == count
    assert log.take() == []
    transport.write(b"x")
    exc = await protocol.lost()
    assert type(exc) is BrokenPipeError and exc.errno == errno.EPIPE
    await turns(1)
    transport.write(b"")
    transport.write(b"x")
    records = log.take()
    assert [rec.getMessage() for rec in records] == [
        "pipe closed by peer or os.write(pipe, data) raised exception."
    ] * 2
    assert {(rec.name, rec.levelname) for rec in records} == {("asyncio", "WARNING")}
    assert protocol.events == ["made", "lost"]


async def test_writes_after_the_close_are_counted(loop, sockets, log):
    r, w = pipe(sockets)
    transport, protocol = await writing(w)
    transport.close()
    for count in range(1, 6):
        transport.write(b"x")
        assert transport._conn_lost == count
    assert log.take() == []
    transport.write(b"x")
    assert len(log.take()) == 1
    await protocol.lost()
    await turns(1)
    assert take(r) == b""


async def test_the_debug_log(loop, sockets, caplog):
    caplog.set_level(logging.DEBUG, "asyncio")
    loop.set_debug(True)
    r, w = pipe(sockets)
    transport, protocol = await writing(w)
    r.close()
    transport.write(b"x")
    await protocol.lost()
    r2, w2 = pipe(sockets)
    _, protocol = await writing(w2)
    r2.close()
    await protocol.lost()
    ours = [rec for rec in caplog.records if "PipeTransport" in rec.getMessage() and "connected" not in rec.msg]
    assert [(rec.levelname, rec.msg) for rec in ours] == [("DEBUG", "%r: %s"), ("INFO", "%r was closed by peer")]
    assert ours[0].args[1] == "Fatal write error on pipe transport"
    assert ours[0].exc_info[0] is BrokenPipeError
    await turns(1)


# ---- what waits


async def test_back_pressure(loop, sockets):
    r, w = pipe(sockets)
    transport, protocol = await writing(w)
    data = pattern(MB)
    transport.write(data)
    assert protocol.events == ["made", "pause"]
    assert transport._protocol_paused
    size = transport.get_write_buffer_size()
    assert size == MB - fcntl.fcntl(w.fileno(), fcntl.F_GETPIPE_SZ)
    same(bytes(transport._buffer), data[-size:])
    got = bytearray()
    while transport.get_write_buffer_size():
        assert protocol.events == ["made", "pause"], "it is resumed when all is sent, not before"
        got += take(r) or b""
        await turns(1)
    assert protocol.events == ["made", "pause", "resume"]
    same(bytes(got) + await drain(r, MB - len(got)), data)
    transport.close()
    await protocol.lost()


async def test_what_is_written_is_taken_as_it_was(loop, sockets):
    r, w = pipe(sockets)
    transport, protocol = await writing(w)
    first = fill(transport)
    second = bytearray(pattern(9000))
    view = bytearray(pattern(8000))
    transport.write(second)
    transport.write(memoryview(view)[100:])
    expected = first + bytes(second) + bytes(view[100:])
    second[:] = bytes(len(second))
    view[:] = bytes(len(view))
    del second[10:]
    same(await drain(r, len(expected)), expected)
    transport.close()
    await protocol.lost()


async def test_thousands_of_small_writes_that_wait(loop, sockets):
    r, w = pipe(sockets)
    transport, protocol = await writing(w)
    expected = fill(transport)
    for i in range(5000):
        transport.write(b"%d," % i)
        expected += b"%d," % i
    transport.close()
    same(await drain(r, len(expected)), expected)
    assert await protocol.lost() is None


async def test_both_ends_in_one_loop(loop, sockets):
    r, w = pipe(sockets)
    _, reader = await loop.connect_read_pipe(Recorder, r)
    transport, protocol = await writing(w)
    data = pattern(3 * MB)
    for start in range(0, len(data), 300_000):
        transport.write(data[start : start + 300_000])
    transport.close()
    await reader.lost()
    same(bytes(reader.data), data)
    await protocol.lost()


async def test_the_marks(loop, sockets):
    _, w = pipe(sockets)
    transport, protocol = await writing(w)
    assert transport.get_write_buffer_limits() == (16 * KB, 64 * KB)
    for given, marks in [
        ({"high": 1000}, (250, 1000)),
        ({"low": 10}, (10, 40)),
        ({"high": 0}, (0, 0)),
        ({}, (16 * KB, 64 * KB)),
    ]:
        transport.set_write_buffer_limits(**given)
        assert transport.get_write_buffer_limits() == marks
    with pytest.raises(ValueError, match=r"high \(1\) must be >= low \(2\) must be >= 0"):
        transport.set_write_buffer_limits(1, 2)
    for given, error, words in [
        ({"high": "x"}, TypeError, "unsupported operand type(s) for //: 'str' and 'int'"),
        ({"high": 1, "low": "x"}, TypeError, "'>=' not supported between instances of 'int' and 'str'"),
        ({"high": float("nan")}, ValueError, "high (nan) must be >= low (nan) must be >= 0"),
        ({"high": float("inf")}, ValueError, "high (inf) must be >= low (nan) must be >= 0"),
        ({"high": -(2**70)}, ValueError, f"high ({-(2**70)}) must be >= low ({-(2**68)}) must be >= 0"),
        ({"low": -1.5}, ValueError, "high (-6.0) must be >= low (-1.5) must be >= 0"),
    ]:
        with pytest.raises(error, match=f"^{re.escape(words)}$"):
            transport.set_write_buffer_limits(**given)
    transport.set_write_buffer_limits(high=2**70)
    transport.set_write_buffer_limits(high=10 * MB)
    fill(transport)
    assert protocol.events == ["made"]
    transport.set_write_buffer_limits(high=0)
    assert protocol.events == ["made", "pause"]
    transport.abort()
    await protocol.lost()
    assert protocol.events == ["made", "pause", "lost"]


async def test_what_pause_writing_raises(loop, sockets, errors):
    class Bad(Recorder):
        def pause_writing(self):
            super().pause_writing()
            raise ValueError("on purpose")

        def resume_writing(self):
            super().resume_writing()
            raise ValueError("on purpose")

    r, w = pipe(sockets)
    transport, protocol = await writing(w, Bad)
    data = fill(transport)
    await drain(r, len(data))
    await protocol.has("resume")
    first, second = errors.take()
    for context, name in ((first, "pause"), (second, "resume")):
        assert context["message"] == f"protocol.{name}_writing() failed"
        assert (context["transport"], context["protocol"]) == (transport, protocol)
    transport.close()
    await protocol.lost()


def test_resume_writing_ends_the_run(loop, sockets):
    class Bad(Recorder):
        def resume_writing(self):
            super().resume_writing()
            raise KeyboardInterrupt("on purpose")

    r, w = pipe(sockets)
    transport, protocol = run(loop, writing(w, Bad))
    data = fill(transport)
    taken = 0
    with pytest.raises(KeyboardInterrupt, match="on purpose"):
        while taken < len(data):
            taken += len(take(r) or b"")
            turn(loop)
        turn(loop, 3)
    transport.write(b"more")
    assert transport.get_write_buffer_size() == 0
    transport.close()
    run(loop, protocol.lost())


@pytest.mark.parametrize("what", ["write", "close", "abort"])
async def test_what_resume_writing_does(loop, sockets, errors, what):
    class Busy(Recorder):
        def resume_writing(self):
            super().resume_writing()
            if what == "write":
                self.transport.write(b"more")
            elif what == "close":
                self.transport.close()
            else:
                self.transport.abort()

    r, w = pipe(sockets)
    transport, protocol = await writing(w, Busy)
    data = fill(transport) + (b"more" if what == "write" else b"")
    same(await drain(r, len(data)), data)
    await protocol.has("resume")
    if what == "write":
        transport.close()
    assert await protocol.lost() is None
    await turns(3)
    assert protocol.events == ["made", "pause", "resume", "lost"]
    errors.take()  # stock calls connection_lost() of a transport that it has lost already
    assert w.closes == ["open"]


async def test_contexts(loop, sockets):
    var = contextvars.ContextVar("var", default="unset")

    class InContext(Recorder):
        def _note(self, event):
            super()._note((event, var.get()))

    r, w = pipe(sockets)
    var.set("connect")
    transport, protocol = await writing(w, InContext)
    await turns(1)
    var.set("write")
    data = fill(transport)
    var.set("close")
    transport.close()
    await drain(r, len(data))
    await protocol.has(("lost", "write"))
    r, w = pipe(sockets)
    var.set("connect")
    _, protocol = await writing(w, InContext)
    await turns(1)
    var.set("later")
    r.close()
    await protocol.has(("lost", "connect"))
    assert protocol.events[0] == ("made", "connect")
    await turns(1)
