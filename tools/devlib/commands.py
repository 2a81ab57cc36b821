"""The subcommands of tools/dev: what each takes and what it calls."""

from __future__ import annotations

import argparse
import sys

from . import builds
from .builds import Env
from .steps import Failure, relative, step


def build(args: argparse.Namespace) -> int:
    env = Env.of(args.python)
    variant = builds.VARIANTS[args.variant]
    env.build(variant)
    step(f"built {relative(env.site(variant))}; import it with {relative(env.python)}")
    return 0


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="tools/dev")
    commands = parser.add_subparsers(required=True)
    sub = commands.add_parser("build")
    sub.add_argument("--python")
    sub.add_argument("--variant", default="main")
    sub.set_defaults(run=build)
    args = parser.parse_args(argv)
    try:
        return int(args.run(args))
    except Failure as failure:
        print(f"tools/dev: {failure}", file=sys.stderr)
        return 1
