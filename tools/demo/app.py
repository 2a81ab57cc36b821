"""An aiohttp application like any other, served on the loop that is asked for: app.py asyncio|uvpy.

Prints a JSON line with its port and the class of the loop that runs, and serves until its standard
input closes, so it ends with whoever started it.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import threading
import time

from aiohttp import web


async def hello(request: web.Request) -> web.Response:
    return web.Response(text="Hello, world. " * 8)


async def loop_class(request: web.Request) -> web.Response:
    kind = type(asyncio.get_running_loop())
    return web.Response(text=f"{kind.__module__}.{kind.__qualname__}")


async def processor_time(request: web.Request) -> web.Response:
    return web.Response(text=str(time.process_time()))


async def serve() -> None:
    app = web.Application()
    app.add_routes([web.get("/", hello), web.get("/loop", loop_class), web.get("/time", processor_time)])
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = runner.addresses[0][1]

    loop = asyncio.get_running_loop()
    stopped = asyncio.Event()

    def wait_for_the_end() -> None:
        while os.read(0, 4096):
            pass
        loop.call_soon_threadsafe(stopped.set)

    threading.Thread(target=wait_for_the_end, daemon=True).start()
    print(json.dumps({"port": port, "pid": os.getpid()}), flush=True)
    await stopped.wait()
    await runner.cleanup()


def main() -> None:
    factory = None
    if sys.argv[1] == "uvpy":
        import uvpy

        factory = uvpy.new_event_loop
    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(serve())


if __name__ == "__main__":
    main()
