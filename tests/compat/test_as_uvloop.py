"""The stand-in for uvloop, and `python -m uvpy exec`; each in an interpreter of its own."""

import os
import pathlib
import subprocess
import sys

import pytest
import uvpy.compat


def python(*arguments, cwd=None, **environment):
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=cwd,
        env={**os.environ, "PYTHONWARNINGS": "error", **environment},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
    )
    return done.returncode, done.stdout.strip(), done.stderr.strip()


def code(text):
    status, out, err = python("-c", text)
    assert (status, err) == (0, ""), err
    return out


AS_UVLOOP = "import asyncio, uvpy, uvpy.compat\nstand_in = uvpy.compat.as_uvloop()\nimport uvloop\n"


def test_names():
    out = code(
        AS_UVLOOP
        + "import uvloop.loop\n"
        + "assert uvloop is stand_in is uvpy.compat.as_uvloop()\n"
        + "assert uvloop.Loop is uvloop.loop.Loop is uvpy.Loop\n"
        + "assert uvloop.EventLoopPolicy is uvpy.EventLoopPolicy and uvloop.install is uvpy.install\n"
        + "assert uvloop.__version__.endswith(uvpy.__version__)\n"
        + "major, minor, patch = map(int, uvpy.libuv_version.split('.'))\n"
        + "assert uvloop.loop.libuv_get_version() == (major * 256 + minor) * 256 + patch\n"
        + "import importlib.util\nassert importlib.util.find_spec('uvloop').origin == uvloop.__file__\n"
        + "loop = uvloop.new_event_loop()\nprint(type(loop).__name__)\nloop.close()\n"
    )
    assert out == "Loop"


def test_nothing_happens_by_itself():
    out = code("import sys, uvpy, uvpy.compat, uvpy.gunicorn, uvpy.__main__\nprint('uvloop' in sys.modules)")
    assert out == "False"


def test_run():
    out = code(
        AS_UVLOOP
        + "async def main():\n    return type(asyncio.get_running_loop()) is uvpy.Loop\n"
        + "print(uvloop.run(main()), uvloop.run(main(), debug=True))\n"
        + "try:\n    uvloop.run(main(), loop_factory=asyncio.SelectorEventLoop)\n"
        + "except TypeError as error:\n    print(error)\n"
    )
    assert out.splitlines() == ["True True", "uvloop.run() uses a non-uvloop event loop"]


@pytest.mark.skipif(sys.version_info >= (3, 14), reason="policies are deprecated")
def test_install():
    assert (
        code(AS_UVLOOP + "uvloop.install()\nl = asyncio.new_event_loop()\nl.close()\nprint(type(l).__name__)") == "Loop"
    )


def test_uvloop_itself_is_not_replaced(tmp_path):
    (tmp_path / "uvloop.py").write_text("")
    text = "import uvloop, uvpy.compat\ntry:\n    uvpy.compat.as_uvloop()\nexcept RuntimeError as e:\n    print(e)"
    status, out, err = python("-c", text, PYTHONPATH=str(tmp_path))
    assert (status, err) == (0, "")
    assert "is imported already" in out
    # Asked before, the stand-in is what is found.
    status, out, err = python("-c", AS_UVLOOP + "print(uvloop is stand_in)", PYTHONPATH=str(tmp_path))
    assert (status, out, err) == (0, "True", "")


PRINT = "import uvloop, sys; print(uvloop.__file__, sys.argv)"


@pytest.mark.parametrize("how", ["-c", "file", "-m", "command"])
def test_exec(tmp_path, how):
    script = tmp_path / "uvpy_exec_probe.py"
    script.write_text(f"#!{sys.executable}\n{PRINT}\n")
    script.chmod(0o755)
    command = {"-c": ["-c", PRINT], "file": [str(script)], "-m": ["-m", script.stem], "command": [script.name]}[how]
    paths = {"PYTHONPATH": str(tmp_path), "PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"}
    status, out, err = python("-m", "uvpy", "exec", *command, "-x", "--help", **paths)
    assert (status, err) == (0, "")
    file, _, argv = out.partition(" ")
    assert pathlib.Path(file).is_relative_to(uvpy.compat.STAND_IN)
    assert argv.endswith("'-x', '--help']")


def test_exec_reaches_spawned_children(tmp_path):
    script = tmp_path / "spawns.py"
    script.write_text(
        "import multiprocessing\n"
        "def child(queue):\n    import uvloop\n    queue.put(uvloop.__version__)\n"
        "if __name__ == '__main__':\n"
        "    context = multiprocessing.get_context('spawn')\n    queue = context.Queue()\n"
        "    process = context.Process(target=child, args=(queue,))\n    process.start()\n"
        "    print(queue.get(timeout=60))\n    process.join()\n"
    )
    status, out, err = python("-m", "uvpy", "exec", str(script))
    assert (status, err) == (0, "")
    assert out.endswith(f"+uvpy.{uvpy.__version__}")


def test_exec_keeps_the_interpreters_options():
    out = python("-X", "dev", "-W", "ignore", "-m", "uvpy", "exec", "-c", "import sys; print(sys.flags.dev_mode)")[1]
    assert out == "True"


def test_exec_of_a_command_beside_a_folder_of_its_name(tmp_path):
    (tmp_path / "folder" / "probe").mkdir(parents=True)
    script = tmp_path / "probe"
    script.write_text(f"#!{sys.executable}\n{PRINT}\n")
    script.chmod(0o755)
    paths = {"PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"}
    status, out, err = python("-m", "uvpy", "exec", "probe", cwd=tmp_path / "folder", **paths)
    assert (status, err) == (0, "")
    assert out.startswith(uvpy.compat.STAND_IN)


@pytest.mark.parametrize(
    "options", [["-I"], ["-E"], ["-IS"], ["-SE"], ["-u", "-I"], ["-W", "ignore", "-E"], ["-Xdev", "-BE"]]
)
def test_exec_refuses_isolation(options):
    status, out, err = python("-m", "uvpy", "exec", *options, "-c", "print(1)")
    assert (status, out) == (1, "")
    assert f"which {options[-1]} ignores" in err


@pytest.mark.parametrize(
    "command", [["-c", PRINT, "-I"], ["-W", "ignore::ImportWarning", "-c", PRINT], ["-Xutf8=1", "-Bc", PRINT, "-E"]]
)
def test_exec_leaves_what_only_looks_like_isolation(command):
    status, out, err = python("-m", "uvpy", "exec", *command)
    assert (status, err) == (0, "")
    assert out.startswith(uvpy.compat.STAND_IN)


def test_exec_of_nothing():
    status, _out, err = python("-m", "uvpy", "exec")
    assert status == 1
    assert "what is to be run?" in err


def test_exec_status_is_the_programs():
    assert python("-m", "uvpy", "exec", "-c", "raise SystemExit(7)")[0] == 7


def test_a_gunicorn_whose_worker_makes_its_loop_otherwise():
    status, _out, err = python(
        "-c",
        "import sys, types\nname = 'gunicorn.workers.gasgi'\n"
        "for part in ('gunicorn', 'gunicorn.workers', name): sys.modules[part] = types.ModuleType(part)\n"
        "sys.modules[name].ASGIWorker = object\nimport uvpy.gunicorn\nuvpy.gunicorn.ASGIWorker",
    )
    assert status == 1
    assert "makes its loop in another way" in err


def test_gunicorn_workers_are_made_when_asked_for():
    status, _out, err = python("-c", "import uvpy.gunicorn as g; g.NoSuchWorker")
    assert status == 1
    assert "has no attribute 'NoSuchWorker'" in err
