"""The end of a child: its status, who hears of it and when, signals around it, and who may reap it."""

import asyncio
import contextvars
import gc
import logging
import os
import pathlib
import signal
import subprocess
import sys
import threading
import time
import weakref

import pytest

from support.children import PIPE, SLEEP, UNKNOWN_TEXT, ChildNotes, has_children, spawn, wait_for_zombie
from support.drive import LIMIT, eventually, run, turns
from support.leaks import fds

# ---- statuses


@pytest.mark.parametrize("code", [0, 1, 127, 255])
async def test_exit_statuses(loop, code):
    proc = await asyncio.create_subprocess_exec("sh", "-c", f"read line; exit {code}", stdin=PIPE)
    assert proc.returncode is None
    proc.stdin.close()
    assert await proc.wait() == code
    assert proc.returncode == code


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL, signal.SIGABRT, signal.SIGUSR1, signal.SIGRTMIN])
async def test_ends_by_a_signal(loop, number):
    transport, protocol = await spawn(*SLEEP)
    transport.send_signal(number)
    await protocol.lost()
    assert transport.get_returncode() == -number
    assert transport.get_extra_info("subprocess") is None or transport.get_returncode() == -number


async def test_a_stopped_child_has_not_exited(loop):
    transport, protocol = await spawn(*SLEEP)
    transport.send_signal(signal.SIGSTOP)
    os.waitid(os.P_PID, transport.get_pid(), os.WSTOPPED)
    await asyncio.sleep(0.02)
    assert (transport.get_returncode(), protocol.events) == (None, ["made"])
    transport.send_signal(signal.SIGCONT)
    transport.terminate()
    await protocol.lost()
    assert transport.get_returncode() == -signal.SIGTERM


async def test_wait_from_several_tasks(loop):
    proc = await asyncio.create_subprocess_exec("cat", stdin=PIPE)
    waiting = [loop.create_task(proc.wait()) for _ in range(5)]
    await turns(3)
    waiting[2].cancel()
    await turns(3)
    proc.stdin.close()
    results = await asyncio.gather(*waiting, return_exceptions=True)
    assert results[:2] + results[3:] == [0] * 4
    assert isinstance(results[2], asyncio.CancelledError)
    assert await proc.wait() == 0


async def test_hundreds_of_children_at_once(loop):
    async def one(number):
        proc = await asyncio.create_subprocess_exec("sh", "-c", f"exit {number}")
        return await proc.wait()

    before = fds()
    assert await asyncio.gather(*(one(n) for n in range(200))) == list(range(200))
    await eventually(lambda: fds() == before)
    await eventually(lambda: not has_children())


@pytest.mark.uvpy_only("asyncio has a thread for each child on 3.11")
async def test_no_thread_and_no_signal_handler(loop):
    handler = signal.getsignal(signal.SIGCHLD)
    threads = threading.enumerate()
    made = [await spawn(*SLEEP) for _ in range(5)]
    assert threading.enumerate() == threads
    assert signal.getsignal(signal.SIGCHLD) is handler
    rows = [row for row in loop._debug_handles() if row["kind"] == "process"]
    assert {row["pid"] for row in rows} == {transport.get_pid() for transport, _ in made}
    assert all(row["state"] == "running" and "pidfd" in os.readlink(f"/proc/self/fd/{row['fd']}") for row in rows)
    for transport, protocol in made:
        transport.kill()
        await protocol.lost()
    assert [row for row in loop._debug_handles() if row["kind"] == "process"] == []


# ---- the order of events


@pytest.mark.parametrize("busy", [False, True], ids=["alone", "behind other callbacks"])
async def test_the_last_words_come_before_the_end(loop, busy):
    """All that a child wrote is handed on before process_exited(), also when one poll finds everything."""
    for _ in range(10):
        script = "read x; echo out; echo err >&2"
        transport, protocol = await spawn("sh", "-c", script, stdin=PIPE, stdout=PIPE, stderr=PIPE)
        transport.get_pipe_transport(0).write(b"\n")
        wait_for_zombie(transport.get_pid())
        if busy:
            for _ in range(3):
                loop.call_soon(lambda: loop.call_soon(int))
        await protocol.lost()
        assert protocol.out == {1: b"out\n", 2: b"err\n"}
        assert protocol.events[0] == "made"
        assert protocol.events[-1] == "lost"
        at = protocol.events.index("exited")
        assert sorted(e for e in protocol.events[1:at] if e[0] == "data") == [("data", 1), ("data", 2)], protocol.events
        assert protocol.events.count("exited") == protocol.events.count("lost") == 1


async def test_a_grandchild_keeps_the_pipe_open(loop):
    """The child's end is told at once, the connection's only when the pipe has ended too."""
    transport, protocol = await spawn("sh", "-c", "sleep 60 & echo $!", stdout=PIPE, start_new_session=True)
    await protocol.has("exited")
    assert transport.get_returncode() == 0
    await turns(20)
    assert "lost" not in protocol.events
    os.kill(int(protocol.out[1]), signal.SIGKILL)
    await protocol.lost()
    assert protocol.events[-2:] == [("pipe lost", 1), "lost"]


def test_a_child_that_exits_between_two_runs(loop):
    transport, protocol = run(loop, spawn("true"))
    wait_for_zombie(transport.get_pid())
    run(loop, protocol.lost())
    assert transport.get_returncode() == 0


@pytest.mark.asyncio_gap("a thread tells in an empty context", since=(3, 11), until=(3, 12))
async def test_the_end_is_told_in_the_context_of_the_spawning(loop):
    var = contextvars.ContextVar("var", default="none")
    seen = []

    class Notes(ChildNotes):
        def process_exited(self):
            seen.append(var.get())
            super().process_exited()

    var.set("spawning")
    _, protocol = await spawn("true", protocol=Notes)
    var.set("later")
    await protocol.lost()
    assert seen == ["spawning"]


async def test_nobody_holds_the_transport_of_a_running_child(loop, tmp_path):
    """The loop does: the protocol hears of the end though nobody else has the transport."""

    class Notes(ChildNotes):
        def connection_made(self, transport):
            self._note("made")

        def process_exited(self):
            self.transport = seen()
            super().process_exited()

    os.mkfifo(tmp_path / "fifo")
    transport, protocol = await spawn("sh", "-c", "read x <fifo", cwd=tmp_path, protocol=Notes)
    seen = weakref.ref(transport)
    del transport
    gc.collect()
    os.close(os.open(tmp_path / "fifo", os.O_WRONLY))
    await protocol.lost()
    assert protocol.events == ["made", "exited", "lost"]


# ---- user code that fails


async def test_process_exited_raises(loop, errors):
    class Notes(ChildNotes):
        def process_exited(self):
            super().process_exited()
            raise ValueError("mine")

    transport, protocol = await spawn("sh", "-c", "exit 4", protocol=Notes)
    await protocol.lost()
    assert transport.get_returncode() == 4
    assert [str(context["exception"]) for context in errors.take()] == ["mine"]


@pytest.mark.parametrize("exception", [KeyboardInterrupt, SystemExit])
def test_process_exited_ends_the_run(loop, exception):
    class Notes(ChildNotes):
        def process_exited(self):
            super().process_exited()
            raise exception("mine")

    transport, protocol = run(loop, spawn("cat", stdin=PIPE, protocol=Notes))
    transport.get_pipe_transport(0).close()
    with pytest.raises(exception, match="mine"):
        run(loop, asyncio.sleep(LIMIT))
    for task in asyncio.all_tasks(loop):
        task.cancel()
    run(loop, protocol.lost())
    assert transport.get_returncode() == 0


# ---- signals around the end


@pytest.mark.asyncio_gap("Popen.send_signal() may take the status away", until=(3, 13))
@pytest.mark.parametrize("send", ["kill", "terminate", "send_signal"])
async def test_a_signal_to_a_child_that_has_just_exited(loop, send):
    """It does nothing, and the status is the child's own; when its end has been told, there is no process."""
    transport, protocol = await spawn("sh", "-c", "exit 3")
    wait_for_zombie(transport.get_pid())
    args = [signal.SIGTERM] if send == "send_signal" else []
    getattr(transport, send)(*args)
    await protocol.lost()
    assert transport.get_returncode() == 3
    with pytest.raises(ProcessLookupError):
        getattr(transport, send)(*args)


async def test_a_signal_from_process_exited_hits_nobody(loop):
    class Notes(ChildNotes):
        def process_exited(self):
            self.transport.kill()
            super().process_exited()

    transport, protocol = await spawn("true", protocol=Notes)
    await protocol.lost()
    assert transport.get_returncode() == 0


@pytest.mark.parametrize(
    ("number", "error"),
    [("KILL", TypeError), (9.0, TypeError), (None, TypeError), (12345, OSError), (1 << 70, OverflowError)],
)
async def test_what_is_no_signal(loop, number, error):
    transport, protocol = await spawn(*SLEEP)
    with pytest.raises(error):
        transport.send_signal(number)
    transport.send_signal(0)
    transport.kill()
    await protocol.lost()


@pytest.mark.uvpy_only("asyncio kills the stranger")
async def test_a_number_that_is_a_strangers_by_now(loop, log):
    """Reaped elsewhere, and its number taken by another child: that one is neither signalled nor reaped."""
    last = pathlib.Path("/proc/sys/kernel/ns_last_pid")
    if not os.access(last, os.W_OK):
        pytest.skip("only root can choose the next number")
    transport, protocol = await spawn(*SLEEP)
    pid = transport.get_pid()
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    for _ in range(200):
        try:
            last.write_text(str(pid - 1))
        except OSError:
            pytest.skip("only root can choose the next number")
        stranger = subprocess.Popen(SLEEP)
        if stranger.pid == pid:
            break
        stranger.kill()
        stranger.wait()
    else:
        pytest.skip("somebody else gets all the numbers")
    transport.kill()
    await protocol.lost()
    assert transport.get_returncode() == 255
    assert [record.getMessage() for record in log.take()] == [UNKNOWN_TEXT.format(pid)]
    assert stranger.poll() is None
    stranger.kill()
    assert stranger.wait() == -signal.SIGKILL


# ---- reaped elsewhere


def _ignoring_sigchld(test):
    async def ignoring(*args, **kwargs):
        before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
        try:
            await test(*args, **kwargs)
        finally:
            signal.signal(signal.SIGCHLD, before)

    return ignoring


async def test_sigchld_ignored(loop, log):
    """The kernel reaps: status 255 and a warning."""

    @_ignoring_sigchld
    async def one():
        transport, protocol = await spawn("cat", stdin=PIPE)
        transport.get_pipe_transport(0).close()
        await protocol.lost()
        assert transport.get_returncode() == 255
        assert [record.getMessage() for record in log.take()] == [UNKNOWN_TEXT.format(transport.get_pid())]

    await one()


@pytest.mark.asyncio_gap("a thread of asyncio's waits already", since=(3, 11), until=(3, 12))
async def test_reaped_by_the_program(loop, log):
    transport, protocol = await spawn(*SLEEP)
    os.kill(transport.get_pid(), signal.SIGKILL)
    os.waitpid(transport.get_pid(), 0)
    await protocol.lost()
    assert transport.get_returncode() == 255
    (record,) = log.take()
    assert (record.getMessage(), record.levelno) == (UNKNOWN_TEXT.format(transport.get_pid()), logging.WARNING)


@pytest.mark.asyncio_gap("a thread of asyncio's waits already", since=(3, 11), until=(3, 12))
async def test_reaped_through_the_popen_object(loop, log):
    """On 3.11 the status is known, as it is where asyncio's thread was first; later that counts as elsewhere."""
    transport, protocol = await spawn(*SLEEP)
    popen = transport.get_extra_info("subprocess")
    popen.kill()
    assert popen.wait() == -signal.SIGKILL
    await protocol.lost()
    if sys.version_info < (3, 12):
        assert transport.get_returncode() == -signal.SIGKILL
    else:
        assert transport.get_returncode() == 255
        assert [record.getMessage() for record in log.take()] == [UNKNOWN_TEXT.format(transport.get_pid())]


async def test_other_children_are_left_alone(loop):
    mine = [subprocess.Popen(["sh", "-c", f"exit {n}"]) for n in (3, 4)]
    for _ in range(2):
        _, protocol = await spawn("true")
        await protocol.lost()
    assert [proc.wait() for proc in mine] == [3, 4]


# ---- closing


async def test_close_kills_and_reaps(loop):
    transport, protocol = await spawn(*SLEEP, stdout=PIPE)
    pid = transport.get_pid()
    transport.close()
    assert transport.is_closing()
    transport.close()
    await protocol.lost()
    assert (transport.get_returncode(), protocol.events[-1]) == (-signal.SIGKILL, "lost")
    assert sorted(protocol.events[1:-1], key=str) == [("pipe lost", 1), "exited"]
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


@pytest.mark.uvpy_only("asyncio's close() takes the status of a child whose end is not told yet, and reports 255")
async def test_close_of_a_child_that_has_just_exited(loop):
    transport, protocol = await spawn("sh", "-c", "exit 3")
    wait_for_zombie(transport.get_pid())
    popen = transport.get_extra_info("subprocess")
    transport.close()
    assert (popen.returncode, transport.get_returncode()) == (3, None)
    transport.kill()
    await protocol.lost()
    assert (transport.get_returncode(), protocol.events) == (3, ["made", "exited", "lost"])


async def test_debug_mode_tells(loop, caplog, log):
    loop.set_debug(True)
    caplog.set_level(logging.DEBUG, "asyncio")
    transport, protocol = await spawn("true")
    pid = transport.get_pid()
    await protocol.lost()
    texts = [record.getMessage() for record in caplog.records]
    assert f"process 'true' created: pid {pid}" in texts
    assert any(f"pid={pid}" in text and text.endswith("exited with return code 0") for text in texts)
    assert (f"process {pid} exited with returncode 0" in texts) is (sys.version_info < (3, 12))
    transport, protocol = await spawn(*SLEEP)
    transport.close()
    (record,) = log.take()
    assert record.getMessage().startswith("Close running child process: kill <")
    await protocol.lost()
    loop.set_debug(False)


@pytest.mark.uvpy_only("a detail of the native object")
async def test_a_child_that_is_noticed_too_early(loop):
    """One that is traced is its tracer's first: it cannot be reaped yet, and is asked for again."""
    from uvpy import _core

    transport, protocol = await spawn("sh", "-c", "read x; exit 3", stdin=PIPE)
    (process,) = _core.children(loop)
    assert process.pid == transport.get_pid()
    process._exited()
    process.poll()
    begin = time.monotonic()
    await turns(3)
    assert protocol.events == ["made"]
    transport.get_pipe_transport(0).close()
    await protocol.lost()
    assert transport.get_returncode() == 3
    assert time.monotonic() - begin < LIMIT
    process._exited()
    process._noticed()
    process.poll()
    process.send_signal(signal.SIGKILL)
    await turns(5)
    assert protocol.events.count("exited") == 1
