"""The objects that data_received() gets, whoever keeps which of them for how long."""

import pytest

from support.protocols import Recorder, wire


@pytest.mark.parametrize(
    "sizes",
    [
        (1024, 1024),
        (1000, 1024, 1019),
        (3000, 900, 4096, 4097, 5000),
        (70_000, 65_000),
        (20_000, 20_000, 19_000, 21_000, 5_000, 1),  # longer and shorter than what was made ready
        (5_000, 120_000, 5_500, 5_100, 4_000),
    ],
)
async def test_what_somebody_still_has_does_not_change(loop, sockets, sizes):
    """Some of what comes is dropped at once, some kept, by itself, by a view, by a slice or as a key: each stays as it
    came, and has the hash and the length of what it is.
    """
    kept, views, keys = [], [], {}
    whole = []

    class Keeps(Recorder):
        def data_received(self, data):
            whole.append(bytes(memoryview(data)))
            if len(whole) % 5 == 1:
                kept.append((data, whole[-1]))
            elif len(whole) % 5 == 2:
                views.append((memoryview(data)[5:], whole[-1][5:]))
            elif len(whole) % 5 == 3:
                keys[data] = whole[-1]
            assert hash(data) == hash(whole[-1])
            super().data_received(data)

    total = 0
    async with wire(sockets, Keeps) as (_, protocol, peer):
        for i in range(60):
            size = sizes[i % len(sizes)]
            total += size
            await peer.send(bytes([i]) * size)
            await protocol.got(total)
    assert b"".join(whole) == b"".join(bytes([i]) * sizes[i % len(sizes)] for i in range(60))
    assert all(bytes(data) == copy and len(data) == len(copy) for data, copy in kept + views)
    assert all(keys[copy] == data for data, copy in keys.items())
