"""A forked copy of a program signals the program's child: what happens is what asyncio's own method does.

Up to some release it asks the Popen object, which finds no such child and does nothing; since then it sends the signal.
"""

import asyncio
import os
import signal
import sys
import warnings

from kinds import new_loop

warnings.simplefilter("ignore")
loop = new_loop()
# The methods were written anew when it stopped asking.
sends = "os" in asyncio.base_subprocess.BaseSubprocessTransport.send_signal.__code__.co_names


async def main():
    for method, args, number in (
        ("send_signal", (signal.SIGUSR1,), signal.SIGUSR1),
        ("terminate", (), signal.SIGTERM),
        ("kill", (), signal.SIGKILL),
    ):
        proc = await asyncio.create_subprocess_exec("sh", "-c", "cat; exit 4", stdin=asyncio.subprocess.PIPE)
        pid = os.fork()
        if pid == 0:
            try:
                getattr(proc._transport, method)(*args)
                os._exit(0)
            finally:
                os._exit(9)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        proc.stdin.close()
        code = await proc.wait()
        assert code == (-number if sends else 4), (method, code, sends)


loop.run_until_complete(main())
loop.close()
print("ok")
sys.stdout.flush()
