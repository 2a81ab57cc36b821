"""The cases, by family. Whatever loop runs them, the code is this; nothing here asks which it is."""

from __future__ import annotations

import fnmatch

import loops

from cases import clients, counted, loads, outside, pipes, scheduling, sockets, tasks, timers
from cases.kinds import Case, Load, Memory, Micro

FAMILIES: dict[str, dict[str, Case]] = {
    "scheduling": scheduling.CASES,
    "timers": timers.CASES,
    "tasks": tasks.CASES,
    "outside": outside.CASES,
    "pipes": pipes.CASES,
    "sockets": sockets.CASES,
    "clients": clients.CASES,
    **loads.FAMILIES,
}

COUNTED: dict[str, Micro] = {
    name: case
    for family in (*FAMILIES.values(), counted.CASES)
    for name, case in family.items()
    if isinstance(case, Micro) and case.counted
}
"""Those whose instructions can be counted."""

CASES: dict[str, Case] = {name: case for family in FAMILIES.values() for name, case in family.items()}

__all__ = ["CASES", "COUNTED", "FAMILIES", "Case", "Load", "Memory", "Micro", "chosen", "labels"]


def chosen(patterns: str, names: dict[str, Case] | dict[str, Micro]) -> list[str]:
    """The cases that any of the patterns means: a family's name, or a case's with wildcards."""
    words = patterns.split(",")
    families = {name for word in words if word in FAMILIES for name in FAMILIES[word]}
    return [n for n in names if n in families or any(fnmatch.fnmatchcase(n, word) for word in words)]


def labels(case: Case, there: list[str]) -> list[str]:
    """Who of those that are there plays the case."""
    bare = (loops.BARE,) if isinstance(case, Micro) and case.bare else ()
    return [label for label in there if label in loops.LOOPS or label in (*case.extras, *bare)]
