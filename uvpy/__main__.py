"""`python -m uvpy info`: what is installed and which loop asyncio would make now."""

from __future__ import annotations

import argparse
import asyncio
import platform
import sys

import uvpy


def _loop_asyncio_makes() -> str:
    """The class of the loop that asyncio.new_event_loop() gives in this process."""
    loop = asyncio.new_event_loop()
    loop.close()
    return f"{type(loop).__module__}.{type(loop).__qualname__}"


def main(argv: list[str] | None = None) -> int:
    """Run the command line; its exit status."""
    parser = argparse.ArgumentParser(prog="python -m uvpy", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("info", help="versions, build, and the loop that asyncio would make now")
    parser.parse_args(argv)
    rows = {**uvpy.build_info(), "platform": platform.platform(), "asyncio makes": _loop_asyncio_makes()}
    width = max(map(len, rows))
    for name, value in rows.items():
        print(f"{name:{width}}  {value}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
