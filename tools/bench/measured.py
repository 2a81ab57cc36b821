"""The measured process: measured.py micro|serve LABEL CASE [--count] [--limit SECONDS] [--counters FILE].

It knows one contender and one case, is started afresh for each round and says that it is ready by a line of JSON. A
micro case ends with its standard input, a server by a signal; both by SIGALRM should they outlive their limit.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import hashlib
import json
import mmap
import os
import resource
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterable
from typing import Any

import loops
import native
import servers
import stats
from cases import CASES, COUNTED, Load, Micro
from cases.kinds import Loop, usage

WARM_UP = 0.05
COUNTERS = 8
"""How many threads can say how far they are."""

Run = Callable[[int], Iterable[int] | None]


def say(**told: object) -> None:
    print(json.dumps(told), flush=True)


def micro(case: Micro, run: Run) -> None:
    """For each line with a number of seconds: so many batches as fill them, at least one; says what they cost."""
    clock = time.process_time if case.figure == "cpu" else time.perf_counter

    def work(seconds: float) -> dict[str, Any]:
        done = 0
        times: list[int] = []
        user, system = usage()
        cpu, wall = time.process_time(), time.perf_counter()
        end = clock() + seconds
        while not done or clock() < end:
            times.extend(run(case.size) or ())
            done += case.size
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
        user_after, system_after = usage()
        told = {
            "operations": done,
            "wall": wall,
            "cpu": cpu,
            "user": user_after - user,
            "system": system_after - system,
        }
        return {**told, "histogram": stats.Histogram.of(times).pairs()} if times else told

    work(WARM_UP)
    gc.collect()
    say(loop=_class.get("loop", ""))
    for line in sys.stdin:
        say(**work(float(line)))


def count(case: Micro, run: Run) -> None:
    """Under callgrind: a batch as a warm-up, one more with counting on, since CPython specialises what it runs; then
    the one that is counted from 0.
    """
    marks = ctypes.CDLL(str(native.marks()))
    gc.collect()
    gc.disable()  # when it would come depends on all that was ever imported
    run(case.counted)
    run(case.counted)
    marks.counting_begins()
    run(case.counted)
    marks.counting_ends()


def serve(label: str, loop: Loop, case: Load) -> None:
    address = loop.run_until_complete(servers.SERVERS[case.server](loop, case))
    for _ in range(case.loops - 1):
        listens = threading.Event()
        threading.Thread(target=also_serve, args=(label, case, listens), daemon=True).start()
        listens.wait()
    say(loop=_class["loop"], address=address)
    loop.run_forever()


def also_serve(label: str, case: Load, listens: threading.Event) -> None:
    try:
        loop = loops.factory(label)()
        loop.run_until_complete(servers.SERVERS[case.server](loop, case))
        listens.set()
        loop.run_forever()
    except BaseException:
        traceback.print_exc()
        os._exit(1)  # the process serves with all of its loops or not at all


def busy(number: int, counters: memoryview) -> None:
    """Computes for ever, and says how far it is."""
    while True:
        for _ in range(1000):
            pass
        counters[number] += 1


def dropping(number: int, counters: memoryview) -> None:
    """Gives up the GIL some thousand times a second for work that needs none, as numpy does."""
    data = bytes(64 * 1024)
    while True:
        hashlib.sha256(data).digest()
        for _ in range(1000):
            pass
        counters[number] += 1


def start_threads(case: Load, file: str) -> None:
    if not case.busy:
        return
    descriptor = os.open(file, os.O_RDWR)
    counters = memoryview(mmap.mmap(descriptor, COUNTERS * 8)).cast("Q")
    target = dropping if case.drops else busy
    for number in range(case.busy):
        threading.Thread(target=target, args=(number, counters), daemon=True).start()


_class: dict[str, str] = {}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kind", choices=("micro", "serve"))
    parser.add_argument("label", choices=list(loops.CONTENDERS))
    parser.add_argument("case", choices=list({**CASES, **COUNTED}))
    parser.add_argument("--count", action="store_true", help="once, for counting instructions")
    parser.add_argument("--limit", type=int, default=60)
    parser.add_argument("--counters", default="", help="the file in which busy threads count")
    args = parser.parse_args()
    signal.alarm(args.limit)
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    os.environ["BENCH_LABEL"] = args.label
    case = {**COUNTED, **CASES}[args.case]
    if args.label == loops.BARE:
        assert isinstance(case, Micro)
        assert case.bare
        _class["loop"] = "none"
        (count if args.count else micro)(case, case.bare)
        return
    loop = loops.factory(args.label)()
    _class["loop"] = f"{type(loop).__module__}.{type(loop).__qualname__}"
    if isinstance(case, Load):
        if case.interval:
            sys.setswitchinterval(case.interval)
        start_threads(case, args.counters)
        serve(args.label, loop, case)
    else:
        assert isinstance(case, Micro)
        whole = case

        def run(size: int) -> Iterable[int] | None:
            return whole.run(loop, size)

        (count if args.count else micro)(case, run)
        sys.stdout.flush()
        if args.count or case.service or args.case == "websockets":
            os._exit(0)  # with what it keeps open; closing is not what is measured
    loop.close()


if __name__ == "__main__":
    main()
