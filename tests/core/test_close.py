"""Closing: what is refused afterwards, what is let go, what is warned about."""

import asyncio
import functools
import gc
import signal
import socket
import sys
import threading
import time
import warnings
import weakref

import pytest

from support.drive import in_thread, run, turn
from support.leaks import fds
from support.peers import is_open
from support.protocols import Recorder


class Thing:
    def __call__(self, *args):
        pass


def test_close_is_idempotent(loop):
    assert not loop.is_closed()
    for _ in range(3):
        assert loop.close() is None
        assert loop.is_closed()
    assert not loop.is_running()


def test_a_running_loop_cannot_be_closed(loop):
    got = []

    def close():
        with pytest.raises(RuntimeError, match="Cannot close a running event loop"):
            loop.close()
        with pytest.raises(RuntimeError, match="Cannot close a running event loop"):
            in_thread(loop.close)
        got.append(loop.is_closed())

    loop.call_soon(close)
    turn(loop)
    assert got == [False]
    assert run(loop, asyncio.sleep(0, 1)) == 1


def test_a_closed_loop_refuses_everything(loop, sockets):
    a, _ = sockets.pair()
    coro = asyncio.sleep(0)
    fut = loop.create_future()
    loop.close()
    calls = [
        lambda: loop.call_soon(print),
        lambda: loop.call_soon_threadsafe(print),
        lambda: in_thread(loop.call_soon_threadsafe, print),
        lambda: loop.call_later(0, print),
        lambda: loop.call_later(1, print),
        lambda: loop.call_at(0, print),
        lambda: loop.create_task(coro),
        lambda: loop.run_forever(),
        lambda: loop.run_until_complete(fut),
        lambda: loop.run_in_executor(None, print),
        lambda: loop.add_reader(a, print),
        lambda: loop.add_writer(a, print),
    ]
    for call in calls:
        with pytest.raises(RuntimeError, match=r"^Event loop is closed$"):
            call()
    coro.close()
    fut.cancel()


def test_what_a_closed_loop_still_answers(loop, sockets):
    a, _ = sockets.pair()
    loop.close()
    assert loop.remove_reader(a) is False
    assert loop.remove_writer(a) is False
    assert loop.remove_signal_handler(signal.SIGUSR1) is False
    assert loop.get_debug() is False
    assert isinstance(loop.time(), float)
    assert loop.get_exception_handler() is not None
    assert "closed=True" in repr(loop)
    loop.stop()
    loop.set_debug(True)
    assert type(loop.create_future()) is asyncio.Future


def test_repr_tells_the_state(loop):
    assert "running=False closed=False debug=False" in repr(loop)
    got = []
    loop.call_soon(lambda: got.append(repr(loop)))
    loop.set_debug(True)
    turn(loop)
    assert "running=True closed=False debug=True" in got[0]
    loop.close()
    assert "running=False closed=True debug=True" in repr(loop)


def test_close_drops_what_was_queued(loop, sockets):
    """Callbacks, timers, threads' calls and watchers are forgotten and never run; what they hold is let go at once."""
    things = [Thing() for _ in range(6)]
    alive = [weakref.ref(thing) for thing in things]
    a, b = sockets.pair()
    b.send(b"!")
    got = []
    loop.call_soon(got.append, things[0])
    loop.call_later(0, got.append, things[1])
    loop.call_later(3600, things[2])
    loop.call_soon_threadsafe(got.append, things[3])
    loop.add_reader(a, got.append, things[4])
    loop.add_writer(a, things[5])
    del things
    loop.close()
    gc.collect()
    assert got == []
    assert [ref() for ref in alive] == [None] * 6


def test_handles_of_a_closed_loop_can_be_used(loop):
    handles = [
        loop.call_soon(print),
        loop.call_later(1, print),
        loop.call_later(3600, print),
        loop.call_soon_threadsafe(print),
    ]
    loop.close()
    for handle in handles:
        repr(handle)
        handle.cancel()
        assert handle.cancelled()
        repr(handle)
    del handles, handle
    gc.collect()


def test_a_loop_can_be_closed_in_another_thread(loop):
    loop.call_later(3600, print)
    turn(loop)
    in_thread(loop.close)
    assert loop.is_closed()


def test_a_loop_that_never_ran_can_be_closed(raw_loop):
    before = fds()
    loops = [raw_loop() for _ in range(5)]
    for loop in loops:
        loop.close()
    assert fds() == before


def test_loops_leave_no_descriptors(raw_loop, sockets):
    def one():
        loop = raw_loop()
        a, b = socket.socketpair()
        loop.add_reader(a, print)
        loop.add_writer(b, bool)
        loop.call_soon_threadsafe(bool)
        loop.call_later(99, bool)
        turn(loop, 2)
        loop.close()
        a.close()
        b.close()

    one()
    before = fds()
    for _ in range(40):
        one()
    assert fds() == before


def test_watched_descriptors_stay_open(loop, sockets):
    """close() closes what is the loop's, not what it watched."""
    a, b = sockets.pair()
    loop.add_reader(a, print)
    loop.add_writer(b, print)
    loop.close()
    assert is_open(a.fileno())
    assert is_open(b.fileno())
    a.send(b"x")
    assert b.recv(1) == b"x"


def test_an_unclosed_loop_warns(make_loop):
    """A loop collected without close() gives ResourceWarning and its descriptors back."""
    before = fds()
    with pytest.warns(ResourceWarning, match="unclosed event loop"):
        loop = make_loop()
        loop.call_later(3600, bool)
        turn(loop)
        del loop
        gc.collect()
    assert fds() == before


def test_a_closed_loop_is_collected_without_a_word(make_loop):
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        loop = make_loop()
        alive = weakref.ref(loop)
        loop.call_later(3600, loop.stop)
        fut = loop.create_future()
        fut.add_done_callback(functools.partial(print, loop))
        loop.set_exception_handler(functools.partial(print, loop))
        turn(loop)
        loop.close()
        del loop, fut
        gc.collect()
    assert alive() is None
    assert found == []


def test_transports_of_a_closed_loop_warn_and_close(new_loop, sockets):
    """A transport whose loop was closed under it warns when it is collected; the descriptor goes then at the latest."""
    loop = new_loop()
    a, b = sockets.pair(tcp=True)
    fd = a.fileno()
    transport, protocol = run(loop, loop.create_connection(asyncio.Protocol, sock=a))
    loop.close()
    with pytest.warns(ResourceWarning, match="unclosed transport"):
        del transport, protocol
        gc.collect()
    del a
    gc.collect()
    assert not is_open(fd)
    b.setblocking(True)
    b.settimeout(5)
    assert b.recv(1) == b""


def test_no_protocol_is_called_by_close(new_loop, sockets):
    loop = new_loop()
    a, b = sockets.pair(tcp=True)
    b.send(b"never read")
    transport, protocol = run(loop, loop.create_connection(Recorder, sock=a))
    before = list(protocol.events)
    loop.close()
    assert protocol.events == before
    with pytest.warns(ResourceWarning, match="unclosed transport"):
        protocol.transport = None
        del transport
        gc.collect()
    assert protocol.events == before


@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_a_closing_transport_of_a_closed_loop(new_loop, sockets):
    """The transport is closed, then the loop before connection_lost() could run: it never does, and nothing leaks."""
    loop = new_loop()
    a, b = sockets.pair(tcp=True)
    transport, protocol = run(loop, loop.create_connection(Recorder, sock=a))
    fd = a.fileno()
    transport.close()
    loop.close()
    del transport
    protocol.transport = None
    gc.collect()
    assert protocol.events == ["made"]
    assert not is_open(fd)


def test_an_open_server_at_close(new_loop):
    """The listening socket of a server is closed with the loop, or with the server object at the latest."""
    loop = new_loop()
    server = run(loop, loop.create_server(asyncio.Protocol, "127.0.0.1", 0))
    sock = server.sockets[0]
    fd, port = sock.fileno(), sock.getsockname()[1]
    loop.close()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        del server, sock
        gc.collect()
    assert not is_open(fd)
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port), timeout=5)


def test_closing_in_a_finalizer(raw_loop):
    """The last reference to another thing closes the loop."""

    class Closer:
        def __init__(self, loop):
            self.loop = loop

        def __del__(self):
            self.loop.close()

    loop = raw_loop()
    loop.call_later(3600, print)
    closer = Closer(loop)
    del closer
    assert loop.is_closed()


def test_close_while_an_executor_works(loop):
    """close() does not wait for the executor's jobs; their results are dropped in silence."""
    release, ended = threading.Event(), threading.Event()
    fut = loop.run_in_executor(None, lambda: (release.wait(10), ended.set()))
    turn(loop)
    loop.close()
    release.set()
    assert ended.wait(10)
    assert not fut.done()
    del fut


@pytest.mark.skipif(sys.platform == "win32", reason="signals")
def test_close_takes_signal_handlers_away(loop):
    loop.add_signal_handler(signal.SIGUSR1, print)
    loop.add_signal_handler(signal.SIGINT, print)
    loop.close()
    assert signal.getsignal(signal.SIGUSR1) is signal.SIG_DFL
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert signal.set_wakeup_fd(-1) == -1


def test_weak_references_to_loops(raw_loop):
    loop = raw_loop()
    assert weakref.ref(loop)() is loop
    assert {loop: 1}[loop] == 1
    assert loop == loop
    loop.own = 5
    assert vars(loop)["own"] == 5


def test_a_loop_with_much_to_do_closes_in_seconds(new_loop):
    """However much waits, it is let go one by one, and each at the same cost."""

    async def wait():
        await loop.create_future()

    async def main():
        tasks.extend(loop.create_task(wait()) for _ in range(50_000))
        for number in range(50_000):
            loop.call_later(3600 + number * 7919 % 50_000, print)
        await asyncio.sleep(0)
        for _ in range(50_000):
            loop.call_soon(print)
        loop.stop()

    loop, tasks = new_loop(), []
    main_task = loop.create_task(main())
    loop.run_forever()
    assert main_task.done()
    before = time.monotonic()
    loop.close()
    assert time.monotonic() - before < 10
    for task in tasks:
        task._log_destroy_pending = False
