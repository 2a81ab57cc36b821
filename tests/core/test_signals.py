"""Signals, Ctrl-C while the loop is parked, and the wakeup descriptor."""

import asyncio
import contextlib
import os
import select
import signal
import threading
import time

import pytest

from support.drive import LIMIT, in_thread, run, run_until_stopped, start_thread, turn
from support.signals import ME, USR1, USR2, Ours, dispositions, kill_when_parked  # noqa: F401

# ---- handlers of the loop


def test_a_handler_runs_in_the_loop_with_its_arguments(loop):
    got = []

    def handler(*args):
        got.append((args, threading.get_ident(), asyncio.get_running_loop() is loop))
        loop.stop()

    assert loop.add_signal_handler(USR1, handler, 1, "x") is None
    kill_when_parked(loop, USR1)
    run_until_stopped(loop)
    assert got == [((1, "x"), threading.get_ident(), True)]
    assert loop.remove_signal_handler(USR1) is True


def test_a_handler_runs_as_a_callback_of_the_loop(loop):
    """Not inside whatever was running when the signal came."""
    got = []
    loop.add_signal_handler(USR1, got.append, "signal")

    def work():
        os.kill(ME, USR1)
        for _ in range(1000):
            got.append  # noqa: B018 - Python looks for signals here
        got.append("work ends")

    loop.call_soon(work)
    turn(loop, 3)
    assert got == ["work ends", "signal"]
    loop.remove_signal_handler(USR1)


def test_signals_of_several_kinds_each_reach_their_handler(loop):
    got = []
    for signum in (USR1, USR2, signal.SIGTERM):
        loop.add_signal_handler(signum, got.append, signum)
    for signum in (USR2, signal.SIGTERM, USR1):
        loop.call_soon(os.kill, ME, signum)
    loop.call_later(0.05, loop.stop)
    run_until_stopped(loop)
    assert sorted(got) == sorted((USR1, USR2, signal.SIGTERM))
    for signum in (USR1, USR2, signal.SIGTERM):
        assert loop.remove_signal_handler(signum) is True


def test_a_signal_between_two_runs_is_kept(loop):
    got = []
    loop.add_signal_handler(USR1, got.append, 1)
    os.kill(ME, USR1)
    turn(loop, 3)
    os.kill(ME, USR1)
    turn(loop, 3)
    assert got == [1, 1]
    loop.remove_signal_handler(USR1)


def test_a_signal_during_a_blocking_callback_is_kept(loop):
    got = []
    loop.add_signal_handler(USR1, got.append, 1)

    def block():
        os.kill(ME, USR1)
        time.sleep(0.02)

    loop.call_soon(block)
    turn(loop, 3)
    assert got == [1]
    loop.remove_signal_handler(USR1)


@pytest.mark.uvpy_only("asyncio reads the kinds from a socket that is full after some 278 signals")
def test_a_flood_of_signals_drowns_no_other_kind(loop):
    """Hundreds of one kind while the loop is busy, then one of another kind: both handlers run."""
    got = {USR1: 0, USR2: 0}

    def note(signum):
        got[signum] += 1

    for signum in got:
        loop.add_signal_handler(signum, note, signum)

    def flood():
        for _ in range(2000):
            os.kill(ME, USR1)
        os.kill(ME, USR2)

    loop.call_soon(flood)
    turn(loop, 4)
    assert got[USR1] >= 1
    assert got[USR2] == 1
    for signum in got:
        loop.remove_signal_handler(signum)


def test_a_second_handler_replaces_the_first(loop):
    got = []
    loop.add_signal_handler(USR1, got.append, 1)
    loop.add_signal_handler(USR1, got.append, 2)
    loop.call_soon(os.kill, ME, USR1)
    turn(loop, 3)
    assert got == [2]
    assert loop.remove_signal_handler(USR1) is True
    assert loop.remove_signal_handler(USR1) is False


def test_a_handler_may_remove_itself_and_add_another(loop):
    got = []

    def first():
        got.append(1)
        loop.remove_signal_handler(USR1)
        loop.add_signal_handler(USR1, lambda: (got.append(2), loop.stop()))
        loop.call_soon(os.kill, ME, USR1)

    loop.add_signal_handler(USR1, first)
    loop.call_soon(os.kill, ME, USR1)
    run_until_stopped(loop)
    assert got == [1, 2]
    loop.remove_signal_handler(USR1)


def test_removing_restores_the_default(loop):
    loop.add_signal_handler(USR1, print)
    loop.add_signal_handler(signal.SIGINT, print)
    turn(loop)
    assert loop.remove_signal_handler(USR1) is True
    assert signal.getsignal(USR1) is signal.SIG_DFL
    loop.call_soon(loop.remove_signal_handler, signal.SIGINT)
    turn(loop)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_failing_handler_is_reported_and_stays(loop, errors):
    got = []

    def bad():
        got.append(1)
        raise KeyError("x")

    loop.add_signal_handler(USR1, bad)
    for _ in range(2):
        loop.call_soon(os.kill, ME, USR1)
        turn(loop, 3)
    assert got == [1, 1]
    assert [type(c["exception"]) for c in errors.take()] == [KeyError] * 2
    loop.remove_signal_handler(USR1)


def test_an_interrupt_in_a_handler_leaves_the_run(loop):
    def bad():
        raise KeyboardInterrupt("from the handler")

    loop.add_signal_handler(USR1, bad)
    kill_when_parked(loop, USR1)
    with pytest.raises(KeyboardInterrupt, match="from the handler"):
        run_until_stopped(loop)
    loop.remove_signal_handler(USR1)
    turn(loop)


def test_arguments_of_add_signal_handler(loop):
    async def coro():
        pass

    for signum in (signal.SIGKILL, signal.SIGSTOP):
        with pytest.raises(RuntimeError, match="cannot be caught"):
            loop.add_signal_handler(signum, print)
    for number in (0, -1, 1000, 65):
        with pytest.raises(ValueError):
            loop.add_signal_handler(number, print)
        with pytest.raises(ValueError):
            loop.remove_signal_handler(number)
    for wrong in ("SIGUSR1", None, 1.5):
        with pytest.raises(TypeError):
            loop.add_signal_handler(wrong, print)
        with pytest.raises(TypeError):
            loop.remove_signal_handler(wrong)
    made = coro()
    for wrong in (coro, made):
        with pytest.raises(TypeError, match="coroutine"):
            loop.add_signal_handler(USR1, wrong)
    made.close()
    assert signal.getsignal(USR1) is signal.SIG_DFL


def test_only_the_main_thread_may_add_handlers(loop):
    with pytest.raises((RuntimeError, ValueError)):
        in_thread(loop.add_signal_handler, USR1, print)
    assert signal.getsignal(USR1) is signal.SIG_DFL


# ---- plain handlers and Ctrl-C


def test_a_plain_handler_runs_while_the_loop_is_parked(loop, handled):
    got = []

    def on_signal(signum, frame):
        got.append(signum)
        loop.call_soon_threadsafe(loop.stop)

    handled(USR1, on_signal)
    loop.call_later(3600, print)
    for n in range(1, 4):
        kill_when_parked(loop, USR1)
        run_until_stopped(loop)
        assert got == [USR1] * n


@pytest.mark.parametrize("kind_of_exit", [KeyboardInterrupt, SystemExit, Ours])
def test_an_exception_of_a_plain_handler_leaves_the_parked_run(loop, handled, kind_of_exit):
    """Whatever a handler raises while the loop waits comes out of the run, unreported; the loop runs again."""

    def on_signal(*args):
        raise kind_of_exit("from the handler")

    handled(USR1, on_signal)
    for _ in range(2):
        kill_when_parked(loop, USR1)
        with pytest.raises(kind_of_exit, match="from the handler"):
            run(loop, asyncio.sleep(15))
        assert not loop.is_running()
    assert run(loop, asyncio.sleep(0, 4)) == 4


@pytest.mark.parametrize("waiting_for", ["nothing", "timer", "reader", "task", "thread"])
def test_ctrl_c_of_a_parked_loop(loop, sockets, waiting_for):
    """SIGINT is KeyboardInterrupt out of run_forever() whatever the loop waits for, in the second run as in the
    first.
    """
    a, _ = sockets.pair()
    if waiting_for == "timer":
        loop.call_later(3600, print)
    elif waiting_for == "reader":
        loop.add_reader(a, print)
    elif waiting_for == "task":
        keep = loop.create_task(asyncio.sleep(3600))
        assert not keep.done()
    elif waiting_for == "thread":
        join = start_thread(time.sleep, 0.2)
    for _ in range(2):
        kill_when_parked(loop)
        start = time.monotonic()
        with pytest.raises(KeyboardInterrupt):
            loop.run_forever()
        assert time.monotonic() - start < 5
    loop.remove_reader(a)
    if waiting_for == "thread":
        join()


def test_ctrl_c_with_watchers_and_transports(loop, sockets):
    """The connections of a loop survive Ctrl-C."""
    from support.protocols import Recorder

    a, b = sockets.pair(tcp=True)
    transport, protocol = run(loop, loop.create_connection(Recorder, sock=a))
    kill_when_parked(loop)
    with pytest.raises(KeyboardInterrupt):
        loop.run_forever()
    b.send(b"still")
    run(loop, protocol.got(5))
    transport.close()
    run(loop, protocol.lost())


class Interrupts:
    """Ctrl-C that can only land inside `run()`: raised once for each run at most, ignored outside of one."""

    def __init__(self, handled):
        self.armed, self.caught, self.stop = False, 0, threading.Event()
        handled(signal.SIGINT, self.on_signal)

    def on_signal(self, *args):
        if self.armed:
            self.armed = False
            raise KeyboardInterrupt

    def send(self, times, pause):
        """From a thread of its own."""
        for _ in range(times):
            if self.stop.wait(pause):
                break
            os.kill(ME, signal.SIGINT)
        self.stop.set()

    def run(self, loop):
        """run_forever(); whether it ended by itself."""
        try:
            self.armed = True
            loop.run_forever()
            self.armed = False
        except KeyboardInterrupt:
            self.caught += 1
            return False
        return True


def test_ctrl_c_into_busy_callbacks_loses_and_doubles_nothing(loop, handled):
    """KeyboardInterrupt landing anywhere in a busy loop: every callback runs exactly once over all runs.

    Python may raise in a callback before its first line: it is then the interrupted one, one for each interrupt.
    """
    interrupts = Interrupts(handled)
    started, total = [], 30_000
    for n in range(total):
        loop.call_soon(started.append, n) if n % 2 else loop.call_soon(lambda n=n: started.append(n))
    join = start_thread(interrupts.send, 100, 0.0005)
    while len(started) < total - interrupts.caught:
        loop.stop()
        interrupts.run(loop)
    interrupts.stop.set()
    join()
    turn(loop)
    assert started == sorted(set(started)), "run twice or out of order"
    assert total - len(started) <= interrupts.caught


def test_ctrl_c_during_a_chain_keeps_it_going(loop, handled):
    """A callback that schedules itself: after every interrupt the chain goes on, and there is one of it."""
    interrupts, steps = Interrupts(handled), []

    def step():
        loop.call_soon(step)
        steps.append(1)

    loop.call_soon(step)
    join = start_thread(interrupts.send, 40, 0.001)
    while not interrupts.stop.is_set():
        assert not interrupts.run(loop) or interrupts.stop.is_set()
        before = len(steps)
        turn(loop, 2)
        assert 1 <= len(steps) - before <= 2, "the chain broke, or was doubled"
        if interrupts.stop.is_set():
            break
        loop.call_later(1, loop.stop)  # should the last signal have come between two runs
    join()
    assert interrupts.caught


@pytest.mark.uvpy_only("asyncio, being Python, can be interrupted between taking a timer from its heap and queueing it")
def test_ctrl_c_among_timers_and_readers(loop, handled, sockets):
    """Timers and descriptors under a rain of interrupts: each timer fires once, in order, and the reader stays."""
    interrupts, fired = Interrupts(handled), []
    a, b = sockets.pair()
    b.send(bytes(3000))
    loop.add_reader(a, a.recv_into, bytearray(1))
    start = loop.time()
    for n in range(500):
        loop.call_at(start + n * 0.0001, fired.append, n)
    join = start_thread(interrupts.send, 60, 0.001)
    end = time.monotonic() + LIMIT
    while (select.select([a], [], [], 0)[0] or len(fired) < 500) and time.monotonic() < end:
        loop.stop()
        interrupts.run(loop)
    interrupts.stop.set()
    join()
    assert not select.select([a], [], [], 0)[0]
    assert fired == list(range(500))
    assert loop.remove_reader(a) is True


def test_runner_turns_ctrl_c_into_cancellation(new_loop):
    got = []

    async def main():
        kill_when_parked(asyncio.get_running_loop())
        try:
            await asyncio.sleep(15)
        except asyncio.CancelledError:
            await asyncio.sleep(0.002)
            got.append("cleaned")
            raise

    with asyncio.Runner(loop_factory=new_loop) as runner:
        for _ in range(2):
            with pytest.raises(KeyboardInterrupt):
                runner.run(main())
        assert runner.run(asyncio.sleep(0, 5)) == 5
    assert got == ["cleaned"] * 2
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_coroutine_may_swallow_the_cancellation_of_ctrl_c(new_loop):
    async def main():
        kill_when_parked(asyncio.get_running_loop())
        try:
            await asyncio.sleep(15)
        except asyncio.CancelledError:
            asyncio.current_task().uncancel()
        return "swallowed"

    with asyncio.Runner(loop_factory=new_loop) as runner:
        with contextlib.suppress(KeyboardInterrupt):
            assert runner.run(main()) == "swallowed"


def test_handled_signals_do_not_end_a_sleep(loop, handled):
    """A rain of signals makes no sleep early and ends no run."""
    handled(USR1, lambda *args: None)
    stop = threading.Event()

    def rain():
        while not stop.wait(0.002):
            os.kill(ME, USR1)

    async def main():
        start = time.monotonic()
        await asyncio.sleep(0.15)
        return time.monotonic() - start

    join = start_thread(rain)
    took = run(loop, main())
    stop.set()
    join()
    assert took >= 0.15


def test_ignored_signals_do_nothing(loop, handled):
    handled(USR1, signal.SIG_IGN)
    handled(signal.SIGINT, signal.SIG_IGN)
    kill_when_parked(loop, signal.SIGINT)
    kill_when_parked(loop, USR1)
    assert run(loop, asyncio.sleep(0.1, 5)) == 5


# ---- handlers of the program's in the place of the loop's


def test_the_loops_callback_runs_though_the_program_has_a_handler_of_its_own(loop):
    """As uvicorn does: asyncio's loop goes by the wakeup descriptor, not by its handler."""
    got = []
    loop.add_signal_handler(signal.SIGUSR1, got.append, "loop")
    ours = signal.signal(signal.SIGUSR1, lambda *_: got.append("program"))
    loop.call_soon(signal.raise_signal, signal.SIGUSR1)
    turn(loop, 4)
    assert got == ["program", "loop"]
    signal.signal(signal.SIGUSR1, ours)
    loop.call_soon(signal.raise_signal, signal.SIGUSR1)
    turn(loop, 4)
    assert got == ["program", "loop", "loop"]
    assert loop.remove_signal_handler(signal.SIGUSR1)


def test_each_of_several_signals_calls_back(loop):
    got = []
    loop.add_signal_handler(signal.SIGUSR1, got.append, "loop")
    signal.signal(signal.SIGUSR1, lambda *_: got.append("program"))

    def raise_three():
        for _ in range(3):
            signal.raise_signal(signal.SIGUSR1)

    loop.call_soon(raise_three)
    turn(loop, 4)
    assert got == ["program"] * 3 + ["loop"] * 3
    assert loop.remove_signal_handler(signal.SIGUSR1)


def test_a_program_that_ignores_the_signal_hears_nothing(loop):
    got = []
    loop.add_signal_handler(signal.SIGUSR1, got.append, "loop")
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    loop.call_soon(signal.raise_signal, signal.SIGUSR1)
    turn(loop, 4)
    assert got == []
    assert loop.remove_signal_handler(signal.SIGUSR1)


def test_a_signal_at_the_end_of_a_run_is_told_in_the_next(loop):
    got = []
    loop.add_signal_handler(signal.SIGUSR1, got.append, "loop")
    signal.signal(signal.SIGUSR1, lambda *_: got.append("program"))

    def last():
        loop.stop()
        signal.raise_signal(signal.SIGUSR1)

    loop.call_soon(last)
    loop.run_forever()
    turn(loop, 4)
    assert got == ["program", "loop"]
    assert loop.remove_signal_handler(signal.SIGUSR1)


def test_without_a_callback_of_the_loops_the_programs_handler_is_all(loop):
    got = []
    before = signal.signal(signal.SIGUSR1, lambda *_: got.append("program"))
    try:
        loop.call_soon(signal.raise_signal, signal.SIGUSR1)
        turn(loop, 4)
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert got == ["program"]
