"""Datagram endpoints: what arrives and what leaves, addresses, errors, types. Queues and endings: test_udp_queue.py."""

import array
import asyncio
import errno
import gc
import os
import socket
import sys
import weakref

import pytest

from support.datagrams import Datagrams, endpoint, nowhere, plain
from support.drive import eventually, run, turn, turns
from support.peers import pattern

EMPTY_IS_SENT = sys.version_info >= (3, 13)
HAS_IPV6 = socket.has_ipv6 and os.path.exists("/proc/net/if_inet6")


# ---- both ways


@pytest.mark.parametrize(
    "host", ["127.0.0.1", pytest.param("::1", marks=pytest.mark.skipif(not HAS_IPV6, reason="no IPv6"))]
)
async def test_datagrams_both_ways(loop, sockets, host):
    peer = plain(sockets, host)
    async with endpoint(local_addr=(host, 0)) as (transport, protocol):
        name = transport.get_extra_info("sockname")
        for data in (b"one", b"", b"two"):
            peer.sendto(data, name)
        await eventually(lambda: len(protocol.got) == 3)
        assert protocol.got == [(data, peer.getsockname()) for data in (b"one", b"", b"two")]
        assert {type(data) for data in protocol.data} == {bytes}
        transport.sendto(b"answer", protocol.got[0][1])
        assert peer.recvfrom(100) == (b"answer", name)
        transport.sendto(b"other form", (host, peer.getsockname()[1]))
        assert peer.recvfrom(100) == (b"other form", name)
        assert protocol.events == ["made", "data", "data", "data"]


async def test_a_connected_endpoint_hears_its_peer_only(loop, sockets):
    peer, stranger = plain(sockets), plain(sockets)
    async with endpoint(remote_addr=peer.getsockname()) as (transport, protocol):
        name = transport.get_extra_info("sockname")
        assert transport.get_extra_info("peername") == peer.getsockname() == transport._address
        transport.sendto(b"a")
        transport.sendto(b"b", None)
        transport.sendto(b"c", peer.getsockname())
        transport.sendto(data=b"d", addr=peer.getsockname())
        assert [peer.recvfrom(10) for _ in range(4)] == [(data, name) for data in (b"a", b"b", b"c", b"d")]
        stranger.sendto(b"stranger", name)
        peer.sendto(b"friend", name)
        await protocol.has("data")
        await turns()
        assert protocol.got == [(b"friend", peer.getsockname())]


async def test_a_connected_socket_given_by_the_program(loop, sockets):
    """Without remote_addr nothing restricts the address: send() goes to the peer whatever is said."""
    peer, ours = plain(sockets), plain(sockets)
    ours.connect(peer.getsockname())
    async with endpoint(sock=ours) as (transport, protocol):
        assert transport._address is None
        transport.sendto(b"a")
        transport.sendto(b"b", nowhere())
        assert [peer.recv(10), peer.recv(10)] == [b"a", b"b"]
        assert not protocol.errors


@pytest.mark.parametrize("wrong", [("127.0.0.1", 9), "127.0.0.1", ("127.0.0.1",), 5, ["127.0.0.1", 1]], ids=repr)
async def test_another_address_on_a_connected_endpoint_is_a_value_error(loop, sockets, wrong):
    peer = plain(sockets)
    async with endpoint(remote_addr=peer.getsockname()) as (transport, protocol):
        with pytest.raises(ValueError) as caught:
            transport.sendto(b"x", wrong)
        assert str(caught.value) == f"Invalid address: must be None or {peer.getsockname()}"
        transport.sendto(b"y")
        assert peer.recv(10) == b"y"


async def test_an_address_that_raises_when_compared(loop, sockets):
    class Odd:
        def __eq__(self, other):
            raise ZeroDivisionError

    peer = plain(sockets)
    async with endpoint(remote_addr=peer.getsockname()) as (transport, _):
        with pytest.raises(ZeroDivisionError):
            transport.sendto(b"x", Odd())


async def test_every_kind_of_buffer_is_sent(loop, sockets):
    peer = plain(sockets)
    async with endpoint() as (transport, _):
        for data in (
            b"bytes",
            bytearray(b"array"),
            memoryview(b"view"),
            memoryview(bytearray(b"..slice.."))[2:-2],
            memoryview(array.array("I", [1, 2, 3])),
            type("Mine", (bytes,), {})(b"mine"),
        ):
            transport.sendto(data, peer.getsockname())
            assert peer.recv(100) == bytes(data)


@pytest.mark.parametrize("wrong", ["text", 5, None, [b"x"], array.array("B", b"x")], ids=repr)
async def test_what_is_not_bytes_is_a_type_error(loop, sockets, wrong):
    async with endpoint() as (transport, protocol):
        with pytest.raises(TypeError) as caught:
            transport.sendto(wrong, nowhere())
        assert str(caught.value) == f"data argument must be a bytes-like object, not {type(wrong).__name__!r}"
        for call in (
            lambda: transport.sendto(),
            lambda: transport.sendto(b"x", None, 1),
            lambda: transport.sendto(b"x", a=1),
        ):
            with pytest.raises(TypeError):
                call()
        assert not transport.is_closing()
        assert protocol.events == ["made"]


async def test_an_empty_datagram_leaves_from_3_13_on(loop, sockets):
    peer = plain(sockets)
    async with endpoint() as (transport, _):
        for empty in (b"", bytearray(), memoryview(b"")):
            transport.sendto(empty, peer.getsockname())
        transport.sendto(b"end", peer.getsockname())
        got = []
        while b"end" not in got:
            got.append(peer.recv(10))
        assert got == [b""] * (3 if EMPTY_IS_SENT else 0) + [b"end"]


async def test_a_view_with_gaps_is_fatal(loop, sockets, errors):
    async with endpoint() as (transport, protocol):
        transport.sendto(memoryview(b"abcdef")[::2], nowhere())
        assert transport.is_closing()
        assert isinstance(await protocol.lost(), BufferError)
        (context,) = errors.take()
        assert context["message"] == "Fatal write error on datagram transport"
        assert context["transport"] is transport
        assert context["protocol"] is protocol


async def test_sendto_has_sent_when_it_returns(loop, sockets):
    peer = plain(sockets)
    peer.setblocking(False)
    async with endpoint() as (transport, _):
        for i in range(50):
            transport.sendto(b"%d" % i, peer.getsockname())
            assert peer.recv(10) == b"%d" % i


def test_sending_outside_a_run(loop, sockets):
    peer = plain(sockets)
    transport, protocol = run(loop, loop.create_datagram_endpoint(Datagrams, local_addr=("127.0.0.1", 0)))
    transport.sendto(b"x", peer.getsockname())
    assert peer.recv(10) == b"x"
    transport.close()
    turn(loop, 2)
    assert protocol.events == ["made", "lost"]


# ---- addresses


async def test_names_and_short_forms_are_resolved_by_the_socket(loop, sockets):
    peer = plain(sockets)
    port = peer.getsockname()[1]
    async with endpoint() as (transport, protocol):
        for host in ("localhost", "127.1", bytearray(b"127.0.0.1"), b"127.0.0.1"):
            transport.sendto(b"x", (host, port))
            assert peer.recv(10) == b"x", host
        transport.sendto(b"x", type("Pair", (tuple,), {})(("127.0.0.1", port)))
        assert peer.recv(10) == b"x"
        assert not protocol.errors


async def test_a_name_that_does_not_resolve_is_error_received(loop, sockets, monkeypatch):
    async with endpoint() as (transport, protocol):
        transport.sendto(b"x", ("no such host.invalid", 1))
        (error,) = protocol.errors
        assert isinstance(error, socket.gaierror)
        assert not transport.is_closing()


@pytest.mark.parametrize(
    "address",
    [
        None,
        "127.0.0.1",
        ("127.0.0.1",),
        ["127.0.0.1", 1],
        ("127.0.0.1", "1"),
        ("127.0.0.1", 1, 2),
        ("127.0.0.1", 65536),
        ("127.0.0.1", -1),
        ("127.0.0.1", 2**80),
        ("127.0.0.1\0", 1),
        (5, 1),
    ],
    ids=repr,
)
async def test_an_address_that_is_none_is_fatal(loop, sockets, errors, address):
    """With the socket module's own exception, as asyncio has it."""
    with socket.socket(type=socket.SOCK_DGRAM) as sock, pytest.raises((TypeError, OverflowError, ValueError)) as oracle:
        sock.sendto(b"x", address)
    async with endpoint() as (transport, protocol):
        transport.sendto(b"x", address)
        exc = await protocol.lost()
        assert (type(exc), str(exc)) == (type(oracle.value), str(oracle.value))
        (context,) = errors.take()
        assert context["message"] == "Fatal write error on datagram transport"


@pytest.mark.skipif(not HAS_IPV6, reason="no IPv6")
async def test_ipv6_addresses_with_flow_and_zone(loop, sockets):
    peer = plain(sockets, "::1")
    port = peer.getsockname()[1]
    async with endpoint(local_addr=("::1", 0)) as (transport, protocol):
        for address in (("::1", port), ("::1", port, 0), ("::1", port, 0, 0), ("0:0::1", port)):
            transport.sendto(b"x", address)
            assert peer.recv(10) == b"x", address
        assert not protocol.errors
        transport.sendto(b"x", ("127.0.0.1", port))
        await protocol.has("error")  # not an address of this family


async def test_broadcast_must_be_allowed(loop, sockets):
    peer = plain(sockets)
    port = peer.getsockname()[1]
    async with endpoint() as (transport, protocol):
        transport.sendto(b"x", ("255.255.255.255", port))
        assert isinstance(protocol.errors[0], PermissionError)
        transport.sendto(b"x", ("<broadcast>", port))
        assert isinstance(protocol.errors[1], PermissionError)
    async with endpoint(local_addr=("127.0.0.1", 0), allow_broadcast=True) as (transport, protocol):
        sock = transport.get_extra_info("socket")
        assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST)


async def test_allow_broadcast_with_a_remote_address_does_not_connect(loop, sockets):
    """Every sendto() goes to that address, and anybody may answer."""
    peer, other = plain(sockets), plain(sockets)
    async with endpoint(remote_addr=peer.getsockname(), local_addr=("127.0.0.1", 0), allow_broadcast=True) as (
        transport,
        protocol,
    ):
        assert transport.get_extra_info("peername") is None
        transport.sendto(b"x")
        assert peer.recvfrom(10) == (b"x", transport.get_extra_info("sockname"))
        with pytest.raises(ValueError, match="Invalid address: must be None or"):
            transport.sendto(b"x", other.getsockname())
        other.sendto(b"from another", transport.get_extra_info("sockname"))
        await protocol.has("data")
        assert protocol.got == [(b"from another", other.getsockname())]


async def test_audit_hooks_hear_of_addresses(loop, sockets):
    peer = plain(sockets)
    heard = []
    active = True

    def hook(event, args):
        if active and event == "socket.sendto":
            heard.append(args[1])

    sys.addaudithook(hook)
    try:
        async with endpoint() as (transport, _):
            transport.sendto(b"x", peer.getsockname())
            transport.sendto(b"x", ("127.1", peer.getsockname()[1]))
    finally:
        active = False
    assert heard == [peer.getsockname(), ("127.1", peer.getsockname()[1])]


# ---- Unix


async def test_unix_paths(loop, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    async with endpoint(local_addr="a.sock", family=socket.AF_UNIX) as (one, first):
        assert one.get_extra_info("sockname") == "a.sock"
        async with endpoint(remote_addr="a.sock", local_addr="b.sock", family=socket.AF_UNIX) as (two, second):
            two.sendto(b"x")
            await first.has("data")
            assert first.got == [(b"x", "b.sock")]
            one.sendto(b"answer", "b.sock")
            await second.has("data")
            assert second.got == [(b"answer", "a.sock")]
            one.sendto(b"bytes", b"b.sock")
            await second.has("data", 2)
        one.sendto(b"gone", "b.sock")
        assert isinstance(first.errors[0], ConnectionRefusedError)
        one.sendto(b"gone", "c.sock")
        assert isinstance(first.errors[1], FileNotFoundError)
        one.sendto(b"gone", "c" * 200)
        assert "too long" in str(first.errors[2])
        assert not one.is_closing()


@pytest.mark.skipif(sys.platform != "linux", reason="abstract names are Linux's")
async def test_abstract_names(loop, sockets):
    theirs = sockets.own(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM))
    name = b"\0uvpy-%d" % os.getpid()
    theirs.bind(name)
    theirs.settimeout(5)
    async with endpoint(family=socket.AF_UNIX) as (transport, protocol):
        transport.sendto(b"x", name)
        assert theirs.recvfrom(10) == (b"x", None)
        sock = transport.get_extra_info("socket")
        assert transport.get_extra_info("sockname") == ""
        assert sock.family == socket.AF_UNIX
    async with endpoint(remote_addr=name.decode(), family=socket.AF_UNIX) as (transport, protocol):
        assert transport.get_extra_info("peername") == name
        transport.sendto(b"y")
        assert theirs.recv(10) == b"y"


async def test_an_unnamed_pair_has_no_addresses(loop, sockets, errors):
    ours, theirs = sockets.pair(socket.AF_UNIX, socket.SOCK_DGRAM)
    async with endpoint(sock=ours) as (transport, protocol):
        theirs.send(b"x")
        theirs.send(b"")
        await protocol.has("data", 2)
        assert protocol.got == [(b"x", None), (b"", None)]
        transport.sendto(b"to nobody")  # asyncio goes by the peer's name, which is empty
        assert isinstance(await protocol.lost(), TypeError)
        assert errors.take()


# ---- big ones


async def test_what_is_too_big_is_error_received(loop, sockets):
    peer = plain(sockets)
    async with endpoint() as (transport, protocol):
        transport.sendto(bytes(70_000), peer.getsockname())
        assert protocol.errors[0].errno == errno.EMSGSIZE
        transport.sendto(pattern(65_507), peer.getsockname())
        assert peer.recv(70_000) == pattern(65_507)
        peer.sendto(pattern(65_507), transport.get_extra_info("sockname"))
        await protocol.has("data")
        assert protocol.data == [pattern(65_507)]


@pytest.mark.parametrize("size", [200_000, 256 * 1024, 256 * 1024 + 1, 300_000])
async def test_a_long_unix_datagram_is_cut_off_where_asyncio_cuts_it(loop, sockets, size):
    ours, theirs = sockets.pair(socket.AF_UNIX, socket.SOCK_DGRAM)
    theirs.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
    try:
        theirs.send(pattern(size))
    except OSError:
        pytest.skip("the kernel allows no bigger buffer")
    theirs.send(b"next")
    async with endpoint(sock=ours) as (transport, protocol):
        assert transport.max_size == 256 * 1024
        await protocol.has("data", 2)
        assert [len(data) for data in protocol.data] == [min(size, 256 * 1024), 4]
        assert protocol.data[0] == pattern(size)[: 256 * 1024]


# ---- errors


async def test_refused_datagrams_are_error_received_and_no_more(loop, sockets):
    name = nowhere()
    async with endpoint(remote_addr=name) as (transport, protocol):
        for i in range(1, 4):
            transport.sendto(b"x")
            await eventually(lambda i=i: len(protocol.errors) >= i)
        assert {type(error) for error in protocol.errors} == {ConnectionRefusedError}
        # Inside the call: the error that waits from the last one.
        transport.sendto(b"x")
        count = len(protocol.errors)
        transport.sendto(b"x")
        assert len(protocol.errors) == count + 1
        assert not transport.is_closing()
        assert protocol.events[0] == "made"
        assert set(protocol.events[1:]) == {"error"}


async def test_an_exception_of_error_received_comes_out_of_sendto(loop, sockets):
    class Bad(Datagrams):
        def error_received(self, exc):
            super().error_received(exc)
            assert sys.exc_info()[1] is exc
            raise ZeroDivisionError("mine")

    async with endpoint(Bad) as (transport, protocol):
        with pytest.raises(ZeroDivisionError) as caught:
            transport.sendto(bytes(70_000), nowhere())
        assert caught.value.__context__ is protocol.errors[0]
        assert not transport.is_closing()


async def test_an_exception_of_error_received_while_reading_is_reported(loop, sockets, errors):
    class Bad(Datagrams):
        def error_received(self, exc):
            super().error_received(exc)
            raise ZeroDivisionError("mine")

    async with endpoint(Bad, remote_addr=nowhere()) as (transport, protocol):
        transport.sendto(b"x")
        await protocol.has("error")
        await turns()
        (context,) = errors.take()
        assert isinstance(context["exception"], ZeroDivisionError)
        assert context["message"].startswith("Exception in callback ")
        assert isinstance(context["handle"], asyncio.Handle)
        assert not transport.is_closing()


async def test_an_exception_of_datagram_received_is_reported_and_costs_nothing_else(loop, sockets, errors):
    class Bad(Datagrams):
        def datagram_received(self, data, addr):
            super().datagram_received(data, addr)
            if data == b"bad":
                raise ZeroDivisionError("mine")

    peer = plain(sockets)
    async with endpoint(Bad) as (transport, protocol):
        for data in (b"a", b"bad", b"b", b"bad", b"c"):
            peer.sendto(data, transport.get_extra_info("sockname"))
        await protocol.has("data", 5)
        await turns()
        contexts = errors.take()
        assert [type(context["exception"]) for context in contexts] == [ZeroDivisionError] * 2
        for context in contexts:
            assert context["message"].startswith("Exception in callback ")
            assert "_read_ready" in context["message"]
        assert protocol.data == [b"a", b"bad", b"b", b"bad", b"c"]


# ---- types and attributes


async def test_types(loop, sockets):
    stock = asyncio.selector_events._SelectorDatagramTransport
    async with endpoint() as (transport, protocol):
        for kind in (
            asyncio.BaseTransport,
            asyncio.Transport,
            asyncio.DatagramTransport,
            asyncio.SubprocessTransport,
            asyncio.transports._FlowControlMixin,
        ):
            assert isinstance(transport, kind) == issubclass(stock, kind), kind
        for call in (lambda: transport.write(b"x"), transport.write_eof, transport.can_write_eof):
            with pytest.raises(NotImplementedError):
                call()
        assert transport.get_protocol() is protocol
        assert transport._protocol is protocol
        assert transport._loop is loop
        assert transport.is_reading()


async def test_extra_info(loop, sockets):
    async with endpoint() as (transport, _):
        sock = transport.get_extra_info("socket")
        assert type(sock) is asyncio.trsock.TransportSocket
        assert sock is transport.get_extra_info("socket")
        assert (sock.type, sock.family, sock.fileno()) == (socket.SOCK_DGRAM, socket.AF_INET, transport._sock_fd)
        assert transport.get_extra_info("sockname") == sock.getsockname()
        assert transport.get_extra_info("peername", "default") is None
        assert transport.get_extra_info("nothing", 5) == 5
        assert transport.get_extra_info("nothing") is None
        assert isinstance(transport._sock, socket.socket)
        assert transport._extra["socket"] is sock
        name = transport.get_extra_info("sockname")
    assert transport._sock is None
    assert transport.get_extra_info("sockname") == name
    assert transport.get_extra_info("socket").fileno() == -1


async def test_extra_info_that_nobody_asked_for_before_the_end(loop, sockets):
    async with endpoint() as (transport, _):
        pass
    sock = transport.get_extra_info("socket")
    assert type(sock) is asyncio.trsock.TransportSocket
    assert (sock.type, sock.fileno()) == (socket.SOCK_DGRAM, -1)
    assert transport.get_extra_info("sockname")[0] == "127.0.0.1"


async def test_repr(loop, sockets):
    async with endpoint() as (transport, _):
        name = type(transport).__name__
        fd = transport._sock_fd
        assert repr(transport) == f"<{name} fd={fd} read=polling write=<idle, bufsize=0>>"
        transport.pause_reading()
        assert repr(transport) == f"<{name} fd={fd} read=idle write=<idle, bufsize=0>>"
        transport.close()
        assert repr(transport) == f"<{name} closing fd={fd} read=idle write=<idle, bufsize=0>>"
        await turns()
        assert repr(transport) == f"<{name} closed fd={fd}>"


async def test_attributes_and_weak_references(loop, sockets):
    async with endpoint() as (transport, _):
        transport.mine = 5
        assert transport.mine == 5
        assert weakref.ref(transport)() is transport
        assert {transport: 1}[transport] == 1
        with pytest.raises(RuntimeError, match=f"File descriptor {transport._sock_fd} is used by transport"):
            loop.add_reader(transport._sock_fd, print)
        with pytest.raises(RuntimeError, match="is used by transport"):
            await loop.create_datagram_endpoint(Datagrams, sock=transport._sock) if sys.version_info >= (
                3,
                12,
            ) else loop.add_writer(transport._sock_fd, print)


@pytest.mark.uvpy_only("the native type cannot be made by hand")
async def test_the_native_type_is_nobodys_to_make(loop):
    async with endpoint() as (transport, _):
        with pytest.raises(TypeError, match="cannot create"):
            type(transport)()


async def test_an_unclosed_transport_warns_and_closes(loop, sockets, recwarn):
    transport, protocol = await loop.create_datagram_endpoint(Datagrams, local_addr=("127.0.0.1", 0))
    transport.pause_reading()
    fd, text = transport._sock_fd, repr(transport)
    protocol.transport = None
    with pytest.warns(ResourceWarning, match="unclosed transport") as caught:
        del transport
        gc.collect()
    assert [str(w.message) for w in caught] == [f"unclosed transport {text}"]
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(fd)


def test_a_transport_left_at_the_end_of_the_loop_warns(new_loop, sockets):
    loop = new_loop()
    transport, protocol = run(loop, loop.create_datagram_endpoint(Datagrams, local_addr=("127.0.0.1", 0)))
    loop.close()
    fd = transport._sock_fd
    os.fstat(fd)  # the socket is the transport's still
    transport.sendto(b"x", nowhere())
    with pytest.raises(RuntimeError, match="Event loop is closed"):
        transport.close()
    with pytest.warns(ResourceWarning, match="unclosed transport"):
        protocol.transport = None
        del transport
        gc.collect()
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(fd)
