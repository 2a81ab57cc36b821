"""The loop under test, on uvpy and on stock asyncio in turn, and what every test must leave behind it: nothing.

A test that takes `loop` (or `new_loop`, or `kind`) is collected twice and must pass on both loops: asyncio is the
oracle. An
`async def` test is run by its `loop`. What is demanded of each test without a word in it is in `support/leaks.py`.

Two marks narrow the pair, each with a reason: `uvpy_only("why")` for what only uvpy has or promises, and
`asyncio_gap("why", since=(3, 12), until=(3, 14, 10))` for what stock asyncio itself gets wrong in these versions.

UVPY_TESTS_ORACLE_ONLY=1 leaves uvpy out, to try a new test on the oracle before there is a build.
"""

import asyncio
import contextlib
import faulthandler
import gc
import inspect
import os
import pathlib
import sys

import pytest

sys.path.insert(0, os.fspath(pathlib.Path(__file__).parent))

from support import benches, certs, drive, explore, leaks, peers

MAKERS = {"asyncio": asyncio.SelectorEventLoop}
CLASSES = {"asyncio": asyncio.SelectorEventLoop}
if os.environ.get("UVPY_TESTS_ORACLE_ONLY") != "1":
    import uvpy

    MAKERS["uvpy"] = uvpy.new_event_loop
    CLASSES["uvpy"] = uvpy.Loop

explore.load_profile()

bench, load = benches.bench, benches.load

WATCHDOG = float(os.environ.get("UVPY_TESTS_WATCHDOG", "60"))  # seconds; a test that hangs ends the run


stderr = None  # the real one, for the watchdog


def pytest_configure(config):
    global stderr
    stderr = open(os.dup(2), "w")  # here pytest does not capture yet
    config.addinivalue_line("markers", "uvpy_only(reason): on uvpy only; the reason says why asyncio cannot be asked")
    config.addinivalue_line(
        "markers", "asyncio_gap(reason, since, until): stock asyncio is wrong here in these versions"
    )
    config.addinivalue_line("filterwarnings", "error")
    # Hypothesis looks for who refers to its random numbers, and does not see what gc.freeze() below has put away.
    config.addinivalue_line("filterwarnings", "ignore:It looks like .register_random. was passed")


def pytest_unconfigure():
    stderr.close()


def pytest_generate_tests(metafunc):
    if "kind" not in metafunc.fixturenames:
        return
    kinds = list(MAKERS)
    if next(metafunc.definition.iter_markers("uvpy_only"), None):
        kinds.remove("asyncio")
    for gap in metafunc.definition.iter_markers("asyncio_gap"):
        since, until = gap.kwargs.get("since", (3,)), gap.kwargs.get("until", (4,))
        if since <= sys.version_info < until and "asyncio" in kinds:
            kinds.remove("asyncio")
    metafunc.parametrize("kind", kinds, indirect=True)


def pytest_collection_finish(session):
    # libuv keeps a pipe for the process once the first loop was made.
    for make in MAKERS.values():
        make().close()
    # What collecting made stays for good: keep the many collections of the tests from looking at it again and again.
    gc.collect()
    gc.freeze()


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem):
    names = pyfuncitem._fixtureinfo.argnames
    arguments = {name: pyfuncitem.funcargs[name] for name in names}
    try:
        if inspect.iscoroutinefunction(pyfuncitem.obj):
            drive.run(pyfuncitem.funcargs["loop"], pyfuncitem.obj(**arguments))
        else:
            pyfuncitem.obj(**arguments)
    except (KeyboardInterrupt, SystemExit) as exc:
        if not exc.args:
            raise
        # Not the user's Ctrl-C: one that a test raised with a text, and that came out where it should not.
        raise AssertionError(f"{exc!r} came out of the test") from exc
    return True


@pytest.fixture(autouse=True)
def clean(request):
    """What a test must leave behind: no descriptor, no thread, nothing that nobody could catch, nothing in
    asyncio's log.
    """
    # Clusters and servers of several processes take most of a minute where others use the machine, too.
    patience = 4 if request.node.get_closest_marker("slow") else 1
    faulthandler.dump_traceback_later(WATCHDOG * patience, exit=True, file=stderr)
    try:
        with leaks.watch() as found:
            yield found
    finally:
        faulthandler.cancel_dump_traceback_later()


@pytest.fixture
def log(clean):
    """asyncio's log of the test: `take()` gives the records of level WARNING and above so far; what is left fails
    the test.
    """
    return clean.log


@pytest.fixture
def unraisable(clean):
    """What went to sys.unraisablehook or threading.excepthook: `take()` gives the exceptions; what is left fails
    the test.
    """
    return clean.unraisable


@pytest.fixture
def errors():
    """What the exception handlers of the loops under test were given: `take()` gives the contexts; what is left
    fails the test.
    """
    book = leaks.Book("the exception handler was called")
    yield book
    book.demand_empty()


@pytest.fixture
def kind(request):
    """'asyncio' or 'uvpy'."""
    return request.param


@pytest.fixture
def loop_class(kind):
    """The class of the loops under test."""
    return CLASSES[kind]


@pytest.fixture
def make_loop(kind):
    """What makes loops of the kind under test; nothing keeps or closes them."""
    return MAKERS[kind]


@pytest.fixture
def raw_loop(make_loop, sockets):
    """Makes loops of the kind under test as the user gets them, with no exception handler of ours; they are closed
    at the end.
    """
    with contextlib.ExitStack() as stack:

        def make(*args, **kwargs):
            loop = make_loop(*args, **kwargs)
            stack.callback(leaks.end_loop, loop)
            return loop

        yield make


@pytest.fixture
def new_loop(raw_loop, errors):
    """Makes loops of the kind under test, their exception handlers writing into `errors`."""

    def make(*args, **kwargs):
        loop = raw_loop(*args, **kwargs)
        loop.set_exception_handler(lambda loop, context: errors.add(context))
        return loop

    return make


@pytest.fixture
def loop(new_loop):
    """A fresh loop of the kind under test; an `async def` test is run by it."""
    return new_loop()


@pytest.fixture
def pair():
    """Makes connected pairs of non-blocking sockets, Unix or (`pair(tcp=True)`) TCP; closed at the end."""
    with peers.Closing() as closing:
        yield closing.pair


@pytest.fixture
def sockets():
    """What a test wants of plain sockets, pipes and peers in threads; all closed at the end (`support/peers.py`)."""
    with peers.Closing() as closing:
        yield closing


@pytest.fixture(scope="session")
def authority():
    """A certificate authority made for this run, and contexts for servers and clients (`support/certs.py`)."""
    return certs.Authority()
