"""Gathering: under load the writes of a turn are sent together at its end, and nobody can tell but by counting
system calls.
"""

import asyncio
import contextlib
import logging
import os
import signal
import socket

import pytest

from support.drive import run, turn, turns
from support.peers import KB, MB, pattern, same
from support.protocols import HalfOpen, Recorder, drop, wire, write_until

pytestmark = pytest.mark.uvpy_only("asyncio sends each write at once")


@contextlib.asynccontextmanager
async def under_load(loop, callbacks=50):
    """The turns of the body hold many handles, as those of a busy server do."""
    running = [True]

    def spin():
        if running[0]:
            loop.call_soon(spin)

    for _ in range(callbacks):
        loop.call_soon(spin)
    await turns(5)
    try:
        yield
    finally:
        running[0] = False
        await turns(2)


async def in_callback(loop, fn):
    """Run fn in a callback of its own and give its result, with what it raised."""
    done = loop.create_future()

    def call():
        try:
            done.set_result(fn())
        except BaseException as exc:
            done.set_exception(exc)

    loop.call_soon(call)
    return await done


def test_the_switch(loop):
    assert loop.gather_writes is True
    loop.gather_writes = False
    assert loop.gather_writes is False
    loop.gather_writes = True
    assert loop.gather_writes is True


async def test_under_load_pieces_arrive_together(loop, sockets):
    """Of many writes in one callback the peer sees all at once: nothing before, everything after the turn."""
    async with wire(sockets) as (transport, _, peer), under_load(loop):
        for _ in range(3):
            for i in range(5):
                transport.write(b"piece %d;" % i)
            await turns(2)
            peer.now(40, 5)
        seen = []

        def work():
            for i in range(5):
                transport.write(b"piece %d;" % i)
            seen.append(peer.now(40))

        await in_callback(loop, work)
        await turns(1)
        rest = peer.now(40 - len(seen[0] or b""), 5)
        assert (seen[0] or b"") + rest == b"".join(b"piece %d;" % i for i in range(5))
        assert len(seen[0] or b"") < 40, "every piece was sent by itself"


async def test_switched_off_every_write_leaves_at_once(loop, sockets):
    loop.gather_writes = False
    async with wire(sockets) as (transport, _, peer), under_load(loop):
        for _ in range(5):
            for i in range(5):
                transport.write(b"%d" % i)
                assert peer.now(1, 5) == b"%d" % i
            await turns(1)


async def test_switching_off_sends_what_is_gathered(loop, sockets):
    """Nothing is left behind when the switch is thrown in the middle."""
    async with wire(sockets) as (transport, _, peer), under_load(loop):
        for n in range(10):
            loop.gather_writes = n % 2 == 0
            transport.write(b"a")
            loop.gather_writes = n % 2 == 1
            transport.write(b"b")
            await turns(1)
            assert peer.now(2, 5) == b"ab"


OBSERVERS = {
    "get_write_buffer_size": lambda t: t.get_write_buffer_size(),
    "get_extra_info": lambda t: t.get_extra_info("socket"),
    "close": lambda t: t.close(),
    "abort": lambda t: t.abort(),
    "write_eof": lambda t: t.write_eof(),
    "stop": lambda t: asyncio.get_running_loop().stop(),
    "high mark": lambda t: t.set_write_buffer_limits(high=0),
    "64 KiB": lambda t: t.write(bytes(64 * KB)),
}


@pytest.mark.parametrize("observer", [name for name in OBSERVERS if name not in ("stop", "high mark")])
async def test_what_could_observe_it_sends_first(loop, sockets, observer):
    """After any call from which a program could tell, everything written before is on the wire."""
    async with wire(sockets, HalfOpen) as (transport, _, peer), under_load(loop):
        for _ in range(3):
            transport.write(b"1")
            transport.write(b"2")
            await turns(1)
            assert peer.now(2, 5) == b"12"

        def work():
            transport.write(b"one,")
            transport.write(b"two,")
            transport.writelines([b"thr", b"ee"])
            OBSERVERS[observer](transport)
            return peer.now(13, 5)

        assert await in_callback(loop, work) == b"one,two,three"


async def test_the_buffer_size_does_not_count_what_is_only_gathered(loop, sockets):
    """get_write_buffer_size() is zero after small writes that the kernel takes, as on asyncio."""
    async with wire(sockets) as (transport, _, peer), under_load(loop):

        def work():
            sizes = []
            for _ in range(20):
                transport.write(b"12345")
                sizes.append(transport.get_write_buffer_size())
            return sizes

        for _ in range(3):
            assert await in_callback(loop, work) == [0] * 20
            assert await peer.recv(100) == b"12345" * 20


@pytest.mark.parametrize("high", [0, 10, 1000])
async def test_small_marks_do_not_pause_what_the_kernel_takes(loop, sockets, high):
    async with wire(sockets) as (transport, protocol, peer), under_load(loop):
        transport.set_write_buffer_limits(high=high)

        def work():
            for _ in range(50):
                transport.write(bytes(100))
            transport.writelines([bytes(100)] * 10)

        for _ in range(3):
            await in_callback(loop, work)
            assert len(await peer.recv(6000)) == 6000
        assert protocol.events == ["made"]


async def test_pause_still_comes_inside_write(loop, sockets):
    async with wire(sockets) as (transport, protocol, _), under_load(loop):

        def work():
            write_until(transport, lambda: "pause" in protocol.events)
            return transport.get_write_buffer_size()

        assert await in_callback(loop, work) > 64 * KB
        assert protocol.events == ["made", "pause"]


async def test_big_and_small_writes_in_one_turn_keep_their_order(loop, sockets):
    async with wire(sockets) as (transport, _, peer), under_load(loop):
        pieces = [pattern(n) for n in (5, 70_000, 1, 200_000, 3, 3, MB, 9)]
        whole = b"".join(pieces)
        coming = peer.start(peer._recv, len(whole) * 3)

        def work():
            for piece in pieces:
                transport.write(piece)

        for _ in range(3):
            await in_callback(loop, work)
        same(await asyncio.wrap_future(coming), whole * 3)


async def test_a_mutable_buffer_may_change_while_it_is_gathered(loop, sockets):
    async with wire(sockets) as (transport, _, peer), under_load(loop):

        def work():
            buffer = bytearray(b"first.")
            transport.write(buffer)
            buffer[:] = b"second"
            transport.write(memoryview(buffer))
            buffer.clear()
            lines = [bytearray(b".third")]
            transport.writelines(lines)
            lines[0][:] = b"??????"

        for _ in range(3):
            await in_callback(loop, work)
            assert await peer.recv(18) == b"first.second.third"


async def test_a_blocking_callback_does_not_hold_data_for_the_rest_of_the_turn(loop, sockets):
    """Data gathered in a callback goes out at one of the next borders between callbacks, not after all of a long
    turn.
    """
    async with wire(sockets) as (transport, _, peer), under_load(loop):
        seen = []
        for _ in range(3):
            loop.call_soon(transport.write, b"x")
            for _ in range(30):
                loop.call_soon(lambda: (seen.append(peer.now(1, 0.0005)), None))
            await turns(2)
        assert seen.count(b"x") == 3, "it waited for the end of the turn"


@pytest.mark.parametrize("way", ["stop", "error", "KeyboardInterrupt", "SystemExit"])
def test_leaving_the_run_sends_everything(loop, sockets, way):
    """Whatever ends the run, what was written is out when it has ended."""
    ours, theirs = sockets.pair(tcp=True)
    peer = sockets.peer(theirs)
    transport, protocol = run(loop, loop.create_connection(Recorder, sock=ours))

    def spin():
        loop.call_soon(spin)

    def work():
        for i in range(4):
            transport.write(b"%d" % i)
        if way == "stop":
            loop.stop()
        elif way != "error":
            raise {"KeyboardInterrupt": KeyboardInterrupt, "SystemExit": SystemExit}[way]

    async def main():
        await turns(5)
        if way == "error":
            work()
            raise ZeroDivisionError
        loop.call_soon(work)
        await loop.create_future()

    spins = [loop.call_soon(spin) for _ in range(40)]
    assert spins
    try:
        with pytest.raises((RuntimeError, ZeroDivisionError, KeyboardInterrupt, SystemExit)):
            loop.run_until_complete(main())
        assert peer.now(4, 0.5) == b"0123"
    finally:
        loop.gather_writes = False
    transport.abort()
    run(loop, protocol.lost())


@pytest.mark.skipif(not hasattr(os, "fork"), reason="fork")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
async def test_a_fork_does_not_send_twice(loop, sockets):
    """What was written before fork() is sent once, by the parent, and at the latest then."""
    async with wire(sockets) as (transport, _, peer), under_load(loop):

        def work():
            transport.write(b"one")
            transport.write(b"two")
            pid = os.fork()
            if pid == 0:
                os._exit(0)
            assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0

        await in_callback(loop, work)
        assert await peer.recv(6) == b"onetwo"
        await turns(3)
        assert peer.now() is None


async def test_start_tls_sends_first(loop, sockets, authority):
    """What was written in the clear is on the wire before the handshake."""
    async with wire(sockets) as (transport, protocol, peer), under_load(loop):

        def serve():
            assert peer._recv(9) == b"STARTTLS\n"
            with authority.server().wrap_socket(peer.sock, server_side=True) as secure:
                secure.sendall(b"hi")
                got = secure.recv(2)
                secure.unwrap()
                return got

        serving = peer.start(serve)
        for piece in (b"START", b"TLS", b"\n"):
            transport.write(piece)
        secure = await loop.start_tls(transport, protocol, authority.client(), server_hostname="localhost")
        secure.write(b"me")
        assert await protocol.got(2) == b"hi"
        assert await asyncio.wrap_future(serving) == b"me"
        secure.close()
        await protocol.lost()


async def test_a_collected_write_is_not_lost_by_close_in_the_same_turn(loop, sockets):
    for act in ("close", "abort", "write_eof"):
        async with wire(sockets, HalfOpen) as (transport, _, peer), under_load(loop):

            def work(transport=transport, act=act):
                for i in range(6):
                    transport.write(b"%d" % i)
                getattr(transport, act)()

            await in_callback(loop, work)
            assert await peer.recv_all() == b"012345"


async def test_many_transports_of_one_turn(loop, sockets):
    """Forty connections written to in one turn, several pieces each, by one callback: each gets its own, whole."""
    wires = []
    for _ in range(40):
        ours, theirs = sockets.pair(tcp=True)
        wires.append(((await loop.create_connection(Recorder, sock=ours))[0], theirs))
    async with under_load(loop):
        for _ in range(4):

            def work():
                for k in range(3):
                    for i, (transport, _) in enumerate(wires):
                        transport.write(b"<%d.%d>" % (i, k))

            await in_callback(loop, work)
            await turns(1)
            for i, (_, theirs) in enumerate(wires):
                theirs.setblocking(True)
                theirs.settimeout(5)
                want = b"".join(b"<%d.%d>" % (i, k) for k in range(3))
                assert theirs.recv(100, socket.MSG_WAITALL if len(want) == 100 else 0) == want
    for transport, _ in wires:
        await drop(transport)


async def test_closing_others_while_they_are_dirty(loop, sockets):
    """Transports that wait with gathered data are closed and aborted by other callbacks of the turn: nothing is
    lost but by abort.
    """
    wires = []
    for _ in range(12):
        ours, theirs = sockets.pair(tcp=True)
        transport, protocol = await loop.create_connection(Recorder, sock=ours)
        wires.append((transport, protocol, sockets.peer(theirs)))
    async with under_load(loop):
        for transport, _, _ in wires:
            loop.call_soon(transport.write, b"a")
            loop.call_soon(transport.write, b"b")
        for i, (transport, _, _) in enumerate(wires):
            loop.call_soon(transport.close if i % 2 else transport.abort)
        for _, protocol, _ in wires:
            assert await protocol.lost() is None
    for _, _, peer in wires:
        assert await peer.recv_all() == b"ab"


def test_a_write_error_at_the_end_of_a_turn_is_told(loop, sockets):
    """The error of a gathered write reaches connection_lost() like any other."""
    ours, theirs = sockets.pair(tcp=True)
    transport, protocol = run(loop, loop.create_connection(HalfOpen, sock=ours))
    sockets.peer(theirs).reset()

    async def main():
        async with under_load(loop):
            for _ in range(50):
                transport.write(b"x")
                transport.write(b"y")
                await turns(1)
                if transport.is_closing():
                    break
        return await protocol.lost()

    assert isinstance(run(loop, main()), (ConnectionResetError, BrokenPipeError))
    turn(loop)


async def test_sendfile_sends_first(loop, sockets, tmp_path):
    """What was gathered stands before the file on the wire, and what is written after it behind."""
    path = tmp_path / "file"
    path.write_bytes(pattern(100_000))
    async with wire(sockets) as (transport, _, peer), under_load(loop):
        for _ in range(3):
            coming = peer.start(peer._recv, 100_008)
            transport.write(b"he")
            transport.write(b"ad")
            with path.open("rb") as file:
                assert await loop.sendfile(transport, file) == 100_000
            transport.write(b"ta")
            transport.write(b"il")
            same(await asyncio.wrap_future(coming), b"head" + pattern(100_000) + b"tail")


async def test_an_error_in_a_flush_costs_the_others_nothing(loop, sockets):
    """One of the transports that wait meets a reset when they are sent, and what is logged of it writes to some of the
    others and closes one: all of it arrives.
    """
    wires = []
    for _ in range(10):
        ours, theirs = sockets.pair(tcp=True)
        transport, protocol = await loop.create_connection(HalfOpen, sock=ours)
        wires.append((transport, protocol, sockets.peer(theirs)))
    broken = wires[4]
    acted = []

    class Acts(logging.Handler):
        def emit(self, record):
            if "Fatal write error" in record.getMessage() and not acted:
                acted.append(record)
                wires[0][0].write(b"0")  # sent already
                wires[6][0].write(b"6")  # yet to be sent
                wires[8][0].close()
                wires[9][0].abort()

    handler = Acts(logging.DEBUG)
    logger = logging.getLogger("asyncio")
    before = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG)
    broken[0].pause_reading()  # or it would meet the reset by reading
    broken[2].reset()
    loop.set_debug(True)
    try:
        async with under_load(loop):
            for _ in range(50):
                for transport, _, _ in wires:
                    transport.write(b"a")
                    transport.write(b"b")
                await turns(1)
                if broken[0].is_closing():
                    break
    finally:
        loop.set_debug(False)
        logger.removeHandler(handler)
        logger.setLevel(before)
    assert isinstance(await broken[1].lost(), (ConnectionResetError, BrokenPipeError))
    assert len(acted) == 1
    for i, (transport, protocol, peer) in enumerate(wires):
        transport.close()
        await protocol.lost()
        if i != 4:
            got = await peer.recv_all()
            assert len(got) >= 2 and got.replace(b"ab", b"") == {0: b"0", 6: b"6"}.get(i, b""), i


def test_a_signal_between_two_writes(loop, sockets):
    """Ctrl-C in the callback that writes: what it had written is sent when the run has ended."""
    ours, theirs = sockets.pair(tcp=True)
    peer = sockets.peer(theirs)
    transport, protocol = run(loop, loop.create_connection(Recorder, sock=ours))
    spinning = [True]

    def spin():
        if spinning[0]:
            loop.call_soon(spin)

    def work():
        transport.write(b"one")
        transport.write(b"two")
        signal.raise_signal(signal.SIGINT)
        transport.write(b"never")

    for _ in range(40):
        loop.call_soon(spin)
    run(loop, turns(5))
    loop.call_soon(work)
    with pytest.raises(KeyboardInterrupt):
        loop.run_forever()
    assert peer.now(6, 5) == b"onetwo"
    spinning[0] = False
    run(loop, turns(2))
    assert peer.now() is None
    transport.abort()
    run(loop, protocol.lost())


async def test_a_protocol_that_writes_to_others_when_resumed(loop, sockets):
    """resume_writing() writes to transports that wait with gathered data, and closes some: the order of each holds."""
    others = []
    for _ in range(6):
        ours, theirs = sockets.pair(tcp=True)
        transport, protocol = await loop.create_connection(HalfOpen, sock=ours)
        others.append((transport, protocol, sockets.peer(theirs)))

    class Resumed(Recorder):
        def resume_writing(self):
            super().resume_writing()
            for i, (transport, _, _) in enumerate(others):
                transport.write(b"resumed")
                if i % 2:
                    transport.close()

    async with wire(sockets, Resumed) as (transport, protocol, peer), under_load(loop):
        coming = peer.start(peer._recv, write_until(transport, lambda: "pause" in protocol.events))
        while "resume" not in protocol.events:
            for other, _, _ in others:
                if not other.is_closing():
                    other.write(b"a")
                    other.write(b"b")
            await turns(1)
        assert await asyncio.wrap_future(coming)
    for i, (other, protocol, peer) in enumerate(others):
        other.close()
        await protocol.lost()
        got = await peer.recv_all()
        assert got.count(b"resumed") == 1 and got.replace(b"resumed", b"").replace(b"ab", b"") == b"", i
        assert i % 2 == 0 or got.endswith(b"resumed")
