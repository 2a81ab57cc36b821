"""uvpy beside asyncio and uvloop: time by interleaved samples in fresh processes, or instructions (--callgrind).

Each round takes every case once on every loop, in an order that is shuffled for one round and reversed for the next.
A ratio compares a loop with asyncio within a round; the table gives the median over the rounds, above 1 where the
loop is faster. asyncio runs a second time as a control: where it strays from itself by more than 5 %, the run is void.

Exit status: 0; 1 when a sample failed; 2 when the run is void.
"""

from __future__ import annotations

import argparse
import datetime
import fnmatch
import hashlib
import json
import os
import platform
import random
import sys
import time
from pathlib import Path
from typing import Any

import callgrind
import loops
import report
import workloads
from report import Taken
from samples import Failed, Times, load_generator, take
from stats import Ratio

FULL = Times(micro=0.3, echo=1.0, warm_up=0.3)
QUICK = Times(micro=0.1, echo=0.4, warm_up=0.1)
QUICK_SECONDS = 55.0


def measure(cases: list[str], labels: list[str], args: argparse.Namespace, chance: random.Random) -> list[Taken]:
    times = QUICK if args.quick else FULL
    load = load_generator() if any(case in workloads.ECHO for case in cases) else None
    taken: list[Taken] = []
    began = time.monotonic()
    longest = 0.0
    plan: list[tuple[str, list[str]]] = []
    for number in range(args.rounds):
        if args.quick and number and time.monotonic() - began + longest > QUICK_SECONDS:
            print(f"no time for more than {number} rounds")
            break
        round_began = time.monotonic()
        plan = _reversed(plan) if number % 2 else _shuffled(cases, labels, chance)
        for case, order in plan:
            taken += [_sample(number, case, label, times, load) for label in order]
        longest = max(longest, time.monotonic() - round_began)
        print(f"[{time.monotonic() - began:6.1f}s] round {number + 1} of {args.rounds}", flush=True)
    return taken


def _shuffled(cases: list[str], labels: list[str], chance: random.Random) -> list[tuple[str, list[str]]]:
    return [(case, chance.sample(labels, len(labels))) for case in chance.sample(cases, len(cases))]


def _reversed(plan: list[tuple[str, list[str]]]) -> list[tuple[str, list[str]]]:
    return [(case, order[::-1]) for case, order in reversed(plan)]


def _sample(number: int, case: str, label: str, times: Times, load: Path | None) -> Taken:
    try:
        return Taken(number, case, label, take(case, loops.MODULES[label], times, load))
    except Failed as failed:
        print(f"FAILED: {case} on {label}: {failed}", flush=True)
        return Taken(number, case, label, None, str(failed))


def build_of(labels: list[str]) -> dict[str, str]:
    """What tells one build of a loop's library from another."""
    libraries = {label: loops.library(loops.MODULES[label]) for label in labels}
    return {label: hashlib.sha256(path.read_bytes()).hexdigest()[:16] for label, path in libraries.items() if path}


def machine() -> dict[str, Any]:
    text = Path("/proc/cpuinfo").read_text() if Path("/proc/cpuinfo").exists() else ""
    names = [line.partition(": ")[2] for line in text.splitlines() if line.startswith("model name")]
    return {
        "system": platform.platform(),
        "processor": names[0] if names else platform.processor(),
        "cores": os.cpu_count(),
        "compiler": platform.python_compiler(),
        "load": [round(value, 2) for value in os.getloadavg()],
    }


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, help="rounds to take (15; with --quick at most 7)")
    parser.add_argument("--quick", action="store_true", help="short samples, and as many rounds as a minute holds")
    parser.add_argument("--only", metavar="GLOB", default="*", help=f"only these of {', '.join(workloads.CASES)}")
    parser.add_argument("--json", metavar="OUT", type=Path, help="write all samples and results to this file")
    parser.add_argument("--seed", type=int, default=time.time_ns() % 1_000_000, help="of the order of the samples")
    parser.add_argument("--callgrind", action="store_true", help="count instructions of the micro cases instead")
    args = parser.parse_args()
    args.rounds = args.rounds or (7 if args.quick else 15)
    return args


def main() -> int:
    args = _arguments()
    cases = [case for case in workloads.CASES if fnmatch.fnmatchcase(case, args.only)]
    if args.callgrind:
        cases = [case for case in cases if case in workloads.MICRO]
    if not cases:
        sys.exit(f"no case is called {args.only}")
    versions = {label: loops.version(module) for label, module in loops.MODULES.items()}
    for label, text in versions.items():
        print(f"{label:14} {text or 'left out: it cannot be imported'}")
    labels = [label for label, text in versions.items() if text]
    builds = build_of(labels)
    told: dict[str, Any] = {
        "format": 1,
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "arguments": sys.argv[1:],
        "seed": args.seed,
        "machine": machine(),
        "versions": versions,
        "builds": builds,
    }
    print("machine        " + ", ".join(f"{name} {value}" for name, value in told["machine"].items()))

    failures = []
    void = []
    try:
        if args.callgrind:
            counted = callgrind.count(cases, [label for label in labels if label != loops.CONTROL])
            told["instructions"] = counted
            failures = [f"{c} on {label}" for c, rows in counted.items() for label, r in rows.items() if r is str(r)]
            print(f"\n{callgrind.show(counted)}")
        else:
            print(f"seed           {args.seed}\n")
            taken = measure(cases, labels, args, random.Random(args.seed))
            results = report.summarize(taken)
            results = {case: {label: results[case][label] for label in labels} for case in cases}
            failures = [f"{t.case} on {t.loop}" for t in taken if t.error]
            void = report.strayed(results)
            told["samples"] = [t._asdict() for t in taken]
            told["results"] = {
                case: {
                    label: {k: v._asdict() if isinstance(v, Ratio) else v for k, v in row.items()}
                    for label, row in result.items()
                }
                for case, result in results.items()
            }
            print(f"\n{report.show(results)}")
    except Failed as failed:
        sys.exit(f"bench: {failed}")
    if build_of(labels) != builds:
        void.append("a loop was built anew while it was measured")
    told |= {"void": void, "failures": failures, "load_at_end": os.getloadavg()}
    if args.json:
        args.json.write_text(json.dumps(told, indent=1) + "\n")
    for text in sorted(set(failures)):
        print(f"FAILED {failures.count(text)} times: {text}")
    for text in void:
        print(f"VOID: {text}")
    if void:
        print("This run says nothing: repeat it on a quieter machine, or with more rounds.")
        return 2
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
