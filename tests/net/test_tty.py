"""Terminals as pipes: one for reading and writing, by one descriptor or several, and what becomes of O_NONBLOCK,
which all who share an open terminal share.
"""

import asyncio
import errno
import gc
import os

import pytest

from support.drive import eventually, run, turn, turns
from support.peers import pattern, same
from support.pipes import Counting, reading, take, terminal, text, writing
from support.protocols import Recorder


def again(sockets, end, mode):
    """Another descriptor of the same open file."""
    return sockets.own(Counting(os.dup(end.fileno()), mode))


async def both(sockets, slave):
    """Standard input and output as a shell has them: two descriptors of one open terminal."""
    r, reader = await reading(again(sockets, slave, "rb"))
    w, writer = await writing(again(sockets, slave, "wb"))
    return r, reader, w, writer


async def end(*pairs):
    for transport, protocol in pairs:
        transport.close()
        await protocol.lost()
    await turns(1)


async def test_input_and_output(loop, sockets):
    master, slave = terminal(sockets)
    r, reader, w, writer = await both(sockets, slave)
    for number in range(3):
        master.write(b"in%d" % number)
        w.write(b"out%d" % number)
        assert await reader.got(3 * number + 3) == b"in0in1in2"[: 3 * number + 3]
        assert await eventually(lambda: take(master)) == b"out%d" % number
    await end((w, writer))
    master.write(b"more")
    assert await reader.got(13) == b"in0in1in2more"
    await end((r, reader))
    assert reader.order() == ["made", "data", "lost"]


async def test_one_file_twice(loop, sockets):
    """Both transports have the same descriptor."""
    master, slave = terminal(sockets)
    writing_side = sockets.own(open(slave.fileno(), "wb", buffering=0, closefd=False))
    r, reader = await reading(slave)
    w, writer = await writing(writing_side)
    await turns(2)
    data = pattern(30_000)
    w.write(data)
    assert w.get_write_buffer_size() > 0
    master.write(b"in")
    await reader.got(2)
    got = bytearray()
    while len(got) < len(data):
        got += take(master) or b""
        await turns(1)
    same(bytes(got), data)
    await end((r, reader))
    assert slave.closes == ["open"]
    # Its descriptor is closed by now; there was nothing left to send.
    await end((w, writer))


@pytest.mark.uvpy_only("asyncio's transport takes the other one's reader away")
async def test_one_file_twice_the_writer_ends_first(loop, sockets):
    master, slave = terminal(sockets)
    r, reader = await reading(slave)
    w, writer = await writing(sockets.own(open(slave.fileno(), "wb", buffering=0, closefd=False)))
    await end((w, writer))
    master.write(b"in")
    assert await reader.got(2) == b"in"
    await end((r, reader))


async def test_the_other_sides_end(loop, sockets, errors):
    """The slave's hang-up is EIO for the master's reader, which is not worth a report; what was written comes first."""
    for size in (0, 10, 4000):
        master, slave = terminal(sockets)
        transport, protocol = await reading(master)
        slave.write(pattern(size))
        slave.close()
        exc = await protocol.lost()
        assert (type(exc), exc.errno) == (OSError, errno.EIO)
        same(bytes(protocol.data), pattern(size))
        assert "eof" not in protocol.events
        await turns(1)
        assert master.closes == ["open"]
        del transport


async def test_the_masters_end(loop, sockets):
    master, slave = terminal(sockets)
    r, reader, w, writer = await both(sockets, slave)
    await turns(2)
    master.close()
    assert await reader.lost() is None
    assert reader.events == ["made", "eof", "lost"]
    assert writer.events == ["made"], "a terminal does not tell a writer"
    w.write(b"x")
    assert (await writer.lost()).errno == errno.EIO
    await turns(1)


async def test_the_text(loop, sockets):
    _, slave = terminal(sockets)
    r, reader, w, writer = await both(sockets, slave)
    await turns(1)
    assert (text(r), text(w)) == ("<Read fd=N polling>", "<Write fd=N idle bufsize=0>")
    await end((r, reader), (w, writer))


# ---- O_NONBLOCK


@pytest.mark.uvpy_only("asyncio leaves the terminal non-blocking")
@pytest.mark.parametrize("first", ["reader", "writer"])
def test_it_is_put_back_by_the_last_who_shares_it(loop, sockets, first):
    _, slave = terminal(sockets)
    r, reader, w, writer = run(loop, both(sockets, slave))
    pairs = [(r, reader), (w, writer)]
    if first == "writer":
        pairs.reverse()
    run(loop, end(pairs[0]))
    assert not os.get_blocking(slave.fileno()), "the other one needs it"
    run(loop, end(pairs[1]))
    assert os.get_blocking(slave.fileno())


@pytest.mark.uvpy_only("asyncio leaves the terminal non-blocking")
def test_another_open_file_of_the_same_terminal_is_another(loop, sockets):
    _, slave = terminal(sockets)
    other = sockets.own(Counting(os.open(os.ttyname(slave.fileno()), os.O_RDWR | os.O_NOCTTY), "r+b"))
    r, reader = run(loop, reading(again(sockets, slave, "rb")))
    w, writer = run(loop, writing(again(sockets, other, "wb")))
    run(loop, end((r, reader)))
    assert os.get_blocking(slave.fileno())
    assert not os.get_blocking(other.fileno())
    run(loop, end((w, writer)))
    assert os.get_blocking(other.fileno())


@pytest.mark.uvpy_only("asyncio leaves the terminal non-blocking")
def test_it_is_put_back_across_loops(new_loop, sockets):
    _, slave = terminal(sockets)
    one, two = new_loop(), new_loop()
    r, reader = run(one, reading(again(sockets, slave, "rb")))
    w, writer = run(two, writing(again(sockets, slave, "wb")))
    run(one, end((r, reader)))
    assert not os.get_blocking(slave.fileno())
    run(two, end((w, writer)))
    assert os.get_blocking(slave.fileno())


@pytest.mark.uvpy_only("asyncio leaves the terminal non-blocking")
def test_it_is_put_back_when_the_loop_closes(loop, sockets):
    _, slave = terminal(sockets)
    r, reader, w, writer = run(loop, both(sockets, slave))
    loop.close()
    assert os.get_blocking(slave.fileno())
    reader.transport = writer.transport = None
    with pytest.warns(ResourceWarning):
        del r, w
        gc.collect()


def test_a_terminal_that_was_non_blocking(loop, sockets):
    _, slave = terminal(sockets)
    os.set_blocking(slave.fileno(), False)
    r, reader, w, writer = run(loop, both(sockets, slave))
    run(loop, end((r, reader), (w, writer)))
    assert not os.get_blocking(slave.fileno())


@pytest.mark.uvpy_only("asyncio's loop would hang")
def test_a_shell_makes_it_blocking_meanwhile(loop, sockets):
    master, slave = terminal(sockets)
    r, reader, w, writer = run(loop, both(sockets, slave))
    os.set_blocking(slave.fileno(), True)
    data = pattern(20_000)

    async def talk():
        w.write(data)
        got = bytearray()
        while len(got) < len(data):
            got += take(master) or b""
            await turns(1)
        same(bytes(got), data)
        master.write(b"in")
        await reader.got(2)
        r._read_ready()

    run(loop, talk())
    run(loop, end((r, reader), (w, writer)))


@pytest.mark.uvpy_only("asyncio's loop would hang")
async def test_a_blocking_terminal_with_little_room(loop, sockets):
    """It is ready as long as it has room for one byte: what does not fit must not be waited for."""
    master, slave = terminal(sockets)
    transport, protocol = await writing(again(sockets, slave, "wb"))
    os.set_blocking(slave.fileno(), True)
    data = pattern(200_000)
    transport.write(data)
    got = bytearray()
    while len(got) < len(data):
        await turns(2)
        got += master.read(1_001) or b""
    same(bytes(got), data)
    assert os.get_blocking(slave.fileno())
    transport.close()
    await protocol.lost()


async def test_a_stream_reader_on_a_terminal(loop, sockets):
    master, slave = terminal(sockets)
    stream = asyncio.StreamReader()
    transport, protocol = await reading(slave, lambda: asyncio.StreamReaderProtocol(stream))
    master.write(b"line\n")
    assert await stream.readline() == b"line\n"
    assert isinstance(transport.get_protocol(), asyncio.StreamReaderProtocol)
    master.close()
    assert await stream.read() == b""
    await turns(3)
    assert not isinstance(protocol, Recorder)


def test_turns_cost_nothing_while_nothing_comes(loop, sockets):
    """A terminal that is watched does not spin."""
    _, slave = terminal(sockets)
    r, reader, w, writer = run(loop, both(sockets, slave))
    turn(loop, 3)
    assert reader.events == writer.events == ["made"]
    run(loop, end((r, reader), (w, writer)))


@pytest.mark.uvpy_only("asyncio leaves a pipe non-blocking")
def test_two_on_one_end_of_a_pipe_and_one_on_the_other(loop, sockets):
    """The two of one end share O_NONBLOCK, and the other end has its own."""
    r, w = os.pipe()
    one, two, other = (
        sockets.own(Counting(r, "rb")),
        sockets.own(Counting(os.dup(r), "rb")),
        sockets.own(Counting(w, "wb")),
    )
    kept = sockets.own(Counting(os.dup(r), "rb"))
    kept_other = sockets.own(Counting(os.dup(w), "wb"))
    first = run(loop, reading(one))
    second = run(loop, reading(two))
    third = run(loop, writing(other))
    run(loop, end(first))
    assert not os.get_blocking(kept.fileno()), "the second needs it"
    assert not os.get_blocking(kept_other.fileno())
    run(loop, end(third))
    assert os.get_blocking(kept_other.fileno())
    assert not os.get_blocking(kept.fileno())
    run(loop, end(second))
    assert os.get_blocking(kept.fileno())
