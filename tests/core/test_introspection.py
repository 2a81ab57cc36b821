"""What can be seen of a loop from outside: `_debug_handles()`, which is uvpy's, and asyncio's own tools for tasks."""

import asyncio
import contextlib
import io
import os
import signal
import socket
import subprocess
import sys
import time
import traceback

import pytest

from support.drive import eventually, turns
from support.script import environment

ours = pytest.mark.uvpy_only("stock asyncio has no such list")
SHAPE = ["kind", "fd", "peer", "state", "waiting", "age", "creator"]


def rows(loop, *kinds):
    found = loop._debug_handles()
    for row in found:
        assert list(row)[: len(SHAPE)] == SHAPE
        assert row["kind"]
        assert row["fd"] is None or row["fd"] >= 0
        assert row["age"] is None or 0 <= row["age"] < 60
    return [row for row in found if row["kind"] in kinds]


@ours
async def test_transports_and_listeners(loop):
    server = await loop.create_server(asyncio.Protocol, "127.0.0.1", 0)
    (listener,) = rows(loop, "listener")
    assert listener["fd"] == server.sockets[0].fileno()
    assert listener["state"] == "open"
    address = server.sockets[0].getsockname()
    transport, _ = await loop.create_connection(asyncio.Protocol, *address)
    await eventually(lambda: len(rows(loop, "tcp")) == 2)
    (client,) = [row for row in rows(loop, "tcp") if row["peer"] == address]
    (accepted,) = [row for row in rows(loop, "tcp") if row["peer"] != address]
    assert client["fd"] == transport.get_extra_info("socket").fileno()
    assert accepted["peer"] == transport.get_extra_info("sockname")
    for row in (client, accepted):
        assert (row["state"], row["waiting"], row["creator"]) == ("open", 0, None)
    transport.abort()
    (closing,) = [row for row in rows(loop, "tcp") if row["peer"] == address]
    assert closing["state"] == "closing"
    server.close()
    await eventually(lambda: not rows(loop, "tcp", "listener"))


@ours
async def test_bytes_that_wait(loop, pair):
    ours, theirs = pair()
    transport, _ = await loop.create_connection(asyncio.Protocol, sock=ours)
    transport.write(bytes(8_000_000))
    (row,) = rows(loop, "unix")
    assert row["waiting"] == transport.get_write_buffer_size() > 0
    assert row["peer"] == ""
    transport.abort()
    await turns()


@ours
async def test_pipes_are_one_row_each(loop):
    r, w = os.pipe()
    reading, _ = await loop.connect_read_pipe(asyncio.Protocol, io.FileIO(r))
    writing, _ = await loop.connect_write_pipe(asyncio.BaseProtocol, io.FileIO(w, "w"))
    await turns()
    reading.pause_reading()
    writing.write(bytes(1_000_000))
    found = rows(loop, "read pipe", "write pipe", "reader", "writer", "reader+writer")
    found.sort(key=lambda row: row["kind"])
    assert [(row["kind"], row["fd"]) for row in found] == [("read pipe", r), ("write pipe", w)]
    assert found[1]["waiting"] == writing.get_write_buffer_size() > 0
    writing.abort()
    reading.close()
    await eventually(lambda: not rows(loop, "read pipe", "write pipe"))


@ours
@pytest.mark.parametrize("by_pidfd", [True, False])
async def test_a_child_is_one_row(loop, monkeypatch, by_pidfd):
    if not by_pidfd:

        def forbidden(pid):
            raise PermissionError

        monkeypatch.setattr(os, "pidfd_open", forbidden, raising=False)
    elif not hasattr(os, "pidfd_open"):
        pytest.skip("no pidfd")
    proc = await asyncio.create_subprocess_exec("cat", stdin=subprocess.PIPE)
    (row,) = rows(loop, "process")
    assert (row["pid"], row["state"]) == (proc.pid, "running")
    assert (row["fd"] is not None) == by_pidfd
    proc.stdin.close()
    assert await proc.wait() == 0
    await eventually(lambda: not rows(loop, "process"))


@ours
async def test_datagrams_have_their_peer(loop):
    free, _ = await loop.create_datagram_endpoint(asyncio.DatagramProtocol, ("127.0.0.1", 0))
    address = free.get_extra_info("sockname")
    bound, _ = await loop.create_datagram_endpoint(asyncio.DatagramProtocol, remote_addr=address)
    assert {row["fd"]: row["peer"] for row in rows(loop, "udp")} == {
        free.get_extra_info("socket").fileno(): None,
        bound.get_extra_info("socket").fileno(): address,
    }
    free.close()
    bound.close()
    await eventually(lambda: not rows(loop, "udp"))


@ours
async def test_age_counts_from_the_making(loop, pair):
    transport, _ = await loop.create_connection(asyncio.Protocol, sock=pair()[0])
    other = pair()[0]
    loop.add_reader(other, bool)
    loop.add_signal_handler(signal.SIGUSR1, bool)
    start = time.monotonic()
    young = rows(loop, "unix", "reader", "signal")
    assert len(young) == 3
    await asyncio.sleep(0.05)
    passed = time.monotonic() - start
    for before, after in zip(young, rows(loop, "unix", "reader", "signal"), strict=True):
        assert 0.02 < after["age"] - before["age"] < passed + 0.02  # the clock is a coarse one
    loop.remove_reader(other)
    loop.add_reader(other, bool)
    (again,) = rows(loop, "reader")
    assert again["age"] < 0.04
    loop.remove_reader(other)
    loop.remove_signal_handler(signal.SIGUSR1)
    assert rows(loop, "reader", "signal") == []
    transport.close()


@ours
async def test_watched_descriptors(loop, pair):
    a, b = pair()
    loop.add_reader(a, bool)
    (row,) = rows(loop, "reader")
    assert (row["fd"], row["state"], row["peer"]) == (a.fileno(), "open", None)
    loop.add_writer(a, bool)
    loop.add_writer(b, bool)
    (row,) = rows(loop, "reader+writer")
    assert row["fd"] == a.fileno()
    (row,) = rows(loop, "writer")
    assert row["fd"] == b.fileno()
    loop.remove_reader(a)
    loop.remove_writer(a)
    loop.remove_writer(b)
    assert rows(loop, "reader", "writer", "reader+writer") == []


@ours
async def test_timers(loop):
    before = len(rows(loop, "timer"))  # what runs this test has one
    handle = loop.call_later(77, bool)
    (row,) = [row for row in rows(loop, "timer") if row["due"] > 70]
    assert 76 < row["due"] <= 77
    assert (row["fd"], row["state"], row["age"]) == (None, "waiting", None)
    handle.cancel()
    assert len(rows(loop, "timer")) == before


@ours
async def test_signal_handlers(loop):
    loop.add_signal_handler(signal.SIGUSR1, bool)
    (row,) = rows(loop, "signal")
    assert row["signal"] == signal.SIGUSR1
    loop.remove_signal_handler(signal.SIGUSR1)
    assert rows(loop, "signal") == []


@ours
async def test_creators_in_debug_mode(loop, pair):
    loop.set_debug(True)
    server = await loop.create_server(asyncio.Protocol, "127.0.0.1", 0)
    transport, _ = await loop.create_connection(asyncio.Protocol, sock=pair()[0])
    other = pair()[0]
    loop.add_reader(other, bool)
    loop.add_signal_handler(signal.SIGUSR1, bool)
    handle = loop.call_later(77, bool)
    seen = rows(loop, "listener", "unix", "reader", "signal", "timer")
    assert len(seen) >= 5
    for row in seen:
        if row["kind"] == "timer" and row["due"] < 70:
            continue
        assert isinstance(row["creator"], traceback.StackSummary), row
        assert any(frame.filename == __file__ for frame in row["creator"]), row
    loop.set_debug(False)
    handle.cancel()
    loop.remove_reader(other)
    loop.remove_signal_handler(signal.SIGUSR1)
    transport.close()
    server.close()


@ours
async def test_an_accepted_connection_in_debug_mode(loop):
    """Its creator is whoever runs the loop: nobody in particular has made it."""
    loop.set_debug(True)
    server = await loop.create_server(asyncio.Protocol, "127.0.0.1", 0)
    with socket.create_connection(server.sockets[0].getsockname()):
        await eventually(lambda: rows(loop, "tcp"))
        (row,) = rows(loop, "tcp")
        assert row["creator"][-1].name == "run_until_complete"
    server.close()
    await eventually(lambda: not rows(loop, "tcp"))


@ours
def test_a_closed_loop_has_nothing(raw_loop):
    loop = raw_loop()
    loop.call_later(1, bool)
    loop.close()
    assert loop._debug_handles() == []


@ours
async def test_a_clock_of_the_programs_own(loop):
    handle = loop.call_later(77, bool)
    real, now = loop.time, loop.time()
    loop.time = lambda: now + 10
    try:
        assert [row for row in rows(loop, "timer") if 66 < row["due"] <= 67]

        def failing():
            raise ZeroDivisionError

        loop.time = failing
        with pytest.raises(ZeroDivisionError):
            loop._debug_handles()
    finally:
        loop.time = real
    handle.cancel()


# ---- tasks: asyncio's own


async def test_all_tasks(loop):
    async def sleeper():
        await asyncio.sleep(60)

    task = loop.create_task(sleeper(), name="sleeper")
    assert task in asyncio.all_tasks()
    assert asyncio.all_tasks(loop) == asyncio.all_tasks()
    assert asyncio.current_task() in asyncio.all_tasks()
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
    assert task not in asyncio.all_tasks()


@pytest.mark.skipif(not hasattr(asyncio, "print_call_graph"), reason="new in Python 3.14")
async def test_print_call_graph(loop):
    async def inner():
        await asyncio.sleep(60)

    async def outer():
        async with asyncio.TaskGroup() as group:
            group.create_task(inner(), name="innermost")

    task = loop.create_task(outer(), name="outermost")
    await turns()
    out = io.StringIO()
    (child,) = [t for t in asyncio.all_tasks() if t.get_name() == "innermost"]
    asyncio.print_call_graph(child, file=out)
    assert "innermost" in out.getvalue()
    assert "outermost" in out.getvalue()
    assert "inner" in asyncio.format_call_graph(child)
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


PROGRAM = """
import asyncio, sys
if sys.argv[1] == "uvpy":
    from uvpy import new_event_loop
else:
    new_event_loop = asyncio.SelectorEventLoop

async def waits_for_ever():
    await asyncio.get_running_loop().create_future()

async def main():
    async with asyncio.TaskGroup() as group:
        for n in range(3):
            group.create_task(waits_for_ever(), name=f"worker-{n}")
        await asyncio.sleep(0.01)
        print("ready", flush=True)

asyncio.run(main(), loop_factory=new_event_loop)
"""


@pytest.mark.skipif(sys.version_info < (3, 14), reason="new in Python 3.14")
@pytest.mark.parametrize("tool", ["ps", "pstree"])
def test_the_tools_for_another_process(kind, tool):
    with subprocess.Popen(
        [sys.executable, "-P", "-c", PROGRAM, kind], env=environment(), stdout=subprocess.PIPE, stdin=subprocess.DEVNULL
    ) as process:
        try:
            assert process.stdout.readline() == b"ready\n"
            done = subprocess.run(
                [sys.executable, "-P", "-m", "asyncio", tool, str(process.pid)],
                env=environment(),
                capture_output=True,
                text=True,
                timeout=60,
            )
        finally:
            process.kill()
    if done.returncode != 0 and any(word in done.stderr.lower() for word in ("permi", "root", "privilege", "sudo")):
        pytest.skip("this process may not look into another")
    assert done.returncode == 0, done.stderr
    for n in range(3):
        assert f"worker-{n}" in done.stdout
    assert "waits_for_ever" in done.stdout
    assert os.linesep in done.stdout
