"""How the handles of other extensions end, on a loop that goes on, one that is closed, and in other processes."""

import asyncio
import os
import warnings

import pytest

from support.drive import eventually, in_thread, run, turn
from support.script import run_python

uvpy = pytest.importorskip("uvpy")
pytestmark = pytest.mark.uvpy_only("stock asyncio has no libuv")


# ---- closing


def test_closing(guest, loop, capsule):
    timer = guest.Handle(capsule, "timer", None)
    assert guest.alive() == 1
    timer.close()
    assert guest.alive() == 1  # the callback comes from the loop
    turn(loop, 2)
    assert guest.alive() == 0


def test_dropping(guest, loop, capsule):
    guest.Handle(capsule, "async", None)
    turn(loop, 2)
    assert guest.alive() == 0


def test_closed_in_its_own_callback(guest, loop, capsule):
    timer = guest.Handle(capsule, "timer", lambda: timer.close())
    timer.start(1)
    run(loop, eventually(lambda: guest.alive() == 0))


def test_another_thread_is_refused(guest, loop, capsule):
    timer = guest.Handle(capsule, "timer", None)

    async def main():
        for call in (timer.start, timer.close, lambda: guest.Handle(capsule, "timer", None)):
            with pytest.raises(OSError, match="EPERM"):
                await loop.run_in_executor(None, call)
        await loop.shutdown_default_executor()

    run(loop, main())
    in_thread(timer.start, 60_000)  # nobody runs the loop
    timer.close()


def test_what_is_left_open_is_closed_and_warned_about(guest, raw_loop):
    loop = raw_loop()
    capsule = uvpy.libuv_loop_ptr(loop)
    timers = [guest.Handle(capsule, "timer", None) for _ in range(2)]
    sender = guest.Handle(capsule, "async", None)
    timers[0].start(1, 1)
    closing = guest.Handle(capsule, "idle", None)
    closing.close()  # its callback is yet to come: no warning
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        loop.close()
    assert [(w.category, str(w.message)) for w in caught] == [
        (ResourceWarning, f"1 handle uv_async_t of an extension left open on {loop!r}"),
        (ResourceWarning, f"2 handles uv_timer_t of an extension left open on {loop!r}"),
    ]
    assert loop.is_closed()
    assert guest.alive() == 3
    for handle in (*timers, sender):
        assert handle.data_is_untouched
        assert not handle.loop_is_open
        assert handle.is_closing
        handle.close()
    assert guest.alive() == 0


@pytest.mark.filterwarnings("error")
def test_warnings_that_are_errors(guest, raw_loop):
    loop = raw_loop()
    handle = guest.Handle(uvpy.libuv_loop_ptr(loop), "timer", None)
    with pytest.raises(ResourceWarning, match="uv_timer_t"):
        loop.close()
    assert loop.is_closed()
    loop.close()
    handle.close()


@pytest.mark.filterwarnings("ignore:.*left open on:ResourceWarning")
def test_calls_after_the_end(guest, raw_loop):
    loop = raw_loop()
    capsule = uvpy.libuv_loop_ptr(loop)
    timer = guest.Handle(capsule, "timer", None)
    sender = guest.Handle(capsule, "async", None)
    loop.close()
    with pytest.raises(OSError, match="ECANCELED"):
        timer.start(1)
    assert timer.stop() < 0
    assert sender.send() < 0
    with pytest.raises(OSError, match="ECANCELED"):
        guest.Handle(capsule, "timer", None)


@pytest.mark.filterwarnings("ignore:.*left open on:ResourceWarning")
def test_a_thread_sends_while_the_loop_closes(guest, make_loop):
    """Its wake-ups may not go to a descriptor that has been closed, which would end the process."""
    for _ in range(30):
        loop = make_loop()
        handle = guest.Handle(uvpy.libuv_loop_ptr(loop), "async", bool)
        handle.begin_sending(False)
        turn(loop)
        loop.close()
        handle.end_sending()
        handle.close()


@pytest.mark.filterwarnings("ignore:.*left open on:ResourceWarning")
def test_a_close_callback_drops_what_owns_another_handle(guest, raw_loop):
    """The second is being closed by the loop when its owner closes it: the callback comes all the same, later."""
    loop = raw_loop()
    capsule = uvpy.libuv_loop_ptr(loop)

    class Owner:
        def __call__(self):
            pass

    for order in (1, -1):
        owner = Owner()
        owner.inner = guest.Handle(capsule, "timer", None)
        outer = guest.Handle(capsule, "timer", owner)
        if order == -1:
            owner.inner, outer = guest.Handle(capsule, "timer", None), outer
        del owner
        outer.close()
        del outer
    loop.close()
    assert guest.alive() == 0


def test_a_close_callback_that_makes_handles(guest, raw_loop):
    """Refused: the loop is ending."""
    loop = raw_loop()
    capsule = uvpy.libuv_loop_ptr(loop)
    said = []

    class Dropped:
        def __call__(self):
            pass

        def __del__(self):
            try:
                guest.Handle(capsule, "timer", None)
            except OSError as exc:
                said.append(str(exc))
            loop.close()

    guest.Handle(capsule, "timer", Dropped()).close()
    loop.close()
    assert said == ["ECANCELED"]


@pytest.mark.filterwarnings("ignore:.*left open on:ResourceWarning")
def test_a_run_that_ends_with_handles_open(guest):
    """asyncio.Runner closes its loop; an object that is dropped later is right all the same."""
    kept = []

    async def main():
        capsule = uvpy.libuv_loop_ptr(asyncio.get_running_loop())
        done = asyncio.get_running_loop().create_future()
        kept.append(guest.Handle(capsule, "timer", lambda: done.done() or done.set_result(5)))
        kept[0].start(1, 1)
        return await done

    assert uvpy.run(main()) == 5
    assert guest.alive() == 1
    kept.clear()
    assert guest.alive() == 0


def test_a_loop_without_guests_skips_polls_as_before(loop):
    turn(loop)
    before = loop._core_stats()["polls"]
    turn(loop, 5)
    assert loop._core_stats()["polls"] == before
    uvpy.libuv_loop_ptr(loop)
    turn(loop, 5)
    assert loop._core_stats()["polls"] == before + 5


# ---- what is seen of them


def test_guests_among_the_open_handles(guest, loop, capsule, sockets):
    ours, _ = sockets.pair()
    listener = sockets.listener()
    run(loop, loop.create_server(asyncio.Protocol, sock=listener))
    handles = [guest.Handle(capsule, kind, bool, ours.fileno()) for kind in ("timer", "poll", "async", "idle")]
    handles[0].start(60_000)
    handles[1].start()
    found = [row for row in loop._debug_handles() if row["kind"].startswith("guest ")]
    assert sorted((row["kind"], row["fd"], row["state"], row["waiting"]) for row in found) == [
        ("guest async", None, "active", 0),
        ("guest idle", None, "idle", 0),
        ("guest poll", ours.fileno(), "active", 0),
        ("guest timer", None, "active", 0),
    ]
    assert {row["age"] for row in found} == {None}
    handles[0].close()
    assert "closing" in {row["state"] for row in loop._debug_handles()}
    for handle in handles:
        handle.close()
    turn(loop, 2)
    assert [row["kind"] for row in loop._debug_handles()] == ["listener"]
    loop._stop_serving(listener)


# ---- other processes

SCRIPT = """
import asyncio, os, sys
sys.path.insert(0, sys.argv[1])
import guest, uvpy

"""


def output(guest_path, body):
    done = run_python("-W", "ignore", "-c", SCRIPT + body, os.fspath(guest_path.parent))
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout.split()


def test_in_a_forked_child(guest_path):
    """A child has no part in it: nothing that it does is noticed by the parent, whose handles go on."""
    body = """
async def main():
    loop = asyncio.get_running_loop()
    capsule = uvpy.libuv_loop_ptr(loop)
    fired = asyncio.Queue()
    timer = guest.Handle(capsule, "timer", lambda: fired.put_nowait(1))
    timer.start(1, 1)
    r, w = os.pipe()
    poll = guest.Handle(capsule, "poll", lambda: (os.read(r, 9), fired.put_nowait(2), poll.stop()), r)
    poll.start()
    sender = guest.Handle(capsule, "async", lambda: fired.put_nowait(3))
    pid = os.fork()
    if pid == 0:
        try:
            said = [timer.loop_is_open, timer.stop() < 0, poll.stop() < 0, sender.send() < 0]
            try:
                guest.Handle(capsule, "timer", None)
            except OSError as exc:
                said.append(str(exc))
            try:
                uvpy.libuv_loop_ptr(loop)
            except RuntimeError:
                said.append("refused")
            timer.close(); poll.close(); sender.close()
            said.append(guest.alive())
            ok = said == [False, True, True, True, "ECANCELED", "refused", 0]
            os._exit(0 if ok else 1)
        finally:
            os._exit(2)
    status = os.waitpid(pid, 0)[1]
    os.write(w, b"x")
    sender.send()
    wanted = {1, 2, 3}
    while wanted:
        wanted.discard(await asyncio.wait_for(fired.get(), 5))
    timer.close(); poll.close(); sender.close()
    await asyncio.sleep(0.01)
    print(status, guest.alive())
uvpy.run(main())
"""
    assert output(guest_path, body) == ["0", "0"]


def test_at_the_interpreters_end(guest_path):
    body = """
loop = uvpy.new_event_loop()
capsule = uvpy.libuv_loop_ptr(loop)
timer = guest.Handle(capsule, "timer", print)
timer.start(1, 1)
loop.run_until_complete(asyncio.sleep(0))
print("end")
"""
    assert output(guest_path, body) == ["end"]


def test_in_a_program_that_closed_every_descriptor(guest_path):
    """The loop is given up where its descriptors are gone, and with it what libuv knows of the handles."""
    body = """
loop = uvpy.new_event_loop()
timer = guest.Handle(uvpy.libuv_loop_ptr(loop), "timer", None)
timer.start(1, 1)
os.closerange(3, 100)
loop.close()
timer.close()
print(guest.alive())
"""
    assert output(guest_path, body) == ["0"]
