"""Fixtures of the scheduler's tests."""

import signal

import pytest


@pytest.fixture
def handled():
    """handled(signal, handler): signal.signal() until the end of the test."""
    before = {}

    def set_handler(signum, handler):
        before.setdefault(signum, signal.getsignal(signum))
        signal.signal(signum, handler)

    yield set_handler
    for signum, handler in before.items():
        signal.signal(signum, handler)
