"""A load generator for HTTP over loopback: load.py PORT CONNECTIONS SECONDS. Prints JSON.

Plain sockets under one selector: each connection sends its next request when the answer to the last is
complete. It does so little per request that the server is what limits it. No asyncio in here.
"""

from __future__ import annotations

import json
import selectors
import socket
import sys
import time

REQUEST = b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nUser-Agent: uvpy-demo\r\n\r\n"


def exchange(sock: socket.socket, request: bytes) -> bytes:
    """One request and its whole answer, blocking."""
    sock.sendall(request)
    got = b""
    while b"\r\n\r\n" not in got:
        got += _some(sock)
    head, _, body = got.partition(b"\r\n\r\n")
    lines = head.lower().split(b"\r\n")
    length = next(int(line.split(b":")[1]) for line in lines if line.startswith(b"content-length:"))
    while len(body) < length:
        body += _some(sock)
    if not head.startswith(b"HTTP/1.1 200 "):
        raise RuntimeError(f"the server answered {head[:60]!r}")
    return head + b"\r\n\r\n" + body


def _some(sock: socket.socket) -> bytes:
    data = sock.recv(65536)
    if not data:
        raise RuntimeError("the server closed a connection")
    return data


def ask(sock: socket.socket, path: str) -> str:
    """What the server says of itself."""
    answer = exchange(sock, REQUEST.replace(b"GET / ", b"GET " + path.encode() + b" "))
    return answer.partition(b"\r\n\r\n")[2].decode()


def connect(port: int) -> socket.socket:
    sock = socket.create_connection(("127.0.0.1", port), timeout=10)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return sock


def load(port: int, connections: int, seconds: float) -> dict[str, float]:
    socks = [connect(port) for _ in range(connections)]
    size = len(exchange(socks[0], REQUEST))  # every answer has this size: the date's is fixed
    selector = selectors.DefaultSelector()
    pending = {}
    sent = {}
    clock = time.perf_counter
    for sock in socks:
        sock.setblocking(False)
        selector.register(sock, selectors.EVENT_READ, sock)
        pending[sock] = 0
    times: list[float] = []
    begin = clock()
    end = begin + seconds
    for sock in socks:
        sent[sock] = clock()
        sock.send(REQUEST)
    now = begin
    while now < end:
        events = selector.select(10)
        if not events:
            raise RuntimeError("no answer within 10 s")
        for key, _ in events:
            sock = key.data
            data = _some(sock)
            if not pending[sock] and not data.startswith(b"HTTP/1.1 200 "):
                raise RuntimeError(f"the server answered {data[:60]!r}")
            pending[sock] += len(data)
            if pending[sock] < size:
                continue
            if pending[sock] > size:
                raise RuntimeError("an answer of another size")
            now = clock()
            times.append(now - sent[sock])
            pending[sock] = 0
            sent[sock] = now
            sock.send(REQUEST)
    taken = clock() - begin
    selector.close()
    for sock in socks:
        sock.close()
    times.sort()
    return {
        "requests": len(times),
        "rate": len(times) / taken,
        "p50": times[len(times) // 2],
        "p99": times[len(times) * 99 // 100],
    }


def main() -> None:
    port, connections, seconds = int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
    with connect(port) as sock:
        before = float(ask(sock, "/time"))
        told = load(port, connections, seconds)
        told["cpu"] = (float(ask(sock, "/time")) - before) / told["requests"]
        print(json.dumps({"loop": ask(sock, "/loop"), **told}))


if __name__ == "__main__":
    main()
