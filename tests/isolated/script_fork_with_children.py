"""A forked copy of a program that has children: what it does to its copies of loop and transport is its own affair."""

import asyncio
import gc
import os
import warnings

from kinds import KIND, new_loop, skip

if KIND == "asyncio":
    skip("closing the copy of asyncio's loop makes the parent's deaf")
warnings.simplefilter("ignore")


class Notes(asyncio.SubprocessProtocol):
    def __init__(self):
        self.done = asyncio.get_running_loop().create_future()
        self.forked = None

    def process_exited(self):
        # A fork in a protocol: the copy leaves at once, the parent goes on.
        self.forked = os.fork()
        if self.forked == 0:
            os._exit(7)

    def connection_lost(self, exc):
        self.done.set_result(exc)


async def start():
    return await asyncio.get_running_loop().subprocess_exec(Notes, "cat", stdout=None, stderr=None)


loop = new_loop()
transport, protocol = loop.run_until_complete(start())
for drop in (False, True):
    pid = os.fork()
    if pid == 0:
        if drop:
            del loop, transport, protocol
            gc.collect()
        else:
            loop.close()
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0

# A copy that runs a loop of its own, with a child of its own.
pid = os.fork()
if pid == 0:
    own = new_loop()

    async def one():
        proc = await asyncio.create_subprocess_exec("sh", "-c", "exit 3")
        return await proc.wait()

    asyncio.set_event_loop(None)
    os._exit(own.run_until_complete(one()))
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 3

transport.get_pipe_transport(0).close()
assert loop.run_until_complete(protocol.done) is None
assert transport.get_returncode() == 0
assert os.waitstatus_to_exitcode(os.waitpid(protocol.forked, 0)[1]) == 7
transport.close()
loop.close()
print("ok")
