"""What sock_recv() and its siblings watch, and for how long: waiting, cancelling, racing, and the read side of a socket
that is kept watched between two calls and is everybody else's all the same.
"""

import asyncio
import contextlib
import gc
import os
import pathlib
import socket
import subprocess
import sys
import weakref

import pytest

from support.drive import LIMIT, cpu_below, eventually, run, run_until_stopped, turn, turns
from support.peers import KB, MB, fill, pattern, same
from support.protocols import Recorder


async def received(loop, a, b, times=3):
    """Has sock_recv() wait for `a` so many times, so that its read side is kept watched."""
    for i in range(times):
        waiting = asyncio.ensure_future(loop.sock_recv(a, 100))
        await turns(2)
        b.send(b"%d" % i)
        assert await asyncio.wait_for(waiting, LIMIT) == b"%d" % i


def watched_by_kernel(sock):
    """How often the kernel's sets of this process have a socket's number."""
    found = 0
    for name in os.listdir("/proc/self/fdinfo"):
        with contextlib.suppress(OSError):
            lines = pathlib.Path(f"/proc/self/fdinfo/{name}").read_text().splitlines()
            found += sum(line.split()[:2] == ["tfd:", str(sock.fileno())] for line in lines)
    return found


def once(loop, sock, got):
    """A reader that takes what is there and removes itself."""

    def read():
        got.append(sock.recv(100))
        loop.remove_reader(sock)

    return read


# ---- waiting and cancelling


async def test_both_sides_of_a_socket_at_once(loop, sockets):
    a, b = sockets.pair()
    blob = pattern(4 * MB)
    for _ in range(3):
        sending = asyncio.ensure_future(loop.sock_sendall(a, blob))
        receiving = asyncio.ensure_future(loop.sock_recv(a, 10))
        await turns(3)
        b.send(b"back")
        assert await receiving == b"back"
        got = bytearray()
        while len(got) < len(blob):
            got += await loop.sock_recv(b, 256 * KB)
        same(bytes(got), blob)
        await sending
        await received(loop, a, b)


async def test_a_second_call_takes_the_place_of_the_first(loop, sockets):
    """As a second add_reader() does: the data is the second one's, the first waits until it is cancelled."""
    a, b = sockets.pair()
    await received(loop, a, b)
    first = asyncio.ensure_future(loop.sock_recv(a, 100))
    await turns(2)
    second = asyncio.ensure_future(loop.sock_recv_into(a, buffer := bytearray(9)))
    await turns(2)
    b.send(b"x")
    assert await asyncio.wait_for(second, LIMIT) == 1
    assert buffer[:1] == b"x"
    b.send(b"y")
    await turns(5)
    assert not first.done()
    assert await loop.sock_recv(a, 9) == b"y"
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    await received(loop, a, b)


async def test_cancelling_the_first_of_two_leaves_the_second(loop, sockets):
    a, b = sockets.pair()
    first = asyncio.ensure_future(loop.sock_recv(a, 100))
    await turns(2)
    second = asyncio.ensure_future(loop.sock_recv(a, 100))
    await turns(2)
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    b.send(b"x")
    assert await asyncio.wait_for(second, LIMIT) == b"x"


async def test_cancelled_in_the_turn_in_which_the_data_comes(loop, sockets):
    """Cancelled before the loop comes to read: the data is the next one's."""
    a, b = sockets.pair()
    for i in range(20):
        waiting = asyncio.ensure_future(loop.sock_recv(a, 100))
        await turns(2)
        b.send(b"%d" % i)
        loop.call_soon(waiting.cancel)
        await turns(1)
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert await loop.sock_recv(a, 100) == b"%d" % i


async def test_time_outs_lose_nothing(loop, sockets):
    pairs = [sockets.pair() for _ in range(5)]

    async def waits(a):
        for _ in range(10):
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(loop.sock_recv(a, 7), 0.001)

    await asyncio.gather(*(waits(a) for a, _ in pairs))
    for a, b in pairs:
        assert loop.remove_reader(a) is False
        b.send(b"precious")
        assert await loop.sock_recv(a, 100) == b"precious"


async def test_the_other_call_after_a_cancelled_one(loop, sockets):
    a, b = sockets.pair()
    fill(a)
    first = asyncio.ensure_future(loop.sock_sendall(a, b"never"))
    await turns(2)
    first.cancel()
    second = asyncio.ensure_future(loop.sock_sendall(a, b"second"))
    got = bytearray()
    while not got.endswith(b"second"):
        got += await loop.sock_recv(b, MB)
    assert b"never" not in got
    await second
    assert first.cancelled()


def test_a_pending_call_is_a_reader(loop, sockets):
    """remove_reader() takes it away, and says so; the data stays."""
    a, b = sockets.pair()
    run(loop, received(loop, a, b))
    task = loop.create_task(loop.sock_recv(a, 9))
    turn(loop, 2)
    assert loop.remove_reader(a) is True
    assert loop.remove_reader(a) is False
    b.send(b"x")
    turn(loop, 3)
    assert not task.done()
    assert run(loop, loop.sock_recv(a, 9)) == b"x"
    task.cancel()
    turn(loop, 2)
    assert task.cancelled()


async def test_nothing_keeps_a_socket_alive(loop, sockets):
    a, b = sockets.pair()
    await received(loop, a, b)
    task = asyncio.ensure_future(loop.sock_recv(a, 9))
    await turns(2)
    task.cancel()
    await asyncio.wait([task])
    del task
    fd = a.detach()
    mine = socket.socket(fileno=fd)
    mine.setblocking(False)
    await received(loop, mine, b)
    ref = weakref.ref(mine)
    mine.close()
    del mine
    await turns(2)
    gc.collect()
    assert ref() is None


# ---- a side that is kept watched belongs to whoever wants it


@pytest.mark.uvpy_only("asyncio adds and removes each time")
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_a_side_is_kept_while_it_is_of_use(loop, sockets):
    a, b = sockets.pair()
    run(loop, received(loop, a, b))
    assert watched_by_kernel(a) == 1
    assert loop._debug_handles() == []
    turn(loop, 3)
    assert watched_by_kernel(a) == 1
    skipped = loop._core_stats()["polls_skipped"]
    turn(loop, 10)
    assert loop._core_stats()["polls_skipped"] >= skipped + 10  # nobody waits: no reason to poll
    b.send(b"for nobody")
    run(loop, asyncio.sleep(0.01))
    assert watched_by_kernel(a) == 0
    assert run(loop, loop.sock_recv(a, 99)) == b"for nobody"
    run(loop, received(loop, a, b))
    assert watched_by_kernel(a) == 1
    loop.remove_reader(a)
    assert watched_by_kernel(a) == 0


async def test_data_for_nobody_does_not_make_the_loop_spin(loop, sockets):
    a, b = sockets.pair()
    await received(loop, a, b)
    with cpu_below(0.1):
        b.send(b"x")
        await asyncio.sleep(0.15)
        b.send(b"y")
        await asyncio.sleep(0.15)
    assert await loop.sock_recv(a, 9) == b"xy"


async def test_a_reader_after_it_is_called_while_there_is_data(loop, sockets):
    """In every iteration, not once only, and also for data that was there before."""
    a, b = sockets.pair()
    await received(loop, a, b)
    b.send(b"x")
    await turns(2)
    calls = []
    loop.add_reader(a, calls.append, 1)
    await eventually(lambda: len(calls) >= 5)
    assert loop.remove_reader(a) is True
    assert await loop.sock_recv(a, 9) == b"x"
    await received(loop, a, b)


async def test_a_writer_beside_it(loop, sockets):
    a, b = sockets.pair()
    await received(loop, a, b)
    calls = []
    loop.add_writer(a, calls.append, 1)
    await eventually(lambda: len(calls) >= 3)
    b.send(b"x")
    await turns(5)
    assert await loop.sock_recv(a, 9) == b"x"
    await received(loop, a, b)
    assert loop.remove_writer(a) is True
    await received(loop, a, b)
    waiting = asyncio.ensure_future(loop.sock_recv(a, 9))
    await turns(2)
    loop.add_writer(a, calls.append, 1)
    assert loop.remove_writer(a) is True
    b.send(b"y")
    assert await asyncio.wait_for(waiting, LIMIT) == b"y"


async def test_a_reader_in_the_place_of_a_pending_call(loop, sockets):
    a, b = sockets.pair()
    await received(loop, a, b)
    waiting = asyncio.ensure_future(loop.sock_recv(a, 9))
    await turns(2)
    got = []
    loop.add_reader(a, once(loop, a, got))
    b.send(b"x")
    await eventually(lambda: got)
    assert got == [b"x"]
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting


@pytest.mark.parametrize("tcp", [False, True])
async def test_a_transport_after_it(loop, sockets, tcp):
    a, b = sockets.pair(tcp=tcp)
    peer = sockets.peer(b.dup())
    await received(loop, a, b)
    transport, protocol = await loop.create_connection(Recorder, sock=a)
    await peer.send(b"hello")
    await protocol.got(5)
    transport.write(b"back")
    assert await peer.recv(4) == b"back"
    with cpu_below(0.1):
        transport.pause_reading()
        await peer.send(b"x")
        await asyncio.sleep(0.15)
    transport.abort()
    await protocol.lost()


async def test_a_datagram_transport_after_it(loop, sockets):
    a, b = (sockets.own(socket.socket(type=socket.SOCK_DGRAM)) for _ in range(2))
    for sock in (a, b):
        sock.bind(("127.0.0.1", 0))
        sock.setblocking(False)
    b.connect(a.getsockname())
    await received(loop, a, b)
    got = []

    class Datagrams(asyncio.DatagramProtocol):
        def datagram_received(self, data, address):
            got.append(data)

    transport, _ = await loop.create_datagram_endpoint(Datagrams, sock=a)
    b.send(b"x")
    await eventually(lambda: got)
    transport.close()
    await turns(3)


async def test_a_server_after_it(loop, sockets):
    listener = sockets.listener()
    for _ in range(2):
        accepting = asyncio.ensure_future(loop.sock_accept(listener))
        await turns(2)
        client = sockets.own(socket.create_connection(listener.getsockname(), timeout=LIMIT))
        conn, _ = await accepting
        sockets.own(conn)
    made = []
    server = await loop.create_server(lambda: made.append(Recorder()) or made[-1], sock=listener)
    client = sockets.dial(listener.getsockname()[1])
    await client.send(b"x")
    await eventually(lambda: made)
    await made[0].got(1)
    client.close()
    await made[0].lost()
    server.close()
    await server.wait_closed()


# ---- numbers are used again


async def test_the_number_is_another_sockets(loop, sockets):
    """Closed and made anew between the calls, and while one waits."""
    for i in range(60):
        a, b = socket.socketpair()
        with a, b:
            a.setblocking(False)
            await received(loop, a, b, times=i % 3)
            waiting = asyncio.ensure_future(loop.sock_recv(a, 10))
            await turns(2)
            if i % 2:
                waiting.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await waiting
            else:
                b.send(b"%d" % i)
                assert await asyncio.wait_for(waiting, LIMIT) == b"%d" % i


@pytest.mark.uvpy_only("asyncio's selector fails: FileNotFoundError from its epoll_ctl")
async def test_the_number_is_another_sockets_while_a_call_waits(loop, sockets):
    a, b = socket.socketpair()
    a.setblocking(False)
    await received(loop, a, b)
    number = a.fileno()
    waiting = asyncio.ensure_future(loop.sock_recv(a, 10))
    await turns(2)
    a.close()
    b.close()
    c, d = sockets.pair()
    if c.fileno() != number:
        c, d = d, c
    assert c.fileno() == number
    await received(loop, c, d)
    assert not waiting.done()
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    await received(loop, c, d)


@pytest.mark.parametrize("use", ["recv", "reader", "nothing"])
async def test_a_closed_socket_whose_file_lives_on(loop, sockets, use):
    """A duplicate keeps the file of the closed number open, and its traffic is nobody's here."""
    a, b = socket.socketpair()
    b.setblocking(False)
    sockets.own(b)
    a.setblocking(False)
    await received(loop, a, b)
    number = a.fileno()
    living = sockets.own(a.dup())
    a.close()
    c, d = sockets.pair() if use != "nothing" else (None, None)
    if c is not None and c.fileno() != number:
        c, d = d, c
    with cpu_below(0.15):
        if use == "recv":
            assert c.fileno() == number
            waiting = asyncio.ensure_future(loop.sock_recv(c, 9))
            await turns(2)
        elif use == "reader":
            assert c.fileno() == number
            got = []
            loop.add_reader(c, once(loop, c, got))
        b.send(b"not yours")
        await asyncio.sleep(0.1)
        if use == "recv":
            assert not waiting.done()
            d.send(b"x")
            assert await waiting == b"x"
        elif use == "reader":
            assert got == []
            d.send(b"x")
            await eventually(lambda: got)
            assert got == [b"x"]
        b.send(b"more")
        await asyncio.sleep(0.1)
    assert living.recv(99) == b"not yoursmore"


@pytest.mark.parametrize("again", [True, False])
async def test_a_socket_object_made_of_the_same_descriptor(loop, sockets, again):
    a, b = sockets.pair()
    await received(loop, a, b)
    mine = sockets.own(socket.socket(fileno=a.detach()))
    mine.setblocking(False)
    await received(loop, mine, b)
    if again:
        dup = sockets.own(mine.dup())
        mine.close()
        await received(loop, dup, b)


async def test_closed_behind_the_loops_back(loop, sockets):
    """The call waits, as asyncio's does, and cancelling it is quiet."""
    a, b = socket.socketpair()
    a.setblocking(False)
    waiting = asyncio.ensure_future(loop.sock_recv(a, 9))
    await turns(2)
    os.close(a.detach())
    b.close()
    with cpu_below(0.1):
        await asyncio.sleep(0.1)
    assert not waiting.done()
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
def test_a_child_process_that_inherits_the_socket(loop, sockets):
    """A program that was started with the socket and reads nothing: no events of it come here, nothing spins."""
    a, b = sockets.pair()
    run(loop, received(loop, a, b))
    fd = a.fileno()
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE, pass_fds=[fd]) as child:
        a.close()
        b.send(b"x")
        with cpu_below(0.1):
            run(loop, asyncio.sleep(0.15))
            b.send(b"y")
            run(loop, asyncio.sleep(0.15))
        child.stdin.close()


# ---- runs


def test_a_call_goes_on_in_the_next_run(loop, sockets):
    a, b = sockets.pair()
    run(loop, received(loop, a, b))
    task = loop.create_task(loop.sock_recv(a, 9))
    turn(loop, 2)
    b.send(b"x")
    loop.call_soon(loop.stop)
    run_until_stopped(loop)
    turn(loop, 3)
    assert task.result() == b"x"
    task = loop.create_task(loop.sock_recv(a, 9))
    turn(loop, 1)
    b.send(b"y")
    assert run(loop, task) == b"y"


async def test_many_at_once(loop, sockets):
    """More sockets than one look at the kernel's set brings."""
    pairs = [sockets.pair() for _ in range(300)]
    for name in (b"one", b"two"):
        tasks = [asyncio.ensure_future(loop.sock_recv(a, 9)) for a, _ in pairs]
        await turns(2)
        for _, b in pairs:
            b.send(name)
        assert await asyncio.gather(*tasks) == [name] * len(pairs)
    for _, b in pairs:
        b.send(b"for nobody")
    with cpu_below(0.2):
        await asyncio.sleep(0.1)
    assert [await loop.sock_recv(a, 99) for a, _ in pairs] == [b"for nobody"] * len(pairs)
