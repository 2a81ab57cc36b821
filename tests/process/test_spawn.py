"""Starting children: their streams, every option, what goes wrong, cancellation at every point, threads."""

import asyncio
import fcntl
import os
import socket
import subprocess
import sys
import threading

import pytest

from support.children import DEVNULL, PIPE, SLEEP, ChildNotes, has_children, output, spawn
from support.drive import eventually, start_thread, turns
from support.leaks import fds
from support.peers import MB, pattern, same

PYTHON = (sys.executable, "-S", "-c")
as_root = pytest.mark.skipif(os.getuid() != 0, reason="root only")

# ---- streams


async def test_the_streams_are_pipes(loop):
    script = "for n in 0 1 2; do readlink /proc/self/fd/$n; done"
    proc = await asyncio.create_subprocess_exec("sh", "-c", script, stdin=PIPE, stdout=PIPE, stderr=PIPE)
    out, err = await proc.communicate()
    assert [line.split(b":")[0] for line in out.split()[:2]] == [b"pipe", b"pipe"]
    assert err == b""


async def test_type_and_extra_info(loop):
    transport, protocol = await spawn("cat", stdin=PIPE, stdout=PIPE)
    assert isinstance(transport, asyncio.SubprocessTransport)
    assert type(transport.get_extra_info("subprocess")) is subprocess.Popen
    assert transport.get_extra_info("subprocess").pid == transport.get_pid()
    assert isinstance(transport.get_pipe_transport(0), asyncio.WriteTransport)
    assert isinstance(transport.get_pipe_transport(1), asyncio.ReadTransport)
    assert transport.get_pipe_transport(2) is None
    assert transport.get_protocol() is protocol
    assert f"pid={transport.get_pid()} running stdin=<" in repr(transport)
    transport.get_pipe_transport(0).close()
    await protocol.lost()
    assert f"pid={transport.get_pid()} returncode=0" in repr(transport)


@pytest.mark.parametrize("what", ["file", "descriptor", "socket", "devnull"])
async def test_standard_input_of_every_kind(loop, tmp_path, sockets, what):
    (tmp_path / "in").write_bytes(b"text")
    with open(tmp_path / "in", "rb") as file:
        if what == "socket":
            ours, its = sockets.pair()
            ours.send(b"text")
            ours.shutdown(socket.SHUT_WR)
            its.setblocking(True)
            given = its
        else:
            given = {"file": file, "descriptor": file.fileno(), "devnull": DEVNULL}[what]
        assert await output("cat", stdin=given) == ("" if what == "devnull" else "text")


async def test_standard_output_to_a_socket(loop, sockets):
    ours, its = sockets.pair()
    its.setblocking(True)
    _, protocol = await spawn("echo", "text", stdout=its)
    await protocol.lost()
    assert ours.recv(99) == b"text\n"


async def test_stderr_with_stdout(loop):
    assert await output("sh", "-c", "echo 1; echo 2 >&2; echo 3", stderr=subprocess.STDOUT) == "1\n2\n3"


async def test_much_data_both_ways(loop):
    blob = pattern(3 * MB)
    script = "import sys; d = sys.stdin.buffer.read(); sys.stdout.buffer.write(d); sys.stderr.buffer.write(d[::-1])"
    proc = await asyncio.create_subprocess_exec(*PYTHON, script, stdin=PIPE, stdout=PIPE, stderr=PIPE)
    out, err = await proc.communicate(blob)
    same(out, blob)
    same(err, blob[::-1])
    assert proc.returncode == 0


async def test_a_child_that_closes_its_input_early(loop):
    """communicate() takes it for the end; the rest of the data is dropped."""
    proc = await asyncio.create_subprocess_exec("sh", "-c", "exec <&-; echo done; exit 2", stdin=PIPE, stdout=PIPE)
    out, _ = await proc.communicate(b"x" * MB)
    assert (out, proc.returncode) == (b"done\n", 2)


async def test_output_read_after_the_end(loop):
    proc = await asyncio.create_subprocess_exec("echo", "text", stdout=PIPE)
    if sys.version_info >= (3, 14):
        await proc.wait()
    await turns(10)
    assert await proc.stdout.read() == b"text\n"
    assert await proc.wait() == 0


# ---- options


@as_root
async def test_user_and_groups(loop):
    found = await output("sh", "-c", "id -u; id -g; id -G", user=65534, group=65534, extra_groups=[7, 8])
    assert found.split("\n")[:2] == ["65534", "65534"]
    assert set(found.split("\n")[2].split()) == {"65534", "7", "8"}


async def test_umask(loop):
    assert int(await output("sh", "-c", "umask", umask=0o027), 8) == 0o027


async def test_process_group_and_session(loop):
    text = "import os; print(os.getpgid(0) == os.getpid(), os.getsid(0) == os.getpid())"
    assert await output(*PYTHON, text) == "False False"
    assert await output(*PYTHON, text, process_group=0) == "True False"
    assert await output(*PYTHON, text, start_new_session=True) == "True True"


async def test_pipesize(loop):
    transport, protocol = await spawn("cat", stdin=PIPE, pipesize=8192)
    assert fcntl.fcntl(transport.get_extra_info("subprocess").stdin, fcntl.F_GETPIPE_SZ) == 8192
    transport.get_pipe_transport(0).close()
    await protocol.lost()


async def test_descriptors(loop, sockets):
    r, w = os.pipe()
    try:
        os.set_inheritable(w, True)
        text = f"import os\ntry: os.fstat({w}); print('open')\nexcept OSError: print('closed')"
        assert await output(*PYTHON, text) == "closed"
        assert await output(*PYTHON, text, close_fds=False) == "open"
        os.set_inheritable(w, False)
        assert await output(*PYTHON, text, pass_fds=(w,)) == "open"
        assert not os.get_inheritable(w)
    finally:
        os.close(r)
        os.close(w)


async def test_restore_signals(loop):
    """The interpreter ignores SIGPIPE; a child does only if asked."""
    mask = "grep SigIgn /proc/self/status"
    restored = int((await output("sh", "-c", mask)).split()[1], 16)
    kept = int((await output("sh", "-c", mask, restore_signals=False)).split()[1], 16)
    bit = 1 << 12  # SIGPIPE
    assert (restored & bit, kept & bit) == (0, bit)


async def test_preexec_fn(loop):
    assert await output("sh", "-c", "pwd", preexec_fn=lambda: os.chdir("/")) == "/"
    # The loop is the parent's still.
    assert await output("echo", "after") == "after"


async def test_executable_cwd_and_environment(loop, tmp_path):
    assert await output("name", "-c", "echo $0", executable="/bin/sh") == "name"
    assert await output("pwd", cwd=tmp_path) == str(tmp_path)
    assert await output("/usr/bin/env", env={}) == ""
    assert await output("/usr/bin/env", env={"ONE": "1", "ZWEI": "zwölf"}) == "ONE=1\nZWEI=zwölf"


@pytest.mark.parametrize(
    "wrong",
    [
        {"universal_newlines": True},
        {"text": True},
        {"encoding": "utf-8"},
        {"errors": "strict"},
        {"bufsize": 1},
    ],
    ids=lambda wrong: next(iter(wrong)),
)
async def test_what_is_refused(loop, wrong):
    for start in (loop.subprocess_exec, loop.subprocess_shell):
        with pytest.raises(ValueError):
            await start(ChildNotes, "true", **wrong)


async def test_shell_or_not(loop):
    with pytest.raises(ValueError, match="shell must be False"):
        await loop.subprocess_exec(ChildNotes, "true", shell=True)
    with pytest.raises(ValueError, match="shell must be True"):
        await loop.subprocess_shell(ChildNotes, "true", shell=False)
    with pytest.raises(ValueError, match="cmd must be a string"):
        await loop.subprocess_shell(ChildNotes, ["true"])


# ---- what goes wrong


def _raise():
    raise ValueError


@pytest.mark.parametrize("pipes", [{}, {"stdin": PIPE, "stdout": PIPE, "stderr": PIPE}], ids=["bare", "pipes"])
@pytest.mark.parametrize(
    ("args", "options", "error"),
    [
        (["./missing"], {}, FileNotFoundError),
        (["./text"], {}, PermissionError),
        (["true"], {"cwd": "nowhere"}, FileNotFoundError),
        (["true"], {"preexec_fn": _raise}, subprocess.SubprocessError),
        (["true"], {"pass_fds": (999,)}, OSError),
        (["true"], {"nonsense": 1}, TypeError),
        (["a\0b"], {}, ValueError),
        ([], {}, TypeError),
    ],
    ids=["missing", "not executable", "no folder", "preexec_fn", "pass_fds", "keyword", "nul", "no program"],
)
async def test_a_child_that_cannot_start_leaves_nothing(loop, tmp_path, monkeypatch, pipes, args, options, error):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "text").write_text("text")
    before = fds()
    for _ in range(3):
        with pytest.raises(error):
            await asyncio.create_subprocess_exec(*args, **options, **pipes)
    await eventually(lambda: fds() == before)
    assert not has_children()


@pytest.mark.parametrize("pipes", [{}, {"stdin": PIPE, "stdout": PIPE, "stderr": PIPE}], ids=["bare", "pipes"])
async def test_cancelled_at_every_point(loop, pipes):
    """However far it got: no child, no zombie, no descriptor is left."""
    before = fds()
    done = False
    for steps in range(30):
        task = loop.create_task(asyncio.create_subprocess_exec(*SLEEP, **pipes))
        await turns(steps)
        if done := task.done():
            proc = task.result()
            proc.kill()
            await proc.communicate()
            break
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert done
    await eventually(lambda: fds() == before)
    await eventually(lambda: not has_children())


async def test_cancelled_twice(loop):
    """The second time while the first is waiting for the end of the child, which comes all the same."""
    task = loop.create_task(asyncio.create_subprocess_exec(*SLEEP))
    await turns(1)
    task.cancel()
    await turns(1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await eventually(lambda: not has_children())
    await turns(5)


async def test_a_cancelled_wait_and_communicate(loop):
    proc = await asyncio.create_subprocess_exec("sh", "-c", "echo early; exec sleep 60", stdout=PIPE)
    assert await proc.stdout.readline() == b"early\n"
    for wait in (proc.wait, proc.communicate):
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(wait(), 0.02)
    proc.kill()
    assert await proc.wait() == -9
    assert await proc.stdout.read() == b""


# ---- threads


def test_loops_in_threads_spawn_at_the_same_time(new_loop):
    """None of them in the main thread, each with its own children."""
    start = threading.Barrier(4)

    def work(loop):
        async def main():
            start.wait()
            for n in range(12):
                assert await output("sh", "-c", f"echo {n}") == str(n)
                proc = await asyncio.create_subprocess_exec("sh", "-c", f"exit {n}")
                assert await proc.wait() == n

        loop.run_until_complete(main())

    ends = [start_thread(work, new_loop()) for _ in range(4)]
    for end in ends:
        end()
    assert not has_children()


async def test_a_signal_from_another_thread(loop):
    transport, protocol = await spawn(*SLEEP)
    await asyncio.to_thread(transport.kill)
    await protocol.lost()
    assert transport.get_returncode() == -9
