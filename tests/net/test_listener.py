"""Accepting: bursts, descriptors running out, aborted clients, factories that raise."""

import asyncio
import contextlib
import contextvars
import errno
import gc
import resource
import socket

import pytest

from support.drive import cpu_below, eventually, turns
from support.leaks import fds
from support.peers import reset
from support.protocols import Recorder, end_all, keeping, serve


class Greeter(Recorder):
    """Says hello, which shows a plain client that it has been accepted."""

    def connection_made(self, transport):
        super().connection_made(transport)
        transport.write(b"hello")


async def greeted(peer):
    assert await peer.recv(5) == b"hello"


async def test_clients_get_protocols_of_their_own(loop, sockets):
    factory, made = keeping()
    async with serve(factory) as (_, port):
        clients = [sockets.dial(port) for _ in range(5)]
        for i, client in enumerate(clients):
            client.sock.send(b"%d" % i)
        await eventually(lambda: len(made) == 5 and all(p.data for p in made))
        for p in made:
            client = clients[int(p.data)]
            assert p.events == ["made", "data"]
            assert p.transport.get_extra_info("peername") == client.sock.getsockname()
            assert p.transport.get_extra_info("sockname") == ("127.0.0.1", port)
            assert isinstance(p.transport, asyncio.Transport)
            p.transport.write(b"echo" + p.data)
        for i, client in enumerate(clients):
            assert await client.recv(5) == b"echo%d" % i
            client.close()
        for p in made:
            assert await p.lost() is None


async def test_a_burst_is_accepted_whole(loop, sockets):
    """Clients that connect while the loop is busy are all served, in a few turns."""
    factory, made = keeping(Greeter)
    async with serve(factory, backlog=200) as (_, port):
        clients = [sockets.own(socket.create_connection(("127.0.0.1", port))) for _ in range(150)]
        await eventually(lambda: len(made) == 150 and all(p.transport for p in made))
        await turns(1)  # the end of the turn in which they were written to
        for client in clients:
            client.settimeout(5)
            assert client.recv(5) == b"hello"
            client.close()
        for p in made:
            await p.lost()


async def test_a_small_backlog_serves_everybody(loop, sockets):
    factory, made = keeping(Greeter)
    async with serve(factory, backlog=1) as (_, port):
        for _ in range(20):
            await greeted(await asyncio.to_thread(sockets.dial, port))
        assert len(made) == 20
        await end_all(made)


@pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")  # stock leaves it to the collector
async def test_a_failing_factory_costs_that_client_only(loop, sockets, errors):
    """The others are served, before, between and after; outside debug mode nothing is reported."""
    made, calls = [], []

    def factory():
        calls.append(1)
        if len(calls) % 2:
            raise ZeroDivisionError("no protocol")
        made.append(Greeter())
        return made[-1]

    async with serve(factory) as (server, port):
        served = refused = 0
        for _ in range(8):
            client = sockets.dial(port)
            got = await client.recv(5)
            served += got == b"hello"
            refused += got == b""
        assert (served, refused) == (4, 4)
        assert server.is_serving()
        await end_all(made)
        gc.collect()
    assert errors.take() == []


@pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")  # stock leaves it to the collector
async def test_a_failing_factory_is_reported_in_debug_mode(loop, sockets, errors):
    def factory():
        raise ZeroDivisionError("no protocol")

    loop.set_debug(True)
    loop.slow_callback_duration = 100
    async with serve(factory) as (_, port):
        client = sockets.dial(port)
        await eventually(lambda: errors.entries)
        (context,) = errors.take()
        assert context["message"] == "Error on transport creation for incoming connection"
        assert isinstance(context["exception"], ZeroDivisionError)
        del context
        gc.collect()
        assert await client.recv(5) == b""
    loop.set_debug(False)


@pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")  # stock leaves it to the collector
@pytest.mark.parametrize("kind_of_exit", [KeyboardInterrupt, SystemExit])
def test_an_exit_in_the_factory_leaves_the_run(loop, sockets, errors, kind_of_exit, kind):
    """The server still stands and serves in the next run."""
    made, calls = [], []

    def factory():
        calls.append(1)
        if len(calls) == 1:
            raise kind_of_exit(7)
        made.append(Greeter())
        return made[-1]

    server = loop.run_until_complete(loop.create_server(factory, "127.0.0.1", 0))
    port = server.sockets[0].getsockname()[1]
    first = sockets.dial(port)
    guard = loop.call_later(10, loop.stop)
    with pytest.raises(kind_of_exit):
        loop.run_forever()
    guard.cancel()
    second = sockets.dial(port)
    loop.run_until_complete(greeted(second))
    server.close()
    loop.run_until_complete(end_all(made))
    first.close()
    gc.collect()
    if kind == "asyncio":
        errors.take()  # its accepting is a task, whose exception nobody retrieves


@pytest.mark.parametrize("busy", [False, True], ids=["idle", "busy"])
async def test_a_server_is_as_far_behind_its_client_as_asyncios(loop, busy):
    """Accepted in one iteration, made in the next: a client in the same program writes before a server that closes at
    once has closed, and so finds its data refused.
    """
    for_ever = True

    def tick():
        if for_ever:
            loop.call_soon(tick)

    if busy:
        tick()
    events = []

    class Told(Recorder):
        def _note(self, event):
            events.append((type(self).__name__, event))
            super()._note(event)

    class Server(Told):
        def connection_made(self, transport):
            super().connection_made(transport)
            loop.call_soon(transport.close)

    class Client(Told):
        pass

    async with serve(Server) as (_, port):
        for _ in range(3):
            transport, protocol = await loop.create_connection(Client, "127.0.0.1", port)
            transport.write(b"!")
            assert isinstance(await protocol.lost(), ConnectionResetError)
            assert events == [("Server", "made"), ("Client", "made"), ("Server", "lost"), ("Client", "lost")]
            events.clear()
    for_ever = False


@pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")  # stock leaves it to the collector
def test_an_exit_in_the_factory_leaves_the_others_to_the_next_run(loop, sockets, errors, kind):
    """Of several clients that were accepted at once, one costs the run, and no other its connection."""
    made, calls = [], []

    def factory():
        calls.append(1)
        if len(calls) == 2:
            raise SystemExit(7)
        made.append(Greeter())
        return made[-1]

    server = loop.run_until_complete(loop.create_server(factory, "127.0.0.1", 0))
    port = server.sockets[0].getsockname()[1]
    clients = [sockets.dial(port) for _ in range(4)]
    with pytest.raises(SystemExit):
        loop.run_forever()
    assert len(calls) == 2
    loop.run_until_complete(eventually(lambda: len(made) == 3 and all(p.transport for p in made)))
    for client in clients[:1] + clients[2:]:
        loop.run_until_complete(greeted(client))
    server.close()
    loop.run_until_complete(end_all(made))
    gc.collect()
    if kind == "asyncio":
        errors.take()  # its accepting is a task, whose exception nobody retrieves


@pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")  # stock leaves transport and socket to the collector
def test_a_server_that_ends_between_accepting_and_making(loop, sockets, errors, unraisable, kind):
    """Neither a protocol nor a descriptor is left of a client that was accepted and not yet handed on."""
    factory, made = keeping()
    server = loop.run_until_complete(loop.create_server(factory, "127.0.0.1", 0))
    client = sockets.own(socket.create_connection(server.sockets[0].getsockname()[:2]))
    client.settimeout(5)
    loop.call_soon(loop.stop)
    loop.run_forever()  # one iteration: it finds and accepts the client
    server.close()
    loop.run_until_complete(turns(4))
    del server
    gc.collect()
    assert client.recv(1) == b""
    assert not any(p.transport for p in made)
    if kind == "asyncio":
        errors.take()  # its accepting is a task
        unraisable.take()  # from 3.14 on its transport's finalizer looks for a server that is no more


@pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")  # stock leaves transport and socket to the collector
async def test_a_factory_that_returns_nonsense(loop, sockets, errors):
    """An object without connection_made(): the client is lost or left, the server serves on."""
    made = []

    def factory():
        made.append(Greeter() if made else object())
        return made[-1]

    async with serve(factory) as (server, port):
        first = sockets.dial(port)
        await eventually(lambda: made)
        await turns(3)
        await greeted(sockets.dial(port))
        assert server.is_serving()
        first.close()
        await end_all(made[1:])
        gc.collect()
    errors.take()  # whether it is reported is not promised


async def test_clients_that_are_gone_before_they_are_accepted(loop, sockets):
    """A reset in the backlog is no error of the server; the next clients are served."""
    factory, made = keeping(Greeter)
    async with serve(factory) as (server, port):
        for _ in range(3):
            for _ in range(5):
                reset(socket.create_connection(("127.0.0.1", port)))
            await greeted(sockets.dial(port))
        assert server.is_serving()
        await end_all(made)


@contextlib.contextmanager
def room_for(count):
    """Allow only so many new descriptors."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    taken = set(fds())
    free = [n for n in range(2000) if n not in taken][:count]
    resource.setrlimit(resource.RLIMIT_NOFILE, (free[-1] + 1 if count else min(set(range(2000)) - taken), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


async def test_descriptors_that_run_out(loop, sockets, errors):
    """EMFILE: reported, accepting pauses for about a second without spinning, then everybody is served."""
    factory, made = keeping(Greeter)
    async with serve(factory) as (server, port):
        clients = [sockets.dial(port) for _ in range(6)]
        with room_for(2):
            with cpu_below(0.15):
                await asyncio.sleep(0.4)
            served = len(made)
            assert served < 6
            contexts = errors.take()
            assert contexts
            for context in contexts:
                assert context["exception"].errno == errno.EMFILE
                assert context["message"] == "socket.accept() out of system resource"
                assert type(context["socket"]) is asyncio.trsock.TransportSocket
                assert context["socket"].fileno() == server.sockets[0].fileno()
        start = loop.time()
        for client in clients:
            await greeted(client)
        assert 0.2 < loop.time() - start < 3
        assert len(made) == 6
        await end_all(made)
        await asyncio.sleep(1.1)  # stock tries again once for each failure
        errors.take()


async def test_a_server_closed_while_accepting_pauses(loop, sockets, errors):
    """Closed in the pause after EMFILE, it does not come back to life."""
    factory, made = keeping(Greeter)
    async with serve(factory) as (server, port):
        client = sockets.dial(port)
        with room_for(0):
            await asyncio.sleep(0.05)
        server.close()
        errors.take()
        await asyncio.sleep(1.2)
        assert made == []
        errors.take()  # stock reports the accept that it tries on the closed socket
        assert await client.end() in (b"", None)
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", port), timeout=5)


async def test_an_idle_server_sleeps(loop, sockets):
    factory, made = keeping(Greeter)
    async with serve(factory) as (_, port):
        await greeted(sockets.dial(port))
        with cpu_below(0.1):
            await asyncio.sleep(0.3)
        await end_all(made)


async def test_a_forgotten_server_still_accepts(loop, sockets):
    factory, made = keeping(Greeter)
    server = await loop.create_server(factory, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    del server
    gc.collect()
    await turns(3)
    gc.collect()
    await greeted(sockets.dial(port))
    await end_all(made)
    for found in gc.get_objects():  # only so that the loop can be ended
        if type(found) is asyncio.Server and found.get_loop() is loop:
            found.close()
    del found
    await turns(3)


async def test_accepting_two_ports(loop, sockets):
    """One server on several addresses accepts on each; two servers do not get into each other's way."""
    one, made_one = keeping(Greeter)
    two, made_two = keeping(Greeter)
    server = await loop.create_server(one, ["127.0.0.1", "127.0.0.2"], 0)
    async with serve(two) as (_, port):
        for sock in server.sockets:
            await greeted(sockets.dial(sock.getsockname()[1], sock.getsockname()[0]))
        await greeted(sockets.dial(port))
        assert (len(made_one), len(made_two)) == (2, 1)
        await end_all(made_one + made_two)
    server.close()


async def test_the_context_of_accepted_protocols(loop, sockets):
    """Protocols of a server are called in one context for all callbacks of a connection."""
    var, seen = contextvars.ContextVar("var", default="none"), []

    class Asks(Recorder):
        def connection_made(self, transport):
            seen.append(var.get())
            super().connection_made(transport)

        def data_received(self, data):
            seen.append(var.get())
            super().data_received(data)

        def connection_lost(self, exc):
            seen.append(var.get())
            super().connection_lost(exc)

    factory, made = keeping(Asks)
    var.set("serving")
    async with serve(factory) as (_, port):
        var.set("later")
        client = sockets.dial(port)
        client.sock.send(b"x")
        await eventually(lambda: made and made[0].data)
        client.close()
        await made[0].lost()
    assert seen == ["serving"] * 3


@pytest.mark.uvpy_only("asyncio leaves the transport open that its closed server refuses")
async def test_a_factory_that_closes_its_server_and_gives_the_number_to_another_file(loop, sockets):
    """What the poll found was about the listener: the new file's reader is not called for it."""
    called, made = [], []

    def factory():
        number = server.sockets[0].fileno()
        server.close()
        for _ in range(20):
            ours, theirs = sockets.pair()
            for sock in (ours, theirs):
                if sock.fileno() == number:
                    loop.add_reader(sock, called.append, sock)
                    made.append(sock)
                    return asyncio.Protocol()
        return asyncio.Protocol()

    server = await loop.create_server(factory, "127.0.0.1", 0)
    with socket.create_connection(server.sockets[0].getsockname()):
        await eventually(lambda: made)
        await turns(5)
    assert called == []
    loop.remove_reader(made[0])
