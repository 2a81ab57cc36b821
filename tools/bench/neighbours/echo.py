"""TCP echo on the neighbours that are Python: echo.py gevent|Twisted|Tornado|Trio."""

from __future__ import annotations

import json
import socket
import sys
from typing import Any

RECEIVE = 256 * 1024


def say(port: int) -> None:
    print(json.dumps({"loop": sys.argv[1], "address": str(port)}), flush=True)


def listener() -> socket.socket:
    return socket.create_server(("127.0.0.1", 0), backlog=4096)


def gevent() -> None:
    from gevent.server import StreamServer

    def answer(connection: Any, _: Any) -> None:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        while data := connection.recv(RECEIVE):
            connection.sendall(data)

    server = StreamServer(("127.0.0.1", 0), answer, backlog=4096)
    server.start()
    say(server.server_port)
    server.serve_forever()


def twisted() -> None:
    from twisted.internet import reactor
    from twisted.internet.protocol import Factory, Protocol

    class Echo(Protocol):
        def connectionMade(self) -> None:
            self.transport.setTcpNoDelay(True)

        def dataReceived(self, data: bytes) -> None:
            self.transport.write(data)

    port = reactor.listenTCP(0, Factory.forProtocol(Echo), backlog=4096, interface="127.0.0.1")
    say(port.getHost().port)
    reactor.run()


def tornado() -> None:
    import asyncio

    from tornado.iostream import StreamClosedError
    from tornado.tcpserver import TCPServer

    class Echo(TCPServer):
        async def handle_stream(self, stream: Any, address: Any) -> None:
            stream.set_nodelay(True)
            try:
                while True:
                    await stream.write(await stream.read_bytes(RECEIVE, partial=True))
            except StreamClosedError:
                pass

    async def main() -> None:
        server = Echo()
        sock = listener()
        sock.setblocking(False)
        server.add_sockets([sock])
        say(sock.getsockname()[1])
        await asyncio.Event().wait()

    asyncio.run(main())


def trio() -> None:
    import trio as library

    async def answer(stream: Any) -> None:
        async for data in stream:
            await stream.send_all(data)

    async def main() -> None:
        listeners = await library.open_tcp_listeners(0, host="127.0.0.1", backlog=4096)
        say(listeners[0].socket.getsockname()[1])
        await library.serve_listeners(answer, listeners)

    library.run(main)


if __name__ == "__main__":
    {"gevent": gevent, "Twisted": twisted, "Tornado": tornado, "Trio": trio}[sys.argv[1]]()
