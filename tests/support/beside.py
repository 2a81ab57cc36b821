"""Threads that compute beside a loop, here or in a fresh interpreter, and what a loop is kept busy with."""

import asyncio
import socket
import threading
import time

from support.drive import start_thread
from support.script import output

DEFAULT = 0.005
SHORT = 0.001  # whatever is below is the loop's

RECORDER = """
import sys
real, calls = sys.setswitchinterval, []
sys.setswitchinterval = lambda seconds: (calls.append(seconds), real(seconds))[1]
"""
BESIDE = """
import asyncio, sys, threading
import uvpy
stop = threading.Event()
def work():
    while not stop.is_set():
        sum(range(20))
threads = [threading.Thread(target=work, daemon=True) for _ in range(BUSY)]
for thread in threads:
    thread.start()
def end():
    stop.set()
    for thread in threads:
        thread.join()
async def parks(count):
    for _ in range(count):
        await asyncio.sleep(0.001)
"""


def beside(body, busy=1, before="", **kwargs):
    """What a script prints that runs beside so many busy threads."""
    return output(f"BUSY = {busy}\n{before}{BESIDE}\n{body}", **kwargs)


def recorded(body, busy=1, **kwargs):
    """The same, with what the loop set the interval to in `calls`."""
    return beside(body, busy, RECORDER, **kwargs)


class Watched:
    """A thread that computes, and calls `look` between its computations."""

    def __init__(self, look):
        self.look, self.stop = look, threading.Event()

    def work(self):
        while not self.stop.is_set():
            sum(range(20))
            self.look()

    def __enter__(self):
        self.join = start_thread(self.work)
        return self

    def __exit__(self, *exc):
        self.stop.set()
        self.join()


async def parks(count):
    for _ in range(count):
        await asyncio.sleep(0.001)


async def pair_of_streams():
    a, b = socket.socketpair()
    return *await asyncio.open_connection(sock=a), *await asyncio.open_connection(sock=b)


async def close(*writers):
    for writer in writers:
        writer.close()
        await writer.wait_closed()


async def talk(until):
    """A closed loop of packets: the loop is client and server, and is never at rest."""
    reader, writer, other_reader, other_writer = await pair_of_streams()
    count = 0
    while time.monotonic() < until:
        writer.write(b"x")
        other_writer.write(await other_reader.read(1))
        await reader.read(1)
        count += 1
    await close(writer, other_writer)
    return count
