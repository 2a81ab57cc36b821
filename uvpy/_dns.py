"""`getaddrinfo` and `getnameinfo` of the loop: what asks nobody is answered at once, names go to the executor.

The answers are those of `socket.getaddrinfo` itself, and whatever somebody has put in its place gives all of them, from
the executor, as on asyncio's own loop. Only here is decided what may be looked up in the loop's thread.
"""
# ruff: noqa: A002 - the names are socket.getaddrinfo's

from __future__ import annotations

import _socket
import socket
import types
from asyncio import base_events
from typing import Any

from ._core import numeric_getaddrinfo as _numeric_getaddrinfo

_Loop = Any  # a uvpy.Loop, of whose private methods the checkers know little
_Found = list[Any]  # what socket.getaddrinfo() gives


def _is_genuine(function: object) -> bool:
    """Whether a function is the standard library's own, and not one put there before we were imported."""
    if isinstance(function, types.FunctionType):
        return function.__globals__ is vars(socket) and function.__closure__ is None
    return isinstance(function, types.BuiltinFunctionType) and function.__module__ == "_socket"


_getaddrinfo = socket.getaddrinfo
_getaddrinfo_of_c = _socket.getaddrinfo
_getnameinfo = socket.getnameinfo
_may_getaddrinfo = _is_genuine(_getaddrinfo) and _is_genuine(_getaddrinfo_of_c)
_may_getnameinfo = _is_genuine(_getnameinfo)

# asyncio's own code finds the functions there, and so do those who put a whole module in socket's place.
_base_events: Any = base_events

# As numbers: the enumeration drops the bits that it has no name for, at which the resolver is to fail, and is slow.
_NUMERIC_HOST = int(socket.AI_NUMERICHOST)
_NUMERIC_SERV = int(socket.AI_NUMERICSERV)
_NUMERIC_NAME = socket.NI_NUMERICHOST | socket.NI_NUMERICSERV


_run_in_executor: Any = base_events.BaseEventLoop.run_in_executor


def _has_own_executor(loop: _Loop) -> bool:
    """Whether somebody has replaced the method that asyncio looks names up by, which is to be called then."""
    return type(loop).run_in_executor is not _run_in_executor or "run_in_executor" in vars(loop)


def _needs_no_service(port: object, flags: int) -> bool:
    """Whether a port is a number or nothing, so that no table of services is read, which may be far away."""
    if type(port) is int or port is None or flags & _NUMERIC_SERV:
        return True
    return isinstance(port, (str, bytes)) and (not port or (port.isascii() and port.isdigit()))


def _may_be_numeric(host: object) -> bool:
    """Whether a host is none, or begins as addresses do: only to spare names a useless trial."""
    if isinstance(host, bytes):
        return host[:1].isdigit() or b":" in host
    if isinstance(host, str):
        return host[:1].isdigit() or ":" in host
    return host is None


_families = {int(family): family for family in socket.AddressFamily}
_kinds = {int(kind): kind for kind in socket.SocketKind}


def _answer_at_once(host: Any, port: Any, family: int, type: int, proto: int, flags: Any) -> _Found | None:
    """What socket.getaddrinfo says without asking anybody; None where it would have to. Its errors are passed on."""
    if not isinstance(flags, int):
        return None
    bits = int.__or__(flags, 0)
    if not _needs_no_service(port, bits) or (not bits & _NUMERIC_HOST and not _may_be_numeric(host)):
        return None
    try:
        # With this flag the resolver says no to a name instead of looking for it.
        found = _socket.getaddrinfo(host, port, family, type, proto, bits | _NUMERIC_HOST)
    except socket.gaierror as exc:
        if exc.errno == socket.EAI_NONAME and not bits & _NUMERIC_HOST:
            return None
        raise
    # As socket.getaddrinfo() does: what has a name in the enumerations is a member of them.
    return [(_families.get(one, one), _kinds.get(two, two), number, name, at) for one, two, number, name, at in found]


async def getaddrinfo(
    self: _Loop,
    host: bytes | str | None,
    port: bytes | str | int | None,
    *,
    family: int = 0,
    type: int = 0,
    proto: int = 0,
    flags: int = 0,
) -> _Found:
    """socket.getaddrinfo() without blocking the loop.

    Addresses are answered at once, names in the executor. A replaced socket.getaddrinfo is always asked, and there.
    """
    if (
        _may_getaddrinfo
        and _base_events.socket.getaddrinfo is _getaddrinfo
        and _socket.getaddrinfo is _getaddrinfo_of_c
        and not _has_own_executor(self)
    ):
        found: _Found | None = _numeric_getaddrinfo(self, host, port, family, type, proto, flags)
        if found is None:
            found = _answer_at_once(host, port, family, type, proto, flags)
        if found is not None:
            # In debug mode once more, for the log: now it is known that this waits for nobody.
            if self._debug:
                found = self._getaddrinfo_debug(host, port, family, type, proto, flags)
            return found
    look_up = self._getaddrinfo_debug if self._debug else _base_events.socket.getaddrinfo
    looked_up: _Found = await self.run_in_executor(None, look_up, host, port, family, type, proto, flags)
    return looked_up


async def getnameinfo(self: _Loop, sockaddr: tuple[Any, ...], flags: int = 0) -> tuple[str, str]:
    """socket.getnameinfo() without blocking the loop: at once where both answers are to be numbers."""
    if (
        _may_getnameinfo
        and isinstance(flags, int)
        and flags & _NUMERIC_NAME == _NUMERIC_NAME
        and _base_events.socket.getnameinfo is _getnameinfo
        and not _has_own_executor(self)
    ):
        self._check_closed()
        return socket.getnameinfo(sockaddr, flags)
    names: tuple[str, str] = await self.run_in_executor(None, _base_events.socket.getnameinfo, sockaddr, flags)
    return names


for _function in (getaddrinfo, getnameinfo):  # methods of Loop, to whoever asks
    _function.__module__, _function.__qualname__ = "uvpy._loop", f"Loop.{_function.__name__}"
