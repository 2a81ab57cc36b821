"""create_unix_server and create_unix_connection: paths, what stands in their way, and what is left behind."""

import os
import pathlib
import socket
import stat
import sys

import pytest

from support.drive import eventually
from support.leaks import fds
from support.protocols import Recorder, drop, end_all, keeping

CLEANS_UP = sys.version_info >= (3, 13)


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


async def failure(coro):
    """(type, errno, text, file name) of what a call raises; nothing may be left open by it."""
    before = fds()
    with pytest.raises((OSError, ValueError, TypeError)) as caught:
        await coro
    assert fds() == before
    exc = caught.value
    return type(exc), getattr(exc, "errno", None), getattr(exc, "strerror", None) or str(exc)


async def visit(loop, path, made):
    """Connect to a server, and see the connection on both sides."""
    transport, protocol = await loop.create_unix_connection(Recorder, path)
    await eventually(lambda: made and made[-1].transport)
    await drop(transport)
    await protocol.lost()
    await end_all(made)


@pytest.mark.parametrize("make", [str, os.fsencode, pathlib.Path])
async def test_paths_of_all_types(loop, make, log):
    factory, made = keeping(Recorder)
    server = await loop.create_unix_server(factory, make("s.sock"))
    await visit(loop, make("s.sock"), made)
    server.close()
    await server.wait_closed()
    assert os.path.exists("s.sock") is not CLEANS_UP


@pytest.mark.skipif(sys.platform != "linux", reason="abstract names are Linux's")
@pytest.mark.parametrize("make", [str, os.fsencode])
async def test_abstract_names(loop, make):
    name = make(f"\0uvpy-{os.getpid()}-paths")
    factory, made = keeping(Recorder)
    server = await loop.create_unix_server(factory, name)
    assert server.sockets[0].getsockname() == os.fsencode(name)
    with pytest.raises(OSError, match="is already in use"):
        await loop.create_unix_server(Recorder, name)
    await visit(loop, name, made)
    server.close()
    await server.wait_closed()
    server = await loop.create_unix_server(Recorder, name)
    server.close()


async def test_what_stands_in_the_way(loop, log):
    pathlib.Path("file").write_text("mine")
    os.mkdir("folder")
    os.symlink("nowhere", "dangling")
    os.mkfifo("fifo")
    for name in ("file", "folder", "fifo"):
        kind, _, text = await failure(loop.create_unix_server(Recorder, name))
        assert issubclass(kind, OSError)
        assert text == f"Address {name!r} is already in use"
    kind, _, text = await failure(loop.create_unix_server(Recorder, "dangling"))
    assert issubclass(kind, OSError)
    assert pathlib.Path("file").read_text() == "mine"
    assert os.path.isdir("folder")
    assert stat.S_ISFIFO(os.stat("fifo").st_mode)
    for name in ("file", "folder", "fifo"):
        kind, _, _ = await failure(loop.create_unix_connection(Recorder, name))
        assert kind is ConnectionRefusedError
    assert not log.take()
    assert (await failure(loop.create_unix_server(Recorder, "no/such/folder")))[0] is FileNotFoundError
    assert (await failure(loop.create_unix_connection(Recorder, "no/such/folder")))[0] is FileNotFoundError
    for path in ("x" * 108, "x" * 300, b"x" * 300):
        assert (await failure(loop.create_unix_server(Recorder, path)))[2] == "AF_UNIX path too long"
        assert (await failure(loop.create_unix_connection(Recorder, path)))[2] == "AF_UNIX path too long"
    log.take()  # that names of 300 letters cannot be looked at
    for path in (5, 1.5, []):
        assert issubclass((await failure(loop.create_unix_server(Recorder, path)))[0], (TypeError, ValueError, OSError))


@pytest.mark.skipif(os.geteuid() == 0, reason="root may do anything")
async def test_a_folder_without_permission(loop):
    os.mkdir("closed", 0o500)
    assert (await failure(loop.create_unix_server(Recorder, "closed/s")))[0] is PermissionError


async def test_a_stale_socket_is_replaced(loop):
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind("s.sock")
    before = os.stat("s.sock").st_ino, os.stat("s.sock").st_mtime_ns
    factory, made = keeping(Recorder)
    server = await loop.create_unix_server(factory, "s.sock")
    assert (os.stat("s.sock").st_ino, os.stat("s.sock").st_mtime_ns) != before
    await visit(loop, "s.sock", made)
    server.close()


async def test_two_servers_on_a_path(loop):
    """The second takes the path over, as asyncio has it; the first does not remove what is the second's."""
    first_factory, first_made = keeping(Recorder)
    second_factory, second_made = keeping(Recorder)
    first = await loop.create_unix_server(first_factory, "s.sock")
    second = await loop.create_unix_server(second_factory, "s.sock")
    first.close()
    await first.wait_closed()
    assert os.path.exists("s.sock")
    await visit(loop, "s.sock", second_made)
    assert (len(first_made), len(second_made)) == (0, 1)
    second.close()
    await second.wait_closed()
    assert os.path.exists("s.sock") is not CLEANS_UP


@pytest.mark.skipif(not CLEANS_UP, reason="new in Python 3.13")
async def test_the_path_is_removed_with_the_server(loop):
    server = await loop.create_unix_server(Recorder, "s.sock", cleanup_socket=False)
    server.close()
    assert os.path.exists("s.sock")
    server = await loop.create_unix_server(Recorder, "s.sock")
    os.unlink("s.sock")
    server.close()  # somebody was faster
    server = await loop.create_unix_server(Recorder, "s.sock")
    os.unlink("s.sock")
    pathlib.Path("s.sock").write_text("another's")
    server.close()
    assert pathlib.Path("s.sock").read_text() == "another's"
    os.unlink("s.sock")
    with socket.socket(socket.AF_UNIX) as sock:
        sock.bind("s.sock")
        server = await loop.create_unix_server(Recorder, sock=sock)
        server.close()
        assert os.path.exists("s.sock") is False
    server = await loop.create_unix_server(Recorder, "s.sock", start_serving=False)
    server.close()
    assert os.path.exists("s.sock") is False


async def test_wrong_arguments(loop, sockets, authority):
    """The same checks with the same words, in both directions."""
    tcp, udp = sockets.own(socket.socket()), sockets.own(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM))
    unix = sockets.own(socket.socket(socket.AF_UNIX))
    context = authority.client()
    cases = [
        (loop.create_unix_connection(Recorder), "no path and sock were specified"),
        (loop.create_unix_connection(Recorder, "p", sock=unix), "path and sock can not be specified at the same time"),
        (loop.create_unix_connection(Recorder, sock=tcp), f"A UNIX Domain Stream Socket was expected, got {tcp!r}"),
        (loop.create_unix_connection(Recorder, sock=udp), f"A UNIX Domain Stream Socket was expected, got {udp!r}"),
        (
            loop.create_unix_connection(Recorder, "p", ssl=context),
            "you have to pass server_hostname when using ssl",
        ),
        (
            loop.create_unix_connection(Recorder, "p", server_hostname="x"),
            "server_hostname is only meaningful with ssl",
        ),
        (
            loop.create_unix_connection(Recorder, "p", ssl_handshake_timeout=1),
            "ssl_handshake_timeout is only meaningful with ssl",
        ),
        (
            loop.create_unix_connection(Recorder, "p", ssl_shutdown_timeout=1),
            "ssl_shutdown_timeout is only meaningful with ssl",
        ),
        (loop.create_unix_server(Recorder), "path was not specified, and no sock specified"),
        (loop.create_unix_server(Recorder, "p", sock=unix), "path and sock can not be specified at the same time"),
        (loop.create_unix_server(Recorder, sock=tcp), f"A UNIX Domain Stream Socket was expected, got {tcp!r}"),
        (loop.create_unix_server(Recorder, sock=udp), f"A UNIX Domain Stream Socket was expected, got {udp!r}"),
        (loop.create_unix_server(Recorder, "p", ssl=True), "ssl argument must be an SSLContext or None"),
        (
            loop.create_unix_server(Recorder, "p", ssl_handshake_timeout=1),
            "ssl_handshake_timeout is only meaningful with ssl",
        ),
        (
            loop.create_unix_server(Recorder, "p", ssl_shutdown_timeout=1),
            "ssl_shutdown_timeout is only meaningful with ssl",
        ),
    ]
    for coro, text in cases:
        kind, _, got = await failure(coro)
        assert got == text
        assert kind in (ValueError, TypeError)
    assert not os.path.exists("p")


async def test_tls_over_a_path(loop, authority):
    factory, made = keeping(Recorder)
    context = authority.client()
    server = await loop.create_unix_server(factory, "s.sock", ssl=authority.server())
    transport, protocol = await loop.create_unix_connection(
        Recorder, "s.sock", ssl=context, server_hostname="localhost"
    )
    transport.write(b"x" * 10)
    assert transport.get_extra_info("sslcontext") is context
    await eventually(lambda: made and made[0].data == b"x" * 10)
    transport.close()
    await protocol.lost()
    await end_all(made)
    server.close()


async def test_given_sockets(loop, sockets):
    """A socket that blocks is made non-blocking; the server's is closed with it."""
    sock = sockets.own(socket.socket(socket.AF_UNIX))
    sock.bind("s.sock")
    factory, made = keeping(Recorder)
    server = await loop.create_unix_server(factory, sock=sock)
    assert sock.getblocking() is False
    client = sockets.own(socket.socket(socket.AF_UNIX))
    client.connect("s.sock")
    transport, protocol = await loop.create_unix_connection(Recorder, sock=client)
    await eventually(lambda: made and made[0].transport)
    await drop(transport)
    await protocol.lost()
    await end_all(made)
    server.close()
    assert sock.fileno() == -1
