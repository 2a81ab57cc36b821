"""Beside a busy thread the loop shortens the switch interval; a thread that saves and sets it again meanwhile does not
make that last.
"""

import asyncio
import sys
import threading

from kinds import KIND, new_loop, skip

if KIND == "asyncio":
    skip("asyncio does not touch the switch interval")
stop = threading.Event()
meddled = threading.Event()


def busy():
    while not stop.is_set():
        sum(range(20))


def meddle():
    """As code does that wants another interval for a moment."""
    while not stop.is_set():
        before = sys.getswitchinterval()
        if before < 0.001:
            sys.setswitchinterval(before)
            meddled.set()
            return


async def wait(times):
    for _ in range(times):
        await asyncio.sleep(0.001)


assert sys.getswitchinterval() == 0.005
loop = new_loop()
thread = threading.Thread(target=busy)
thread.start()
loop.run_until_complete(wait(40))
other = threading.Thread(target=meddle)
other.start()
for _ in range(50):
    loop.run_until_complete(wait(20))
    if meddled.is_set():
        break
assert meddled.is_set(), loop._core_stats()
loop.run_until_complete(wait(40))
seen = sys.getswitchinterval()
stop.set()
thread.join()
other.join()
assert abs(seen - 0.005) < 1e-5, seen
loop.run_until_complete(wait(5))
assert abs(sys.getswitchinterval() - 0.005) < 1e-5
loop.close()
print("ok")
