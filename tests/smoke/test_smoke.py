"""The real packages, unmodified, on uvpy: an aiohttp server and client, uvicorn with FastAPI, websockets, httpx,
anyio.
"""

import asyncio
import contextlib
import os
import re
import socket
import subprocess
import sys
import textwrap

import pytest

from support.script import environment

pytestmark = [
    pytest.mark.uvpy_only("asyncio is what these packages are tested on by their makers"),
    # What the packages say of themselves on this Python is not our affair.
    pytest.mark.filterwarnings("default::DeprecationWarning"),
    pytest.mark.filterwarnings("default::PendingDeprecationWarning"),
]


@pytest.fixture
def on(loop):
    """on(coroutine): run it on the loop under test."""

    def run(coro):
        async def limited():
            assert type(asyncio.get_running_loop()).__module__.startswith("uvpy")
            async with asyncio.timeout(20):
                return await coro

        return loop.run_until_complete(limited())

    return run


def test_aiohttp(on, authority):
    """Server and client, plain and over TLS: JSON, a big body both ways, chunks, a hundred requests at once,
    WebSockets.
    """
    aiohttp = pytest.importorskip("aiohttp")
    web = aiohttp.web = __import__("aiohttp.web", fromlist=["web"])

    async def hello(request):
        return web.json_response({"loop": type(asyncio.get_running_loop()).__name__, "path": request.path})

    async def echo(request):
        return web.Response(body=await request.read())

    async def stream(request):
        response = web.StreamResponse()
        await response.prepare(request)
        for i in range(50):
            await response.write(b"%d;" % i * 100)
        await response.write_eof()
        return response

    async def talk(request):
        ws = web.WebSocketResponse()
        await ws.prepare(request)
        async for message in ws:
            await ws.send_str(message.data[::-1])
        return ws

    app = web.Application(client_max_size=2**26)
    app.add_routes(
        [web.get("/hello", hello), web.post("/echo", echo), web.get("/stream", stream), web.get("/ws", talk)]
    )

    async def main(tls):
        runner = web.AppRunner(app)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=authority.server() if tls else None)
        await site.start()
        port = site._server.sockets[0].getsockname()[1]
        base = f"{'https' if tls else 'http'}://localhost:{port}"
        connector = aiohttp.TCPConnector(ssl=authority.client() if tls else True, limit=30)
        async with aiohttp.ClientSession(base, connector=connector) as session:
            async with session.get("/hello") as response:
                assert (await response.json())["path"] == "/hello"
            body = os.urandom(1_000_000)
            async with session.post("/echo", data=body) as response:
                assert await response.read() == body
            async with session.get("/stream") as response:
                assert await response.read() == b"".join(b"%d;" % i * 100 for i in range(50))

            async def one(i):
                async with session.post("/echo", data=b"%d" % i) as response:
                    return await response.read()

            assert await asyncio.gather(*map(one, range(100))) == [b"%d" % i for i in range(100)]
            async with session.ws_connect("/ws") as ws:
                for text in ("hello", "x" * 70_000):
                    await ws.send_str(text)
                    assert await ws.receive_str() == text[::-1]
        await runner.cleanup()
        await asyncio.sleep(0.05)  # the client's TLS connections say good-bye

    for tls in (False, True):
        on(main(tls))


def test_websockets(on):
    websockets = pytest.importorskip("websockets.asyncio.server")
    client = pytest.importorskip("websockets.asyncio.client")

    async def echo(connection):
        async for message in connection:
            await connection.send(message)

    async def main():
        async with websockets.serve(echo, "127.0.0.1", 0) as server:
            port = server.sockets[0].getsockname()[1]

            async def one(i):
                async with client.connect(f"ws://127.0.0.1:{port}") as connection:
                    for text in (f"hello {i}", "y" * 100_000):
                        await connection.send(text)
                        assert await connection.recv() == text
                    pong = await connection.ping()
                    await pong

            await asyncio.gather(*map(one, range(10)))

    on(main())


def test_httpx_and_anyio(on):
    httpx = pytest.importorskip("httpx")
    anyio = pytest.importorskip("anyio")

    async def serve(reader, writer):
        while (request := await reader.readuntil(b"\r\n\r\n")).startswith(b"GET"):
            body = re.search(rb"GET (\S+)", request)[1]
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % len(body))
            writer.write(body)
            await writer.drain()

    async def quiet(reader, writer):
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            await serve(reader, writer)
        writer.close()

    async def main():
        server = await asyncio.start_server(quiet, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        async with httpx.AsyncClient() as session:
            responses = await asyncio.gather(*(session.get(f"http://127.0.0.1:{port}/{i}") for i in range(30)))
            assert [r.text for r in responses] == [f"/{i}" for i in range(30)]

        got = []
        async with anyio.create_task_group() as group:
            send, receive = anyio.create_memory_object_stream(3)
            listener = await anyio.create_tcp_listener(local_host="127.0.0.1")

            async def handle(stream):
                async with stream:
                    await stream.send((await stream.receive())[::-1])

            async def produce():
                async with send:
                    for i in range(5):
                        await send.send(i)

            group.start_soon(listener.serve, handle)
            group.start_soon(produce)
            async with receive:
                async for i in receive:
                    got.append(i)
            local = listener.extra(anyio.abc.SocketAttribute.local_port)
            async with await anyio.connect_tcp("127.0.0.1", local) as stream:
                await stream.send(b"abc")
                got.append(await stream.receive())
            with anyio.move_on_after(0.01) as scope:
                await anyio.sleep(60)
            got.append(scope.cancelled_caught)
            got.append(await anyio.to_thread.run_sync(lambda: "thread"))
            group.cancel_scope.cancel()
        await listener.aclose()
        assert got == [0, 1, 2, 3, 4, b"cba", True, "thread"]
        process = await anyio.run_process([sys.executable, "-c", "print('out')"])
        assert process.stdout == b"out\n"
        server.close()
        await server.wait_closed()
        await asyncio.sleep(0.01)

    on(main())


def test_anyio_runs_on_our_loop(kind):
    anyio = pytest.importorskip("anyio")
    import uvpy

    async def main():
        await anyio.sleep(0.001)
        return type(asyncio.get_running_loop())

    assert anyio.run(main, backend_options={"loop_factory": uvpy.new_event_loop}) is uvpy.Loop


def test_uvicorn_and_fastapi(kind, tmp_path):
    """`uvicorn --loop uvpy:new_event_loop` in a process of its own serves a FastAPI application, and ends on
    SIGTERM.
    """
    for package in ("uvicorn", "fastapi", "httpx"):
        pytest.importorskip(package)
    import httpx

    (tmp_path / "app.py").write_text(
        textwrap.dedent("""
            import asyncio, fastapi, pydantic

            app = fastapi.FastAPI()

            class Item(pydantic.BaseModel):
                name: str
                price: float

            @app.get("/loop")
            async def loop():
                kind = type(asyncio.get_running_loop())
                return {"loop": f"{kind.__module__}.{kind.__qualname__}"}

            @app.post("/items")
            async def items(item: Item):
                await asyncio.sleep(0.001)
                return {"twice": item.price * 2, "name": item.name}

            @app.get("/blocking")
            def blocking():
                return "from a thread"
        """)
    )
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    arguments = [
        "--loop",
        "uvpy:new_event_loop",
        "--port",
        str(port),
        "--log-level",
        "warning",
        "--app-dir",
        os.fspath(tmp_path),
    ]
    with subprocess.Popen(
        [sys.executable, "-P", "-m", "uvicorn", *arguments, "app:app"],
        env=environment(),
        cwd=tmp_path,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        try:
            transport = httpx.HTTPTransport(retries=5)
            with httpx.Client(base_url=f"http://127.0.0.1:{port}", transport=transport, timeout=10) as session:
                assert _first(session, process).json()["loop"] in ("uvpy.Loop", "uvpy._loop.Loop")
                for i in range(50):
                    answer = session.post("/items", json={"name": str(i), "price": i})
                    assert answer.json() == {"twice": 2 * i, "name": str(i)}
                assert session.post("/items", json={"name": 5}).status_code == 422
                assert session.get("/blocking").json() == "from a thread"
            process.terminate()
            said, _ = process.communicate(timeout=10)
        finally:
            process.kill()
    assert "Traceback" not in said, said
    assert process.returncode in (0, -15), said


def _first(session, process):
    """The first answer, once the server is up."""
    import httpx

    for _ in range(10):
        assert process.poll() is None, process.stdout.read()
        try:
            return session.get("/loop")
        except httpx.ConnectError:
            continue
    raise AssertionError("uvicorn does not come up")
