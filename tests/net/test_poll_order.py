"""What protocols and factories schedule, and the order in which it runs: on uvpy they are called in the poll, before
the batch, and none of what they schedule may run before it.
"""

import contextlib
import socket
import time

import pytest

from support.drive import run, run_until_stopped, turn, turn_until
from support.peers import KB, MB
from support.protocols import Buffered, Recorder, connect, finish, stuff

# ---- what is called in the poll, and what it schedules


METHODS = ["data_received", "buffer_updated", "get_buffer", "eof_received", "factory"]


def when_called(loop, sockets, method, act):
    """Have `act()` called once from this method (or by a server's factory) in the next turn that polls."""
    done = []

    def once(answer=None):
        if not done:
            done.append(1)
            act()
        return answer

    if method == "factory":
        listener, accepted = sockets.listener(), Recorder()
        server = run(loop, loop.create_server(lambda: once(accepted), sock=listener))
        sockets.own(socket.create_connection(listener.getsockname()))

        def end():
            turn_until(loop, lambda: accepted.transport)
            finish(loop, accepted.transport, accepted)
            server.close()
            turn(loop, 3)

        return done, end
    base = Recorder if method == "data_received" else Buffered

    def body(self, *args):
        once()
        return getattr(base, method)(self, *args)

    transport, protocol, peer = connect(loop, sockets, type("Acts", (base,), {method: body}))
    turn(loop)
    if method == "eof_received":
        peer.shutdown(socket.SHUT_WR)
    else:
        peer.send(b"x")
    return done, lambda: finish(loop, transport, protocol)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("what", ["soon", "later", "past", "threadsafe"])
def test_stop_ends_the_run_before_what_was_scheduled_with_it(loop, sockets, method, what):
    """stop() ends the run with the batch that it is called in; what was scheduled there is for the next run."""
    ran = []

    def act():
        loop.stop()
        if what == "soon":
            loop.call_soon(ran.append, 1)
        elif what == "threadsafe":
            loop.call_soon_threadsafe(ran.append, 1)
        elif what == "later":
            loop.call_later(0, ran.append, 1)
        else:
            loop.call_at(loop.time() - 1, ran.append, 1)

    done, end = when_called(loop, sockets, method, act)
    run_until_stopped(loop)
    assert done == [1]
    assert ran == []
    turn(loop)
    assert ran == [1]
    end()


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("what", ["soon", "later", "threadsafe"])
def test_what_is_scheduled_runs_behind_the_batch(loop, sockets, method, what):
    """Behind the callbacks that were there before the poll, and behind the timers that were due with it."""
    order = []

    def act():
        order.append("called")
        if what == "later":
            loop.call_at(loop.time() - 9, order.append, "scheduled")
        elif what == "soon":
            loop.call_soon(order.append, "scheduled")
        else:
            loop.call_soon_threadsafe(order.append, "scheduled")

    _, end = when_called(loop, sockets, method, act)
    time.sleep(0.002)
    loop.call_at(loop.time() - 1, order.append, "due")
    loop.call_soon(order.append, "soon")
    turn(loop)
    if "called" not in order:  # stock's factory is called by a task, a turn after the accept
        order.clear()
        loop.call_at(loop.time() - 1, order.append, "due")
        loop.call_soon(order.append, "soon")
        turn(loop)
    assert sorted(order) == ["called", "due", "soon"]
    turn(loop)
    assert order[3:] == ["scheduled"]
    end()


@pytest.mark.parametrize("method", ["data_received", "buffer_updated"])
def test_timers_and_callbacks_made_in_the_poll_keep_asyncios_order(loop, sockets, method):
    order = []

    def act():
        loop.call_later(0, order.append, "later")
        loop.call_soon(order.append, "first")
        loop.call_at(loop.time() - 1, order.append, "past")
        loop.call_soon(order.append, "second")

    done, end = when_called(loop, sockets, method, act)
    turn_until(loop, lambda: done)
    assert order == []
    turn(loop)
    assert order == ["first", "second", "past", "later"]
    end()


def test_a_timer_made_in_the_poll_can_be_cancelled_there(loop, sockets):
    ran, handles = [], []

    def act():
        handles.extend(loop.call_later(0, ran.append, n) for n in range(5))
        handles[1].cancel()
        loop.call_soon(handles[3].cancel)

    done, end = when_called(loop, sockets, "data_received", act)
    turn_until(loop, lambda: done)
    handles[0].cancel()
    turn(loop, 2)
    assert ran in ([2, 4], [2, 3, 4])  # the third is due in the batch that cancels it
    assert ran == [2, 4]
    end()


def test_resume_writing_schedules_for_the_next_turn(loop, sockets):
    order = []

    class Resumes(Recorder):
        def resume_writing(self):
            super().resume_writing()
            loop.call_later(0, order.append, "later")
            loop.call_soon(order.append, "soon")
            loop.stop()

    transport, protocol, peer = connect(loop, sockets, Resumes)
    stuff(transport)
    while "pause" not in protocol.events:
        transport.write(bytes(64 * KB))
    peer.setblocking(False)
    end = time.monotonic() + 5
    while "resume" not in protocol.events:
        assert time.monotonic() < end
        with contextlib.suppress(BlockingIOError):
            while peer.recv(MB):
                pass
        assert order == []
        turn(loop)
    assert order == []
    turn(loop)
    assert order == ["soon", "later"]
    finish(loop, transport, protocol)
