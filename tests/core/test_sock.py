"""sock_recv() and its siblings: what they give, refuse and raise. Waiting and what is watched: test_sock_watch.py;
connecting and accepting: test_sock_connect.py."""

import array
import asyncio
import contextlib
import errno
import inspect
import re
import socket
import ssl

import pytest

from support.drive import LIMIT, in_thread, run, turn, turns
from support.peers import KB, MB, fill, pattern, reset, same

RECEIVING = {
    "sock_recv": lambda: (10,),
    "sock_recv_into": lambda: (bytearray(10),),
    "sock_recvfrom": lambda: (10,),
    "sock_recvfrom_into": lambda: (bytearray(10),),
}
OTHERS = {
    "sock_sendall": lambda: (b"x",),
    "sock_sendto": lambda: (b"x", ("127.0.0.1", 9)),
    "sock_connect": lambda: (("127.0.0.1", 9),),
    "sock_accept": lambda: (),
}
ALL = {**RECEIVING, **OTHERS}


class Own(socket.socket):
    """A socket class of the program's, which counts its calls."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.calls, self.fault = [], []

    def _note(self, name):
        self.calls.append(name)
        if self.fault:
            fault = self.fault.pop(0)
            if fault is not None:
                raise fault

    def recv(self, *args):
        self._note("recv")
        return super().recv(*args)

    def send(self, *args):
        self._note("send")
        return super().send(*args)


def own(sockets):
    """A pair of which the first socket is an Own."""
    a, b = sockets.pair()
    mine = sockets.own(Own(fileno=a.detach()))
    mine.setblocking(False)
    return mine, b


def udp(sockets):
    sock = sockets.own(socket.socket(type=socket.SOCK_DGRAM))
    sock.bind(("127.0.0.1", 0))
    sock.setblocking(False)
    return sock


async def later(loop, fn, *args):
    """Two turns later, when the call under test waits."""
    await turns(2)
    fn(*args)


async def test_sock_calls(loop, sockets):
    listener = sockets.listener()
    accepting = asyncio.ensure_future(loop.sock_accept(listener))
    client = sockets.own(socket.socket())
    client.setblocking(False)
    await loop.sock_connect(client, listener.getsockname())
    server, address = await accepting
    sockets.own(server)
    assert address == client.getsockname()
    blob = pattern(4 * MB)
    sending = asyncio.ensure_future(loop.sock_sendall(client, blob))
    got = bytearray()
    while len(got) < len(blob):
        got += await loop.sock_recv(server, 256 * KB)
    same(bytes(got), blob)
    await sending
    buffer = bytearray(10)
    receiving = asyncio.ensure_future(loop.sock_recv_into(client, buffer))
    await turns(2)
    await loop.sock_sendall(server, b"into")
    assert await receiving == 4
    assert buffer[:4] == b"into"
    server.close()
    assert await loop.sock_recv(client, 5) == b""


async def test_sock_calls_of_datagrams(loop, sockets):
    a, b = (sockets.own(socket.socket(type=socket.SOCK_DGRAM)) for _ in range(2))
    for sock in (a, b):
        sock.bind(("127.0.0.1", 0))
        sock.setblocking(False)
    receiving = asyncio.ensure_future(loop.sock_recvfrom(b, 100))
    assert await loop.sock_sendto(a, b"x", b.getsockname()) == 1
    assert await receiving == (b"x", a.getsockname())
    buffer = bytearray(10)
    await loop.sock_sendto(a, b"abc", b.getsockname())
    assert await loop.sock_recvfrom_into(b, buffer) == (3, a.getsockname())


async def test_a_cancelled_sock_call_frees_the_descriptor(loop, sockets):
    """The next call on the same socket works at once, and nothing is lost."""
    a, b = sockets.pair()
    for i in range(5):
        task = asyncio.ensure_future(loop.sock_recv(a, 10))
        await turns(1 + i)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        b.send(b"%d" % i)
        assert await loop.sock_recv(a, 10) == b"%d" % i
    assert loop.remove_reader(a) is False
    fill(a)
    task = asyncio.ensure_future(loop.sock_sendall(a, b"more"))
    await turns(2)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert loop.remove_writer(a) is False


async def test_sock_calls_on_wrong_sockets(loop, sockets):
    blocking, _ = sockets.pair(blocking=True)
    loop.set_debug(True)
    with pytest.raises(ValueError, match="must be non-blocking"):
        await loop.sock_recv(blocking, 1)
    loop.set_debug(False)
    client = sockets.own(socket.socket())
    client.setblocking(False)
    with pytest.raises(ConnectionRefusedError):
        await loop.sock_connect(client, ("127.0.0.1", sockets.dead_port()))


# ---- what is given


def test_they_are_coroutine_functions(loop, sockets):
    a, b = sockets.pair()
    assert all(inspect.iscoroutinefunction(getattr(loop, name)) for name in ALL)
    task = loop.create_task(loop.sock_recv(a, 3))
    turn(loop, 2)
    b.send(b"abc")
    assert run(loop, asyncio.wait_for(task, LIMIT)) == b"abc"


@pytest.mark.parametrize("size", [1, 5, 64 * KB, 256 * KB, 256 * KB + 1, 2 * MB])
async def test_sizes_of_a_recv(loop, sockets, size):
    """At once and after waiting, up to and past what one of our buffers holds."""
    a, b = sockets.pair()
    b.send(b"hello")
    got = await loop.sock_recv(a, size)
    assert got == b"hello"[:size]
    if size == 1:
        assert await loop.sock_recv(a, 10) == b"ello"
    waiting = asyncio.ensure_future(loop.sock_recv(a, size))
    await later(loop, b.send, b"later")
    assert await waiting == b"later"[:size]


async def test_a_recv_of_nothing_does_not_wait(loop, sockets):
    a, b = sockets.pair()
    assert await loop.sock_recv(a, 0) == b""
    b.send(b"x")
    assert await loop.sock_recv(a, False) == b""
    assert await loop.sock_recv(a, True) == b"x"


@pytest.mark.parametrize("wrong", ["x", None, 1.5, -1, 2**70], ids=repr)
async def test_wrong_sizes_are_the_sockets_own_errors(loop, sockets, wrong):
    a, _ = sockets.pair()
    with pytest.raises((TypeError, ValueError, OverflowError)) as said:
        a.recv(wrong)
    with pytest.raises(said.type, match=re.escape(str(said.value))):
        await loop.sock_recv(a, wrong)


@pytest.mark.parametrize("wrong", [b"read only", "x", None, 5, memoryview(bytearray(10))[::2]], ids=repr)
async def test_wrong_buffers_are_the_sockets_own_errors(loop, sockets, wrong):
    a, b = sockets.pair()
    b.send(b"x")
    with pytest.raises((TypeError, BufferError)) as said:
        a.recv_into(wrong)
    with pytest.raises(said.type, match=re.escape(str(said.value))):
        await loop.sock_recv_into(a, wrong)
    assert await loop.sock_recv(a, 2) == b"x"


@pytest.mark.parametrize("make", [bytearray, lambda n: memoryview(bytearray(n)), lambda n: array.array("I", bytes(n))])
async def test_buffers_to_receive_into(loop, sockets, make):
    a, b = sockets.pair()
    for wait in (False, True):
        buffer = make(16)
        waiting = asyncio.ensure_future(loop.sock_recv_into(a, buffer))
        if wait:
            await turns(2)
        b.send(b"01234567")
        assert await waiting == 8
        assert bytes(memoryview(buffer).cast("B"))[:9] == b"01234567\0"


@pytest.mark.parametrize("wrong", ["text", 5, None, [b"x"], object()], ids=repr)
async def test_wrong_data_is_a_type_error(loop, sockets, wrong):
    a, b = sockets.pair()
    with pytest.raises(TypeError, match=type(wrong).__name__):
        await loop.sock_sendall(a, wrong)
    with pytest.raises(BlockingIOError):
        b.recv(1)


@pytest.mark.parametrize("make", [bytes, bytearray, memoryview], ids=lambda m: m.__name__)
async def test_sendall_of_kinds_of_bytes(loop, sockets, make):
    a, b = sockets.pair()
    await loop.sock_sendall(a, make(b"hello"))
    assert b.recv(9) == b"hello"
    blob = pattern(2 * MB)
    sending = asyncio.ensure_future(loop.sock_sendall(a, make(blob)))
    got = bytearray()
    while len(got) < len(blob):
        got += await loop.sock_recv(b, 64 * KB)
    same(bytes(got), blob)
    assert await sending is None


@pytest.mark.uvpy_only("asyncio compares the bytes sent with the number of items, and spins for ever")
@pytest.mark.parametrize("is_own", [True, False])
@pytest.mark.parametrize("size", [64, 2 * MB])
async def test_sendall_of_other_formats(loop, sockets, is_own, size):
    a, b = own(sockets) if is_own else sockets.pair()
    blob = pattern(size)
    for data in (array.array("I", blob), memoryview(blob).cast("B", (size // 8, 8))):
        sending = asyncio.ensure_future(loop.sock_sendall(a, data))
        got = bytearray()
        while len(got) < size:
            got += await loop.sock_recv(b, 64 * KB)
        same(bytes(got), blob)
        await sending


async def test_sendall_of_nothing(loop, sockets):
    a, b = sockets.pair()
    assert await loop.sock_sendall(a, b"") is None
    fill(a)
    assert await loop.sock_sendall(a, b"") is None
    b.close()
    with contextlib.suppress(BrokenPipeError):
        await loop.sock_sendall(a, b"")


async def test_data_cannot_change_its_size_while_it_is_sent(loop, sockets):
    a, _ = sockets.pair()
    data = bytearray(8 * MB)
    sending = asyncio.ensure_future(loop.sock_sendall(a, data))
    await turns(2)
    with pytest.raises(BufferError):
        data.append(1)
    sending.cancel()
    with pytest.raises(asyncio.CancelledError):
        await sending
    del sending
    await turns(2)
    data.append(1)


async def test_datagrams_of_nothing_and_with_limits(loop, sockets):
    a, b = udp(sockets), udp(sockets)
    assert await loop.sock_sendto(a, b"", b.getsockname()) == 0
    assert await loop.sock_recvfrom(b, 10) == (b"", a.getsockname())
    buffer = bytearray(10)
    waiting = asyncio.ensure_future(loop.sock_recvfrom_into(b, buffer, 3))
    await later(loop, a.sendto, b"longer", b.getsockname())
    assert await waiting == (3, a.getsockname())
    assert bytes(buffer) == b"lon" + bytes(7)
    with pytest.raises(ValueError, match="greater than the length"):
        await loop.sock_recvfrom_into(b, buffer, 11)
    with pytest.raises(TypeError):
        await loop.sock_sendto(a, b"x", 5)


async def test_a_datagram_is_received_by_sock_recv(loop, sockets):
    a, b = udp(sockets), udp(sockets)
    waiting = asyncio.ensure_future(loop.sock_recv(b, 2))
    await later(loop, a.sendto, b"cut off", b.getsockname())
    assert await waiting == b"cu"


# ---- refusals and errors


@pytest.mark.parametrize("name", ALL)
async def test_blocking_sockets_in_debug_mode(loop, sockets, name):
    a, _ = sockets.pair(blocking=True)
    a.settimeout(5)
    loop.set_debug(True)
    for timeout in (5, None):
        a.settimeout(timeout)
        with pytest.raises(ValueError, match=r"^the socket must be non-blocking$"):
            await getattr(loop, name)(a, *ALL[name]())


async def test_blocking_sockets_outside_debug_mode_block(loop, sockets):
    a, b = sockets.pair()
    a.settimeout(0.05)
    for name in RECEIVING:
        with pytest.raises(TimeoutError):
            await getattr(loop, name)(a, *RECEIVING[name]())
    with contextlib.suppress(TimeoutError):
        fill(a)
    with pytest.raises(TimeoutError):
        await loop.sock_sendall(a, bytes(MB))
    b.send(b"x")
    assert await loop.sock_recv(a, 1) == b"x"


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("debug", [False, True])
async def test_tls_sockets(loop, sockets, name, debug):
    a, _ = sockets.pair(tcp=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    loop.set_debug(debug)
    with context.wrap_socket(a, do_handshake_on_connect=False) as wrapped:
        wrapped.setblocking(False)
        with pytest.raises(TypeError, match=r"^Socket cannot be of type SSLSocket$"):
            await getattr(loop, name)(wrapped, *ALL[name]())


@pytest.mark.parametrize("name", ALL)
async def test_closed_sockets(loop, sockets, name):
    a, _ = sockets.pair(tcp=True)
    a.close()
    with pytest.raises(OSError, match=r"Bad file descriptor") as said:
        await getattr(loop, name)(a, *ALL[name]())
    assert said.value.errno == errno.EBADF


@pytest.mark.parametrize("name", ALL)
async def test_things_that_are_no_sockets(loop, name):
    with pytest.raises(AttributeError, match="object has no attribute"):
        await getattr(loop, name)(object(), *ALL[name]())


@pytest.mark.parametrize("name", ["sock_accept", "sock_connect"])
async def test_the_number_is_asked_for_before_the_first_try(loop, sockets, name):
    """What has none is told so; of what has one, the number before the call is the one that is watched."""
    asked = []

    class Half(socket.socket):
        def fileno(self):
            asked.append("fileno")
            return super().fileno()

        def accept(self):
            asked.append("accept")
            raise ZeroDivisionError

        def connect(self, address):
            asked.append("connect")
            raise ZeroDivisionError

    half = sockets.own(Half(socket.AF_UNIX))
    half.setblocking(False)
    args = ("/nowhere",) if name == "sock_connect" else ()
    with pytest.raises(ZeroDivisionError):
        await getattr(loop, name)(half, *args)
    assert asked == ["fileno", name.removeprefix("sock_")]
    if name == "sock_accept":
        with pytest.raises(AttributeError, match=r"^'NoneType' object has no attribute 'fileno'$"):
            await loop.sock_accept(None)


async def test_missing_arguments(loop, sockets):
    a, _ = sockets.pair()
    with pytest.raises(TypeError, match=r"sock_recv\(\) missing 1 required positional argument: 'n'"):
        loop.sock_recv(a)
    with pytest.raises(TypeError, match=r"sock_accept\(\) takes 2 positional arguments but 3 were given"):
        loop.sock_accept(a, 1)


async def test_the_descriptor_of_a_transport(loop, sockets):
    a, b = sockets.pair()
    transport, _ = await loop.create_connection(asyncio.Protocol, sock=a)
    stranger = socket.socket(fileno=a.fileno())
    try:
        for coro in (
            loop.sock_recv(stranger, 1),
            loop.sock_recvfrom(stranger, 1),
            loop.sock_recv_into(stranger, bytearray(1)),
        ):
            with pytest.raises(RuntimeError, match=r"^File descriptor \d+ is used by transport "):
                await coro
        fill(stranger)
        with pytest.raises(RuntimeError, match=r"^File descriptor \d+ is used by transport "):
            await loop.sock_sendall(stranger, b"x")
    finally:
        stranger.detach()
        b.close()
        transport.abort()
        await turns(3)


@pytest.mark.parametrize("name", RECEIVING)
async def test_a_reset_while_waiting(loop, sockets, name):
    a, b = sockets.pair(tcp=True)
    waiting = asyncio.ensure_future(getattr(loop, name)(a, *RECEIVING[name]()))
    await later(loop, reset, b)
    with pytest.raises(ConnectionResetError, match="Connection reset by peer"):
        await waiting
    assert loop.remove_reader(a) is False


async def test_a_reset_while_sending(loop, sockets):
    a, b = sockets.pair(tcp=True)
    sending = asyncio.ensure_future(loop.sock_sendall(a, bytes(32 * MB)))
    await later(loop, reset, b)
    with pytest.raises(ConnectionError):
        await sending
    assert loop.remove_writer(a) is False


async def test_an_icmp_error_while_waiting(loop, sockets):
    """The error of a datagram socket is one event, and the socket goes on."""
    a = udp(sockets)
    a.connect(("127.0.0.1", sockets.dead_port()))
    waiting = asyncio.ensure_future(loop.sock_recv(a, 1))
    await later(loop, a.send, b"x")
    with pytest.raises(ConnectionRefusedError):
        await waiting
    other = udp(sockets)
    a.connect(other.getsockname())
    other.sendto(b"y", a.getsockname())
    assert await loop.sock_recv(a, 1) == b"y"


# ---- the program's own sockets and interrupts


async def test_methods_of_a_subclass_are_called(loop, sockets):
    a, b = own(sockets)
    waiting = asyncio.ensure_future(loop.sock_recv(a, 9))
    await later(loop, b.send, b"x")
    assert await waiting == b"x"
    assert a.calls == ["recv", "recv"]
    a.calls.clear()
    await loop.sock_sendall(a, b"y")
    assert a.calls == ["send"]
    assert b.recv(9) == b"y"


async def test_a_socket_that_says_not_now_is_asked_again(loop, sockets):
    """Whatever the kernel says of it: the data is there all the time."""
    a, b = own(sockets)
    b.send(b"x")
    a.fault = [BlockingIOError(), InterruptedError(), BlockingIOError()]
    assert await loop.sock_recv(a, 9) == b"x"
    assert a.calls == ["recv"] * 4
    a.fault = [BlockingIOError(), InterruptedError()]
    assert await loop.sock_sendall(a, b"yz") is None
    assert b.recv(9) == b"yz"


async def test_an_error_of_a_subclass(loop, sockets):
    a, b = own(sockets)
    a.fault = [None, ValueError("mine")]
    waiting = asyncio.ensure_future(loop.sock_recv(a, 9))
    await later(loop, b.send, b"x")
    with pytest.raises(ValueError, match="mine"):
        await waiting
    assert await loop.sock_recv(a, 9) == b"x"


async def test_methods_replaced_in_the_class_are_called(loop, sockets, monkeypatch):
    a, b = sockets.pair()
    b.send(b"x")
    assert await loop.sock_recv(a, 9) == b"x"
    with monkeypatch.context() as patch:
        patch.setattr(socket.socket, "recv", lambda self, n: b"replaced", raising=False)
        assert await loop.sock_recv(a, 9) == b"replaced"
    b.send(b"y")
    assert await loop.sock_recv(a, 9) == b"y"


@pytest.mark.parametrize("kind_of", [KeyboardInterrupt, SystemExit])
def test_interrupts_go_out_of_the_run(loop, sockets, kind_of):
    """From the first try and from a later one; the call goes on in the next run."""
    a, b = own(sockets)
    a.fault = [None, kind_of("now")]

    async def main():
        return await loop.sock_recv(a, 9)

    task = loop.create_task(main())
    turn(loop, 2)
    b.send(b"x")
    with pytest.raises(kind_of, match="now"):
        run(loop, asyncio.sleep(1))
    assert run(loop, asyncio.wait_for(task, LIMIT)) == b"x"


async def test_calls_made_in_another_thread_in_debug_mode(loop, sockets):
    """What can be had at once is given; what must wait cannot, in a thread that runs no loop."""
    a, b = sockets.pair()
    loop.set_debug(True)
    b.send(b"x")

    def call(coro):
        try:
            coro.send(None)
        except StopIteration as stop:
            return stop.value
        finally:
            coro.close()

    assert await asyncio.to_thread(call, loop.sock_recv(a, 1)) == b"x"


@pytest.mark.uvpy_only("asyncio goes on watching, and takes the data for nobody")
def test_a_coroutine_that_is_closed_frees_the_descriptor(loop, sockets):
    a, b = sockets.pair()
    coro = loop.sock_recv(a, 9)
    coro.send(None)
    coro.close()
    b.send(b"x")
    turn(loop, 3)
    assert run(loop, loop.sock_recv(a, 9)) == b"x"
    assert in_thread(b.getsockname) == b.getsockname()


def test_the_loop_is_closed_while_a_call_waits(loop, sockets):
    a, _ = sockets.pair()
    fill(a)
    coros = [loop.sock_recv(a, 9), loop.sock_sendall(a, b"x")]
    futures = [coro.send(None) for coro in coros]
    loop.close()
    with pytest.raises(RuntimeError, match="Event loop is closed"):
        loop.sock_recv(a, 9).send(None)
    for coro in coros:
        coro.close()
    assert not any(future.done() for future in futures)
