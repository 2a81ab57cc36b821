"""Files over a socket and over a stream transport: what is sent, where the file stands afterwards, what is refused."""

import asyncio
import inspect
import io
import os
import re
import socket

import pytest

from support.drive import LIMIT, turns
from support.peers import KB, MB, pattern, same
from support.protocols import SIDES, Recorder, stuff, wire


@pytest.fixture
def file(tmp_path):
    """file(size): an open binary file of that size."""
    opened = []

    def make(size, mode="rb", **how):
        path = tmp_path / f"file{len(opened)}"
        path.write_bytes(pattern(size))
        opened.append(path.open(mode, **how))
        return opened[-1]

    yield make
    for f in opened:
        f.close()


def over_tcp(sockets):
    """A non-blocking socket, and the peer at its other end."""
    a, b = sockets.pair(tcp=True)
    return a, sockets.peer(b)


async def test_sendfile_over_a_transport(loop, sockets, tmp_path):
    path = tmp_path / "file"
    path.write_bytes(pattern(500_000))
    async with wire(sockets) as (transport, _, peer):
        coming = peer.start(peer._recv, 5 + 400_000 + 3)
        transport.write(b"head:")
        with path.open("rb") as f:
            assert await loop.sendfile(transport, f, 100_000, 400_000) == 400_000
        transport.write(b"end")
        same(await asyncio.wrap_future(coming), b"head:" + pattern(500_000)[100_000:] + b"end")


async def test_sendfile_over_a_socket(loop, sockets, tmp_path):
    path = tmp_path / "file"
    path.write_bytes(pattern(300_000))
    a, b = sockets.pair(tcp=True)
    peer = sockets.peer(b)
    coming = peer.start(peer._recv, 300_000)
    with path.open("rb") as f:
        assert await loop.sock_sendfile(a, f) == 300_000
    same(await asyncio.wrap_future(coming), pattern(300_000))


# ---- over a socket


@pytest.mark.parametrize("size", [1, 100, 300 * KB, 10 * MB])
@pytest.mark.parametrize(("offset", "count"), [(0, None), (7, None), (0, 50), (10, 10**9), (10**8, None)])
async def test_parts_of_a_file(loop, sockets, file, size, offset, count):
    """The number of bytes sent, and the position behind the last of them."""
    a, peer = over_tcp(sockets)
    f = file(size)
    want = pattern(size)[offset:][:count]
    coming = peer.start(peer._recv, len(want))
    assert await loop.sock_sendfile(a, f, offset, count) == len(want)
    same(await asyncio.wrap_future(coming), want)
    if want:
        assert f.tell() == offset + len(want)
    assert loop.remove_writer(a) is False


async def test_an_empty_file(loop, sockets, file):
    a, _ = sockets.pair()
    assert await loop.sock_sendfile(a, file(0)) == 0
    assert await loop.sock_sendfile(a, file(0), 10, 10) == 0
    assert await loop.sock_sendfile(a, file(0), 2**63) == 0
    with pytest.raises(OverflowError):
        await loop.sock_sendfile(a, file(1), 2**63)


@pytest.mark.parametrize("mode", ["native", "fallback"])
async def test_what_is_no_regular_file(loop, sockets, mode):
    """With a fallback it is read and sent; without one SendfileNotAvailableError says why."""
    a, peer = over_tcp(sockets)
    blob = pattern(100 * KB)
    f = io.BytesIO(blob)
    if mode == "native":
        with pytest.raises(asyncio.SendfileNotAvailableError, match=r"^not a regular file$"):
            await loop.sock_sendfile(a, f, fallback=False)
        return
    coming = peer.start(peer._recv, 50 * KB)
    assert await loop.sock_sendfile(a, f, 10, 50 * KB) == 50 * KB
    same(await asyncio.wrap_future(coming), blob[10 : 10 + 50 * KB])
    assert f.tell() == 10 + 50 * KB


async def test_a_file_that_the_system_cannot_send(loop, sockets):
    """A pipe is no file to be sent so."""
    a, peer = over_tcp(sockets)
    r, w = sockets.pipe()
    w.write(b"through the pipe")
    w.close()
    # Newer versions seek to the offset before they say that the file is none.
    seeks = "total_sent" not in inspect.signature(asyncio.SelectorEventLoop._sock_sendfile_update_filepos).parameters
    error, text = (
        (OSError, "Illegal seek") if seeks else (asyncio.SendfileNotAvailableError, r"^os\.sendfile call failed$")
    )
    with pytest.raises(error, match=text):
        await loop._sock_sendfile_native(a, r, 0, 5)
    assert peer.now() is None


async def test_closed_files_and_sockets(loop, sockets, file):
    a, _ = sockets.pair()
    f = file(10)
    f.close()
    with pytest.raises(ValueError, match="closed file"):
        await loop.sock_sendfile(a, f)
    a.close()
    with pytest.raises(asyncio.SendfileNotAvailableError, match=r"^os\.sendfile call failed$"):
        await loop.sock_sendfile(a, file(10), fallback=False)
    with pytest.raises(OSError, match="Bad file descriptor"):
        await loop.sock_sendfile(a, file(10))


@pytest.mark.parametrize(
    ("offset", "count", "error", "text"),
    [
        (0, 0, ValueError, "count must be a positive integer (got 0)"),
        (0, -1, ValueError, "count must be a positive integer (got -1)"),
        (0, 1.5, TypeError, "count must be a positive integer (got 1.5)"),
        (-1, None, ValueError, "offset must be a non-negative integer (got -1)"),
        ("x", None, TypeError, "offset must be a non-negative integer (got 'x')"),
        (2**70, None, OverflowError, "Python int too large to convert to C"),
    ],
)
async def test_wrong_numbers(loop, sockets, file, offset, count, error, text):
    a, _ = sockets.pair()
    with pytest.raises(error, match=re.escape(text)):
        await loop.sock_sendfile(a, file(10), offset, count)


async def test_wrong_files_and_sockets(loop, sockets, file, tmp_path):
    a, _ = sockets.pair()
    with pytest.raises(ValueError, match=r"^file should be opened in binary mode$"):
        await loop.sock_sendfile(a, file(1, "r"))
    with sockets.own(socket.socket(type=socket.SOCK_DGRAM)) as datagrams:
        datagrams.setblocking(False)
        with pytest.raises(ValueError, match=r"^only SOCK_STREAM type sockets are supported$"):
            await loop.sock_sendfile(datagrams, file(1))
    loop.set_debug(True)
    a.settimeout(1)
    with pytest.raises(ValueError, match=r"^the socket must be non-blocking$"):
        await loop.sock_sendfile(a, file(1))


@pytest.mark.parametrize("total", [None, 12 * MB])
async def test_cancelled_half_way(loop, sockets, file, total):
    """The descriptor is free and the peer has the file's beginning."""
    a, peer = over_tcp(sockets)
    f = file(16 * MB)
    sending = asyncio.ensure_future(loop.sock_sendfile(a, f, 0, total))
    await asyncio.sleep(0.05)
    sending.cancel()
    with pytest.raises(asyncio.CancelledError):
        await sending
    assert loop.remove_writer(a) is False
    a.close()
    got = await peer.recv_all()
    assert 0 < len(got) < 12 * MB
    same(got, pattern(16 * MB)[: len(got)])


@pytest.mark.uvpy_only("asyncio sets the position only where the socket was ready in the turn of the cancelling")
async def test_cancelled_half_way_the_position_is_that_of_the_next_byte(loop, sockets, file):
    a, peer = over_tcp(sockets)
    f = file(16 * MB)
    sending = asyncio.ensure_future(loop.sock_sendfile(a, f, 5))
    await asyncio.sleep(0.05)
    sending.cancel()
    with pytest.raises(asyncio.CancelledError):
        await sending
    a.close()
    assert f.tell() == 5 + len(await peer.recv_all())


@pytest.mark.uvpy_only("asyncio uses the number whatever it means by then")
@pytest.mark.parametrize("end", ["goes on", "is cancelled"])
async def test_the_file_is_closed_and_its_number_another_files(loop, sockets, file, end):
    a, peer = over_tcp(sockets)
    f, other = file(16 * MB), file(100, "rb", buffering=0)
    number = f.fileno()
    sending = asyncio.ensure_future(loop.sock_sendfile(a, f))
    await asyncio.sleep(0.02)
    f.close()
    with open(os.dup2(other.fileno(), number), "rb", buffering=0):
        other.seek(7)
        if end == "is cancelled":
            sending.cancel()
            with pytest.raises(asyncio.CancelledError):
                await sending
        else:
            coming = peer.start(peer._recv, None)
            with pytest.raises(OSError, match="Bad file descriptor"):
                await asyncio.wait_for(sending, LIMIT)
            a.close()
            await asyncio.wrap_future(coming)
        assert other.tell() == 7


async def test_the_peer_vanishes(loop, sockets, file):
    a, peer = over_tcp(sockets)
    f = file(16 * MB)
    sending = asyncio.ensure_future(loop.sock_sendfile(a, f))
    await asyncio.sleep(0.02)
    peer.reset()
    with pytest.raises((BrokenPipeError, ConnectionResetError)):
        await asyncio.wait_for(sending, LIMIT)
    assert f.tell() > 0
    assert loop.remove_writer(a) is False


async def test_the_file_shrinks_meanwhile(loop, sockets, file):
    """What is there is sent, and the end is its end."""
    a, peer = over_tcp(sockets)
    f = file(16 * MB, "r+b", buffering=0)
    sending = asyncio.ensure_future(loop.sock_sendfile(a, f))
    await asyncio.sleep(0.02)
    assert not sending.done()
    f.truncate(1)
    coming = peer.start(peer._recv, None)
    sent = await asyncio.wait_for(sending, LIMIT)
    assert 0 < sent < 16 * MB
    a.close()
    assert len(await asyncio.wrap_future(coming)) == sent  # of what was cut off, the kernel may send zeros


async def test_others_run_meanwhile(loop, sockets, file):
    """However fast the peer is: the loop turns while a big file goes."""
    a, peer = over_tcp(sockets)
    coming = peer.start(peer._recv, 64 * MB)
    with file(1, "r+b") as f:
        f.truncate(64 * MB)
        count = 0

        async def counting():
            nonlocal count
            while True:
                await asyncio.sleep(0)
                count += 1

        counter = asyncio.ensure_future(counting())
        assert await loop.sock_sendfile(a, f) == 64 * MB
        counter.cancel()
    await asyncio.wrap_future(coming)
    assert count >= 10


@pytest.mark.uvpy_only("programs that look for blocking calls let asyncio's own file make them")
async def test_no_blocking_call_of_python_is_made(loop, sockets, file, monkeypatch):
    def blocking(*args):
        raise AssertionError("a blocking call")

    a, peer = over_tcp(sockets)
    coming = peer.start(peer._recv, 10 * KB)
    f = file(10 * KB)
    for name in ("sendfile", "fstat", "lseek"):
        monkeypatch.setattr(os, name, blocking)
    assert await loop.sock_sendfile(a, f) == 10 * KB
    monkeypatch.undo()
    await asyncio.wrap_future(coming)


async def test_where_os_has_no_sendfile(loop, sockets, file, monkeypatch):
    a, peer = over_tcp(sockets)
    monkeypatch.delattr(os, "sendfile")
    with pytest.raises(asyncio.SendfileNotAvailableError, match=r"^os\.sendfile\(\) is not available$"):
        await loop.sock_sendfile(a, file(10), fallback=False)
    coming = peer.start(peer._recv, 10)
    assert await loop.sock_sendfile(a, file(10)) == 10
    same(await asyncio.wrap_future(coming), pattern(10))


async def test_sendall_and_recv_around_it(loop, sockets, file):
    a, peer = over_tcp(sockets)
    coming = peer.start(peer._recv, 4 + 5 * MB + 4)
    receiving = asyncio.ensure_future(loop.sock_recv(a, 9))
    await loop.sock_sendall(a, b"head")
    assert await loop.sock_sendfile(a, file(5 * MB)) == 5 * MB
    await loop.sock_sendall(a, b"tail")
    same(await asyncio.wrap_future(coming), b"head" + pattern(5 * MB) + b"tail")
    await peer.send(b"back")
    assert await receiving == b"back"


async def test_the_descriptor_of_a_transport(loop, sockets, file):
    """A transport's socket is refused where it would have to be watched."""
    async with wire(sockets) as (transport, _, peer):
        stuff(transport)
        fd = transport.get_extra_info("socket").fileno()
        stranger = socket.socket(fileno=fd)
        try:
            with pytest.raises(RuntimeError, match=r"^File descriptor \d+ is used by transport "):
                await loop.sock_sendfile(stranger, file(MB), fallback=False)
        finally:
            stranger.detach()
        transport.abort()


# ---- over a transport


@pytest.mark.parametrize("side", SIDES)
async def test_a_transport_keeps_the_order(loop, sockets, file, side):
    async with wire(sockets, Recorder, side) as (transport, _, peer):
        for _ in range(3):
            coming = peer.start(peer._recv, 4 + 300 * KB + 4)
            transport.write(b"head")
            assert await loop.sendfile(transport, file(300 * KB)) == 300 * KB
            transport.write(b"tail")
            same(await asyncio.wrap_future(coming), b"head" + pattern(300 * KB) + b"tail")


async def test_a_transport_with_a_full_buffer(loop, sockets, file):
    """The file comes behind what waits; writing meanwhile is refused."""
    async with wire(sockets) as (transport, _, peer):
        before = stuff(transport)
        sending = asyncio.ensure_future(loop.sendfile(transport, file(200 * KB)))
        await turns(3)
        assert not sending.done()
        with pytest.raises(RuntimeError, match="unable to write; sendfile is in progress"):
            transport.write(b"x")
        got = await peer.recv(before + 200 * KB)
        assert await sending == 200 * KB
        same(got[before:], pattern(200 * KB))


@pytest.mark.parametrize("end", ["done", "cancelled", "failed"])
@pytest.mark.parametrize("paused", [False, True])
async def test_a_transport_reads_again_as_it_did(loop, sockets, file, end, paused):
    async with wire(sockets) as (transport, protocol, peer):
        if paused:
            transport.pause_reading()
        if end == "failed":
            with pytest.raises(asyncio.SendfileNotAvailableError):
                await loop._sendfile_native(transport, io.BytesIO(b"x"), 0, None)
        else:
            sending = asyncio.ensure_future(loop.sendfile(transport, file(16 * MB)))
            await turns(5)
            assert not transport.is_reading()
            if end == "cancelled":
                sending.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await sending
            else:
                coming = peer.start(peer._recv, 16 * MB)
                assert await sending == 16 * MB
                await asyncio.wrap_future(coming)
        assert transport.is_reading() is not paused
        if paused:
            transport.resume_reading()
        await peer.send(b"back")
        assert await protocol.got(4) == b"back"
        transport.abort()


async def test_a_transport_whose_peer_vanishes(loop, sockets, file):
    async with wire(sockets) as (transport, protocol, peer):
        sending = asyncio.ensure_future(loop.sendfile(transport, file(16 * MB)))
        await asyncio.sleep(0.02)
        peer.reset()
        with pytest.raises((BrokenPipeError, ConnectionResetError)):
            await asyncio.wait_for(sending, LIMIT)
        transport.abort()
        await protocol.lost()


async def test_a_transport_that_is_closing(loop, sockets, file):
    async with wire(sockets) as (transport, protocol, _):
        transport.close()
        with pytest.raises(RuntimeError, match=r"^Transport is closing$"):
            await loop.sendfile(transport, file(1))
        await protocol.lost()


async def test_a_transport_and_no_regular_file(loop, sockets):
    async with wire(sockets) as (transport, _, peer):
        with pytest.raises(asyncio.SendfileNotAvailableError, match=r"^not a regular file$"):
            await loop.sendfile(transport, io.BytesIO(b"x"), fallback=False)
        assert await loop.sendfile(transport, io.BytesIO(b"hello"), 1, 3) == 3
        assert await peer.recv(3) == b"ell"
