"""The measured process: measured.py micro|serve MODULE CASE [options]. It prints one line of JSON.

It knows one loop and one case, is started afresh for each sample, and is ended by SIGALRM should it outlive --limit.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import signal
import statistics
import time

import loops
import workloads


def micro(loop: asyncio.AbstractEventLoop, args: argparse.Namespace) -> None:
    """Runs a case for --seconds, or, where instructions are counted, --batches times.

    `cpu` is that of the batch in the middle: a neighbour on the machine slows some batches, not most.
    """
    case = workloads.MICRO[args.case]
    size = case.counted if args.batches else case.size
    case.run(loop, case.counted)  # warm-up
    gc.collect()
    batches: list[float] = []
    begin = time.perf_counter()
    user, system = workloads.usage()
    while True:
        before = time.process_time()
        case.run(loop, size)
        batches.append(time.process_time() - before)
        wall = time.perf_counter() - begin
        if len(batches) >= args.batches and wall >= args.seconds:
            break
    user_after, system_after = workloads.usage()
    count = len(batches) * size
    told = {"operations": count, "wall": wall, "user": user_after - user, "system": system_after - system}
    print(json.dumps({"class": _class(loop), "cpu": statistics.median(batches) / size, **told}), flush=True)


def serve(loop: asyncio.AbstractEventLoop, args: argparse.Namespace) -> None:
    """Serves until the load generator says that it is done."""
    echo = loop.run_until_complete(loop.create_server(workloads.EchoProtocol, "127.0.0.1", 0))
    control = loop.run_until_complete(loop.create_server(workloads.ControlProtocol, "127.0.0.1", 0))
    told = {"port": echo.sockets[0].getsockname()[1], "control": control.sockets[0].getsockname()[1]}
    print(json.dumps({"class": _class(loop), **told}), flush=True)
    loop.run_forever()
    echo.close()
    control.close()


def _class(loop: asyncio.AbstractEventLoop) -> str:
    return f"{type(loop).__module__}.{type(loop).__qualname__}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kind", choices=("micro", "serve"))
    parser.add_argument("module")
    parser.add_argument("case", choices=list(workloads.CASES))
    parser.add_argument("--seconds", type=float, default=0.0)
    parser.add_argument("--batches", type=int, default=0)
    parser.add_argument("--limit", type=int, default=60)
    args = parser.parse_args()
    signal.alarm(args.limit)
    loop = loops.factory(args.module)()
    (micro if args.kind == "micro" else serve)(loop, args)
    loop.close()


if __name__ == "__main__":
    main()
