"""atexit functions use loops: one that is open still, and a new one."""

import asyncio
import atexit

from kinds import new_loop

loop = new_loop()
loop.run_until_complete(asyncio.sleep(0))


@atexit.register
def at_exit():
    loop.run_until_complete(asyncio.sleep(0.001))
    loop.close()
    fresh = new_loop()
    assert fresh.run_until_complete(asyncio.sleep(0, 5)) == 5
    fresh.close()
    print("ok")
