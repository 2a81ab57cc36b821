"""tools/bench as fixtures of the tests of it."""

import importlib
import shutil
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

BENCH = Path(__file__).resolve().parents[2] / "tools" / "bench"
MODULES = ("baseline", "callgrind", "cases", "native", "pictures", "players", "report", "results", "rounds")
MORE = ("loops", "stats", "syscalls", "targets")


@pytest.fixture(scope="module")
def bench():
    """Its modules, which lie flat in its folder; none of their names stays taken."""
    before = set(sys.modules)
    sys.path.insert(0, str(BENCH))
    try:
        yield SimpleNamespace(**{name: importlib.import_module(name) for name in (*MODULES, *MORE)})
    finally:
        sys.path.remove(str(BENCH))
        for name in set(sys.modules) - before:
            if str(BENCH) in (getattr(sys.modules[name], "__file__", None) or ""):
                del sys.modules[name]


@pytest.fixture(scope="module")
def load(bench):
    """The path of the load generator."""
    if sys.platform != "linux" or shutil.which("cc") is None:
        pytest.skip("the load generator needs Linux and a C compiler")
    return bench.native.load_generator()
