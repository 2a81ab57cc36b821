"""sys.exit() in a callback of a loop with work left."""

import asyncio
import sys
import warnings

from kinds import new_loop

warnings.simplefilter("ignore", ResourceWarning)
loop = new_loop()


async def main():
    server = await loop.create_server(asyncio.Protocol, "127.0.0.1", 0)
    loop.call_later(3600, print)
    loop.call_later(0.01, sys.exit, 0)
    print("ok", flush=True)
    await server.serve_forever()


task = loop.create_task(main())
task._log_destroy_pending = False
loop.run_forever()
