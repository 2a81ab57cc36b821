"""What a transport is and says of itself, and how it treats the protocol it belongs to."""

import asyncio
import gc
import socket
import sys

import pytest

from support.drive import eventually, turns
from support.leaks import fds
from support.peers import MB
from support.protocols import SIDES, Buffered, HalfOpen, Recorder, drop, keeping, serve, wire, write_until


@pytest.mark.parametrize("side", SIDES)
async def test_transports_are_asyncios_by_type(loop, sockets, side):
    async with wire(sockets, Recorder, side) as (transport, _, _):
        for kind in (asyncio.Transport, asyncio.ReadTransport, asyncio.WriteTransport, asyncio.BaseTransport):
            assert isinstance(transport, kind)
        assert not isinstance(transport, (asyncio.DatagramTransport, asyncio.SubprocessTransport))
        assert issubclass(type(transport), asyncio.Transport)


async def test_extra_info_of_tcp(loop, sockets):
    async with wire(sockets) as (transport, protocol, peer):
        ours, theirs = peer.sock.getpeername(), peer.sock.getsockname()
        sock = transport.get_extra_info("socket")
        assert type(sock) is asyncio.trsock.TransportSocket
        assert transport.get_extra_info("socket").fileno() == sock.fileno()
        assert (sock.family, sock.type, sock.proto) == (socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        assert sock.getsockname() == ours
        assert sock.getpeername() == theirs
        assert sock.gettimeout() == 0
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        for when in ("open", "closed"):
            assert transport.get_extra_info("sockname") == ours, when
            assert transport.get_extra_info("peername") == theirs, when
            assert transport.get_extra_info("nothing") is None
            assert transport.get_extra_info("nothing", 5) == 5
            for key in ("sslcontext", "ssl_object", "peercert", "cipher", "pipe"):
                assert transport.get_extra_info(key) is None
            if when == "open":
                transport.close()
                await protocol.lost()
                await turns(3)
        assert transport.get_extra_info("socket") is not None
        assert transport.get_extra_info("socket").fileno() == -1


async def test_the_socket_of_a_transport_is_not_for_use(loop, sockets):
    """A TransportSocket has no send and recv, which would go behind the transport's back."""
    async with wire(sockets) as (transport, _, _):
        sock = transport.get_extra_info("socket")
        for name in ("send", "recv", "close", "accept", "detach"):
            assert not hasattr(sock, name)
        with pytest.raises(ValueError):
            sock.setblocking(True)
        sock.settimeout(0)


async def test_a_peer_that_is_gone_before_we_look(loop, sockets):
    """peername of a connection whose peer has reset already is None or the address, never an error."""
    ours, theirs = sockets.pair(tcp=True)
    address = theirs.getsockname()
    sockets.peer(theirs).reset()
    transport, protocol = await loop.create_connection(Recorder, sock=ours)
    assert transport.get_extra_info("peername") in (None, address)
    assert isinstance(await protocol.lost(), (ConnectionResetError, type(None)))


@pytest.mark.parametrize("side", SIDES)
async def test_repr_in_every_state(loop, sockets, side):
    async with wire(sockets, Recorder, side) as (transport, protocol, _):
        fd = transport.get_extra_info("socket").fileno()
        assert f"fd={fd}" in repr(transport)
        transport.pause_reading()
        assert f"fd={fd}" in repr(transport)
        transport.write(bytes(8 * MB))
        repr(transport)
        transport.close()
        assert "closing" in repr(transport)
        transport.abort()
        await protocol.lost()
        await turns(2)
        assert "closed" in repr(transport)
        assert repr(transport).startswith("<")


@pytest.mark.parametrize("side", SIDES)
async def test_start_tls_is_possible(loop, sockets, side):
    async with wire(sockets, Recorder, side) as (transport, _, _):
        assert transport._start_tls_compatible is True


async def test_transports_are_hashable_and_weakly_referenceable(loop, sockets):
    import weakref

    async with wire(sockets) as (transport, _, _):
        assert weakref.ref(transport)() is transport
        assert {transport: 1}[transport] == 1
        assert transport in weakref.WeakSet([transport])
        assert transport == transport


@pytest.mark.parametrize("side", SIDES)
async def test_one_descriptor_each(loop, sockets, side):
    """A transport uses the descriptor it was given and no second one, and frees it."""
    pairs = [sockets.pair(tcp=side != "unix") for _ in range(10)]
    numbers = {ours.fileno() for ours, _ in pairs}
    before = fds()
    connect = {
        "client": loop.create_connection,
        "accepted": loop.connect_accepted_socket,
        "unix": loop.create_unix_connection,
    }[side]
    made = [await connect(Recorder, sock=ours) for ours, _ in pairs]
    assert set(fds()) == set(before)
    assert {t.get_extra_info("socket").fileno() for t, _ in made} == numbers
    for transport, _ in made:
        transport.close()
    for _, protocol in made:
        await protocol.lost()
    await eventually(lambda: not numbers & set(fds()))


async def test_the_given_socket_knows_that_it_is_closed(loop, sockets):
    """The Python object passed as sock= does not close somebody else's descriptor later."""
    ours, _ = sockets.pair(tcp=True)
    transport, protocol = await loop.create_connection(Recorder, sock=ours)
    fd = ours.fileno()
    transport.close()
    await protocol.lost()
    await eventually(lambda: ours.fileno() == -1)
    other = sockets.listener()
    ours.close()
    del transport, protocol
    gc.collect()
    assert other.getsockname()
    assert fd >= 0


# ---- protocols


async def test_methods_are_looked_up_at_each_call(loop, sockets):
    """A method assigned to the protocol later is honoured, on the instance and on the class."""
    got = []
    async with wire(sockets) as (_, protocol, peer):
        protocol.data_received = lambda data: got.append(("instance", data))
        peer.sock.send(b"1")
        await eventually(lambda: len(got) == 1)
        protocol.data_received = lambda data: got.append(("again", data))
        peer.sock.send(b"2")
        await eventually(lambda: len(got) == 2)
        del protocol.data_received
        peer.sock.send(b"3")
        assert await protocol.got(1) == b"3"
        protocol.eof_received = lambda: got.append("eof")
        peer.close()
        await protocol.lost()
        assert got == [("instance", b"1"), ("again", b"2"), "eof"]


async def test_set_protocol_takes_effect_for_the_next_data(loop, sockets):
    async with wire(sockets) as (transport, first, peer):
        peer.sock.send(b"one")
        await first.got(3)
        second, third = Buffered(), Recorder()
        transport.set_protocol(second)
        assert transport.get_protocol() is second
        peer.sock.send(b"two")
        assert await second.got(3) == b"two"
        transport.set_protocol(third)
        peer.sock.send(b"three")
        assert await third.got(5) == b"three"
        peer.close()
        await third.lost()
        assert first.events == ["made", "data"]
        assert second.order() == ["data"]
        assert third.order() == ["data", "eof", "lost"]


async def test_set_protocol_inside_data_received(loop, sockets):
    """The upgrade of a connection: the rest of the data goes to the new protocol, nothing twice."""

    class Upgrades(Recorder):
        def data_received(self, data):
            super().data_received(data)
            if self.data.endswith(b"GO"):
                self.next = Recorder()
                self.transport.set_protocol(self.next)

    async with wire(sockets, Upgrades) as (transport, first, peer):
        peer.sock.send(b"GO")
        await first.got(2)
        peer.sock.send(b"rest")
        assert await first.next.got(4) == b"rest"
        assert bytes(first.data) == b"GO"
        transport.close()
        await first.next.lost()
        assert "lost" not in first.events


async def test_flow_control_speaks_to_the_present_protocol(loop, sockets):
    async with wire(sockets) as (transport, first, peer):
        second = Recorder()
        transport.set_protocol(second)
        total = write_until(transport, lambda: "pause" in second.events)
        await peer.recv(total)
        await second.has("resume")
        assert first.events == ["made"]


async def test_a_protocol_that_is_no_protocol(loop, sockets):
    """Duck typing: any object with the methods will do."""
    got = []

    class Duck:
        def connection_made(self, transport):
            got.append("made")

        def data_received(self, data):
            got.append(data)

        def eof_received(self):
            got.append("eof")

        def connection_lost(self, exc):
            got.append("lost")

    ours, theirs = sockets.pair(tcp=True)
    await loop.create_connection(Duck, sock=ours)
    theirs.send(b"x")
    await eventually(lambda: b"x" in got)
    theirs.close()
    await eventually(lambda: "lost" in got)
    assert got == ["made", b"x", "eof", "lost"]


async def test_a_missing_method_is_fatal(loop, sockets, errors):
    class Half(Recorder):
        data_received = None

    async with wire(sockets, Half) as (_, protocol, peer):
        peer.sock.send(b"x")
        assert isinstance(await protocol.lost(), TypeError)
        (context,) = errors.take()
        assert context["message"] == "Fatal error: protocol.data_received() call failed."


# ---- connections as a whole


async def test_the_factory_is_called_after_the_connect(loop, sockets):
    factory, made = keeping()
    with pytest.raises(ConnectionRefusedError):
        await loop.create_connection(factory, "127.0.0.1", sockets.dead_port())
    assert made == []
    async with serve() as (_, port):
        transport, protocol = await loop.create_connection(factory, "127.0.0.1", port)
        assert [protocol] == made
        assert transport.get_protocol() is protocol
        transport.close()
        await protocol.lost()


@pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")  # gh-153133: left to the collector
async def test_a_failing_factory_closes_the_socket(loop, sockets):
    def factory():
        raise ZeroDivisionError

    async with serve() as (_, port):
        before = fds()
        for _ in range(3):
            with pytest.raises(ZeroDivisionError):
                await loop.create_connection(factory, "127.0.0.1", port)
        ours, theirs = sockets.pair(tcp=True)
        with pytest.raises(ZeroDivisionError):
            await loop.create_connection(factory, sock=ours)
        gc.collect()
        ours.close()
        theirs.close()
        await eventually(lambda: gc.collect() >= 0 and set(fds()) == set(before))


async def test_errors_of_connecting(loop, sockets):
    one, two = sockets.dead_port(), sockets.dead_port()

    async def resolve(host, port, **kwargs):
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", p)) for p in (one, two)]

    with pytest.raises(ConnectionRefusedError, match="Connect call failed"):
        await loop.create_connection(Recorder, "127.0.0.1", one)
    loop.getaddrinfo = resolve
    with pytest.raises(OSError, match=rf"Multiple exceptions: .*{one}.*, .*{two}"):
        await loop.create_connection(Recorder, "some.host", 1)
    if sys.version_info >= (3, 12):
        with pytest.raises(ExceptionGroup) as caught:
            await loop.create_connection(Recorder, "some.host", 1, all_errors=True)
        assert len(caught.value.exceptions) == 2
        del caught
    del loop.getaddrinfo
    for arguments in ({}, {"host": "127.0.0.1", "port": 1, "sock": socket.socket}):
        with pytest.raises((ValueError, TypeError)):
            await loop.create_connection(Recorder, **arguments)
    with socket.socket(type=socket.SOCK_DGRAM) as udp:
        with pytest.raises(ValueError, match="Stream Socket was expected"):
            await loop.create_connection(Recorder, sock=udp)
    with pytest.raises(OverflowError):
        await loop.create_connection(Recorder, "127.0.0.1", 70000)


async def test_happy_eyeballs(loop, sockets):
    """An address that refuses is overtaken by one that answers, without waiting for the delay."""
    factory, made = keeping(HalfOpen)
    async with serve(factory) as (_, port):
        dead = sockets.dead_port()

        async def resolve(host, port_, **kwargs):
            return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", p)) for p in (dead, port)]

        loop.getaddrinfo = resolve
        transport, protocol = await loop.create_connection(Recorder, "some.host", 1, happy_eyeballs_delay=5)
        assert transport.get_extra_info("peername") == ("127.0.0.1", port)
        transport.close()
        await protocol.lost()
        await eventually(lambda: made and "eof" in made[0].events)
        await drop(made[0].transport)


async def test_a_local_address(loop, sockets):
    factory, made = keeping()
    async with serve(factory) as (_, port):
        transport, protocol = await loop.create_connection(Recorder, "127.0.0.1", port, local_addr=("127.0.0.2", 0))
        assert transport.get_extra_info("sockname")[0] == "127.0.0.2"
        await eventually(lambda: made and made[0].transport)
        assert made[0].transport.get_extra_info("peername") == transport.get_extra_info("sockname")
        transport.close()
        await protocol.lost()
        await made[0].lost()


@pytest.mark.parametrize("pause", [0, 1, 2, 3, 5, 8])
async def test_a_connect_cancelled_at_any_turn_leaks_nothing(loop, sockets, pause):
    listener = sockets.listener()
    before = fds()
    task = asyncio.ensure_future(loop.create_connection(Recorder, *listener.getsockname()))
    await turns(pause)
    task.cancel()
    try:
        transport, protocol = await task
    except asyncio.CancelledError:
        pass
    else:
        transport.abort()
        await protocol.lost()
    del task
    await eventually(lambda: gc.collect() >= 0 and set(fds()) == set(before))


@pytest.mark.parametrize("pause", [0, 1, 2])
async def test_a_cancelled_connect_of_a_given_socket_closes_it(loop, sockets, pause):
    ours, theirs = sockets.pair(tcp=True)
    peer = sockets.peer(theirs)
    task = asyncio.ensure_future(loop.create_connection(Recorder, sock=ours))
    await turns(pause)
    task.cancel()
    try:
        transport, _ = await task
    except asyncio.CancelledError:
        pass
    else:
        transport.abort()
    del task
    await turns(3)
    if pause:  # cancelled before its first step it has not seen the socket
        assert await peer.recv_all() == b""
        assert ours.fileno() == -1


async def test_connecting_over_ipv6(loop, sockets):
    try:
        listener = sockets.listener(socket.AF_INET6)
    except OSError:
        pytest.skip("no IPv6 on loopback")
    transport, protocol = await loop.create_connection(Recorder, "::1", listener.getsockname()[1])
    assert transport.get_extra_info("peername") == listener.getsockname()
    assert len(transport.get_extra_info("sockname")) == 4
    transport.close()
    await protocol.lost()


async def test_thousands_of_connections_one_after_the_other(loop, sockets):
    """Churn leaves nothing behind."""
    factory, made = keeping()
    async with serve(factory, backlog=50) as (_, port):
        before = fds()
        for _ in range(300):
            transport, protocol = await loop.create_connection(Recorder, "127.0.0.1", port)
            transport.write(b"x")
            transport.close()
            await protocol.lost()
        await eventually(lambda: len(made) == 300 and all("lost" in p.events for p in made))
        assert all(bytes(p.data) == b"x" for p in made)
        await eventually(lambda: set(fds()) == set(before))
