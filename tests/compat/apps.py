"""Applications for the servers of test_servers.py: each answers with the class of the loop that serves it."""

import asyncio
import os
import sys


def loop_name():
    kind = type(asyncio.get_running_loop())
    return f"{kind.__module__}.{kind.__qualname__} {os.getpid()}"


async def asgi(scope, receive, send):
    if scope["type"] == "lifespan":
        while True:
            message = await receive()
            await send({"type": message["type"] + ".complete"})
            if message["type"] == "lifespan.shutdown":
                return
    body = loop_name().encode()
    headers = [(b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


async def aiohttp_app():
    from aiohttp import web

    async def answer(request):
        return web.Response(text=loop_name())

    app = web.Application()
    app.router.add_get("/", answer)
    return app


def sanic_app():
    from sanic import Sanic, response

    app = Sanic("Apps")

    @app.get("/")
    async def answer(request):
        return response.text(loop_name())

    return app


if __name__ == "__main__":
    from sanic.worker.loader import AppLoader

    loader = AppLoader(factory=sanic_app)
    app = loader.load()
    app.prepare(unix=sys.argv[1], workers=int(sys.argv[2]), access_log=False, motd=False)
    from sanic import Sanic

    Sanic.serve(primary=app, app_loader=loader)
