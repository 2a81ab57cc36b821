"""Flow control of writing: the marks, when pause_writing() and resume_writing() are called, what they may do."""

import asyncio
import itertools
import sys

import pytest

from support.drive import eventually, turns
from support.peers import KB, MB
from support.protocols import SIDES, Recorder, stuff, until_paused, wire, write_until


@pytest.mark.parametrize("side", SIDES)
async def test_the_marks(loop, sockets, side):
    async with wire(sockets, Recorder, side) as (transport, _, _):
        assert transport.get_write_buffer_limits() == (16 * KB, 64 * KB)
        for given, marks in [
            ({"high": 1000}, (250, 1000)),
            ({"high": 7}, (1, 7)),
            ({"high": 3}, (0, 3)),
            ({"low": 1000}, (1000, 4000)),
            ({"low": 1}, (1, 4)),
            ({"high": 0}, (0, 0)),
            ({"low": 0}, (0, 0)),
            ({"high": 7, "low": 7}, (7, 7)),
            ({"high": 100, "low": 0}, (0, 100)),
            ({"high": 2**40, "low": 5}, (5, 2**40)),
            ({"high": None, "low": None}, (16 * KB, 64 * KB)),
            ({}, (16 * KB, 64 * KB)),
        ]:
            transport.set_write_buffer_limits(**given)
            assert transport.get_write_buffer_limits() == marks, given
        transport.set_write_buffer_limits(200, 50)
        assert transport.get_write_buffer_limits() == (50, 200)


async def test_wrong_marks(loop, sockets):
    async with wire(sockets) as (transport, _, _):
        before = transport.get_write_buffer_limits()
        for given, high, low in (
            ({"high": 1, "low": 2}, 1, 2),
            ({"high": 5, "low": -1}, 5, -1),
            ({"high": -1}, -1, -1),
            ({"high": -8}, -8, -2),
            ({"low": -5}, -20, -5),
        ):
            with pytest.raises(ValueError) as caught:
                transport.set_write_buffer_limits(**given)
            assert str(caught.value) == f"high ({high}) must be >= low ({low}) must be >= 0"
            assert transport.get_write_buffer_limits() == before
        for wrong in ("x", [], object()):
            with pytest.raises(TypeError):
                transport.set_write_buffer_limits(high=wrong)
            assert transport.get_write_buffer_limits() == before


async def test_pause_comes_inside_the_write_that_passes_the_mark(loop, sockets):
    async with wire(sockets) as (transport, protocol, _):
        transport.set_write_buffer_limits(high=100_000)
        for _ in range(1000):
            if transport.get_write_buffer_size() > 100_000:
                break
            assert "pause" not in protocol.events
            transport.write(bytes(30_000))
        assert protocol.events == ["made", "pause"]
        for _ in range(3):
            transport.write(bytes(30_000))
        await turns(3)
        assert protocol.events == ["made", "pause"]


async def test_exactly_at_the_mark_is_not_above_it(loop, sockets):
    """pause at size > high, resume at size <= low."""
    async with wire(sockets, Recorder, "unix") as (transport, protocol, _):
        transport.set_write_buffer_limits(high=64 * MB)
        stuff(transport)
        size = transport.get_write_buffer_size()
        transport.set_write_buffer_limits(high=size + 1000)
        transport.write(bytes(1000))
        assert transport.get_write_buffer_size() == size + 1000
        assert protocol.events == ["made"]
        transport.write(b"x")
        assert protocol.events == ["made", "pause"]


@pytest.mark.asyncio_gap("writelines() does not look at the mark", since=(3, 12), until=(3, 14))
async def test_writelines_pauses_too(loop, sockets):
    async with wire(sockets) as (transport, protocol, _):
        stuff(transport)
        transport.writelines([bytes(64 * KB)] * 4)
        assert protocol.events == ["made", "pause"]


async def test_resume_comes_at_the_low_mark(loop, sockets):
    """Not before what is kept is at or below it; then writing pauses again when it must."""
    seen = []

    class Looks(Recorder):
        def resume_writing(self):
            seen.append(self.transport.get_write_buffer_size())
            super().resume_writing()

    async with wire(sockets, Looks) as (transport, protocol, peer):
        transport.set_write_buffer_limits(high=500_000, low=100_000)
        for n in range(1, 4):
            total = write_until(transport, lambda: protocol.events.count("pause") == n)
            await peer.recv(total)
            await protocol.has("resume", n)
            await eventually(lambda: transport.get_write_buffer_size() == 0)
        assert all(size <= 100_000 for size in seen)
        assert protocol.events == ["made", *["pause", "resume"] * 3]


async def test_resume_is_called_although_nothing_is_written_any_more(loop, sockets):
    async with wire(sockets) as (transport, protocol, peer):
        total = await until_paused(transport, protocol)
        assert len(await peer.recv(total)) == total
        await protocol.has("resume")
        assert transport.get_write_buffer_size() == 0
        assert protocol.events == ["made", "pause", "resume"]


@pytest.mark.parametrize("side", SIDES)
async def test_a_high_mark_of_zero(loop, sockets, side):
    """Small writes that the kernel takes never pause; a kept byte does; resume comes when nothing is kept."""
    async with wire(sockets, Recorder, side) as (transport, protocol, peer):
        transport.set_write_buffer_limits(high=0)
        for i in range(20):
            transport.write(b"small")
            assert transport.get_write_buffer_size() == 0
            if i % 5 == 0:
                await turns(1)
        transport.writelines([b"a", b"b"])
        await turns(3)
        assert protocol.events == ["made"]
        total = 102 + stuff(transport)
        assert protocol.events == ["made", "pause"]
        await peer.recv(total)
        await protocol.has("resume")
        assert protocol.events == ["made", "pause", "resume"]


async def test_what_is_written_while_paused_is_kept(loop, sockets):
    async with wire(sockets) as (transport, protocol, peer):
        total = await until_paused(transport, protocol)
        for i in range(100):
            transport.write(b"%03d" % i)
        got = await peer.recv(total + 300)
        assert got[total:] == b"".join(b"%03d" % i for i in range(100))


async def test_resume_writing_may_write_again(loop, sockets):
    """A protocol that writes more whenever it is resumed sends everything, paused and resumed in turns."""

    class Pump(Recorder):
        left = 40

        def resume_writing(self):
            super().resume_writing()
            self.pump()

        def pump(self):
            while self.left and self.events.count("pause") == self.events.count("resume"):
                self.left -= 1
                self.transport.write(bytes(MB // 2))

    async with wire(sockets, Pump) as (_, protocol, peer):
        # Before anyone reads: a peer that keeps up would leave nothing to pause for.
        protocol.pump()
        coming = peer.start(peer._recv, 20 * MB)
        assert len(await asyncio.wrap_future(coming)) == 20 * MB
        flow = [e for e in protocol.events if e in ("pause", "resume")]
        assert all(a != b for a, b in itertools.pairwise(flow))
        assert flow[:2] == ["pause", "resume"]


async def test_pause_writing_may_abort(loop, sockets):
    class Quits(Recorder):
        def pause_writing(self):
            super().pause_writing()
            self.transport.abort()

    async with wire(sockets, Quits) as (transport, protocol, _):
        for _ in range(100):
            transport.write(bytes(MB))
            if "pause" in protocol.events:
                break
        transport.write(b"more")
        assert await protocol.lost() is None
        assert protocol.events == ["made", "pause", "lost"]


@pytest.mark.asyncio_gap("gh-156512: connection_lost() is called twice", since=(3, 11), until=(3, 14, 10))
async def test_resume_writing_may_close(loop, sockets):
    class Quits(Recorder):
        def resume_writing(self):
            super().resume_writing()
            self.transport.close()

    async with wire(sockets, Quits) as (transport, protocol, peer):
        transport.set_write_buffer_limits(high=0)
        stuff(transport)
        await peer.recv_all()
        assert await protocol.lost() is None
        await turns(5)
        assert protocol.events == ["made", "pause", "resume", "lost"]


@pytest.mark.parametrize("kind_of_error", [ZeroDivisionError, OSError, asyncio.CancelledError])
async def test_errors_of_flow_control_are_reported_and_not_fatal(loop, sockets, errors, kind_of_error):
    class Bad(Recorder):
        def pause_writing(self):
            super().pause_writing()
            raise kind_of_error("pausing")

        def resume_writing(self):
            super().resume_writing()
            raise kind_of_error("resuming")

    async with wire(sockets, Bad) as (transport, protocol, peer):
        total = await until_paused(transport, protocol)
        await peer.recv(total)
        await protocol.has("resume")
        transport.write(b"alive")
        assert await peer.recv(5) == b"alive"
        contexts = errors.take()
        assert [c["message"] for c in contexts] == [
            "protocol.pause_writing() failed",
            "protocol.resume_writing() failed",
        ]
        assert [str(c["exception"]) for c in contexts] == ["pausing", "resuming"]
        assert all(c["transport"] is transport and c["protocol"] is protocol for c in contexts)


async def test_an_exit_in_pause_writing_leaves_the_write(loop, sockets):
    class Leaves(Recorder):
        def pause_writing(self):
            super().pause_writing()
            raise KeyboardInterrupt("pausing")

    async with wire(sockets, Leaves) as (transport, protocol, _):
        with pytest.raises(KeyboardInterrupt, match="pausing"):
            for _ in range(100):
                transport.write(bytes(MB))
        assert protocol.events == ["made", "pause"]


async def test_lower_marks_take_effect_at_once(loop, sockets):
    """Setting the marks below what is kept pauses at the next write at the latest, as in asyncio."""
    async with wire(sockets) as (transport, protocol, peer):
        transport.set_write_buffer_limits(high=64 * MB)
        total = stuff(transport)
        assert protocol.events == ["made"]
        transport.set_write_buffer_limits(high=10)
        transport.write(b"x")
        assert protocol.events == ["made", "pause"]
        await peer.recv(total + 1)
        await protocol.has("resume")


async def test_a_paused_protocol_is_not_resumed_after_the_end(loop, sockets):
    async with wire(sockets) as (transport, protocol, _):
        await until_paused(transport, protocol)
        transport.abort()
        await protocol.lost()
        await turns(5)
        assert protocol.events == ["made", "pause", "lost"]


async def test_protocols_without_flow_control_methods_of_their_own(loop, sockets):
    """asyncio.Protocol's own pause_writing() and resume_writing() do."""

    class Plain(asyncio.Protocol):
        pass

    async with wire(sockets, Plain) as (transport, _, peer):
        total = stuff(transport)
        transport.write(bytes(MB))
        assert len(await peer.recv(total + MB)) == total + MB
        await eventually(lambda: transport.get_write_buffer_size() == 0)


# ---- streams on top


async def test_drain_waits_for_the_peer(loop, sockets):
    ours, theirs = sockets.pair(tcp=True)
    peer = sockets.peer(theirs)
    _, writer = await asyncio.open_connection(sock=ours)
    await writer.drain()
    total = write_until(writer, lambda: writer.transport.get_write_buffer_size() > 64 * KB)
    drained = asyncio.ensure_future(writer.drain())
    await turns(5)
    assert not drained.done()
    await peer.recv(total)
    await asyncio.wait_for(drained, 10)
    writer.close()
    await writer.wait_closed()


async def test_drain_fails_when_the_peer_goes_away(loop, sockets):
    ours, theirs = sockets.pair(tcp=True)
    peer = sockets.peer(theirs)
    _, writer = await asyncio.open_connection(sock=ours)
    write_until(writer, lambda: writer.transport.get_write_buffer_size() > 64 * KB)
    drained = [asyncio.ensure_future(writer.drain()) for _ in range(3)]
    await turns(2)
    peer.reset()
    results = await asyncio.gather(*drained, return_exceptions=True)
    assert all(isinstance(r, (ConnectionResetError, BrokenPipeError)) for r in results)
    writer.close()
    with pytest.raises((ConnectionResetError, BrokenPipeError)):
        await writer.wait_closed()


@pytest.mark.parametrize("given", [None, 0, "", (), {}, 5, object(), 1.5], ids=repr)
async def test_writelines_of_what_is_no_iterable(loop, sockets, given):
    """From 3.12 on anything false is nothing, and the rest is told as a `for` would."""
    async with wire(sockets) as (transport, _, peer):
        if isinstance(given, (str, tuple, dict)) or (not given and sys.version_info >= (3, 12)):
            assert transport.writelines(given) is None
        else:
            text = "is not iterable" if sys.version_info >= (3, 12) else "can only join an iterable"
            with pytest.raises(TypeError, match=text):
                transport.writelines(given)
        transport.write(b"!")
        assert await peer.recv(1) == b"!"
