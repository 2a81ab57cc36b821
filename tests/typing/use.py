"""What a user of uvpy writes, for the type checkers: mypy and pyright must find nothing here. It is not run."""

import asyncio
import contextvars
import socket
import ssl
from collections.abc import Callable
from typing import TypeVarTuple, assert_type

import uvpy

_Ts = TypeVarTuple("_Ts")


async def answer() -> int:
    return 42


def callback(number: int, text: str) -> None: ...


# run() gives what the coroutine gives.
assert_type(uvpy.run(answer()), int)
assert_type(uvpy.run(asyncio.sleep(0, "done"), debug=True), str)
assert_type(uvpy.run(answer(), loop_factory=asyncio.SelectorEventLoop), int)
assert_type(uvpy.run(answer(), loop_factory=lambda: uvpy.new_event_loop(gil="plain")), int)
assert_type(uvpy.run(answer(), loop_factory=None), int)

# The factory goes where asyncio takes one, as a function and as a class.
factory: Callable[[], asyncio.AbstractEventLoop] = uvpy.new_event_loop
factory = uvpy.Loop
with asyncio.Runner(loop_factory=uvpy.new_event_loop) as runner:
    assert_type(runner.run(answer()), int)

# A loop is asyncio's.
loop = uvpy.new_event_loop()
assert_type(loop, uvpy.Loop)
abstract: asyncio.AbstractEventLoop = loop
base: asyncio.BaseEventLoop = uvpy.Loop(gil="adaptive")
asyncio.set_event_loop(loop)

assert_type(loop.run_until_complete(answer()), int)
assert_type(loop.time(), float)
assert_type(loop.is_running(), bool)
assert_type(loop.create_task(answer(), name="name", context=contextvars.copy_context()), asyncio.Task[int])

handle: asyncio.Handle = loop.call_soon(callback, 1, "text")
handle = loop.call_soon_threadsafe(callback, 1, "text", context=contextvars.copy_context())
timer: asyncio.TimerHandle = loop.call_later(0.5, callback, 1, "text")
timer = loop.call_at(loop.time() + 1, callback, 1, "text")
assert_type(timer.when(), float)
loop.add_reader(0, callback, 1, "text")
assert_type(loop.remove_reader(socket.socket()), bool)
loop.add_signal_handler(15, callback, 1, "text")

# What is ours alone.
assert_type(loop.gather_writes, bool)
loop.gather_writes = False
assert_type(loop._core_stats()["turns"], int)
assert_type(uvpy.__version__, str)
assert_type(uvpy.libuv_version, str)
assert_type(uvpy.build_info(), dict[str, str])


async def borrowed(loop: uvpy.Loop, sock: socket.socket, context: ssl.SSLContext) -> None:
    """What is taken from asyncio keeps asyncio's types."""
    assert_type(await loop.sock_recv(sock, 1024), bytes)
    assert_type(await loop.sock_recv_into(sock, bytearray(8)), int)
    assert_type(await loop.create_unix_server(asyncio.Protocol, "path"), asyncio.Server)
    transport, protocol = await loop.create_connection(asyncio.Protocol, "localhost", 80, ssl=context)
    assert_type(protocol, asyncio.Protocol)
    transport.write(b"bytes")
    assert_type(await loop.start_tls(transport, protocol, context, server_hostname="name"), asyncio.Transport | None)
    reader, writer = await asyncio.open_connection("localhost", 80)
    assert_type(await reader.read(), bytes)
    writer.close()


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


assert_type(uvpy.run(answer(), loop_factory=MyLoop), int)
