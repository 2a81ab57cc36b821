"""Clients of real servers, and WebSockets: the library's work on top of the loop's."""

from __future__ import annotations

import importlib
import os
from typing import Any

from cases.kinds import Case, Loop, Micro

_kept: dict[str, Any] = {}
"""The connection, made in the warm-up."""


def _port(service: str) -> int:
    return int(os.environ[f"BENCH_{service.upper()}"])


def _postgres(loop: Loop, query: str, size: int) -> None:
    async def body() -> None:
        asyncpg = importlib.import_module("asyncpg")  # in no environment that lint knows
        if "postgresql" not in _kept:
            _kept["postgresql"] = await asyncpg.connect(host="127.0.0.1", port=_port("postgresql"), user="postgres")
        fetch = _kept["postgresql"].fetch
        for _ in range(size):
            await fetch(query)

    loop.run_until_complete(body())


def _select_1(loop: Loop, size: int) -> None:
    _postgres(loop, "select 1", size)


def _select_1000(loop: Loop, size: int) -> None:
    _postgres(loop, "select i, 'a text of some length' from generate_series(1, 1000) as i", size)


def _redis_get(loop: Loop, size: int) -> None:
    async def body() -> None:
        redis = importlib.import_module("redis.asyncio")
        if "redis" not in _kept:
            _kept["redis"] = redis.Redis(port=_port("redis"))
            await _kept["redis"].set("key", bytes(1024))
        get = _kept["redis"].get
        for _ in range(size):
            await get("key")

    loop.run_until_complete(body())


def _websockets(loop: Loop, size: int) -> None:
    async def body() -> None:
        from websockets.asyncio.client import connect
        from websockets.asyncio.server import ServerConnection, serve

        async def echo(connection: ServerConnection) -> None:
            async for message in connection:
                await connection.send(message)

        if "websockets" not in _kept:
            server = await serve(echo, "127.0.0.1", 0, compression=None)
            port = next(iter(server.sockets)).getsockname()[1]
            _kept["websockets"] = await connect(f"ws://127.0.0.1:{port}", compression=None, proxy=None)
        client = _kept["websockets"]
        message = bytes(1024)
        for _ in range(size):
            await client.send(message)
            await client.recv()

    loop.run_until_complete(body())


def _client(text: str, run: Any, size: int, service: str = "") -> Micro:
    return Micro(text=text, run=run, size=size, figure="rate", service=service, pinned=False, turn=0.1)


CASES: dict[str, Case] = {
    "asyncpg_1": _client("asyncpg, select 1", _select_1, 20, "postgresql"),
    "asyncpg_1000": _client("asyncpg, 1,000 rows", _select_1000, 5, "postgresql"),
    "redis_get": _client("redis-py, GET of 1 KiB", _redis_get, 20, "redis"),
    "websockets": _client("websockets, 1 KiB there and back, client and server on one loop", _websockets, 20),
}
