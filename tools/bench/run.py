"""uvpy beside asyncio and uvloop: times, by turns of fresh processes (rounds.py), or instructions (--callgrind).

A ratio compares a loop with asyncio in the same lap; the table gives the median of the laps' and then of the rounds',
above 1 where the loop is faster. asyncio plays a second time as a control: where it strays from itself by more than
5 %, the run is void.

Exit status: 0; 1 when a sample failed; 2 when the run is void.
"""

from __future__ import annotations

import argparse
import datetime
import fnmatch
import hashlib
import json
import math
import os
import platform
import sys
import time
from pathlib import Path
from typing import Any

import callgrind
import loops
import report
import workloads
from players import Failed, load_generator
from rounds import FULL, QUICK, Plan, play
from stats import Ratio

QUICK_SECONDS = 55.0


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


def _plain(results: dict[str, report.Result]) -> dict[str, Any]:
    """The results with names to the parts of a ratio, as JSON should have them."""

    def row(values: report.Row) -> dict[str, Any]:
        return {name: v._asdict() if isinstance(v, Ratio) else v for name, v in values.items()}

    return {case: {label: row(values) for label, values in result.items()} for case, result in results.items()}


def _plan(args: argparse.Namespace, cases: list[str], labels: list[str]) -> Plan:
    times, within = (QUICK, QUICK_SECONDS) if args.quick else (FULL, math.inf)
    load = load_generator() if any(case in workloads.ECHO for case in cases) else None
    return Plan(args.rounds, times, cases, labels, args.seed, load, args.pin, within)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, help="rounds to take (11; with --quick at most 7)")
    parser.add_argument("--quick", action="store_true", help="short samples, and as many rounds as a minute holds")
    parser.add_argument("--only", metavar="GLOB", default="*", help=f"only these of {', '.join(workloads.CASES)}")
    parser.add_argument("--json", metavar="OUT", type=Path, help="write all samples and results to this file")
    parser.add_argument("--pin", action="store_true", help="an echo's server on one core, its load on another")
    parser.add_argument("--seed", type=int, default=time.time_ns() % 1_000_000, help="of the order of the samples")
    parser.add_argument("--callgrind", action="store_true", help="instructions of the micro cases instead, in minutes")
    args = parser.parse_args()
    args.rounds = args.rounds or (7 if args.quick else 11)
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
            samples = play(_plan(args, cases, labels), lambda text: print(text, flush=True))
            results = report.summarize(samples, labels)
            failures = [f"{s.case} on {s.label}" for s in samples if s.error]
            void = report.strayed(results)
            told["samples"] = [sample._asdict() for sample in samples]
            told["results"] = _plain(results)
            print(f"\n{report.show(results)}")
    except Failed as failed:
        sys.exit(f"bench: {failed}")
    if build_of(labels) != builds:
        void.append("a loop was built anew while it was measured")
    told |= {"void": void, "failures": failures, "load_at_end": os.getloadavg()}
    if args.json:
        args.json.write_text(json.dumps(told) + "\n")
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
