"""What a loop hands to others: executor threads, the resolver, child processes; and a loop's own birth and death."""

from __future__ import annotations

import asyncio
import concurrent.futures
import os
import socket
import subprocess

import loops

from cases.kinds import Case, Loop, Micro, nothing

TRUE = "/bin/true"
_ballast = bytearray()


def _executor(loop: Loop, size: int) -> None:
    async def body() -> None:
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            for _ in range(size):
                await loop.run_in_executor(pool, nothing)

    loop.run_until_complete(body())


def _resolve(loop: Loop, size: int) -> None:
    async def body() -> None:
        for _ in range(size):
            await loop.getaddrinfo("127.0.0.1", 80, type=socket.SOCK_STREAM)

    loop.run_until_complete(body())


def _resolve_bare(size: int) -> None:
    for _ in range(size):
        socket.getaddrinfo("127.0.0.1", 80, type=socket.SOCK_STREAM)


def _spawn(loop: Loop, size: int) -> None:
    async def one() -> None:
        await (await asyncio.create_subprocess_exec(TRUE)).wait()

    async def all_at_once() -> None:
        await asyncio.gather(*(one() for _ in range(size)))

    loop.run_until_complete(all_at_once())


def _spawn_bare(size: int) -> None:
    for child in [subprocess.Popen([TRUE]) for _ in range(size)]:
        child.wait()


def _grow() -> None:
    block = b"x" * (16 << 20)  # written, so that it is in memory
    while len(_ballast) < 1 << 30:
        _ballast.extend(block)


def _spawn_big(loop: Loop, size: int) -> None:
    _grow()
    _spawn(loop, size)


def _spawn_big_bare(size: int) -> None:
    _grow()
    _spawn_bare(size)


def _through_cat(loop: Loop, size: int) -> None:
    data = bytes(8 << 20)

    async def body() -> None:
        for _ in range(size):
            child = await asyncio.create_subprocess_exec(
                "cat", stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
            )
            out, _ = await child.communicate(data)
            if len(out) != len(data):
                raise RuntimeError(f"cat gave {len(out)} bytes")

    loop.run_until_complete(body())


def _through_cat_bare(size: int) -> None:
    data = bytes(8 << 20)
    for _ in range(size):
        subprocess.run(["cat"], input=data, stdout=subprocess.PIPE, check=True)


def _new_loop(loop: Loop, size: int) -> None:
    async def body() -> None:
        pass

    make = loops.factory(os.environ["BENCH_LABEL"])
    for _ in range(size):
        made = make()
        made.run_until_complete(body())
        made.close()


CASES: dict[str, Case] = {
    "executor": Micro(text="run_in_executor and back, pinned to one core", run=_executor, size=200, figure="rate"),
    "executor_free": Micro(
        text="the same where the kernel places both threads", run=_executor, size=200, figure="rate", pinned=False
    ),
    "getaddrinfo": Micro(
        text="getaddrinfo of a numeric host", run=_resolve, size=200, counted=1_000, figure="rate", bare=_resolve_bare
    ),
    "spawn": Micro(
        text="/bin/true, four children at once, to their ends",
        run=_spawn,
        size=4,
        figure="rate",
        turn=0.08,
        pinned=False,
        bare=_spawn_bare,
    ),
    "spawn_big": Micro(
        text="the same from a process of 1 GiB",
        run=_spawn_big,
        size=4,
        figure="rate",
        turn=0.1,
        pinned=False,
        solo=True,
        bare=_spawn_big_bare,
    ),
    "child_pipes": Micro(
        text="8 MiB through cat",
        run=_through_cat,
        size=1,
        figure="rate",
        turn=0.1,
        pinned=False,
        bare=_through_cat_bare,
    ),
    "new_loop": Micro(
        text="a new loop, a coroutine that does nothing, close (in C: init and close alone)",
        run=_new_loop,
        size=20,
        counted=20,
        extras=(loops.FLOOR,),
    ),
}
