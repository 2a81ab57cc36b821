"""Where servers listen: several hosts, one twice, both families, zones, options; and sockets accepted by others."""

import asyncio
import socket
import sys

import pytest

from support.drive import eventually
from support.leaks import fds
from support.protocols import Recorder, drop, end_all, keeping


def has_ipv6():
    try:
        with socket.create_server(("::1", 0), family=socket.AF_INET6):
            return True
    except OSError:
        return False


needs_ipv6 = pytest.mark.skipif(not has_ipv6(), reason="no IPv6 here")


def addresses(server):
    return sorted(sock.getsockname()[0] for sock in server.sockets)


async def visit(loop, server, made):
    """Connect to each socket of a server, and see both sides."""
    for sock in server.sockets:
        transport, protocol = await loop.create_connection(Recorder, *sock.getsockname()[:2])
        await eventually(lambda: made and made[-1].transport)
        assert made[-1].transport.get_extra_info("peername") == transport.get_extra_info("sockname")
        await drop(transport)
        await protocol.lost()
        await end_all(made)
        made.clear()


@pytest.mark.parametrize(
    ("hosts", "want"),
    [
        (["127.0.0.1", "127.0.0.2"], ["127.0.0.1", "127.0.0.2"]),
        (["127.0.0.1", "127.0.0.1"], ["127.0.0.1"]),
        (("127.0.0.2",), ["127.0.0.2"]),
        ("127.0.0.1", ["127.0.0.1"]),
        (["127.0.0.1", "localhost"], ["127.0.0.1"]),
    ],
)
@pytest.mark.skipif(sys.platform != "linux", reason="all of 127.0.0.0/8 is here on Linux")
async def test_several_hosts_and_one_twice(loop, hosts, want):
    factory, made = keeping(Recorder)
    server = await loop.create_server(factory, hosts, 0, family=socket.AF_INET)
    assert addresses(server) == want
    await visit(loop, server, made)
    server.close()


@needs_ipv6
async def test_both_families_and_no_host(loop):
    """No host is every address of both families, IPv6 for itself, so that one port serves both."""
    factory, made = keeping(Recorder)
    for host in (None, "", ["127.0.0.1", "::1"]):
        server = await loop.create_server(factory, host, 0)
        assert {sock.family for sock in server.sockets} == {socket.AF_INET, socket.AF_INET6}
        for sock in server.sockets:
            if sock.family == socket.AF_INET6:
                assert sock.getsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY) == 1
        server.close()
    with socket.create_server(("::", 0), family=socket.AF_INET6, dualstack_ipv6=True) as sock:
        server = await loop.create_server(factory, sock=sock)
        port = sock.getsockname()[1]
        for host in ("127.0.0.1", "::1"):
            transport, protocol = await loop.create_connection(Recorder, host, port)
            await eventually(lambda: made and made[-1].transport)
            await drop(transport)
            await protocol.lost()
            await end_all(made)
            made.clear()
        server.close()


@needs_ipv6
async def test_zones(loop):
    factory, made = keeping(Recorder)
    server = await loop.create_server(factory, "::1%1", 0)
    await visit(loop, server, made)
    server.close()
    with pytest.raises(socket.gaierror):
        await loop.create_server(factory, "fe80::1%nosuchinterface", 0)


async def test_options_of_the_sockets(loop):
    def options(server):
        sock = server.sockets[0]
        return [bool(sock.getsockopt(socket.SOL_SOCKET, o)) for o in (socket.SO_REUSEADDR, socket.SO_REUSEPORT)]

    for arguments, want in (
        ({}, [True, False]),
        ({"reuse_address": False}, [False, False]),
        ({"reuse_port": True}, [True, True]),
        ({"reuse_address": False, "reuse_port": True}, [False, True]),
    ):
        server = await loop.create_server(Recorder, "127.0.0.1", 0, **arguments)
        assert options(server) == want
        server.close()


async def test_an_address_in_use(loop, sockets):
    """The error names the address; of several hosts none stays bound."""
    taken = sockets.listener()
    address = taken.getsockname()
    before = fds()
    for hosts in ("127.0.0.1", ["127.0.0.2", "127.0.0.1"]) if sys.platform == "linux" else ("127.0.0.1",):
        with pytest.raises(OSError, match="error while attempting to bind on address") as caught:
            await loop.create_server(Recorder, hosts, address[1])
        assert repr(address) in str(caught.value)
        assert fds() == before


async def test_wrong_arguments(loop, sockets):
    listener, udp = sockets.listener(), sockets.own(socket.socket(type=socket.SOCK_DGRAM))
    for arguments, text in (
        ({}, "Neither host/port nor sock were specified"),
        ({"host": "x", "sock": listener}, "host/port and sock can not be specified at the same time"),
        ({"sock": udp}, f"A Stream Socket was expected, got {udp!r}"),
        ({"host": "x", "ssl": True}, "ssl argument must be an SSLContext or None"),
        ({"host": "x", "ssl_handshake_timeout": 1}, "ssl_handshake_timeout is only meaningful with ssl"),
    ):
        with pytest.raises((ValueError, TypeError)) as caught:
            await loop.create_server(Recorder, **arguments)
        assert str(caught.value) == text
    assert listener.fileno() != -1
    with pytest.raises(ValueError) as caught:
        await loop.connect_accepted_socket(Recorder, udp)
    assert str(caught.value) == f"A Stream Socket was expected, got {udp!r}"


@pytest.mark.parametrize("tcp", [True, False])
async def test_sockets_accepted_by_others(loop, sockets, tcp):
    ours, theirs = sockets.pair(tcp=tcp)
    transport, protocol = await loop.connect_accepted_socket(Recorder, ours)
    theirs.settimeout(5)
    transport.write(b"hello")
    assert theirs.recv(5) == b"hello"
    theirs.send(b"back")
    await protocol.got(4)
    assert protocol.data == b"back"
    await drop(transport)
    await protocol.lost()


async def test_sockets_accepted_by_others_with_tls(loop, sockets, authority):
    ours, theirs = sockets.pair(tcp=True)
    factory, made = keeping(Recorder)
    server_side = asyncio.ensure_future(loop.connect_accepted_socket(factory, ours, ssl=authority.server()))
    transport, protocol = await loop.create_connection(
        Recorder, sock=theirs, ssl=authority.client(), server_hostname="localhost"
    )
    accepted, other = await server_side
    accepted.write(b"hello")
    await protocol.got(5)
    transport.close()
    await protocol.lost()
    await other.lost()
    assert other is made[0]


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.2", "0.0.0.0", pytest.param("::", marks=needs_ipv6)])
@pytest.mark.parametrize("ended", [False, True])
async def test_the_name_of_an_accepted_socket(loop, sockets, host, ended):
    """It is the address that the client connected to, wherever the server listens, and is known after the end."""
    factory, made = keeping()
    async with await loop.create_server(factory, host, 0) as server:
        port = server.sockets[0].getsockname()[1]
        to = "::1" if host == "::" else "127.0.0.1" if host == "0.0.0.0" else host
        client = sockets.dial(port, to)
        await eventually(lambda: made and made[0].transport)
        transport = made[0].transport
        if ended:
            client.close()
            await made[0].lost()
        assert transport.get_extra_info("sockname") == ((to, port) if host != "::" else (to, port, 0, 0))
        if not ended:
            assert transport.get_extra_info("socket").getsockname() == transport.get_extra_info("sockname")
            assert transport.get_extra_info("peername") == client.sock.getsockname()
            assert transport.get_extra_info("socket").getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) != 0
            client.close()
            await made[0].lost()


@pytest.mark.parametrize("given", [False, True])
async def test_each_accepted_socket_has_no_delay(loop, sockets, given):
    factory, made = keeping()
    own = sockets.own(socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP))
    own.bind(("127.0.0.1", 0))
    where = {"sock": own} if given else {"host": "127.0.0.1", "port": 0}
    async with await loop.create_server(factory, **where) as server:
        clients = [sockets.dial(server.sockets[0].getsockname()[1]) for _ in range(4)]
        await eventually(lambda: len(made) == 4 and all(p.transport for p in made))
        accepted = [p.transport.get_extra_info("socket") for p in made]
        set_on = [sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) for sock in accepted]
        for client, p in zip(clients, made, strict=True):
            client.close()
            await p.lost()
    assert len(set_on) == 4 and all(set_on)


@pytest.mark.parametrize("name", ["s", "a-longer-name-than-an-internet-address-takes"])
async def test_the_name_of_an_accepted_unix_socket(loop, sockets, tmp_path, name):
    factory, made = keeping()
    path = str(tmp_path / name)
    async with await loop.create_unix_server(factory, path):
        transport, protocol = await loop.create_unix_connection(Recorder, path)
        await eventually(lambda: made and made[0].transport)
        assert made[0].transport.get_extra_info("sockname") == path
        assert transport.get_extra_info("peername") == path
        assert made[0].transport.get_extra_info("peername") == transport.get_extra_info("sockname") == ""
        await drop(transport)
        await protocol.lost()
        await made[0].lost()


@pytest.mark.uvpy_only("asyncio's take three times as much")
async def test_a_transport_takes_little_memory(loop, sockets):
    """An idle connection costs its transport, a context and the protocol; most of it is the transport."""
    factory, made = keeping()
    async with await loop.create_server(factory, "127.0.0.1", 0) as server:
        client = sockets.dial(server.sockets[0].getsockname()[1])
        await eventually(lambda: made and made[0].transport)
        assert sys.getsizeof(made[0].transport) <= 800
        client.close()
        await made[0].lost()
