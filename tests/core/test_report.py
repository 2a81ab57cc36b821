"""Where errors go: the exception handler, its context, the log, and what passes all of them."""

import asyncio
import contextlib
import contextvars
import gc
import logging
import sys

import pytest

from support.drive import in_thread, turn


def fail(kind=ZeroDivisionError, *args):
    raise kind("on purpose")


class Own(BaseException):
    """Neither an Exception nor one of the two that end a loop."""


def schedule(loop, how, callback, *args):
    """Schedule a callback in one of the ways there are; its handle."""
    if how == "soon":
        return loop.call_soon(callback, *args)
    if how == "timer":
        return loop.call_later(0, callback, *args)
    if how == "past":
        return loop.call_at(0, callback, *args)
    if how == "threadsafe":
        return loop.call_soon_threadsafe(callback, *args)
    return in_thread(loop.call_soon_threadsafe, callback, *args)


WAYS = ("soon", "timer", "past", "threadsafe", "thread")


@pytest.mark.parametrize("how", WAYS)
def test_the_context_of_a_failed_callback(loop, errors, how):
    """message, exception and handle, nothing else; the message is asyncio's."""
    handle = schedule(loop, how, fail, KeyError)
    turn(loop, 2)
    (context,) = errors.take()
    assert set(context) == {"message", "exception", "handle"}
    assert context["handle"] is handle
    assert isinstance(context["exception"], KeyError)
    like = asyncio.Handle(fail, (KeyError,), loop)
    assert context["message"] == "Exception in callback " + repr(like).removeprefix("<Handle ").removesuffix(">")


def test_the_context_in_debug_mode_says_where_it_was_scheduled(loop, errors):
    loop.set_debug(True)
    schedule(loop, "soon", fail)
    schedule(loop, "timer", fail)
    turn(loop, 2)
    for context in errors.take():
        assert set(context) == {"message", "exception", "handle", "source_traceback"}
        assert context["source_traceback"][-1].name == "schedule"
        assert context["source_traceback"][-1].filename == __file__


@pytest.mark.parametrize("how", WAYS)
@pytest.mark.parametrize(
    "kind_of_error",
    [
        ValueError,
        StopIteration,
        StopAsyncIteration,
        GeneratorExit,
        asyncio.CancelledError,
        MemoryError,
        RecursionError,
        Own,
        TimeoutError,
    ],
)
def test_every_other_exception_is_reported(loop, errors, how, kind_of_error):
    """All but SystemExit and KeyboardInterrupt go to the handler, and the turn goes on."""
    got = []
    schedule(loop, how, fail, kind_of_error)
    schedule(loop, how, got.append, 1)
    turn(loop, 2)
    (context,) = errors.take()
    assert type(context["exception"]) is kind_of_error
    assert got == [1]


@pytest.mark.parametrize("how", WAYS)
@pytest.mark.parametrize("kind_of_exit", [SystemExit, KeyboardInterrupt])
def test_an_exit_passes_the_handler(loop, how, kind_of_exit):
    """SystemExit and KeyboardInterrupt leave the run unreported with the loop in order."""
    schedule(loop, how, fail, kind_of_exit)
    with pytest.raises(kind_of_exit, match="on purpose"):
        loop.run_forever()
    assert not loop.is_running()
    assert asyncio._get_running_loop() is None
    got = []
    loop.call_soon(got.append, 1)
    turn(loop)
    assert got == [1]


class Quiet(SystemExit):
    pass


class Loud(KeyboardInterrupt):
    pass


@pytest.mark.parametrize("kind_of_exit", [Quiet, Loud])
def test_subclasses_of_the_exits_leave_the_run_too(loop, kind_of_exit):
    loop.call_soon(fail, kind_of_exit)
    with pytest.raises(kind_of_exit):
        loop.run_forever()


def test_a_group_with_an_exit_inside_is_an_exception_like_any(loop, errors):
    def bad():
        raise BaseExceptionGroup("g", [SystemExit(1), ValueError()])

    loop.call_soon(bad)
    turn(loop)
    (context,) = errors.take()
    assert isinstance(context["exception"], BaseExceptionGroup)


def test_the_traceback_ends_in_the_callback(loop, errors):
    def deeper():
        fail()

    loop.call_soon(deeper)
    turn(loop)
    (context,) = errors.take()
    frames, tb = [], context["exception"].__traceback__
    while tb:
        frames.append(tb.tb_frame.f_code.co_name)
        tb = tb.tb_next
    assert frames[-2:] == ["deeper", "fail"]
    assert "turn" not in frames and "test_the_traceback_ends_in_the_callback" not in frames


def test_an_exception_has_no_context_of_another(loop, errors):
    """Errors of different callbacks are not chained to one another."""
    loop.call_soon(fail, KeyError)
    loop.call_soon(fail, ValueError)
    try:
        raise OSError("being handled while the loop runs")
    except OSError:
        turn(loop)
    first, second = (context["exception"] for context in errors.take())
    assert second.__context__ is not first
    assert sys.exc_info() == (None, None, None)


# ---- handlers


def test_the_handler_is_a_callable_or_none(loop):
    def handler(loop, context):
        pass

    for wrong in (42, "x", [], object()):
        with pytest.raises(TypeError, match="callable"):
            loop.set_exception_handler(wrong)
    loop.set_exception_handler(handler)
    assert loop.get_exception_handler() is handler
    loop.set_exception_handler(None)
    assert loop.get_exception_handler() is None


def test_the_handler_gets_loop_and_context(raw_loop):
    loop, got = raw_loop(), []
    assert loop.get_exception_handler() is None
    loop.set_exception_handler(lambda *args: got.append(args))
    context = {"message": "m", "own": object()}
    loop.call_exception_handler(context)
    assert got == [(loop, context)]
    assert got[0][1] is context


def test_the_handler_of_the_moment_is_used(loop, errors):
    """A handler that is set while the loop runs takes the next error, also one of the same turn."""
    got = []
    loop.call_soon(fail)
    loop.call_soon(loop.set_exception_handler, lambda loop, context: got.append(type(context["exception"])))
    loop.call_soon(fail, KeyError)
    turn(loop)
    assert [type(c["exception"]) for c in errors.take()] == [ZeroDivisionError]
    assert got == [KeyError]


def test_without_a_handler_errors_are_logged(raw_loop, log):
    loop = raw_loop()
    loop.call_soon(fail, ZeroDivisionError, 1)
    turn(loop)
    (record,) = log.take()
    assert (record.name, record.levelno) == ("asyncio", logging.ERROR)
    assert record.exc_info[0] is ZeroDivisionError
    assert record.getMessage().startswith("Exception in callback fail(")
    assert "\nhandle: <Handle fail(" in record.getMessage()


def test_default_handler_called_by_a_users_handler(loop, log):
    loop.set_exception_handler(lambda loop, context: loop.default_exception_handler(context))
    loop.call_soon(fail)
    loop.call_soon(lambda: loop.call_exception_handler({"message": "no exception", "own": 3}))
    turn(loop)
    first, second = log.take()
    assert first.exc_info[0] is ZeroDivisionError
    assert not second.exc_info
    assert second.getMessage() == "no exception\nown: 3"


def test_a_failing_handler_is_logged_and_the_loop_goes_on(loop, log):
    got = []

    def bad(loop, context):
        raise KeyError("in the handler")

    loop.set_exception_handler(bad)
    loop.call_soon(fail)
    loop.call_soon(got.append, 1)
    turn(loop)
    (record,) = log.take()
    assert record.getMessage().startswith("Unhandled error in exception handler")
    assert record.exc_info[0] is KeyError
    assert got == [1]


@pytest.mark.parametrize("kind_of_exit", [SystemExit, KeyboardInterrupt])
def test_an_exit_in_the_handler_leaves_the_run(loop, kind_of_exit):
    got = []
    loop.set_exception_handler(lambda loop, context: fail(kind_of_exit))
    loop.call_soon(fail)
    loop.call_soon(got.append, 1)
    with pytest.raises(kind_of_exit):
        loop.run_forever()
    turn(loop)
    assert got == [1]


def test_a_handler_may_use_the_loop(loop):
    """It may schedule, cancel, stop, and fail again later."""
    got = []

    def handler(loop, context):
        got.append(type(context["exception"]))
        if len(got) < 5:
            loop.call_soon(fail, KeyError)
        else:
            loop.stop()
        victim.cancel()

    loop.set_exception_handler(handler)
    loop.call_soon(fail)
    victim = loop.call_soon(got.append, "never")
    loop.run_forever()
    assert got == [ZeroDivisionError] + [KeyError] * 4


@pytest.mark.skipif(sys.version_info < (3, 12), reason="gh-96704: from 3.12 on")
@pytest.mark.parametrize("how", WAYS)
def test_the_handler_runs_in_the_callbacks_context(loop, how):
    var, got = contextvars.ContextVar("var", default="outer"), []
    loop.set_exception_handler(lambda loop, context: got.append(var.get()))

    def bad():
        var.set("callback")
        fail()

    schedule(loop, how, bad)
    turn(loop, 2)
    assert got == ["callback"]


def test_a_callback_whose_repr_fails(loop, errors):
    """Whether the error of repr() leaves the run (as stock) or not, nothing scheduled is lost by it."""

    class Bad:
        def __repr__(self):
            raise ValueError("no repr")

        def __call__(self):
            fail()

    got = []
    loop.call_soon(Bad())
    loop.call_soon(got.append, 1)
    with contextlib.suppress(ValueError):
        turn(loop)
    loop.stop()
    loop.run_forever()
    assert got == [1]
    errors.take()


# ---- errors that belong to futures and tasks


def test_a_forgotten_exception_is_reported_when_collected(loop, errors):
    fut, seen = loop.create_future(), loop.create_future()
    fut.set_exception(KeyError("forgotten"))
    seen.set_exception(KeyError("seen"))
    seen.exception()
    del fut, seen
    gc.collect()
    (context,) = errors.take()
    assert context["message"] == "Future exception was never retrieved"
    assert context["exception"].args == ("forgotten",)


def test_a_forgotten_task_is_reported(loop, errors):
    async def bad():
        fail(KeyError)

    task = loop.create_task(bad())
    turn(loop, 2)
    assert errors.take() == []
    del task
    gc.collect()
    (context,) = errors.take()
    assert context["message"] == "Task exception was never retrieved"


def test_a_pending_task_that_is_destroyed_is_reported(new_loop, errors):
    loop = new_loop()

    async def wait_for_ever():
        await asyncio.get_running_loop().create_future()

    task = loop.create_task(wait_for_ever())
    turn(loop, 2)
    loop.close()
    del task
    gc.collect()
    (context,) = errors.take()
    assert context["message"] == "Task was destroyed but it is pending!"


def test_a_failing_done_callback_is_reported(loop, errors):
    fut, got = loop.create_future(), []
    fut.add_done_callback(lambda f: fail())
    fut.add_done_callback(lambda f: got.append(1))
    fut.set_result(None)
    turn(loop)
    assert got == [1]
    (context,) = errors.take()
    assert context["message"].startswith("Exception in callback ")


@pytest.mark.parametrize("kind_of_exit", [SystemExit, KeyboardInterrupt])
def test_an_exit_in_a_task_leaves_the_run_and_stays_in_the_task(loop, kind_of_exit):
    async def bad():
        await asyncio.sleep(0)
        fail(kind_of_exit)

    task = loop.create_task(bad())
    with pytest.raises(kind_of_exit):
        loop.run_forever()
    assert task.done()
    with pytest.raises(kind_of_exit):
        task.result()
    with pytest.raises(kind_of_exit):
        loop.run_until_complete(bad())
    turn(loop)
