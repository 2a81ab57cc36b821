"""`python -m uvpy info`: what is installed and which loop asyncio would make now."""

from __future__ import annotations

import argparse
import asyncio
import os
import platform
import sys

import uvpy


def _loop_asyncio_makes() -> str:
    """The class of the loop that asyncio.new_event_loop() gives in this process, or why it gives none."""
    try:
        loop = asyncio.new_event_loop()
    except Exception as error:
        return f"no loop: {type(error).__name__}: {error}"
    loop.close()
    return f"{type(loop).__module__}.{type(loop).__qualname__}"


def main(argv: list[str] | None = None) -> int:
    """Run the command line; its exit status."""
    parser = argparse.ArgumentParser(prog="python -m uvpy", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("info", help="versions, build, and the loop that asyncio would make now")
    parser.parse_args(argv)
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


if __name__ == "__main__":
    sys.exit(main())
