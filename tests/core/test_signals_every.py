"""Every signal that may have a handler, what removal and close put back, and one signal between several loops."""

import os
import signal

import pytest

from support.drive import run_until_stopped, turn
from support.signals import ME, USR1, USR2, dispositions  # noqa: F401

# pytest's faulthandler has handlers of its own for the signals of crashes.
CRASHES = {signal.SIGSEGV, signal.SIGFPE, signal.SIGABRT, signal.SIGBUS, signal.SIGILL}
UNCATCHABLE = {signal.SIGKILL, signal.SIGSTOP}
EVERY = sorted(s for s in signal.valid_signals() - CRASHES - UNCATCHABLE if isinstance(s, signal.Signals))


def run_shortly(loop):
    loop.call_later(0.02, loop.stop)
    run_until_stopped(loop)
    turn(loop, 3)  # a signal takes turns; on a busy machine the time above may be over in the first one


@pytest.mark.parametrize("signum", EVERY, ids=lambda s: s.name)
def test_every_signal_has_its_handler_and_its_disposition_back(loop, signum):
    before = signal.getsignal(signum)
    default = signal.default_int_handler if signum == signal.SIGINT else signal.SIG_DFL
    got = []
    try:
        loop.add_signal_handler(signum, got.append, signum)
        os.kill(ME, signum)
        run_shortly(loop)
        assert got == [signum]
        assert loop.remove_signal_handler(signum) is True
        assert signal.getsignal(signum) is default
        assert loop.remove_signal_handler(signum) is False
    finally:
        signal.signal(signum, before)


@pytest.mark.parametrize("signum", sorted(UNCATCHABLE), ids=lambda s: s.name)
def test_what_cannot_be_caught_is_refused(loop, signum):
    with pytest.raises(RuntimeError, match=f"^sig {signum:d} cannot be caught$"):
        loop.add_signal_handler(signum, print)
    assert loop.remove_signal_handler(signum) is False


def test_a_handler_removed_before_the_loop_looks_is_not_called(loop):
    got = []
    loop.add_signal_handler(USR1, got.append, 1)
    os.kill(ME, USR1)
    loop.remove_signal_handler(USR1)
    run_shortly(loop)
    assert got == []


def test_a_handler_replaced_before_the_loop_looks_is_called_in_its_place(loop):
    got = []
    loop.add_signal_handler(USR1, got.append, "first")
    os.kill(ME, USR1)
    loop.add_signal_handler(USR1, got.append, "second")
    run_shortly(loop)
    assert got == ["second"]
    loop.remove_signal_handler(USR1)


def test_a_signal_that_comes_within_the_call_is_not_lost(loop, monkeypatch):
    """Between the handler that asyncio installs first and the loop's own."""
    got, real = [], signal.siginterrupt

    def siginterrupt(signum, flag):
        monkeypatch.undo()
        os.kill(ME, signum)
        real(signum, flag)

    monkeypatch.setattr(signal, "siginterrupt", siginterrupt)
    loop.add_signal_handler(USR1, got.append, "signal")
    run_shortly(loop)
    assert got == ["signal"]
    loop.remove_signal_handler(USR1)


def test_signals_of_a_kind_that_come_at_once_are_each_handled(loop):
    got = []
    loop.add_signal_handler(USR1, got.append, "signal")

    def burst():
        for _ in range(5):
            signal.raise_signal(USR1)

    loop.call_soon(burst)
    run_shortly(loop)
    assert len(got) == 5
    os.kill(ME, USR1)
    run_shortly(loop)
    assert len(got) == 6
    loop.remove_signal_handler(USR1)


def test_of_two_loops_the_last_one_has_the_signal(loop, new_loop):
    other, got = new_loop(), []
    loop.add_signal_handler(USR1, got.append, "first")
    other.add_signal_handler(USR1, got.append, "second")
    os.kill(ME, USR1)
    run_shortly(loop)
    run_shortly(other)
    assert got == ["second"]
    # Each forgets its own; the first to do so gives the signal back to the system.
    assert loop.remove_signal_handler(USR1) is True
    assert signal.getsignal(USR1) is signal.SIG_DFL
    assert other.remove_signal_handler(USR1) is True


def test_closing_gives_every_signal_back(make_loop):
    loop = make_loop()
    for signum in (USR1, USR2, signal.SIGTERM, signal.SIGCHLD, signal.SIGINT):
        loop.add_signal_handler(signum, print)
    loop.close()
    for signum in (USR1, USR2, signal.SIGTERM, signal.SIGCHLD):
        assert signal.getsignal(signum) is signal.SIG_DFL
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    with pytest.raises(RuntimeError, match=r"^Event loop is closed$"):
        loop.add_signal_handler(USR1, print)
    assert loop.remove_signal_handler(USR1) is False


def test_loops_one_after_the_other_each_have_the_signal(make_loop):
    got = []
    for name in "abc":
        loop = make_loop()
        loop.add_signal_handler(USR1, got.append, name)
        os.kill(ME, USR1)
        run_shortly(loop)
        loop.close()
    assert got == ["a", "b", "c"]


def test_ctrl_c_in_one_run_after_the_other(loop):
    for _ in range(2):
        loop.call_later(0.01, os.kill, ME, signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            loop.run_forever()
    run_shortly(loop)
