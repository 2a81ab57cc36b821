"""ReadPipeTransport: errors of reading, who closes the file, and what becomes of O_NONBLOCK."""

import asyncio
import errno
import gc
import logging
import os
import socket
import struct

import pytest

from support.drive import run, turn, turns
from support.peers import is_open
from support.pipes import pipe, reading, text

NOT_A_PIPE = "Pipe transport is for pipes/sockets only."


# ---- errors of reading


@pytest.mark.parametrize(("args", "named"), [((None,), {}), ((OSError("it"),), {}), ((), {"exc": OSError("it")})])
async def test_the_private_close_as_asyncio_has_it(loop, sockets, args, named):
    r, _w = pipe(sockets)
    transport, protocol = await reading(r)
    with pytest.raises(TypeError, match=r"missing .*: 'exc'"):
        transport._close()
    transport._close(*args, **named)
    assert await protocol.lost() is (*args, *named.values())[0]


async def test_a_reset_is_reported_and_ends_it(loop, sockets, errors):
    a, b = sockets.pair(tcp=True)
    transport, protocol = await reading(a)
    b.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    b.close()
    exc = await protocol.lost()
    assert isinstance(exc, ConnectionResetError)
    (context,) = errors.take()
    assert context == {
        "message": "Fatal read error on pipe transport",
        "exception": exc,
        "transport": transport,
        "protocol": protocol,
    }
    assert protocol.events == ["made", "lost"]
    await turns(1)


async def test_a_descriptor_that_cannot_be_read(loop, sockets, errors):
    """The writing end of a pipe as a read pipe: an error once there is something to see."""
    r, w = pipe(sockets)
    transport, protocol = await reading(w)
    r.close()
    exc = await protocol.lost()
    assert exc.errno == errno.EBADF
    assert errors.take()[0]["message"] == "Fatal read error on pipe transport"
    await turns(1)


async def test_the_debug_log(loop, sockets, caplog):
    caplog.set_level(logging.DEBUG, "asyncio")
    loop.set_debug(True)
    r, w = pipe(sockets)
    transport, protocol = await reading(r)
    transport.pause_reading()
    transport.resume_reading()
    w.close()
    await protocol.lost()
    ours = [rec for rec in caplog.records if "PipeTransport" in rec.getMessage() and "connected" not in rec.msg]
    assert [(rec.levelname, rec.msg) for rec in ours] == [
        ("DEBUG", "%r pauses reading"),
        ("DEBUG", "%r resumes reading"),
        ("INFO", "%r was closed by peer"),
    ]
    await turns(1)


# ---- who closes the file


async def test_a_cancelled_connect_closes_the_file_once(loop, sockets):
    r, _ = pipe(sockets)
    task = asyncio.ensure_future(reading(r))
    await turns(1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await turns(4)
    assert r.closes == ["open"]


def test_one_that_nobody_wants_warns_and_closes(loop, sockets):
    r, _ = pipe(sockets)
    transport, protocol = run(loop, reading(r))
    transport.pause_reading()
    protocol.transport = None
    with pytest.warns(ResourceWarning, match=r"unclosed transport <\w*ReadPipeTransport fd=\d+ idle>"):
        del transport
        gc.collect()
    assert r.closes == ["open"]


def test_a_loop_closed_under_it(loop, sockets):
    r, _ = pipe(sockets)
    transport, protocol = run(loop, reading(r))
    loop.close()
    assert text(transport) == "<Read fd=N open>"
    assert r.closes == []
    protocol.transport = None
    with pytest.warns(ResourceWarning, match="unclosed transport"):
        del transport
        gc.collect()
    assert r.closes == ["open"]


def test_closing_after_the_loop(loop, sockets):
    r, _ = pipe(sockets)
    transport, _protocol = run(loop, reading(r))
    loop.close()
    with pytest.raises(RuntimeError, match="Event loop is closed"):
        transport.close()
    r.close()
    transport._pipe = None
    assert text(transport) == "<Read closing fd=N closed>".replace("closing", "closed")


def test_a_file_closed_behind_its_back(loop, sockets):
    """Whoever gets its number is left alone."""
    r, w = pipe(sockets)
    transport, protocol = run(loop, reading(r))
    r.close()
    other, other_w = os.pipe()
    sockets.callback(os.close, other)
    sockets.callback(os.close, other_w)
    transport.close()
    run(loop, protocol.lost())
    turn(loop, 2)
    assert is_open(other)
    w.close()


@pytest.mark.uvpy_only("asyncio leaves the description non-blocking")
@pytest.mark.parametrize("how", ["close", "end", "drop", "loop", "cancel"])
def test_o_nonblock_is_left_as_found(loop, sockets, how):
    r, w = pipe(sockets)
    twin = sockets.own(open(os.dup(r.fileno()), "rb", buffering=0))
    if how == "cancel":

        async def cancelled():
            task = asyncio.ensure_future(reading(r))
            await turns(1)
            task.cancel()
            await asyncio.wait([task])
            await turns(3)

        run(loop, cancelled())
        assert os.get_blocking(twin.fileno())
        return
    transport, protocol = run(loop, reading(r))
    assert not os.get_blocking(twin.fileno())
    if how == "close":
        transport.close()
        run(loop, protocol.lost())
    elif how == "end":
        w.close()
        run(loop, protocol.lost())
    elif how == "loop":
        loop.close()
        assert os.get_blocking(twin.fileno())
    if how in ("drop", "loop"):
        if how == "drop":
            transport.pause_reading()
        protocol.transport = None
        with pytest.warns(ResourceWarning):
            del transport
            gc.collect()
    else:
        turn(loop, 1)
    assert os.get_blocking(twin.fileno())


def test_non_blocking_stays_non_blocking(loop, sockets):
    r, _ = pipe(sockets)
    os.set_blocking(r.fileno(), False)
    twin = sockets.own(open(os.dup(r.fileno()), "rb", buffering=0))
    transport, protocol = run(loop, reading(r))
    transport.close()
    run(loop, protocol.lost())
    turn(loop, 1)
    assert not os.get_blocking(twin.fileno())


@pytest.mark.uvpy_only("asyncio's loop would hang")
async def test_made_blocking_by_somebody_else(loop, sockets):
    """Another process that shares the description may make it blocking: the loop goes on."""
    r, w = pipe(sockets)
    transport, protocol = await reading(r)
    os.set_blocking(r.fileno(), True)
    w.write(b"x")
    await protocol.got(1)
    transport._read_ready()  # nothing is there
    w.write(b"y")
    await protocol.got(2)
    transport.close()
    await protocol.lost()
