"""Names of asyncio's own transports that its mixin for flow control, and some libraries, use: they are there and do the
same on ours.
"""

import asyncio
import os
import socket

import pytest

from support.datagrams import Datagrams, endpoint
from support.drive import turns
from support.pipes import pipe, reading
from support.protocols import Recorder

KINDS = ["stream", "datagrams", "write pipe"]


async def opened(loop, sockets, what):
    """A transport of the kind, and the protocol's pauses: a list that grows."""
    told = []

    def notes(base):
        class Notes(base):
            def pause_writing(self):
                told.append("pause")

            def resume_writing(self):
                told.append("resume")

        return Notes

    if what == "stream":
        ours, _ = sockets.pair()
        transport, protocol = await loop.create_connection(notes(Recorder), sock=ours)
    elif what == "datagrams":
        transport, protocol = await loop.create_datagram_endpoint(notes(Datagrams), local_addr=("127.0.0.1", 0))
    else:
        _, w = pipe(sockets)
        transport, protocol = await loop.connect_write_pipe(notes(Recorder), w)
    return transport, protocol, told


async def end(transport):
    transport.abort()
    await turns(3)


@pytest.mark.parametrize("what", KINDS)
async def test_the_mixin_for_flow_control(loop, sockets, what):
    transport, _, told = await opened(loop, sockets, what)
    assert (transport._low_water, transport._high_water) == transport.get_write_buffer_limits() == (16384, 65536)
    transport._maybe_pause_protocol()
    transport._maybe_resume_protocol()
    assert told == []
    transport._protocol_paused = True
    transport._maybe_resume_protocol()
    assert (told, transport._protocol_paused) == (["resume"], False)
    transport._set_write_buffer_limits(high=4000)
    assert transport.get_write_buffer_limits() == (1000, 4000)
    assert (transport._low_water, transport._high_water) == (1000, 4000)
    transport._high_water = 10
    transport._low_water = 0
    assert transport.get_write_buffer_limits() == (0, 10)
    with pytest.raises(ValueError, match=r"high \(1\) must be >= low \(2\) must be >= 0"):
        transport._set_write_buffer_limits(high=1, low=2)
    assert told == ["resume"]
    await end(transport)


async def test_the_mixin_pauses_what_is_full(loop, sockets):
    transport, _, told = await opened(loop, sockets, "write pipe")
    transport.set_write_buffer_limits(high=10_000_000)
    transport.write(bytes(1_000_000))
    assert told == []
    transport._high_water = 5
    transport._maybe_pause_protocol()
    transport._maybe_pause_protocol()
    assert (told, transport._protocol_paused) == (["pause"], True)
    await end(transport)


@pytest.mark.parametrize("what", ["stream", "datagrams"])
async def test_a_protocol_is_connected(loop, sockets, what):
    transport, _, _ = await opened(loop, sockets, what)
    assert transport._protocol_connected is True
    await end(transport)


@pytest.mark.parametrize("what", [*KINDS, "read pipe"])
@pytest.mark.parametrize("how", ["with a message", "without", "os error", "another os error", "none"])
async def test_a_fatal_error(loop, sockets, errors, what, how):
    if what == "read pipe":
        transport, protocol = await reading(pipe(sockets)[0])
    else:
        transport, protocol, _ = await opened(loop, sockets, what)
    await turns(2)
    exc = {"os error": OSError(5, "text"), "another os error": OSError(9, "text"), "none": None}.get(how, ValueError())
    if how == "with a message":
        transport._fatal_error(exc, "mine")
    else:
        transport._fatal_error(exc)
    assert transport.is_closing()
    await turns(3)
    found = errors.take()
    if isinstance(exc, OSError) and (what != "read pipe" or exc.errno == 5):
        assert found == []
    else:
        default = "Fatal error on pipe transport" if "pipe" in what else "Fatal error on transport"
        (context,) = found
        assert context["message"] == ("mine" if how == "with a message" else default)
        assert (context["exception"], context["transport"], context["protocol"]) == (exc, transport, protocol)
    assert "lost" in protocol.events
    with pytest.raises(TypeError):
        transport._fatal_error()


@pytest.mark.parametrize("what", ["read pipe", "datagrams"])
async def test_a_reader_that_is_added_by_hand(loop, sockets, what):
    """Only while it reads."""
    ours, theirs = sockets.pair(blocking=False)
    seen = []

    def ready():
        seen.append(ours.recv(100))

    if what == "read pipe":
        transport, _ = await reading(pipe(sockets)[0])
    else:
        transport, _ = await loop.create_datagram_endpoint(Datagrams, local_addr=("127.0.0.1", 0))
    await turns(2)
    transport.pause_reading()
    transport._add_reader(ours.fileno(), ready)
    assert not loop.remove_reader(ours.fileno())
    transport.resume_reading()
    transport._add_reader(ours.fileno(), ready)
    theirs.send(b"x")
    await turns(3)
    assert seen == [b"x"]
    assert loop.remove_reader(ours.fileno())
    transport.close()
    transport._add_reader(ours.fileno(), ready)
    assert not loop.remove_reader(ours.fileno())
    await turns(3)


async def test_the_transports_own_reader_added_by_hand(loop, sockets):
    r, w = pipe(sockets)
    transport, protocol = await reading(r)
    transport._add_reader(fd=transport._fileno, callback=transport._read_ready)
    w.write(b"x")
    await protocol.got(1)
    transport.close()
    await protocol.lost()
    peer = sockets.own(socket.socket(type=socket.SOCK_DGRAM))
    async with endpoint() as (datagrams, notes):
        datagrams._add_reader(datagrams._sock_fd, datagrams._read_ready)
        peer.sendto(b"y", datagrams.get_extra_info("sockname"))
        await notes.has("data")
        assert notes.data == [b"y"]


async def test_what_cannot_be_watched_is_named_in_the_report(loop, sockets, errors):
    null = sockets.own(open(os.devnull, "rb", buffering=0))
    transport, _ = await loop.connect_read_pipe(asyncio.Protocol, null)
    await turns(2)
    (context,) = errors.take()
    assert "ReadPipeTransport._add_reader(" in context["message"]
    assert isinstance(context["exception"], PermissionError)
    transport.close()
    await turns(3)
