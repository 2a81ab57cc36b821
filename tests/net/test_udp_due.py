"""What is due between datagrams that wait together: timers, and what becomes ready for other sockets."""

import asyncio
import time

import pytest

from support.datagrams import Datagrams, endpoint, plain
from support.drive import eventually, run, turn


@pytest.mark.parametrize("made", ["before", "by a datagram"])
async def test_timers_run_between_datagrams(loop, sockets, made):
    """A timer that is due is not kept waiting by what came together."""
    seen = []

    class Slow(Datagrams):
        def datagram_received(self, data, addr):
            super().datagram_received(data, addr)
            seen.append(int(data))
            if data == b"4" and made == "by a datagram":
                loop.call_at(loop.time(), seen.append, "timer")
            end = time.monotonic() + 0.002
            while time.monotonic() < end and made == "before" and len(self.got) > 16:
                pass

    ours, peer = plain(sockets), plain(sockets)
    ours.setblocking(False)

    def send():
        for i in range(16):
            peer.sendto(b"%d" % i, ours.getsockname())
        if made == "before":
            loop.call_later(0.008, seen.append, "timer")

    async with endpoint(Slow, sock=ours) as (_, protocol):
        for _ in range(16):  # so that the loop expects many
            peer.sendto(b"99", ours.getsockname())
        await eventually(lambda: len(protocol.got) == 16)
        seen.clear()
        loop.call_later(0.01, send)
        await asyncio.sleep(0.1)
        await eventually(lambda: len(protocol.got) == 32)
        await eventually(lambda: "timer" in seen)
    if made == "before":
        assert seen.index("timer") < seen.index(8)
    else:
        assert seen.index("timer") == seen.index(5) + 1


async def test_a_slow_callback_does_not_keep_other_sockets_waiting(loop, sockets):
    """What becomes ready while datagrams are handed out is found after a callback that took its time."""
    seen = []
    a, b = sockets.pair()

    class Slow(Datagrams):
        def datagram_received(self, data, addr):
            super().datagram_received(data, addr)
            seen.append(int(data))
            if data == b"3":
                b.send(b"x")
            end = time.monotonic() + 0.001
            while time.monotonic() < end:
                pass

    def readable():
        seen.append("reader")
        loop.remove_reader(a)

    ours, peer = plain(sockets), plain(sockets)
    ours.setblocking(False)
    for i in range(16):
        peer.sendto(b"%d" % i, ours.getsockname())
    loop.add_reader(a, readable)
    async with endpoint(Slow, sock=ours) as (_, protocol):
        await eventually(lambda: len(protocol.got) == 16)
        await eventually(lambda: "reader" in seen)
    assert seen.index(3) < seen.index("reader") <= seen.index(3) + 3


def test_an_exit_of_the_clock_between_datagrams_leaves_the_run(loop, sockets):
    armed, real = [], loop.time

    class Arming(Datagrams):
        def datagram_received(self, data, addr):
            super().datagram_received(data, addr)
            if len(self.got) == 10:
                armed.append(True)

    def clock():
        if armed:
            armed.clear()
            raise KeyboardInterrupt("mine")
        return real()

    ours, peer = plain(sockets), plain(sockets)
    ours.setblocking(False)
    transport, protocol = run(loop, loop.create_datagram_endpoint(Arming, sock=ours))
    guard = loop.call_later(2, loop.stop)  # should nothing leave the run
    for i in range(30):
        peer.sendto(b"%d" % i, ours.getsockname())
    loop.time = clock
    with pytest.raises(KeyboardInterrupt, match=r"^mine$"):
        loop.run_forever()
    guard.cancel()
    del loop.time
    run(loop, eventually(lambda: len(protocol.got) == 30))
    assert [int(data) for data, _ in protocol.got] == list(range(30))
    transport.close()
    turn(loop, 3)
