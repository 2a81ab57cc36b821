"""Other extensions on the loop's libuv (csrc/core/guest, uvpy/include/uvpy.h): an extension is built with setuptools, as
users build theirs, and its handles live on our loop. All of it is uvpy's own: stock asyncio has no libuv.
"""

import asyncio
import gc
import os
import shutil
import subprocess
import sys
import threading
import time
import warnings
import weakref
from importlib.machinery import ExtensionFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path

import pytest

import uvpy
from support.drive import eventually, in_thread, run, turn
from support.script import run_python

pytestmark = pytest.mark.uvpy_only("stock asyncio has no libuv")

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
SETUP = """
from setuptools import Extension, setup
import os, uvpy

flags = ["-Wall", "-Wextra", "-Werror", "-Wno-unused-function"]
include = [uvpy.get_include(), *filter(None, [os.environ.get("UV_INCLUDE")])]
setup(
    name="guest",
    ext_modules=[
        Extension("guest", ["guest.c"], include_dirs=include, extra_compile_args=[*flags, "-std=c11", "-pthread"]),
        Extension("plus", ["plus.cpp"], include_dirs=include, extra_compile_args=[*flags, "-std=c++17"]),
    ],
)
"""


def build(folder, uv_include):
    for source in (HERE / "guest").iterdir():
        shutil.copy(source, folder)
    (folder / "setup.py").write_text(SETUP)
    env = {k: v for k, v in os.environ.items() if k not in ("LD_PRELOAD", "PYTHONWARNINGS")}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "setup.py", "-q", "build_ext", "--inplace"],
        cwd=folder,
        env={**env, "UV_INCLUDE": uv_include},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    (path,) = folder.glob("guest.*.so")
    return path


def load(path):
    loader = ExtensionFileLoader("guest", os.fspath(path))
    module = module_from_spec(spec_from_loader("guest", loader))
    loader.exec_module(module)
    return module


def own_headers():
    """The uv.h of a libuv that tools/dev has fetched, if any: another version than the system's."""
    return next((os.fspath(path) for path in sorted((ROOT / "subprojects").glob("libuv-v*/include"))), "")


@pytest.fixture(scope="session")
def path(tmp_path_factory):
    pytest.importorskip("setuptools")
    if shutil.which(os.environ.get("CC", "cc").split()[0]) is None:
        pytest.skip("no C compiler")
    found = Path("/usr/include/uv.h").exists() or Path("/usr/local/include/uv.h").exists()
    if not found and not own_headers():
        pytest.skip("no uv.h (Debian/Ubuntu: apt install libuv1-dev)")
    return build(tmp_path_factory.mktemp("guest"), "" if found else own_headers())


@pytest.fixture(scope="session")
def module(path):
    return load(path)


@pytest.fixture
def guest(module):
    """The extension. What it has made must be freed at the end of a test."""
    yield module
    gc.collect()
    assert module.alive() == 0


@pytest.fixture
def capsule(loop):
    return uvpy.libuv_loop_ptr(loop)


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
    if not own_headers():
        pytest.skip("only one uv.h here")
    other = load(build(tmp_path, own_headers()))
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
    with pytest.raises(RuntimeError, match="^Event loop is closed$"):
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
    handles = [guest.Handle(capsule, kind, lambda kind=kind: seen.append(kind)) for kind in ("check", "prepare", "idle")]
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


def output(path, body):
    done = run_python("-W", "ignore", "-c", SCRIPT + body, os.fspath(path.parent))
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout.split()


def test_in_a_forked_child(path):
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
    assert output(path, body) == ["0", "0"]


def test_at_the_interpreters_end(path):
    body = """
loop = uvpy.new_event_loop()
capsule = uvpy.libuv_loop_ptr(loop)
timer = guest.Handle(capsule, "timer", print)
timer.start(1, 1)
loop.run_until_complete(asyncio.sleep(0))
print("end")
"""
    assert output(path, body) == ["end"]


def test_in_a_program_that_closed_every_descriptor(path):
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
    assert output(path, body) == ["0"]
