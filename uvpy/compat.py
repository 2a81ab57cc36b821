"""For programs that ask for uvloop by name: a stand-in that gives them uvpy. Never active by itself.

In a program's own first lines:

    import uvpy.compat
    uvpy.compat.as_uvloop()

For programs that one cannot change, and those that start Python processes of their own:

    python -m uvpy exec -m vllm.entrypoints.openai.api_server ...
"""

from __future__ import annotations

import importlib.util
import os
import sys
from importlib.machinery import PathFinder
from types import ModuleType

STAND_IN = os.path.join(os.path.dirname(os.path.abspath(__file__)), "_standin")
"""The folder with the stand-in package: first on PYTHONPATH, it is `uvloop` to every Python started from there."""

__all__ = ["STAND_IN", "as_uvloop"]


def as_uvloop() -> ModuleType:
    """Make `import uvloop` give uvpy, in this process from now on; the module that stands in.

    It has uvloop's public names: new_event_loop, run, install, EventLoopPolicy, Loop, __version__, and uvloop.loop.
    Asked again it gives the same module. RuntimeError where uvloop itself was imported already: whoever has it would
    keep it. Processes that are spawned have to ask for themselves; `python -m uvpy exec` sees to that.
    """
    known = sys.modules.get("uvloop")
    if known is not None:
        if getattr(known, "__file__", None) == os.path.join(STAND_IN, "uvloop", "__init__.py"):
            return known
        raise RuntimeError(
            f"{known!r} is imported already, and whoever has it keeps it: call uvpy.compat.as_uvloop() before"
        )
    spec = PathFinder.find_spec("uvloop", [STAND_IN])
    if spec is None or spec.loader is None:
        raise RuntimeError(f"the stand-in for uvloop is not in {STAND_IN}: uvpy is not installed as a whole")
    module = importlib.util.module_from_spec(spec)
    sys.modules["uvloop"] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules["uvloop"]
        raise
    return module
