"""The measured process: measured.py micro|serve MODULE CASE [--counted] [--limit SECONDS].

It knows one loop and one case, is started afresh for each round, says that it is ready by a line of JSON, and ends
with its standard input (micro) or when the load generator says so (serve); by SIGALRM should it outlive its limit.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import signal
import sys
import time

import loops
import workloads

WARM_UP = 0.05


def say(**told: object) -> None:
    print(json.dumps(told), flush=True)


def micro(loop: asyncio.AbstractEventLoop, args: argparse.Namespace) -> None:
    """For each line with a number of seconds: so many batches as fill them, at least one; says what they cost."""
    case = {**workloads.MICRO, **workloads.CHILDREN}[args.case]

    def work(size: int, seconds: float) -> dict[str, float]:
        done = 0
        user, system = workloads.usage()
        begin = time.perf_counter()
        end = time.process_time() + seconds
        while not done or time.process_time() < end:
            case.run(loop, size)
            done += size
        wall = time.perf_counter() - begin
        user_after, system_after = workloads.usage()
        return {"operations": done, "wall": wall, "user": user_after - user, "system": system_after - system}

    work(case.counted, 0.0 if args.counted else WARM_UP)
    gc.collect()
    say(loop=class_of(loop))
    for line in sys.stdin:
        say(**work(case.counted if args.counted else case.size, float(line)))


def serve(loop: asyncio.AbstractEventLoop, args: argparse.Namespace) -> None:
    echo: asyncio.Server | asyncio.DatagramTransport
    if workloads.ECHO[args.case].datagrams:
        address = ("127.0.0.1", 0)
        echo, _ = loop.run_until_complete(loop.create_datagram_endpoint(workloads.EchoDatagrams, address))
        port = echo.get_extra_info("sockname")[1]
    else:
        echo = loop.run_until_complete(loop.create_server(workloads.EchoProtocol, "127.0.0.1", 0))
        port = echo.sockets[0].getsockname()[1]
    control = loop.run_until_complete(loop.create_server(workloads.ControlProtocol, "127.0.0.1", 0))
    say(loop=class_of(loop), ports=[port, control.sockets[0].getsockname()[1]])
    loop.run_forever()
    echo.close()
    control.close()


def class_of(loop: asyncio.AbstractEventLoop) -> str:
    return f"{type(loop).__module__}.{type(loop).__qualname__}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kind", choices=("micro", "serve"))
    parser.add_argument("module")
    parser.add_argument("case", choices=list(workloads.CASES))
    parser.add_argument("--counted", action="store_true", help="batches of the size for counting instructions")
    parser.add_argument("--limit", type=int, default=60)
    args = parser.parse_args()
    signal.alarm(args.limit)
    loop = loops.factory(args.module)()
    (micro if args.kind == "micro" else serve)(loop, args)
    loop.close()


if __name__ == "__main__":
    main()
