"""A forked child has transports of its own on a terminal that the parent's copies of pipe transports are on, too.

O_NONBLOCK belongs to the open terminal that both share: the child leaves it as it found it, and hands nothing to copies
that nobody will close. The same of transports whose loop was closed under them.
"""

import asyncio
import os
import pty
import sys
import tty
import warnings

from kinds import KIND, new_loop, skip

if KIND == "asyncio":
    skip("asyncio leaves the terminal non-blocking")
warnings.simplefilter("ignore")
_, slave = pty.openpty()
tty.setraw(slave)


def connect(loop, mode):
    method = loop.connect_read_pipe if mode == "rb" else loop.connect_write_pipe
    made, _ = loop.run_until_complete(method(asyncio.Protocol, os.fdopen(slave, mode, 0, closefd=False)))
    return made


def close(loop, *transports):
    for one in transports:
        one.close()
    loop.run_until_complete(asyncio.sleep(0.001))
    loop.close()


def fork(child):
    pid = os.fork()
    if pid == 0:
        try:
            child()
            os._exit(0)
        finally:
            os._exit(9)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def found_blocking():
    os.set_blocking(slave, True)  # as a shell does
    mine = new_loop()
    transport = connect(mine, "wb")
    assert not os.get_blocking(slave)
    close(mine, transport)
    assert os.get_blocking(slave)


def found_non_blocking():
    os.set_blocking(slave, False)
    mine = new_loop()
    close(mine, connect(mine, "wb"), connect(mine, "rb"))
    assert not os.get_blocking(slave)


loop = new_loop()
transports = [connect(loop, "rb"), connect(loop, "wb")]
fork(found_blocking)
fork(found_non_blocking)
close(loop, *transports)
assert os.get_blocking(slave)

# A loop that was closed under its transport has put the terminal back, and is asked for nothing more.
left = new_loop()
left_transport = connect(left, "rb")
left.close()
assert os.get_blocking(slave)
after = new_loop()
close(after, connect(after, "wb"))
assert os.get_blocking(slave)
print("ok")
sys.stdout.flush()
