"""TLS: the standard library's SSLProtocol on our transport, as client and as server, and start_tls()."""

import asyncio
import contextlib
import contextvars
import gc
import ssl
from asyncio import sslproto
from unittest import mock

import pytest

from support.drive import LIMIT, eventually, turns
from support.peers import KB, MB, pattern, same
from support.protocols import Buffered, Recorder, drop, end_all, keeping, serve, stuff


class Secure:
    """The TLS end of a peer: a blocking SSL socket in the peer's thread."""

    def __init__(self, peer, context, **kwargs):
        self.peer = peer
        self.ready = peer.start(self._wrap, context, kwargs)

    def _wrap(self, context, kwargs):
        self.sock = context.wrap_socket(self.peer.sock, suppress_ragged_eofs=False, **kwargs)
        self.peer.sock = self.sock

    async def recv(self, count):
        await asyncio.wrap_future(self.ready)
        return await self.peer.recv(count)

    async def send(self, data):
        await asyncio.wrap_future(self.ready)
        await self.peer.send(data)

    async def end(self):
        """Read up to the close_notify."""
        await asyncio.wrap_future(self.ready)
        return await self.peer.recv_all()

    def close(self):
        self.sock.close()

    def finish(self):
        """At the end of the test, whatever has become of the handshake."""
        with contextlib.suppress(Exception):
            self.ready.result(LIMIT)
            self.sock.close()


@pytest.fixture(params=["client", "server"])
def secured(request, loop, sockets, authority):
    """secured(factory): (transport, protocol, peer), our end a TLS client or an accepted TLS connection."""

    @contextlib.asynccontextmanager
    async def client(factory, **kwargs):
        ours, theirs = sockets.pair(tcp=True)
        peer = Secure(sockets.peer(theirs), authority.server(), server_side=True)
        sockets.callback(peer.finish)
        transport, protocol = await loop.create_connection(
            factory, sock=ours, ssl=authority.client(), server_hostname="localhost", **kwargs
        )
        try:
            yield transport, protocol, peer
        finally:
            await drop(transport)

    @contextlib.asynccontextmanager
    async def server(factory, **kwargs):
        build, made = keeping(factory)
        async with serve(build, ssl=authority.server(), **kwargs) as (_, port):
            peer = Secure(sockets.dial(port), authority.client(), server_hostname="localhost")
            sockets.callback(peer.finish)
            await eventually(lambda: made and made[0].transport)
            try:
                yield made[0].transport, made[0], peer
            finally:
                await drop(made[0].transport)

    return {"client": client, "server": server}[request.param]


async def test_data_both_ways(loop, secured):
    async with secured(Recorder) as (transport, protocol, peer):
        transport.write(b"hello ")
        transport.writelines([b"to", b" you"])
        assert await peer.recv(12) == b"hello to you"
        await peer.send(b"and to you")
        assert await protocol.got(10) == b"and to you"


async def test_megabytes_both_ways_at_once(loop, secured):
    blob = pattern(3 * MB)
    async with secured(Recorder) as (transport, protocol, peer):
        await asyncio.wrap_future(peer.ready)
        transport.write(blob)
        transport.write(b"end")
        same(await peer.recv(3 * MB + 3), blob + b"end")
        sending = peer.peer.start(peer.peer.sock.sendall, blob)
        same(await protocol.got(len(blob)), blob)
        await asyncio.wrap_future(sending)


async def test_a_buffered_protocol_over_tls(loop, secured):
    async with secured(lambda: Buffered(1000)) as (_, protocol, peer):
        await peer.send(pattern(50_000))
        same(await protocol.got(50_000), pattern(50_000))


@pytest.mark.parametrize("sizes", [(1,), (16 * KB,), (16 * KB, 1), (700, 16 * KB, 16 * KB, 3)], ids=str)
async def test_records_that_come_together_are_handed_on_together(loop, secured, sizes):
    """Whatever their sizes, full ones too: none is left behind to wait for more."""
    blobs = [pattern(size) for size in sizes]
    async with secured(Recorder) as (transport, protocol, peer):
        await asyncio.wrap_future(peer.ready)
        transport.pause_reading()
        await asyncio.wrap_future(peer.peer.start(lambda: [peer.peer.sock.sendall(blob) for blob in blobs]))
        await turns(3)
        transport.resume_reading()
        same(await protocol.got(sum(sizes)), b"".join(blobs))
        for blob in blobs:
            protocol.data.clear()
            await peer.send(blob)
            same(await protocol.got(len(blob)), blob)


async def test_a_record_that_comes_in_pieces(loop, sockets, authority):
    """Of one record the head, then its rest with another one's head: each is handed on when it is whole."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    build, made = keeping(Recorder)
    async with serve(build, ssl=authority.server()) as (_, port):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        end = authority.client().wrap_bio(incoming, outgoing, server_hostname="localhost")
        while True:
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                writer.write(outgoing.read())
                incoming.write(await reader.read(KB * KB))
                continue
            break
        end.write(b"first")
        end.write(b"second")
        sent = outgoing.read()
        for at in range(0, len(sent), 20):
            writer.write(sent[at : at + 20])
            await turns(3)
        await eventually(lambda: made and bytes(made[0].data) == b"firstsecond")
        writer.close()
        await writer.wait_closed()


async def test_an_error_of_the_protocol_ends_the_connection(loop, secured, errors):
    class Failing(Recorder):
        def data_received(self, data):
            raise ValueError(f"cannot bear {data!r}")

    async with secured(Failing) as (_, protocol, peer):
        await peer.send(b"this")
        assert isinstance(await protocol.lost(), ValueError)
        assert [error["message"] for error in errors.take()] == ["Fatal error on SSL protocol"]


async def test_what_a_program_has_replaced_is_called(loop, secured):
    """Methods of asyncio's SSLProtocol and of ssl's SSLObject, as tests and work-arounds patch them."""
    stock = {(sslproto.SSLProtocol, "_process_outgoing"), (ssl.SSLObject, "read"), (ssl.SSLObject, "write")}
    for kind, name in stock:
        with mock.patch.object(kind, name, autospec=True, side_effect=getattr(kind, name)) as spy:
            async with secured(Recorder) as (transport, protocol, peer):
                transport.write(b"to and")
                assert await peer.recv(6) == b"to and"
                await peer.send(b"fro")
                assert await protocol.got(3) == b"fro"
        assert spy.called


async def test_what_a_program_has_put_on_the_ssl_object_is_called(loop, secured):
    async with secured(Recorder) as (transport, protocol, peer):
        sslobj = transport.get_extra_info("ssl_object")
        with mock.patch.object(sslobj, "read", wraps=sslobj.read) as read:
            with mock.patch.object(sslobj, "write", wraps=sslobj.write) as write:
                transport.write(b"out")
                assert await peer.recv(3) == b"out"
                await peer.send(b"in")
                await eventually(lambda: protocol.data == b"in")
        assert write.called
        assert read.called


async def test_an_ssl_object_of_the_programs_own(loop, sockets, authority):
    class Counting(ssl.SSLObject):
        reads = writes = 0

        def read(self, *args):
            Counting.reads += 1
            return super().read(*args)

        def write(self, *args):
            Counting.writes += 1
            return super().write(*args)

    context = authority.client()
    context.sslobject_class = Counting
    ours, theirs = sockets.pair(tcp=True)
    peer = Secure(sockets.peer(theirs), authority.server(), server_side=True)
    sockets.callback(peer.finish)
    transport, protocol = await loop.create_connection(Recorder, sock=ours, ssl=context, server_hostname="localhost")
    transport.write(b"there")
    assert await peer.recv(5) == b"there"
    await peer.send(b"back")
    assert await protocol.got(4) == b"back"
    assert isinstance(transport.get_extra_info("ssl_object"), Counting)
    assert Counting.reads > 0
    assert Counting.writes == 1
    await drop(transport)


async def test_extra_info(loop, secured, request):
    async with secured(Recorder) as (transport, _, peer):
        await asyncio.wrap_future(peer.ready)
        assert isinstance(transport.get_extra_info("sslcontext"), ssl.SSLContext)
        assert isinstance(transport.get_extra_info("ssl_object"), ssl.SSLObject)
        assert transport.get_extra_info("cipher")[0]
        assert transport.get_extra_info("peername") == peer.sock.getsockname()
        assert transport.get_extra_info("sockname") == peer.sock.getpeername()
        assert type(transport.get_extra_info("socket")) is asyncio.trsock.TransportSocket
        if "client" in request.node.callspec.id:
            assert transport.get_extra_info("peercert")["subjectAltName"]


async def test_close_is_a_proper_shutdown(loop, secured):
    """What is kept goes out, then close_notify; connection_lost(None) once."""
    blob = pattern(2 * MB)
    async with secured(Recorder) as (transport, protocol, peer):
        transport.write(blob)
        transport.close()
        assert transport.is_closing()
        reading = asyncio.ensure_future(peer.end())
        same(await reading, blob)
        peer.close()
        assert await protocol.lost() is None
        assert protocol.events.count("lost") == 1


async def test_the_peers_shutdown_is_an_end_of_file(loop, secured):
    async with secured(Recorder) as (_, protocol, peer):
        await peer.send(b"last")
        with contextlib.suppress(OSError, ssl.SSLError):
            await asyncio.wrap_future(peer.peer.start(peer.sock.unwrap))
        peer.close()
        await protocol.lost()
        assert bytes(protocol.data) == b"last"
        assert protocol.order()[:3] == ["made", "data", "eof"]


async def test_a_ragged_end_is_told(loop, secured):
    """The peer goes away without close_notify: connection_lost(), once, without noise."""
    async with secured(Recorder) as (_, protocol, peer):
        await peer.send(b"last")
        await protocol.got(4)
        peer.sock.shutdown(2)
        peer.close()
        await protocol.lost()
        assert protocol.events.count("lost") == 1


async def test_abort_drops(loop, secured):
    async with secured(Recorder) as (transport, protocol, peer):
        await asyncio.wrap_future(peer.ready)
        transport.write(bytes(32 * MB))
        transport.abort()
        await protocol.lost()
        assert protocol.events.count("lost") == 1
        with contextlib.suppress(OSError, ssl.SSLError):
            assert len(await peer.end()) < 32 * MB


async def test_flow_control_over_tls(loop, secured):
    async with secured(Recorder) as (transport, protocol, peer):
        await asyncio.wrap_future(peer.ready)
        total = 0
        while "pause" not in protocol.events:
            transport.write(bytes(256 * KB))
            total += 256 * KB
            assert total < 200 * MB
            await asyncio.sleep(0)
        assert len(await peer.recv(total)) == total
        await protocol.has("resume")
        transport.pause_reading()
        await peer.send(b"held back")
        await turns(5)
        assert not protocol.data
        transport.resume_reading()
        assert await protocol.got(9) == b"held back"


async def test_write_eof_is_not_there(loop, secured):
    async with secured(Recorder) as (transport, _, _):
        assert transport.can_write_eof() is False
        with pytest.raises(NotImplementedError):
            transport.write_eof()


# ---- handshakes that fail


async def test_an_unknown_authority_is_refused(loop, sockets, authority):
    async with serve(ssl=authority.server()) as (_, port):
        with pytest.raises(ssl.SSLCertVerificationError):
            await loop.create_connection(
                Recorder, "127.0.0.1", port, ssl=authority.client(trust=False), server_hostname="localhost"
            )
        with pytest.raises(ssl.SSLCertVerificationError):
            await loop.create_connection(
                Recorder, "127.0.0.1", port, ssl=authority.client(), server_hostname="other.test"
            )
        await turns(5)


async def test_a_peer_that_speaks_no_tls(loop, sockets, authority):
    ours, theirs = sockets.pair(tcp=True)
    theirs.send(b"HTTP/1.1 400 Bad Request\r\n\r\n" * 5)
    with pytest.raises(ssl.SSLError):
        await loop.create_connection(Recorder, sock=ours, ssl=authority.client(), server_hostname="localhost")
    await turns(3)


async def test_a_peer_that_hangs_up_in_the_handshake(loop, sockets, authority):
    ours, theirs = sockets.pair(tcp=True)
    task = asyncio.ensure_future(
        loop.create_connection(Recorder, sock=ours, ssl=authority.client(), server_hostname="localhost")
    )
    await turns(3)
    sockets.peer(theirs).close()
    with pytest.raises(ConnectionError):
        await task
    await turns(3)


async def test_a_handshake_that_takes_too_long(loop, sockets, authority):
    ours, _ = sockets.pair(tcp=True)
    with pytest.raises(ConnectionAbortedError, match="handshake is taking longer"):
        await loop.create_connection(
            Recorder, sock=ours, ssl=authority.client(), server_hostname="localhost", ssl_handshake_timeout=0.05
        )
    await turns(3)


async def test_a_client_without_tls_costs_the_server_nothing(loop, sockets, authority):
    factory, made = keeping()
    async with serve(factory, ssl=authority.server()) as (server, port):
        plain = sockets.dial(port)
        plain.sock.send(b"GET / HTTP/1.0\r\n\r\n")
        await plain.end()
        peer = Secure(sockets.dial(port), authority.client(), server_hostname="localhost")
        await peer.send(b"good")
        await eventually(lambda: made and any(p.data for p in made))
        assert server.is_serving()
        peer.close()
        for p in made:
            if p.transport:
                await p.lost()
        await turns(5)
        gc.collect()


async def test_each_connection_has_a_context_of_its_own(loop, sockets, authority):
    told = contextvars.ContextVar("told", default="nothing")
    seen = []

    class Tells(Recorder):
        def connection_made(self, transport):
            super().connection_made(transport)
            seen.append(told.get())
            told.set("by a connection")

    factory, made = keeping(Tells)
    told.set("to the server")
    async with serve(factory, ssl=authority.server()) as (_, port):
        told.set("later")
        for number in range(3):
            peer = Secure(sockets.dial(port), authority.client(), server_hostname="localhost")
            await asyncio.wrap_future(peer.ready)
            await eventually(lambda: len(made) > number and made[number].transport)
            peer.close()
        await end_all(made)
    assert seen == ["to the server"] * 3


async def test_client_certificates(loop, sockets, authority):
    factory, made = keeping()
    async with serve(factory, ssl=authority.server(client=True)) as (_, port):
        transport, protocol = await loop.create_connection(
            Recorder, "127.0.0.1", port, ssl=authority.client(name="some.client"), server_hostname="localhost"
        )
        transport.write(b"x")
        await eventually(lambda: made and made[0].data)
        names = made[0].transport.get_extra_info("peercert")["subjectAltName"]
        assert names == (("DNS", "some.client"),)
        transport.close()
        await protocol.lost()
        await end_all(made)


# ---- both ends on the loop, upgrades


async def test_tls_streams_on_both_ends(loop, authority):
    async def echo(reader, writer):
        while chunk := await reader.read(10_000):
            writer.write(chunk)
            await writer.drain()
        writer.close()

    async def client(i):
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", port, ssl=authority.client(), server_hostname="localhost"
        )
        blob = pattern(20_000 + i)
        writer.write(blob)
        await writer.drain()
        same(await reader.readexactly(len(blob)), blob)
        writer.close()
        with contextlib.suppress(ssl.SSLError):
            await writer.wait_closed()

    server = await asyncio.start_server(echo, "127.0.0.1", 0, ssl=authority.server())
    port = server.sockets[0].getsockname()[1]
    await asyncio.gather(*map(client, range(20)))
    server.close()
    await server.wait_closed()


async def test_start_tls_of_a_client(loop, sockets, authority):
    ours, theirs = sockets.pair(tcp=True)
    peer = sockets.peer(theirs)
    transport, protocol = await loop.create_connection(Recorder, sock=ours)
    transport.write(b"STARTTLS\n")
    assert await peer.recv(9) == b"STARTTLS\n"
    peer.sock.send(b"GO\n")
    assert await protocol.got(3) == b"GO\n"
    secure = Secure(peer, authority.server(), server_side=True)
    upgraded = await loop.start_tls(transport, protocol, authority.client(), server_hostname="localhost")
    assert upgraded is not transport
    upgraded.write(b"secret")
    assert await secure.recv(6) == b"secret"
    await secure.send(b"answer")
    assert await protocol.got(9) == b"GO\nanswer"
    assert upgraded.get_extra_info("ssl_object") is not None
    assert upgraded.get_extra_info("peername") == secure.sock.getsockname()
    upgraded.close()
    await asyncio.wrap_future(peer.start(lambda: (peer._recv(None), secure.sock.close())))
    assert await protocol.lost() is None


async def test_start_tls_of_a_server(loop, sockets, authority):
    factory, made = keeping()
    async with serve(factory) as (_, port):
        peer = sockets.dial(port)
        peer.sock.send(b"STARTTLS\n")
        await eventually(lambda: made and len(made[0].data) == 9)
        upgrading = asyncio.ensure_future(
            loop.start_tls(made[0].transport, made[0], authority.server(), server_side=True)
        )
        await turns(2)
        secure = Secure(peer, authority.client(), server_hostname="localhost")
        upgraded = await upgrading
        await secure.send(b"secret")
        assert (await made[0].got(15))[9:] == b"secret"
        upgraded.write(b"answer")
        assert await secure.recv(6) == b"answer"
        upgraded.abort()
        await made[0].lost()
        secure.close()


async def test_start_tls_of_streams(loop, sockets, authority):
    ours, theirs = sockets.pair(tcp=True)
    peer = sockets.peer(theirs)
    reader, writer = await asyncio.open_connection(sock=ours)
    writer.write(b"UP\n")
    await writer.drain()
    assert await peer.recv(3) == b"UP\n"
    secure = Secure(peer, authority.server(), server_side=True)
    await writer.start_tls(authority.client(), server_hostname="localhost")
    writer.write(b"line\n")
    assert await secure.recv(5) == b"line\n"
    await secure.send(b"answer\n")
    assert await reader.readline() == b"answer\n"
    await drop(writer.transport)
    secure.close()


async def test_start_tls_that_fails(loop, sockets, authority):
    ours, theirs = sockets.pair(tcp=True)
    transport, protocol = await loop.create_connection(Recorder, sock=ours)
    theirs.send(b"this is no handshake at all, not in the least")
    with pytest.raises(ssl.SSLError):
        await loop.start_tls(transport, protocol, authority.client(), server_hostname="localhost")
    assert transport.is_closing()
    await turns(3)


async def test_start_tls_with_data_kept(loop, sockets, authority):
    """What was written in the clear and could not be sent yet goes out in the clear, before the handshake."""
    ours, theirs = sockets.pair(tcp=True)
    peer = sockets.peer(theirs)
    transport, protocol = await loop.create_connection(Recorder, sock=ours)
    total = stuff(transport)
    transport.write(b"clear")

    def serve_it():
        got = peer._recv(total + 5)
        assert got[-5:] == b"clear"
        with authority.server().wrap_socket(peer.sock, server_side=True) as secure:
            return secure.recv(6)

    serving = peer.start(serve_it)
    upgraded = await loop.start_tls(transport, protocol, authority.client(), server_hostname="localhost")
    upgraded.write(b"secret")
    assert await asyncio.wrap_future(serving) == b"secret"
    await drop(upgraded)


async def test_a_cancelled_handshake_leaks_nothing(loop, sockets, authority):
    for pause in (0, 1, 3, 6):
        ours, theirs = sockets.pair(tcp=True)
        task = asyncio.ensure_future(
            loop.create_connection(Recorder, sock=ours, ssl=authority.client(), server_hostname="localhost")
        )
        await turns(pause)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        theirs.close()
        await turns(3)
        gc.collect()


async def test_close_is_prompt_while_the_peer_keeps_streaming(loop, sockets, authority):
    """The peer never stops to write and never looks: our end is over all the same, in no time."""

    class Streaming(asyncio.Protocol):
        def connection_made(self, transport):
            self.transport = transport
            self.pump()

        def pump(self):
            if not self.transport.is_closing():
                self.transport.write(bytes(10_000))
                self.timer = loop.call_later(0.0005, self.pump)

    class Leaving(asyncio.Protocol):
        received = 0

        def connection_made(self, transport):
            self.transport = transport
            self.lost = loop.create_future()

        def data_received(self, data):
            self.received += len(data)
            if self.received > 100_000 and not self.transport.is_closing():
                self.left = loop.time()
                self.transport.close()

        def connection_lost(self, exc):
            self.lost.set_result((loop.time() - self.left, exc))

    leaving = Leaving()
    server = await loop.create_server(lambda: leaving, "127.0.0.1", 0, ssl=authority.server())
    address = server.sockets[0].getsockname()
    client = {"ssl": authority.client(), "server_hostname": "localhost"}
    transport, streaming = await loop.create_connection(Streaming, *address, **client)
    await eventually(lambda: hasattr(leaving, "lost"))
    took, exc = await asyncio.wait_for(leaving.lost, LIMIT)
    assert took < 1
    assert exc is None
    transport.abort()
    streaming.timer.cancel()
    server.close()
    await turns(5)
