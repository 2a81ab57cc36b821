"""Names and addresses: the same answers as socket's, addresses without a thread, and every replacement honoured."""

import _socket
import asyncio
import contextlib
import inspect
import logging
import socket
import sys
import threading
from unittest import mock

import pytest

from support.drive import LIMIT, eventually, turns
from support.protocols import Recorder, drop
from support.script import output

ADDRESSES = [
    "127.0.0.1",
    "0.0.0.0",
    "255.255.255.255",
    "::1",
    "::",
    "::ffff:1.2.3.4",
    "fe80::1",
    "ff02::1",
    b"127.0.0.1",
]
SHORTENED = ["10.1", "127.1", "0x7f.1", "1", "017700000001", "\uff11\uff12\uff17.0.0.1"]
ZONES = ["fe80::1%1", "fe80::1%0", "::1%1", b"fe80::1%1"]
if sys.platform == "linux":
    ZONES += ["fe80::1%lo", "fe80::1%nosuchinterface", "fe80::1%", "1.2.3.4%lo"]
PORTS = [80, 0, 65535, 65536, -1, "80", b"80", "", b"", None, 1 << 70]


def outcome(function, *args, **kwargs):
    try:
        return function(*args, **kwargs)
    except Exception as exc:
        return type(exc), exc.args


async def outcome_of(coro):
    try:
        return await coro
    except Exception as exc:
        return type(exc), exc.args


def types_of(answer):
    return [[type(part) for part in row] for row in answer] if isinstance(answer, list) else answer


async def same(loop, *args, **kwargs):
    want = outcome(socket.getaddrinfo, *args, **kwargs)
    got = await outcome_of(loop.getaddrinfo(*args, **kwargs))
    assert got == want, (args, kwargs)
    assert types_of(got) == types_of(want)


@pytest.fixture
def no_thread(loop, kind):
    """That nothing goes to a thread; asyncio sends everything to one."""
    if kind == "uvpy":

        class Refuses:
            def submit(self, function, *args):
                raise AssertionError(f"{function} with {args} went to the executor")

            def shutdown(self, wait=True):
                pass

        loop._default_executor = Refuses()


@pytest.mark.parametrize("host", ADDRESSES + SHORTENED + ZONES, ids=ascii)
async def test_addresses_are_answered_as_socket_does(loop, host):
    for family in (0, socket.AF_INET, socket.AF_INET6, socket.AF_UNIX, 12345):
        for kind in (0, socket.SOCK_STREAM, socket.SOCK_DGRAM, socket.SOCK_RAW, 77):
            await same(loop, host, 80, family=family, type=kind, flags=socket.AI_NUMERICHOST)
    for port in PORTS:
        await same(loop, host, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)
    for proto in (socket.IPPROTO_TCP, socket.IPPROTO_UDP, 99):
        await same(loop, host, 80, proto=proto, flags=socket.AI_NUMERICHOST)
    for flags in (socket.AI_PASSIVE, socket.AI_CANONNAME, socket.AI_ADDRCONFIG, socket.AI_V4MAPPED | socket.AI_ALL):
        for family in (0, socket.AF_INET6):
            await same(loop, host, 80, type=socket.SOCK_STREAM, family=family, flags=flags | socket.AI_NUMERICHOST)


@pytest.mark.parametrize("host", ADDRESSES + ZONES[:4], ids=ascii)
async def test_addresses_without_a_flag(loop, no_thread, host):
    """No flag says that the host is an address: it is seen."""
    for port in (80, "80", b"80", None, ""):
        await same(loop, host, port)
    await same(loop, host, 80, flags=socket.AI_CANONNAME)
    await same(loop, host, "80", flags=socket.AI_NUMERICSERV)


async def test_no_host_and_other_flags(loop, no_thread):
    for host in (None, "", b""):
        for port in (80, None, "80"):
            for flags in (socket.AI_NUMERICHOST, socket.AI_NUMERICHOST | socket.AI_PASSIVE):
                await same(loop, host, port, flags=flags)
    for flags in (0, socket.AI_PASSIVE):
        await same(loop, None, 0, flags=flags)
    for host in ("localhost", "no such host", b"x"):
        await same(loop, host, 80, flags=socket.AI_NUMERICHOST)


@pytest.mark.parametrize(
    "host", ["a" * 64, "a" * 300, "x\0y", "1\0", 5, 1.5, [], "\udc80", "..", "1..2", bytearray(b"1")]
)
async def test_hosts_of_odd_shapes(loop, host):
    await same(loop, host, 80, flags=socket.AI_NUMERICHOST)


async def test_arguments_of_odd_types(loop):
    await same(loop, "1.2.3.4", 1.5)
    await same(loop, "1.2.3.4", [])
    await same(loop, "1.2.3.4", 80, flags="1")
    await same(loop, "1.2.3.4", 80, family="1")
    await same(loop, "1.2.3.4", 80, type=None)
    await same(loop, "1.2.3.4", 80, flags=1 << 70)
    await same(loop, "1.2.3.4", 80, flags=socket.AddressInfo.AI_NUMERICHOST)


@pytest.mark.parametrize("flags", [-1, -2, 1 << 14, 1 << 20, -(1 << 31), socket.AddressInfo(4) | 1 << 20, True])
async def test_flags_without_a_name(loop, flags):
    """They come to the resolver as they are, which says what it thinks of them."""
    for host in ("1.2.3.4", "::1", None, "localhost"):
        await same(loop, host, 80, flags=flags)


def test_a_closed_loop_answers_nothing(loop):
    loop.close()
    for look_up in (
        lambda: loop.getaddrinfo("1.2.3.4", 80),
        lambda: loop.getaddrinfo(None, 80),
        lambda: loop.getaddrinfo("localhost", 80),
        lambda: loop.getnameinfo(("1.2.3.4", 80), socket.NI_NUMERICHOST | socket.NI_NUMERICSERV),
        lambda: loop.getnameinfo(("1.2.3.4", 80)),
    ):
        with pytest.raises(RuntimeError, match=r"^Event loop is closed$"):
            look_up().send(None)


async def test_names_go_to_a_thread(loop, monkeypatch):
    """A name, a service by its name: they may be answered by somebody far away."""
    used = []
    run_in_executor = loop.run_in_executor
    for arguments in (("localhost", 80), ("1.2.3.4", "http"), ("", 80), (None, "http")):

        def note(*args, arguments=arguments):
            used.append(arguments)
            return run_in_executor(*args)

        loop.run_in_executor = note
        await outcome_of(loop.getaddrinfo(*arguments))
        assert used[-1] is arguments
    del loop.run_in_executor
    for name in ("localhost", b"localhost", "LOCALHOST"):
        await same(loop, name, 80, type=socket.SOCK_STREAM)


@pytest.mark.parametrize("where", ["socket", "_socket"])
async def test_a_replacement_answers_in_a_thread(loop, monkeypatch, where):
    module = {"socket": socket, "_socket": _socket}[where]
    real = module.getaddrinfo
    calls = []

    def fake(host, port, *args):
        calls.append((host, port, *args, threading.current_thread() is threading.main_thread()))
        return real("127.0.0.9", port, *args)

    monkeypatch.setattr(module, "getaddrinfo", fake)
    for host in ("127.0.0.1", "localhost"):
        found = await loop.getaddrinfo(host, 80, type=socket.SOCK_STREAM)
        assert found[0][4] == ("127.0.0.9", 80)
        assert calls.pop() == (host, 80, 0, socket.SOCK_STREAM, 0, 0, False)
    monkeypatch.undo()
    assert (await loop.getaddrinfo("127.0.0.1", 80, type=socket.SOCK_STREAM))[0][4] == ("127.0.0.1", 80)
    assert calls == []


async def test_a_replaced_module_answers(loop):
    """As CPython's own tests do it: the name `socket` in asyncio's module means another one."""
    with mock.patch("asyncio.base_events.socket", autospec=True) as fake:
        fake.getaddrinfo.return_value = [1]
        fake.getnameinfo.return_value = ("host", "service")
        assert await loop.getaddrinfo("127.0.0.1", 80) == [1]
        assert await loop.getnameinfo(("x", 1), socket.NI_NUMERICHOST | socket.NI_NUMERICSERV) == ("host", "service")


async def test_a_replaced_getnameinfo_answers(loop, monkeypatch):
    monkeypatch.setattr(socket, "getnameinfo", lambda address, flags: (address, flags))
    flags = socket.NI_NUMERICHOST | socket.NI_NUMERICSERV
    assert await loop.getnameinfo("x", flags) == ("x", flags)


async def test_names_of_addresses(loop, no_thread):
    numbers = socket.NI_NUMERICHOST | socket.NI_NUMERICSERV
    for flags in (numbers, numbers | socket.NI_DGRAM, numbers | socket.NI_NAMEREQD):
        for address in (
            ("127.0.0.1", 80),
            ("::1", 443, 0, 0),
            ("fe80::1", 80, 0, 1),
            ("name", 80),
            ("1.2.3.4", -1),
            ("1.2.3.4",),
            "no tuple",
            (),
        ):
            want = outcome(socket.getnameinfo, address, flags)
            assert await outcome_of(loop.getnameinfo(address, flags)) == want


@pytest.mark.parametrize("how", ["instance", "subclass"])
def test_an_override_is_used_everywhere(loop_class, errors, how, sockets):
    calls = []

    async def fake(host, port, *, family=0, type=0, proto=0, flags=0):  # noqa: A002
        calls.append(host)
        where = listener.getsockname()[1] if port else 0
        kind, proto = (type, socket.IPPROTO_UDP if type == socket.SOCK_DGRAM else socket.IPPROTO_TCP)
        return [(socket.AF_INET, kind, proto, "", ("127.0.0.1", where))]

    if how == "subclass":

        class Mine(loop_class):
            async def getaddrinfo(self, *args, **kwargs):
                return await fake(*args, **kwargs)

        loop = Mine()
    else:
        loop = loop_class()
        loop.getaddrinfo = fake
    listener = sockets.listener()

    async def main():
        for host in ("name.test", "fe80::1%nosuchzone"):
            transport, _ = await loop.create_connection(Recorder, host, 1)
            await drop(transport)
            server = await loop.create_server(Recorder, host, 0)
            server.close()
            transport, _ = await loop.create_datagram_endpoint(asyncio.DatagramProtocol, remote_addr=(host, 1))
            transport.close()
            client = sockets.own(socket.socket())
            client.setblocking(False)
            await loop.sock_connect(client, (host, 1))
            assert calls == [host] * 4
            calls.clear()
        await turns()

    loop.run_until_complete(main())
    loop.close()


async def test_connections_to_addresses_use_no_thread(loop, no_thread, sockets):
    server = await loop.create_server(Recorder, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    transport, _ = await loop.create_connection(Recorder, "127.0.0.1", port, local_addr=("127.0.0.1", 0))
    await drop(transport)
    server.close()
    one, _ = await loop.create_datagram_endpoint(asyncio.DatagramProtocol, local_addr=("127.0.0.1", 0))
    two, _ = await loop.create_datagram_endpoint(
        asyncio.DatagramProtocol, remote_addr=one.get_extra_info("sockname"), local_addr=("0.0.0.0", 0)
    )
    one.close()
    two.close()
    await turns()


@pytest.mark.skipif(sys.platform != "linux", reason="the interface lo")
@pytest.mark.parametrize("zone", ["lo", "1"])
async def test_zones_use_no_thread_and_are_kept(loop, no_thread, zone):
    with contextlib.suppress(OSError):  # no IPv6 here
        server = await loop.create_server(Recorder, "::1%1", 0)
        transport, _ = await loop.create_connection(Recorder, "::1%1", server.sockets[0].getsockname()[1])
        await drop(transport)
        server.close()
        endpoint, _ = await loop.create_datagram_endpoint(asyncio.DatagramProtocol, remote_addr=("::1%1", 1))
        endpoint.close()
        await turns()
    with pytest.raises(OSError):  # nobody listens there
        await loop.create_connection(Recorder, f"fe80::1%{zone}", 1)
    found = await loop.getaddrinfo(f"fe80::1%{zone}", 80, type=socket.SOCK_STREAM)
    assert found[0][4] == ("fe80::1", 80, 0, socket.if_nametoindex("lo"))


async def test_cancelling_leaves_nothing(loop, monkeypatch):
    release, started = threading.Event(), threading.Event()

    def slow(*args):
        started.set()
        release.wait(LIMIT)
        raise socket.gaierror(socket.EAI_NONAME, "late")

    monkeypatch.setattr(socket, "getaddrinfo", slow)
    task = asyncio.ensure_future(loop.create_connection(Recorder, "localhost", 1))
    await eventually(started.is_set)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    release.set()
    await loop.shutdown_default_executor()


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
async def test_debug_mode_logs_lookups(loop, host, caplog, log):
    loop.set_debug(True)
    loop.slow_callback_duration = 0
    with caplog.at_level(logging.DEBUG, "asyncio"):
        await loop.getaddrinfo(host, 80, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    loop.set_debug(False)
    await turns()
    log.take()  # that every callback was slow
    kind, flags = socket.SOCK_STREAM, socket.AI_PASSIVE
    asked = f"{host}:80, type={kind!r}, flags={flags!r}"
    texts = [(r.levelname, r.message) for r in caplog.records if "address info" in r.message]
    assert texts[0] == ("DEBUG", f"Get address info {asked}")
    assert texts[1][0] == "INFO"
    assert texts[1][1].startswith(f"Getting address info {asked} took ")
    assert texts[1][1].endswith(repr(socket.getaddrinfo(host, 80, type=kind, flags=flags)))
    assert len(texts) == 2


def test_they_are_coroutine_functions(loop, loop_class):
    for method in (loop.getaddrinfo, loop.getnameinfo, loop_class.getaddrinfo, loop_class.getnameinfo):
        assert inspect.iscoroutinefunction(method)


@pytest.mark.uvpy_only("asyncio keeps no copy of socket's functions")
def test_what_was_put_there_before_us_is_asked_too(loop):
    """A replacement made before uvpy was imported is asked in the executor, too."""
    body = """
import asyncio, socket, threading
real = socket.getaddrinfo
def getaddrinfo(*args):
    assert threading.current_thread() is not threading.main_thread()
    return real(*args)
socket.getaddrinfo = getaddrinfo
import uvpy
async def main():
    print(len(await asyncio.get_running_loop().getaddrinfo("127.0.0.1", 80, type=socket.SOCK_STREAM)))
uvpy.run(main())
"""
    assert output(body) == "1"


def test_audit_hooks_see_lookups_of_addresses(kind):
    """With the arguments as they were given."""
    body = f"""
import socket, sys
import {kind}
def note(event, args):
    if event == "socket.getaddrinfo":
        print(*args)
loop = {kind}.new_event_loop()
sys.addaudithook(note)
for host, port in (("1.2.3.4", 80), ("::1", None), ("::1", "80"), (b"1.2.3.4", 80)):
    loop.run_until_complete(loop.getaddrinfo(host, port, type=socket.SOCK_STREAM))
loop.close()
"""
    assert output(body).splitlines() == ["1.2.3.4 80 0 1 0", "::1 None 0 1 0", "::1 80 0 1 0", "b'1.2.3.4' 80 0 1 0"]
