"""The interpreter ends with the current loop never closed: asyncio keeps it until most modules are empty.

As soon as it is held by nobody else, as it is here, its finalizer closes it. Children, a signal handler and debug mode
are what close() has to do with besides.
"""

import asyncio
import os
import signal
import subprocess
import sys
import warnings

from kinds import KIND

warnings.simplefilter("ignore", ResourceWarning)


def end(held, debug, child, handler):
    loop = kinds.new_loop()
    asyncio.set_event_loop(loop)
    loop.set_debug(debug)
    if held:
        import uvpy._loop
        import uvpy._process

        sys.held = [uvpy, uvpy._loop, uvpy._process, asyncio.base_events]
    if handler:
        loop.add_signal_handler(signal.SIGUSR1, print)
    if child:
        loop.run_until_complete(loop.subprocess_exec(asyncio.SubprocessProtocol, "cat", stdout=None))
    loop.run_until_complete(asyncio.sleep(0))


if len(sys.argv) > 2:
    import kinds

    end(*(flag == "1" for flag in sys.argv[2]))
else:
    for number in range(16):
        flags = f"{number:04b}"
        command = [sys.executable, __file__, KIND, flags]
        done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "PYTHONASYNCIODEBUG": ""})
        assert done.returncode == 0, (flags, done)
        if KIND == "uvpy":
            assert done.stderr == "", (flags, done.stderr)
    print("ok")
