"""uvpy beside asyncio, other loops, floors and neighbours: times, by turns of fresh processes (rounds.py), or
instructions (--callgrind), or the report that is made from such runs (--report).

A ratio compares a contender with asyncio in the same lap; the table gives the median of the laps' and then of the
rounds', above 1 where it is better. asyncio plays a second time as a control: where it strays from itself, the case is
void. A void case has further rounds at the end, which count beside those it had.

Exit status: 0; 1 when a sample failed or the baseline is passed; 2 when a case is void.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import hashlib
import json
import math
import os
import platform
import sys
import time
from pathlib import Path
from typing import Any

import baseline
import callgrind
import cases
import loops
import native
import quota
import report
import results
import syscalls
import targets
from cases import CASES, COUNTED, FAMILIES
from native import Failed
from rounds import Plan, play
from stats import Ratio

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from devlib import services
from devlib.steps import Failure

LENGTHS = {"full": (3, 6, 1.0, 42 * 60.0), "quick": (5, 2, 0.5, 300.0), "smoke": (1, 2, 0.3, math.inf)}
"""Rounds, laps, scale of the turns, seconds."""


def build_of(labels: list[str]) -> dict[str, str]:
    """What tells one build of a loop's library from another."""
    libraries = {label: loops.library(label) for label in labels}
    return {label: hashlib.sha256(path.read_bytes()).hexdigest()[:16] for label, path in libraries.items() if path}


def machine() -> dict[str, Any]:
    text = Path("/proc/cpuinfo").read_text() if Path("/proc/cpuinfo").exists() else ""
    names = [line.partition(": ")[2] for line in text.splitlines() if line.startswith("model name")]
    return {
        "system": platform.platform(),
        "processor": names[0] if names else platform.processor(),
        "cores": os.cpu_count(),
        "compiler": platform.python_compiler(),
        "calls counted by": syscalls.tool() or "nothing",
        "load": [round(value, 2) for value in os.getloadavg()],
    }


def plain(value: Any) -> Any:
    """With names to the parts of a ratio, as JSON should have them."""
    if isinstance(value, Ratio):
        return value._asdict()
    if isinstance(value, dict):
        return {name: plain(inner) for name, inner in value.items()}
    return value


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    length = parser.add_mutually_exclusive_group()
    length.add_argument("--quick", dest="length", action="store_const", const="quick", help="five minutes at most")
    length.add_argument("--smoke", dest="length", action="store_const", const="smoke", help="only to see that all runs")
    parser.add_argument("--rounds", type=int, help="fresh starts of each contender at each case (3)")
    parser.add_argument("--minutes", type=float, help="not longer than this")
    parser.add_argument("--only", metavar="CASES", default="*", help="families and cases (with *), with commas between")
    parser.add_argument("--loops", metavar="LABELS", help="only these besides asyncio and its control, with ; between")
    parser.add_argument("--list", action="store_true", help="list families, cases and contenders")
    parser.add_argument("--json", metavar="OUT", type=Path, help="write samples and results to this file")
    parser.add_argument("--pin", action="store_true", help="a server on one core, its load on another")
    parser.add_argument("--seed", type=int, default=time.time_ns() % 1_000_000, help="of the order of the samples")
    parser.add_argument("--callgrind", action="store_true", help="instructions of the micro cases and of TCP echo")
    parser.add_argument("--check", action="store_true", help="with --callgrind: compare uvpy's with the baseline")
    parser.add_argument("--renew", action="store_true", help="with --callgrind: store uvpy's as the baseline")
    parser.add_argument("--report", metavar="JSON", type=Path, nargs="+", help="write RESULTS.md from these files")
    args = parser.parse_args()
    if (args.check or args.renew) and not args.callgrind:
        parser.error("--check and --renew are for --callgrind")
    args.length = args.length or "full"
    return args


def _list() -> None:
    for family, names in FAMILIES.items():
        print(f"{family}:")
        for name, case in names.items():
            print(f"  {name:24} {case.text}")
    print(f"counted by --callgrind: {', '.join(COUNTED)}")
    print(f"contenders: {'; '.join(loops.CONTENDERS)}")


def _check_or_renew(args: argparse.Namespace, names: list[str]) -> int:
    """Of our loop alone: compares its counts with the stored ones, or stores them."""
    stored, here = baseline.load(), baseline.key()
    wanted = {} if args.renew else baseline.expected(stored, here)
    counted = baseline.counts(callgrind.count(names, [loops.OURS]))
    if args.renew:
        baseline.store(baseline.renewed(stored, here, counted))
        print(f"stored {len(counted)} counts for {here['python']}")
        return 0
    worse, better = baseline.compare(wanted, counted)
    for text in worse:
        print(f"WORSE: {text}")
    for text in better:
        print(f"better, {baseline.RENEW}: {text}")
    print(f"{len(counted)} counts compared with the baseline, {len(worse)} worse by more than {baseline.LIMIT:.0%}")
    return 1 if worse else 0


def _services(stack: contextlib.ExitStack, names: list[str]) -> tuple[list[str], dict[str, str]]:
    """The cases that can be played, with the servers they need started, and what says where these are."""
    env, without = {}, set()
    for service in sorted({CASES[name].service for name in names} - {""}):
        try:
            env[f"BENCH_{service.upper()}"] = str(stack.enter_context(services.SERVICES[service]()).port)
        except Failure as failure:
            print(f"left out what needs {service}: {failure}")
            without.add(service)
    limited = {name for name in names if getattr(CASES[name], "quota", 0)}
    if limited and (reason := quota.why_not()):
        print(f"left out what needs a quota: {reason}")
        names = [name for name in names if name not in limited]
    return [name for name in names if CASES[name].service not in without], env


def _versions(only: str | None) -> dict[str, str | None]:
    wanted = None if only is None else {loops.BASE, loops.CONTROL, *only.split(";")}
    if wanted and (unknown := wanted - loops.CONTENDERS.keys()):
        raise Failed(f"no contender is called {', '.join(unknown)}")
    labels = [label for label in loops.CONTENDERS if wanted is None or label in wanted]
    found = {label: loops.version(label, native.floor_version) for label in labels}
    ours, floor = found.get(loops.OURS), found.get(loops.FLOOR)
    if ours and floor and ours.rpartition(" ")[2] != floor.rpartition(" ")[2]:
        print(f"{loops.FLOOR} is left out: {floor}, but {ours}")
        found[loops.FLOOR] = None
    return found


def _measure(args: argparse.Namespace, names: list[str], labels: list[str]) -> tuple[dict[str, Any], list[str]]:
    """What is told of the times, and the cases that are void."""
    rounds, laps, scale, within = LENGTHS[args.length]
    within = args.minutes * 60 if args.minutes else within

    def say(text: str) -> None:
        print(text, flush=True)

    with contextlib.ExitStack() as stack:
        names, env = _services(stack, names)
        aimed = targets.cases()
        first, others = [n for n in names if n in aimed], [n for n in names if n not in aimed]
        plan = Plan(args.rounds or rounds, laps, scale, first, others, labels, args.seed, args.pin, within, env)
        again = args.length == "full"
        samples = play(plan, say, lambda found: report.strayed(report.summarize(found, labels)) if again else ())
    found = report.summarize(samples, labels)
    void = report.strayed(found)
    print(f"\n{report.show(found, void)}")
    failed = [f"{s.case} on {s.label}: {s.error}" for s in samples if s.error]
    told = {
        "results": plain(found),
        "void": void,
        "failures": failed,
        "samples": [sample._replace(histogram=[])._asdict() for sample in samples],
    }
    return told, failed


def _run(args: argparse.Namespace) -> int:
    names = cases.chosen(args.only, COUNTED if args.callgrind else CASES)
    if not names:
        raise Failed(f"no case is called {args.only}")
    if args.check or args.renew:
        return _check_or_renew(args, names)
    versions = _versions(args.loops)
    for label, text in versions.items():
        print(f"{label:24} {text or 'left out: it is not there'}")
    labels = [label for label, text in versions.items() if text]
    builds = build_of(labels)
    told: dict[str, Any] = {
        "format": 3,
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "arguments": sys.argv[1:],
        "seed": args.seed,
        "machine": machine(),
        "versions": versions,
        "builds": builds,
    }
    print("machine                  " + ", ".join(f"{name} {value}" for name, value in told["machine"].items()))
    if args.callgrind:
        counting = {**loops.LOOPS, **loops.FASTNET, **loops.FLOORS}
        chosen = [label for label in labels if label in counting and label != loops.CONTROL]
        counted = callgrind.count(names, chosen)
        told["instructions"] = counted
        failures = [f"{c} on {label}: {r}" for c, rows in counted.items() for label, r in rows.items() if r is str(r)]
        print(f"\n{callgrind.show(counted)}")
    else:
        print(f"seed                     {args.seed}\n")
        more, failures = _measure(args, names, labels)
        told |= more
    void = dict(told.get("void", {}))
    if build_of(labels) != builds:
        void["all"] = "a loop was built anew while it was measured"
    told |= {"void": void, "failures": failures, "load_at_end": os.getloadavg()}
    if args.json:
        args.json.write_text(json.dumps(told) + "\n")
    for text in sorted(set(failures)):
        print(f"FAILED {failures.count(text)} times: {text}")
    for name, text in void.items():
        print(f"VOID: {name}: {text}")
    if void:
        print("What is void says nothing: repeat it on a quieter machine, or with more rounds.")
        return 2
    return 1 if failures else 0


def main() -> int:
    args = _arguments()
    try:
        if args.list:
            _list()
            return 0
        if args.report:
            results.write([json.loads(file.read_text()) for file in args.report])
            return 0
        return _run(args)
    except (Failed, Failure) as failed:
        sys.exit(f"bench: {failed}")


if __name__ == "__main__":
    sys.exit(main())
