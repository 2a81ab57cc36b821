"""A server, clients, timers and tasks with the garbage collector starting at nearly every allocation."""

import asyncio
import gc

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

    server = await asyncio.start_server(echo, "127.0.0.1", 0)
    address = server.sockets[0].getsockname()
    await asyncio.gather(*map(client, range(8)))
    server.close()
    await server.wait_closed()
    await asyncio.sleep(0)


gc.set_threshold(1, 1, 1)
loop.run_until_complete(main())
gc.set_threshold(700, 10, 10)
loop.close()
print("ok")
