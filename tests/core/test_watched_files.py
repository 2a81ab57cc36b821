"""Objects given to add_reader() and add_writer(): the loop keeps them, and knows them when they are closed."""

import gc
import os
import socket
import weakref

import pytest

from support.drive import turn

# A socket that is dropped while it is open says so.
pytestmark = pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")

SIDES = ["reader", "writer"]


def pair(loop, side):
    return getattr(loop, f"add_{side}"), getattr(loop, f"remove_{side}")


class File:
    """What has fileno() and closes its descriptor when it is dropped."""

    def __init__(self, fd):
        self.fd = fd

    def fileno(self):
        return self.fd

    def close(self):
        os.close(self.fd)
        self.fd = -1

    def __del__(self):
        if self.fd >= 0:
            self.close()


@pytest.fixture
def ends():
    """The write end of a pipe as an object, and its read end's number."""
    r, w = os.pipe()
    made = [File(w)]
    yield made, r
    made.clear()
    gc.collect()
    os.close(r)


def test_an_object_that_only_the_loop_knows_stays_open(loop, ends):
    made, _r = ends
    file = made.pop()
    fd, watch, got = file.fd, weakref.ref(file), []
    loop.add_writer(file, got.append, 1)
    del file
    gc.collect()
    assert watch() is not None
    turn(loop, 2)
    assert got
    assert loop.remove_writer(fd) is True
    assert watch() is None
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(fd)


def test_a_number_keeps_no_object(loop, ends):
    made, _r = ends
    file = made[0]
    loop.add_writer(file.fd, print)
    loop.add_reader(file, print)  # it is known by its number already
    made.clear()
    watch = weakref.ref(file)
    fd = file.fd
    assert loop.remove_writer(fd)
    assert loop.remove_reader(fd)
    del file
    gc.collect()
    assert watch() is None


def test_an_object_is_kept_until_both_sides_are_removed(loop):
    a, b = socket.socketpair()
    with b:
        fd, watch = a.fileno(), weakref.ref(a)
        loop.add_reader(a, print)
        loop.add_writer(a, lambda: None)
        del a
        assert loop.remove_reader(fd)
        gc.collect()
        assert watch() is not None
        assert loop.remove_writer(watch())
        gc.collect()
        assert watch() is None


def test_closing_the_loop_drops_the_objects(new_loop, ends):
    loop = new_loop()
    made, _r = ends
    watch = weakref.ref(made[0])
    loop.add_writer(made.pop(), print)
    gc.collect()
    assert watch() is not None
    loop.close()
    gc.collect()
    assert watch() is None


@pytest.mark.parametrize("side", SIDES)
def test_a_closed_socket_can_be_removed(loop, side):
    add, remove = pair(loop, side)
    a, b = socket.socketpair()
    with b:
        add(a, print)
        a.close()
        assert remove(a) is True
        with pytest.raises(ValueError, match="Invalid file descriptor: -1"):
            remove(a)


@pytest.mark.asyncio_gap("its selector raises EBADF where one side of a closed descriptor stays watched")
def test_both_sides_of_a_closed_socket_can_be_removed(loop):
    a, b = socket.socketpair()
    with b:
        loop.add_reader(a, print)
        loop.add_writer(a.fileno(), print)
        a.close()
        assert loop.remove_writer(a) is True
        assert loop.remove_reader(a) is True


@pytest.mark.parametrize("side", SIDES)
def test_a_side_that_a_closed_socket_was_not_watched_for(loop, side):
    other = SIDES[1 - SIDES.index(side)]
    a, b = socket.socketpair()
    with b:
        pair(loop, side)[0](a, print)
        a.close()
        assert pair(loop, other)[1](a) is False
        assert pair(loop, side)[1](a) is True


@pytest.mark.parametrize("side", SIDES)
def test_a_closed_socket_that_was_never_watched(loop, side):
    add, remove = pair(loop, side)
    a, b = socket.socketpair()
    a.close()
    b.close()
    for call in (lambda: add(a, print), lambda: remove(a)):
        with pytest.raises(ValueError, match="Invalid file descriptor: -1"):
            call()
    assert loop._ensure_fd_no_transport(a) is None


@pytest.mark.parametrize("side", SIDES)
def test_a_closed_socket_watched_by_its_number_is_not_known(loop, side):
    add, remove = pair(loop, side)
    a, b = socket.socketpair()
    with b:
        fd = a.fileno()
        add(fd, print)
        a.close()
        with pytest.raises(ValueError, match="Invalid file descriptor: -1"):
            remove(a)
        assert remove(fd) is True


def test_an_object_whose_fileno_fails_is_refused_in_public(loop, ends):
    made, _r = ends
    file = made[0]
    loop.add_writer(file, print)
    fd = file.fd
    file.fd = "no number"
    try:
        with pytest.raises(ValueError, match="Invalid file object"):
            loop.remove_writer(file)
        assert loop._remove_writer(file) is True
    finally:
        file.fd = fd


def test_a_callback_that_closes_and_removes(loop):
    got = []
    a, b = socket.socketpair()

    def read():
        got.append(a.recv(1))
        a.close()
        got.append(loop.remove_reader(a))

    with b:
        loop.add_reader(a, read)
        b.send(b"x")
        turn(loop, 3)
    assert got == [b"x", True]


@pytest.mark.uvpy_only("asyncio's selector refuses a number that is used again")
def test_the_number_of_a_closed_socket_is_anothers(loop):
    a, b = socket.socketpair()
    with b:
        fd = a.fileno()
        loop.add_reader(a, print)
        a.close()
        c = socket.socket(fileno=os.dup2(b.fileno(), fd))
        watch = weakref.ref(c)
        loop.add_reader(c, lambda: None)
        del c
        gc.collect()
        assert watch() is not None
        with pytest.raises(ValueError, match="Invalid file descriptor: -1"):
            loop.remove_reader(a)
        assert loop.remove_reader(fd) is True
        assert watch() is None
