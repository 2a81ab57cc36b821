"""WritePipeTransport: connect_write_pipe(), what the pipe takes and what waits, the reader's end, and ours."""

import array
import asyncio
import contextvars
import errno
import fcntl
import gc
import itertools
import logging
import os
import socket
import subprocess
import sys
import weakref

import pytest

from support.drive import eventually, run, run_until_stopped, turn, turns
from support.peers import KB, MB, is_open, pattern, same
from support.pipes import ENDS, Counting, ends, pair, pipe, take, text, writing
from support.protocols import Recorder

NOT_A_PIPE = "Pipe transport is only for pipes, sockets and character devices"


def fill(transport, extra=100 * KB):
    """Write until more than `extra` bytes wait; what was written."""
    written = bytearray()
    for number in range(1000):
        if transport.get_write_buffer_size() > extra:
            break
        chunk = pattern(50_000 + number)
        transport.write(chunk)
        written += chunk
    return bytes(written)


async def drain(end, count):
    """Take so many bytes as they come."""
    got = bytearray()
    while len(got) < count:
        got += await eventually(lambda: take(end))
    return bytes(got)


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


# ---- our end


@pytest.mark.parametrize("how", ["close", "write_eof"])
async def test_closing_sends_what_waits(loop, sockets, how):
    r, w = pipe(sockets)
    transport, protocol = await writing(w)
    data = fill(transport)
    getattr(transport, how)()
    assert transport.is_closing()
    transport.write(b"dropped")
    await turns(5)
    assert "lost" not in protocol.events
    same(await drain(r, len(data)), data)
    assert await protocol.lost() is None
    await turns(1)
    assert (take(r), w.closes) == (b"", ["open"])
    assert protocol.events == ["made", "pause", "resume", "lost"]
    for again in (transport.close, transport.write_eof):
        again()
    await turns(2)
    assert protocol.events.count("lost") == 1


async def test_aborting_drops_what_waits(loop, sockets):
    r, w = pipe(sockets)
    transport, protocol = await writing(w)
    data = fill(transport)
    waits = transport.get_write_buffer_size()
    transport.abort()
    assert (transport.get_write_buffer_size(), transport.is_closing()) == (0, True)
    assert await protocol.lost() is None
    await turns(1)
    same(await drain(r, len(data) - waits), data[: len(data) - waits])
    assert take(r) == b""


@pytest.mark.uvpy_only("asyncio loses the connection twice, the second time with an error")
async def test_ending_it_again_and_again(loop, sockets):
    for first, second in itertools.product(("close", "abort"), repeat=2):
        r, w = pipe(sockets)
        transport, protocol = await writing(w)
        await turns(1)
        getattr(transport, first)()
        getattr(transport, second)()
        r.close()
        await protocol.lost()
        await turns(3)
        getattr(transport, second)()
        await turns(2)
        assert protocol.events == ["made", "lost"]
        assert w.closes == ["open"]


@pytest.mark.parametrize(
    "what", ["made write", "made raise", "made forget"] + ["lost close", "lost write", "lost raise"]
)
async def test_what_a_method_does_to_the_transport(loop, sockets, errors, what):
    at, what = what.split()

    class Busy(Recorder):
        def _note(self, event):
            super()._note(event)
            if event == at:
                if what == "write":
                    self.transport.write(b"hello")
                elif what == "raise":
                    raise ValueError("on purpose")
                elif what == "forget":
                    self.transport = None
                    gc.collect()
                else:
                    self.transport.close()

    r, w = pipe(sockets)
    transport, protocol = await writing(w, Busy)
    await turns(2)
    if what == "write" and at == "made":
        assert take(r) == b"hello"
    transport.close()
    await protocol.lost()
    await turns(2)
    assert protocol.events == ["made", "lost"]
    assert len(errors.take()) == (1 if what == "raise" else 0)
    assert w.closes == ["open"]


@pytest.mark.uvpy_only("asyncio goes on to watch a descriptor that it closes")
@pytest.mark.parametrize("at", ["made", "lost"])
@pytest.mark.parametrize("how", ["close", "abort", "write_eof"])
async def test_ending_it_in_a_method(loop, sockets, at, how):
    class Busy(Recorder):
        def _note(self, event):
            super()._note(event)
            if event == at:
                getattr(self.transport, how)()

    r, w = pipe(sockets)
    _, protocol = await writing(w, Busy)
    await turns(2)
    r.close()
    assert await protocol.lost() is None
    await turns(2)
    assert protocol.events == ["made", "lost"]
    assert w.closes == ["open"]


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
@pytest.mark.parametrize("at", ["made", "lost"])
def test_what_ends_the_run(loop, sockets, at, error):
    class Bad(Recorder):
        def _note(self, event):
            super()._note(event)
            if event == at:
                raise error("on purpose")

    r, w = pipe(sockets)
    r.close()
    protocol = Bad()
    loop._make_write_pipe_transport(w, protocol)
    with pytest.raises(error, match="on purpose"):
        run_until_stopped(loop)
    turn(loop, 4)
    assert protocol.events == ["made", "lost"]
    assert w.closes == ["open"]


async def test_a_cancelled_connect_closes_the_file_once(loop, sockets):
    _, w = pipe(sockets)
    task = asyncio.ensure_future(writing(w))
    await turns(1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await turns(4)
    assert w.closes == ["open"]


def test_one_that_nobody_wants_warns_and_closes(loop, sockets):
    """A device is not watched for its reader's end, so nothing keeps its transport."""
    null = sockets.own(Counting("/dev/null", "wb"))
    transport, protocol = run(loop, writing(null))
    protocol.transport = None
    with pytest.warns(ResourceWarning, match=r"unclosed transport <\w*WritePipeTransport fd=\d+ idle bufsize=0>"):
        del transport
        gc.collect()
    assert null.closes == ["open"]


def test_the_loop_keeps_one_whose_reader_may_go(loop, sockets):
    r, w = pipe(sockets)
    transport, protocol = run(loop, writing(w))
    turn(loop, 1)
    ref = weakref.ref(transport)
    protocol.transport = None
    del transport
    gc.collect()
    assert ref() is not None
    r.close()
    run(loop, protocol.lost())
    turn(loop, 1)
    assert w.closes == ["open"]


def test_a_loop_closed_under_it(loop, sockets):
    r, w = pipe(sockets)
    transport, protocol = run(loop, writing(w))
    loop.close()
    assert text(transport) == "<Write fd=N open>"
    transport.write(b"to the last")
    assert take(r) == b"to the last"
    protocol.transport = None
    with pytest.warns(ResourceWarning, match="unclosed transport"):
        del transport
        gc.collect()
    assert w.closes == ["open"]


def test_a_file_closed_behind_its_back(loop, sockets):
    r, w = pipe(sockets)
    transport, protocol = run(loop, writing(w))
    w.close()
    assert take(r) == b""
    other, other_w = os.pipe()
    sockets.callback(os.close, other)
    sockets.callback(os.close, other_w)
    transport.close()
    run(loop, protocol.lost())
    turn(loop, 2)
    assert is_open(other) and is_open(other_w)


async def test_one_socket_for_reading_and_writing(loop, sockets):
    """Two descriptors of one socket: the writing side takes data for the end, the reading side delivers it."""
    a, b = pair(sockets)
    read_transport, reader = await loop.connect_read_pipe(Recorder, a)
    write_transport, writer = await writing(sockets.own(a.dup()))
    write_transport.write(b"out")
    assert b.recv(9) == b"out"
    b.sendall(b"in")
    await reader.got(2)
    assert await writer.lost() is None
    read_transport.close()
    await reader.lost()
    await turns(1)


async def test_datagrams_keep_their_borders(loop, sockets):
    a, b = sockets.pair(socket.AF_UNIX, socket.SOCK_DGRAM, blocking=True)
    transport, protocol = await writing(a)
    transport.write(b"one")
    transport.write(b"two")
    assert (b.recv(99), b.recv(99)) == (b"one", b"two")
    transport.close()
    await protocol.lost()
    await turns(1)


@pytest.mark.uvpy_only("asyncio leaves the description non-blocking")
@pytest.mark.parametrize("how", ["close", "flush", "abort", "reader", "loop"])
def test_o_nonblock_is_left_as_found(loop, sockets, how):
    r, w = pipe(sockets)
    twin = sockets.own(open(os.dup(w.fileno()), "wb", buffering=0))
    transport, protocol = run(loop, writing(w))
    assert not os.get_blocking(twin.fileno())
    if how == "loop":
        loop.close()
        assert os.get_blocking(twin.fileno())
        w.close()
        transport._pipe = None
        return
    if how == "flush":
        data = fill(transport)
        transport.close()
        run(loop, drain(r, len(data)))
    elif how == "reader":
        r.close()
    else:
        getattr(transport, how)()
    run(loop, protocol.lost())
    turn(loop, 1)
    assert os.get_blocking(twin.fileno())


@pytest.mark.uvpy_only("asyncio's loop would hang")
async def test_made_blocking_by_somebody_else(loop, sockets):
    """Another process that shares the description may make it blocking: the loop goes on."""
    r, w = pipe(sockets)
    transport, protocol = await writing(w)
    os.set_blocking(w.fileno(), True)
    data = fill(transport)
    same(await drain(r, len(data)), data)
    transport.close()
    await protocol.lost()


def test_under_optimisation_wrong_data_is_fatal(kind):
    """asyncio's assert is gone then."""
    code = (
        "import asyncio, os, sys\n"
        "if sys.argv[1] == 'uvpy': import uvpy; loop = uvpy.new_event_loop()\n"
        "else: loop = asyncio.SelectorEventLoop()\n"
        "loop.set_exception_handler(lambda loop, context: print(context['message']))\n"
        "r, w = os.pipe()\n"
        "async def main():\n"
        "    done = loop.create_future()\n"
        "    class P(asyncio.BaseProtocol):\n"
        "        def connection_lost(self, exc): done.set_result(exc)\n"
        "    t, p = await loop.connect_write_pipe(P, open(w, 'wb', 0))\n"
        "    t.write('text')\n"
        "    print(repr(await done))\n"
        "loop.run_until_complete(main()); loop.close()\n"
    )
    done = subprocess.run([sys.executable, "-O", "-c", code, kind], capture_output=True, text=True, timeout=30)
    assert done.stderr == ""
    assert done.stdout.splitlines() == [
        "Fatal write error on pipe transport",
        """TypeError("a bytes-like object is required, not 'str'")""",
    ]
