"""Puts libuv's sources where Meson looks for them.

The wrap names an archive on libuv's own site. Where that site cannot be reached, the same version is
taken from the sdist of uvloop, which carries it. Nothing of it is committed.
"""

from __future__ import annotations

import configparser
import hashlib
import re
import shutil
import tarfile
import tempfile
import urllib.request
from pathlib import Path, PurePosixPath

from .steps import ROOT, WORK, Command, Failure, locked, quiet, relative, step

# The sdist that carries the wrap's version of libuv.
CARRIER = "uvloop==0.23.0"
_INSIDE = "vendor/libuv"


def provide(python: Path) -> None:
    """Makes sure that subprojects/ has libuv: the archive of the wrap, or its sources with our build file."""
    parser = configparser.ConfigParser()
    parser.read(ROOT / "subprojects" / "libuv.wrap")
    wrap = parser["wrap-file"]
    folder = ROOT / "subprojects" / wrap["directory"]
    archive = ROOT / "subprojects" / "packagecache" / wrap["source_filename"]
    ours = ROOT / "subprojects" / "packagefiles" / "libuv" / "meson.build"
    with locked("libuv"):
        if not folder.exists():
            if archive.exists() or _fetch(wrap["source_url"], wrap["source_hash"], archive):
                return  # Meson unpacks it and adds our build file
            version = wrap["directory"].rpartition("v")[2]
            step(f"libuv {version}: take its sources from the sdist of {CARRIER}")
            _unpack(_download(python), folder, version)
        if not (folder / "meson.build").exists() or (folder / "meson.build").read_bytes() != ours.read_bytes():
            shutil.copyfile(ours, folder / "meson.build")


def _fetch(url: str, sha256: str, archive: Path) -> bool:
    """Fetches the wrap's archive, if its address can be reached. Meson would try for half a minute."""
    step(f"libuv: fetch {url}")
    try:
        with urllib.request.urlopen(url, timeout=10) as answer:
            content: bytes = answer.read()
    except OSError as problem:
        print(f"  not reached ({problem})", flush=True)
        return False
    if hashlib.sha256(content).hexdigest() != sha256:
        raise Failure(f"{url} is not what subprojects/libuv.wrap pins: another sha256")
    archive.parent.mkdir(parents=True, exist_ok=True)
    archive.write_bytes(content)
    return True


def _download(python: Path) -> Path:
    """The sdist's archive, from the package index that pip uses."""
    folder = WORK / "sdist"
    pattern = CARRIER.replace("==", "-") + ".tar.gz"
    if not (folder / pattern).exists():
        # pip asks the sdist for its metadata, so its build requirements come along; as wheels they are quick.
        name = CARRIER.partition("==")[0]
        pip: Command = [python, "-m", "pip", "download", "-q", "--no-deps", "--no-binary", name]
        quiet([*pip, "-d", folder, CARRIER], "libuv", what=f"downloading the sdist of {CARRIER}")
    return folder / pattern


def _unpack(sdist: Path, folder: Path, version: str) -> None:
    """Takes the C sources, headers and licence out of the archive; checks the version they say."""
    with tarfile.open(sdist) as archive, tempfile.TemporaryDirectory(dir=WORK) as temporary:
        target = Path(temporary, "libuv")
        for member in archive:
            inside = PurePosixPath(member.name).parts[1:]
            if not member.isfile() or "/".join(inside[:2]) != _INSIDE or ".." in inside:
                continue
            rest = inside[2:]
            if rest[0] not in ("src", "include") and not rest[0].startswith("LICENSE"):
                continue
            content = archive.extractfile(member)
            assert content is not None
            path = target.joinpath(*rest)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content.read())
        header = (target / "include" / "uv" / "version.h").read_text()
        said = ".".join(re.findall(r"#define UV_VERSION_(?:MAJOR|MINOR|PATCH) (\d+)", header))
        if said != version:
            raise Failure(f"{sdist.name} carries libuv {said}, but {relative(folder)} of libuv.wrap is {version}")
        shutil.rmtree(folder, ignore_errors=True)
        shutil.move(target, folder)
