"""Children that go on with the loop they have from their parent: worker processes with a loop made before the fork, and
children of a coroutine that end as programs end.
"""

import asyncio
import os
import signal
import socket
import sys
import threading
import time
import warnings

from kinds import KIND, new_loop

warnings.simplefilter("ignore")


def run(coro):
    """asyncio.run, or ours."""
    if KIND == "uvpy":
        import uvpy

        return uvpy.run(coro)
    return asyncio.run(coro)


def status(pid):
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def in_a_child(act, wanted=True):
    """Its exit status: 0 when act() gave what is wanted."""
    pid = os.fork()
    if pid == 0:
        signal.alarm(20)
        try:
            got = act()
            if got == wanted:
                os._exit(0)
            print("a child's", got, file=sys.stderr, flush=True)
        finally:
            os._exit(2)
    return status(pid)


async def work():
    """Something of each kind."""
    loop = asyncio.get_running_loop()
    server = await asyncio.start_server(lambda r, w: (w.write(b"hi"), w.close()), "127.0.0.1", 0)
    reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
    got = await reader.read()
    writer.close()
    server.close()
    process = await asyncio.create_subprocess_exec("/bin/sh", "-c", "exit 3")
    await asyncio.sleep(0.001)
    return got, await process.wait(), await loop.run_in_executor(None, lambda: 5)


WORKED = (b"hi", 3, 5)


def exits():
    """sys.exit() in the child of a coroutine, with tasks to cancel and an executor to shut down."""
    ended = []

    async def waits():
        try:
            await asyncio.sleep(100)
        finally:
            ended.append(os.getpid())

    async def main():
        loop = asyncio.get_running_loop()
        task = loop.create_task(waits())
        if KIND == "uvpy":  # asyncio's parent may take the byte by which the child's executor says that it has ended
            await loop.run_in_executor(None, time.sleep, 0.001)
        else:
            await asyncio.sleep(0)
        pid = os.fork()
        if pid == 0:
            sys.exit(5)
        assert status(pid) == 5
        task.cancel()
        await asyncio.wait([task])
        assert ended == [os.getpid()]
        return "done"

    assert run(main()) == "done"


def a_loop_made_before():
    for has_run in (False, True):
        loop = (
            new_loop()
        )  # each time: asyncio's parent and child share an epoll set, and what the child closes both miss
        if has_run:
            loop.run_until_complete(asyncio.sleep(0.001))
        assert in_a_child(lambda loop=loop: (loop.run_until_complete(work()), loop.close()), (WORKED, None)) == 0
        if KIND == "uvpy":
            assert loop.run_until_complete(work()) == WORKED
        loop.close()
    first, other = new_loop(), new_loop()
    assert in_a_child(lambda: in_a_child(lambda: first.run_until_complete(work()), WORKED), 0) == 0
    assert in_a_child(lambda: [each.run_until_complete(work()) for each in (other, first, other)], [WORKED] * 3) == 0
    first.close()
    other.close()


def what_was_open_before():
    """A server, a reader, a connection, a timer of a loop that stands still: in the child they go on."""
    loop = new_loop()
    fired, got = [], []

    async def answer(reader, writer):
        writer.write(await reader.read(1))
        writer.close()

    server = loop.run_until_complete(asyncio.start_server(answer, "127.0.0.1", 0))
    address = server.sockets[0].getsockname()
    a, b = socket.socketpair()
    a.setblocking(False)
    reader, writer = loop.run_until_complete(asyncio.open_connection(sock=a))
    r, w = os.pipe()
    loop.add_reader(r, lambda: got.append(os.read(r, 9)))
    loop.call_later(0.01, fired.append, "timer")

    def act():
        client = socket.create_connection(address)
        client.send(b"?")
        b.send(b"line\n")
        os.write(w, b"byte")
        assert loop.run_until_complete(asyncio.wait_for(reader.readline(), 5)) == b"line\n"
        loop.run_until_complete(asyncio.sleep(0.02))
        assert client.recv(9) == b"?"
        writer.write(b"back")
        loop.run_until_complete(asyncio.sleep(0))
        return b.recv(9) == b"back" and got == [b"byte"] and fired == ["timer"]

    assert in_a_child(act) == 0
    if KIND == "uvpy":
        assert act()  # and in the parent, which shares none of that
    loop.remove_reader(r)
    writer.close()
    server.close()
    loop.run_until_complete(asyncio.sleep(0.001))
    loop.close()
    for fd in (r, w):
        os.close(fd)
    b.close()


def interrupted():
    loop = new_loop()
    loop.run_until_complete(asyncio.sleep(0))

    def act():
        signal.signal(signal.SIGINT, signal.default_int_handler)
        threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGINT)).start()
        try:
            loop.run_until_complete(asyncio.sleep(10))
        except KeyboardInterrupt:
            return loop.run_until_complete(work()) == WORKED

    assert in_a_child(act) == 0
    loop.close()


def without_a_rest():
    """A child that looks again and again, and never waits, sees what comes."""
    loop = new_loop()
    r, w = os.pipe()
    got = []
    loop.add_reader(r, lambda: got.append(os.read(r, 9)))

    async def looks():
        os.write(w, b"!")
        for _ in range(100_000):
            if got:
                return True
            await asyncio.sleep(0)
        return False

    assert in_a_child(lambda: loop.run_until_complete(looks())) == 0
    loop.remove_reader(r)
    loop.close()
    os.close(r)
    os.close(w)


def handed_on_once():
    """Datagrams and clients that the parent has taken from the kernel are the parent's."""
    loop = new_loop()
    parent, got = os.getpid(), []

    class Datagrams(asyncio.DatagramProtocol):
        def datagram_received(self, data, addr):
            got.append(data)
            if len(got) == 1:
                self.child = os.fork()
                if self.child == 0:
                    sys.exit(6)

    async def main():
        transport, protocol = await loop.create_datagram_endpoint(Datagrams, ("127.0.0.1", 0))
        for n in range(20):
            transport.sendto(b"%d" % n, transport.get_extra_info("sockname"))
        while len(got) < 20:
            await asyncio.sleep(0.001)
        transport.close()
        return status(protocol.child)

    try:
        assert loop.run_until_complete(main()) == 6
    except SystemExit as exc:
        assert os.getpid() != parent
        for _ in range(3):
            loop.run_until_complete(loop.shutdown_asyncgens())
        os._exit(exc.code if got == [b"0"] else 7)
    loop.close()


if KIND == "uvpy" or sys.version_info < (3, 14):  # from then on asyncio's child hangs: its task finds no running loop
    exits()
a_loop_made_before()
what_was_open_before()
interrupted()
without_a_rest()
if KIND == "uvpy":  # asyncio's child reads from the socket that is the parent's too
    handed_on_once()
print("ok")
