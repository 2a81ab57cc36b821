"""Everything through the public methods once: Unix sockets, subprocesses, pipes, executors, lookups, servers."""

import asyncio
import contextlib
import os
import pathlib
import signal
import socket
import stat
import subprocess
import sys

import pytest

from support.drive import LIMIT, run, turn, turns
from support.leaks import fds
from support.peers import MB, pattern, same
from support.protocols import Recorder, drop, end_all, keeping, serve, wire


class Greeter(Recorder):
    def connection_made(self, transport):
        super().connection_made(transport)
        transport.write(b"hello")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """An empty folder as the current one: the paths of Unix sockets are short there."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


# ---- Unix sockets


@pytest.mark.parametrize("make", [str, os.fsencode, pathlib.Path])
async def test_unix_servers_and_clients(loop, folder, make):
    factory, made = keeping(Greeter)
    server = await loop.create_unix_server(factory, make("a.sock"))
    assert stat.S_ISSOCK(os.stat("a.sock").st_mode)
    transport, protocol = await loop.create_unix_connection(Recorder, make("a.sock"))
    assert await protocol.got(5) == b"hello"
    assert transport.get_extra_info("peername") == "a.sock"
    assert transport.get_extra_info("sockname") == ""
    assert transport.get_extra_info("socket").family == socket.AF_UNIX
    assert made[0].transport.get_extra_info("sockname") == "a.sock"
    transport.write(b"x" * 100_000)
    await made[0].got(100_000)
    transport.close()
    await protocol.lost()
    await made[0].lost()
    server.close()
    await server.wait_closed()
    assert os.path.exists("a.sock") is (sys.version_info < (3, 13))


async def test_unix_streams(loop, folder):
    async def echo(reader, writer):
        writer.write(await reader.readline())
        writer.close()

    server = await asyncio.start_unix_server(echo, "s.sock")
    for _ in range(5):
        reader, writer = await asyncio.open_unix_connection("s.sock")
        writer.write(b"line\n")
        assert await reader.read() == b"line\n"
        writer.close()
        await writer.wait_closed()
    server.close()
    await server.wait_closed()


@pytest.mark.skipif(sys.platform != "linux", reason="abstract names are Linux's")
async def test_abstract_unix_sockets(loop):
    name = f"\0uvpy-test-{os.getpid()}"
    factory, made = keeping(Greeter)
    server = await loop.create_unix_server(factory, name)
    transport, protocol = await loop.create_unix_connection(Recorder, name)
    assert await protocol.got(5) == b"hello"
    transport.close()
    await protocol.lost()
    await end_all(made)
    server.close()


async def test_errors_of_unix_sockets(loop, folder, log):
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind("dead.sock")
    before = fds()
    with pytest.raises(FileNotFoundError):
        await loop.create_unix_connection(Recorder, "missing.sock")
    with pytest.raises(ConnectionRefusedError):
        await loop.create_unix_connection(Recorder, "dead.sock")
    with pytest.raises(FileNotFoundError):
        await loop.create_unix_server(Recorder, "nowhere/s.sock")
    with pytest.raises(OSError, match="too long"):
        await loop.create_unix_server(Recorder, "x" * 300)
    log.take()  # that it could not look whether such a file is there
    with pytest.raises(ValueError):
        await loop.create_unix_server(Recorder)
    with pytest.raises(ValueError):
        await loop.create_unix_connection(Recorder)
    assert fds() == before
    server = await loop.create_unix_server(Recorder, "dead.sock")  # a stale socket is replaced
    server.close()


async def test_passing_through_a_socketpair(loop, sockets):
    async with wire(sockets, Recorder, "unix") as (transport, protocol, peer):
        blob = pattern(MB)
        coming = peer.start(peer._recv, MB)
        transport.write(blob)
        same(await asyncio.wrap_future(coming), blob)
        peer.close()
        assert await protocol.lost() is None


# ---- subprocesses and pipes


async def test_subprocess_output_and_status(loop):
    proc = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        "import sys; data = sys.stdin.read(); sys.stdout.write(data.upper()); sys.stderr.write('err'); sys.exit(3)",
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert await proc.communicate(b"text") == (b"TEXT", b"err")
    assert proc.returncode == 3
    assert await proc.wait() == 3


async def test_a_shell(loop):
    proc = await asyncio.create_subprocess_shell("echo one; exit 4", stdout=subprocess.PIPE)
    out, _ = await proc.communicate()
    assert (out, proc.returncode) == (b"one\n", 4)


async def test_subprocesses_at_once(loop):
    async def one(n):
        proc = await asyncio.create_subprocess_exec("sh", "-c", f"exit {n}")
        return await proc.wait()

    assert await asyncio.gather(*map(one, range(8))) == list(range(8))


async def test_signals_to_subprocesses(loop):
    for send, status in (("kill", -signal.SIGKILL), ("terminate", -signal.SIGTERM)):
        proc = await asyncio.create_subprocess_exec("sleep", "60")
        getattr(proc, send)()
        assert await asyncio.wait_for(proc.wait(), LIMIT) == status
        with contextlib.suppress(ProcessLookupError):
            proc.send_signal(signal.SIGTERM)


async def test_a_program_that_is_missing(loop):
    before = fds()
    with pytest.raises(FileNotFoundError):
        await asyncio.create_subprocess_exec("/nowhere/at/all", stdout=subprocess.PIPE)
    assert fds() == before


async def test_much_data_through_a_subprocess(loop):
    proc = await asyncio.create_subprocess_exec("cat", stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    blob = pattern(2 * MB)
    out, _ = await proc.communicate(blob)
    same(out, blob)
    assert proc.returncode == 0


async def test_pipes(loop, sockets):
    r, w = os.pipe()
    reading, reader = await loop.connect_read_pipe(Recorder, open(r, "rb", buffering=0))
    writing, writer = await loop.connect_write_pipe(Recorder, open(w, "wb", buffering=0))
    blob = pattern(300_000)
    writing.write(blob)
    same(await reader.got(len(blob)), blob)
    reading.pause_reading()
    writing.write(b"more")
    await turns(5)
    assert len(reader.data) == len(blob)
    reading.resume_reading()
    await reader.got(len(blob) + 4)
    writing.close()
    assert await writer.lost() is None
    assert await reader.lost() is None
    assert reader.order() == ["made", "data", "eof", "lost"]


async def test_the_reader_of_a_pipe_goes_away(loop, sockets):
    r, w = os.pipe()
    writing, writer = await loop.connect_write_pipe(Recorder, open(w, "wb", buffering=0))
    os.close(r)
    assert isinstance(await writer.lost(), (BrokenPipeError, type(None)))
    assert writing.is_closing()


async def test_what_is_no_pipe(loop, tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"x")
    with path.open("r+b") as f:
        for connect in (loop.connect_read_pipe, loop.connect_write_pipe):
            with pytest.raises(ValueError, match="Pipe transport is"):
                await connect(Recorder, f)


# ---- names, executors, files


async def test_names(loop):
    found = await loop.getaddrinfo("127.0.0.1", 80, type=socket.SOCK_STREAM)
    assert found == socket.getaddrinfo("127.0.0.1", 80, type=socket.SOCK_STREAM)
    assert await loop.getaddrinfo("localhost", None, type=socket.SOCK_STREAM)
    assert (await loop.getnameinfo(("127.0.0.1", 80), socket.NI_NUMERICHOST | socket.NI_NUMERICSERV)) == (
        "127.0.0.1",
        "80",
    )
    with pytest.raises(socket.gaierror):
        await loop.getaddrinfo("no such host", 80)


async def test_a_server_and_everything_else_at_once(loop, sockets, folder):
    """Transports of ours beside those of asyncio in one loop."""
    factory, made = keeping(Greeter)
    async with serve(factory) as (_, port):
        unix = await loop.create_unix_server(factory, "u.sock")
        client, protocol = await loop.create_connection(Recorder, "127.0.0.1", port)
        other, second = await loop.create_unix_connection(Recorder, "u.sock")
        proc = await asyncio.create_subprocess_exec("true")
        values = await asyncio.gather(
            protocol.got(5),
            second.got(5),
            proc.wait(),
            loop.run_in_executor(None, lambda: "thread"),
            asyncio.sleep(0.001, "timer"),
        )
        assert values == [b"hello", b"hello", 0, "thread", "timer"]
        for transport in (client, other):
            await drop(transport)
        unix.close()
        await end_all(made)


def test_signals_of_asyncio_in_a_run(loop):
    got = []
    loop.add_signal_handler(signal.SIGUSR1, lambda: (got.append(1), loop.stop()))
    loop.call_soon(os.kill, os.getpid(), signal.SIGUSR1)
    loop.call_later(5, loop.stop)
    loop.run_forever()
    assert got == [1]
    loop.remove_signal_handler(signal.SIGUSR1)
    turn(loop)
    run(loop, asyncio.sleep(0))
