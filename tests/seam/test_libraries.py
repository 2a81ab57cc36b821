"""What libraries and tests touch beyond the documented methods of a loop, its handles, servers and transports."""

import asyncio
import concurrent.futures
import copy
import gc
import heapq
import inspect
import pickle
import sys
import threading
import weakref
from unittest import mock

import pytest

from support.drive import in_thread, run, turn, turns
from support.protocols import Recorder, connect, drop, finish, keeping, serve

# ---- attributes of the loop


def test_the_default_executor(loop):
    assert loop._default_executor is None
    loop.run_until_complete(loop.run_in_executor(None, int))
    assert isinstance(loop._default_executor, concurrent.futures.ThreadPoolExecutor)
    loop._default_executor.shutdown()
    loop._default_executor = concurrent.futures.ThreadPoolExecutor(1, thread_name_prefix="mine")
    name = loop.run_until_complete(loop.run_in_executor(None, lambda: threading.current_thread().name))
    assert name.startswith("mine")


def test_state_can_be_read_and_set(loop):
    assert (loop._closed, loop._stopping, loop._thread_id) == (False, False, None)
    loop.call_soon(lambda: got.append((loop._thread_id, loop._closed)))
    got = []
    turn(loop)
    in_thread(lambda: (loop.call_soon(lambda: got.append((loop._thread_id == threading.get_ident(),))), turn(loop)))
    assert got == [(threading.get_ident(), False), (True,)]
    loop.stop()
    assert loop._stopping is True
    loop._stopping = False
    assert loop.run_until_complete(asyncio.sleep(0, 1)) == 1
    assert loop._thread_id is None
    assert vars(loop).get("_thread_id") is None
    loop.close()
    assert loop._closed is True


def test_queues_can_be_looked_at(loop):
    handles = [loop.call_soon(bool) for _ in range(3)]
    timers = [loop.call_later(60 - i, bool) for i in range(3)]
    assert list(loop._ready) == handles
    assert len(loop._scheduled) == 3
    assert {t._when for t in loop._scheduled} == {t.when() for t in timers}
    assert loop._scheduled[0] is timers[2]
    assert all(not t._cancelled and t._scheduled for t in loop._scheduled)
    assert bool(loop._ready) is bool(loop._scheduled) is True
    turn(loop)
    assert not loop._ready
    for timer in timers:
        timer.cancel()
        assert timer._cancelled


def test_attributes_of_anybodys(loop):
    loop.mine = [1]
    assert vars(loop)["mine"] is loop.__dict__["mine"] is loop.mine
    del loop.mine
    assert not hasattr(loop, "mine")
    with pytest.raises(AttributeError, match="mine"):
        _ = loop.mine
    loop.slow_callback_duration = 3
    assert vars(loop)["slow_callback_duration"] == 3


def test_identity(loop, new_loop):
    other = new_loop()
    assert hash(loop) == hash(loop)
    assert loop == loop
    assert loop != other
    assert {loop: 1, other: 2}[loop] == 1
    assert weakref.ref(loop)() is loop
    with pytest.raises(TypeError):
        _ = loop < other


def test_weak_references(make_loop):
    loop = make_loop()
    book = weakref.WeakKeyDictionary({loop: 1})
    gone = []
    weakref.finalize(loop, gone.append, 1)
    loop.close()
    del loop
    gc.collect()
    assert gone == [1]
    assert len(book) == 0


def test_looking_at_everything(loop, loop_class):
    """inspect, dir and mock find every attribute, and harm nothing."""
    names = dict(inspect.getmembers(loop))
    assert names.keys() >= {"call_soon", "_ready", "_closed"}
    assert set(dir(loop)) >= set(dir(asyncio.BaseEventLoop))
    assert dict(inspect.getmembers(loop_class)).keys() >= {"call_soon"}
    assert mock.create_autospec(loop).is_running() is not None
    assert not hasattr(loop_class, "_nest_patched")
    turn(loop)


async def test_the_main_tasks_callback(loop):
    assert any(cb is asyncio.base_events._run_until_complete_cb for cb, _ in asyncio.current_task()._callbacks)


@pytest.mark.parametrize("name", ["call_soon", "call_later", "time", "create_task", "call_soon_threadsafe", "stop"])
def test_assigned_methods_are_used_and_can_be_taken_back(loop, name):
    spy = mock.Mock(wraps=getattr(loop, name))
    setattr(loop, name, spy)
    run(loop, asyncio.sleep(0.001))
    run(loop, loop.run_in_executor(None, int))
    assert spy.call_count
    delattr(loop, name)
    count = spy.call_count
    run(loop, asyncio.sleep(0.001))
    assert spy.call_count == count


@pytest.mark.parametrize("attempt", [pickle.dumps, copy.deepcopy, copy.copy])
@pytest.mark.uvpy_only("asyncio's loop is refused by its selector or lock, its copy is a second owner of everything")
def test_loops_are_neither_pickled_nor_copied(loop, attempt):
    with pytest.raises(TypeError, match="Loop"):
        attempt(loop)


# ---- handles


@pytest.mark.parametrize("attempt", [pickle.dumps, copy.deepcopy])
def test_handles_are_not_pickled(loop, attempt, unraisable):
    for handle in (loop.call_soon(bool), loop.call_later(60, bool)):
        with pytest.raises((TypeError, AttributeError)):
            attempt(handle)
        handle.cancel()
    gc.collect()
    unraisable.take()  # what deepcopy has begun to make of asyncio's loop


def test_copies_of_handles(loop):
    """A copy is a handle that is not scheduled; what is done to it is not done to the handle."""
    got = []
    handle, timer = loop.call_soon(got.append, 1), loop.call_later(0.001, got.append, 2)
    for h in (handle, timer):
        other = copy.copy(h)
        assert isinstance(other, asyncio.TimerHandle if h is timer else asyncio.Handle)
        assert (other._callback, other._args, other._loop, other._context) == (h._callback, h._args, loop, h._context)
        assert repr(other) == repr(h)
        other.cancel()
        assert other.cancelled()
        assert not h.cancelled()
        assert copy.copy(other).cancelled()
    assert copy.copy(timer) == timer
    assert copy.copy(timer).when() == timer.when()
    run(loop, asyncio.sleep(0.01))
    assert got == [1, 2]
    copy.copy(handle)._run()
    assert got == [1, 2, 1]


def test_handles_are_looked_at(loop):
    def callback(*args):
        pass

    handle, timer = loop.call_soon(callback, 1, 2), loop.call_later(60, callback, 3)
    for h, args in ((handle, (1, 2)), (timer, (3,))):
        assert (h._callback, h._args, h._cancelled, h._loop) == (callback, args, False, loop)
        assert weakref.ref(h)() is h
        assert isinstance(h._context, type(h._context))
        assert "callback" in repr(h)
        h.cancel()
        assert (h._cancelled, h._callback, h._args) == (True, None, None)
    assert timer._when == timer.when()
    assert isinstance(timer, asyncio.TimerHandle)


# ---- servers and transports


async def test_attributes_of_servers(loop, authority):
    context = authority.server()
    server = await loop.create_server(Recorder, "127.0.0.1", 0, ssl=context)
    assert type(server) is asyncio.base_events.Server
    assert server._ssl_context is context
    assert server._loop is loop
    assert len(server.sockets) == len(server._sockets) == 1
    server.close()
    assert server.sockets == ()
    await server.wait_closed()


async def test_attributes_of_transports(loop, authority):
    factory, made = keeping(Recorder)
    server = await loop.create_server(factory, "127.0.0.1", 0, ssl=authority.server())
    transport, protocol = await loop.create_connection(
        Recorder, *server.sockets[0].getsockname(), ssl=authority.client(), server_hostname="localhost"
    )
    assert isinstance(transport._ssl_protocol, asyncio.sslproto.SSLProtocol)
    lower = transport._ssl_protocol._transport
    assert lower._start_tls_compatible is True
    assert lower._loop is loop
    assert lower.get_protocol() is transport._ssl_protocol
    assert isinstance(lower, asyncio.Transport)
    assert type(lower.get_extra_info("socket")) is asyncio.trsock.TransportSocket
    assert weakref.ref(lower)() is lower
    transport.close()
    await protocol.lost()
    for each in made:
        await each.lost()
    server.close()


async def test_a_server_that_nobody_holds_serves_on(loop):
    factory, made = keeping(Recorder)
    server = await loop.create_server(factory, "127.0.0.1", 0)
    address = server.sockets[0].getsockname()
    listening, gone = server.sockets[0].fileno(), weakref.ref(server)
    del server
    gc.collect()
    assert gone() is not None
    transport, protocol = await loop.create_connection(Recorder, *address)
    while not made:
        await asyncio.sleep(0)
    assert made[0].transport.get_extra_info("sockname") == address
    await drop(transport)
    await protocol.lost()
    await made[0].lost()
    assert gone().sockets[0].fileno() == listening
    gone().close()


@pytest.mark.filterwarnings("ignore::ResourceWarning")
async def test_a_dropped_transport_leaves_its_server(loop):
    """A transport that is collected while attached: the server does not wait for it for ever."""
    factory, made = keeping(Recorder)
    async with serve(factory) as (server, port):
        transport, protocol = await loop.create_connection(Recorder, "127.0.0.1", port)
        while not made:
            await asyncio.sleep(0)
        made[0].transport.pause_reading()
        gone = weakref.ref(made[0].transport)
        made[0].transport = None
        made.clear()
        gc.collect()
        for _ in range(5):
            await asyncio.sleep(0)
        gc.collect()
        assert gone() is None
        server.close()
        waiting = asyncio.ensure_future(server.wait_closed())
        if (3, 12) <= sys.version_info < (3, 13):  # there a server counts its clients, and one is gone without a word
            await turns(20)
            assert not waiting.done()
            waiting.cancel()
        await asyncio.wait([waiting], timeout=10)
        assert waiting.done()
        await drop(transport)
        await protocol.lost()


# ---- a loop that is patched to nest


def patch_to_nest(loop):
    """What nest_asyncio does, in short: a turn in Python over the loop's private parts."""

    def run_until_complete(self, future):
        future = asyncio.ensure_future(future, loop=self)
        before = asyncio._get_running_loop()
        asyncio._set_running_loop(self)
        try:
            while not future.done():
                self._run_once()
        finally:
            asyncio._set_running_loop(before)
        return future.result()

    def _run_once(self):
        ready, scheduled = self._ready, self._scheduled
        wait = 0 if ready or not scheduled else max(scheduled[0]._when - self.time(), 0)
        self._process_events(self._selector.select(wait))
        while scheduled and scheduled[0]._when < self.time() + self._clock_resolution:
            ready.append(heapq.heappop(scheduled))
        for _ in range(len(ready)):
            ready.popleft()._run()

    if hasattr(loop, "_nest_patched"):
        return
    kind = type(loop)
    kind.run_until_complete, kind._run_once, kind._nest_patched = run_until_complete, _run_once, True


def test_nesting_works_or_is_refused(loop_class, kind, sockets):
    loop = type("Mine", (loop_class,), {})()
    got = []
    loop.call_soon(got.append, "scheduled before")
    loop.call_later(0.001, got.append, "a timer")
    if kind == "asyncio":
        patch_to_nest(loop)
    else:
        with pytest.raises(ValueError, match=r"Can't patch loop of type .*Mine"):
            patch_to_nest(loop)
    assert loop.run_until_complete(asyncio.sleep(0.01, 1)) == 1
    assert got == ["scheduled before", "a timer"]
    transport, protocol, peer = connect(loop, sockets)
    peer.send(b"x")
    finish(loop, transport, protocol)
    loop.close()


@pytest.mark.uvpy_only("asyncio polls through a selector")
def test_the_inside_cannot_be_driven(loop):
    """Who does not ask before gets a clear error, and loses nothing."""
    got = []
    loop.call_soon(got.append, 1)
    with pytest.raises(RuntimeError, match="polls natively"):
        loop._selector.select(0)
    assert got == []
    turn(loop)
    assert got == [1]
