"""get_extra_info() where asyncio's transports inherit it: what a program replaces on asyncio's base classes counts."""

import asyncio
from unittest import mock

import pytest

from support.drive import run
from support.protocols import Recorder

BASES = ["asyncio.BaseTransport", "asyncio.transports._FlowControlMixin"]


@pytest.fixture(params=[False, True], ids=["unix", "tcp"])
def transport(loop, sockets, request):
    ours, _theirs = sockets.pair(tcp=request.param)
    made, _protocol = run(loop, loop.create_connection(Recorder, sock=ours))
    yield made
    made.close()
    run(loop, asyncio.sleep(0))


@pytest.mark.parametrize("base", BASES)
def test_a_mock_on_the_base_class_is_asked(transport, base):
    before = transport.get_extra_info("peername")
    with mock.patch(f"{base}.get_extra_info", return_value=("peer", 1234), create=True) as asked:
        assert transport.get_extra_info("peername") == ("peer", 1234)
        asked.assert_called_once_with("peername")
        assert transport.get_extra_info("sockname", default=None) == ("peer", 1234)
        asked.assert_called_with("sockname", default=None)
    assert transport.get_extra_info("peername") == before
    assert asked.call_count == 2


@pytest.mark.parametrize("base", BASES)
def test_a_function_on_the_base_class_gets_the_transport(transport, base):
    with mock.patch(f"{base}.get_extra_info", lambda self, name, default=None: (self, name, default), create=True):
        assert transport.get_extra_info("x", 1) == (transport, "x", 1)
        assert transport.get_extra_info(name="x") == (transport, "x", None)


def test_an_error_of_the_replacement_is_the_callers(transport):
    with mock.patch("asyncio.BaseTransport.get_extra_info", side_effect=ZeroDivisionError):
        with pytest.raises(ZeroDivisionError):
            transport.get_extra_info("socket")
    assert transport.get_extra_info("nothing", "default") == "default"
