"""Servers under load from another process: echo in all its forms, HTTP, and a server beside busy threads."""

from __future__ import annotations

from dataclasses import replace

from loops import BARESTS, CONVOY, FASTNET, FLOOR, NEIGHBOURS

from cases.kinds import Case, Load, Memory, plain_and_tuned

_BESIDE = (FLOOR, *NEIGHBOURS)


def _connections_text(count: int) -> str:
    return f"{count:,} connection{'s' if count > 1 else ''}"


def _echo() -> dict[str, Case]:
    made: dict[str, Case] = {}
    for connections in (1, 10, 100, 200, 1000):
        load = Load(
            text=f"TCP echo, asyncio.Protocol, 1 KiB, {_connections_text(connections)}",
            server="protocol",
            connections=connections,
            extras=_BESIDE if connections in (10, 200) else (FLOOR,),
        )
        made |= plain_and_tuned(f"tcp_echo_{connections}", load)
    made["tcp_echo_10000_t"] = Load(
        text="TCP echo, asyncio.Protocol, 1 KiB, 10,000 connections, malloc tuned",
        server="protocol",
        connections=10_000,
        tuned=True,
        extras=(FLOOR,),
        solo=True,
        turn=0.5,
    )
    for kib in (10, 100):
        load = Load(
            text=f"TCP echo, asyncio.Protocol, {kib} KiB, 10 connections",
            server="protocol",
            size=kib * 1024,
            extras=(FLOOR,),
        )
        made |= plain_and_tuned(f"tcp_echo_{kib}k", load)
    for server, text in (
        ("buffered", "TCP echo, asyncio.BufferedProtocol"),
        ("streams", "TCP echo, streams"),
        ("sock", "TCP echo, sock_recv of 256 KiB and sock_sendall"),
    ):
        made |= plain_and_tuned(f"{server}_echo", Load(text=f"{text}, 1 KiB, 10 connections", server=server))
    unix = Load(text="Unix socket echo, 1 KiB, 10 connections", server="unix", transport="unix", extras=(FLOOR,))
    made |= plain_and_tuned("unix_echo", unix)
    tls = Load(
        text="TLS 1.3 echo, asyncio.Protocol, 1 KiB, 10 connections",
        server="tls",
        transport="tls",
        extras=(*FASTNET, *BARESTS),
    )
    made |= plain_and_tuned("tls_echo", tls)
    udp = Load(text="UDP echo, 1 KiB, 10 sockets", server="udp", transport="udp", figure="cpu")
    made |= plain_and_tuned("udp_echo", udp)
    made["udp_bulk"] = Load(
        text="UDP one way: of 32 datagrams of 1 KiB the last is answered, 2 sockets",
        server="udp_bulk",
        transport="udp",
        connections=2,  # so that what is under way fits into the server's buffer, and none is lost
        depth=32,
        options=("--ack",),
    )
    return made


def _writes() -> dict[str, Case]:
    made: dict[str, Case] = {}
    for connections in (1, 8, 200):
        for pieces in (1, 2, 5):
            made[f"writes{pieces}_{connections}"] = Load(
                text=f"an answer of 1 KiB in {pieces} write{'s' * (pieces > 1)}, {_connections_text(connections)}",
                server=f"writes{pieces}",
                connections=connections,
                tuned=True,
            )
        made[f"pipelined16_{connections}"] = Load(
            text=f"16 pipelined requests of 100 bytes, a write each, {_connections_text(connections)}",
            server="pieces100",
            connections=connections,
            size=100,
            depth=16,
            tuned=True,
        )
    return made


def _connections() -> dict[str, Case]:
    churn = Load(
        text="connect, one request of 64 bytes, close; 10 at once",
        server="protocol",
        size=64,
        options=("--churn",),
        extras=(FLOOR,),
    )
    return {
        "churn": churn,
        "accept_storm": replace(
            churn, text="200 clients connect at the same instant", connections=200, options=("--storm",)
        ),
        "memory": Memory(
            text="bytes of RSS for each of 10,000 idle accepted connections, protocol object included",
            server="idle",
            connections=10_000,
            extras=(FLOOR,),
            solo=True,
        ),
        "tail": Load(
            text="a callback of 1 ms every 10 ms; 2,000 requests/s (Poisson) over 10 connections",
            server="ticking",
            mode="poisson",
            rate=2000,
            figure="p99",
            solo=True,
            turn=0.5,
        ),
    }


def _http() -> dict[str, Case]:
    made: dict[str, Case] = {}
    for server, text in (("http_raw", "httptools"), ("uvicorn", "uvicorn"), ("aiohttp", "aiohttp")):
        load = Load(text=f"HTTP, {text}, 1 KiB", server=server, options=("--http", "/"))
        for connections in (8, 200):
            at = replace(load, text=f"{load.text}, {connections} connections", connections=connections)
            made |= plain_and_tuned(f"{server}_{connections}", at)
        for percent in (50, 80):
            made[f"{server}_at_{percent}"] = replace(
                load,
                text=f"{load.text}, 200 connections, at {percent} % of what asyncio does at most",
                connections=200,
                mode="fixed",
                rate=percent / 100,
                figure="p99",
                solo=True,
                turn=0.5,
            )
    made["http_close"] = Load(
        text="HTTP, httptools, a connection for each request (Connection: close), 10 at once",
        server="http_raw",
        options=("--http", "/", "--churn"),
    )
    return made


def _convoy() -> dict[str, Case]:
    """Threads of Python beside the loop, and what the loop's answers then take."""
    base = Load(
        text="beside one busy Python thread",
        server="protocol",
        size=64,
        connections=1,
        busy=1,
        figure="p50",
        extras=(*CONVOY, FLOOR),
        solo=True,
        pinned=False,
        turn=0.4,
    )
    paced = {
        rate: replace(base, text=f"{base.text}, {rate} requests/s", mode="fixed", rate=rate, connections=10, turn=turn)
        for rate, turn in ((20, 1.2), (500, 0.4))
    }
    made: dict[str, Case] = {}
    for rate, load in paced.items():
        made[f"convoy_{rate}"] = load
        made[f"convoy_{rate}_pinned"] = replace(load, text=f"{load.text}, server pinned to one core", pinned=True)
        made[f"convoy_{rate}_alone"] = replace(load, text=f"beside nobody, {rate} requests/s", busy=0, extras=(FLOOR,))
    for connections in (1, 10):
        made[f"convoy_closed_{connections}"] = replace(
            base,
            text=f"{base.text}, closed loop, {_connections_text(connections)}",
            connections=connections,
            figure="rate",
        )
    for busy in (2, 4):
        made[f"convoy_{busy}_threads"] = replace(
            paced[500], text=f"beside {busy} busy Python threads, 500 requests/s", busy=busy
        )
    # Of the others only the loops play: what holds for the process is the case's.
    plain = replace(paced[500], extras=())
    made["convoy_bursts"] = replace(
        plain, text=f"{base.text}, 10 requests at once 20 times a second", mode="bursts", rate=200, turn=0.6
    )
    made["convoy_hashing"] = replace(
        plain, text=f"{base.text}, each callback drops the GIL itself, 50 requests/s", server="hashing", rate=50
    )
    made["convoy_interval_100us"] = replace(
        plain, text=f"{base.text}, a switch interval of 0.1 ms set by the program, 500 requests/s", interval=1e-4
    )
    made["convoy_interval_20ms"] = replace(
        plain, text=f"{base.text}, a switch interval of 20 ms set by the program, 20 requests/s", rate=20, interval=0.02
    )
    made["convoy_loops"] = replace(plain, text=f"{base.text}, 3 loops in threads, 500 requests/s", loops=3)
    made["convoy_quota"] = replace(
        plain, text=f"{base.text}, half a core by a control group, 100 requests/s", rate=100, quota=0.5, turn=0.8
    )
    made["convoy_dropping"] = replace(
        plain, text="beside a thread that drops the GIL often, 500 requests/s", drops=True, extras=tuple(CONVOY)
    )
    made["convoy_dropping_closed"] = replace(
        base,
        text="beside a thread that drops the GIL often, closed loop, 10 connections",
        drops=True,
        connections=10,
        extras=tuple(CONVOY),
        figure="rate",
    )
    made["executor_threads"] = Load(
        text="each answer from 1 ms of Python in one of four executor threads, 8 connections",
        server="offloading",
        size=64,
        connections=8,
        extras=tuple(CONVOY),
        solo=True,
        pinned=False,
        turn=0.4,
    )
    return made


FAMILIES: dict[str, dict[str, Case]] = {
    "echo": _echo(),
    "writes": _writes(),
    "connections": _connections(),
    "http": _http(),
    "convoy": _convoy(),
}
