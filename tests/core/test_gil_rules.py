"""Patience with threads that hold the GIL: when the loop shortens the switch interval, and that nobody else sees it.

What the loop sets is recorded in a fresh interpreter, whose sys.setswitchinterval() is a wrapper before uvpy is
imported; what is in force is asked by the threads beside the loop.
"""

import asyncio
import os
import statistics
import sys
import threading
import time

import pytest

from support.beside import DEFAULT, SHORT, Watched, beside, parks, recorded
from support.drive import run, start_thread

pytestmark = pytest.mark.uvpy_only("asyncio does not touch the switch interval")

# ---- where nobody contends


def test_nothing_is_done_where_nobody_contends():
    """The interval is never set, no wait of the loop's counts as contended, and the GIL is given up in each park."""
    said = recorded(
        """
loop = uvpy.new_event_loop()
loop.run_until_complete(parks(500))
stats = loop._core_stats()
loop.close()
print(len(calls), stats["gil_released"] >= 500)
""",
        busy=0,
    )
    assert said == "0 True"


def test_threads_that_wait_are_no_contention():
    """Threads that give the GIL up themselves, by sleeping or waiting, are served without a shorter interval."""
    said = recorded(
        """
import time
loop = uvpy.new_event_loop()
sleepers = [threading.Thread(target=lambda: [time.sleep(0.0005) for _ in range(300)]) for _ in range(3)]
for thread in sleepers:
    thread.start()
loop.run_until_complete(parks(200))
for thread in sleepers:
    thread.join()
loop.close()
print(len(calls))
""",
        busy=0,
    )
    assert said == "0"


def test_an_idle_loop_is_not_woken(new_loop):
    """A loop that sleeps is parked once; the bound on patience wakes only a loop that was impatient."""
    loop = new_loop()
    before = loop._core_stats()["gil_released"]
    run(loop, asyncio.sleep(1.5))
    assert loop._core_stats()["gil_released"] - before <= 2


def test_patience_wakes_an_idle_loop_once(new_loop):
    """When the busy thread has gone, a loop that was impatient is woken to put the interval back, and not again."""
    loop = new_loop()
    with Watched(lambda: None):
        run(loop, parks(40))
    before = loop._core_stats()["gil_released"]
    run(loop, asyncio.sleep(3.2))
    assert loop._core_stats()["gil_released"] - before <= 3


# ---- where somebody does


def test_beside_a_busy_thread_the_interval_is_shortened_and_put_back():
    said = recorded(
        f"""
loop = uvpy.new_event_loop()
loop.run_until_complete(parks(60))
now = sys.getswitchinterval()
end()
loop.close()
short = [seconds for seconds in calls if seconds < {SHORT}]
print(len(short) > 10, len(short) == len(calls) - len(short), set(calls) - set(short), now)
"""
    )
    assert said == f"True True {{{DEFAULT}}} {DEFAULT}"


TALK = """
import socket, time
async def talk(seconds):
    a, b = socket.socketpair()
    for each in (a, b):
        each.setblocking(False)
    came = asyncio.Queue()
    loop.add_reader(b, lambda: came.put_nowait(b.recv(1)))
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        a.send(b"x")
        await came.get()
    loop.remove_reader(b)
    a.close()
    b.close()
def share(seconds):
    count, before = len(calls), loop._core_stats()["gil_released"]
    loop.run_until_complete(talk(seconds))
    return (len(calls) - count) / 2 / (loop._core_stats()["gil_released"] - before)
loop = uvpy.new_event_loop()
loop.run_until_complete(parks(60))
"""


def test_a_loop_that_is_never_at_rest_does_not_forget_the_busy_thread():
    """Where the loop often has the GIL again before the busy thread has woken up, it is not taken to be alone."""
    said = recorded(f"{TALK}\nprint(share(0.6))\nend()\nloop.close()")
    assert float(said) > 0.98


def test_a_loop_that_is_never_at_rest_forgets_a_thread_that_has_gone():
    said = recorded(f"""{TALK}
end()
before = share(0.1)
for _ in range(8):
    contended = loop._core_stats()["gil_contended"]
    share(1.1)
    if loop._core_stats()["gil_contended"] == contended:
        print(before > 0, share(0.1))
        break
loop.close()
""")
    if not said:
        pytest.skip("the process is taken off its core so often that it seems to wait for the GIL")
    assert said == "True 0.0"


@pytest.mark.parametrize("how", ["keyword", "environment"])
def test_plain_sets_nothing(how):
    make = "uvpy.new_event_loop(gil='plain')" if how == "keyword" else "uvpy.new_event_loop()"
    said = recorded(
        f"""
loop = {make}
loop.run_until_complete(parks(40))
stats = loop._core_stats()
end()
loop.close()
print(len(calls), stats["gil_contended"] > 10)
""",
        env={"UVPY_GIL": "plain"} if how == "environment" else {},
    )
    assert said == "0 True"


@pytest.mark.parametrize("interval", [0.0001, 0.00005, 0.001, 0.004, 0.01])
def test_with_an_interval_of_the_users_nothing_is_set(interval):
    """Whatever it is; 0.1 ms is what programs set that know of the matter."""
    said = recorded(
        f"""
real({interval})
here = sys.getswitchinterval()
loop = uvpy.new_event_loop()
loop.run_until_complete(parks(60))
end()
loop.close()
print(calls, sys.getswitchinterval() == here)
"""
    )
    assert said == "[] True"


@pytest.mark.parametrize("interval", [0.0001, 0.004])
def test_an_interval_of_the_users_ends_it(interval):
    """Set in a callback of a loop that is impatient: from then on nothing is set."""
    said = recorded(
        f"""
loop = uvpy.new_event_loop()
async def main():
    await parks(60)
    real({interval})
    count = len(calls)
    await parks(60)
    return count, len(calls) - count
count, more = loop.run_until_complete(main())
end()
loop.close()
print(count > 0, more, round(sys.getswitchinterval(), 5))
"""
    )
    assert said == f"True 0 {interval}"


def test_the_users_interval_is_back_after_system_exit(new_loop):
    loop = new_loop()

    async def main():
        await parks(40)
        loop.call_soon(sys.exit)
        await asyncio.sleep(10)

    task = loop.create_task(main())
    with Watched(lambda: None):
        with pytest.raises(SystemExit):
            loop.run_until_complete(task)
        assert sys.getswitchinterval() == DEFAULT
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            loop.run_until_complete(task)
        assert sys.getswitchinterval() == DEFAULT


def test_the_users_interval_is_back_after_ctrl_c():
    """A signal that ends the wait itself, of a loop that waits with the short interval."""
    said = beside(
        f"""
import os, signal
signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored where the tests run in the background
loop = uvpy.new_event_loop()
async def main():
    for _ in range(50):
        await parks(20)
        await asyncio.sleep(0.1)
loop.run_until_complete(parks(60))
def interrupt():
    while sys.getswitchinterval() > {SHORT}:
        pass
    os.kill(os.getpid(), signal.SIGINT)
loop.call_soon(threading.Thread(target=interrupt, daemon=True).start)
try:
    loop.run_until_complete(main())
    print("not interrupted")
except KeyboardInterrupt:
    print(sys.getswitchinterval())
end()
for task in asyncio.all_tasks(loop):
    task.cancel()
    try:
        loop.run_until_complete(task)
    except asyncio.CancelledError:
        pass
loop.close()
"""
    )
    assert said == str(DEFAULT)


def sleeps():
    for _ in range(20):
        time.sleep(0.001)


def computes():
    end = time.thread_time() + 0.03
    while time.thread_time() < end:
        sum(range(50))


@pytest.mark.parametrize("work", [sleeps, computes])
def test_other_threads_see_the_users_interval_while_a_callback_runs(new_loop, work):
    """Whether it lets them in because the interval is over, or because it drops the GIL itself."""
    loop, state = new_loop(), {"callback": 0, "looks": 0}
    seen = set()

    def look():
        before = state["callback"]
        interval = sys.getswitchinterval()
        if before % 2 and state["callback"] == before:
            seen.add(interval)
            state["looks"] += 1

    async def main():
        await parks(40)
        for _ in range(4):
            await asyncio.sleep(0.001)
            state["callback"] += 1
            work()
            state["callback"] += 1

    with Watched(look):
        run(loop, main())
    assert state["looks"] > 0
    assert seen == {DEFAULT}


def test_a_long_park_with_the_short_interval_is_bounded(new_loop):
    """A loop that sleeps on leaves the threads beside it their own interval."""
    loop, seen = new_loop(), []

    def look():
        seen.append((time.monotonic(), sys.getswitchinterval()))

    with Watched(look):
        run(loop, parks(40))
        begun = time.monotonic()
        run(loop, asyncio.sleep(2.5))
    early = {interval for at, interval in seen if begun < at < begun + 0.8}
    late = {interval for at, interval in seen if begun + 1.6 < at < begun + 2.4}
    assert min(early) < SHORT, "the loop was not impatient: nothing is shown"
    assert late == {DEFAULT}


def test_a_thread_that_was_forgotten_is_known_by_one_slow_wait():
    """After a rest of the loop's in which it gave the interval back. Up to five times, for a process that is taken off
    its core waits longer, or for less long, than the threads beside it make it.
    """
    said = recorded(
        """
loop = uvpy.new_event_loop()
def slow(): return loop._core_stats()["gil_contended"]
def settings(work):
    before = len(calls)
    loop.run_until_complete(work)
    return len(calls) - before
found = []
while len(found) < 5 and (2, True, 2) not in found:
    loop.run_until_complete(parks(60))
    rest = settings(asyncio.sleep(2.5))
    before = slow()
    for _ in range(50):
        loop.run_until_complete(parks(1))
        if slow() > before:
            break
    found.append((rest, slow() > before, settings(parks(1))))
print(found[-1])
end()
loop.close()
"""
    )
    assert said == "(2, True, 2)"


def test_loops_in_threads_count_together(new_loop):
    """The end of one loop's wait does not put the interval back under another that still waits."""
    first, second = new_loop(), new_loop()
    parked, seen = threading.Event(), []

    async def long_wait():
        await parks(60)
        for _ in range(5):
            parked.set()
            await asyncio.sleep(0.9)

    with Watched(lambda: None):
        run(second, parks(40))
        join = start_thread(run, first, long_wait())
        for _ in range(5):
            assert parked.wait(10)
            run(second, parks(5))
            seen.append(sys.getswitchinterval())
            parked.clear()
        join()
        # Of all the looks some may come when the first has just woken up, or not yet gone to sleep.
        assert statistics.median(seen) < SHORT
        assert sys.getswitchinterval() == DEFAULT


@pytest.mark.skipif(not hasattr(os, "fork"), reason="fork")
def test_a_child_forked_while_the_loop_waits_has_the_users_interval():
    said = beside(
        f"""
import os, warnings
warnings.simplefilter("ignore")
loop = uvpy.new_event_loop()
results = []
def fork():
    while len(results) < 5:
        if sys.getswitchinterval() < {SHORT}:
            pid = os.fork()
            if pid == 0:
                os._exit(0 if sys.getswitchinterval() == {DEFAULT} else 7)
            results.append(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
thread = threading.Thread(target=fork, daemon=True)
async def main():
    await parks(60)
    thread.start()
    while thread.is_alive():
        await asyncio.sleep(0.02)
loop.run_until_complete(main())
end()
loop.close()
print(set(results))
""",
        timeout=60,
    )
    assert said == "{0}"


@pytest.mark.skipif(sys.version_info < (3, 12), reason="one GIL and one interval for all interpreters")
def test_another_interpreters_interval_is_its_own():
    """Each interpreter has a GIL and an interval of its own; the loop's patience is with its own interpreter only."""
    module = "_interpreters" if sys.version_info >= (3, 13) else "_xxsubinterpreters"
    said = recorded(
        f"""
import os, {module} as interpreters
other = interpreters.create()
told, tell = os.pipe()
code = '''
import os, sys, time
seen = set()
end = time.monotonic() + 0.4
while time.monotonic() < end:
    seen.add(sys.getswitchinterval())
os.write(''' + str(tell) + ''', repr(seen).encode())
'''
thread = threading.Thread(target=lambda: interpreters.run_string(other, code))
thread.start()
loop = uvpy.new_event_loop()
loop.run_until_complete(parks(150))
thread.join()
interpreters.destroy(other)
end()
loop.close()
print(min(calls) < {SHORT}, os.read(told, 1000).decode())
"""
    )
    assert said == f"True {{{DEFAULT}}}"
