"""Watched descriptors that end, are closed behind the loop's back, or whose callbacks fail."""

import asyncio
import contextvars
import gc
import os
import socket
import sys
import weakref

import pytest

from support.drive import in_thread, run, run_until_stopped, turn
from support.peers import fill


def once(loop, fd, got, name):
    """A reader that notes its name and removes itself."""
    return lambda: (got.append(name), loop.remove_reader(fd))


# ---- ends


@pytest.mark.parametrize("tcp", [False, True])
def test_the_end_of_the_peer_wakes_reader_and_writer(loop, sockets, tcp):
    got = []
    a, b = sockets.pair(tcp=tcp)
    fill(a)
    loop.add_reader(a, lambda: (got.append("r"), loop.remove_reader(a)))
    loop.add_writer(a, lambda: (got.append("w"), loop.remove_writer(a)))
    turn(loop, 2)
    assert got == []
    b.close()
    loop.call_later(2, loop.stop)
    while len(got) < 2:
        turn(loop)
    assert sorted(got) == ["r", "w"]


def test_a_half_close_is_read_to_its_end(loop, sockets):
    got = []
    a, b = sockets.pair(tcp=True)
    b.send(b"last")
    b.shutdown(socket.SHUT_WR)

    def read():
        got.append(a.recv(9))
        if not got[-1]:
            loop.remove_reader(a)
            loop.stop()

    loop.add_reader(a, read)
    run_until_stopped(loop)
    assert got == [b"last", b""]


@pytest.mark.parametrize("end", ["read", "write"])
def test_a_broken_pipe_keeps_calling(loop, sockets, end):
    """An error or hang-up of a pipe is told in every turn, whichever way the pipe is watched."""
    got = []
    r, w = sockets.pipe()
    watched, other = (r, w) if end == "read" else (w, r)
    if end == "write":
        os.set_blocking(w.fileno(), False)
        while w.write(bytes(65536)):
            pass
    add, remove = (loop.add_reader, loop.remove_reader) if end == "read" else (loop.add_writer, loop.remove_writer)
    add(watched, got.append, 1)
    turn(loop, 2)
    assert got == []
    other.close()
    turn(loop, 4)
    assert len(got) == 4
    remove(watched)


def test_the_read_side_of_a_write_end_tells_of_errors(loop, sockets):
    got = []
    r, w = sockets.pipe()
    loop.add_reader(w, got.append, 1)
    turn(loop)
    assert got == []
    r.close()
    turn(loop, 3)
    assert len(got) == 3
    loop.remove_reader(w)


def test_a_reset_socket_wakes_its_reader(loop, sockets):
    got = []
    a, b = sockets.pair(tcp=True)
    sockets.peer(b).reset()

    def read():
        loop.remove_reader(a)
        with pytest.raises(ConnectionResetError):
            a.recv(1)
        got.append(1)
        loop.stop()

    loop.add_reader(a, read)
    run_until_stopped(loop)
    assert got == [1]


# ---- descriptors closed behind the loop's back


@pytest.mark.parametrize("kind_of_fd", ["pipe", "socket"])
def test_closed_without_removing(loop, kind_of_fd):
    """Closing a watched descriptor does no harm: the loop runs on, and the watcher can be removed."""
    got = []
    if kind_of_fd == "pipe":
        r, w = os.pipe()
    else:
        r, w = (s.detach() for s in socket.socketpair())
    loop.add_reader(r, got.append, "r")
    loop.add_writer(w, got.append, "w")
    turn(loop)
    assert got == ["w"]
    os.close(r)
    os.close(w)
    turn(loop)
    run(loop, asyncio.sleep(0.005))
    loop.remove_reader(r)
    loop.remove_writer(w)
    turn(loop)
    assert got == ["w"]


def test_closed_in_the_turn_of_its_adding(loop):
    """Added and closed before the loop has polled once."""
    r, w = os.pipe()
    loop.add_reader(r, print)
    os.close(r)
    turn(loop, 2)
    loop.remove_reader(r)
    os.close(w)
    turn(loop)


def test_closed_by_its_own_callback(loop):
    got = []
    r, w = os.pipe()
    os.write(w, b"!")
    loop.add_reader(r, lambda: (got.append(1), os.close(r)))
    turn(loop, 3)
    assert got == [1]
    loop.remove_reader(r)
    os.close(w)
    turn(loop)


def test_a_number_used_again_after_remove(loop):
    got = []
    for round_ in range(10):
        r, w = os.pipe()
        loop.add_reader(r, got.append, "old")
        if round_ % 2:
            turn(loop)
        os.close(r)
        os.close(w)
        loop.remove_reader(r)
        again, other = os.pipe()
        assert again == r
        os.write(other, b"!")
        loop.add_reader(again, once(loop, again, got, round_))
        turn(loop, 2)
        os.close(again)
        os.close(other)
    assert got == list(range(10))


def test_remove_before_close_in_a_callback_and_use_again(loop):
    """The order of a well-behaved program: remove, close, open another under the same number, add, all in one
    callback.
    """
    got = []

    def work(n):
        a, b = socket.socketpair()
        fd = a.fileno()
        loop.add_reader(fd, got.append, "old")
        loop.remove_reader(fd)
        a.close()
        c = socket.socket(fileno=os.dup(b.fileno()))
        assert c.fileno() == fd
        b.close()
        loop.add_reader(c, lambda: (got.append(n), loop.remove_reader(c), c.close()))

    for n in range(5):
        loop.call_soon(work, n)
        turn(loop, 2)
    assert got == list(range(5))


def test_descriptors_of_transports_are_refused(loop, sockets):
    """A live transport's descriptor cannot be watched or unwatched; once it is closed the number can."""
    a, _ = sockets.pair(tcp=True)

    async def main(a):
        transport, _ = await loop.create_connection(asyncio.Protocol, sock=a)
        fd = transport.get_extra_info("socket").fileno()
        for call in (loop.add_reader, loop.add_writer):
            with pytest.raises(RuntimeError, match="is used by transport"):
                call(fd, print)
        for call in (loop.remove_reader, loop.remove_writer):
            with pytest.raises(RuntimeError, match="is used by transport"):
                call(fd)
        transport.close()
        while transport.get_extra_info("socket").fileno() >= 0 and a.fileno() >= 0:
            await asyncio.sleep(0)
        return fd

    fd = run(loop, main(a))
    del a
    gc.collect()
    c, d = sockets.pair()
    if d.fileno() == fd:
        c, d = d, c
    if c.fileno() != fd:
        sockets.callback(os.close, os.dup2(c.fileno(), fd))
    d.send(b"!")
    got = []
    loop.add_reader(fd, once(loop, fd, got, 1))
    turn(loop, 2)
    assert got == [1]


# ---- errors, contexts, references


def test_a_failing_reader_is_reported_and_stays(loop, sockets, errors):
    got = []
    a, b = sockets.pair()
    b.send(b"!")

    def bad(*args):
        got.append(args)
        raise ZeroDivisionError

    loop.add_reader(a, bad, 1, 2)
    loop.add_writer(a, bad)
    turn(loop, 3)
    loop.remove_reader(a)
    loop.remove_writer(a)
    assert got == [(1, 2), ()] * 3
    assert [type(c["exception"]) for c in errors.take()] == [ZeroDivisionError] * 6


def test_an_interrupt_in_a_reader_leaves_it_registered(loop, sockets):
    got = []
    a, b = sockets.pair()
    b.send(b"!")

    def bad():
        got.append(1)
        if len(got) < 3:
            raise KeyboardInterrupt
        loop.stop()

    loop.add_reader(a, bad)
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            loop.run_forever()
    run_until_stopped(loop)
    assert len(got) == 3
    loop.remove_reader(a)


def test_watchers_run_in_the_context_of_their_adding(loop, sockets):
    var, got = contextvars.ContextVar("var", default="none"), []
    a, b = sockets.pair()
    b.send(b"!")

    def add():
        var.set("added")
        loop.add_reader(a, lambda: (got.append(var.get()), var.set("read")))
        loop.add_writer(b, lambda: got.append(var.get()))

    contextvars.copy_context().run(add)
    turn(loop)
    assert sorted(got) == ["added", "added"]
    turn(loop)
    assert sorted(got) == ["added", "added", "added", "read"]
    loop.remove_reader(a)
    loop.remove_writer(b)


@pytest.mark.parametrize("name", ["add_reader", "add_writer", "_add_reader", "_add_writer"])
def test_a_context_for_watchers_is_for_transports(loop, sockets, name):
    """The hooks that transports call take one from 3.15 on; the public methods do not."""
    var, got = contextvars.ContextVar("var", default="none"), []
    a, b = sockets.pair()
    b.send(b"!")
    context = contextvars.copy_context()
    context.run(var.set, "given")
    add, remove = getattr(loop, name), getattr(loop, name.replace("add", "remove"))
    if name.startswith("_") and sys.version_info >= (3, 15):
        add(a, lambda: got.append(var.get()), context=context)
        turn(loop)
        assert got == ["given"]
        assert remove(a)
    else:
        with pytest.raises(TypeError, match=rf"{name}\(\) got an unexpected keyword argument 'context'"):
            add(a, print, context=context)
        assert not remove(a)


def test_watchers_give_references_back(loop, sockets):
    class Thing:
        def __call__(self, *args):
            pass

    def counts():
        gc.collect()
        return sys.getrefcount(call), sys.getrefcount(argument)

    call, argument = Thing(), Thing()
    a, b = sockets.pair()
    b.send(b"!")
    before = counts()
    for n in range(100):
        loop.add_reader(a, call, argument, argument)
        loop.add_reader(a, call, argument)
        loop.add_writer(a, call, argument)
        if n % 5 == 0:
            turn(loop)
        loop.remove_writer(a)
        loop.remove_reader(a)
        loop.remove_reader(a)
    assert counts() == before
    loop.add_reader(a, call, argument)
    loop.add_writer(a, call, argument)
    loop.close()
    assert counts() == before


def test_a_removed_watcher_lets_go_at_once(loop, sockets):
    class Thing:
        def __call__(self):
            pass

    a, _ = sockets.pair()
    for add, remove in ((loop.add_reader, loop.remove_reader), (loop.add_writer, loop.remove_writer)):
        thing = Thing()
        alive = weakref.ref(thing)
        add(a, thing)
        turn(loop)
        del thing
        assert alive() is not None
        remove(a)
        gc.collect()
        assert alive() is None


def test_after_close_of_the_loop(loop, sockets):
    a, _ = sockets.pair()
    loop.add_reader(a, print)
    loop.add_writer(a, print)
    loop.close()
    assert loop.remove_reader(a) is False
    assert loop.remove_writer(a) is False
    for call in (loop.add_reader, loop.add_writer):
        with pytest.raises(RuntimeError, match="Event loop is closed"):
            call(a, print)


def test_watchers_survive_the_end_of_a_run(loop, sockets):
    got = []
    a, b = sockets.pair()
    loop.add_reader(a, lambda: got.append(a.recv(1)))
    for text in (b"1", b"2", b"3"):
        b.send(text)
        turn(loop)
    assert got == [b"1", b"2", b"3"]
    loop.remove_reader(a)


def test_watchers_added_from_a_thread_before_the_run(loop, sockets):
    """A loop set up in one thread and run in another."""
    got = []
    a, b = sockets.pair()
    in_thread(loop.add_reader, a, once(loop, a, got, 1))
    b.send(b"!")
    in_thread(turn, loop, 2)
    assert got == [1]
