"""The table in the README says what is native: it must say what the types say."""

import asyncio
import importlib.util
import pathlib

import pytest

pytestmark = pytest.mark.uvpy_only("the table is about uvpy")


@pytest.fixture
def maker(loop):
    path = pathlib.Path(__file__).resolve().parents[2] / "tools" / "readme_table.py"
    spec = importlib.util.spec_from_file_location("readme_table", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_table_is_what_the_types_say(maker):
    """After a change: `tools/dev run tools/readme_table.py --write`."""
    assert maker.in_readme() == maker.table()


def test_the_table_has_every_method(maker):
    names = {n for n, v in vars(asyncio.AbstractEventLoop).items() if not n.startswith("_") and callable(v)}
    rows = dict(maker.methods())
    assert rows.keys() == names
    assert rows["call_soon"] == rows["add_reader"] == "C++"
    assert rows["getaddrinfo"] == "uvpy"
    assert rows["create_connection"] == "asyncio's"


def test_differences_are_of_things_there_are(maker):
    known = {name for name, _ in maker.methods()} | {kind for kind, _, _ in maker.transports()}
    assert maker.DIFFERENCES.keys() <= known
