"""Timers: deadlines, order, cancelling, what they keep alive, the clock."""

import asyncio
import decimal
import fractions
import gc
import math
import random
import time
import weakref

import pytest

from support.drive import run_until_stopped, turn


class Thing:
    def method(self, *args):
        pass


def test_time_is_the_monotonic_clock(loop):
    for _ in range(200):
        low, here, high = time.monotonic(), loop.time(), time.monotonic()
        assert low <= here <= high
        assert type(here) is float


def test_time_moves_within_a_callback(loop):
    """The clock is read at each call, not once a turn."""
    got = []

    def work():
        first = loop.time()
        time.sleep(0.002)
        got.append(loop.time() - first)

    loop.call_soon(work)
    turn(loop)
    assert got[0] >= 0.002


@pytest.mark.parametrize("delay", [0, 1e-7, 0.0004, 0.001, 0.0015, 0.01, 0.0137])
def test_a_timer_is_never_early(loop, delay):
    got = []
    for _ in range(10):
        handle = loop.call_later(delay, lambda: (got.append(time.monotonic()), loop.stop()))
        run_until_stopped(loop)
        assert got[-1] >= handle.when() - 2e-9


def test_a_timer_is_not_late_by_rounding(loop):
    """A delay of a fraction of a millisecond is not rounded up to several."""
    late = []
    for _ in range(60):
        handle = loop.call_later(0.0012, lambda: (late.append(time.monotonic() - handle.when()), loop.stop()))
        run_until_stopped(loop)
    assert min(late) < 0.0025, f"the best of sixty was {min(late) * 1000:.2f} ms late"


def test_timers_run_by_deadline(loop):
    rng, got = random.Random(7), []
    base = loop.time() + 0.01
    whens = [base + rng.random() * 0.02 for _ in range(500)]
    for when in whens:
        loop.call_at(when, got.append, when)
    loop.call_at(base + 0.021, loop.stop)
    run_until_stopped(loop)
    assert got == sorted(whens)


def test_deadlines_microseconds_apart_keep_their_order(loop):
    got, base = [], loop.time() + 0.005
    order = list(range(40))
    random.Random(3).shuffle(order)
    for i in order:
        loop.call_at(base + i * 1e-6, got.append, i)
    loop.call_at(base + 0.005, loop.stop)
    run_until_stopped(loop)
    assert got == list(range(40))


@pytest.mark.uvpy_only("heapq, which asyncio uses, does not keep the order of more than two equal deadlines")
def test_equal_deadlines_run_in_order_of_creation(loop):
    got, when = [], loop.time() + 0.005
    for i in range(300):
        loop.call_at(when, got.append, i)
    loop.call_at(when + 0.001, loop.stop)
    run_until_stopped(loop)
    assert got == list(range(300))


@pytest.mark.uvpy_only("heapq, which asyncio uses, does not keep the order of more than two equal deadlines")
def test_equal_deadlines_keep_their_order_among_cancelled_ones(loop):
    """Removing from the middle of the heap does not mix up those that stay."""
    got, when, rng = [], loop.time() + 0.01, random.Random(5)
    handles = [loop.call_at(when + i % 3 * 0.001, got.append, (i % 3, i)) for i in range(300)]
    gone = set(rng.sample(range(300), 150))
    for i in gone:
        handles[i].cancel()
    loop.call_at(when + 0.003, loop.stop)
    run_until_stopped(loop)
    assert got == sorted((i % 3, i) for i in range(300) if i not in gone)


def test_a_deadline_in_the_past_runs_in_the_next_turn_by_deadline(loop):
    got, now = [], loop.time()
    for past in (1, 5, 0.5, 1000):
        loop.call_at(now - past, got.append, past)
    loop.call_later(-3, got.append, 3)
    assert got == []
    turn(loop)
    assert got == [1000, 5, 3, 1, 0.5]


def test_a_timer_of_zero_comes_behind_what_is_ready(loop):
    got = []

    def first():
        loop.call_later(0, got.append, "timer")
        for i in range(3):
            loop.call_soon(got.append, i)

    loop.call_soon(first)
    turn(loop, 2)
    assert got == [0, 1, 2, "timer"]


def test_a_timer_that_sets_itself_again_runs_once_a_turn(loop):
    got = []

    def again():
        got.append(1)
        loop.call_later(0, again)

    loop.call_later(0, again)
    for n in range(1, 6):
        turn(loop)
        assert len(got) == n


@pytest.mark.parametrize("where", ["before the run", "soon", "timer", "reader", "threadsafe", "task", "done callback"])
def test_a_sooner_timer_made_anywhere_is_waited_for(loop, sockets, where):
    """With a far timer pending, a nearer one made in any kind of callback fires on time."""
    got = []
    loop.call_later(3600, print)
    a, b = sockets.pair()

    def make():
        loop.remove_reader(a)
        start = time.monotonic()
        loop.call_later(0.01, lambda: (got.append(time.monotonic() - start), loop.stop()))

    async def main():
        await asyncio.sleep(0)
        make()

    if where == "before the run":
        make()
    elif where == "soon":
        loop.call_soon(make)
    elif where == "timer":
        loop.call_later(0.002, make)
    elif where == "reader":
        loop.add_reader(a, make)
        loop.call_later(0.002, b.send, b"!")
    elif where == "threadsafe":
        loop.call_soon_threadsafe(make)
    elif where == "task":
        task = loop.create_task(main())
        task.add_done_callback(bool)
    else:
        fut = loop.create_future()
        fut.add_done_callback(lambda f: make())
        loop.call_later(0.002, fut.set_result, None)
    run_until_stopped(loop)
    assert 0.01 <= got[0] < 5


def test_a_timer_counts_from_its_call(loop):
    """After a callback has blocked, a delay counts from the call, not from a time read at the start of the turn."""
    got = []

    def block():
        time.sleep(0.05)
        start = time.monotonic()
        loop.call_later(0.02, lambda: (got.append(time.monotonic() - start), loop.stop()))

    loop.call_soon(block)
    run_until_stopped(loop)
    assert got[0] >= 0.0199


def test_overdue_timers_run_in_the_first_turn_of_the_next_run(loop):
    got = []
    for delay in (0.004, 0.001, 0.003, 0.002):
        loop.call_later(delay, got.append, delay)
    time.sleep(0.006)
    turn(loop)
    assert got == [0.001, 0.002, 0.003, 0.004]


def test_timers_survive_the_end_of_a_run(loop):
    got = []
    loop.call_later(0.01, lambda: (got.append(1), loop.stop()))
    turn(loop, 3)
    assert got == []
    run_until_stopped(loop)
    assert got == [1]


# ---- arguments


class OnlyFloat:
    def __float__(self):
        return 1.0


@pytest.mark.parametrize("delay", [None, "1", b"1", [], object(), {}, decimal.Decimal(1), OnlyFloat()], ids=repr)
def test_what_is_no_delay_is_a_type_error(loop, delay):
    with pytest.raises(TypeError):
        loop.call_later(delay, print)
    turn(loop)


def test_call_at_without_a_time_is_a_type_error(loop):
    with pytest.raises(TypeError):
        loop.call_at(None, print)
    with pytest.raises(TypeError):
        loop.call_later(1)
    with pytest.raises(TypeError):
        loop.call_at(1)


@pytest.mark.uvpy_only("asyncio takes NaN into its heap, whose order is none from then on")
def test_a_deadline_that_is_no_number_is_refused(loop):
    got = []
    loop.call_later(0.002, got.append, 2)
    for refused in (math.nan, -math.nan):
        for schedule in (loop.call_later, loop.call_at):
            with pytest.raises(ValueError, match="NaN"):
                schedule(refused, got.append, "never")
    loop.call_later(0.001, got.append, 1)
    loop.call_later(0.003, loop.stop)
    loop.run_forever()
    assert got == [1, 2]


@pytest.mark.parametrize("delay", [True, 1, fractions.Fraction(1, 4), 0.25])
def test_numbers_of_all_kinds_are_delays(loop, delay):
    before = loop.time()
    handle = loop.call_later(delay, print)
    assert before + delay <= handle.when() <= loop.time() + delay
    handle.cancel()


@pytest.mark.parametrize("when", [0.1, 1 / 3, 1e-300, 12345.678901234567, 5, -1.5, 1e18])
def test_when_is_exact(loop, when):
    handle = loop.call_at(when, print)
    assert handle.when() == when
    handle.cancel()
    assert handle.when() == when


@pytest.mark.parametrize("delay", [1e6, 1e9, 1e12, 2**31, 2**32 / 1000, 2**63, 1e300, math.inf])
def test_far_deadlines_neither_fire_nor_disturb(loop, delay):
    got = []
    far = loop.call_later(delay, got.append, "far")
    loop.call_later(0.002, lambda: (got.append("near"), loop.stop()))
    run_until_stopped(loop)
    assert got == ["near"]
    far.cancel()


def test_any_number_of_timer_arguments(loop):
    got = []
    for count in (0, 1, 2, 3, 20):
        loop.call_later(0, lambda *a: got.append(a), *range(count))
        loop.call_at(0, lambda *a: got.append(a), *range(count))
    turn(loop)
    assert sorted(map(len, got)) == [0, 0, 1, 1, 2, 2, 3, 3, 20, 20]
    assert all(a == tuple(range(len(a))) for a in got)


# ---- cancelling


def test_cancelling_in_any_order_leaves_the_others(loop):
    rng, got = random.Random(11), []
    base = loop.time() + 0.005
    handles = [loop.call_at(base + rng.random() * 0.01, got.append, i) for i in range(400)]
    order = rng.sample(range(400), 300)
    for i in order:
        handles[i].cancel()
    loop.call_at(base + 0.011, loop.stop)
    run_until_stopped(loop)
    kept = [i for i in range(400) if i not in order]
    assert got == sorted(kept, key=lambda i: handles[i].when())


def test_cancelling_the_first_moves_the_wait_to_the_next(loop):
    """The earliest timer cancelled while the loop waits for it: the next one is neither early nor forgotten."""
    got = []
    first = loop.call_later(0.01, got.append, "first")
    second = loop.call_later(0.03, lambda: (got.append(time.monotonic()), loop.stop()))
    loop.call_later(0.002, first.cancel)
    run_until_stopped(loop)
    assert got[0] >= second.when() - 2e-9


def test_a_due_timer_may_cancel_another_due_one(loop):
    got = []
    now = loop.time()
    loop.call_at(now - 2, lambda: victim.cancel())
    victim = loop.call_at(now - 1, got.append, "victim")
    loop.call_at(now - 0.5, got.append, "other")
    turn(loop)
    assert got == ["other"]


def test_a_timer_may_cancel_itself_and_be_cancelled_afterwards(loop):
    got = []
    handle = loop.call_later(0, lambda: (got.append(1), handle.cancel()))
    turn(loop)
    handle.cancel()
    other = loop.call_later(0, got.append, 2)
    turn(loop)
    handle.cancel()
    other.cancel()
    assert got == [1, 2]
    assert handle.cancelled() and other.cancelled()


def test_a_due_timer_left_by_an_interrupt_can_be_cancelled(loop):
    """A timer that came due, but did not get to run because of an interrupt, runs in the next run unless it is
    cancelled.
    """

    def interrupt():
        raise KeyboardInterrupt

    got, now = [], loop.time()
    loop.call_at(now - 3, interrupt)
    one = loop.call_at(now - 2, got.append, "cancelled")
    loop.call_at(now - 1, got.append, "kept")
    with pytest.raises(KeyboardInterrupt):
        loop.run_forever()
    assert got == []
    one.cancel()
    turn(loop)
    assert got == ["kept"]


def test_cancel_lets_go_of_callback_and_arguments_at_once(loop):
    thing, argument = Thing(), Thing()
    handle = loop.call_later(3600, thing.method, argument)
    alive = weakref.ref(thing), weakref.ref(argument)
    handle.cancel()
    del thing, argument
    assert [ref() for ref in alive] == [None, None]


@pytest.mark.uvpy_only("asyncio keeps cancelled timers until more than half of a hundred are")
def test_a_cancelled_timer_keeps_no_memory(loop):
    handles = [weakref.ref(loop.call_later(3600, print)) for _ in range(10)]
    for ref in handles:
        ref().cancel()
    assert [ref() for ref in handles] == [None] * 10


def test_a_timer_that_ran_lets_go_of_its_arguments(loop):
    thing = Thing()
    alive = weakref.ref(thing)
    loop.call_later(0, thing.method, thing)
    del thing
    turn(loop)
    gc.collect()
    assert alive() is None


def test_timers_made_and_cancelled_by_timers(loop):
    """A storm: each timer that was not cancelled runs once, at or after its deadline, in order of deadlines; no
    other runs.
    """
    rng, ran, waiting, gone = random.Random(1), [], {}, set()

    def add():
        n = len(ran) + len(waiting) + len(gone)
        waiting[n] = loop.call_later(rng.choice((0, 0.001, 0.003)) + rng.random() * 0.004, fire, n)

    def fire(n):
        handle = waiting.pop(n)
        assert time.monotonic() >= handle.when() - 2e-9
        ran.append((handle.when(), n))
        for _ in range(rng.randrange(4)):
            if waiting and rng.random() < 0.5:
                victim = rng.choice(list(waiting))
                waiting.pop(victim).cancel()
                gone.add(victim)
            if len(ran) < 800:
                add()
        if not waiting:
            if len(ran) < 800:
                add()
            else:
                loop.stop()

    for _ in range(200):
        add()
    run_until_stopped(loop)
    assert len({n for _, n in ran}) == len(ran) >= 800
    assert not {n for _, n in ran} & gone


@pytest.mark.parametrize("sizes", [(3, 3, 3), (1000,), (400, 300, 5), (5, 400, 1, 700, 130), (130,) * 12])
def test_timers_made_in_batches_run_in_order(loop, kind, sizes):
    """However many are made in a turn, some with one deadline, and wherever the cancelled ones were among them.

    Only ours keeps equal deadlines in order of creation: asyncio's heap forgets it.
    """
    rng, ran, expected, now = random.Random(2), [], [], loop.time()

    def make(size):
        made = []
        for _ in range(size):
            when = now + 0.25 + rng.randrange(500) * 1e-5
            number = len(expected)
            expected.append((when, number))
            made.append(loop.call_at(when, ran.append, (when, number)))
        waiting.extend(made)
        for handle in rng.sample(waiting, size // 3):
            handle.cancel()

    waiting = []
    for size in sizes:
        loop.call_soon(make, size)
        turn(loop, 2)
    expected = [one for one, handle in zip(expected, waiting, strict=True) if not handle.cancelled()]
    assert len(loop._scheduled) >= len(expected)
    loop.call_at(now + 0.26, loop.stop)
    run_until_stopped(loop)
    assert sorted(ran) == sorted(expected)
    assert [when for when, _ in ran] == sorted(when for when, _ in ran)
    if kind == "uvpy":
        assert ran == sorted(expected)


def test_the_list_of_timers_has_all_that_wait(loop):
    def make(size):
        handles.extend(loop.call_later(3600 + number * 7919 % size, print) for number in range(size))

    handles = []
    for size in (5, 200, 300, 3):
        loop.call_soon(make, size)
        turn(loop, 3)
        handles.pop(len(handles) // 2).cancel()
        waiting = [handle for handle in loop._scheduled if not handle.cancelled()]
        assert sorted(map(id, waiting)) == sorted(map(id, handles))
        assert loop._scheduled[0] is min(waiting, key=lambda handle: handle.when())


@pytest.mark.parametrize("kept", ["not kept", "kept", "kept weakly"])
@pytest.mark.parametrize("end", ["waits", "ran", "cancelled"])
@pytest.mark.parametrize("size", [1, 300])
def test_cycles_through_timers_are_collected(new_loop, kept, end, size):
    loop = new_loop()
    things = []

    def make():
        for _ in range(size):
            thing = Thing()
            handle = loop.call_later(0 if end == "ran" else 3600, Thing.method, thing)
            if kept == "kept":
                thing.handle = handle
            elif kept == "kept weakly":
                thing.handle = weakref.ref(handle)
            if end == "cancelled":
                handle.cancel()
            things.append(weakref.ref(thing))

    loop.call_soon(make)
    turn(loop, 3)
    gc.collect()
    if end == "waits":
        assert None not in [ref() for ref in things]
        loop.close()
    gc.collect()
    assert [ref() for ref in things] == [None] * size
    loop.close()


# ---- what asyncio builds on them


async def test_sleeps_end_by_deadline(loop):
    got = []

    async def sleeper(delay):
        # The deadline counts from here: a slow machine may take longer to come here than the delays differ.
        deadline = loop.time() + delay
        await asyncio.sleep(delay)
        got.append(deadline)

    await asyncio.gather(*map(sleeper, [0.012, 0.003, 0.009, 0.006, 0]))
    assert got == sorted(got)


async def test_a_timeout_can_be_moved(loop):
    async with asyncio.timeout(3600) as scope:
        scope.reschedule(loop.time() + 3600)
        scope.reschedule(None)
        await asyncio.sleep(0.002)
    assert not scope.expired()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(3600) as scope:
            scope.reschedule(loop.time() + 0.005)
            await loop.create_future()
    assert scope.expired()


async def test_wait_for_cancels_what_is_late(loop):
    got = []

    async def slow():
        try:
            await asyncio.sleep(3600)
        finally:
            got.append("cleaned")

    with pytest.raises(TimeoutError):
        await asyncio.wait_for(slow(), 0.005)
    assert got == ["cleaned"]
    assert await asyncio.wait_for(asyncio.sleep(0.001, "x"), 3600) == "x"
