"""The write path: what goes out when, what is kept, half closing, closing, aborting, errors."""

import array
import asyncio
import contextlib
import ctypes
import gc
import logging
import mmap
import os
import re
import socket
import sys
import weakref

import pytest

from support.drive import eventually, run, turn, turns
from support.peers import KB, MB, is_open, pattern, same
from support.protocols import SIDES, HalfOpen, Recorder, stuff, until_paused, wire


@pytest.mark.parametrize("side", SIDES)
async def test_a_write_is_on_the_wire_at_once(loop, sockets, side):
    """The peer can read it in the very callback that wrote it, on a loop at ease."""
    async with wire(sockets, Recorder, side) as (transport, _, peer):
        for i in range(10):
            transport.write(b"x%d" % i)
            assert peer.now(2, 5) == b"x%d" % i
            await turns(2)


async def test_all_writes_of_a_turn_are_out_after_it(loop, sockets):
    """Whatever is gathered within a turn, it is on the wire, in order, when the next one begins."""
    async with wire(sockets) as (transport, _, peer):
        for n in (1, 2, 3, 10, 100):
            for i in range(n):
                transport.write(b"%03d" % i)
            await turns(1)
            assert peer.now(3 * n, 5) == b"".join(b"%03d" % i for i in range(n))


def test_writes_outside_a_run_go_out_without_one(loop, sockets):
    ours, theirs = sockets.pair(tcp=True)
    peer = sockets.peer(theirs)
    transport, protocol = run(loop, loop.create_connection(Recorder, sock=ours))
    for i in range(5):
        transport.write(b"%d" % i)
        assert peer.now(1, 5) == b"%d" % i
    transport.writelines([b"a", b"b"])
    assert peer.now(2, 5) == b"ab"
    transport.close()
    run(loop, protocol.lost())


GOOD_PART_IS_STUCK = pytest.mark.asyncio_gap(
    reason="what writelines() took before an error stays, and nothing is sent any more", since=(3, 15)
)


@GOOD_PART_IS_STUCK
@pytest.mark.parametrize("wrong", ["text", 5, None, [b"x"], object(), 1.5, (b"x",)], ids=repr)
async def test_what_is_not_bytes_is_a_type_error(loop, sockets, wrong):
    async with wire(sockets) as (transport, _, peer):
        with pytest.raises(TypeError) as of_asyncio:
            asyncio.selector_events._SelectorSocketTransport.write(None, wrong)
        with pytest.raises(TypeError, match=re.escape(str(of_asyncio.value))):
            transport.write(wrong)
        left_out = wrong is None and sys.version_info >= (3, 14)  # as all that is false
        with contextlib.nullcontext() if left_out else pytest.raises(TypeError):
            transport.writelines([b"good", wrong])
        await turns(2)
        assert not transport.is_closing()
        transport.write(b"!")
        assert (await peer.recv(1)) in (b"!", b"g")  # whether the good part went out is not promised


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("size", [0, 1, 100, 64 * KB, 300_001, 5 * MB])
async def test_a_write_of_any_size_arrives_whole(loop, sockets, side, size):
    blob = pattern(size)
    async with wire(sockets, Recorder, side) as (transport, protocol, peer):
        coming = peer.start(peer._recv, size + 3)
        transport.write(blob)
        transport.write(b"end")
        same(await asyncio.wrap_future(coming), blob + b"end")
        await eventually(lambda: transport.get_write_buffer_size() == 0)
        assert protocol.events.count("pause") == protocol.events.count("resume")


@pytest.mark.parametrize(
    "make",
    [
        bytes,
        bytearray,
        memoryview,
        lambda blob: memoryview(bytearray(b"pp" + blob + b"qq"))[2:-2],
        lambda blob: type("Mine", (bytes,), {})(blob),
        lambda blob: type("Mine", (bytearray,), {})(blob),
    ],
    ids=["bytes", "bytearray", "memoryview", "slice", "bytes subclass", "bytearray subclass"],
)
async def test_every_kind_of_buffer_is_sent_whole(loop, sockets, make):
    for size in (4, 4000, MB):
        blob = pattern(size)
        async with wire(sockets) as (transport, _, peer):
            coming = peer.start(peer._recv, size)
            transport.write(make(blob))
            same(await asyncio.wrap_future(coming), blob)


# A view whose items are not bytes is sliced by items when stock asyncio keeps the rest: what is big goes wrong there.
VIEWS = {
    "ints": lambda blob: memoryview(array.array("I", blob)),
    "shorts": lambda blob: memoryview(array.array("H", blob)),
    "matrix": lambda blob: memoryview(blob).cast("B", (len(blob) // 4, 4)),
    "ctypes": lambda blob: memoryview((ctypes.c_uint16 * (len(blob) // 2)).from_buffer_copy(blob)),
}


@pytest.mark.parametrize("view", VIEWS.values(), ids=VIEWS)
async def test_small_views_of_other_items_are_sent_whole(loop, sockets, view):
    async with wire(sockets) as (transport, _, peer):
        for size in (4, 400):
            transport.write(view(pattern(size)))
            assert await peer.recv(size) == pattern(size)


@pytest.mark.uvpy_only("stock asyncio slices the rest of such a view by items, not by bytes")
@pytest.mark.parametrize("view", VIEWS.values(), ids=VIEWS)
async def test_big_views_of_other_items_are_sent_whole(loop, sockets, view):
    async with wire(sockets) as (transport, _, peer):
        coming = peer.start(peer._recv, 8 * MB + 4)
        transport.write(view(pattern(8 * MB)))
        transport.writelines([view(pattern(4))])
        same(await asyncio.wrap_future(coming), pattern(8 * MB) + pattern(4))


keeps_views = pytest.mark.asyncio_gap("keeps a view of a mutable buffer, not its bytes", since=(3, 12))


@keeps_views
async def test_a_mutable_buffer_may_change_after_a_write(loop, sockets):
    """What was given is what is sent: also of what the kernel did not take at once."""
    async with wire(sockets) as (transport, _, peer):
        transport.pause_reading()
        total = stuff(transport)
        first, second, third = bytearray(b"first."), bytearray(b"second."), bytearray(b"third..")
        transport.write(first)
        transport.write(memoryview(second))
        transport.writelines([third, b"end"])
        for buffer in (first, second, third):
            buffer[:] = b"?" * len(buffer)
        got = await peer.recv(total + 23)
        assert got[total:] == b"first.second.third..end"


@keeps_views
async def test_a_mutable_buffer_is_not_locked_by_a_write(loop, sockets):
    """A bytearray can be resized right after write(), kept or sent."""
    async with wire(sockets) as (transport, _, peer):
        buffer = bytearray(b"12345")
        transport.write(buffer)
        buffer.clear()
        buffer.extend(b"6789")
        transport.write(memoryview(buffer)[1:])
        buffer += b"0"
        assert await peer.recv(8) == b"12345789"
        total = stuff(transport)
        buffer = bytearray(b"kept")
        transport.write(buffer)
        transport.writelines([buffer])
        buffer.clear()
        buffer.append(1)
        assert (await peer.recv(total + 8))[total:] == b"keptkept"


async def test_a_mapped_file_is_sent(loop, sockets, tmp_path):
    path = tmp_path / "file"
    path.write_bytes(pattern(300_000))
    async with wire(sockets) as (transport, _, peer):
        with path.open("rb") as f, mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
            coming = peer.start(peer._recv, 300_000)
            with memoryview(mapped) as view:
                transport.write(view)
            same(await asyncio.wrap_future(coming), pattern(300_000))


# ---- writelines


async def test_writelines_of_all_kinds_of_iterables(loop, sockets):
    async with wire(sockets) as (transport, _, peer):
        for lines in ([b"a", b"b"], (b"a", b"b"), iter([b"a", b"b"]), (x for x in (b"a", b"b")), {b"a": 1, b"b": 2}):
            transport.writelines(lines)
            assert await peer.recv(2) == b"ab"
        transport.writelines([bytearray(b"c"), memoryview(b"d"), b""])
        assert await peer.recv(2) == b"cd"
        with pytest.raises(TypeError):
            transport.writelines(5)
        transport.writelines([])
        transport.writelines(iter(()))


async def test_empty_pieces_hold_nothing_up(loop, sockets):
    async with wire(sockets) as (transport, _, peer):
        for lines in ([b""], [b"", b""], [b"a", b""], [b"", b"b"], [b"", b"c", b"", b"d", b""]):
            transport.writelines(lines)
            transport.write(b"")
        transport.write(b".")
        assert await peer.recv(5) == b"abcd."
        await eventually(lambda: transport.get_write_buffer_size() == 0)


async def test_more_pieces_than_one_writev_takes(loop, sockets):
    pieces = [b"%05d;" % i for i in range(5000)]
    for side in SIDES:
        async with wire(sockets, Recorder, side) as (transport, _, peer):
            coming = peer.start(peer._recv, 30_000)
            transport.writelines(pieces)
            same(await asyncio.wrap_future(coming), b"".join(pieces))


async def test_big_pieces_among_small_ones(loop, sockets):
    pieces = [pattern(n) for n in (1, MB, 0, 3, 2 * MB, 17, 0, 70_000)]
    async with wire(sockets) as (transport, _, peer):
        coming = peer.start(peer._recv, sum(map(len, pieces)) * 2)
        transport.writelines(pieces)
        for piece in pieces:
            transport.write(piece)
        same(await asyncio.wrap_future(coming), b"".join(pieces) * 2)


@GOOD_PART_IS_STUCK
async def test_a_failing_iterable_sends_nothing_wrong(loop, sockets):
    """An iterable that raises raises out of writelines(), and the connection goes on."""

    def bad():
        yield b"one"
        raise ZeroDivisionError

    async with wire(sockets) as (transport, _, peer):
        with pytest.raises(ZeroDivisionError):
            transport.writelines(bad())
        transport.write(b"|")
        got = await peer.recv(1)
        assert got in (b"|", b"o")
        assert not transport.is_closing()


# ---- the size of what is kept


async def test_the_buffer_size_is_exact(loop, sockets):
    """What was written less what the kernel has taken, at every moment."""
    async with wire(sockets, Recorder, "unix") as (transport, _, peer):
        assert transport.get_write_buffer_size() == 0
        transport.set_write_buffer_limits(high=64 * MB)
        total = stuff(transport, 50_000)
        for more in (12_345, 1, 0, 7):
            transport.write(bytes(more))
            total += more
        transport.writelines([bytes(100), b"", bytes(11)])
        total += 111
        kept = transport.get_write_buffer_size()
        assert len(peer.now()) + kept == total
        await peer.recv(kept)
        await eventually(lambda: transport.get_write_buffer_size() == 0)


async def test_what_is_kept_is_let_go_when_it_is_sent(loop, sockets):
    """A kept object is released once the kernel has it."""

    class Mine(bytes):
        pass

    async with wire(sockets) as (transport, _, peer):
        total = stuff(transport)
        mine = Mine(b"last")
        alone = sys.getrefcount(mine)
        transport.write(mine)
        before = sys.getrefcount(mine)
        await peer.recv(total + 4)
        await eventually(lambda: transport.get_write_buffer_size() == 0)
        await turns(2)
        assert sys.getrefcount(mine) <= before
        assert sys.getrefcount(mine) == alone


# ---- half closing


@pytest.mark.parametrize("side", SIDES)
async def test_write_eof_sends_what_is_kept_first(loop, sockets, side):
    blob = pattern(2 * MB)
    async with wire(sockets, HalfOpen, side) as (transport, protocol, peer):
        assert transport.can_write_eof() is True
        coming = peer.start(peer._recv, None)
        transport.write(blob)
        transport.write_eof()
        transport.write_eof()
        same(await asyncio.wrap_future(coming), blob)
        assert not transport.is_closing()
        peer.sock.send(b"reply")
        assert await protocol.got(5) == b"reply"
        peer.close()
        await protocol.has("eof")


async def test_write_after_write_eof_is_an_error(loop, sockets):
    async with wire(sockets, HalfOpen) as (transport, _, peer):
        transport.write(b"a")
        transport.write_eof()
        with pytest.raises(RuntimeError, match=r"Cannot call write\(\) after write_eof\(\)"):
            transport.write(b"b")
        with pytest.raises(RuntimeError):
            transport.writelines([b"b"])
        assert await peer.recv_all() == b"a"


async def test_write_eof_at_once_is_seen_at_once(loop, sockets):
    async with wire(sockets, HalfOpen) as (transport, _, peer):
        transport.write(b"x")
        transport.write_eof()
        assert peer.now(2, 5) == b"x"
        assert peer.now(1, 5) == b""


async def test_both_sides_half_close(loop, sockets):
    """After both ends of file the transport ends by itself when eof_received() said nothing."""
    async with wire(sockets) as (transport, protocol, peer):
        transport.write_eof()
        assert await peer.recv_all() == b""
        peer.half_close()
        assert await protocol.lost() is None
        assert protocol.order() == ["made", "eof", "lost"]


# ---- closing


@pytest.mark.parametrize("side", SIDES)
async def test_close_sends_what_is_kept(loop, sockets, side):
    blob = pattern(3 * MB)
    async with wire(sockets, Recorder, side) as (transport, protocol, peer):
        count = 0
        while not transport.get_write_buffer_size():
            assert count < 30
            transport.write(blob)
            count += 1
        transport.write(b"end")
        transport.close()
        assert transport.is_closing()
        await turns(3)
        assert "lost" not in protocol.events
        same(await peer.recv_all(), blob * count + b"end")
        assert await protocol.lost() is None


async def test_close_is_seen_at_once_and_told_later(loop, sockets):
    async with wire(sockets) as (transport, protocol, peer):
        transport.write(b"bye")
        transport.close()
        assert transport.is_closing()
        assert not transport.is_reading()
        assert protocol.events == ["made"]
        assert await protocol.lost() is None
        assert peer.now(3, 5) == b"bye"
        assert peer.now(1, 5) == b""


async def test_connection_lost_comes_a_turn_or_so_after_close(loop, sockets):
    """asyncio schedules it with call_soon: two turns later it has come."""
    async with wire(sockets) as (transport, protocol, _):
        transport.close()
        await turns(2)
        assert protocol.events == ["made", "lost"]


@pytest.mark.parametrize(
    "acts",
    [
        ("close", "close"),
        ("close", "abort"),
        ("abort", "close"),
        ("abort", "abort"),
        ("close", "abort", "close", "abort"),
    ],
    ids="-".join,
)
@pytest.mark.parametrize("kept", [False, True])
async def test_connection_lost_comes_once(loop, sockets, acts, kept):
    async with wire(sockets) as (transport, protocol, peer):
        peer.sock.send(b"late")
        if kept:
            transport.write(bytes(8 * MB))
        for act in acts:
            getattr(transport, act)()
        if kept and "abort" not in acts:
            peer.start(peer._recv, None)
        assert await protocol.lost() is None
        for act in acts:
            getattr(transport, act)()
        await turns(10)
        assert protocol.events.count("lost") == 1


async def test_abort_drops_what_is_kept(loop, sockets):
    async with wire(sockets) as (transport, protocol, peer):
        transport.write(bytes(16 * MB))
        transport.abort()
        assert transport.is_closing()
        assert "lost" not in protocol.events
        await turns(3)
        assert protocol.events[-1] == "lost"
        assert protocol.exc is None
        assert transport.get_write_buffer_size() == 0
        got = await peer.end()
        assert got is None or len(got) < 16 * MB


async def test_abort_after_a_small_write_has_sent_it(loop, sockets):
    """asyncio would have sent it in write() already."""
    async with wire(sockets) as (transport, protocol, peer):
        transport.write(b"last words")
        transport.abort()
        await protocol.lost()
        assert await peer.recv_all() == b"last words"


async def test_after_the_end_nothing_raises(loop, sockets, log):
    """A lost transport answers every call: closed, not reading, keeping nothing."""
    async with wire(sockets) as (transport, protocol, _):
        transport.close()
        await protocol.lost()
        await turns(2)
        for _ in range(2):
            transport.write(b"x")
            transport.write_eof()
            transport.pause_reading()
            transport.resume_reading()
            transport.set_write_buffer_limits(high=5)
            transport.close()
            transport.abort()
        assert transport.is_closing() is True
        assert transport.is_reading() is False
        assert transport.get_write_buffer_size() == 0
        assert transport.can_write_eof() is True
        assert "closed" in repr(transport)
        await turns(3)
        assert protocol.events == ["made", "lost"]
    log.take()


async def test_writes_to_a_closed_transport_are_dropped_then_warned_about(loop, sockets, log):
    async with wire(sockets) as (transport, protocol, _):
        transport.close()
        await protocol.lost()
        for _ in range(4):
            transport.write(b"x")
        assert len(log.take()) <= 0
        for _ in range(10):
            transport.write(b"x")
        records = log.take()
        assert {(r.levelno, r.getMessage()) for r in records} == {(logging.WARNING, "socket.send() raised exception.")}


# ---- errors


async def test_a_peer_that_reset_is_told_once(loop, sockets):
    """The error of a write reaches connection_lost(); what is written afterwards is dropped in silence."""
    async with wire(sockets) as (transport, protocol, peer):
        transport.pause_reading()
        peer.sock.send(b"unread")
        peer.reset()
        for _ in range(50):
            transport.write(bytes(10_000))
            await asyncio.sleep(0)
            if transport.is_closing():
                break
        assert isinstance(await protocol.lost(), (ConnectionResetError, BrokenPipeError))
        assert protocol.events.count("lost") == 1
        assert transport.get_write_buffer_size() == 0


async def test_a_peer_that_goes_away_while_data_is_kept(loop, sockets):
    async with wire(sockets) as (transport, protocol, peer):
        await until_paused(transport, protocol)
        peer.reset()
        assert isinstance(await protocol.lost(), (ConnectionResetError, BrokenPipeError))
        assert transport.get_write_buffer_size() == 0
        assert protocol.events.count("lost") == 1


async def test_a_peer_that_goes_away_while_closing(loop, sockets):
    """close() with data kept, then a reset: connection_lost() once, with the error or none as the kernel has it."""
    async with wire(sockets) as (transport, protocol, peer):
        await until_paused(transport, protocol)
        transport.close()
        peer.reset()
        exc = await protocol.lost()
        assert exc is None or isinstance(exc, (ConnectionResetError, BrokenPipeError))
        await turns(5)
        assert protocol.events.count("lost") == 1


@pytest.mark.skipif(sys.platform != "linux", reason="looks at Linux's socket states")
async def test_close_really_closes(loop, sockets):
    """The descriptor is open in connection_lost() and closed soon afterwards, once."""
    seen = []

    class Looks(Recorder):
        def connection_lost(self, exc):
            seen.append(is_open(fd))
            super().connection_lost(exc)

    async with wire(sockets, Looks) as (transport, protocol, _):
        fd = transport.get_extra_info("socket").fileno()
        assert is_open(fd)
        transport.close()
        await protocol.lost()
        assert seen == [True]
        await eventually(lambda: not is_open(fd))
        taken = os.open(os.devnull, os.O_RDONLY)  # most likely the same number: a second close would hit it
        await turns(10)
        gc.collect()
        await asyncio.sleep(0.01)
        assert is_open(taken)
        os.close(taken)


def test_a_forgotten_transport_warns(new_loop, sockets):
    """A transport collected unclosed gives ResourceWarning and closes its descriptor."""
    loop = new_loop()
    ours, theirs = sockets.pair(tcp=True)
    transport, protocol = run(loop, loop.create_connection(type("P", (asyncio.Protocol,), {}), sock=ours))
    transport.pause_reading()
    alive = weakref.ref(protocol)
    loop.close()
    with pytest.warns(ResourceWarning, match="unclosed transport <"):
        del transport, protocol
        gc.collect()
    gc.collect()  # the recorded warning held its source
    assert alive() is None
    theirs.setblocking(True)
    theirs.settimeout(5)
    assert theirs.recv(1) == b""


async def test_a_forgotten_open_transport_lives_on(loop, sockets):
    """Nobody holds it but the loop: it still reads and still ends properly."""
    made = []

    class Keeps(Recorder):
        def connection_made(self, transport):
            super().connection_made(transport)
            self.transport = None
            made.append(weakref.ref(self))

    ours, theirs = sockets.pair(tcp=True)
    await loop.create_connection(Keeps, sock=ours)
    gc.collect()
    protocol = made[0]()
    assert protocol is not None
    theirs.send(b"x")
    assert await protocol.got(1) == b"x"
    theirs.close()
    await protocol.lost()


def test_kept_data_goes_out_in_a_later_run(loop, sockets):
    """What the kernel did not take is sent when the loop runs again."""
    blob = pattern(4 * MB)
    ours, theirs = sockets.pair(tcp=True)
    peer = sockets.peer(theirs)
    transport, protocol = run(loop, loop.create_connection(Recorder, sock=ours))
    transport.write(blob)
    turn(loop, 2)
    coming = peer.start(peer._recv, len(blob))

    async def wait():
        return await asyncio.wrap_future(coming)

    same(run(loop, wait()), blob)
    transport.close()
    run(loop, protocol.lost())


async def test_no_delay_is_set(loop, sockets):
    """TCP transports switch Nagle's algorithm off, as asyncio does."""
    for side in ("client", "accepted"):
        ours, _ = sockets.pair(tcp=True)
        ours.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 0)
        connect = loop.connect_accepted_socket if side == "accepted" else loop.create_connection
        transport, protocol = await connect(Recorder, sock=ours)
        assert transport.get_extra_info("socket").getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) != 0
        transport.close()
        await protocol.lost()
