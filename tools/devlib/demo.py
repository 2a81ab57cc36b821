"""`tools/dev demo`: an aiohttp application on asyncio and on uvpy, under the same load in turn."""

from __future__ import annotations

import contextlib
import json
import statistics
import subprocess
from collections.abc import Iterator

from .builds import Env
from .steps import ROOT, Failure, end_group, environment, step

LOOPS = ("asyncio", "uvpy")
FOLDER = ROOT / "tools" / "demo"


def run(env: Env, *, rounds: int, seconds: float, connections: int) -> int:
    results: dict[str, list[dict[str, float]]] = {kind: [] for kind in LOOPS}
    classes: dict[str, str] = {}
    with contextlib.ExitStack() as stack:
        step(f"serve the aiohttp application of {FOLDER.name}/app.py, once on each loop (Python {env.key})")
        ports = {kind: stack.enter_context(_server(env, kind)) for kind in LOOPS}
        for kind in LOOPS:
            _load(env, ports[kind], connections, 0.5)  # warm-up
        step(f"load them in turn, {rounds} x {seconds:g} s each, {connections} connections, from another process")
        for number in range(rounds):
            # There and back, so that neither always comes first.
            for kind in LOOPS if number % 2 == 0 else reversed(LOOPS):
                told = _load(env, ports[kind], connections, seconds)
                classes[kind] = str(told.pop("loop"))
                results[kind].append({name: float(value) for name, value in told.items()})
                step(f"  round {number + 1}: {kind:8} {results[kind][-1]['rate']:9,.0f} requests/s")
    _table(results, classes)
    return 0


def _table(results: dict[str, list[dict[str, float]]], classes: dict[str, str]) -> None:
    width = max(map(len, classes.values()))
    head = f"{'loop class, as the server says':{width}} {'requests/s':>11} {'p50':>9} {'p99':>9} {'CPU/request':>12}"
    print(f"\n{'':8} {head}")
    for kind, rounds in results.items():
        rate, p50, p99, cpu = (statistics.median(r[name] for r in rounds) for name in ("rate", "p50", "p99", "cpu"))
        times = f"{p50 * 1e3:6.2f} ms {p99 * 1e3:6.2f} ms {cpu * 1e6:9.1f} us"
        print(f"{kind:8} {classes[kind]:{width}} {rate:11,.0f} {times}")
    print()
    for name, what in (("rate", "requests/s"), ("cpu", "CPU time a request")):
        ratios = [ours[name] / theirs[name] for ours, theirs in zip(results["uvpy"], results["asyncio"], strict=True)]
        spread = f"{min(ratios):.2f} to {max(ratios):.2f} by round"
        print(f"uvpy / asyncio: {statistics.median(ratios):.2f} times the {what} ({spread})")


@contextlib.contextmanager
def _server(env: Env, kind: str) -> Iterator[int]:
    """Runs the application; gives its port. It ends with its standard input, at the latest by a signal."""
    process = subprocess.Popen(
        [env.python, FOLDER / "app.py", kind],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=environment(env.environment()),
        start_new_session=True,
    )
    assert process.stdin
    assert process.stdout
    try:
        line = process.stdout.readline()
        if not line:
            raise Failure(f"the application did not start on {kind}; what it said stands above")
        yield int(json.loads(line)["port"])
        process.stdin.close()
        try:
            status = process.wait(10)
        except subprocess.TimeoutExpired:
            raise Failure(f"the application on {kind} did not end within 10 s") from None
        if status:
            raise Failure(f"the application on {kind} ended with status {status}")
    finally:
        end_group(process)
        process.stdout.close()


def _load(env: Env, port: int, connections: int, seconds: float) -> dict[str, str | float]:
    command = [env.python, FOLDER / "load.py", port, connections, seconds]
    done = subprocess.run(
        [str(c) for c in command], stdout=subprocess.PIPE, env=environment(env.environment()), timeout=seconds + 60
    )
    if done.returncode:
        raise Failure("the load generator failed; what it said stands above")
    told: dict[str, str | float] = json.loads(done.stdout)
    return told
