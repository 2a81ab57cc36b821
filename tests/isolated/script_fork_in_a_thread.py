"""Threads that fork while the loop is parked: the child is that thread alone, closes and drops what it has of its
parent and ends as threads end, normally; the parent does not notice.
"""

import asyncio
import contextlib
import gc
import os
import threading
import warnings

from forks import Ears
from kinds import new_loop

warnings.simplefilter("ignore")
loop = new_loop()
holder = [loop]
other = new_loop()  # never ran
status = []


def in_the_child():
    loop.call_soon_threadsafe(print, "never")
    with contextlib.suppress(RuntimeError):  # it runs, as far as it knows
        loop.close()
    other.close()
    assert loop.is_running()
    assert not loop.is_closed()
    assert other.is_closed()
    mine = new_loop()
    assert mine.run_until_complete(asyncio.sleep(0.001, 4)) == 4
    mine.close()
    holder.clear()
    gc.collect()


def forks(how):
    pid = os.fork()
    if pid == 0:
        try:
            in_the_child()
        except BaseException:
            os._exit(9)
        if how == "at once":
            os._exit(0)
        return  # the thread ends, and with it the process, by its normal end
    status.append(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))


async def main():
    ears = await Ears().begin()
    for how in ("at once", "normally", "at once", "normally"):
        thread = threading.Thread(target=forks, args=(how,))
        thread.start()
        count = len(status)
        while len(status) == count:
            await asyncio.sleep(0.002)
        thread.join()
        await ears.check()
    await ears.end()


loop.run_until_complete(main())
assert status == [0, 0, 0, 0], status
assert other.run_until_complete(asyncio.sleep(0.001, 5)) == 5
other.close()
loop.close()
print("ok")
