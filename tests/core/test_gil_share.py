"""What the loop leaves to the threads beside it, its own executor's too, and what a quota of processor time does."""

import asyncio
import os
import pathlib
import sys
import time

import pytest

from support.beside import DEFAULT, Watched, close, pair_of_streams, recorded, talk
from support.drive import run

pytestmark = pytest.mark.uvpy_only("asyncio does not touch the switch interval")


# ---- the others' share


class Counting(Watched):
    def __init__(self):
        self.count = 0
        super().__init__(self.increment)

    def increment(self):
        self.count += 1


@pytest.mark.parametrize("count", [1, 2, 4])
def test_busy_threads_are_not_starved(new_loop, count):
    """A loop that always finds its next packet at once lets the threads beside it have a good part of the time."""
    loop = new_loop()
    others = [Counting() for _ in range(count)]
    shares = []
    for other in others:
        other.__enter__()
    try:
        for _ in range(3):
            work = [other.count for other in others]
            run(loop, asyncio.sleep(0.4))
            between = [other.count for other in others]
            run(loop, talk(time.monotonic() + 0.4))
            alone = sum(between) - sum(work)
            beside = sum(other.count for other in others) - sum(between)
            shares.append(beside / alone)
    finally:
        for other in others:
            other.__exit__()
    assert max(shares) > 0.1, f"the busy threads came to {max(shares):.0%} of their speed"


def test_executor_threads_are_not_starved(new_loop):
    """The endpoints of a web framework that run in threads: their jobs end while the loop talks."""
    loop = new_loop()

    def job():
        end = time.thread_time() + 0.001
        while time.thread_time() < end:
            sum(range(20))

    async def main():
        talking = loop.create_task(talk(time.monotonic() + 0.8))
        done = 0
        while not talking.done():
            await asyncio.gather(*(loop.run_in_executor(None, job) for _ in range(4)))
            done += 4
        await talking
        await loop.shutdown_default_executor()
        return done

    assert run(loop, main()) >= 20


def test_bursts_are_answered_beside_a_busy_thread(new_loop):
    """Packets in bursts, with rests between that are longer than a switch interval."""

    async def main():
        reader, writer, other_reader, other_writer = await pair_of_streams()
        for _ in range(10):
            for _ in range(30):
                writer.write(b"x")
                other_writer.write(await other_reader.read(1))
                assert await reader.read(1) == b"x"
            await asyncio.sleep(0.02)
            assert sys.getswitchinterval() == DEFAULT
        await close(writer, other_writer)

    with Watched(lambda: None):
        run(new_loop(), main())


# ---- a quota of processor time


def quota_folder():
    """A new control group with half a core, its file of processes; or why there is none."""
    name = f"uvpy-test-{os.getpid()}"
    for root, settings in (
        ("/sys/fs/cgroup", {"cpu.max": "50000 100000"}),
        ("/sys/fs/cgroup/cpu", {"cpu.cfs_period_us": "100000", "cpu.cfs_quota_us": "50000"}),
    ):
        folder = pathlib.Path(root, name)
        try:
            folder.mkdir()
        except OSError:
            continue
        try:
            for file, value in settings.items():
                if not (folder / file).exists():
                    raise FileNotFoundError(file)
                (folder / file).write_text(value)
        except OSError:
            folder.rmdir()
            continue
        return folder
    pytest.skip("no control group for processor time can be made here")


@pytest.fixture
def half_a_core():
    folder = quota_folder()
    yield folder
    folder.rmdir()


QUOTA = """
import os
with open(os.environ["GROUP"], "w") as file:
    file.write(str(os.getpid()))
import time
loop = uvpy.new_event_loop()
async def main():
    end = time.monotonic() + 1.5
    while time.monotonic() < end:
        await asyncio.sleep(0.0005)
        mark = time.thread_time() + 0.002
        while time.thread_time() < mark:
            pass
loop.run_until_complete(main())
end()
loop.close()
print(len(calls), sys.getswitchinterval())
"""


def test_a_throttled_process_is_not_taken_for_contention(half_a_core):
    """Half a core for a loop that wants a whole one: it is stopped for long, with nobody to blame."""
    said = recorded(QUOTA, busy=0, env={"GROUP": f"{half_a_core}/cgroup.procs"})
    assert said == f"0 {DEFAULT}"


def test_a_throttled_process_beside_a_busy_thread(half_a_core):
    """There is contention indeed; the interval is the user's at the end all the same."""
    said = recorded(QUOTA, busy=1, env={"GROUP": f"{half_a_core}/cgroup.procs"})
    assert said.endswith(f" {DEFAULT}")
