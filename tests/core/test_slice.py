"""The slice of the loop's own thread, which is short while the loop waits beside a busy thread: that it is, and that
nobody sees it in a callback, inherits it, or loses by it what was set.
"""

import asyncio
import os
import statistics
import sys
import threading
import time

import pytest

from support import slices
from support.beside import Watched, beside, parks, talk
from support.drive import run
from support.slices import BATCH, LOOPS, RESET_ON_FORK, attributes, set_slice, slice_of

pytestmark = [
    pytest.mark.uvpy_only("asyncio does not touch its thread's slice"),
    pytest.mark.skipif(bool(slices.why_not()), reason=slices.why_not() or "there are slices"),
]


def here():
    return threading.get_native_id()


class Looking(Watched):
    """Busy, with a look at this thread between; `seen` has what was true of it."""

    def __init__(self):
        thread, self.seen = here(), []
        super().__init__(lambda: self.seen.append(attributes(thread)))

    def slices(self):
        return {found[3] for found in self.seen}


@pytest.fixture
def kernels():
    """The kernel's slice, which is in force after each test, with the policy and nice as before."""
    before = attributes()
    yield before[3]
    assert attributes() == before


# ---- when it is short


def test_it_is_short_while_the_loop_waits_and_never_in_a_callback(new_loop, kernels):
    callbacks = set()

    async def main():
        for _ in range(60):
            await asyncio.sleep(0.001)
            callbacks.add(slice_of())

    with Looking() as looking:
        run(new_loop(), main())
    assert LOOPS in looking.slices()
    assert callbacks == {kernels}


def test_nobody_contends(new_loop, kernels):
    """A thread that looks and does not compute."""
    thread, seen, stop = here(), set(), threading.Event()

    def look():
        while not stop.is_set():
            seen.add(slice_of(thread))
            time.sleep(0.0002)

    looking = threading.Thread(target=look)
    looking.start()
    run(new_loop(), parks(200))
    stop.set()
    looking.join()
    assert seen == {kernels}


def test_plain_leaves_it_alone(new_loop, kernels):
    import uvpy

    loop = uvpy.new_event_loop(gil="plain")
    try:
        with Looking() as looking:
            run(loop, parks(40))
    finally:
        loop.close()
    assert looking.slices() == {kernels}


@pytest.mark.parametrize("interval", [0.0001, 0.01])
def test_with_an_interval_of_the_users_it_is_left_alone(new_loop, kernels, interval):
    before = sys.getswitchinterval()
    sys.setswitchinterval(interval)
    try:
        with Looking() as looking:
            run(new_loop(), parks(60))
    finally:
        sys.setswitchinterval(before)
    assert looking.slices() == {kernels}


def test_a_loop_that_is_never_at_rest_leaves_it_alone(new_loop, kernels):
    """Setting it starts the thread's turn anew: so often that would keep the busy thread off the core."""
    loop = new_loop()
    with Looking() as looking:
        run(loop, parks(40))
        count = len(looking.seen)
        run(loop, talk(time.monotonic() + 0.5))
        shares = [found[3] == LOOPS for found in looking.seen[count:]]
    assert shares
    assert statistics.fmean(shares) < 0.5


# ---- what ends the wait


@pytest.mark.parametrize("error", [SystemExit, KeyboardInterrupt])
def test_it_is_the_kernels_after_an_exception(new_loop, kernels, error):
    loop = new_loop()

    def leave():
        raise error

    async def main():
        await parks(40)
        loop.call_soon(leave)
        await asyncio.sleep(10)

    task = loop.create_task(main())
    with Looking() as looking:
        with pytest.raises(error):
            loop.run_until_complete(task)
        assert slice_of() == kernels
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            loop.run_until_complete(task)
        loop.close()
        assert slice_of() == kernels
    assert LOOPS in looking.slices()


def test_it_is_the_kernels_after_ctrl_c_in_the_wait():
    said = beside(
        """
import os, signal
from support.slices import LOOPS, slice_of
signal.signal(signal.SIGINT, signal.default_int_handler)
thread, kernels = threading.get_native_id(), slice_of()
loop = uvpy.new_event_loop()
async def main():
    for _ in range(50):
        await parks(20)
        await asyncio.sleep(0.1)
def interrupt():
    while slice_of(thread) != LOOPS:
        pass
    os.kill(os.getpid(), signal.SIGINT)
loop.run_until_complete(parks(60))
loop.call_soon(threading.Thread(target=interrupt, daemon=True).start)
try:
    loop.run_until_complete(main())
    print("not interrupted")
except KeyboardInterrupt:
    print(slice_of() == kernels)
end()
for task in asyncio.all_tasks(loop):
    task.cancel()
    try:
        loop.run_until_complete(task)
    except asyncio.CancelledError:
        pass
loop.close()
""",
        env={"PYTHONPATH": os.path.dirname(os.path.dirname(__file__))},
    )
    assert said == "True"


def test_stop_from_a_thread_ends_the_wait(new_loop, kernels):
    loop = new_loop()
    with Looking() as looking:
        run(loop, parks(40))
        timer = threading.Timer(0.05, loop.call_soon_threadsafe, (loop.stop,))
        timer.start()
        loop.run_forever()
        assert slice_of() == kernels
        timer.join()
    assert LOOPS in looking.slices()


# ---- nobody inherits it


def test_threads_and_children_of_a_callback_have_the_kernels(new_loop, kernels):
    seen = []

    async def main():
        loop = asyncio.get_running_loop()
        await parks(40)
        for _ in range(5):
            await asyncio.sleep(0.002)
            seen.append(await loop.run_in_executor(None, slice_of))
            thread = threading.Thread(target=lambda: seen.append(slice_of()))
            thread.start()
            thread.join()
            pid = os.fork()
            if pid == 0:
                os._exit(0 if slice_of() == kernels else 7)
            seen.append(kernels if os.waitpid(pid, 0)[1] == 0 else "a child's")
        await loop.shutdown_default_executor()

    with Looking() as looking:
        run(new_loop(), main())
    assert len(seen) == 15
    assert set(seen) == {kernels}
    assert LOOPS in looking.slices()


def test_a_child_forked_by_another_thread_in_the_wait_has_the_kernels(new_loop, kernels):
    loop, thread, results = new_loop(), here(), []

    def fork():
        while len(results) < 5:
            if slice_of(thread) == LOOPS:
                pid = os.fork()
                if pid == 0:
                    os._exit(0 if slice_of() == kernels else 7)
                results.append(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))

    forking = threading.Thread(target=fork)

    async def main():
        await parks(60)
        forking.start()
        while forking.is_alive():
            await asyncio.sleep(0.02)

    with Watched(lambda: None):
        run(loop, main())
    assert results == [0] * 5


# ---- what was set by somebody


@pytest.fixture
def elsewhere():
    """Runs what a test does in a thread of its own, which it may change as it likes."""

    def call(what, *args):
        result = []

        def target():
            try:
                result.append((what(*args), None))
            except BaseException as error:
                result.append((None, error))

        thread = threading.Thread(target=target)
        thread.start()
        thread.join()
        value, error = result[0]
        if error:
            raise error
        return value

    return call


def waits_beside_one(new_loop, count=60):
    with Looking() as looking:
        run(new_loop(), parks(count))
    return looking


@pytest.mark.parametrize("nanoseconds", [LOOPS, 1_000_000, 20_000_000])
def test_a_slice_of_the_users_is_left_alone(new_loop, elsewhere, nanoseconds):
    """The one that the loop would set, too."""

    def work():
        set_slice(nanoseconds)
        looking = waits_beside_one(new_loop)
        # The first look takes it away for a moment, between two system calls.
        return statistics.mode(found[3] for found in looking.seen), LOOPS in looking.slices(), slice_of()

    assert elsewhere(work) == (nanoseconds, nanoseconds == LOOPS, nanoseconds)


def test_a_slice_that_the_user_sets_in_a_callback_ends_it(new_loop, elsewhere):
    async def main(looking):
        await parks(60)
        before = looking.slices()
        set_slice(3_000_000)
        await asyncio.sleep(0.005)
        looking.seen.clear()
        await parks(40)
        return LOOPS in before, looking.slices()

    def work():
        with Looking() as looking:
            found = run(new_loop(), main(looking))
        return *found, slice_of()

    assert elsewhere(work) == (True, {3_000_000}, 3_000_000)


def test_nice_and_flags_are_kept(new_loop, elsewhere):
    """Also where nice is changed from outside while the loop waits."""

    def work():
        os.sched_setscheduler(0, os.SCHED_OTHER | os.SCHED_RESET_ON_FORK, os.sched_param(0))
        os.setpriority(os.PRIO_PROCESS, 0, 3)
        first = waits_beside_one(new_loop)
        thread, changed = here(), []

        def renice():
            if not changed and slice_of(thread) == LOOPS:
                os.setpriority(os.PRIO_PROCESS, thread, 7)
                changed.append(True)

        with Watched(renice):
            run(new_loop(), parks(60))
        return LOOPS in first.slices(), {found[:3] for found in first.seen}, changed, attributes()[:3]

    other = os.SCHED_OTHER
    assert elsewhere(work) == (True, {(other, RESET_ON_FORK, 3)}, [True], (other, RESET_ON_FORK, 7))


def test_another_policy_is_left_alone(new_loop, elsewhere):
    def work():
        os.sched_setscheduler(0, BATCH, os.sched_param(0))
        before = attributes()
        looking = waits_beside_one(new_loop)
        return before == attributes(), set(looking.seen) == {before}, before[0]

    assert elsewhere(work) == (True, True, BATCH)


# ---- where the kernel is told to refuse

FILTER = """
import ctypes, struct
def refuse(number, action):
    code = struct.pack("HBBI", 0x20, 0, 0, 0)  # the call's number
    code += struct.pack("HBBI", 0x15, 0, 1, number)
    code += struct.pack("HBBI", 0x06, 0, 0, action)
    code += struct.pack("HBBI", 0x06, 0, 0, 0x7FFF0000)  # anything else is allowed
    buffer = ctypes.create_string_buffer(code, len(code))
    program = ctypes.create_string_buffer(struct.pack("HxxxxxxP", 4, ctypes.addressof(buffer)))
    libc = ctypes.CDLL(None)
    assert libc.prctl(38, 1, 0, 0, 0) == 0
    assert libc.prctl(22, 2, program) == 0, "no filters here"
"""
KILL, NOT_PERMITTED = 0x80000000, 0x00050001


@pytest.mark.parametrize("action", [KILL, NOT_PERMITTED], ids=["the process is killed", "the call is refused"])
def test_a_filter_of_system_calls(action):
    """Where the call that sets a slice would end the process, as services are set up to, it must not be made."""
    said = beside(
        f"""
{FILTER}
refuse({slices.NUMBERS[1] if slices.NUMBERS else 0}, {action})
loop = uvpy.new_event_loop()
loop.run_until_complete(parks(60))
print(loop._core_stats()["gil_contended"] > 3)
end()
loop.close()
"""
    )
    assert said == "True"
