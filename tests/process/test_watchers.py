"""Who watches a child: its pidfd; a program's own child watcher, where asyncio has such; a thread where nobody can."""

import asyncio
import contextlib
import contextvars
import errno
import os
import signal
import subprocess
import sys
import threading
import warnings
from asyncio import unix_events

import pytest

from support.children import PIPE, SLEEP, THREAD_TEXT, ChildNotes, has_children, spawn, wait_for_zombie
from support.drive import LIMIT, eventually, run, turns
from support.leaks import fds, handles

policies_have_watchers = pytest.mark.skipif(
    sys.version_info >= (3, 14), reason="policies have child watchers until 3.13"
)


@contextlib.contextmanager
def policy_of(make):
    """A policy in force, for the length of the body."""
    before = asyncio.events._event_loop_policy
    policy = make()
    asyncio.set_event_loop_policy(policy)
    try:
        yield policy
    finally:
        asyncio.events._event_loop_policy = before


@contextlib.contextmanager
def watcher_of(policy, make):
    """A child watcher in a policy, made without the warnings that it is deprecated."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        watcher = make()
        policy.set_child_watcher(watcher)
    try:
        yield watcher
    finally:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            policy.set_child_watcher(None)


def make_own_watcher(active=True):
    """A watcher written by a program: it counts, and polls in a thread of its own making."""

    class Own(asyncio.AbstractChildWatcher):
        def __init__(self):
            self.calls = []

        def add_child_handler(self, pid, callback, *args):
            self.calls.append(("add", pid))
            status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
            callback(pid, status, *args)

        def remove_child_handler(self, pid):
            return False

        def attach_loop(self, loop):
            pass

        def close(self):
            pass

        def is_active(self):
            self.calls.append("active?")
            return active

        def __enter__(self):
            self.calls.append("enter")
            return self

        def __exit__(self, *args):
            self.calls.append("exit")

    return Own()


# ---- a program's own watcher


@policies_have_watchers
def test_a_programs_own_watcher_is_used(loop):
    with policy_of(asyncio.DefaultEventLoopPolicy) as policy, watcher_of(policy, make_own_watcher) as own:
        transport, protocol = run(loop, spawn("sh", "-c", "exit 3"))
        run(loop, protocol.lost())
        assert transport.get_returncode() == 3
        assert own.calls == ["enter", "active?", ("add", transport.get_pid()), "exit"]


@policies_have_watchers
def test_a_watcher_that_is_not_active(loop):
    with (
        policy_of(asyncio.DefaultEventLoopPolicy) as policy,
        watcher_of(policy, lambda: make_own_watcher(False)) as own,
    ):
        with pytest.raises(RuntimeError, match="is not activated, subprocess support is not installed"):
            run(loop, spawn("true"))
        assert own.calls == ["enter", "active?", "exit"]
    assert not has_children()


@policies_have_watchers
@pytest.mark.parametrize(
    "name",
    ["SafeChildWatcher", "FastChildWatcher", "MultiLoopChildWatcher", "ThreadedChildWatcher", "PidfdChildWatcher"],
)
def test_asyncios_watchers_work(loop, name):
    if name == "PidfdChildWatcher" and not hasattr(os, "pidfd_open"):
        pytest.skip("no pidfds here")

    def make():
        watcher = getattr(asyncio, name)()
        watcher.attach_loop(loop)
        return watcher

    async def main():
        for n in range(3):
            proc = await asyncio.create_subprocess_exec("sh", "-c", f"exit {n}")
            assert await proc.wait() == n

    with policy_of(asyncio.DefaultEventLoopPolicy) as policy, watcher_of(policy, make):
        run(loop, main())
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            policy._watcher.close()


@policies_have_watchers
def test_a_policy_that_gives_another_watcher(loop):
    own = None

    class Policy(asyncio.DefaultEventLoopPolicy):
        def get_child_watcher(self):
            return own

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        own = make_own_watcher()
    with policy_of(Policy):
        transport, protocol = run(loop, spawn("true"))
        run(loop, protocol.lost())
    assert ("add", transport.get_pid()) in own.calls


@policies_have_watchers
@pytest.mark.uvpy_only("asyncio makes it")
def test_the_default_watcher_is_not_made(loop):
    with policy_of(asyncio.DefaultEventLoopPolicy) as policy:
        _, protocol = run(loop, spawn("true"))
        run(loop, protocol.lost())
        assert policy._watcher is None


@policies_have_watchers
@pytest.mark.uvpy_only("asyncio raises NotImplementedError")
def test_a_policy_without_watchers(loop):
    class Policy(asyncio.events.BaseDefaultEventLoopPolicy):
        _loop_factory = type(loop)

    with policy_of(Policy):
        _, protocol = run(loop, spawn("true"))
        run(loop, protocol.lost())


@policies_have_watchers
@pytest.mark.uvpy_only("asyncio has a thread for each child on 3.11")
def test_the_default_watcher_made_by_somebody_else(loop):
    """As asyncio's own loop does that spawned before in the same process."""
    with policy_of(asyncio.DefaultEventLoopPolicy) as policy:
        policy._init_watcher()
        threads = threading.active_count()
        transport, protocol = run(loop, spawn(*SLEEP))
        assert threading.active_count() == threads
        assert any(row["kind"] == "process" for row in loop._debug_handles())
        transport.kill()
        run(loop, protocol.lost())


@pytest.mark.skipif(sys.version_info < (3, 14), reason="loops have child watchers from 3.14 on")
async def test_a_watcher_put_in_the_loop(loop):
    class Own:
        def __init__(self):
            self.pids = []

        def add_child_handler(self, pid, callback, *args):
            self.pids.append(pid)
            callback(pid, os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), *args)

    assert type(loop._watcher) is unix_events._PidfdChildWatcher
    loop._watcher = Own()
    transport, protocol = await spawn("sh", "-c", "exit 3")
    await protocol.lost()
    assert (transport.get_returncode(), loop._watcher.pids) == (3, [transport.get_pid()])


# ---- no pidfd

CODES = [errno.ENOSYS, errno.EPERM, errno.EMFILE, errno.EINVAL]


@pytest.fixture(params=[*CODES, "missing", "can_use_pidfd"], ids=[*map(errno.errorcode.get, CODES), "missing", "told"])
def no_pidfd(request, monkeypatch):
    """A system without pidfds, or where they may not be used."""

    def refuse(*args):
        raise OSError(request.param, os.strerror(request.param))

    if request.param == "can_use_pidfd":
        if not hasattr(unix_events, "can_use_pidfd") or sys.version_info >= (3, 14):
            pytest.skip("asyncio asks no such thing when it spawns")
        monkeypatch.setattr(unix_events, "can_use_pidfd", lambda: False)
    elif request.param == "missing":
        monkeypatch.delattr(os, "pidfd_open")
    else:
        monkeypatch.setattr(os, "pidfd_open", refuse)


pytest_no_pidfd = pytest.mark.uvpy_only("asyncio decides it once, when the watcher is made")


@pytest_no_pidfd
async def test_a_thread_waits_where_there_is_no_pidfd(loop, no_pidfd):
    before = fds()
    for n in (0, 3, 255):
        transport, protocol = await spawn("sh", "-c", f"exit {n}")
        await protocol.lost()
        assert (transport.get_returncode(), protocol.events) == (n, ["made", "exited", "lost"])
    transport, protocol = await spawn(*SLEEP, stdout=PIPE)
    assert f"uvpy-child-{transport.get_pid()}" in {thread.name for thread in threading.enumerate()}
    transport.kill()
    await protocol.lost()
    assert transport.get_returncode() == -signal.SIGKILL
    await eventually(lambda: fds() == before)
    assert not has_children()


@pytest.fixture
def pidfd_forbidden(monkeypatch):
    def refuse(*args):
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))

    monkeypatch.setattr(os, "pidfd_open", refuse)


def the_thread(transport):
    (thread,) = [t for t in threading.enumerate() if t.name == f"uvpy-child-{transport.get_pid()}"]
    return thread


@pytest_no_pidfd
async def test_the_thread_leaves_the_reaping_to_the_loop(loop, pidfd_forbidden):
    """Until the end is told the child's number is its own: a signal cannot hit a stranger."""
    transport, protocol = await spawn("sh", "-c", "read x; exit 3", stdin=PIPE)
    thread = the_thread(transport)
    transport.get_pipe_transport(0).write(b"\n")
    thread.join(LIMIT)
    assert not thread.is_alive()
    assert os.waitid(os.P_PID, transport.get_pid(), os.WEXITED | os.WNOWAIT).si_status == 3
    transport.kill()
    assert transport.get_returncode() is None
    await protocol.lost()
    assert transport.get_returncode() == 3


@pytest_no_pidfd
async def test_reaped_elsewhere_while_a_thread_waits(loop, log, pidfd_forbidden):
    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        transport, protocol = await spawn("cat", stdin=PIPE)
        transport.get_pipe_transport(0).close()
        await protocol.lost()
    finally:
        signal.signal(signal.SIGCHLD, before)
    assert transport.get_returncode() == 255
    assert [record.getMessage() for record in log.take()] == [THREAD_TEXT.format(transport.get_pid())]


@pytest_no_pidfd
async def test_a_thread_tells_in_the_context_of_the_spawning(loop, pidfd_forbidden):
    var = contextvars.ContextVar("var", default="none")
    seen = []

    class Notes(ChildNotes):
        def process_exited(self):
            seen.append(var.get())
            super().process_exited()

    var.set("spawning")
    _, protocol = await spawn("true", protocol=Notes)
    await protocol.lost()
    assert seen == ["spawning"]


@pytest_no_pidfd
async def test_close_while_a_thread_waits(loop, pidfd_forbidden):
    transport, protocol = await spawn(*SLEEP)
    transport.close()
    await protocol.lost()
    transport, protocol = await spawn("sh", "-c", "exit 3")
    wait_for_zombie(transport.get_pid())
    transport.close()
    await protocol.lost()
    assert transport.get_returncode() == 3


@pytest_no_pidfd
def test_the_loop_is_closed_while_a_thread_waits(loop, log, pidfd_forbidden):
    """The thread reaps, and asyncio's log has a line."""
    transport, protocol = run(loop, spawn(*SLEEP))
    thread = the_thread(transport)
    loop.close()
    os.kill(transport.get_pid(), signal.SIGKILL)
    thread.join(LIMIT)
    assert not has_children()
    (record,) = log.take()
    assert record.getMessage() == f"Loop {loop!r} that handles pid {transport.get_pid()} is closed"
    transport.close()


@pytest_no_pidfd
async def test_no_thread_to_be_had_either(loop, monkeypatch, pidfd_forbidden):
    """The loop asks for the child again and again."""

    def refuse(self):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    transport, protocol = await spawn(*SLEEP)
    await turns(3)
    transport.kill()
    await protocol.lost()
    assert (transport.get_returncode(), protocol.events) == (-signal.SIGKILL, ["made", "exited", "lost"])
    assert not has_children()


@pytest_no_pidfd
async def test_the_child_is_gone_before_it_can_be_watched(loop, log, monkeypatch):
    def gone(pid):
        os.waitpid(pid, 0)
        raise ProcessLookupError(errno.ESRCH, os.strerror(errno.ESRCH))

    monkeypatch.setattr(os, "pidfd_open", gone)
    transport, protocol = await spawn("true")
    await protocol.lost()
    assert transport.get_returncode() == 255
    assert len(log.take()) == 1


@pytest_no_pidfd
async def test_a_pidfd_that_cannot_be_watched(loop, monkeypatch, tmp_path):
    """One that the kernel does not let us poll: a thread waits."""
    (tmp_path / "plain").write_text("")
    monkeypatch.setattr(os, "pidfd_open", lambda pid: os.open(tmp_path / "plain", os.O_RDONLY))
    transport, protocol = await spawn("sh", "-c", "exit 3")
    await protocol.lost()
    assert transport.get_returncode() == 3


@pytest_no_pidfd
async def test_pidfd_open_fails_in_an_unheard_of_way(loop, monkeypatch):
    def fail(pid):
        raise ZeroDivisionError

    monkeypatch.setattr(os, "pidfd_open", fail)
    transport, protocol = await spawn("sh", "-c", "exit 3")
    await protocol.lost()
    assert transport.get_returncode() == 3


@pytest_no_pidfd
async def test_what_ends_a_program_goes_through(loop, monkeypatch):
    """Raised where the child is watched: it is ended, and the loop watches nothing."""

    def fail(pid):
        raise KeyboardInterrupt("mine")

    monkeypatch.setattr(os, "pidfd_open", fail)
    popens = []
    monkeypatch.setattr(
        subprocess, "Popen", lambda *a, _make=subprocess.Popen, **k: popens.append(_make(*a, **k)) or popens[0]
    )
    task = loop.create_task(_raises_interrupt(spawn(*SLEEP)))
    assert await task == "mine"
    monkeypatch.undo()  # from 3.15 on Popen.wait() takes a pidfd too
    assert popens[0].wait(LIMIT) == -signal.SIGKILL
    assert not handles(loop)


async def _raises_interrupt(coro):
    try:
        await coro
    except KeyboardInterrupt as exc:
        return exc.args[0]


@pytest_no_pidfd
async def test_a_pidfd_closed_by_somebody_else(loop):
    """Its number is a stranger's then, who keeps it; the child's end is not heard of, as on asyncio's loop."""
    transport, protocol = await spawn(*SLEEP)
    (row,) = [row for row in loop._debug_handles() if row["kind"] == "process"]
    os.close(row["fd"])
    r, w = os.pipe()
    os.dup2(r, row["fd"])
    transport.kill()
    wait_for_zombie(transport.get_pid())
    await turns(3)
    transport.close()
    from uvpy import _core

    (process,) = _core.children(loop)
    process._noticed()
    await protocol.lost()
    assert transport.get_returncode() == -signal.SIGKILL
    os.fstat(row["fd"])
    for fd in {r, w, row["fd"]}:
        os.close(fd)
