"""multiprocessing with the fork method, and a pool of processes, beside a running loop."""

import asyncio
import concurrent.futures
import multiprocessing
import warnings

from kinds import new_loop

warnings.simplefilter("ignore")


def work(n):
    loop = new_loop()
    try:
        return loop.run_until_complete(asyncio.sleep(0, n * n))
    finally:
        loop.close()


async def main():
    context = multiprocessing.get_context("fork")
    with concurrent.futures.ProcessPoolExecutor(2, mp_context=context) as pool:
        loop = asyncio.get_running_loop()
        return await asyncio.gather(*(loop.run_in_executor(pool, work, n) for n in range(6)))


if __name__ == "__main__":
    loop = new_loop()
    assert loop.run_until_complete(main()) == [n * n for n in range(6)]
    loop.close()
    print("ok")
