# SPDX-License-Identifier: MIT
"""What we expect of CPython's tests: reads expected.toml and judges results by it, in both directions.

A test that does not do what its entry says fails the run, also when it passes; so does an entry that matches
no test. Otherwise the file would only ever grow, and would hide the next regression of a test it names.
"""

from __future__ import annotations

import dataclasses
import fnmatch
import operator
import re
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

STATUSES = ("fail", "error", "timeout", "crash", "skip", "deselect")
KINDS = ("internal", "duplicate", "deviation", "bug", "platform")
FIELDS = {"id", "python", "status", "reason", "kind", "link"}

Version = tuple[int, ...]

_COMPARE: dict[str, Callable[[Version, Version], bool]] = {
    ">=": operator.ge,
    "<=": operator.le,
    "==": operator.eq,
    "!=": operator.ne,
    ">": operator.gt,
    "<": operator.lt,
}


class BadExpectations(Exception):
    """The file breaks its own format."""


def version_in(ranges: str, version: Version) -> bool:
    """Whether (3, 12, 1) lies in `>=3.11,<3.13`; compared as precisely as the text, so in `==3.12` too."""
    for part in ranges.split(","):
        match = re.fullmatch(r"\s*(>=|<=|==|!=|>|<)\s*(\d+(?:\.\d+)*)\s*", part)
        if match is None:
            raise BadExpectations(f"not a version range: {ranges!r}")
        bound = tuple(int(number) for number in match[2].split("."))
        if not _COMPARE[match[1]](version[: len(bound)], bound):
            return False
    return True


@dataclasses.dataclass
class Entry:
    """One [[expect]] of the file."""

    id: str
    status: str
    reason: str
    kind: str
    python: str = ">=3.11"
    link: str = ""
    matched: int = 0

    @property
    def module(self) -> str:
        """The module that the glob is about; may itself hold wildcards."""
        return self.id.partition(".")[0]

    def check(self) -> None:
        """Raise BadExpectations where the entry breaks the format."""
        if self.status not in STATUSES:
            raise BadExpectations(f"{self.id}: status {self.status!r} is none of {', '.join(STATUSES)}")
        if self.kind not in KINDS:
            raise BadExpectations(f"{self.id}: kind {self.kind!r} is none of {', '.join(KINDS)}")
        if (self.status == "deselect") != (self.kind == "duplicate"):
            raise BadExpectations(f"{self.id}: `deselect` is for duplicates, and duplicates are for `deselect`")
        if not self.reason.strip():
            raise BadExpectations(f"{self.id}: no reason given")
        if self.kind == "bug" and not self.link:
            raise BadExpectations(f"{self.id}: an entry of kind `bug` needs a link to its issue")
        version_in(self.python, (3, 11, 0))


class Expectations:
    """The entries that apply to one Python version, in the file's order: the first that matches decides."""

    def __init__(self, entries: list[Entry], version: Version) -> None:
        self.entries = [entry for entry in entries if version_in(entry.python, version)]

    @classmethod
    def load(cls, path: Path, version: Version) -> Expectations:
        """Read the file; BadExpectations where it is not in order."""
        try:
            data: dict[str, Any] = tomllib.loads(path.read_text(encoding="utf-8"))
        except tomllib.TOMLDecodeError as exc:
            raise BadExpectations(f"{path.name}: {exc}") from None
        entries = []
        for number, fields in enumerate(data.get("expect", []), 1):
            missing = {"id", "status", "reason", "kind"} - fields.keys()
            unknown = fields.keys() - FIELDS
            if missing or unknown:
                wrong = f"missing {sorted(missing)}, unknown {sorted(unknown)}"
                raise BadExpectations(f"{path.name}: entry {number}: {wrong}")
            entry = Entry(**fields)
            entry.check()
            entries.append(entry)
        return cls(entries, version)

    def rules(self) -> list[tuple[str, bool]]:
        """(glob, keep) rows by which the child leaves out the deselected tests before running anything."""
        return [(entry.id, entry.status != "deselect") for entry in self.entries]

    def find(self, test: str) -> Entry | None:
        """The entry that decides about a test; marks it as one that is in use."""
        for entry in self.entries:
            if fnmatch.fnmatchcase(test, entry.id):
                entry.matched += 1
                return entry
        return None

    def stale(self, complete: set[str], whole: bool) -> list[Entry]:
        """Entries that decided nothing, though the modules they are about were run from end to end.

        `complete` holds the names of these modules, `whole` says that all modules there are were among them.
        """
        return [entry for entry in self.entries if not entry.matched and (whole or entry.module in complete)]
