"""A client of a Dask cluster: FILE WORKERS loops|compute|throughput [TASKS]; it prints what it found as JSON.

Run by tools/devlib/cluster.py in a process of its own, on the same loop as the cluster's. FILE is the scheduler's
connection file, WORKERS how many must have come.
"""

import asyncio
import contextlib
import hashlib
import importlib
import json
import os
import pathlib
import sys
import time

import distributed


def class_of_loop(loop):
    return f"{type(loop).__module__}.{type(loop).__qualname__}"


def loop_of_worker(dask_worker):
    return os.getpid(), class_of_loop(dask_worker.loop.asyncio_loop)


def loop_of_scheduler(dask_scheduler):
    return os.getpid(), class_of_loop(dask_scheduler.loop.asyncio_loop)


def increment(number):
    return number + 1


def digest(number, size):
    return hashlib.sha256(bytes([number % 256]) * size).digest()


def together(*parts):
    return hashlib.sha256(b"".join(parts)).hexdigest()


def fails():
    raise LookupError("from a worker")


def block(number, size):
    return bytes([number]) * size


def loops(client):
    """Which loop each process of the cluster runs on, and this one's client."""
    here = []

    async def note():
        here.append(class_of_loop(asyncio.get_running_loop()))

    client.sync(note)
    workers = client.run(loop_of_worker)
    return {
        "client": here[0],
        "scheduler": client.run_on_scheduler(loop_of_scheduler),
        "workers": sorted(workers.values()),
    }


def compute(client):
    """Work that crosses the cluster in every direction; each result is compared with what it is without Dask."""
    numbers = client.map(increment, range(500))
    assert sum(client.gather(numbers)) == sum(range(1, 501))

    # A tree whose parts lie on different workers, so that they fetch from each other.
    workers = list(client.scheduler_info()["workers"])
    parts = [client.submit(digest, i, 100_000, workers=[workers[i % len(workers)]]) for i in range(40)]
    whole = client.submit(together, *parts, workers=[workers[0]])
    assert whole.result() == together(*(digest(i, 100_000) for i in range(40)))

    # Bigger than any buffer on the way, from worker to worker and to the client.
    there = client.submit(block, 7, 20_000_000, workers=[workers[-1]])
    assert client.submit(len, there, workers=[workers[0]]).result() == 20_000_000
    assert there.result() == bytes([7]) * 20_000_000

    failed = client.submit(fails).exception()
    assert type(failed) is LookupError
    assert failed.args == ("from a worker",)

    # A task that asks its own worker's loop for more work.
    assert client.submit(recursive, 9).result() == 34

    moved = client.scatter(b"x" * 1_000_000, broadcast=True)
    assert client.submit(len, moved).result() == 1_000_000
    return {"workers": len(workers)}


def recursive(number):
    """Fibonacci, each step a task of its own."""
    if number < 2:
        return number
    client = distributed.get_client()
    first, second = client.submit(recursive, number - 1), client.submit(recursive, number - 2)
    distributed.secede()
    return sum(client.gather([first, second]))


def spent(dask_scheduler):
    times = os.times()
    return times.user + times.system


def throughput(client, tasks):
    """Tiny tasks, half of them independent and half reduced in pairs: what costs is the scheduler."""

    def work(number, salt):
        leaves = client.map(increment, [salt + i for i in range(number // 2)], pure=False)
        while len(leaves) > 1:
            last = leaves[-1:] if len(leaves) % 2 else []
            leaves = [
                client.submit(max, *pair, pure=False) for pair in zip(leaves[::2], leaves[1::2], strict=False)
            ] + last
        return leaves[0].result()

    work(200, 0)  # warm-up
    before, began = client.run_on_scheduler(spent), time.monotonic()
    assert work(tasks, 10_000) == 10_000 + tasks // 2
    seconds = time.monotonic() - began
    used = client.run_on_scheduler(spent) - before
    return {
        "rate": tasks / seconds,
        "cpu": used / tasks,
        "loop": client.run_on_scheduler(loop_of_scheduler)[1],
        "version": client.run_on_scheduler(version_of_loop),
        "dask": distributed.__version__,
    }


def version_of_loop(dask_scheduler):
    package = type(dask_scheduler.loop.asyncio_loop).__module__.partition(".")[0]
    module = importlib.import_module(package)
    return getattr(module, "__version__", "Python " + sys.version.split()[0])


def main(file, workers, what, *rest):
    deadline = time.monotonic() + 60
    while not pathlib.Path(file).exists() or not pathlib.Path(file).stat().st_size:
        assert time.monotonic() < deadline, "the scheduler did not come"
        time.sleep(0.05)
    works = {"loops": loops, "compute": compute, "throughput": throughput}
    with contextlib.closing(distributed.Client(scheduler_file=file, timeout=60)) as client:
        client.wait_for_workers(int(workers), timeout=60)
        told = works[what](client, *map(int, rest))
    print(json.dumps(told))


if __name__ == "__main__":
    main(*sys.argv[1:])
