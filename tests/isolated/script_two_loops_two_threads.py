"""Two loops in two threads talk to each other over TCP, thousands of messages, and end."""

import asyncio
import threading

from kinds import new_loop

ROUNDS = 1500
address = []
listening = threading.Event()
results = []


async def serve():
    done = asyncio.get_running_loop().create_future()

    async def echo(reader, writer):
        while line := await reader.readline():
            writer.write(line)
        writer.close()
        await writer.wait_closed()
        done.set_result(None)

    server = await asyncio.start_server(echo, "127.0.0.1", 0)
    address.extend(server.sockets[0].getsockname())
    listening.set()
    await done
    server.close()
    await server.wait_closed()
    await asyncio.sleep(0)


async def talk():
    reader, writer = await asyncio.open_connection(*address)
    for n in range(ROUNDS):
        writer.write(b"%d\n" % n)
        assert await reader.readline() == b"%d\n" % n
    writer.close()
    await writer.wait_closed()
    results.append(ROUNDS)


def run(coro):
    loop = new_loop()
    loop.run_until_complete(coro)
    loop.close()


server = threading.Thread(target=run, args=(serve(),))
server.start()
assert listening.wait(10)
client = threading.Thread(target=run, args=(talk(),))
client.start()
for thread in (server, client):
    thread.join(20)
    assert not thread.is_alive()
assert results == [ROUNDS]
print("ok")
