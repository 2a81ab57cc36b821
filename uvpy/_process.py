"""Subprocesses: asyncio's own transport, spawned as asyncio does; a native `_core.Process` watches and reaps the child.

Called by `Loop` only. Here stand the choice of who watches a child, and the thread that waits where there is no pidfd.
Nothing here forks.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import signal as signals
import sys
import threading
from asyncio import unix_events
from asyncio.log import logger
from typing import TYPE_CHECKING, Any

from . import _core

if TYPE_CHECKING:
    from ._loop import Loop

_unix_events: Any = unix_events
_can_use_pidfd: Any = getattr(unix_events, "can_use_pidfd", None)


class SubprocessTransport(_unix_events._UnixSubprocessTransport):  # type: ignore[misc]
    """asyncio's transport of a subprocess, the end of whose child is told by a `_core.Process`."""

    _process: _core.Process | None = None
    _pipes: dict[int, Any]

    def _watch(self) -> None:
        """Have the child watched from now on, by its pidfd or by a thread."""
        try:
            # asyncio's own answer is what opening the pidfd will give; another one was put there to force the thread.
            can_use_pidfd: Any = getattr(_unix_events, "can_use_pidfd", None)
            by_thread = can_use_pidfd is not _can_use_pidfd and not can_use_pidfd()
            self._process = _core.watch_child(self._loop, self, self._pid, by_thread)
            if self._process.needs_thread():
                try:
                    _start_thread(self._loop, self._process)
                except RuntimeError:  # no thread to be had: ask for the child again and again
                    self._process._exited()
        except BaseException:
            self.close()  # nobody would hear of its end
            raise

    def close(self) -> None:
        if self._closed:
            return
        if self._process is not None:
            # asyncio's close() asks the Popen object, which would take the status of a child that has just exited.
            self._process.poll()
        pipes = self._pipes
        if self._loop is not None and self._loop.is_closed():
            self._pipes = {}  # they cannot be closed any more, and older versions of asyncio try (gh-114177)
        super().close()
        self._pipes = pipes

    def send_signal(self, signal: int) -> None:
        self._check_proc()
        # By the pidfd: os.kill() could hit a stranger, and Popen.send_signal() takes the status away. A forked copy of
        # this program has no such child: there this version of asyncio says what becomes of the signal.
        if self._process is None or not self._process.send_signal(signal):
            super().send_signal(signal)

    def terminate(self) -> None:
        self.send_signal(signals.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signals.SIGKILL)


async def make_subprocess_transport(
    self: Loop,
    protocol: asyncio.SubprocessProtocol,
    args: Any,
    shell: bool,
    stdin: Any,
    stdout: Any,
    stderr: Any,
    bufsize: int,
    extra: dict[str, Any] | None = None,
    **kwargs: Any,
) -> asyncio.SubprocessTransport:
    """Loop._make_subprocess_transport: spawn, connect the pipes."""
    if _has_own_watcher(self):
        made: asyncio.SubprocessTransport = await _unix_events._UnixSelectorEventLoop._make_subprocess_transport(
            self, protocol, args, shell, stdin, stdout, stderr, bufsize, extra=extra, **kwargs
        )
        return made
    waiter = self.create_future()
    transport = SubprocessTransport(
        self, protocol, args, shell, stdin, stdout, stderr, bufsize, waiter=waiter, extra=extra, **kwargs
    )
    transport._watch()
    try:
        await waiter
    except (SystemExit, KeyboardInterrupt):
        raise
    except BaseException:
        transport.close()
        await transport._wait()
        raise
    return transport


# -- who watches

if sys.version_info >= (3, 14):

    def _has_own_watcher(loop: Loop) -> bool:
        """Whether the loop is to use a child watcher other than the one by pidfd that asyncio's loops have."""
        return type(loop._watcher) is not _unix_events._PidfdChildWatcher

else:

    def _has_own_watcher(loop: Loop) -> bool:
        """Whether the policy has a child watcher that is not asyncio's default.

        The policy is not asked for one: it would make it, with a DeprecationWarning from 3.12 on, and on 3.11 one of
        the default's kind gets a thread for each child.
        """
        policy: Any = asyncio.events._event_loop_policy  # type: ignore[attr-defined]
        if policy is None:
            return False
        default = _unix_events._UnixDefaultEventLoopPolicy
        getter = getattr(type(policy), "get_child_watcher", None)
        if getter is not default.get_child_watcher or "get_child_watcher" in vars(policy):
            # A policy that has none at all does well with ours.
            return getter is not asyncio.AbstractEventLoopPolicy.get_child_watcher
        watcher = policy._watcher
        if watcher is None:
            return False
        return type(watcher) is not _DEFAULT_WATCHER or "add_child_handler" in vars(watcher)

    # The class of the watcher that asyncio's policy makes by itself.
    _DEFAULT_WATCHER: type = (
        _unix_events.PidfdChildWatcher
        if hasattr(_unix_events, "can_use_pidfd") and _unix_events.can_use_pidfd()
        else _unix_events.ThreadedChildWatcher
    )


# -- threads that wait


def _start_thread(loop: Loop, process: _core.Process) -> None:
    context = contextvars.copy_context()
    threading.Thread(target=_wait, args=(loop, process, context), name=f"uvpy-child-{process.pid}", daemon=True).start()


def _wait(loop: Loop, process: _core.Process, context: contextvars.Context) -> None:
    """The thread: waits, and leaves the reaping to the loop's thread while there is one."""
    process.wait_for_exit()
    try:
        loop.call_soon_threadsafe(process._noticed, context=context)
    except RuntimeError:  # the loop is closed
        process.poll()
        logger.warning("Loop %r that handles pid %r is closed", loop, process.pid)


def leave_children(loop: Loop) -> None:
    """Do for the children that a loop leaves behind at its closing what asyncio does.

    Up to 3.11 its threads go on waiting for them. Later they are nobody's: their transports end them when collected.
    """
    if sys.version_info < (3, 12):
        for process in _core.children(loop):
            process.poll()  # of one that has exited already asyncio says nothing
            if process.hand_over():
                with contextlib.suppress(RuntimeError):  # no thread to be had
                    _start_thread(loop, process)
