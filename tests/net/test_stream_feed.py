"""Data on its way into an asyncio.StreamReader: with asyncio's own classes as they are, and with whatever a program may
have put in the way, in the classes, in the objects, or in between.
"""

import asyncio
import contextlib
import select
import weakref

import pytest


@contextlib.asynccontextmanager
async def streams(sockets, limit=2**16, protocol_type=asyncio.StreamReaderProtocol, reader_type=asyncio.StreamReader):
    """A reader and its protocol on one end; the other, a plain socket."""
    loop = asyncio.get_running_loop()
    ours, theirs = sockets.pair()
    reader = reader_type(limit=limit, loop=loop)
    transport, protocol = await loop.create_connection(lambda: protocol_type(reader, loop=loop), sock=ours)
    try:
        yield reader, protocol, transport, theirs
    finally:
        transport.abort()
        await asyncio.sleep(0)
        await asyncio.sleep(0)


async def until(condition):
    async with asyncio.timeout(10):
        while not condition():
            await asyncio.sleep(0.001)


async def test_what_is_awaited_comes(loop, sockets):
    async with streams(sockets) as (reader, _, _, theirs):
        for size in (1, 1000, 3):
            waiting = asyncio.ensure_future(reader.read(5000))
            await asyncio.sleep(0)
            theirs.send(bytes(size))
            assert await waiting == bytes(size)
            assert reader._waiter is None
            assert reader._buffer == b""


async def test_what_nobody_awaits_yet_is_kept(loop, sockets):
    async with streams(sockets) as (reader, _, _, theirs):
        theirs.send(b"one")
        await until(lambda: reader._buffer)
        theirs.send(b"two\n")
        assert await reader.readline() == b"onetwo\n"


async def test_a_cancelled_waiter_is_let_go(loop, sockets):
    async with streams(sockets) as (reader, _, _, theirs):
        waiting = asyncio.ensure_future(reader.read(10))
        await asyncio.sleep(0)
        waiter = reader._waiter
        waiter.cancel()
        theirs.send(b"data")
        with contextlib.suppress(asyncio.CancelledError):
            await waiting
        assert await reader.read(10) == b"data"


@pytest.mark.parametrize("limit", [1, 2, 100, 1000])
async def test_over_the_limit_reading_is_paused(loop, sockets, limit):
    async with streams(sockets, limit) as (reader, _, transport, theirs):
        sent = 0
        while transport.is_reading():
            before = len(reader._buffer)
            assert before <= 2 * limit
            sent += theirs.send(bytes(limit))
            await until(lambda sent=sent: len(reader._buffer) == sent or not transport.is_reading())
        assert len(reader._buffer) > 2 * limit
        assert reader._paused
        assert await reader.readexactly(sent) == bytes(sent)
        assert transport.is_reading()


@pytest.mark.parametrize("limit", [0.5, 10**30, True])
async def test_limits_of_other_kinds(loop, sockets, limit):
    async with streams(sockets, limit) as (reader, _, transport, theirs):
        theirs.send(b"abc")
        await until(lambda: reader._buffer)
        assert transport.is_reading() == (limit == 10**30)
        assert await reader.read(10) == b"abc"


@pytest.mark.parametrize(
    ("owner", "name"),
    [
        (asyncio.StreamReaderProtocol, "data_received"),
        (asyncio.StreamReader, "feed_data"),
        (asyncio.StreamReader, "_wakeup_waiter"),
        (asyncio.StreamReader, "__getattribute__"),
        (asyncio.StreamReaderProtocol, "__getattribute__"),
    ],
)
async def test_a_replaced_method_of_the_class_is_called(loop, sockets, monkeypatch, owner, name):
    seen = []
    original = getattr(owner, name)

    def replaced(self, *args):
        seen.append(args)
        return original(self, *args)

    async with streams(sockets) as (reader, _, _, theirs):
        theirs.send(b"before")
        await until(lambda: reader._buffer)
        monkeypatch.setattr(owner, name, replaced)
        theirs.send(b"after")
        await until(lambda: len(reader._buffer) == 11)
        assert seen
        monkeypatch.undo()
        seen.clear()
        theirs.send(b"again")
        await until(lambda: len(reader._buffer) == 16)
        assert not seen
        assert await reader.read(99) == b"beforeafteragain"


async def test_a_replaced_property_is_asked(loop, sockets, monkeypatch):
    async with streams(sockets) as (reader, _, _, theirs):
        other = asyncio.StreamReader(loop=loop)
        monkeypatch.setattr(asyncio.StreamReaderProtocol, "_stream_reader", property(lambda self: other))
        theirs.send(b"data")
        assert await other.read(10) == b"data"
        assert not reader._buffer


@pytest.mark.parametrize("name", ["data_received", "feed_data", "_wakeup_waiter"])
async def test_a_replaced_method_of_the_object_is_called(loop, sockets, name):
    seen = []
    async with streams(sockets) as (reader, protocol, _, theirs):
        theirs.send(b"before")
        await until(lambda: reader._buffer)
        target = protocol if name == "data_received" else reader
        original = getattr(target, name)

        def replaced(*args):
            seen.append(args)
            return original(*args)

        setattr(target, name, replaced)
        theirs.send(b"after")
        await until(lambda: len(reader._buffer) == 11)
        assert len(seen) == 1
        delattr(target, name)
        theirs.send(b"again")
        await until(lambda: len(reader._buffer) == 16)
        assert len(seen) == 1


async def test_a_replaced_code_runs(loop, sockets):
    def feed_data(self, data):
        self._buffer.extend(data.upper())

    code = asyncio.StreamReader.feed_data.__code__
    async with streams(sockets) as (reader, _, _, theirs):
        asyncio.StreamReader.feed_data.__code__ = feed_data.__code__
        try:
            theirs.send(b"data")
            await until(lambda: reader._buffer)
        finally:
            asyncio.StreamReader.feed_data.__code__ = code
        assert await reader.read(10) == b"DATA"


@pytest.mark.parametrize("which", ["protocol", "reader"])
async def test_subclasses(loop, sockets, which):
    seen = []

    class Protocol(asyncio.StreamReaderProtocol):
        def data_received(self, data):
            seen.append(data)
            super().data_received(data)

    class Reader(asyncio.StreamReader):
        def feed_data(self, data):
            seen.append(data)
            super().feed_data(data)

    types = {"protocol_type": Protocol} if which == "protocol" else {"reader_type": Reader}
    async with streams(sockets, **types) as (reader, _, _, theirs):
        theirs.send(b"data")
        assert await reader.read(10) == b"data"
        assert seen == [b"data"]


async def test_a_reader_that_has_gone_gets_nothing(loop, sockets):
    async with streams(sockets) as (reader, protocol, transport, theirs):
        protocol._stream_reader_wr = None
        socket = transport.get_extra_info("socket")
        theirs.send(b"data")
        await until(lambda: not select.select([socket], [], [], 0)[0])
        assert not reader._buffer
        other = asyncio.StreamReader(loop=loop)
        protocol._stream_reader_wr = weakref.ref(other)
        del other
        theirs.send(b"lost")
        await until(lambda: not select.select([socket], [], [], 0)[0])
        assert not transport.is_closing()


async def fails_with(sockets, prepare, type_):
    """Data after `prepare(reader)` is fatal for the connection, with an error of that type."""
    loop = asyncio.get_running_loop()
    reported = []
    loop.set_exception_handler(lambda loop, context: reported.append(context))
    async with streams(sockets) as (reader, _, transport, theirs):
        kept = prepare(reader)
        theirs.send(b"data")
        await until(lambda: transport.is_closing() and reader.exception() is not None)
        assert isinstance(reader.exception(), type_)
        (context,) = reported
        assert context["message"] == "Fatal error: protocol.data_received() call failed."
        assert context["exception"] is reader.exception()
        assert context["transport"] is transport
        if isinstance(kept, memoryview):
            kept.release()
    loop.set_exception_handler(None)


async def test_data_after_the_end_fails(loop, sockets):
    await fails_with(sockets, lambda reader: reader.feed_eof(), AssertionError)


async def test_a_view_of_the_buffer_makes_it_fail(loop, sockets):
    def prepare(reader):
        reader._buffer.extend(b"x")
        return memoryview(reader._buffer)

    await fails_with(sockets, prepare, BufferError)


async def test_a_waiter_that_is_done_makes_it_fail(loop, sockets):
    def prepare(reader):
        reader._waiter = asyncio.get_running_loop().create_future()
        reader._waiter.set_result(None)

    await fails_with(sockets, prepare, asyncio.InvalidStateError)


async def test_a_missing_attribute_makes_it_fail(loop, sockets):
    await fails_with(sockets, lambda reader: reader.__delattr__("_eof"), AttributeError)


async def test_a_waiter_of_another_kind(loop, sockets):
    class Waiter:
        results = ()

        def cancelled(self):
            return False

        def set_result(self, result):
            self.results += (result,)

    async with streams(sockets) as (reader, _, _, theirs):
        waiter = reader._waiter = Waiter()
        theirs.send(b"data")
        await until(lambda: reader._buffer)
        assert waiter.results == (None,)
        assert reader._waiter is None


async def test_a_buffer_of_another_kind(loop, sockets):
    class Buffer(bytearray):
        extended = 0

        def extend(self, data):
            Buffer.extended += 1
            super().extend(data)

    async with streams(sockets) as (reader, _, _, theirs):
        reader._buffer = Buffer()
        theirs.send(b"data")
        await until(lambda: reader._buffer)
        assert Buffer.extended == 1


async def test_in_debug_mode(loop, sockets):
    loop.set_debug(True)
    async with streams(sockets) as (reader, _, _, theirs):
        theirs.send(b"data")
        assert await reader.read(10) == b"data"


async def test_waiters_run_in_their_order(loop, sockets):
    """Who is woken by data comes behind what was scheduled before it, and before what comes after."""
    order = []
    async with streams(sockets) as (reader, _, _, theirs):

        async def reads():
            await reader.read(10)
            order.append("read")

        waiting = asyncio.ensure_future(reads())
        await asyncio.sleep(0)
        theirs.send(b"data")
        await until(lambda: reader._waiter is None)
        loop.call_soon(order.append, "after")
        await waiting
        await asyncio.sleep(0)
        assert order in (["read", "after"], ["read"])
