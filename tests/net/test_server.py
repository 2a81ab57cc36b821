"""Servers: starting, closing, waiting, addresses; what changed from Python version to Python version."""

import asyncio
import errno
import gc
import socket
import sys
import weakref

import pytest

from support.drive import eventually, run, turns
from support.leaks import fds
from support.peers import MB, is_open
from support.protocols import Recorder, drop, end_all, keeping, serve


class Greeter(Recorder):
    def connection_made(self, transport):
        super().connection_made(transport)
        transport.write(b"hello")


async def connected(sockets, port, made, count=1):
    """So many clients, accepted."""
    clients = [sockets.dial(port) for _ in range(count)]
    await eventually(lambda: len(made) >= count and all("made" in p.events for p in made))
    return clients


async def test_a_server_is_asyncios(loop, sockets):
    async with serve() as (server, port):
        assert type(server) is asyncio.Server
        assert isinstance(server, asyncio.AbstractServer)
        assert server.get_loop() is loop
        assert server.is_serving()
        assert type(server.sockets) is tuple
        assert [type(s) for s in server.sockets] == [asyncio.trsock.TransportSocket]
        assert server.sockets[0].getsockname() == ("127.0.0.1", port)
        assert "sockets=" in repr(server)
        assert weakref.ref(server)() is server
    assert server.sockets == ()
    assert not server.is_serving()
    repr(server)


async def test_close_stops_accepting_and_leaves_clients_alone(loop, sockets):
    factory, made = keeping()
    async with serve(factory) as (server, port):
        (client,) = await connected(sockets, port, made)
        server.close()
        with pytest.raises(ConnectionRefusedError):
            sockets.dial(port)
        client.sock.send(b"still here")
        assert await made[0].got(10) == b"still here"
        made[0].transport.write(b"yes")
        assert await client.recv(3) == b"yes"
        client.close()
        await made[0].lost()


async def test_close_may_be_repeated(loop, sockets):
    async with serve() as (server, _):
        for _ in range(3):
            server.close()
            assert not server.is_serving()


async def test_clients_in_the_backlog_of_a_closed_server(loop, sockets):
    """Clients that nobody has accepted when the server closes are dropped, and no protocol is made later."""
    factory, made = keeping()
    async with serve(factory) as (server, port):
        clients = [sockets.dial(port) for _ in range(3)]
        server.close()
        for client in clients:
            assert await client.end() in (b"", None)
        await turns(5)
        assert made == []


@pytest.mark.parametrize("where", ["connection_made", "data_received"])
async def test_a_server_closed_by_its_first_client(loop, sockets, where):
    """close() from inside the server's own callbacks: that client lives on, nobody else gets in."""
    made = []

    class Closes(Recorder):
        def connection_made(self, transport):
            super().connection_made(transport)
            if where == "connection_made":
                server.close()

        def data_received(self, data):
            super().data_received(data)
            if where == "data_received":
                server.close()

    def factory():
        made.append(Closes())
        return made[-1]

    async with serve(factory) as (server, port):
        client = sockets.dial(port)
        client.sock.send(b"x")
        await eventually(lambda: made and made[0].data)
        assert not server.is_serving()
        with pytest.raises(ConnectionRefusedError):
            sockets.dial(port)
        made[0].transport.write(b"y")
        assert await client.recv(1) == b"y"
        client.close()
        await made[0].lost()
        assert len(made) == 1


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="until 3.11")
async def test_wait_closed_until_311_returns_at_once(loop, sockets):
    factory, made = keeping()
    async with serve(factory) as (server, port):
        await connected(sockets, port, made)
        server.close()
        await asyncio.wait_for(server.wait_closed(), 5)
        await end_all(made)


@pytest.mark.skipif(sys.version_info < (3, 12, 1), reason="gh-79033: from 3.12.1")
async def test_wait_closed_waits_for_clients(loop, sockets):
    factory, made = keeping()
    async with serve(factory) as (server, port):
        await connected(sockets, port, made, 2)
        waiting = [asyncio.ensure_future(server.wait_closed()) for _ in range(2)]
        await turns(3)
        server.close()
        await turns(3)
        assert not any(w.done() for w in waiting)
        made[0].transport.close()
        await made[0].lost()
        await turns(3)
        assert not any(w.done() for w in waiting)
        made[1].transport.abort()
        await made[1].lost()
        await asyncio.wait_for(asyncio.gather(*waiting), 5)


async def test_wait_closed_without_clients(loop, sockets):
    async with serve() as (server, _):
        waiting = asyncio.ensure_future(server.wait_closed())
        await turns(3)
        assert not waiting.done() or sys.version_info < (3, 12)
        server.close()
        await asyncio.wait_for(waiting, 5)
        for _ in range(2):
            await asyncio.wait_for(server.wait_closed(), 5)


@pytest.mark.skipif(sys.version_info < (3, 13), reason="gh-113538: from 3.13 on")
async def test_close_clients_flushes(loop, sockets):
    factory, made = keeping()
    async with serve(factory) as (server, port):
        clients = await connected(sockets, port, made, 3)
        made[0].transport.write(bytes(10 * MB))
        server.close_clients()
        assert server.is_serving()
        assert all(p.transport.is_closing() for p in made)
        received = sum([len(await client.recv_all()) for client in clients])
        assert received == 10 * MB
        for p in made:
            assert await p.lost() is None


@pytest.mark.skipif(sys.version_info < (3, 13), reason="gh-113538: from 3.13 on")
async def test_abort_clients_drops(loop, sockets):
    factory, made = keeping()
    async with serve(factory) as (server, port):
        clients = await connected(sockets, port, made, 3)
        made[0].transport.write(bytes(64 * MB))
        server.close()
        server.abort_clients()
        for p in made:
            await p.lost()
        await asyncio.wait_for(server.wait_closed(), 5)
        for client in clients:
            await client.end()


async def test_start_serving(loop, sockets):
    factory, made = keeping(Greeter)
    async with serve(factory, start_serving=False) as (server, port):
        assert not server.is_serving()
        with pytest.raises(ConnectionRefusedError):
            sockets.dial(port)
        await server.start_serving()
        await server.start_serving()
        assert server.is_serving()
        assert await sockets.dial(port).recv(5) == b"hello"
        await end_all(made)


async def test_serve_forever(loop, sockets):
    factory, made = keeping(Greeter)
    async with serve(factory, start_serving=False) as (server, port):
        task = asyncio.ensure_future(server.serve_forever())
        await turns(3)
        assert await sockets.dial(port).recv(5) == b"hello"
        with pytest.raises(RuntimeError, match="already being awaited"):
            await server.serve_forever()
        await end_all(made)
        server.close()
        with pytest.raises(asyncio.CancelledError):
            await asyncio.wait_for(task, 5)
        with pytest.raises(RuntimeError, match="is closed"):
            await server.serve_forever()


async def test_a_cancelled_serve_forever_closes(loop, sockets):
    async with serve() as (server, port):
        task = asyncio.ensure_future(server.serve_forever())
        await turns(3)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asyncio.wait_for(task, 5)
        assert not server.is_serving()
        with pytest.raises(ConnectionRefusedError):
            sockets.dial(port)


async def test_a_server_as_context_manager(loop, sockets):
    async with await loop.create_server(Recorder, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        assert server.is_serving()
    assert not server.is_serving()
    with pytest.raises(ConnectionRefusedError):
        sockets.dial(port)


async def test_a_closed_server_frees_port_and_descriptor(loop, sockets):
    """Also when our end closed first and keeps the connection in TIME_WAIT."""
    factory, made = keeping(Greeter)
    server = await loop.create_server(factory, "127.0.0.1", 0)
    fd, port = server.sockets[0].fileno(), server.sockets[0].getsockname()[1]
    client = sockets.dial(port)
    assert await client.recv(5) == b"hello"
    made[0].transport.close()
    await made[0].lost()
    client.close()
    server.close()
    await eventually(lambda: not is_open(fd))
    again = await loop.create_server(Recorder, "127.0.0.1", port)
    again.close()
    await again.wait_closed()


async def test_a_taken_address(loop, sockets):
    async with serve() as (_, port):
        before = fds()
        with pytest.raises(OSError, match="error while attempting to bind on address") as caught:
            await loop.create_server(Recorder, "127.0.0.1", port)
        assert caught.value.errno == errno.EADDRINUSE
        assert f"('127.0.0.1', {port})" in str(caught.value)
        del caught
        gc.collect()
        assert fds() == before


async def test_addresses(loop, sockets):
    factory, made = keeping(Greeter)
    for host in (None, "", "localhost", ["127.0.0.1", "127.0.0.3"]):
        server = await loop.create_server(factory, host, 0)
        reached = 0
        for sock in server.sockets:
            if sock.family == socket.AF_INET:
                address, port = sock.getsockname()
                assert await sockets.dial(port, address.replace("0.0.0.0", "127.0.0.1")).recv(5) == b"hello"
                reached += 1
        assert reached == (2 if isinstance(host, list) else 1)
        server.close()
    await end_all(made)
    with pytest.raises(OverflowError):
        await loop.create_server(Recorder, "127.0.0.1", 70000)
    with pytest.raises((TypeError, ValueError)):
        await loop.create_server(Recorder, None)
    with pytest.raises((TypeError, OSError)):
        await loop.create_server(Recorder, 12345, 0)


async def test_a_given_socket(loop, sockets):
    """A bound socket, listening or not, is taken as sock= and closed with the server."""
    factory, made = keeping(Greeter)
    for listening in (False, True):
        sock = sockets.own(socket.socket())
        sock.bind(("127.0.0.1", 0))
        if listening:
            sock.listen()
        port = sock.getsockname()[1]
        server = await loop.create_server(factory, sock=sock)
        assert await sockets.dial(port).recv(5) == b"hello"
        server.close()
        await eventually(lambda sock=sock: sock.fileno() == -1)
    await end_all(made)
    with socket.socket(type=socket.SOCK_DGRAM) as udp:
        with pytest.raises(ValueError, match="Stream Socket was expected"):
            await loop.create_server(Recorder, sock=udp)
    with pytest.raises(ValueError, match="host/port and sock can not be specified"):
        await loop.create_server(Recorder, "127.0.0.1", 0, sock=socket.socket)
    with pytest.raises(ValueError, match="Neither host/port nor sock"):
        await loop.create_server(Recorder)


async def test_options_of_listening_sockets(loop, sockets):
    one = await loop.create_server(Recorder, "127.0.0.1", 0, reuse_port=True)
    sock = one.sockets[0]
    assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT)
    assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR)
    two = await loop.create_server(Recorder, "127.0.0.1", sock.getsockname()[1], reuse_port=True)
    for server in (one, two):
        server.close()
    if sys.version_info >= (3, 13):
        server = await loop.create_server(Recorder, "127.0.0.1", 0, keep_alive=True)
        assert server.sockets[0].getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        server.close()


def test_a_server_works_in_later_runs(loop, sockets):
    """Between runs clients wait in the backlog."""
    factory, made = keeping(Greeter)
    server = run(loop, loop.create_server(factory, "127.0.0.1", 0))
    port = server.sockets[0].getsockname()[1]
    for _ in range(3):
        client = sockets.dial(port)
        assert client.now(5) is None
        assert run(loop, client.recv(5)) == b"hello"
    server.close()
    run(loop, end_all(made))


def test_loops_serve_copies_of_one_socket(new_loop, sockets):
    """Two loops accept on the same listening socket, as forking servers do."""
    sock = sockets.listener()
    port = sock.getsockname()[1]
    loops = [new_loop(), new_loop()]
    factory, made = keeping(Greeter)
    servers = [run(loop, loop.create_server(factory, sock=sock.dup())) for loop in loops]
    for loop in (*loops, *loops):
        client = sockets.dial(port)
        assert run(loop, client.recv(5)) == b"hello"
        run(loop, made[-1].lost() if client.close() else end_all(made[-1:]))
    for loop, server in zip(loops, servers, strict=True):
        server.close()
        run(loop, turns(3))


# ---- streams on top


async def test_stream_servers(loop, sockets):
    async def echo(reader, writer):
        while chunk := await reader.read(1000):
            writer.write(chunk)
            await writer.drain()
        writer.close()

    async def client(i):
        reader, writer = await asyncio.open_connection(*address)
        for k in range(5):
            line = b"%d-%d\n" % (i, k)
            writer.write(line)
            assert await reader.readline() == line
        writer.write_eof()
        assert await reader.read() == b""
        writer.close()
        await writer.wait_closed()

    server = await asyncio.start_server(echo, "127.0.0.1", 0, backlog=100)
    address = server.sockets[0].getsockname()
    before = set(fds())
    await asyncio.gather(*map(client, range(60)))
    await eventually(lambda: set(fds()) == before)
    server.close()
    await server.wait_closed()


async def test_a_plain_function_as_stream_callback(loop, sockets):
    def callback(reader, writer):
        writer.write(b"hi")
        writer.close()

    server = await asyncio.start_server(callback, "127.0.0.1", 0)
    for _ in range(3):
        assert await sockets.dial(server.sockets[0].getsockname()[1]).recv_all() == b"hi"
    server.close()
    await server.wait_closed()


async def test_a_stream_callback_that_fails(loop, sockets, errors):
    async def callback(reader, writer):
        try:
            await reader.readline()
            raise KeyError("in the callback")
        finally:
            writer.close()

    server = await asyncio.start_server(callback, "127.0.0.1", 0)
    client = sockets.dial(server.sockets[0].getsockname()[1])
    client.sock.send(b"line\n")
    assert await client.recv_all() == b""
    await eventually(lambda: errors.entries)
    (context,) = errors.take()
    assert isinstance(context["exception"], KeyError)
    server.close()
    await server.wait_closed()
    gc.collect()


async def test_reading_streams(loop, sockets):
    ours, theirs = sockets.pair(tcp=True)
    reader, writer = await asyncio.open_connection(sock=ours, limit=100)
    theirs.send(b"a" * 300 + b"\nnext\n" + b"12345")
    with pytest.raises(ValueError):
        await reader.readline()
    assert await reader.readline() == b"next\n"
    assert await reader.readexactly(5) == b"12345"
    task = asyncio.ensure_future(reader.readexactly(10))
    await turns(2)
    theirs.send(b"part")
    await turns(3)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    theirs.close()
    with pytest.raises(asyncio.IncompleteReadError) as caught:
        await reader.readexactly(10)
    assert caught.value.partial == b"part"
    assert reader.at_eof()
    writer.close()
    await writer.wait_closed()


async def test_a_stream_that_nobody_reads_stops_its_peer(loop, sockets):
    ours, theirs = sockets.pair(tcp=True)
    reader, writer = await asyncio.open_connection(sock=ours, limit=10_000)
    sent = 0
    for _ in range(10):
        try:
            while sent < 64 * MB:
                sent += theirs.send(bytes(65536))
        except BlockingIOError:
            await asyncio.sleep(0.002)
    assert sent < 64 * MB
    assert not writer.transport.is_reading()
    assert len(await reader.readexactly(sent)) == sent
    await turns(2)
    assert writer.transport.is_reading()
    await drop(writer.transport)
