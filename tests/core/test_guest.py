"""Other extensions on the loop's libuv (csrc/core/guest, uvpy/include/uvpy.h): one is built with setuptools, as users
build theirs, and its handles live on our loop. All of it is uvpy's own: stock asyncio has no libuv. How it ends is in
test_guest_ends.py.
"""

import asyncio
import gc
import threading
import time
import weakref
from pathlib import Path

import pytest

from support import guests
from support.drive import eventually, run, turn

uvpy = pytest.importorskip("uvpy")
pytestmark = pytest.mark.uvpy_only("stock asyncio has no libuv")


# ---- the capsule


def test_the_capsule_and_its_table(guest, loop, capsule):
    assert type(capsule).__name__ == "PyCapsule"
    assert '"uvpy.uv_loop_t"' in repr(capsule)
    table = guest.table(capsule)
    assert table["abi"] == 1
    assert table["size"] == table["known_size"]
    version = table["uv_version"]
    assert f"{version >> 16}.{version >> 8 & 255}.{version & 255}" == uvpy.libuv_version
    assert uvpy.libuv_loop_ptr(loop=loop) is not capsule


def test_the_header_is_in_the_package():
    folder = Path(uvpy.get_include())
    assert folder == Path(uvpy.__file__).absolute().parent / "include"
    assert {path.name for path in folder.iterdir()} == {"uvpy.h"}


def test_a_guest_built_with_another_uv_h(tmp_path, capsule, loop):
    """It asks our libuv for the sizes, so it works with whatever header it was built with."""
    if not guests.own_headers():
        pytest.skip("only one uv.h here")
    other = guests.load(guests.build(tmp_path, guests.own_headers()))
    assert other.table(capsule)["uv_version"] > 0
    fired = []
    timer = other.Handle(capsule, "timer", lambda: fired.append(1))
    timer.start(1)
    run(loop, eventually(lambda: fired))
    timer.close()
    turn(loop, 2)
    assert other.alive() == 0


@pytest.mark.parametrize("wrong", [None, 7, asyncio.SelectorEventLoop])
def test_what_is_no_loop_of_ours_is_refused(wrong):
    with pytest.raises(TypeError, match="a uvpy loop is required, not "):
        uvpy.libuv_loop_ptr(wrong)
    with pytest.raises(TypeError):
        uvpy.libuv_loop_ptr()


def test_another_capsule_is_refused(guest):
    import datetime  # has one

    with pytest.raises(ValueError, match="PyCapsule_GetPointer"):
        guest.table(datetime.datetime_CAPI)


def test_a_closed_loop_has_none(raw_loop):
    loop = raw_loop()
    loop.close()
    with pytest.raises(RuntimeError, match=r"^Event loop is closed$"):
        uvpy.libuv_loop_ptr(loop)


def test_the_capsule_keeps_the_loop_alive(guest, make_loop):
    loop = make_loop()
    capsule = uvpy.libuv_loop_ptr(loop)
    ref = weakref.ref(loop)
    loop.close()
    del loop
    gc.collect()
    assert ref() is not None
    with pytest.raises(OSError, match="ECANCELED"):
        guest.Handle(capsule, "timer", None)
    del capsule
    gc.collect()
    assert ref() is None


# ---- timers


@pytest.mark.parametrize("with_timer", [False, True])
def test_a_timer_fires_on_time(guest, loop, capsule, with_timer):
    """With nothing else to wait for, and beside a timer of the loop that is due much later."""
    done = loop.create_future()
    timer = guest.Handle(capsule, "timer", lambda: done.set_result(time.monotonic()))
    if with_timer:
        late = loop.call_later(20, bool)
    start = time.monotonic()
    timer.start(30)
    took = run(loop, asyncio.wait_for(done, 5)) - start
    assert 0.028 < took < 1.0  # libuv counts whole milliseconds
    if with_timer:
        late.cancel()
    timer.close()


def test_a_timer_fires_beside_busy_handles(guest, loop, capsule):
    """Turns that never block, with nothing of ours registered, poll all the same."""
    fired = []
    timer = guest.Handle(capsule, "timer", lambda: fired.append(1))
    timer.start(5)

    async def busy():
        end = time.monotonic() + 5
        while not fired and time.monotonic() < end:
            await asyncio.sleep(0)

    run(loop, busy())
    assert fired == [1]
    timer.close()


def test_a_timer_counts_from_its_start(guest, loop, capsule):
    """Not from the loop's last look at the clock."""
    turn(loop)
    time.sleep(0.06)
    fired = []
    timer = guest.Handle(capsule, "timer", lambda: fired.append(1))
    timer.start(50)
    turn(loop, 3)
    assert fired == []
    run(loop, eventually(lambda: fired))
    timer.close()


def test_a_repeating_timer_and_its_stop(guest, loop, capsule):
    fired = []
    timer = guest.Handle(capsule, "timer", lambda: fired.append(1))
    timer.start(1, 1)
    run(loop, eventually(lambda: len(fired) >= 5))
    assert timer.stop() == 0
    count = len(fired)
    turn(loop, 5)
    assert len(fired) == count
    assert timer.again() == 0
    run(loop, eventually(lambda: len(fired) > count))
    timer.close()


def test_a_timer_of_nothing_that_starts_itself_again_leaves_room(guest, loop, capsule):
    fired = []
    timer = None

    def again():
        fired.append(1)
        timer.start(0)

    timer = guest.Handle(capsule, "timer", again)
    timer.start(0)
    seen = []
    loop.call_later(0.02, seen.append, 1)
    run(loop, eventually(lambda: seen and len(fired) > 3))
    timer.close()


# ---- other kinds


def test_an_async_from_a_thread_without_python(guest, loop, capsule):
    """The loop is parked, and has given the GIL up."""
    got = []
    done = loop.create_future()

    def arrived():
        got.append(threading.get_ident())
        if not done.done():
            done.set_result(None)

    handle = guest.Handle(capsule, "async", arrived)
    loop.call_soon(handle.begin_sending, True)
    run(loop, asyncio.wait_for(done, 5))
    handle.end_sending()
    assert set(got) == {threading.get_ident()}
    handle.close()


def test_asyncs_from_a_thread_that_never_stops(guest, loop, capsule):
    got = []
    handle = guest.Handle(capsule, "async", lambda: got.append(1))
    handle.begin_sending(False)
    run(loop, eventually(lambda: len(got) > 100))
    handle.end_sending()
    handle.close()


def test_a_stream(guest, loop, capsule, sockets):
    """alloc_cb is the first callback after the poll: it takes no GIL, the read callback does."""
    ours, theirs = sockets.pair()
    got = []
    pipe = guest.Handle(capsule, "pipe", got.append, ours.detach())
    pipe.start()
    loop.call_later(0.01, theirs.send, b"hello")
    run(loop, eventually(lambda: got))
    assert pipe.write(b"good bye") == 8
    assert theirs.recv(99) == b"good bye"
    theirs.close()
    run(loop, eventually(lambda: len(got) == 2))
    assert got == [b"hello", b""]
    pipe.close()


def test_a_poll(guest, loop, capsule, sockets):
    ours, theirs = sockets.pair()
    got = []
    poll = guest.Handle(capsule, "poll", lambda: got.append(ours.recv(99)), ours.fileno())
    poll.start()
    loop.call_later(0.01, theirs.send, b"!")
    run(loop, eventually(lambda: got))
    assert got == [b"!"]
    assert poll.stop() == 0
    poll.close()


def test_idle_prepare_and_check_run_each_turn(guest, loop, capsule):
    """An idle handle keeps the loop from blocking; the GIL is there for those that run before the poll and after it."""
    seen = []
    handles = [
        guest.Handle(capsule, kind, lambda kind=kind: seen.append(kind)) for kind in ("check", "prepare", "idle")
    ]
    for handle in handles:
        handle.start()
    run(loop, eventually(lambda: seen.count("idle") > 20))
    assert {seen.count(kind) - seen.count("idle") for kind in ("check", "prepare")} <= {-1, 0, 1}
    for handle in handles:
        assert handle.stop() == 0
    count = len(seen)
    turn(loop, 3)
    assert len(seen) == count
    # A prepare handle that is started late runs before the loop's own, which gives the GIL up and must be the last.
    handles[1].start()
    handles[0].start()
    run(loop, asyncio.sleep(0.01))
    assert len(seen) > count
    for handle in handles:
        handle.close()


def test_what_a_callback_schedules_runs_behind(guest, loop, capsule):
    order = []
    timer = guest.Handle(capsule, "timer", lambda: (order.append("guest"), loop.call_soon(order.append, "after")))
    timer.start(0)
    time.sleep(0.003)
    for n in range(3):
        loop.call_soon(order.append, n)
    turn(loop, 3)
    assert order == ["guest", 0, 1, 2, "after"]
    timer.close()


def test_stop_from_a_callback(guest, loop, capsule):
    timer = guest.Handle(capsule, "timer", loop.stop)
    timer.start(1)
    loop.run_forever()
    timer.close()


# ---- errors


@pytest.mark.parametrize("careless", [False, True])
def test_an_exception_goes_to_the_handler(guest, loop, capsule, errors, careless):
    """Also one that a callback leaves behind instead of reporting it."""
    problem = ZeroDivisionError("mine")

    def fail():
        raise problem

    timer = guest.Handle(capsule, "timer", fail)
    timer.careless = careless
    timer.start(1)
    found = []
    run(loop, eventually(lambda: found.extend(errors.take()) or found))
    (context,) = found
    assert context["exception"] is problem
    assert context["message"] == (
        "Exception in a libuv callback of an extension" if careless else "Exception in a guest"
    )
    timer.close()


@pytest.mark.parametrize("kind_of_exit", [KeyboardInterrupt, SystemExit])
def test_an_exit_ends_the_run_and_other_callbacks_wait(guest, loop, capsule, kind_of_exit):
    ran = []

    def leave():
        ran.append("leave")
        raise kind_of_exit("out")

    first = guest.Handle(capsule, "timer", leave)
    second = guest.Handle(capsule, "timer", lambda: ran.append("second"))
    first.start(1)
    second.start(1, 1)
    time.sleep(0.003)
    with pytest.raises(kind_of_exit, match="out"):
        run(loop, asyncio.sleep(5))
    assert ran == ["leave"]
    assert second.refused == 1
    run(loop, eventually(lambda: "second" in ran))
    first.close()
    second.close()
    turn(loop, 2)


def test_an_exception_handler_that_exits(guest, raw_loop):
    loop = raw_loop()

    def handler(loop, context):
        raise SystemExit("from the handler")

    loop.set_exception_handler(handler)
    timer = guest.Handle(uvpy.libuv_loop_ptr(loop), "timer", lambda: 1 / 0)
    timer.start(1)
    with pytest.raises(SystemExit, match="from the handler"):
        loop.run_until_complete(asyncio.sleep(5))
    timer.close()
    loop.run_until_complete(asyncio.sleep(0))
