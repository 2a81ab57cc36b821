"""Datagrams that wait together cost one system call, in both directions. That nothing else is different asyncio shows,
which takes them one by one.
"""

import sys

import pytest

from support.datagrams import Datagrams, drain, endpoint, jam, plain, queue
from support.drive import eventually, turns

linux = pytest.mark.skipif(sys.platform != "linux", reason="recvmmsg and sendmmsg are Linux's")
AT_ONCE = 16


@linux
async def test_what_waits_is_received_together(loop, kind, sockets):
    """What a second reader of the socket finds is what was not received ahead."""
    ours, peer = plain(sockets), plain(sockets)
    ours.setblocking(False)
    for i in range(40):
        peer.sendto(b"%d" % i, ours.getsockname())
    left = []

    class Draining(Datagrams):
        def datagram_received(self, data, addr):
            super().datagram_received(data, addr)
            if len(self.got) == 3:
                left.extend(drain(ours))

    async with endpoint(Draining, sock=ours) as (_, protocol):
        await protocol.has("data", 3)
        await turns(AT_ONCE * 3)
        # Two at first; there were more, so the next call asks for as many as it can.
        ahead = 0 if kind == "asyncio" else AT_ONCE - 1
        assert protocol.data == [b"%d" % i for i in range(3 + ahead)]
        assert left == [b"%d" % i for i in range(3 + ahead, 40)]


@linux
async def test_what_waits_is_sent_together(loop, kind, sockets, tmp_path):
    ours, theirs = queue(sockets, tmp_path)
    async with endpoint(sock=ours) as (transport, _):
        count = jam(transport)
        for i in range(count, count + 100):
            transport.sendto(b"%06d" % i)
        before = loop._core_stats() if kind == "uvpy" else None
        got = []

        def all_came():
            got.extend(drain(theirs))
            return len(got) == count + 100

        await eventually(all_came)
        assert got == [b"%06d" % i for i in range(count + 100)]
        if before is not None:  # asyncio's count of what waits is wrong in some releases
            assert transport.get_write_buffer_size() == 0
            after = loop._core_stats()
            sent = after["datagrams_sent"] - before["datagrams_sent"]
            calls = after["datagram_calls"] - before["datagram_calls"]
            assert sent >= 90, "the last one of a backlog may go alone"
            assert calls * 4 <= sent, f"{calls} calls for {sent} datagrams"
