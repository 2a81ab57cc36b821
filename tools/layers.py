#!/usr/bin/env python3
"""Who may include whom in csrc/, and how long a file may be. Prints what breaks the rule; exits with 1 then.

module -> process, net -> core -> state -> py -> CPython, and core, net, process -> uv -> libuv.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
BUDGET = 600
BUDGETED = ("csrc", "uvpy", "tools", "tests", "compat")

# What each layer may include of ours, itself besides.
MAY_INCLUDE = {
    "py": set(),
    "uv": set(),
    "state": {"py"},
    "core": {"py", "uv", "state"},
    "net": {"py", "uv", "state", "core"},
    "process": {"py", "uv", "state", "core"},
    "module": {"py", "uv", "state", "core", "net", "process"},
}
# Who knows nothing of the one library, and nothing of the other.
WITHOUT_PYTHON = {"uv"}
WITHOUT_LIBUV = {"py", "state"}
VERSIONED = Path("csrc/py/compat.h")

_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*(["<])([^">]+)[">]', re.MULTILINE)
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_STRING = re.compile(r'"(?:[^"\\\n]|\\.)*"')
_PYTHON_HEADER = re.compile(r"Python\.h|structmember\.h|frameobject\.h|datetime\.h|(cpython|internal)/.*")
_LIBUV_HEADER = re.compile(r"uv\.h|uv/(errno|version|unix|linux|tree|threadpool)\.h")


def layer_of(path: Path) -> str | None:
    """The layer of a file of csrc: its folder, or its own name when it stands at the top."""
    parts = path.parts
    name = parts[0] if len(parts) > 1 else path.stem
    return name if name in MAY_INCLUDE else None


def _includes(csrc: Path, file: Path) -> list[tuple[int, str, Path | None]]:
    """(line, what is written, the file of csrc it means or None)."""
    text = _COMMENT.sub(lambda m: re.sub(r"[^\n]", " ", m[0]), file.read_text())
    found = []
    for match in _INCLUDE.finditer(text):
        line = text.count("\n", 0, match.start()) + 1
        own = None
        if match[1] == '"':
            for base in (file.parent, csrc):
                if (base / match[2]).is_file():
                    own = (base / match[2]).resolve().relative_to(csrc.resolve())
                    break
        found.append((line, match[2], own))
    return found


def check_includes(csrc: Path) -> list[str]:
    """What is wrong with the includes of csrc."""
    wrong = []
    for file in sorted(p for p in csrc.rglob("*") if p.suffix in (".cpp", ".h")):
        inside = file.relative_to(csrc)
        layer = layer_of(inside)
        if layer is None:
            wrong.append(f"csrc/{inside}: belongs to no layer ({', '.join(MAY_INCLUDE)})")
            continue
        for line, written, own in _includes(csrc, file):
            place = f"csrc/{inside}:{line}"
            if own is not None:
                other = layer_of(own)
                if other == "module" or (other != layer and other not in MAY_INCLUDE[layer]):
                    wrong.append(f"{place}: {layer} must not include {own} (of {other})")
            elif layer in WITHOUT_PYTHON and _PYTHON_HEADER.fullmatch(written):
                wrong.append(f"{place}: {layer} knows nothing of CPython, but includes {written}")
            elif layer in WITHOUT_LIBUV and _LIBUV_HEADER.fullmatch(written):
                wrong.append(f"{place}: {layer} knows nothing of libuv, but includes {written}")
    return wrong


def check_versions(csrc: Path) -> list[str]:
    """Questions about CPython's version have one place."""
    wrong = []
    for file in sorted(p for p in csrc.rglob("*") if p.suffix in (".cpp", ".h")):
        if file == csrc.parent / VERSIONED:
            continue
        text = _STRING.sub('""', _COMMENT.sub(lambda m: re.sub(r"[^\n]", " ", m[0]), file.read_text()))
        for number, line in enumerate(text.splitlines(), 1):
            if "PY_VERSION_HEX" in line or "PY_MINOR_VERSION" in line:
                wrong.append(f"csrc/{file.relative_to(csrc)}:{number}: CPython's version is asked in {VERSIONED} only")
    return wrong


def check_budget(root: Path) -> list[str]:
    """No file over the budget; a stub is as long as the one module that it describes."""
    wrong = []
    for folder in BUDGETED:
        for file in sorted(p for p in (root / folder).rglob("*") if p.suffix in (".cpp", ".h", ".py")):
            length = file.read_text().count("\n")
            if length > BUDGET:
                wrong.append(f"{file.relative_to(root)}: {length} lines, the budget is {BUDGET}")
    return wrong


def check(root: Path) -> list[str]:
    """All that is wrong in a tree."""
    csrc = root / "csrc"
    return check_includes(csrc) + check_versions(csrc) + check_budget(root)


def main() -> int:
    wrong = check(ROOT)
    print("\n".join(wrong), end="\n" if wrong else "")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
