"""`python -m uvpy`: what is installed (info), and programs started with uvpy in the place of uvloop (exec)."""

from __future__ import annotations

import argparse
import asyncio
import os
import platform
import shutil
import subprocess
import sys
from typing import NoReturn

import uvpy
import uvpy.compat


def _loop_asyncio_makes() -> str:
    """The class of the loop that asyncio.new_event_loop() gives in this process, or why it gives none."""
    try:
        loop = asyncio.new_event_loop()
    except Exception as error:
        return f"no loop: {type(error).__name__}: {error}"
    loop.close()
    return f"{type(loop).__module__}.{type(loop).__qualname__}"


def _info() -> int:
    rows = {
        **uvpy.build_info(),
        "platform": platform.platform(),
        "UVPY_GIL": os.environ.get("UVPY_GIL") or "not set (adaptive)",
        "imported from": os.path.dirname(uvpy.__file__),
        "asyncio makes": _loop_asyncio_makes(),
    }
    width = max(map(len, rows))
    for name, value in rows.items():
        print(f"{name:{width}}  {value}")
    return 0


def _isolating(command: list[str]) -> str | None:
    """The option among Python's own, before what it is to run, by which it ignores PYTHONPATH."""
    words = iter(command)
    for word in words:
        if not word.startswith("-") or word == "-" or word.startswith("--"):
            return None
        for place, letter in enumerate(word[1:], 1):
            if letter in "IE":
                return word
            if letter in "cm":  # what follows is the program's
                return None
            if letter in "WX":  # with a value, here or in the next word
                if place == len(word) - 1:
                    next(words, None)
                break
    return None


def _is_program(path: str) -> bool:
    """Whether Python can run it as it stands: a file, or a folder made for that."""
    return os.path.isfile(path) or os.path.exists(os.path.join(path, "__main__.py"))


def _exec(command: list[str]) -> NoReturn:
    """Become the program of `python -m uvpy exec`, with the stand-in for uvloop on its path and its children's."""
    if not command:
        sys.exit("python -m uvpy exec: what is to be run? -m MODULE, -c CODE, a file, or a command")
    options = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]
    first = command[0]
    if isolating := _isolating([*options, *command]):
        sys.exit(f"python -m uvpy exec: the stand-in comes by PYTHONPATH, which {isolating} ignores")
    path = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = f"{uvpy.compat.STAND_IN}{os.pathsep}{path}" if path else uvpy.compat.STAND_IN
    program = None if first.startswith("-") or _is_program(first) else shutil.which(first)
    sys.stdout.flush()
    sys.stderr.flush()
    if program is not None:
        os.execv(program, command)
    os.execv(sys.executable, [sys.executable, *options, *command])


def main(argv: list[str] | None = None) -> int:
    """Run the command line; its exit status."""
    parser = argparse.ArgumentParser(prog="python -m uvpy", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("info", help="versions, build, and the loop that asyncio would make now")
    sub = commands.add_parser(
        "exec",
        help="run a program with uvpy in the place of uvloop",
        description="Run a program, and what Python it starts, with uvpy in the place of uvloop: "
        "python -m uvpy exec -m MODULE ..., -c CODE ..., FILE ..., or a command on the PATH that is written in Python.",
        usage="python -m uvpy exec -m MODULE ... | -c CODE ... | FILE ... | COMMAND ...",
    )
    sub.add_argument("rest", nargs=argparse.REMAINDER, metavar="...", help="what is to be run")
    words = sys.argv[1:] if argv is None else argv
    # Not left to argparse: it would take the program's own options for ours.
    if words[:1] == ["exec"] and words[1:2] not in (["-h"], ["--help"]):
        _exec(words[1:])
    parser.parse_args(words)
    return _info()


if __name__ == "__main__":
    sys.exit(main())
