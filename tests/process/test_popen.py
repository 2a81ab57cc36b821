"""What a child's transport asks of its Popen object, which a program may replace by one of its own."""

import asyncio
import os
import signal
import subprocess
import sys

import pytest

from support.children import PIPE, UNKNOWN_TEXT, ChildNotes, spawn, wait_for_zombie
from support.drive import run


@pytest.fixture
def popen_class(monkeypatch):
    """A Popen whose returncode is `told`, or raises it where it is an exception, once after it is `armed`."""

    class Popen(subprocess.Popen):
        armed = False
        told = None

        @property
        def returncode(self):
            if not self.armed:
                return self.__dict__.get("returncode")
            type(self).armed = False
            if isinstance(self.told, BaseException):
                raise self.told
            return self.told

        @returncode.setter
        def returncode(self, value):
            self.__dict__["returncode"] = value

    monkeypatch.setattr(subprocess, "Popen", Popen)
    return Popen


async def reaped_by_the_program(popen_class, told):
    """A child whose status nobody has any more, `told` in its place; its (transport, protocol)."""
    transport, protocol = await spawn("cat", stdin=PIPE)
    popen_class.told = told
    popen_class.armed = True
    os.kill(transport.get_pid(), signal.SIGKILL)
    wait_for_zombie(transport.get_pid())
    os.waitpid(transport.get_pid(), 0)
    return transport, protocol


@pytest.mark.uvpy_only("asyncio's thread may have the status first")
@pytest.mark.skipif(sys.version_info >= (3, 12), reason="the Popen object is not asked")
@pytest.mark.parametrize("told", [2**100, -(2**100), 2**40, "text", None, AttributeError("none")])
async def test_a_status_that_no_kernel_gives(loop, log, popen_class, told):
    transport, protocol = await reaped_by_the_program(popen_class, told)
    await protocol.lost()
    assert transport.get_returncode() == 255
    assert [record.getMessage() for record in log.take()] == [UNKNOWN_TEXT.format(transport.get_pid())]


@pytest.mark.uvpy_only("asyncio has the status before it asks")
def test_what_ends_a_program_comes_out_of_the_popen_object(loop, popen_class):
    """The transport is told all the same."""

    async def start():
        return await spawn("cat", stdin=PIPE, protocol=ChildNotes)

    transport, protocol = run(loop, start())
    popen_class.told = KeyboardInterrupt("mine")
    popen_class.armed = True
    transport.get_pipe_transport(0).close()
    with pytest.raises(KeyboardInterrupt, match="mine"):
        run(loop, protocol.lost())
    run(loop, protocol.lost())
    assert transport.get_returncode() == 0
    assert "exited" in protocol.events


@pytest.mark.uvpy_only("asyncio has the status before it asks")
async def test_an_error_of_the_popen_object_is_reported(loop, errors, popen_class):
    transport, protocol = await spawn("cat", stdin=PIPE)
    told = popen_class.told = ValueError("mine")
    popen_class.armed = True
    transport.get_pipe_transport(0).close()
    await protocol.lost()
    assert transport.get_returncode() == 0
    assert [context["exception"] for context in errors.take()] == [told]


async def test_a_popen_object_of_the_programs_own(loop, popen_class):
    """One that behaves is told the status."""
    proc = await asyncio.create_subprocess_exec("sh", "-c", "exit 5")
    popen = proc._transport.get_extra_info("subprocess")
    assert type(popen) is popen_class
    assert await proc.wait() == 5
