"""The wakeup descriptor, and signals of children."""

import asyncio
import contextvars
import os
import signal
import sys

import pytest

from support.drive import LIMIT, cpu_below, eventually, in_thread, run, run_until_stopped, start_thread, turn
from support.signals import ME, USR1, USR2, Ours, dispositions, kill_when_parked  # noqa: F401

# ---- the wakeup descriptor


@pytest.mark.parametrize("end", ["stop", "error", "interrupt", "close"])
def test_a_users_wakeup_descriptor_is_back_after_a_run(loop, sockets, end):
    a, b = sockets.pair()
    signal.set_wakeup_fd(b.fileno())

    def leave():
        if end == "interrupt":
            raise KeyboardInterrupt
        loop.stop()

    async def fail():
        raise Ours

    try:
        if end == "error":
            with pytest.raises(Ours):
                loop.run_until_complete(fail())
        elif end == "interrupt":
            loop.call_soon(leave)
            with pytest.raises(KeyboardInterrupt):
                loop.run_forever()
        else:
            loop.call_soon(leave)
            loop.run_forever()
        if end == "close":
            loop.close()
    finally:
        found = signal.set_wakeup_fd(-1)
    assert found == b.fileno()


def test_a_users_wakeup_descriptor_hears_signals_during_a_run(loop, sockets, handled):
    """The byte of a signal that comes while the loop waits goes where the user said."""
    a, b = sockets.pair()
    handled(USR1, lambda *args: loop.call_soon_threadsafe(loop.stop))
    signal.set_wakeup_fd(b.fileno())
    try:
        kill_when_parked(loop, USR1)
        run_until_stopped(loop)
    finally:
        signal.set_wakeup_fd(-1)
    assert a.recv(10) == bytes([USR1])


def test_a_wakeup_descriptor_set_during_a_run_stays(loop, sockets):
    """What the program sets while the loop runs is in force afterwards."""
    a, b = sockets.pair()
    loop.call_soon(signal.set_wakeup_fd, b.fileno())
    turn(loop, 2)
    assert signal.set_wakeup_fd(-1) == b.fileno()


def test_the_context_of_a_handler_is_that_of_its_adding(loop):
    var, got = contextvars.ContextVar("var", default="none"), []

    def add():
        var.set("added")
        loop.add_signal_handler(USR1, lambda: (got.append(var.get()), loop.stop()))

    contextvars.copy_context().run(add)
    loop.call_soon(os.kill, ME, USR1)
    run_until_stopped(loop)
    assert got == ["added"]
    loop.remove_signal_handler(USR1)


def test_no_wakeup_descriptor_stays_after_a_run(loop):
    turn(loop)
    run(loop, asyncio.sleep(0.001))
    assert signal.set_wakeup_fd(-1) == -1


def test_a_run_in_another_thread_leaves_signals_alone(loop, sockets):
    a, b = sockets.pair()
    signal.set_wakeup_fd(b.fileno())
    try:
        in_thread(run, loop, asyncio.sleep(0.002))
    finally:
        found = signal.set_wakeup_fd(-1)
    assert found == b.fileno()


def test_ctrl_c_reaches_the_main_thread_beside_a_loop_in_another(new_loop):
    """With loops in other threads the main thread's own waiting is interrupted."""
    loop = new_loop()
    join = start_thread(loop.run_forever)
    main = new_loop()
    kill_when_parked(main)
    with pytest.raises(KeyboardInterrupt):
        main.run_forever()
    loop.call_soon_threadsafe(loop.stop)
    join()


def test_an_idle_loop_after_signals_sleeps(loop, handled):
    """The byte that a signal leaves does not keep the loop awake."""
    handled(USR1, lambda *args: None)
    loop.add_signal_handler(USR2, bool)
    for _ in range(5):
        os.kill(ME, USR1)
        os.kill(ME, USR2)
    turn(loop, 3)
    with cpu_below(0.1):
        run(loop, asyncio.sleep(0.3))
    loop.remove_signal_handler(USR2)


# ---- children


async def test_a_sigchld_handler_beside_subprocesses(loop):
    got = []
    loop.add_signal_handler(signal.SIGCHLD, got.append, 1)
    proc = await asyncio.create_subprocess_exec(sys.executable, "-c", "raise SystemExit(4)")
    assert await asyncio.wait_for(proc.wait(), LIMIT) == 4
    await eventually(lambda: got)
    assert loop.remove_signal_handler(signal.SIGCHLD) is True


async def test_running_changes_no_disposition(loop):
    def look():
        handlers = {s: signal.getsignal(s) for s in signal.valid_signals()}
        return handlers, signal.pthread_sigmask(signal.SIG_BLOCK, ())

    before = look()
    proc = await asyncio.create_subprocess_exec("true")
    await proc.wait()
    await loop.getaddrinfo("localhost", 80)
    await asyncio.sleep(0.001)
    assert look() == before
