"""HTTP servers that answer with 1 KiB: httptools on a protocol, uvicorn, aiohttp."""

from __future__ import annotations

import asyncio
import importlib
import socket
from collections.abc import Awaitable, Callable
from typing import Any, cast

Loop = asyncio.AbstractEventLoop

BODY = bytes(1024)
_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 1024\r\n"
_KEEP, _CLOSE = _HEAD + b"\r\n" + BODY, _HEAD + b"Connection: close\r\n\r\n" + BODY


class _Raw(asyncio.Protocol):
    def __init__(self, parser: Callable[[Any], Any]) -> None:
        self.parser = parser(self)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self.parser.feed_data(data)

    def on_message_complete(self) -> None:
        if self.parser.should_keep_alive():
            self.transport.write(_KEEP)
        else:
            self.transport.write(_CLOSE)
            self.transport.close()


async def _raw(loop: Loop, listener: socket.socket) -> object:
    httptools = importlib.import_module("httptools")  # in no environment that lint knows
    return await loop.create_server(lambda: _Raw(httptools.HttpRequestParser), sock=listener, backlog=4096)


async def _uvicorn(loop: Loop, listener: socket.socket) -> object:
    import uvicorn

    headers = [(b"content-type", b"text/plain"), (b"content-length", b"1024")]

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": BODY})

    config = uvicorn.Config(
        app, http="httptools", ws="none", lifespan="off", log_config=None, access_log=False, backlog=4096
    )
    server = uvicorn.Server(config)
    serving = loop.create_task(server.serve(sockets=[listener]))
    while not server.started:
        await asyncio.sleep(0)
    return serving


async def _aiohttp(loop: Loop, listener: socket.socket) -> object:
    from aiohttp import web

    async def answer(request: web.BaseRequest) -> web.StreamResponse:
        return web.Response(body=BODY, content_type="text/plain")

    runner = web.ServerRunner(web.Server(answer, access_log=None))
    await runner.setup()
    await web.SockSite(runner, listener, backlog=4096).start()
    return runner


STARTERS: dict[str, Callable[[Loop, socket.socket], Awaitable[object]]] = {
    "raw": _raw,
    "uvicorn": _uvicorn,
    "aiohttp": _aiohttp,
}
