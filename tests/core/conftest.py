"""Fixtures of the scheduler's tests."""

import gc
import signal

import pytest

from support import guests


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


@pytest.fixture(scope="session")
def guest_path(tmp_path_factory):
    """The compiled extension of tests/core/guest."""
    return guests.build_somehow(tmp_path_factory.mktemp("guest"))


@pytest.fixture(scope="session")
def guest_module(guest_path):
    return guests.load(guest_path)


@pytest.fixture
def guest(guest_module):
    """The extension. What it has made must be freed at the end of a test."""
    yield guest_module
    gc.collect()
    assert guest_module.alive() == 0


@pytest.fixture
def capsule(loop):
    """The loop's libuv."""
    import uvpy

    return uvpy.libuv_loop_ptr(loop)
