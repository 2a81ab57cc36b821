"""The loop that a script is about: its first argument says which."""

import asyncio
import os
import sys

KIND = sys.argv[1]


def new_loop():
    if KIND == "asyncio":
        return asyncio.SelectorEventLoop()
    import uvpy

    return uvpy.new_event_loop()


def skip(reason):
    print(f"skip: {reason}")
    sys.stdout.flush()
    os._exit(0)
