"""multiprocessing by each of its methods while the loop runs: processes, and pools of them, each with its own loop."""

import asyncio
import concurrent.futures
import multiprocessing
import warnings

from kinds import new_loop

warnings.simplefilter("ignore")


def work(n):
    async def main():
        server = await asyncio.start_server(lambda r, w: w.close(), "127.0.0.1", 0)
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        got = await reader.read()
        writer.close()
        server.close()
        return got + b"%d" % (n * n)

    loop = new_loop()
    try:
        return loop.run_until_complete(main())
    finally:
        loop.close()


def send_work(connection, n):
    connection.send(work(n))
    connection.close()


async def process(context):
    """One that answers through a pipe, which the loop watches."""
    loop = asyncio.get_running_loop()
    mine, its = context.Pipe(False)
    child = context.Process(target=send_work, args=(its, 7))
    child.start()
    its.close()
    ready = loop.create_future()
    loop.add_reader(mine.fileno(), lambda: ready.done() or ready.set_result(None))
    await asyncio.wait_for(ready, 25)
    loop.remove_reader(mine.fileno())
    assert mine.recv() == b"49"
    mine.close()
    await loop.run_in_executor(None, child.join)
    assert child.exitcode == 0


async def main():
    loop = asyncio.get_running_loop()
    for method in ("fork", "forkserver", "spawn"):
        context = multiprocessing.get_context(method)
        await process(context)
        with concurrent.futures.ProcessPoolExecutor(2, mp_context=context) as pool:
            got = await asyncio.gather(*(loop.run_in_executor(pool, work, n) for n in range(4)))
        assert got == [b"0", b"1", b"4", b"9"], (method, got)
    await loop.shutdown_default_executor()


if __name__ == "__main__":
    loop = new_loop()
    loop.run_until_complete(main())
    loop.close()
    print("ok")
