"""Worker classes for gunicorn whose loops are uvpy's, made after the fork:

    gunicorn -k uvpy.gunicorn.UvicornWorker module:app     with the package uvicorn-worker
    gunicorn -k uvpy.gunicorn.ASGIWorker module:app        gunicorn's own, from gunicorn 24 on
    gunicorn -k uvpy.gunicorn.AiohttpWorker module:app     with aiohttp

Each is made when it is asked for, so that only what it stands on need be installed.
"""

from __future__ import annotations

import asyncio
import importlib
from typing import TYPE_CHECKING, Any

import uvpy

if TYPE_CHECKING:
    ASGIWorker: type[Any]
    UvicornWorker: type[Any]
    AiohttpWorker: type[Any]

__all__ = ["ASGIWorker", "AiohttpWorker", "UvicornWorker"]


def _asgi_worker() -> type[Any]:
    Base: Any = importlib.import_module("gunicorn.workers.gasgi").ASGIWorker

    class ASGIWorker(Base):  # type: ignore[misc]
        """gunicorn's own ASGI worker; its --asgi-loop is of no account."""

        def _setup_event_loop(self) -> None:
            self.loop = uvpy.new_event_loop()
            asyncio.set_event_loop(self.loop)

    return ASGIWorker


def _uvicorn_worker() -> type[Any]:
    Base: Any = importlib.import_module("uvicorn_worker").UvicornWorker

    class UvicornWorker(Base):  # type: ignore[misc]
        """uvicorn's worker."""

        # By name: this is what uvicorn's --loop takes.
        CONFIG_KWARGS = {**Base.CONFIG_KWARGS, "loop": "uvpy:new_event_loop"}  # noqa: RUF012

    return UvicornWorker


def _aiohttp_worker() -> type[Any]:
    Base: Any = importlib.import_module("aiohttp.worker").GunicornWebWorker

    class AiohttpWorker(Base):  # type: ignore[misc]
        """aiohttp's worker."""

        def init_process(self) -> None:
            # In the place of aiohttp's own, which makes asyncio's loop and goes on with this.
            self.loop = uvpy.new_event_loop()
            asyncio.set_event_loop(self.loop)
            super(Base, self).init_process()

    return AiohttpWorker


_WORKERS = {"ASGIWorker": _asgi_worker, "UvicornWorker": _uvicorn_worker, "AiohttpWorker": _aiohttp_worker}


def __getattr__(name: str) -> Any:
    make = _WORKERS.get(name)
    if make is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    worker = make()
    worker.__module__, worker.__qualname__ = __name__, name
    globals()[name] = worker
    return worker
