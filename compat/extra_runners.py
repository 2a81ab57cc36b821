# SPDX-License-Identifier: MIT
"""CPython's test_runners, but on the injected loop: module `test_runners_uvpy`.

CPython's own module makes a bare BaseEventLoop with a mocked selector, so it would pass without ever touching
ours. The hook it has for that, `new_loop`, gives us its tests of Ctrl-C, of hanging tasks and of nested runs.
"""

from __future__ import annotations

import asyncio
from typing import Any

from test.test_asyncio import test_runners as stock  # type: ignore[import-not-found]


class _NewLoop:
    """Makes the injected loop with the one mark that the tests' tearDown looks for."""

    def new_loop(self) -> Any:
        """An injected loop; not by asyncio.new_event_loop(), which would lead back here by the policy."""
        loop: Any = asyncio.SelectorEventLoop()
        shutdown = loop.shutdown_asyncgens
        loop.shutdown_ag_run = False

        async def shutdown_asyncgens() -> None:
            loop.shutdown_ag_run = True
            await shutdown()

        loop.shutdown_asyncgens = shutdown_asyncgens
        return loop


class RunTests(_NewLoop, stock.RunTests):  # type: ignore[misc]
    """asyncio.run()."""


class RunnerTests(_NewLoop, stock.RunnerTests):  # type: ignore[misc]
    """asyncio.Runner."""


def tearDownModule() -> None:
    """Undo what the tests' setUp did to the policy, as CPython's module does."""
    stock.tearDownModule()
