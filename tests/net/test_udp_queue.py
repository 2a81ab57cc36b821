"""Datagrams that the kernel refuses for now: what is kept, counted, told to the protocol, sent at last, or dropped."""

import asyncio
import contextvars
import gc
import os
import socket
import sys

import pytest

from support.datagrams import Datagrams, drain, endpoint, jam, nowhere, queue
from support.drive import eventually, turns

HEADER = 8 if sys.version_info >= (3, 13) else 0
# Up to here stock asyncio takes only the data off its count of what it has sent, where it put the header on, too.
HEADERS_STAY = {"since": (3, 13), "until": (3, 14)}


async def test_what_is_kept_is_sent_in_order(loop, sockets, tmp_path):
    ours, theirs = queue(sockets, tmp_path)
    async with endpoint(sock=ours) as (transport, protocol):
        count = jam(transport)
        for i in range(count, count + 100):
            transport.sendto(b"%06d" % i)
        got = []
        while len(got) < count + 100:
            got += drain(theirs)
            await turns(1)
        assert got == [b"%06d" % i for i in range(count + 100)]
        assert not protocol.errors


async def test_the_buffer_is_counted(loop, sockets, tmp_path):
    ours, theirs = queue(sockets, tmp_path)
    async with endpoint(sock=ours) as (transport, protocol):
        jam(transport)
        assert transport.get_write_buffer_size() == 6 + HEADER == transport._buffer_size
        transport.sendto(b"x" * 100)
        assert transport.get_write_buffer_size() == 106 + 2 * HEADER
        assert [data for data, addr in transport._buffer][1:] == [b"x" * 100]
        transport.sendto(b"")
        assert transport.get_write_buffer_size() == 106 + (3 * HEADER if HEADER else 0)


@pytest.mark.asyncio_gap("the headers stay counted", **HEADERS_STAY)
async def test_the_buffer_is_counted_down(loop, sockets, tmp_path):
    ours, theirs = queue(sockets, tmp_path)
    async with endpoint(sock=ours) as (transport, protocol):
        jam(transport)
        transport.sendto(b"x" * 100)
        while transport.get_write_buffer_size():
            drain(theirs)
            await turns(1)
        assert not list(transport._buffer)
        assert "write=<idle, bufsize=0>" in repr(transport)


async def test_what_is_kept_is_a_copy(loop, sockets, tmp_path):
    ours, theirs = queue(sockets, tmp_path)
    async with endpoint(sock=ours) as (transport, _):
        count = jam(transport)
        data = bytearray(b"before")
        transport.sendto(data)
        transport.sendto(memoryview(data))
        data[:] = b"after!"
        data.clear()  # nothing holds its buffer
        got = []
        while len(got) < count + 2:
            got += drain(theirs)
            await turns(1)
        assert got[-2:] == [b"before", b"before"]


async def test_a_view_with_gaps_is_kept_as_its_bytes(loop, sockets, tmp_path):
    ours, theirs = queue(sockets, tmp_path)
    async with endpoint(sock=ours) as (transport, _):
        count = jam(transport)
        transport.sendto(memoryview(b"a.b.c.")[::2])
        got = []
        while len(got) < count + 1:
            got += drain(theirs)
            await turns(1)
        assert got[-1] == b"abc"


# ---- pausing


@pytest.mark.asyncio_gap("the headers stay counted", **HEADERS_STAY)
async def test_pause_above_the_high_mark_and_resume_at_the_low_one(loop, sockets, tmp_path):
    ours, theirs = queue(sockets, tmp_path)
    async with endpoint(sock=ours) as (transport, protocol):
        transport.set_write_buffer_limits(high=1000, low=300)
        assert transport.get_write_buffer_limits() == (300, 1000)
        jam(transport)
        assert protocol.events == ["made"]
        while transport.get_write_buffer_size() <= 1000:
            assert protocol.events == ["made"]
            transport.sendto(b"x" * 100)
        assert protocol.events == ["made", "pause"]  # inside the call
        transport.sendto(b"x")
        assert protocol.events == ["made", "pause"]
        assert transport._protocol_paused
        sizes = []
        protocol.resume_writing = lambda: sizes.append(transport.get_write_buffer_size())
        while not sizes:
            drain(theirs)
            await turns(1)
        assert sizes[0] <= 300
        assert not transport._protocol_paused


async def test_a_limit_of_nothing_pauses_with_the_first_one_kept(loop, sockets, tmp_path):
    ours, theirs = queue(sockets, tmp_path)
    async with endpoint(sock=ours) as (transport, protocol):
        transport.set_write_buffer_limits(high=0)
        jam(transport)
        assert protocol.events == ["made", "pause"]


async def test_new_limits_that_are_passed_already_pause(loop, sockets, tmp_path):
    ours, theirs = queue(sockets, tmp_path)
    async with endpoint(sock=ours) as (transport, protocol):
        jam(transport)
        transport.set_write_buffer_limits(high=1)
        assert protocol.events == ["made", "pause"]
        with pytest.raises(ValueError, match=r"high \(1\) must be >= low \(2\) must be >= 0"):
            transport.set_write_buffer_limits(high=1, low=2)


async def test_pause_writing_that_raises(loop, sockets, tmp_path, errors):
    class Bad(Datagrams):
        def pause_writing(self):
            raise ZeroDivisionError("mine")

    ours, theirs = queue(sockets, tmp_path)
    async with endpoint(Bad, sock=ours) as (transport, protocol):
        transport.set_write_buffer_limits(high=0)
        jam(transport)
        (context,) = errors.take()
        assert context["message"] == "protocol.pause_writing() failed"
        assert isinstance(context["exception"], ZeroDivisionError)
        assert (context["transport"], context["protocol"]) == (transport, protocol)


@pytest.mark.asyncio_gap("the headers stay counted", **HEADERS_STAY)
@pytest.mark.parametrize("how", ["send", "raise"])
async def test_what_resume_writing_may_do(loop, sockets, tmp_path, errors, how):
    await _resume(sockets, tmp_path, errors, how)


@pytest.mark.asyncio_gap("gh-156512: connection_lost() is called twice", since=(3, 11), until=(3, 15, 1))
@pytest.mark.parametrize("how", ["close", "abort"])
async def test_resume_writing_may_end_it(loop, sockets, tmp_path, errors, how):
    await _resume(sockets, tmp_path, errors, how)


async def _resume(sockets, tmp_path, errors, how):
    class Doing(Datagrams):
        def resume_writing(self):
            super().resume_writing()
            if how == "send":
                self.transport.sendto(b"again!")
            elif how == "raise":
                raise ZeroDivisionError("mine")
            else:
                getattr(self.transport, how)()

    ours, theirs = queue(sockets, tmp_path)
    async with endpoint(Doing, sock=ours) as (transport, protocol):
        transport.set_write_buffer_limits(high=0)
        count = jam(transport)
        got = []
        while len(got) < count + (how == "send"):
            got += drain(theirs)
            await turns(1)
        assert protocol.events[:3] == ["made", "pause", "resume"]
        await turns(3)
        assert (got[-1] == b"again!") == (how == "send")
        assert len(errors.take()) == (how == "raise")
        assert protocol.events.count("lost") == (how in ("close", "abort"))


# ---- closing


async def test_close_sends_what_is_kept(loop, sockets, tmp_path):
    ours, theirs = queue(sockets, tmp_path)
    transport, protocol = await loop.create_datagram_endpoint(Datagrams, sock=ours)
    count = jam(transport)
    transport.sendto(b"before")
    transport.close()
    assert transport.is_closing()
    transport.sendto(b"after!")
    await turns()
    assert "lost" not in protocol.events
    got = []
    while "lost" not in protocol.events:
        got += drain(theirs)
        await turns(1)
    got += drain(theirs)
    assert len(got) == count + 2
    assert got[-2:] == [b"before", b"after!"]
    assert protocol.exc is None
    assert transport._sock is None


async def test_abort_drops_what_is_kept(loop, sockets, tmp_path):
    ours, theirs = queue(sockets, tmp_path)
    async with endpoint(sock=ours) as (transport, protocol):
        count = jam(transport)
        transport.sendto(b"more")
        transport.abort()
        transport.abort()
        assert protocol.events == ["made"]
        assert await protocol.lost() is None
        await turns()
        assert protocol.events == ["made", "lost"]
        assert len(drain(theirs)) == count - 1


async def test_abort_after_a_close_that_waits(loop, sockets, tmp_path):
    ours, theirs = queue(sockets, tmp_path)
    async with endpoint(sock=ours) as (transport, protocol):
        jam(transport)
        transport.close()
        await turns()
        transport.abort()
        assert await protocol.lost() is None
        await turns()
        assert protocol.events.count("lost") == 1


async def test_the_peer_goes_while_datagrams_wait(loop, sockets, tmp_path):
    """Each that cannot be sent any more is an error_received(); the transport stays."""
    ours, theirs = queue(sockets, tmp_path)
    async with endpoint(sock=ours) as (transport, protocol):
        jam(transport)
        for _ in range(4):
            transport.sendto(b"x")
        theirs.close()
        await protocol.has("error", 5)
        assert all(isinstance(error, OSError) for error in protocol.errors)
        assert not transport.is_closing()
        assert not list(transport._buffer)


async def test_the_peer_goes_while_a_close_waits(loop, sockets, tmp_path):
    ours, theirs = queue(sockets, tmp_path)
    async with endpoint(sock=ours) as (transport, protocol):
        jam(transport)
        transport.sendto(b"x")
        transport.close()
        theirs.close()
        assert await protocol.lost() is None
        assert len(protocol.errors) == 2
        assert protocol.events[-1] == "lost"


async def test_error_received_that_raises_while_datagrams_wait(loop, sockets, tmp_path, errors):
    class Bad(Datagrams):
        def error_received(self, exc):
            super().error_received(exc)
            raise ZeroDivisionError("mine")

    ours, theirs = queue(sockets, tmp_path)
    async with endpoint(Bad, sock=ours) as (transport, protocol):
        jam(transport)
        transport.sendto(b"x")
        theirs.close()
        await protocol.has("error", 2)
        await turns()
        contexts = errors.take()
        assert len(contexts) == 2
        assert all("_sendto_ready" in context["message"] for context in contexts)
        assert not transport.is_closing()


@pytest.mark.parametrize("how", ["close", "abort"])
async def test_error_received_that_ends_it_while_datagrams_wait(loop, sockets, tmp_path, how):
    class Ending(Datagrams):
        def error_received(self, exc):
            super().error_received(exc)
            getattr(self.transport, how)()

    ours, theirs = queue(sockets, tmp_path)
    async with endpoint(Ending, sock=ours) as (transport, protocol):
        jam(transport)
        transport.sendto(b"x")
        theirs.close()
        assert await protocol.lost() is None
        await turns()
        assert protocol.events.count("lost") == 1


async def test_sendto_after_close_on_a_connected_endpoint(loop, sockets, log):
    """Dropped, and warned of from the fifth on."""
    async with endpoint(remote_addr=nowhere()) as (transport, protocol):
        transport.close()
        for i in range(5):
            transport.sendto(b"x")
            assert transport._conn_lost == 2 + i
        assert [record.getMessage() for record in log.take()] == ["socket.send() raised exception."]
        await protocol.lost()
        transport.sendto(b"x")
        assert [record.getMessage() for record in log.take()] == ["socket.send() raised exception."]
        with pytest.raises(TypeError):
            transport.sendto("x")
        with pytest.raises(ValueError, match="Invalid address"):
            transport.sendto(b"x", ("127.0.0.1", 9))


@pytest.mark.uvpy_only("stock asyncio's raises AttributeError, of its own None")
async def test_sendto_after_the_end_of_an_endpoint_without_a_peer(loop, sockets, log):
    async with endpoint() as (transport, protocol):
        transport.close()
        await protocol.lost()
        for _ in range(7):
            transport.sendto(b"x", nowhere())
        assert {record.getMessage() for record in log.take()} == {"socket.send() raised exception."}


async def test_sendto_between_close_and_the_end_without_a_peer(loop, sockets):
    """asyncio's transport sends: nothing is lost yet."""
    peer = sockets.own(socket.socket(type=socket.SOCK_DGRAM))
    peer.bind(("127.0.0.1", 0))
    peer.settimeout(5)
    async with endpoint() as (transport, protocol):
        transport.close()
        transport.sendto(b"last", peer.getsockname())
        assert peer.recv(10) == b"last"
        await protocol.lost()


@pytest.mark.uvpy_only("asyncio's waits in a busy loop, and forgets what it kept when it closes")
async def test_a_full_peer_without_a_connection(loop, sockets, tmp_path):
    """Several destinations in one backlog, a name among them that only the socket understands."""
    theirs = sockets.own(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM))
    path = str(tmp_path / "full.sock")
    theirs.bind(path)
    theirs.setblocking(False)
    async with endpoint(family=socket.AF_UNIX) as (transport, protocol):
        count = jam(transport, path)
        transport.sendto(b"bytes", os.fsencode(path))
        transport.sendto(b"path", path)
        transport.sendto(b"missing", path + ".not")
        transport.sendto(b"end", path)
        got = []
        while b"end" not in got:
            got += drain(theirs)
            await turns(1)
        assert len(got) == count + 3
        assert got[-3:] == [b"bytes", b"path", b"end"]
        assert [type(error) for error in protocol.errors] == [FileNotFoundError]


var = contextvars.ContextVar("var", default="outside")


async def test_resume_writing_runs_in_the_context_of_the_first_one_kept(loop, sockets, tmp_path):
    seen = []

    class Looking(Datagrams):
        def resume_writing(self):
            seen.append(var.get())

    ours, theirs = queue(sockets, tmp_path)
    async with endpoint(Looking, sock=ours) as (transport, protocol):
        transport.set_write_buffer_limits(high=5)
        var.set("sending")
        jam(transport)
        var.set("later")
        theirs.setblocking(False)
        for _ in range(1000):
            drain(theirs)
            await turns(1)
            if seen or (HEADER and not list(transport._buffer)):
                break
        assert seen in (["sending"], []) if HEADER else seen == ["sending"]


async def test_an_endpoint_with_a_backlog_is_held(loop, sockets, tmp_path):
    ours, theirs = queue(sockets, tmp_path)
    transport, protocol = await loop.create_datagram_endpoint(Datagrams, sock=ours)
    count = jam(transport)
    transport.close()
    protocol.transport = None
    del transport
    gc.collect()
    got = []
    while "lost" not in protocol.events:
        got += drain(theirs)
        await turns(1)
    assert len(got + drain(theirs)) == count


async def test_in_debug_mode_all_the_same(loop, sockets, tmp_path):
    loop.set_debug(True)
    loop.slow_callback_duration = 60  # a busy machine is not what is tested
    ours, theirs = queue(sockets, tmp_path)
    async with endpoint(sock=ours) as (transport, protocol):
        count = jam(transport)
        transport.pause_reading()
        transport.resume_reading()
        got = []
        while len(got) < count:
            got += drain(theirs)
            await asyncio.sleep(0)
        assert not protocol.errors
        await eventually(lambda: not list(transport._buffer))
