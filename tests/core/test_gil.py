"""When the loop gives the GIL up, the counters that tell, the switch, and the user's switch interval."""

import asyncio
import contextlib
import os
import sys
import threading
import time

import pytest

from support.drive import in_thread, run, start_thread, turn
from support.script import output

pytestmark = pytest.mark.uvpy_only("asyncio gives the GIL up in every poll and has no switch")

COUNTERS = {"turns", "polls", "polls_skipped", "gil_released", "gil_contended", "gil_wait_ns"} | {
    "datagram_calls",
    "datagrams_sent",
}


class Busy:
    """Threads that only compute."""

    def __init__(self, count=1):
        self.stop, self.count = threading.Event(), count

    def work(self):
        n = 0
        while not self.stop.is_set():
            for _ in range(2000):
                n += 1
        return n

    def __enter__(self):
        self.joins = [start_thread(self.work) for _ in range(self.count)]
        return self

    def __exit__(self, *exc):
        self.stop.set()
        for join in self.joins:
            join()


@pytest.fixture(params=[None, 0.004], ids=["interval of Python", "interval of the user"])
def interval(request):
    """The switch interval in force, which must be the same after every test."""
    before = sys.getswitchinterval()
    if request.param:
        sys.setswitchinterval(request.param)
    here = sys.getswitchinterval()
    yield here
    after = sys.getswitchinterval()
    sys.setswitchinterval(before)
    assert after == here


# ---- the switch


def test_the_switch_is_a_keyword(loop_class):
    import uvpy

    for make in (loop_class, uvpy.new_event_loop):
        for value in ("adaptive", "plain"):
            loop = make(gil=value)
            assert loop.run_until_complete(asyncio.sleep(0.001, 3)) == 3
            loop.close()
        for wrong in ("", "ADAPTIVE", "none", 5, b"plain"):
            with pytest.raises((ValueError, TypeError)):
                make(gil=wrong)
        with pytest.raises(ValueError, match="adaptive"):
            make(gil="fast")
        with pytest.raises(TypeError):
            make("plain")
        with pytest.raises(TypeError):
            make(other=1)


def test_the_environment_sets_the_default(kind):
    body = "import uvpy; loop = uvpy.new_event_loop(); loop.close(); print('ok')"
    for value in ("adaptive", "plain"):
        assert output(body, env={"UVPY_GIL": value}) == "ok"
    ask = """
import uvpy
try:
    uvpy.new_event_loop()
except ValueError as exc:
    print(exc)
uvpy.new_event_loop(gil="plain").close()
"""
    said = output(ask, env={"UVPY_GIL": "quick"})
    assert "UVPY_GIL" in said or "quick" in said


# ---- counters


def test_counters_are_a_dictionary_of_numbers(loop):
    stats = loop._core_stats()
    assert set(stats) >= COUNTERS
    assert all(type(value) is int and value >= 0 for value in stats.values())
    turn(loop, 10)
    loop.close()
    assert loop._core_stats()["turns"] >= 10


def test_turns_are_counted(loop):
    before = loop._core_stats()
    turn(loop, 25)
    after = loop._core_stats()
    assert after["turns"] - before["turns"] == 25
    polled = after["polls"] - before["polls"] + after["polls_skipped"] - before["polls_skipped"]
    assert polled == 25


def test_a_poll_that_does_not_wait_keeps_the_gil(loop):
    """Turns that have something to do next do not give the GIL up."""
    before = loop._core_stats()

    async def main():
        for _ in range(500):
            await asyncio.sleep(0)

    loop.run_until_complete(main())
    after = loop._core_stats()
    assert after["turns"] - before["turns"] >= 500
    assert after["gil_released"] == before["gil_released"]


def test_a_poll_that_waits_gives_the_gil_up(loop):
    before = loop._core_stats()
    for _ in range(10):
        run(loop, asyncio.sleep(0.002))
    after = loop._core_stats()
    assert 10 <= after["gil_released"] - before["gil_released"] <= 60


def test_other_threads_run_while_the_loop_is_parked(loop):
    ticks = []

    def work():
        for _ in range(50):
            ticks.append(time.monotonic())
            time.sleep(0.001)

    async def main():
        join = start_thread(work)
        await asyncio.sleep(0.3)
        assert len(ticks) == 50, "the loop kept the GIL while it slept"
        join()

    run(loop, main())


def test_with_io_registered_turns_still_poll(loop, sockets):
    """Only while no descriptor but the wake-up is watched may a poll be left out."""
    a, _ = sockets.pair()
    loop.add_reader(a, print)
    before = loop._core_stats()
    turn(loop, 20)
    after = loop._core_stats()
    loop.remove_reader(a)
    assert after["polls"] - before["polls"] == 20
    assert after["polls_skipped"] == before["polls_skipped"]


# ---- the interval


@pytest.mark.parametrize("gil", ["adaptive", "plain"])
def test_the_interval_is_back_after_a_run(new_loop, interval, gil):
    loop = new_loop(gil=gil)
    with Busy():
        for _ in range(20):
            run(loop, asyncio.sleep(0.002))
            assert sys.getswitchinterval() == interval


@pytest.mark.parametrize("end", ["stop", "error", "interrupt", "close"])
def test_the_interval_is_back_however_a_run_ends(new_loop, interval, end):
    loop = new_loop()

    def leave():
        if end in ("stop", "close"):
            loop.stop()
        raise_ = {"error": ZeroDivisionError, "interrupt": KeyboardInterrupt}.get(end)
        if raise_:
            raise raise_

    async def main():
        for _ in range(40):
            await asyncio.sleep(0.001)
        if end == "error":
            leave()
        loop.call_soon(leave)
        await asyncio.sleep(10)

    with Busy():
        task = loop.create_task(main())
        with contextlib.suppress(KeyboardInterrupt, ZeroDivisionError, RuntimeError):
            loop.run_until_complete(task)
        assert sys.getswitchinterval() == interval
        if not task.done():
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                loop.run_until_complete(task)
        if end == "close":
            loop.close()
        assert sys.getswitchinterval() == interval


def test_callbacks_see_the_users_interval(new_loop, interval):
    """In every callback the interval in force is the user's."""
    loop, seen = new_loop(), set()

    async def main():
        for _ in range(100):
            await asyncio.sleep(0.0005)
            seen.add(sys.getswitchinterval())

    with Busy():
        run(loop, main())
    assert seen == {interval}


def test_an_interval_set_during_a_run_stays(new_loop):
    """What the user sets while the loop runs is what is in force afterwards."""
    before = sys.getswitchinterval()
    loop = new_loop()

    async def main():
        for i in range(60):
            await asyncio.sleep(0.0005)
            if i == 30:
                sys.setswitchinterval(0.003)
            if i > 30:
                assert sys.getswitchinterval() == pytest.approx(0.003)

    try:
        with Busy():
            run(loop, main())
        assert sys.getswitchinterval() == pytest.approx(0.003)
    finally:
        sys.setswitchinterval(before)


def test_an_interval_set_by_another_thread_stays(new_loop):
    """Also when it is set while the loop is parked."""
    before = sys.getswitchinterval()
    loop = new_loop()

    async def main():
        for _ in range(40):
            await asyncio.sleep(0.001)
        join = start_thread(lambda: (time.sleep(0.01), sys.setswitchinterval(0.002)))
        await asyncio.sleep(0.05)
        join()
        for _ in range(10):
            await asyncio.sleep(0.001)

    try:
        with Busy():
            run(loop, main())
        assert sys.getswitchinterval() == pytest.approx(0.002)
    finally:
        sys.setswitchinterval(before)


def test_two_adaptive_loops_put_the_interval_back(new_loop, interval):
    """Loops in several threads of one interpreter count together: the last to rest puts the value back."""

    def work():
        loop = new_loop()
        for _ in range(10):
            run(loop, asyncio.sleep(0.002))
        loop.close()

    with Busy():
        joins = [start_thread(work) for _ in range(3)]
        for join in joins:
            join()
    assert sys.getswitchinterval() == interval


@pytest.mark.skipif(not hasattr(os, "fork"), reason="fork")
def test_the_interval_in_a_forked_child(kind):
    body = """
import asyncio, os, sys, threading, warnings
import uvpy
warnings.simplefilter("ignore")
before = sys.getswitchinterval()
loop = uvpy.new_event_loop()
stop = False
def work():
    while not stop:
        sum(range(500))
thread = threading.Thread(target=work)
thread.start()
async def main():
    for _ in range(50):
        await asyncio.sleep(0.001)
    pid = os.fork()
    if pid == 0:
        os._exit(0 if sys.getswitchinterval() == before else 7)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
print(loop.run_until_complete(main()))
stop = True
thread.join()
loop.close()
"""
    assert output(body) == "0"


def test_plain_never_touches_the_interval(new_loop, monkeypatch):
    """With gil="plain" contention is neither watched for nor answered."""
    loop = new_loop(gil="plain")
    seen, stop = set(), threading.Event()

    def watch():
        while not stop.is_set():
            seen.add(sys.getswitchinterval())

    join = start_thread(watch)
    for _ in range(50):
        run(loop, asyncio.sleep(0.002))
    stop.set()
    join()
    assert seen == {sys.getswitchinterval()}


def test_a_users_interval_is_never_touched(new_loop):
    """With an interval of the user's own the adaptive part does nothing at all."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(0.004)
    loop, seen, stop = new_loop(gil="adaptive"), set(), threading.Event()

    def watch():
        while not stop.is_set():
            seen.add(sys.getswitchinterval())

    try:
        here = sys.getswitchinterval()
        join = start_thread(watch)
        for _ in range(50):
            run(loop, asyncio.sleep(0.002))
        stop.set()
        join()
        assert seen == {here}
    finally:
        sys.setswitchinterval(before)


def test_contention_is_counted(new_loop):
    """Beside a thread that computes the loop has to wait for the GIL, and says so."""
    loop = new_loop(gil="plain")
    before = loop._core_stats()
    with Busy():
        for _ in range(30):
            run(loop, asyncio.sleep(0.002))
    after = loop._core_stats()
    assert after["gil_wait_ns"] > before["gil_wait_ns"]
    assert after["gil_contended"] > before["gil_contended"]
    assert in_thread(loop._core_stats)["gil_contended"] == after["gil_contended"]


def test_adaptive_waits_less_than_plain(new_loop):
    """Beside a busy thread the adaptive loop's waits for the GIL are shorter, clearly."""

    def waits(gil):
        loop = new_loop(gil=gil)
        with Busy():
            start = time.monotonic()
            for _ in range(60):
                run(loop, asyncio.sleep(0.001))
            took = time.monotonic() - start
        loop.close()
        return took

    best = min(waits("adaptive") / waits("plain") for _ in range(3))
    assert best < 0.7, f"adaptive took {best:.2f} of plain"
