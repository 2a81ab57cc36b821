"""The interpreter ends with children running, one of a loop that is open and one of a loop that was closed."""

import asyncio
import contextlib
import os
import signal
import sys
import warnings

from kinds import new_loop

if sys.argv[1] == "asyncio":
    print("skip: a transport of asyncio's that is collected this late may complain of its closed loop")
    sys.exit()

warnings.simplefilter("ignore")
pids = []
loops = []
for close in (True, False):
    loop = new_loop()
    proc = loop.run_until_complete(asyncio.create_subprocess_exec("sleep", "60", stdout=asyncio.subprocess.PIPE))
    pids.append(proc.pid)
    loops.append((loop, proc))
    if close:
        loop.close()
# Nothing may outlive the test.
if os.fork() == 0:
    os.setsid()
    os.close(1)
    os.close(2)
    parent = os.getppid()
    while os.getppid() == parent:
        os.sched_yield()
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    os._exit(0)
print("ok")
