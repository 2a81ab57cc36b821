"""Runs for ever; says "ready" once its loop runs. Arguments: the kind of loop, and what it does meanwhile."""

import asyncio
import sys
import threading

from kinds import new_loop

state = sys.argv[2]
loop = new_loop()


def spin():
    loop.call_soon(spin)


if state == "busy":
    spin()
elif state == "server":
    server = loop.run_until_complete(loop.create_server(asyncio.Protocol, "127.0.0.1", 0))
elif state == "thread":
    other = new_loop()
    threading.Thread(target=other.run_forever, daemon=True).start()
loop.call_soon(lambda: print("ready", flush=True))
loop.run_forever()
