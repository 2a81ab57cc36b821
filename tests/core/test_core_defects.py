"""Defects of the scheduler that were found once and must not come back. Those that could crash are in
`tests/isolated/defects_*.py`.
"""

import asyncio
import errno
import os
import signal
import socket
import sys
import threading
import time

import pytest

from support import leaks
from support.drive import eventually, in_thread, run, run_until_stopped, start_thread, turn

EXITS = [SystemExit, KeyboardInterrupt]


# ---- waking up


@pytest.fixture
def busy():
    """A thread that wants the GIL all the time, and a switch interval so short that it often gets it."""
    before, stop = sys.getswitchinterval(), threading.Event()

    def work():
        while not stop.is_set():
            sum(range(30))

    join = start_thread(work)
    yield
    stop.set()
    join()
    sys.setswitchinterval(before)


@pytest.mark.parametrize(("interval", "rounds"), [(1e-6, 3000), (2e-5, 3000), (0.005, 40)])
def test_no_wakeup_is_lost_beside_a_busy_thread(loop, busy, interval, rounds):
    """Each call from a thread finds the loop just going to sleep: the moment at which a wake-up could be lost."""
    sys.setswitchinterval(interval)
    came = threading.Semaphore(0)
    late = []

    def work():
        for n in range(rounds):
            begin = time.monotonic()
            loop.call_soon_threadsafe(came.release)
            if not came.acquire(timeout=2) or time.monotonic() - begin > 1.5:
                late.append(n)
                break
        loop.call_soon_threadsafe(loop.stop)

    join = start_thread(work)
    run_until_stopped(loop, 20)
    join()
    assert late == []


def test_no_wakeup_is_lost_when_threads_compete(loop):
    """Several threads call a loop that parks after each batch: all calls come, and none waits for another one."""
    sys.setswitchinterval(1e-6)
    try:
        count, threads = 500, 4
        came = [threading.Semaphore(0) for _ in range(threads)]
        waited = []

        def work(n):
            for _ in range(count):
                loop.call_soon_threadsafe(came[n].release)
                waited.append(came[n].acquire(timeout=2))

        joins = [start_thread(work, n) for n in range(threads)]

        def finish():
            for join in joins:
                join()
            loop.call_soon_threadsafe(loop.stop)

        last = start_thread(finish)
        run_until_stopped(loop, 20)
        last()
        assert waited == [True] * (count * threads)
    finally:
        sys.setswitchinterval(0.005)


@pytest.mark.parametrize("pause", [0.0, 0.01])
def test_no_wakeup_is_lost_while_an_overridden_time_lets_others_run(loop_class, pause):
    """time() of a subclass may give the GIL away just before the loop parks."""

    class Slow(loop_class):
        def time(self):
            time.sleep(pause)
            return super().time()

    loop = Slow()
    loop.call_later(4, loop.stop)
    waited = []

    def work():
        for n in range(12 if pause else 300):
            came = threading.Event()
            loop.call_soon_threadsafe(came.set)
            begin = time.monotonic()
            came.wait(5)
            waited.append(time.monotonic() - begin)
            time.sleep(pause * (n % 5) / 4)
        loop.call_soon_threadsafe(loop.stop)

    join = start_thread(work)
    try:
        loop.run_forever()
        join()
    finally:
        loop.close()
    assert max(waited) < 1


@pytest.mark.uvpy_only("stock asyncio has decided to wait before it asks for the time")
def test_what_an_overridden_time_schedules_is_not_slept_over(loop_class):
    """The loop looks once more before it parks."""

    class Schedules(loop_class):
        ran, left = (), 3

        def time(self):
            if self.left and self.is_running():
                self.left -= 1
                self.call_soon(self.note, time.monotonic())
            return super().time()

        def note(self, when):
            self.ran = (*self.ran, time.monotonic() - when)
            if len(self.ran) == 3:
                self.stop()

    loop = Schedules()
    loop.left = 0
    loop.call_later(3, loop.stop)
    loop.left = 3
    try:
        loop.run_forever()
    finally:
        loop.close()
    assert len(loop.ran) == 3
    assert max(loop.ran) < 1


# ---- what an exception handler sees


def handler_that_asks(loop):
    """The exceptions that sys.exception()'s elder sister gives in the handler, beside those of the context."""
    seen = []
    loop.set_exception_handler(lambda loop, context: seen.append((sys.exc_info()[1], context["exception"])))
    return seen


@pytest.mark.parametrize("how", ["soon", "later", "threadsafe", "reader"])
def test_exception_handlers_run_as_in_an_except_block(loop, sockets, how):
    """logging.exception(), traceback.print_exc() and their like work in a handler."""

    def fail():
        loop.remove_reader(a)
        raise ZeroDivisionError("boom")

    a, b = sockets.pair()
    seen = handler_that_asks(loop)
    if how == "soon":
        loop.call_soon(fail)
    elif how == "later":
        loop.call_later(0, fail)
    elif how == "threadsafe":
        in_thread(loop.call_soon_threadsafe, fail)
    else:
        b.send(b"!")
        loop.add_reader(a, fail)
    turn(loop, 3)
    ((handled, given),) = seen
    assert isinstance(handled, ZeroDivisionError)
    assert handled is given
    assert sys.exc_info() == (None, None, None)


def test_nothing_is_handled_any_more_after_the_handler(loop):
    seen = handler_that_asks(loop)
    after = []
    loop.call_soon(lambda: 1 / 0)
    loop.call_soon(lambda: after.append(sys.exc_info()))
    turn(loop)
    assert len(seen) == 1
    assert after == [(None, None, None)]


def test_what_was_handled_around_the_run_is_handled_again(loop):
    """A loop run inside an except block: the callback's error in its handler, the outer one everywhere else."""
    seen = handler_that_asks(loop)
    inside = []
    try:
        raise KeyError("outer")
    except KeyError:
        loop.call_soon(lambda: 1 / 0)
        loop.call_soon(lambda: inside.append(sys.exc_info()[1]))
        turn(loop)
        inside.append(sys.exc_info()[1])
    assert [type(exc) for exc in inside] == [KeyError, KeyError]
    assert [type(handled) for handled, _ in seen] == [ZeroDivisionError]
    assert isinstance(seen[0][0].__context__, KeyError)


def test_an_error_of_the_handler_has_the_first_one_as_context(raw_loop, log):
    loop = raw_loop()

    def handler(loop, context):
        raise LookupError("in the handler")

    loop.set_exception_handler(handler)
    loop.call_soon(lambda: 1 / 0)
    turn(loop)
    (record,) = log.take()
    error = record.exc_info[1]
    assert isinstance(error, LookupError)
    assert isinstance(error.__context__, ZeroDivisionError)


@pytest.mark.parametrize("kind_of_exit", EXITS)
def test_an_exit_of_the_handler_has_the_first_one_as_context(raw_loop, kind_of_exit):
    loop = raw_loop()

    def handler(loop, context):
        raise kind_of_exit("out")

    loop.set_exception_handler(handler)
    loop.call_soon(lambda: 1 / 0)
    with pytest.raises(kind_of_exit) as caught:
        turn(loop)
    assert isinstance(caught.value.__context__, ZeroDivisionError)


# ---- descriptors


@pytest.mark.parametrize("number", [2**31, 2**40, 2**70])
def test_removing_a_number_that_no_descriptor_has(loop, number):
    assert loop.remove_reader(number) is False
    assert loop.remove_writer(number) is False


@pytest.mark.parametrize("number", [2**31, 2**40, 2**70])
def test_adding_a_number_that_no_descriptor_has(loop, number):
    class File:
        def fileno(self):
            return number

    for call in (loop.add_reader, loop.add_writer, loop._add_reader, loop._add_writer):
        for name in (number, File()):
            with pytest.raises(OverflowError, match=r"^Python int too large to convert to C int$"):
                call(name, print)
    turn(loop)


@pytest.mark.parametrize("wrong", [None, "x", 1.5, object()], ids=repr)
def test_why_something_is_no_descriptor_is_remembered_and_not_shown(loop, wrong):
    for call in (loop.add_reader, loop.add_writer, loop.remove_reader, loop.remove_writer):
        with pytest.raises(ValueError, match=r"^Invalid file object: ") as caught:
            call(wrong, *([print] if "add" in call.__name__ else []))
        assert isinstance(caught.value.__context__, AttributeError)
        assert caught.value.__cause__ is None
        assert caught.value.__suppress_context__


@pytest.mark.parametrize("number", [100_000, 10_000_000, 2**31 - 1])
def test_adding_a_number_that_is_not_open(loop, number):
    for call in (loop.add_reader, loop.add_writer):
        with pytest.raises(OSError) as caught:
            call(number, print)
        assert caught.value.errno == errno.EBADF
    assert loop.remove_reader(number) is False
    turn(loop, 2)


def reused(sockets, number):
    """Another pair of sockets, the first of which has this free number; the other end."""
    ours, theirs = sockets.pair()
    if ours.fileno() != number:
        os.dup2(ours.fileno(), number)
        ours.close()
        ours = sockets.own(socket.socket(fileno=number))
        ours.setblocking(False)
    return ours, theirs


@pytest.mark.parametrize("first", ["reader", "writer", "both"])
@pytest.mark.parametrize("second", ["reader", "writer"])
@pytest.mark.uvpy_only("stock asyncio's selector takes the new file for the old one: FileNotFoundError, or deafness")
def test_a_number_closed_while_watched_and_used_again(loop, sockets, first, second):
    """What was watched under the number of a closed file is over once another file is watched under it."""
    turn(loop)  # what the loop opens for itself is open now
    a, _ = sockets.pair()
    number, got = a.fileno(), []
    if first in ("reader", "both"):
        loop.add_reader(a, got.append, "stale reader")
    if first in ("writer", "both"):
        loop.add_writer(number, bool)
    a.close()
    turn(loop)
    ours, theirs = reused(sockets, number)
    if second == "reader":
        loop.add_reader(number, lambda: got.append(ours.recv(9)))
    else:
        loop.add_writer(number, lambda: (got.append(b"!"), loop.remove_writer(number)))
    theirs.send(b"!")
    turn(loop, 3)
    assert got == [b"!"]
    loop.remove_reader(number)
    loop.remove_writer(number)
    assert loop.remove_reader(number) is False


@pytest.mark.uvpy_only("stock asyncio's selector takes the new file for the old one")
async def test_a_listeners_number_used_again(loop, sockets, errors):
    """A listening socket closed before its server leaves nothing behind: no accepting on what has the number then."""
    listener = sockets.listener()
    server = await loop.create_server(asyncio.Protocol, sock=listener)
    number = listener.fileno()
    listener.close()
    with pytest.raises(ValueError):  # asyncio's, which asks the closed socket for its number
        server.close()
    assert leaks.handles(loop) == []
    ours, theirs = reused(sockets, number)
    for n in range(3):
        theirs.send(b"%d" % n)
        assert await asyncio.wait_for(loop.sock_recv(ours, 9), 5) == b"%d" % n
    loop.add_reader(number, bool)
    theirs.send(b"!")
    await asyncio.sleep(0.01)
    loop.remove_reader(number)
    assert errors.take() == []


@pytest.mark.uvpy_only("stock asyncio's selector takes the new file for the old one")
async def test_a_listeners_number_used_again_while_the_server_is_open(loop, sockets, errors):
    listener = sockets.listener()
    server = await loop.create_server(asyncio.Protocol, sock=listener)
    number = listener.fileno()
    listener.close()
    ours, theirs = reused(sockets, number)
    got = []
    loop.add_reader(number, lambda: got.append(ours.recv(9)))
    theirs.send(b"one")
    await asyncio.sleep(0.005)
    with pytest.raises(ValueError):
        server.close()
    theirs.send(b"two")
    await asyncio.sleep(0.005)
    assert got == [b"one", b"two"]
    assert loop.remove_reader(number) is True
    assert errors.take() == []


@pytest.mark.uvpy_only("stock asyncio's selector takes the new file for the old one")
async def test_a_watched_number_closed_and_used_by_a_listener(loop, sockets):
    """What watched the closed file is not told of the listener's clients."""
    a, _ = sockets.pair()
    number, got, made = a.fileno(), [], []
    loop.add_reader(a, got.append, "stale")
    await asyncio.sleep(0)
    a.close()
    listener = sockets.listener()
    assert listener.fileno() == number
    server = await loop.create_server(lambda: made.append(asyncio.Protocol()) or made[-1], sock=listener)
    for _ in range(2):
        sockets.own(socket.create_connection(listener.getsockname())).close()
    await eventually(lambda: len(made) == 2)
    server.close()
    await asyncio.sleep(0.005)
    assert got == []
    assert loop.remove_reader(number) is False


def test_a_watched_number_closed_before_the_first_run(loop, sockets):
    """The loop opens what it needs for signals with its first run: whatever number that gets, a signal is a signal."""
    a, _ = sockets.pair()
    got, hits = [], []
    loop.add_reader(a, got.append, "stale")
    a.close()
    before = signal.signal(signal.SIGUSR1, lambda *args: hits.append(1))
    try:
        loop.call_later(0.005, os.kill, os.getpid(), signal.SIGUSR1)
        loop.call_later(0.02, loop.stop)
        loop.run_forever()
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert hits == [1]
    assert got == []
    for fd in range(3, 64):
        loop.remove_reader(fd)


# ---- signals


@pytest.mark.parametrize("how", ["stop", "interrupt"])
def test_a_signal_that_ends_the_run_reaches_the_programs_wakeup_fd(loop, sockets, how):
    """The program's own signal.set_wakeup_fd() hears every signal, also the one whose handler ends the run."""
    mine, others = sockets.pair()

    def handler(signum, frame):
        if how == "interrupt":
            raise KeyboardInterrupt("from the handler")
        loop.call_soon_threadsafe(loop.stop)

    before = signal.signal(signal.SIGUSR1, handler)
    signal.set_wakeup_fd(mine.fileno())
    try:
        loop.call_later(0.01, os.kill, os.getpid(), signal.SIGUSR1)
        guard = loop.call_later(5, loop.stop)
        if how == "interrupt":
            with pytest.raises(KeyboardInterrupt):
                loop.run_forever()
        else:
            loop.run_forever()
        guard.cancel()
        assert signal.set_wakeup_fd(-1) == mine.fileno()
    finally:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGUSR1, before)
    assert others.recv(99) == bytes([signal.SIGUSR1])


# ---- handles


@pytest.mark.uvpy_only("stock asyncio's handles are made by hand")
def test_handles_are_not_made_by_hand(loop):
    """Not by way of a subclass, of object.__new__ or of a copy either: what the loop gets it has made."""
    for handle in (loop.call_soon(bool), loop.call_later(9, bool), loop.call_soon_threadsafe(bool)):
        made = type(handle)
        with pytest.raises(TypeError):
            made(bool, (), loop)
        for make in (object.__new__, lambda made: type("Sub", (made,), {})(), lambda made: made.__new__(made)):
            with pytest.raises((TypeError, AttributeError)):
                make(made)
        handle.cancel()
    turn(loop)


@pytest.mark.uvpy_only("stock asyncio fails when the callback is run")
@pytest.mark.parametrize("wrong", [5, "x", object()])
def test_a_context_that_is_none_is_refused_at_once(loop, wrong):
    for call in (loop.call_soon, loop.call_soon_threadsafe, lambda *a, **k: loop.call_later(0, *a, **k)):
        with pytest.raises(TypeError):
            call(bool, context=wrong)
    turn(loop)
    assert run(loop, asyncio.sleep(0, 5)) == 5
