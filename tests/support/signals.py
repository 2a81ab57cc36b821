"""What tests of signals share: dispositions kept, handlers for a test, and a thread that sends signals."""

import os
import signal
import threading
import time

import pytest

ME = os.getpid()
USR1, USR2 = signal.SIGUSR1, signal.SIGUSR2


class Ours(Exception):
    """An exception of the tests' own."""


@pytest.fixture(autouse=True)
def dispositions():
    """Every test leaves signal handlers, mask and wakeup descriptor as they were."""
    signals = (USR1, USR2, signal.SIGINT, signal.SIGALRM, signal.SIGTERM, signal.SIGCHLD, signal.SIGPIPE)
    before = {s: signal.getsignal(s) for s in signals}
    signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    wakeup = signal.set_wakeup_fd(-1)
    left = {s: signal.getsignal(s) for s in signals if signal.getsignal(s) != before[s]}
    for s, handler in before.items():
        signal.signal(s, handler)
    left.pop(signal.SIGINT, None) if before[signal.SIGINT] != signal.default_int_handler else None
    assert wakeup == -1
    assert not left


def kill_when_parked(loop, signum=signal.SIGINT, after=0.03, times=1):
    """Once the loop runs, a thread sends the signal to the process after a while."""

    def work():
        for _ in range(times):
            time.sleep(after)
            os.kill(ME, signum)

    thread = threading.Thread(target=work, daemon=True)
    loop.call_soon(thread.start)
    return thread
