"""Datagrams that wait together: one a turn where anything could see the difference, in asyncio's order, whatever the
protocol does in between; contexts; other threads.
"""

import asyncio
import contextvars
import gc
import os
import socket
import threading
import weakref

import pytest

from support.datagrams import Datagrams, endpoint, plain
from support.drive import eventually, in_thread, run, turn, turns


def waiting(sockets, count, *more, send=None):
    """A socket for which so many datagrams wait, numbered from 0, and what sends to it."""
    ours, peer = plain(sockets), plain(sockets)
    ours.setblocking(False)
    for i in range(count):
        peer.sendto(b"%d" % i, ours.getsockname())
    return ours, peer


def numbers(count):
    return [b"%d" % i for i in range(count)]


@pytest.mark.parametrize("count", [1, 2, 3, 16, 17, 33, 100])
async def test_all_that_wait_arrive_in_order(loop, sockets, count):
    ours, _ = waiting(sockets, count)
    async with endpoint(sock=ours) as (_, protocol):
        await protocol.has("data", count)
        await turns()
        assert protocol.data == numbers(count)


async def test_what_one_datagram_schedules_runs_before_the_next(loop, sockets):
    """The rule by which a task that waits for one datagram is there for the next."""
    seen = []

    class Scheduling(Datagrams):
        def datagram_received(self, data, addr):
            super().datagram_received(data, addr)
            seen.append(("data", data))
            loop.call_soon(lambda: (seen.append(("first", data)), loop.call_soon(seen.append, ("second", data))))

    ours, _ = waiting(sockets, 5)
    async with endpoint(Scheduling, sock=ours) as (_, protocol):
        await protocol.has("data", 5)
        await turns()
    for i in range(4):
        assert (
            seen.index(("first", b"%d" % i)) < seen.index(("data", b"%d" % (i + 1))) < seen.index(("second", b"%d" % i))
        )


async def test_a_future_for_each_datagram(loop, sockets):
    class Once(Datagrams):
        future = None

        def datagram_received(self, data, addr):
            self.future.set_result(data)

    ours, _ = waiting(sockets, 40)
    protocol = Once()
    protocol.future = loop.create_future()
    async with endpoint(lambda: protocol, sock=ours):
        for i in range(40):
            assert await protocol.future == b"%d" % i
            protocol.future = loop.create_future()


async def test_a_callback_a_turn_is_not_kept_waiting(loop, sockets):
    """While datagrams wait, what is scheduled each turn runs at least once for each of them."""
    ours, _ = waiting(sockets, 50)
    runs = 0

    def tick():
        nonlocal runs
        runs += 1
        handle[0] = loop.call_soon(tick)

    handle = [None]
    async with endpoint(sock=ours) as (_, protocol):
        tick()
        before = runs
        await protocol.has("data", 50)
        assert runs - before >= 49
        handle[0].cancel()


async def test_two_endpoints_take_turns(loop, sockets):
    order = []

    class Named(Datagrams):
        def __init__(self, name):
            super().__init__()
            self.name = name

        def datagram_received(self, data, addr):
            super().datagram_received(data, addr)
            order.append(self.name)

    (first, peer), (second, _) = waiting(sockets, 0), waiting(sockets, 0)
    async with endpoint(lambda: Named("a"), sock=first) as (_, a), endpoint(lambda: Named("b"), sock=second) as (_, b):
        for sock in (first, second):
            for _ in range(10):
                peer.sendto(b"x", sock.getsockname())
        await a.has("data", 10)
        await b.has("data", 10)
    # Both are found ready by the same poll, and from then on one datagram each.
    assert {frozenset(order[i : i + 2]) for i in range(0, 20, 2)} == {frozenset("ab")}


async def test_a_stream_is_served_meanwhile(loop, sockets):
    """Datagrams that never end keep no other event waiting."""

    class Again(Datagrams):
        def datagram_received(self, data, addr):
            super().datagram_received(data, addr)
            self.transport.sendto(data, self.transport.get_extra_info("sockname"))

    ours, _ = waiting(sockets, 30)
    a, b = sockets.pair()
    done = asyncio.Event()
    async with endpoint(Again, sock=ours):
        await turns()
        loop.add_reader(a, done.set)
        late = loop.create_future()
        loop.call_later(0.001, late.set_result, None)
        b.send(b"x")
        async with asyncio.timeout(5):
            await done.wait()
            await late
        loop.remove_reader(a)


# ---- leaving the run


def test_stop_ends_the_run_after_that_datagram(loop, sockets):
    class Stopping(Datagrams):
        def datagram_received(self, data, addr):
            super().datagram_received(data, addr)
            loop.stop()

    ours, _ = waiting(sockets, 5)
    transport, protocol = run(loop, _made(loop, Stopping, ours))
    for i in range(1, 6):
        loop.run_forever()
        assert protocol.data == numbers(i)
    transport.close()
    turn(loop, 2)


async def _made(loop, factory, sock):
    """An endpoint of which nothing has been read yet."""

    class Paused(factory):
        def connection_made(self, transport):
            super().connection_made(transport)
            transport.pause_reading()

    transport, protocol = await loop.create_datagram_endpoint(Paused, sock=sock)
    loop.call_soon(transport.resume_reading)
    return transport, protocol


def test_a_single_turn_reads_a_single_one(loop, sockets):
    ours, _ = waiting(sockets, 5)
    transport, protocol = run(loop, _made(loop, Datagrams, ours))
    while not protocol.got:
        turn(loop)
    for i in range(1, 6):
        assert protocol.data == numbers(i)
        turn(loop)
    assert protocol.data == numbers(5)
    transport.close()
    turn(loop, 2)


@pytest.mark.parametrize("kind_of_exit", [KeyboardInterrupt, SystemExit])
def test_what_comes_after_an_exit_is_for_the_next_run(loop, sockets, kind_of_exit):
    class Leaving(Datagrams):
        def datagram_received(self, data, addr):
            super().datagram_received(data, addr)
            if data in (b"1", b"3"):
                raise kind_of_exit("of the test")

    ours, _ = waiting(sockets, 6)
    transport, protocol = run(loop, _made(loop, Leaving, ours))
    for count in (2, 4):
        with pytest.raises(kind_of_exit, match="of the test"):
            loop.run_forever()
        assert protocol.data == numbers(count)
        assert not transport.is_closing()
    run(loop, protocol.has("data", 6))
    assert protocol.data == numbers(6)
    transport.close()
    turn(loop, 2)


# ---- what the protocol does in between


@pytest.mark.parametrize("how", ["close", "abort"])
async def test_nothing_comes_after_a_close(loop, sockets, how):
    class Closing(Datagrams):
        def datagram_received(self, data, addr):
            super().datagram_received(data, addr)
            if data == b"2":
                getattr(self.transport, how)()

    ours, _ = waiting(sockets, 10)
    async with endpoint(Closing, sock=ours) as (_, protocol):
        assert await protocol.lost() is None
        await turns()
        assert protocol.data == numbers(3)
        assert protocol.events == ["made", "data", "data", "data", "lost"]


async def test_a_pause_holds_what_has_come(loop, sockets):
    class Pausing(Datagrams):
        def datagram_received(self, data, addr):
            super().datagram_received(data, addr)
            if data in (b"2", b"4"):
                self.transport.pause_reading()

    ours, peer = waiting(sockets, 7)
    async with endpoint(Pausing, sock=ours) as (transport, protocol):
        for stop in (3, 5):
            await protocol.has("data", stop)
            await turns(10)
            assert protocol.data == numbers(stop)
            assert not transport.is_reading()
            peer.sendto(b"late", ours.getsockname())
            await turns(10)
            transport.resume_reading()
            transport.resume_reading()
            assert transport.is_reading()
        await protocol.has("data", 9)
        assert protocol.data == [*numbers(7), b"late", b"late"]


async def test_pause_and_resume_in_the_callback(loop, sockets):
    class Both(Datagrams):
        def datagram_received(self, data, addr):
            super().datagram_received(data, addr)
            self.transport.pause_reading()
            self.transport.resume_reading()

    ours, _ = waiting(sockets, 30)
    async with endpoint(Both, sock=ours) as (_, protocol):
        await protocol.has("data", 30)
        assert protocol.data == numbers(30)


async def test_a_paused_endpoint_that_nobody_wants_drops_what_it_holds(loop, sockets):
    class Pausing(Datagrams):
        def datagram_received(self, data, addr):
            super().datagram_received(data, addr)
            self.transport.pause_reading()

    ours, _ = waiting(sockets, 5)
    transport, protocol = await loop.create_datagram_endpoint(Pausing, sock=ours)
    await protocol.has("data")
    gone = weakref.ref(transport)
    protocol.transport = None
    with pytest.warns(ResourceWarning, match="unclosed transport"):
        del transport
        gc.collect()
    assert gone() is None
    await turns()
    assert protocol.data == numbers(1)


async def test_an_endpoint_that_never_reads_is_nobodys(loop, sockets):
    class Quiet(Datagrams):
        def connection_made(self, transport):
            transport.pause_reading()

    transport, _ = await loop.create_datagram_endpoint(Quiet, local_addr=("127.0.0.1", 0))
    with pytest.warns(ResourceWarning, match="unclosed transport"):
        del transport, _
        gc.collect()


async def test_the_protocol_is_switched_in_between(loop, sockets):
    second = Datagrams()

    class Switching(Datagrams):
        def datagram_received(self, data, addr):
            super().datagram_received(data, addr)
            if data == b"2":
                self.transport.set_protocol(second)

    ours, _ = waiting(sockets, 6)
    async with endpoint(Switching, sock=ours) as (transport, first):
        await second.has("data", 3)
        assert (first.data, second.data) == (numbers(3), numbers(6)[3:])
        assert transport.get_protocol() is second
    assert second.events[-1] == "lost"
    assert "lost" not in first.events


async def test_a_method_assigned_later_is_honoured(loop, sockets):
    got = []
    ours, peer = waiting(sockets, 3)

    class Replacing(Datagrams):
        def datagram_received(self, data, addr):
            super().datagram_received(data, addr)
            self.datagram_received = lambda data, addr: got.append(data)

    async with endpoint(Replacing, sock=ours) as (_, protocol):
        await eventually(lambda: len(got) == 2)
        assert (protocol.data, got) == ([b"0"], [b"1", b"2"])


async def test_the_loop_holds_an_endpoint_that_reads(loop, sockets):
    peer = plain(sockets)
    got = loop.create_future()

    class Answering(asyncio.DatagramProtocol):
        def datagram_received(self, data, addr):
            got.set_result(data)

    transport, _ = await loop.create_datagram_endpoint(Answering, local_addr=("127.0.0.1", 0))
    name, gone = transport.get_extra_info("sockname"), weakref.ref(transport)
    del transport, _
    gc.collect()
    peer.sendto(b"x", name)
    assert await got == b"x"
    gone().close()
    await turns()
    gc.collect()
    assert gone() is None


async def test_close_in_connection_made(loop, sockets):
    class Early(Datagrams):
        def connection_made(self, transport):
            super().connection_made(transport)
            transport.close()

    ours, _ = waiting(sockets, 3)
    async with endpoint(Early, sock=ours) as (transport, protocol):
        await protocol.lost()
        await turns()
        assert protocol.events == ["made", "lost"]
        assert transport.is_closing()
        assert not transport.is_reading()


async def test_connection_made_that_raises(loop, sockets, errors):
    class Bad(Datagrams):
        def connection_made(self, transport):
            super().connection_made(transport)
            raise ZeroDivisionError("mine")

    ours, _ = waiting(sockets, 2)
    async with endpoint(Bad, sock=ours) as (_, protocol):
        (context,) = errors.take()
        assert isinstance(context["exception"], ZeroDivisionError)
        await protocol.has("data", 2)


async def test_connection_lost_that_raises(loop, sockets, errors):
    class Bad(Datagrams):
        def connection_lost(self, exc):
            super().connection_lost(exc)
            raise ZeroDivisionError("mine")

    async with endpoint(Bad) as (transport, protocol):
        fd = transport._sock_fd
        transport.close()
        transport.close()
        await protocol.lost()
        await turns()
        (context,) = errors.take()
        assert isinstance(context["exception"], ZeroDivisionError)
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(fd)
        assert protocol.events == ["made", "lost"]


# ---- contexts

var = contextvars.ContextVar("var", default="outside")


async def test_callbacks_run_in_the_context_of_the_making(loop, sockets):
    seen = []

    class Looking(Datagrams):
        def connection_made(self, transport):
            super().connection_made(transport)
            seen.append(("made", var.get()))

        def datagram_received(self, data, addr):
            super().datagram_received(data, addr)
            seen.append(("data", var.get()))
            var.set(var.get() + "+")

        def connection_lost(self, exc):
            super().connection_lost(exc)
            seen.append(("lost", var.get()))

    ours, _ = waiting(sockets, 3)
    var.set("making")
    async with endpoint(Looking, sock=ours) as (transport, protocol):
        var.set("later")
        await protocol.has("data", 3)
        transport.close()
        await protocol.lost()
    # One context for the reader, kept from call to call; closing has its caller's.
    assert seen == [
        ("made", "making"),
        ("data", "making"),
        ("data", "making+"),
        ("data", "making++"),
        ("lost", "later"),
    ]


# ---- other threads, other owners


async def test_sendto_from_another_thread(loop, sockets):
    peer = plain(sockets)
    async with endpoint() as (transport, protocol):
        in_thread(transport.sendto, b"x", peer.getsockname())
        assert peer.recv(10) == b"x"
        ready = threading.Event()

        def later():
            ready.wait(5)
            transport.sendto(b"y", peer.getsockname())
            peer.sendto(b"back", transport.get_extra_info("sockname"))

        thread = threading.Thread(target=later)
        thread.start()
        loop.call_later(0.02, ready.set)
        await protocol.has("data")
        thread.join()
        assert peer.recv(10) == b"y"


async def test_pause_and_resume_from_another_thread(loop, sockets):
    peer = plain(sockets)
    async with endpoint() as (transport, protocol):
        in_thread(transport.pause_reading)
        peer.sendto(b"x", transport.get_extra_info("sockname"))
        await turns(10)
        assert not protocol.got
        threading.Timer(0.02, transport.resume_reading).start()
        async with asyncio.timeout(5):
            await protocol.has("data")


async def test_a_socket_with_a_file_of_its_own_outlives_the_transport(loop, sockets):
    ours = plain(sockets)
    ours.setblocking(False)
    copy = sockets.own(ours.dup())
    async with endpoint(sock=ours) as (transport, protocol):
        transport.close()
        await protocol.lost()
    assert ours.fileno() == -1
    assert copy.getsockname()[0] == "127.0.0.1"


async def test_an_endpoint_made_again_on_the_number_of_a_closed_one(loop, sockets):
    peer = plain(sockets)
    for _ in range(5):
        async with endpoint() as (transport, protocol):
            peer.sendto(b"x", transport.get_extra_info("sockname"))
            await protocol.has("data")
            transport.close()
            async with endpoint() as (second, other):
                peer.sendto(b"y", second.get_extra_info("sockname"))
                await other.has("data")
                assert other.data == [b"y"]
            await protocol.lost()


async def test_what_is_no_real_socket_is_asyncios_business(loop, sockets):
    class Shell:
        """Says that it is a socket."""

        def __init__(self, sock):
            self._real = sock

        def __getattr__(self, name):
            return getattr(self._real, name)

    ours, _ = waiting(sockets, 3)
    async with endpoint(sock=Shell(ours)) as (transport, protocol):
        await protocol.has("data", 3)
        assert protocol.data == numbers(3)
        assert type(transport) is asyncio.selector_events._SelectorDatagramTransport


async def test_reuse_port(loop, sockets):
    async with endpoint(local_addr=("127.0.0.1", 0), reuse_port=True) as (one, _):
        name = one.get_extra_info("sockname")
        async with endpoint(local_addr=name, reuse_port=True):
            pass
        with pytest.raises(OSError, match="Address already in use"):
            await loop.create_datagram_endpoint(Datagrams, local_addr=name)


async def test_raw_socket(loop, sockets):
    try:
        raw = sockets.own(socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_UDP))
    except PermissionError:
        pytest.skip("needs CAP_NET_RAW")
    raw.setblocking(False)
    transport = loop._make_datagram_transport(raw, protocol := Datagrams())
    peer = plain(sockets)
    peer.sendto(b"raw enough", peer.getsockname())
    await eventually(lambda: any(data.endswith(b"raw enough") for data in protocol.data))
    transport.close()
    await protocol.lost()


async def test_what_one_schedules_runs_before_the_next_on_a_loop_at_rest(loop, sockets):
    """The same where nothing else is scheduled when they come, and the protocol is called in the poll."""
    seen = []

    class Scheduling(Datagrams):
        def datagram_received(self, data, addr):
            super().datagram_received(data, addr)
            seen.append(data)
            loop.call_soon(seen.append, "scheduled")

    ours, _ = waiting(sockets, 5)
    async with endpoint(lambda: Scheduling(), sock=ours) as (transport, protocol):
        transport.pause_reading()
        await turns()
        seen.clear()
        loop.call_later(0.01, transport.resume_reading)
        await asyncio.sleep(0.1)
        await eventually(lambda: len(protocol.got) == 5)
        await turns()
        assert seen == [entry for data in protocol.data[-len(seen) // 2 :] for entry in (data, "scheduled")]
