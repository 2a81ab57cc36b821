"""What a child is that was forked while a loop runs: no loop runs there, new ones do, with all that they can; the loop
that it has from its parent says of itself what asyncio's says.
"""

import asyncio
import gc
import os
import signal
import sys
import threading
import time
import warnings

from forks import Ears, answer_of_a_child
from kinds import KIND, new_loop

warnings.simplefilter("ignore")


def run(coro):
    """asyncio.run, or ours."""
    if KIND == "uvpy":
        import uvpy

        return uvpy.run(coro)
    return asyncio.run(coro)


async def work():
    loop = asyncio.get_running_loop()
    await asyncio.sleep(0.001)
    process = await asyncio.create_subprocess_exec("/bin/sh", "-c", "exit 3")
    server = await asyncio.start_server(lambda r, w: w.close(), "127.0.0.1", 0)
    reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
    got = await reader.read()
    writer.close()
    server.close()
    return (
        got,
        await process.wait(),
        await loop.run_in_executor(None, lambda: 5),
        len(asyncio.all_tasks()),
        threading.current_thread() is threading.main_thread(),
    )


WORKED = repr((b"", 3, 5, 1, True))


def no_loop_runs():
    return asyncio._get_running_loop() is None


def interrupted():
    started = time.monotonic()
    threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGINT)).start()
    try:
        run(asyncio.sleep(10))
    except KeyboardInterrupt:
        return time.monotonic() - started < 5


def parents_loop(loop):
    """What can be asked of it; nothing of it is run."""
    said = [loop.is_running(), loop.is_closed(), repr(loop).partition(" ")[2], loop.time() > 0]
    loop.call_soon(print, "never")
    timer = loop.call_later(0.001, print, "never")
    timer.cancel()
    said += [timer.cancelled(), loop.create_future().done()]
    for call in (loop.close, lambda: loop.run_until_complete(asyncio.Future(loop=loop))):
        try:
            call()
        except RuntimeError as exc:
            said.append(str(exc))
    return said


PARENTS = repr(
    [
        *(True, False, "running=True closed=False debug=False>", True, True, False),
        *("Cannot close a running event loop", "This event loop is already running"),
    ]
)


def signals(loop):
    """The parent's handlers are not run for a child's signals; the child has its own."""
    got = []

    def act():
        os.kill(os.getpid(), signal.SIGUSR1)
        time.sleep(0.01)
        mine = new_loop()
        mine.add_signal_handler(signal.SIGUSR1, lambda: (got.append("mine"), mine.stop()))
        mine.call_soon(os.kill, os.getpid(), signal.SIGUSR1)
        mine.call_later(5, mine.stop)
        mine.run_forever()
        mine.close()
        return got, signal.getsignal(signal.SIGUSR1) == signal.SIG_DFL

    loop.add_signal_handler(signal.SIGUSR1, got.append, "the parent's")
    said = answer_of_a_child(act)
    loop.remove_signal_handler(signal.SIGUSR1)
    assert said == repr((["mine"], True)), said


def the_set_loop():
    """get_event_loop() after a fork, with a loop set in the parent: from 3.12 on the policy of a child knows of none,
    and up to 3.13 makes one then.
    """
    loop = new_loop()
    asyncio.set_event_loop(loop)

    def act():
        try:
            return asyncio.get_event_loop() is loop
        except RuntimeError:
            return "none"

    said = answer_of_a_child(act)
    asyncio.set_event_loop(None)
    loop.close()
    return said


def everywhere(loop, act):
    """The answers, to come, of children that are forked wherever a program's code is called."""
    said = {}

    def fork(where):
        said[where] = answer_of_a_child(act)

    async def task():
        fork("task")

    r, w = os.pipe()
    os.write(w, b"!")
    loop.add_reader(r, lambda: (loop.remove_reader(r), fork("reader")))
    loop.call_soon(fork, "callback")
    loop.call_later(0.001, fork, "timer")
    return said, (r, w), (loop.run_in_executor(None, fork, "thread"), loop.create_task(task()))


async def main():
    loop = asyncio.get_running_loop()
    ears = await Ears().begin()
    for act, wanted in (
        (no_loop_runs, "True"),
        (lambda: run(work()), WORKED),
        (interrupted, "True"),
        (lambda: parents_loop(loop), PARENTS),
        (gc.collect, None),
    ):
        said, pipe, others = everywhere(loop, act)
        while len(said) < 5:
            await asyncio.sleep(0.001)
        await asyncio.gather(*others)
        assert sorted(said) == ["callback", "reader", "task", "thread", "timer"]
        for where, answer in said.items():
            assert wanted is None or answer == wanted, (where, answer)
            assert "Traceback" not in answer, (where, answer)
        for fd in pipe:
            os.close(fd)
        await ears.check()
    signals(loop)
    await ears.end()


loop = new_loop()
loop.set_debug(False)  # in debug mode a thread may not ask a loop for all of that, in a child neither
loop.run_until_complete(main())
loop.close()
wanted = "True" if sys.version_info < (3, 12) else "False" if sys.version_info < (3, 14) else "'none'"
said = the_set_loop()
assert said == wanted, said
print("ok")
