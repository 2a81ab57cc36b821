"""A server, clients, timers and tasks with the garbage collector starting at nearly every allocation."""

import asyncio
import gc
import os

from kinds import new_loop

loop = new_loop()


async def main():
    async def echo(reader, writer):
        while line := await reader.readline():
            writer.write(line)
        writer.close()

    async def client(n):
        reader, writer = await asyncio.open_connection(*address)
        for k in range(5):
            writer.write(b"%d %d\n" % (n, k))
            assert await reader.readline() == b"%d %d\n" % (n, k)
            loop.call_later(0, bool).cancel()
        writer.close()
        await writer.wait_closed()

    async def through_a_pipe(n):
        r, w = os.pipe()
        reader = asyncio.StreamReader()
        await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), open(r, "rb", buffering=0))
        transport, _ = await loop.connect_write_pipe(asyncio.Protocol, open(w, "wb", buffering=0))
        for k in range(5):
            transport.write(b"%d %d\n" % (n, k))
            assert await reader.readline() == b"%d %d\n" % (n, k)
        transport.write(bytes(200_000))
        transport.close()
        assert await reader.read() == bytes(200_000)

    server = await asyncio.start_server(echo, "127.0.0.1", 0)
    address = server.sockets[0].getsockname()
    await asyncio.gather(*map(client, range(8)), *map(through_a_pipe, range(8)))
    server.close()
    await server.wait_closed()
    await asyncio.sleep(0)


gc.set_threshold(1, 1, 1)
loop.run_until_complete(main())
gc.set_threshold(700, 10, 10)
loop.close()
print("ok")
