"""WritePipeTransport: its own end, who closes the file, shared descriptors, and what becomes of O_NONBLOCK."""

import asyncio
import gc
import itertools
import os
import socket
import subprocess
import sys
import weakref

import pytest

from support.drive import run, run_until_stopped, turn, turns
from support.peers import is_open, same
from support.pipes import Counting, drain, fill, pair, pipe, take, text, writing
from support.protocols import Recorder

NOT_A_PIPE = "Pipe transport is only for pipes, sockets and character devices"


# ---- our end


@pytest.mark.parametrize(
    ("args", "named"), [((), {}), ((None,), {}), ((OSError("it"),), {}), ((), {"exc": OSError("it")})]
)
async def test_the_private_close_as_asyncio_has_it(loop, sockets, args, named):
    """With or without an exception, by its name too: subclasses and wrappers of transports call it."""
    r, w = pipe(sockets)
    transport, protocol = await writing(w)
    fill(transport)
    transport._close(*args, **named)
    expected = (*args, *named.values(), None)[0]
    assert await protocol.lost() is expected
    with pytest.raises(TypeError, match="positional argument"):
        transport._close(None, None)
    r.close()


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
