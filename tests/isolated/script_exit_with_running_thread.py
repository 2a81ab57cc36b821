"""The interpreter ends while a daemon thread runs a loop, parked."""

import asyncio
import threading
import warnings

from kinds import new_loop

warnings.simplefilter("ignore", ResourceWarning)
loop = new_loop()
parked = threading.Event()


async def main():
    server = await loop.create_server(asyncio.Protocol, "127.0.0.1", 0)
    loop.call_later(0.02, parked.set)
    await asyncio.sleep(3600)
    server.close()


def work():
    task = loop.create_task(main())
    task._log_destroy_pending = False
    loop.run_forever()


threading.Thread(target=work, daemon=True).start()
parked.wait(10)
print("ok")
