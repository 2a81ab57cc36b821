"""Datagram endpoints where a process could end badly: a fork in datagram_received(), a descriptor closed behind the
transport's back, addresses whose finalizers end the transport, threads that use one all at once, and endpoints left
open at the end of the loop and of the interpreter.
"""

import asyncio
import contextlib
import gc
import os
import socket
import sys
import tempfile
import threading
import warnings

from kinds import new_loop

warnings.simplefilter("ignore")
loop = new_loop()
loop.set_exception_handler(lambda loop, context: None)


class Datagrams(asyncio.DatagramProtocol):
    def __init__(self):
        self.data, self.errors, self.lost = [], [], 0

    def connection_made(self, transport):
        self.transport = transport

    def datagram_received(self, data, addr):
        self.data.append(data)

    def error_received(self, exc):
        self.errors.append(exc)

    def connection_lost(self, exc):
        self.lost += 1


async def make(factory=Datagrams, **kwargs):
    return await loop.create_datagram_endpoint(factory, **(kwargs or {"local_addr": ("127.0.0.1", 0)}))


async def until(condition):
    async with asyncio.timeout(10):
        while not condition():
            await asyncio.sleep(0.001)


class Forking(Datagrams):
    def datagram_received(self, data, addr):
        super().datagram_received(data, addr)
        if data == b"fork":
            pid = os.fork()
            if pid == 0:
                try:
                    transport = self.transport
                    transport.sendto(b"of the child", transport.get_extra_info("sockname"))
                    if sys.argv[1] == "uvpy":  # in asyncio's, the parent's epoll loses the descriptor by it
                        transport.close()
                    del self.transport, transport
                    gc.collect()
                finally:
                    os._exit(0)
            assert os.waitpid(pid, 0)[1] == 0


async def fork():
    transport, protocol = await make(Forking)
    with socket.socket(type=socket.SOCK_DGRAM) as sock:
        for data in (b"a", b"fork", b"b", b"c"):
            sock.sendto(data, transport.get_extra_info("sockname"))
        await until(lambda: len(protocol.data) == 5)
        assert protocol.data == [b"a", b"fork", b"b", b"c", b"of the child"], protocol.data
        sock.sendto(b"d", transport.get_extra_info("sockname"))
        await until(lambda: protocol.data[-1] == b"d")
    transport.close()
    await until(lambda: protocol.lost)


async def closed_behind():
    transport, protocol = await make()
    os.close(transport._sock_fd)
    transport.sendto(b"x", ("127.0.0.1", 9))
    transport.sendto(b"x", ("localhost", 9))
    assert len(protocol.errors) == 2
    transport.pause_reading()
    transport.close()
    with contextlib.suppress(OSError):
        await until(lambda: protocol.lost)


async def finalizers():
    class Path(str):
        def __del__(self):
            transport.abort()
            gc.collect()

    with tempfile.TemporaryDirectory() as folder, socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as full:
        path = f"{folder}/full.sock"
        full.bind(path)
        transport, protocol = await make(family=socket.AF_UNIX)
        while not transport.get_write_buffer_size():
            transport.sendto(b"x", path)
        for _ in range(100):
            transport.sendto(b"y", Path(path))
        full.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            while True:
                full.recv(10)
        await until(lambda: protocol.lost)
        transport.abort()
        await asyncio.sleep(0)
        assert protocol.lost == 1


async def threads():
    transport, protocol = await make()
    name = transport.get_extra_info("sockname")
    stopped = threading.Event()

    def hammer():
        while not stopped.is_set():
            transport.sendto(b"x", name)
            transport.sendto(b"y", ("localhost", name[1]))
            transport.get_write_buffer_size()
            repr(transport)

    started = [threading.Thread(target=hammer) for _ in range(3)]
    for thread in started:
        thread.start()
    await until(lambda: len(protocol.data) > 300)
    stopped.set()
    for thread in started:
        thread.join()
    transport.close()
    await until(lambda: protocol.lost)


for step in (fork, closed_behind, finalizers, threads):
    loop.run_until_complete(step())

# Left open: at the end of the loop, with datagrams that wait, and at the end of the interpreter.
other = new_loop()
left, protocol = other.run_until_complete(other.create_datagram_endpoint(Datagrams, local_addr=("127.0.0.1", 0)))
with socket.socket(type=socket.SOCK_DGRAM) as sock:
    for i in range(20):
        sock.sendto(b"%d" % i, left.get_extra_info("sockname"))
other.call_soon(other.stop)
other.run_forever()
assert len(protocol.data) <= 2
other.close()
with contextlib.suppress(RuntimeError):
    left.close()
repr(left)
protocol.transport = None
del left
gc.collect()
last = loop.run_until_complete(make())
print("ok")
