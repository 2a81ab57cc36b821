"""The rules of the source tree: who includes whom, how long a file may be; and that the check of them bites.

SPDX-License-Identifier: MIT
"""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="module")
def layers() -> ModuleType:
    spec = importlib.util.spec_from_file_location("layers", ROOT / "tools" / "layers.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_tree_keeps_the_rules(layers: ModuleType) -> None:
    assert layers.check(ROOT) == []


@pytest.mark.parametrize(
    ("name", "text", "what"),
    [
        ("core/loop.h", '#include "net/tcp.h"', "core must not include"),
        ("uv/handle.h", '#include "py/ref.h"', "uv must not include"),
        ("uv/handle.h", "#include <Python.h>", "knows nothing of CPython"),
        ("py/ref.h", '#include "state.h"', "py must not include"),
        ("py/ref.h", "#include <uv.h>", "knows nothing of libuv"),
        ("state.h", '#include "core/loop.h"', "state must not include"),
        ("core/loop.h", '#include "module.h"', "core must not include"),
        ("net/tcp.cpp", '# include  "../process/child.h"', "net must not include"),
        ("core/loop.h", "#if PY_VERSION_HEX >= 0x030c0000\n#endif", "compat.h only"),
        ("stray/thing.h", "", "belongs to no layer"),
    ],
)
def test_a_breach_is_seen(layers: ModuleType, tmp_path: Path, name: str, text: str, what: str) -> None:
    csrc = tmp_path / "csrc"
    for existing in ("net/tcp.h", "py/ref.h", "core/loop.h", "process/child.h", "state.h", "module.h"):
        (csrc / existing).parent.mkdir(parents=True, exist_ok=True)
        (csrc / existing).write_text("#pragma once\n")
    assert layers.check(tmp_path) == []
    (csrc / name).parent.mkdir(parents=True, exist_ok=True)
    (csrc / name).write_text(f"// a comment\n{text}\n")
    (wrong,) = layers.check(tmp_path)
    assert what in wrong


def test_what_comments_and_texts_say_is_no_breach(layers: ModuleType, tmp_path: Path) -> None:
    csrc = tmp_path / "csrc"
    (csrc / "uv").mkdir(parents=True)
    (csrc / "py").mkdir()
    (csrc / "uv" / "handle.h").write_text('// #include <Python.h>\n/*\n#include "py/ref.h"\n*/\n')
    (csrc / "py" / "ref.h").write_text('const char* text = "PY_VERSION_HEX";  // PY_VERSION_HEX\n')
    assert layers.check(tmp_path) == []


def test_a_long_file_is_seen(layers: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "csrc" / "core").mkdir(parents=True)
    (tmp_path / "csrc" / "core" / "loop.cpp").write_text("\n" * 601)
    (wrong,) = layers.check(tmp_path)
    assert "601 lines" in wrong


def test_the_version_is_written_once() -> None:
    """meson.build has it; it is not repeated in Python or C++."""
    import uvpy

    assert f"version: '{uvpy.__version__}'" in (ROOT / "meson.build").read_text()
    files = [*(ROOT / "csrc").rglob("*.cpp"), *(ROOT / "csrc").rglob("*.h"), *(ROOT / "uvpy").glob("*.py")]
    repeated = [file for file in files if f'"{uvpy.__version__}"' in file.read_text()]
    assert repeated == []
