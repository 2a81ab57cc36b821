"""add_reader, add_writer and the descriptors behind them."""

import asyncio
import errno
import os
import resource
import select
import socket
import tempfile

import pytest

from support.drive import cpu_below, run, run_until_stopped, turn
from support.peers import fill


def once(loop, fd, got, name):
    """A reader that notes its name and removes itself."""
    return lambda: (got.append(name), loop.remove_reader(fd))


# ---- what can be watched


def _socketpair(sockets):
    return sockets.pair()


def _tcp(sockets):
    return sockets.pair(tcp=True)


def _pipe(sockets):
    return sockets.pipe()


def _pty(sockets):
    master, slave = os.openpty()
    return sockets.own(open(slave, "rb", buffering=0)), sockets.own(open(master, "wb", buffering=0))


def _udp(sockets):
    a, b = sockets.own(socket.socket(type=socket.SOCK_DGRAM)), sockets.own(socket.socket(type=socket.SOCK_DGRAM))
    a.bind(("127.0.0.1", 0))
    b.connect(a.getsockname())
    a.setblocking(False)
    return a, b


def _fifo(sockets):
    folder = sockets.enter_context(tempfile.TemporaryDirectory())
    os.mkfifo(f"{folder}/fifo")
    r = open(os.open(f"{folder}/fifo", os.O_RDONLY | os.O_NONBLOCK), "rb", buffering=0)
    return sockets.own(r), sockets.own(open(f"{folder}/fifo", "wb", buffering=0))


def _push(end, data):
    end.send(data) if isinstance(end, socket.socket) else end.write(data)


@pytest.mark.parametrize("make", [_socketpair, _tcp, _pipe, _pty, _udp, _fifo])
def test_a_reader_of_every_kind_of_descriptor(loop, sockets, make):
    """A reader is called when there is something to read, not before and not afterwards."""
    ours, theirs = make(sockets)
    got = []
    loop.add_reader(ours, lambda: got.append(os.read(ours.fileno(), 100)))
    turn(loop, 2)
    assert got == []
    for text in (b"one\n", b"two\n"):
        _push(theirs, text)
        loop.call_later(0.5, loop.stop)
        while len(got) < (1 if text == b"one\n" else 2):
            turn(loop)
    turn(loop, 2)
    assert got == [b"one\n", b"two\n"]
    assert loop.remove_reader(ours) is True


@pytest.mark.parametrize("make", [_socketpair, _tcp, _pipe, _pty])
def test_a_writer_of_every_kind_of_descriptor(loop, sockets, make):
    _, theirs = make(sockets)
    got = []
    loop.add_writer(theirs, got.append, 1)
    turn(loop, 3)
    assert loop.remove_writer(theirs) is True
    assert got == [1, 1, 1]
    turn(loop)
    assert got == [1, 1, 1]


@pytest.mark.skipif(not hasattr(os, "eventfd"), reason="no eventfd")
def test_an_eventfd_as_reader(loop, sockets):
    fd = os.eventfd(0, os.EFD_NONBLOCK)
    sockets.callback(os.close, fd)
    got = []
    loop.add_reader(fd, lambda: got.append(os.eventfd_read(fd)))
    turn(loop)
    os.eventfd_write(fd, 3)
    turn(loop, 2)
    assert got == [3]
    loop.remove_reader(fd)


@pytest.mark.skipif(not hasattr(select, "epoll"), reason="no epoll")
def test_an_epoll_inside_the_loop(loop, sockets):
    """Programs nest event loops of their own this way."""
    a, b = sockets.pair()
    inner = sockets.enter_context(select.epoll())
    inner.register(a, select.EPOLLIN)
    got = []
    loop.add_reader(inner.fileno(), once(loop, inner.fileno(), got, "inner"))
    turn(loop)
    assert got == []
    b.send(b"!")
    turn(loop, 2)
    assert got == ["inner"]


def test_a_listening_socket_as_reader(loop, sockets):
    listener, got = sockets.listener(), []
    loop.add_reader(listener, lambda: got.append(sockets.own(listener.accept()[0])))
    for _ in range(3):
        sockets.own(socket.create_connection(listener.getsockname()))
    turn(loop, 5)
    assert len(got) == 3
    loop.remove_reader(listener)


@pytest.mark.parametrize("refused", [False, True])
def test_a_connecting_socket_as_writer(loop, sockets, refused):
    """The end of a connect, good or bad, calls the writer."""
    address = ("127.0.0.1", sockets.dead_port()) if refused else sockets.listener().getsockname()
    sock = sockets.own(socket.socket())
    sock.setblocking(False)
    sock.connect_ex(address)
    got = []
    loop.add_writer(
        sock,
        lambda: (
            got.append(sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)),
            loop.remove_writer(sock),
            loop.stop(),
        ),
    )
    run_until_stopped(loop)
    assert got == [errno.ECONNREFUSED if refused else 0]


@pytest.mark.parametrize("what", ["number", "object", "other object"])
def test_descriptors_are_numbers_or_have_a_fileno(loop, sockets, what):
    """A number, the object, another object of the same descriptor: all mean the same watcher."""
    a, b = sockets.pair()
    b.send(b"!")

    class Other:
        def fileno(self):
            return a.fileno()

    name = {"number": a.fileno(), "object": a, "other object": Other()}[what]
    got = []
    assert loop.add_reader(name, got.append, 1) is None
    turn(loop)
    assert got == [1]
    loop.add_reader(a.fileno(), got.append, 2)
    turn(loop)
    assert got == [1, 2]
    assert loop.remove_reader(name) is True
    assert loop.remove_reader(a) is False


@pytest.mark.parametrize("wrong", [-1, -100, "x", b"", None, 1.5, object(), [], 2**31, 2**64, -(2**70)], ids=repr)
def test_what_is_no_descriptor(loop, wrong):
    for call in (loop.add_reader, loop.add_writer):
        with pytest.raises((ValueError, TypeError, OverflowError, OSError)):
            call(wrong, print)
    for call in (loop.remove_reader, loop.remove_writer):
        if wrong in (2**31, 2**64):
            continue  # stock asyncio looks it up and says False
        with pytest.raises((ValueError, TypeError, OverflowError)):
            call(wrong)
    turn(loop)


def test_a_fileno_that_raises(loop):
    class Bad:
        def fileno(self):
            raise ZeroDivisionError

    with pytest.raises((ValueError, ZeroDivisionError)):
        loop.add_reader(Bad(), print)
    closed = socket.socket()
    closed.close()
    for call in (loop.add_reader, loop.add_writer):
        with pytest.raises(ValueError):
            call(closed, print)


@pytest.mark.parametrize("path", ["regular", "/dev/null", "/dev/zero"])
def test_files_that_cannot_be_polled(loop, sockets, path):
    f = sockets.enter_context(tempfile.TemporaryFile() if path == "regular" else open(path, "r+b", buffering=0))
    if path == "/dev/zero":
        poll = sockets.enter_context(select.epoll())
        try:
            poll.register(f.fileno())
        except PermissionError:
            pass
        else:
            pytest.skip("/dev/zero can be polled here")
    for add, remove in ((loop.add_reader, loop.remove_reader), (loop.add_writer, loop.remove_writer)):
        with pytest.raises(PermissionError):
            add(f, print)
        assert remove(f) is False
    turn(loop, 2)


def test_a_closed_number_is_ebadf(loop):
    r, w = os.pipe()
    os.close(r)
    os.close(w)
    for add, remove in ((loop.add_reader, loop.remove_reader), (loop.add_writer, loop.remove_writer)):
        with pytest.raises(OSError) as caught:
            add(r, print)
        assert caught.value.errno == errno.EBADF
        assert remove(r) is False
    turn(loop)


def test_a_high_number(loop, sockets):
    """Descriptors over 1024 are as good as any."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < 3000 and hard != resource.RLIM_INFINITY:
        pytest.skip("the limit of descriptors is low")
    if soft < 3000:
        resource.setrlimit(resource.RLIMIT_NOFILE, (3000, hard))
        sockets.callback(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
    a, b = sockets.pair()
    fd = os.dup2(a.fileno(), 2500)
    sockets.callback(os.close, fd)
    got = []
    loop.add_reader(fd, once(loop, fd, got, "high"))
    b.send(b"!")
    turn(loop, 2)
    assert got == ["high"]


def test_hundreds_of_watchers(loop, sockets):
    """Three hundred readers, half of them ready: each ready one is called once a turn."""
    pairs = [sockets.pair() for _ in range(300)]
    got = []
    for i, (a, _) in enumerate(pairs):
        loop.add_reader(a, got.append, i)
    for _, b in pairs[::2]:
        b.send(b"!")
    turn(loop)
    assert sorted(got) == list(range(0, 300, 2))
    for a, _ in pairs:
        assert loop.remove_reader(a) is True
    del got[:]
    turn(loop)
    assert got == []


# ---- the blocking mode, and other people's registrations


@pytest.mark.parametrize("blocking", [True, False])
def test_the_blocking_mode_is_left_as_it_is(loop, sockets, blocking):
    a, b = sockets.pair(blocking=blocking)
    r, w = sockets.pipe()
    for end in (r, w):
        os.set_blocking(end.fileno(), blocking)
    b.send(b"!")
    got = []
    for end, add, remove in (
        (a, loop.add_reader, loop.remove_reader),
        (b, loop.add_writer, loop.remove_writer),
        (r, loop.add_reader, loop.remove_reader),
        (w, loop.add_writer, loop.remove_writer),
    ):
        add(end, got.append, 1)
        assert os.get_blocking(end.fileno()) is blocking
        turn(loop)
        assert os.get_blocking(end.fileno()) is blocking
        remove(end)
        turn(loop)
        assert os.get_blocking(end.fileno()) is blocking
    assert got


def test_two_loops_watch_one_descriptor(new_loop, sockets):
    one, two, got = new_loop(), new_loop(), []
    a, b = sockets.pair()
    one.add_reader(a, got.append, 1)
    two.add_reader(a, got.append, 2)
    b.send(b"!")
    turn(one)
    turn(two)
    assert got == [1, 2]
    one.remove_reader(a)
    turn(one)
    turn(two)
    assert got == [1, 2, 2]
    two.remove_reader(a)


def test_a_duplicate_that_was_removed_is_quiet(loop, sockets):
    """With the original readable and its watched duplicate gone, the loop sleeps."""
    a, b = sockets.pair()
    b.send(b"!")
    copy = os.dup(a.fileno())
    loop.add_reader(copy, bool)
    turn(loop, 2)
    loop.remove_reader(copy)
    os.close(copy)
    with cpu_below(0.1):
        run(loop, asyncio.sleep(0.3))


def test_an_idle_watcher_lets_the_loop_sleep(loop, sockets):
    a, _ = sockets.pair()
    full, _ = sockets.pair()
    fill(full)
    loop.add_reader(a, print)
    loop.add_writer(full, print)
    with cpu_below(0.1):
        run(loop, asyncio.sleep(0.3))
    loop.remove_reader(a)
    loop.remove_writer(full)


# ---- replacing and removing


def test_adding_again_replaces(loop, sockets):
    got = []
    a, b = sockets.pair()
    b.send(b"!")
    for i in range(5):
        loop.add_reader(a, got.append, i)
        loop.add_writer(a, got.append, 10 + i)
    turn(loop)
    assert sorted(got) == [4, 14]
    loop.remove_reader(a)
    loop.remove_writer(a)


def test_a_replaced_reader_found_ready_does_not_run(loop, sockets):
    """Between the poll that found it ready and its turn to run, a reader is replaced: the old one is cancelled."""
    got = []
    a, b = sockets.pair()
    c, d = sockets.pair()

    def swap():
        for sock, name in ((a, "a"), (c, "c")):
            loop.add_reader(sock, got.append, f"new {name}")

    def first(name):
        got.append(name)
        swap()

    loop.add_reader(a, first, "a")
    loop.add_reader(c, first, "c")
    b.send(b"!")
    d.send(b"!")
    turn(loop)
    assert len(got) == 1
    turn(loop)
    assert sorted(got[1:]) == ["new a", "new c"]
    loop.remove_reader(a)
    loop.remove_reader(c)


def test_a_reader_removed_by_another_one_of_its_turn_does_not_run(loop, sockets):
    got = []
    pairs = [sockets.pair() for _ in range(10)]

    def first(i):
        got.append(i)
        for a, _ in pairs:
            loop.remove_reader(a)

    for i, (a, b) in enumerate(pairs):
        b.send(b"!")
        loop.add_reader(a, first, i)
    turn(loop, 3)
    assert len(got) == 1


def test_a_reader_may_remove_itself_and_come_back(loop, sockets):
    got = []
    a, b = sockets.pair()
    b.send(b"abc")

    def read():
        got.append(a.recv(1))
        loop.remove_reader(a)
        if len(got) < 3:
            loop.add_reader(a, read)

    loop.add_reader(a, read)
    turn(loop, 6)
    assert got == [b"a", b"b", b"c"]
    assert loop.remove_reader(a) is False


def test_a_reader_found_ready_and_removed_by_a_soon_callback(loop, sockets):
    """A reader made ready by the poll and removed by a callback of the same turn that was queued before it."""
    got = []
    a, b = sockets.pair()
    b.send(b"!")
    loop.add_reader(a, got.append, 1)
    loop.call_soon(loop.remove_reader, a)
    turn(loop, 2)
    assert got in ([], [1])  # asyncio polls before it runs what is queued, and the handle is cancelled: []
    assert got == []


def test_the_last_word_counts(loop, sockets):
    """Any sequence of adds and removes in one callback leaves what the last call said."""
    got = []
    a, b = sockets.pair()
    c, d = sockets.pair()
    b.send(b"!")
    d.send(b"!")

    def shuffle():
        for _ in range(20):
            loop.add_reader(a, got.append, "wrong")
            loop.add_writer(a, got.append, "wrong")
            loop.remove_reader(a)
            loop.remove_writer(a)
            loop.add_writer(c, got.append, "wrong")
            loop.add_reader(c, got.append, "wrong")
            loop.remove_writer(c)
        loop.add_reader(c, once(loop, c, got, "right"))

    loop.call_soon(shuffle)
    turn(loop, 3)
    assert got == ["right"]


def test_reader_and_writer_are_independent(loop, sockets):
    got = []
    a, b = sockets.pair()
    b.send(b"!")
    loop.add_writer(a, got.append, "w")
    loop.add_reader(a, got.append, "r")
    turn(loop)
    assert got == ["r", "w"]
    for remove, left in ((loop.remove_reader, "w"), (loop.remove_writer, None)):
        assert remove(a) is True
        assert remove(a) is False
        del got[:]
        turn(loop)
        assert got == ([left] if left else [])


def test_level_triggered(loop, sockets):
    """As long as there is something to read the reader is called in each turn."""
    got = []
    a, b = sockets.pair()
    b.send(b"abcd")
    loop.add_reader(a, lambda: got.append(a.recv(1)))
    for n in range(1, 5):
        turn(loop)
        assert len(got) == n
    turn(loop, 2)
    assert b"".join(got) == b"abcd"
    loop.remove_reader(a)
