"""A Dask cluster of real processes on uvpy, by the two lines that README.md documents."""

import pathlib
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))

from devlib.cluster import WAYS, Cluster  # noqa: E402

SITE = str(pathlib.Path(__import__("uvpy").__file__).parent.parent)
WORKERS = 2

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("_dask")]


@pytest.fixture
def _dask():
    pytest.importorskip("distributed")


def started(way):
    return Cluster(pathlib.Path(sys.executable), WAYS[way], WORKERS, {"PYTHONPATH": SITE})


@pytest.mark.parametrize(
    ("way", "name"), [("uvpy", "uvpy._loop.Loop"), ("asyncio", "asyncio.unix_events._UnixSelectorEventLoop")]
)
def test_a_cluster_of_processes(way, name):
    with started(way) as cluster:
        told = cluster.ask("loops")
        assert told["client"] == name
        assert told["scheduler"][1] == name
        assert [loop for _, loop in told["workers"]] == [name] * WORKERS
        assert len({pid for pid, _ in [told["scheduler"], *told["workers"]]}) == 1 + WORKERS

        assert cluster.ask("compute") == {"workers": WORKERS}

        statuses, log = cluster.stop(), cluster.log
    assert statuses == [0, 0], log
    assert "Traceback (most recent call last)" not in log
