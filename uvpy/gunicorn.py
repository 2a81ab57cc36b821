"""Worker classes for gunicorn whose loops are uvpy's, made after the fork:

    gunicorn -k uvpy.gunicorn.UvicornWorker module:app     with the package uvicorn-worker
    gunicorn -k uvpy.gunicorn.ASGIWorker module:app        gunicorn's own, from gunicorn 24 on
    gunicorn -k uvpy.gunicorn.AiohttpWorker module:app     with aiohttp

Each is made when it is asked for, so that only what it stands on need be installed.
"""

from __future__ import annotations

import asyncio
import importlib
from typing import Any

import uvpy


def _asgi_worker() -> Any:
    base = importlib.import_module("gunicorn.workers.gasgi").ASGIWorker
    if not hasattr(base, "_setup_event_loop"):  # else it would run on asyncio's loop, and nobody would know
        raise ImportError("uvpy.gunicorn: this gunicorn's ASGI worker makes its loop in another way; uvpy is too old")

    def _setup_event_loop(self: Any) -> None:
        self.loop = uvpy.new_event_loop()
        asyncio.set_event_loop(self.loop)

    doc = "gunicorn's own ASGI worker on uvpy; its --asgi-loop is of no account."
    return type("ASGIWorker", (base,), {"__doc__": doc, "_setup_event_loop": _setup_event_loop})


def _uvicorn_worker() -> Any:
    base = importlib.import_module("uvicorn_worker").UvicornWorker
    # By name: this is what uvicorn's --loop takes.
    config = {**base.CONFIG_KWARGS, "loop": "uvpy:new_event_loop"}
    return type("UvicornWorker", (base,), {"__doc__": "uvicorn's worker on uvpy.", "CONFIG_KWARGS": config})


def _aiohttp_worker() -> Any:
    base = importlib.import_module("aiohttp.worker").GunicornWebWorker

    def init_process(self: Any) -> None:
        # In the place of aiohttp's own, which makes asyncio's loop and goes on with this.
        self.loop = uvpy.new_event_loop()
        asyncio.set_event_loop(self.loop)
        super(base, self).init_process()

    return type("AiohttpWorker", (base,), {"__doc__": "aiohttp's worker on uvpy.", "init_process": init_process})


_WORKERS = {"ASGIWorker": _asgi_worker, "UvicornWorker": _uvicorn_worker, "AiohttpWorker": _aiohttp_worker}


def __getattr__(name: str) -> Any:
    make = _WORKERS.get(name)
    if make is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    worker = globals()[name] = make()
    return worker
