"""The path of a Unix server: who removes it, when, and what is said when that fails (Python 3.13 and newer)."""

import asyncio
import logging
import os
import socket
import sys

import pytest

from support.drive import run

pytestmark = pytest.mark.skipif(sys.version_info < (3, 13), reason="asyncio removes no paths before 3.13")


def serve(loop, path, **options):
    return run(loop, loop.create_unix_server(asyncio.Protocol, path, **options))


@pytest.fixture
def path(tmp_path):
    return tmp_path / "socket"


def test_closing_the_server_removes_it(loop, path):
    server = serve(loop, path)
    assert path.exists()
    server.close()
    assert not path.exists()


def test_a_path_of_bytes_that_are_no_text(loop, path):
    name = os.fsencode(path) + b"\xff"
    server = serve(loop, name)
    assert os.path.exists(name)
    server.close()
    assert not os.path.exists(name)


def test_it_stays_when_it_was_not_to_be_removed(loop, path):
    server = serve(loop, path, cleanup_socket=False)
    server.close()
    assert path.exists()


def test_another_file_under_that_name_stays(loop, path):
    server = serve(loop, path)
    path.rename(path.with_name("moved"))  # keeps the number of the file
    path.write_text("not ours")
    server.close()
    assert path.read_text() == "not ours"


def test_a_path_that_is_gone_is_nothing_to_speak_of(loop, path):
    server = serve(loop, path)
    path.unlink()
    server.close()


def test_a_path_that_cannot_be_removed_is_logged(loop, path, log):
    server = serve(loop, path)
    inode = path.stat().st_ino
    # A folder on the way that is none: neither stat() nor unlink() gets there.
    folder = path.parent
    moved = folder.rename(folder.with_name("moved"))
    folder.write_text("")
    try:
        server.close()
        (record,) = log.take()
        assert record.levelno == logging.ERROR
        said = f"Unable to clean up listening UNIX socket {str(path)!r}: NotADirectoryError(20, 'Not a directory')"
        assert record.getMessage() == said
        assert (moved / "socket").stat().st_ino == inode
    finally:
        folder.unlink()
        moved.rename(folder)


@pytest.mark.parametrize("name", ["stat", "unlink"])
def test_no_blocking_call_that_a_tool_would_take_for_the_programs(loop, path, monkeypatch, name):
    """Tools know asyncio's own calls by the file that they stand in."""
    server = serve(loop, path)
    real = getattr(os, name)

    def watched(*args, **kwargs):
        assert sys._getframe(1).f_code.co_filename.endswith("asyncio/unix_events.py")
        return real(*args, **kwargs)

    with monkeypatch.context() as patch:
        patch.setattr(os, name, watched)
        server.close()
    assert not os.path.exists(path)


def test_abstract_names_have_no_path(loop):
    server = serve(loop, "\0uvpy-test-unix-path")
    assert server.sockets[0].getsockname() == b"\0uvpy-test-unix-path"
    server.close()
    with socket.socket(socket.AF_UNIX) as probe, pytest.raises(ConnectionRefusedError):
        probe.connect("\0uvpy-test-unix-path")
