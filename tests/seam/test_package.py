"""The package: its public names, run(), install(), the policy, the command line, what importing does and does not
do.
"""

import asyncio
import re
import sys
import warnings

import pytest

from support.drive import in_thread
from support.script import output, run_python

pytestmark = pytest.mark.uvpy_only("about the package uvpy")

DEPRECATED = sys.version_info >= (3, 14)  # policies are, from here on
GONE = sys.version_info >= (3, 16)

policies = pytest.mark.skipif(GONE, reason="3.16 has no policies")


@pytest.fixture
def policy():
    """Puts the policy back."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        before = asyncio.get_event_loop_policy()
        yield
        asyncio.set_event_loop(None)
        asyncio.set_event_loop_policy(before)


async def which():
    await asyncio.sleep(0)
    return asyncio.get_running_loop()


def test_public_names(kind):
    import uvpy

    assert set(uvpy.__all__) >= {
        "EventLoopPolicy",
        "Loop",
        "__version__",
        "build_info",
        "install",
        "libuv_version",
        "new_event_loop",
        "run",
    }
    for name in uvpy.__all__:
        assert hasattr(uvpy, name), name
    assert re.fullmatch(r"\d+\.\d+\.\d+([a-z.+-].*)?", uvpy.__version__)
    assert re.fullmatch(r"1\.\d+\.\d+(-\w+)?", uvpy.libuv_version)
    assert tuple(map(int, re.findall(r"\d+", uvpy.libuv_version)[:2])) >= (1, 44)


def test_the_version_is_the_distributions(kind):
    import importlib.metadata

    import uvpy

    for name in importlib.metadata.packages_distributions().get("uvpy", []):
        assert importlib.metadata.version(name) == uvpy.__version__


def test_build_info(kind):
    import uvpy

    info = uvpy.build_info()
    assert isinstance(info, dict)
    assert all(isinstance(key, str) for key in info)
    assert info is not uvpy.build_info()
    text = str(info)
    assert uvpy.libuv_version in text


def test_new_event_loop(kind, raw_loop):
    import uvpy

    loop = raw_loop()
    assert type(loop) is uvpy.Loop
    assert loop is not raw_loop()
    with pytest.raises(TypeError):
        uvpy.new_event_loop(1)


# ---- run


def test_run_gives_the_result_on_our_loop(kind):
    import uvpy

    loop = uvpy.run(which())
    assert type(loop) is uvpy.Loop
    assert loop.is_closed()
    assert uvpy.run(asyncio.sleep(0, 5)) == 5
    assert asyncio._get_running_loop() is None


def test_run_passes_debug_on(kind):
    import uvpy

    async def debug():
        return asyncio.get_running_loop().get_debug()

    assert uvpy.run(debug(), debug=True) is True
    assert uvpy.run(debug(), debug=False) is False
    assert uvpy.run(debug()) is False


def test_run_takes_a_loop_factory(kind):
    import uvpy

    class Mine(uvpy.Loop):
        pass

    assert type(uvpy.run(which(), loop_factory=Mine)) is Mine
    plain = uvpy.run(which(), loop_factory=lambda: uvpy.new_event_loop(gil="plain"))
    assert type(plain) is uvpy.Loop


def test_run_cancels_what_is_left(kind):
    import uvpy

    got = []

    async def stays():
        try:
            await asyncio.sleep(3600)
        finally:
            got.append("cancelled")

    async def main():
        got.append(asyncio.create_task(stays()))
        await asyncio.sleep(0)

    uvpy.run(main())
    assert got[1] == "cancelled"


@pytest.mark.parametrize("kind_of_error", [KeyError, SystemExit, KeyboardInterrupt, asyncio.CancelledError])
def test_run_lets_exceptions_out(kind, kind_of_error):
    import uvpy

    async def bad():
        await asyncio.sleep(0)
        raise kind_of_error("x")

    with pytest.raises(kind_of_error):
        uvpy.run(bad())


def test_run_refuses_what_asyncio_refuses(kind):
    import uvpy

    for wrong in (None, 42, print):
        with pytest.raises((ValueError, TypeError)):
            uvpy.run(wrong)

    async def nested():
        coro = which()
        with pytest.raises(RuntimeError, match="cannot be called from a running event loop"):
            uvpy.run(coro)
        coro.close()

    uvpy.run(nested())
    with pytest.raises(TypeError):
        uvpy.run(debug=True)
    coro = which()
    with pytest.raises(TypeError):
        uvpy.run(coro, True)
    coro.close()


def test_run_in_another_thread(kind):
    import uvpy

    assert in_thread(uvpy.run, asyncio.sleep(0, 7)) == 7


# ---- policy and install


@policies
def test_the_policy_makes_our_loops(kind, policy):
    import uvpy

    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        made = uvpy.EventLoopPolicy()
        asyncio.set_event_loop_policy(made)
        loop = asyncio.new_event_loop()
    assert type(loop) is uvpy.Loop
    loop.close()
    assert type(asyncio.run(which())) is uvpy.Loop
    assert any(issubclass(w.category, DeprecationWarning) for w in found) is DEPRECATED
    assert isinstance(made, asyncio.AbstractEventLoopPolicy if not DEPRECATED else object)


@policies
def test_get_event_loop_of_the_policy(kind, policy):
    import uvpy

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        made = uvpy.EventLoopPolicy()
        loop = made.new_event_loop()
        made.set_event_loop(loop)
        assert made.get_event_loop() is loop
        made.set_event_loop(None)
    loop.close()


@policies
def test_install(kind, policy):
    import uvpy

    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        assert uvpy.install() is None
        assert isinstance(asyncio.get_event_loop_policy(), uvpy.EventLoopPolicy)
    assert type(asyncio.run(which())) is uvpy.Loop
    assert [w for w in found if not issubclass(w.category, DeprecationWarning)] == []
    assert any(issubclass(w.category, DeprecationWarning) for w in found) is DEPRECATED


@policies
def test_install_warns_when_another_loop_is_set(kind, policy):
    """ "Installed, but not in effect" is said aloud."""
    import uvpy

    other = asyncio.SelectorEventLoop()
    asyncio.set_event_loop(other)
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        uvpy.install()
    other.close()
    (said,) = [str(w.message) for w in found if issubclass(w.category, RuntimeWarning)]
    assert "SelectorEventLoop" in said


@policies
def test_install_warns_inside_a_running_loop_of_another_kind(kind, policy):
    import uvpy

    async def main():
        with warnings.catch_warnings(record=True) as found:
            warnings.simplefilter("always")
            uvpy.install()
        return [w for w in found if issubclass(w.category, RuntimeWarning)]

    loop = asyncio.SelectorEventLoop()
    assert loop.run_until_complete(main())
    loop.close()


@policies
def test_install_is_quiet_when_ours_is_set_or_running(kind, policy):
    import uvpy

    async def main():
        uvpy.install()

    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        warnings.simplefilter("ignore", DeprecationWarning)
        uvpy.run(main())
        loop = uvpy.new_event_loop()
        asyncio.set_event_loop(loop)
        uvpy.install()
        uvpy.install()
        loop.close()


@policies
def test_a_warning_of_install_names_the_callers_line(kind, policy):
    import uvpy

    other = asyncio.SelectorEventLoop()
    asyncio.set_event_loop(other)
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        uvpy.install()
    other.close()
    assert {w.filename for w in found if issubclass(w.category, RuntimeWarning)} == {__file__}


# ---- importing and the command line


def test_importing_changes_nothing_in_asyncio(kind):
    body = """
import asyncio, signal, sys, socket, ssl, selectors, threading
modules = [m for name, m in sorted(sys.modules.items()) if name.split(".")[0] in ("asyncio", "signal", "socket", "ssl")]
def look():
    found = {}
    for m in modules:
        for name, value in vars(m).items():
            found[m.__name__, name] = id(value)
            if isinstance(value, type) and value.__module__ == m.__name__:
                for attribute, inner in vars(value).items():
                    found[m.__name__, name, attribute] = id(inner)
    return found, {s: signal.getsignal(s) for s in signal.valid_signals()}, threading.active_count(),
    sys.getswitchinterval()
look()
before = look()
import uvpy
loop = uvpy.new_event_loop()
loop.run_until_complete(asyncio.sleep(0))
loop.close()
after = look()
print([k for k in after[0] if after[0][k] != before[0].get(k) and not k[1].startswith("__")][:9])
print(after[1:] == before[1:], type(asyncio.new_event_loop()).__name__)
"""
    assert output(body).splitlines() == ["[]", "True _UnixSelectorEventLoop"]


def test_importing_is_quick_and_quiet(kind):
    done = run_python("-X", "importtime", "-W", "error", "-c", "import uvpy")
    assert done.returncode == 0
    mine = [
        line for line in done.stderr.splitlines() if line.rstrip().endswith((" uvpy", " uvpy._core", " uvpy._loop"))
    ]
    assert len(mine) >= 2
    assert all(int(line.split(":")[1].split("|")[0]) < 200_000 for line in mine)


def test_info_on_the_command_line(kind):
    import uvpy

    done = run_python("-m", "uvpy", "info")
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert uvpy.__version__ in done.stdout
    assert uvpy.libuv_version in done.stdout
    assert sys.version.split()[0] in done.stdout
    assert "asyncio" in done.stdout  # which loop asyncio would make now
    assert "SelectorEventLoop" in done.stdout


def test_the_command_line_refuses_nonsense(kind):
    done = run_python("-m", "uvpy", "nonsense")
    assert done.returncode not in (0, 1)
    assert "Traceback" not in done.stderr
    assert "usage" in (done.stderr + done.stdout).lower()
    assert run_python("-m", "uvpy", "--help").returncode == 0


def test_dev_mode_has_nothing_to_say(kind):
    """-X dev and -W error over import, run, server and client."""
    body = """
import asyncio, uvpy
async def main():
    async def callback(reader, writer):
        writer.write(await reader.readline())
        writer.close()
        await writer.wait_closed()
    server = await asyncio.start_server(callback, "127.0.0.1", 0)
    reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
    writer.write(b"line\\n")
    print(await reader.readline())
    writer.close()
    await writer.wait_closed()
    server.close()
    await server.wait_closed()
    await asyncio.sleep(0)
uvpy.run(main())
"""
    done = run_python("-X", "dev", "-W", "error", "-c", body)
    assert (done.returncode, done.stderr, done.stdout.strip()) == (0, "", "b'line\\n'")
