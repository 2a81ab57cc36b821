"""What a user of uvpy writes, for the type checkers: mypy and pyright must find nothing here. It is not run."""

import asyncio
import contextvars
import socket
import ssl
from collections.abc import Callable
from typing import Any, TypeVarTuple, assert_type

import uvpy

_Ts = TypeVarTuple("_Ts")


async def number() -> int:
    return 5


async def nothing() -> None:
    return None


def callback(number: int, text: str) -> None: ...


def run() -> None:
    """run() gives what the coroutine gives; the factory goes where asyncio takes one, as a function and as a class."""
    assert_type(uvpy.run(number()), int)
    assert_type(uvpy.run(asyncio.sleep(0, "done"), debug=True), str)
    assert_type(uvpy.run(number(), loop_factory=asyncio.SelectorEventLoop), int)
    assert_type(uvpy.run(number(), loop_factory=lambda: uvpy.new_event_loop(gil="plain")), int)
    assert_type(uvpy.run(number(), loop_factory=MyLoop), int)
    assert_type(uvpy.run(number(), loop_factory=None), int)
    uvpy.run(nothing())
    with asyncio.Runner(loop_factory=uvpy.new_event_loop) as runner:
        assert_type(runner.run(number()), int)
    with asyncio.Runner(loop_factory=uvpy.Loop) as runner:
        assert_type(runner.run(number()), int)
    uvpy.install()


def loops() -> None:
    """A loop is asyncio's."""
    loop = uvpy.new_event_loop()
    assert_type(loop, uvpy.Loop)
    abstract: asyncio.AbstractEventLoop = uvpy.new_event_loop(gil="plain")
    base: asyncio.BaseEventLoop = uvpy.Loop(gil="adaptive")
    asyncio.set_event_loop(loop)

    assert_type(loop.run_until_complete(number()), int)
    assert_type(loop.time(), float)
    assert_type(loop.is_running(), bool)
    assert_type(loop.create_future(), asyncio.Future[Any])
    assert_type(loop.create_task(number(), name="name", context=contextvars.copy_context()), asyncio.Task[int])

    assert_type(loop.call_soon(callback, 1, "text"), asyncio.Handle)
    assert_type(loop.call_soon_threadsafe(callback, 1, "text", context=contextvars.Context()), asyncio.Handle)
    timer = loop.call_later(0.5, callback, 1, "text")
    assert_type(timer, asyncio.TimerHandle)
    assert_type(loop.call_at(timer.when() + 1, callback, 1, "text"), asyncio.TimerHandle)
    loop.add_reader(0, callback, 1, "text")
    assert_type(loop.remove_reader(socket.socket()), bool)
    loop.add_signal_handler(15, callback, 1, "text")

    # What is ours alone.
    assert_type(loop.gather_writes, bool)
    loop.gather_writes = False
    assert_type(loop._core_stats()["turns"], int)
    assert_type(uvpy.__version__, str)
    assert_type(uvpy.libuv_version, str)
    assert_type(uvpy.get_include(), str)
    uvpy.libuv_loop_ptr(uvpy.new_event_loop())
    assert_type(uvpy.build_info(), dict[str, str])
    for item in (abstract, base):
        item.close()


async def borrowed(loop: uvpy.Loop, sock: socket.socket, context: ssl.SSLContext) -> None:
    """What is taken from asyncio keeps asyncio's types."""
    assert_type(await loop.sock_recv(sock, 1024), bytes)
    assert_type(await loop.sock_recv_into(sock, bytearray(8)), int)
    assert_type(await loop.create_unix_server(asyncio.Protocol, "path"), asyncio.Server)
    transport, protocol = await loop.create_connection(asyncio.Protocol, "localhost", 80, ssl=context)
    assert_type(protocol, asyncio.Protocol)
    transport.write(b"bytes")
    assert_type(await loop.start_tls(transport, protocol, context, server_hostname="name"), asyncio.Transport | None)


class MyLoop(uvpy.Loop):
    """A loop can be subclassed, and its methods overridden with asyncio's types."""

    def __init__(self) -> None:
        super().__init__(gil="plain")
        self.calls = 0

    def time(self) -> float:
        return super().time() * 2

    def call_soon(
        self, callback: Callable[[*_Ts], object], *args: *_Ts, context: contextvars.Context | None = None
    ) -> asyncio.Handle:
        self.calls += 1
        return super().call_soon(callback, *args, context=context)

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        super().call_exception_handler(context)


def wrong() -> None:
    """Each of these must be an error: an ignore that nothing needs is one, too."""
    uvpy.run(number)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    loop = uvpy.new_event_loop()
    loop.call_soon()  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    loop.call_soon(callback, 1)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
