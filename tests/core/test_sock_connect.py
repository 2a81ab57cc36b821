"""sock_connect() and sock_accept()."""

import asyncio
import contextlib
import errno
import socket

import pytest

from support.drive import LIMIT, turns


@pytest.mark.parametrize("family", [socket.AF_INET, socket.AF_INET6], ids=lambda f: f.name)
async def test_connect_and_accept(loop, sockets, family):
    listener = sockets.listener(family)
    client = sockets.own(socket.socket(family))
    client.setblocking(False)
    accepting = asyncio.ensure_future(loop.sock_accept(listener))
    await turns(2)
    assert await loop.sock_connect(client, listener.getsockname()) is None
    server, address = await accepting
    sockets.own(server)
    assert (server.gettimeout(), address) == (0, client.getsockname())


async def test_connect_goes_through_getaddrinfo(loop, sockets):
    """Names, and what is replaced by the program."""
    listener = sockets.listener()
    port = listener.getsockname()[1]
    asked = []

    async def getaddrinfo(host, port, **hints):
        asked.append((host, port, hints["family"], hints["type"]))
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", port))]

    loop.getaddrinfo = getaddrinfo
    with socket.socket() as client:
        client.setblocking(False)
        await loop.sock_connect(client, ("some.name", port))
        assert asked == [("some.name", port, socket.AF_INET, socket.SOCK_STREAM)]
        assert client.getpeername() == ("127.0.0.1", port)
    with socket.socket() as client:
        client.setblocking(False)
        await loop.sock_connect(client, ("127.0.0.1", port))
    assert len(asked) == 1


async def test_connect_errors(loop, sockets, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    port = sockets.dead_port()
    with socket.socket() as client:
        client.setblocking(False)
        with pytest.raises(ConnectionRefusedError, match=rf"Connect call failed \('127\.0\.0\.1', {port}\)") as said:
            await loop.sock_connect(client, ("127.0.0.1", port))
        assert said.value.errno == errno.ECONNREFUSED
        assert loop.remove_writer(client) is False
    with socket.socket(socket.AF_UNIX) as client:
        client.setblocking(False)
        with pytest.raises(FileNotFoundError):
            await loop.sock_connect(client, "missing")
        with pytest.raises(TypeError):
            await loop.sock_connect(client, 5)
        for _ in range(2):
            with pytest.raises(OSError, match="AF_UNIX path too long"):
                await loop.sock_connect(client, "x" * 200)


async def test_connect_to_a_unix_path_that_waits(loop, sockets, tmp_path, monkeypatch):
    """A full backlog is EAGAIN for a Unix socket: the error is asyncio's."""
    monkeypatch.chdir(tmp_path)
    with socket.socket(socket.AF_UNIX) as server, contextlib.ExitStack() as stack:
        server.bind("s")
        server.listen(0)
        server.setblocking(False)
        clients = [stack.enter_context(socket.socket(socket.AF_UNIX)) for _ in range(3)]
        for client in clients:
            client.setblocking(False)
        await loop.sock_connect(clients[0], "s")
        conn, address = await loop.sock_accept(server)
        with conn:
            assert address == ""
            await loop.sock_sendall(clients[0], b"x")
            assert await loop.sock_recv(conn, 1) == b"x"


async def test_a_cancelled_connect_frees_the_descriptor(loop, sockets):
    """Nobody answers: a listener whose backlog is full drops what knocks."""
    listener = sockets.own(socket.socket())
    listener.bind(("127.0.0.1", 0))
    listener.listen(0)
    clients = [sockets.own(socket.socket()) for _ in range(4)]
    tasks = []
    for client in clients:
        client.setblocking(False)
        tasks.append(asyncio.ensure_future(loop.sock_connect(client, listener.getsockname())))
    await turns(3)
    pending = [(task, client) for task, client in zip(tasks, clients, strict=True) if not task.done()]
    assert pending
    for task, client in pending:
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert loop.remove_writer(client) is False
    await asyncio.gather(*(task for task in tasks if not task.cancelled()))


@pytest.mark.asyncio_gap("gh-153761: it is taken all the same, and lost", since=(3, 11), until=(3, 15))
async def test_an_accept_cancelled_before_it_runs_takes_nobody(loop, sockets):
    """The client is there in the turn in which the call is cancelled: it stays for the next one."""
    listener = sockets.listener()
    for queued_first in (True, False):
        accepting = asyncio.ensure_future(loop.sock_accept(listener))
        await turns(2)
        client = sockets.own(socket.create_connection(listener.getsockname(), timeout=LIMIT))
        if queued_first:
            accepting.cancel()
        else:
            loop.call_soon(accepting.cancel)
            await turns(1)
        with pytest.raises(asyncio.CancelledError):
            await accepting
        conn, address = await loop.sock_accept(listener)
        with conn:
            assert address == client.getsockname()


@pytest.mark.uvpy_only("asyncio drops the connection for the collector, which warns")
async def test_an_accept_cancelled_when_it_has_somebody_closes_it(loop, sockets):
    listener = sockets.listener()
    accepting = asyncio.ensure_future(loop.sock_accept(listener))
    await turns(2)
    client = sockets.own(socket.create_connection(listener.getsockname(), timeout=LIMIT))
    loop.add_writer(client, lambda: (loop.remove_writer(client), accepting.cancel()))
    with pytest.raises(asyncio.CancelledError):
        await accepting
    with contextlib.suppress(BlockingIOError):
        conn, _ = listener.accept()  # cancelled in time: it is still there
        conn.close()
    client.setblocking(True)
    assert client.recv(1) == b""
