"""Children that outlive their loop."""

import gc
import os
import signal
import subprocess
import sys
import threading
import warnings
import weakref

import pytest

from support.children import PIPE, SLEEP, has_children, spawn, wait_for_zombie
from support.drive import LIMIT, run, start_thread
from support.leaks import fds

by_thread = pytest.mark.skipif(sys.version_info >= (3, 12), reason="up to 3.11 asyncio's threads outlive the loop")
by_pidfd = pytest.mark.skipif(sys.version_info < (3, 12), reason="up to 3.11 asyncio's threads outlive the loop")


def is_alive(pid):
    return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT | os.WNOHANG) is None


def reaped_by_threads():
    """Wait for the threads that wait for children; whether they have reaped all."""
    for thread in threading.enumerate():
        if "waitpid" in thread.name or "child" in thread.name:
            thread.join(LIMIT)
    return not has_children()


@by_thread
def test_a_child_left_behind_is_waited_for(loop, log):
    """It lives on though nobody has its transport, and is reaped when it exits."""
    transport, protocol = run(loop, spawn(*SLEEP))
    pid = transport.get_pid()
    seen = weakref.ref(transport)
    loop.close()
    del transport, protocol.transport
    gc.collect()
    assert is_alive(pid)
    assert seen() is not None
    os.kill(pid, signal.SIGKILL)
    seen_by_thread = seen()
    assert reaped_by_threads()
    texts = [record.getMessage() for record in log.take()]
    assert texts == [f"Loop {loop!r} that handles pid {pid} is closed"]
    seen_by_thread.close()


@by_pidfd
@pytest.mark.uvpy_only("asyncio leaves the pidfd open")
def test_a_child_left_behind_ends_with_its_transport(loop):
    """Not with the loop: when the transport is collected, which warns."""
    transport, protocol = run(loop, spawn(*SLEEP))
    pid = transport.get_pid()
    popen = transport.get_extra_info("subprocess")
    loop.close()
    assert is_alive(pid)
    del protocol.transport
    with pytest.warns(ResourceWarning, match="unclosed transport"):
        del transport
        gc.collect()
    assert popen.wait(LIMIT) == -signal.SIGKILL
    assert not has_children()


@pytest.mark.uvpy_only("asyncio's loop leaves the pidfd open, or has a thread")
def test_closing_the_loop_closes_the_pidfds(loop, log):
    before = fds()
    made = [run(loop, spawn(*SLEEP))[0] for _ in range(3)]
    loop.close()
    assert [what for fd, what in fds().items() if "pidfd" in what and before.get(fd) != what] == []
    for transport in made:
        os.kill(transport.get_pid(), signal.SIGKILL)
        if sys.version_info >= (3, 12):
            wait_for_zombie(transport.get_pid())
    assert sys.version_info >= (3, 12) or reaped_by_threads()
    for transport in made:
        transport.close()
    assert not has_children()
    assert len(log.take()) == (3 if sys.version_info < (3, 12) else 0)


@by_pidfd
@pytest.mark.uvpy_only("asyncio leaves the pidfd open")
@pytest.mark.parametrize("known", [True, False], ids=["exited", "running"])
def test_close_after_the_loops_end(loop, known):
    transport, protocol = run(loop, spawn("sh", "-c", "exit 3") if known else spawn(*SLEEP))
    if known:
        wait_for_zombie(transport.get_pid())
    loop.close()
    popen = transport.get_extra_info("subprocess")
    transport.close()
    assert popen.wait(LIMIT) == (3 if known else -signal.SIGKILL)
    assert not has_children()


@pytest.mark.asyncio_gap("its thread and Popen.poll() both reap", since=(3, 11), until=(3, 12))
def test_a_loop_closed_with_the_end_already_noticed(loop):
    """The handle that would tell it never runs."""
    transport, protocol = run(loop, spawn(*SLEEP))
    popen = transport.get_extra_info("subprocess")
    transport.kill()
    wait_for_zombie(transport.get_pid())
    loop.call_soon(loop.stop)
    loop.run_forever()
    loop.close()
    transport.close()
    popen.wait(LIMIT)
    assert not has_children()


@pytest.mark.uvpy_only("asyncio leaves the pidfd open, and before gh-114177 (3.13.1) cannot close the pipes")
def test_pipes_of_a_child_left_behind(loop, log):
    """The transport does not try to close them on a loop that is closed: nothing is raised in a finalizer."""
    transport, protocol = run(loop, spawn(*SLEEP, stdin=PIPE, stdout=PIPE))
    pipes = [transport.get_pipe_transport(fd) for fd in (0, 1)]
    popen = transport.get_extra_info("subprocess")
    os.kill(transport.get_pid(), signal.SIGKILL)
    wait_for_zombie(transport.get_pid())
    loop.close()
    transport.close()
    assert sys.version_info >= (3, 12) or reaped_by_threads()
    popen.wait(LIMIT)
    assert transport.get_pipe_transport(0) is pipes[0]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)  # the pipes are closed by being collected, which they say
        del pipes, transport, protocol, popen
        gc.collect()
    log.take()


def test_the_loop_of_another_thread_is_closed(new_loop):
    """A loop that was made, run and closed in a thread leaves its child to that."""

    def work():
        loop = new_loop()
        transport, protocol = run(loop, spawn("cat", stdin=PIPE))
        transport.get_pipe_transport(0).close()
        run(loop, protocol.lost())
        loop.close()
        return transport.get_returncode()

    assert start_thread(work)() == 0
    assert not has_children()


def test_popen_objects_of_the_program_go_on(loop):
    mine = subprocess.Popen(["sh", "-c", "exit 5"])
    transport, protocol = run(loop, spawn("true"))
    run(loop, protocol.lost())
    loop.close()
    assert mine.wait(LIMIT) == 5
