"""Export as one act: the whole bundle is written beside its place, then renamed into it."""

from __future__ import annotations

import hashlib
import json
import os
import re
import secrets
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path, PurePosixPath
from typing import Any, Union

from tinyedge.core.errors import InputError
from tinyedge.core.program import Program
from tinyedge.export.bundle import Progress, write
from tinyedge.export.check import FILE_NAME, FORMAT
from tinyedge.export.golden import Golden
from tinyedge.export.manifest import MANIFEST, SIZE_LIMIT

# A file to copy, content, or content that holds the SHA-256 of the bundle's manifest.
Extra = Union[Path, bytes, Callable[[str], bytes]]

# An export that was killed leaves a folder with this suffix; the next one removes it, once old.
PARTIAL = ".partial"
STALE_SECONDS = 24 * 3600

# What the Makefile of a bundle builds, and the file by which its folder is known.
BUILT = re.compile(r"build/(run|flags|[a-z0-9_]+\.(o|a|so))")
BUILD_FLAGS = "build/flags"


def write_bundle(
    program: Program,
    out: str | Path,
    *,
    goldens: Sequence[Golden] = (),
    extras: Mapping[str, Extra] | None = None,
    tool: str = "",
    force: bool = False,
    progress: Progress | None = None,
) -> Path:
    """Write a program as a bundle at `out` and return its path.

    extras: what a target's user needs beside it (runtime, page, headers) by name, which may hold
    folders. progress(done, total) counts bytes. An existing bundle is
    replaced, with what its Makefile built; with force=True even if it holds files that this export
    does not write. Whatever goes wrong, `out` holds the old bundle, the new one or nothing. Raises
    InputError if `out` is something else than a bundle or an empty folder, or cannot be written.
    """
    place = Path(os.path.realpath(out))
    content = dict(extras or {})
    for name in content:
        _check_name(name)
    _check_replaced(place, content, force, program.target)
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        _remove_stale(place)
        with _partial(place) as folder:
            write(program, folder, goldens=goldens, tool=tool, progress=progress)
            plan = hashlib.sha256((folder / MANIFEST).read_bytes()).hexdigest()
            for name, source in content.items():
                _add(folder / name, source(plan) if callable(source) else source)
            _check_replaced(place, content, force, program.target)
            _move(folder, place)
    except OSError as error:
        raise InputError(
            f"bundle {str(place)!r}",
            f"it cannot be written: {error.strerror or error}",
            id="export.write",
            next="free some space, or choose another place",
        ) from error
    return place


def is_bundle(path: Path) -> bool:
    """Whether a folder is a bundle of any version, sound or not: its manifest says so."""
    return _manifest(path).get("format") == FORMAT


def _manifest(path: Path) -> dict[str, Any]:
    """What a folder's manifest holds, sound or not; nothing where there is none."""
    try:
        with open(path / MANIFEST, "rb") as file:
            manifest = json.loads(file.read(SIZE_LIMIT))
    except (OSError, ValueError, RecursionError):
        return {}
    return manifest if isinstance(manifest, dict) else {}


def _check_name(name: str) -> None:
    parts = PurePosixPath(name).parts
    usual = all(re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.-]*", part) for part in parts)
    reserved = name == MANIFEST or FILE_NAME.fullmatch(name)
    if not parts or not usual or reserved or "/".join(parts) != name:
        raise InputError(f"extra file {name!r}", "a bundle cannot hold it", id="export.extra")


def usual_place(model: str | Path) -> Path:
    """Where the bundle of a model goes unless something else is said."""
    return Path(f"{Path(model).stem}.tinyedge")


def check_place(out: str | Path) -> None:
    """Raise InputError unless a bundle may be at `out`: nothing, an empty folder, or a bundle."""
    place = Path(os.path.realpath(out))
    subject = f"bundle {str(place)!r}"
    if not os.path.lexists(place):
        file = next((parent for parent in place.parents if os.path.lexists(parent)), place)
        if file.is_dir():
            return
        raise InputError(
            subject,
            f"{str(file)!r} is a file",
            id="export.exists",
            supported="a new folder, an empty one or an existing bundle",
            next="choose another place",
        )
    if not place.is_dir():
        raise InputError(
            subject,
            "there is a file in its place",
            id="export.exists",
            supported="a new folder, an empty one or an existing bundle",
            next="remove it, or choose another place",
        )
    if any(place.iterdir()) and not is_bundle(place):
        raise InputError(
            subject,
            "the folder is not empty and no bundle",
            id="export.exists",
            supported="a new folder, an empty one or an existing bundle",
            next="remove it, or choose another place",
        )
    if os.path.ismount(place):
        raise InputError(
            subject,
            "a file system is mounted there, which cannot be replaced",
            id="export.exists",
            supported="a new folder, an empty one or an existing bundle",
            next="name a folder in it, or choose another place",
        )
    here = Path.cwd()
    if place in (here, *here.parents):
        raise InputError(
            subject,
            "it is the current folder, which cannot be replaced",
            id="export.exists",
            supported="a new folder, an empty one or an existing bundle",
            next="name a folder in it, or go to another one first",
        )


def _check_replaced(place: Path, extras: Mapping[str, Extra], force: bool, target: str) -> None:
    """Raise InputError unless `place` may be replaced as a whole.

    What a bundle brings beside its own files a user may have edited, so that a bundle of another
    target, which has other files, is not replaced by itself.
    """
    check_place(place)
    if not os.path.lexists(place):
        return
    present = [path for path in place.rglob("*") if not path.is_dir() or path.is_symlink()]
    names = [path.relative_to(place).as_posix() for path in present]
    known = {MANIFEST, *extras}
    if BUILD_FLAGS in names:
        known.update(name for name in names if BUILT.fullmatch(name))
    foreign = sorted(name for name in names if name not in known and not FILE_NAME.fullmatch(name))
    if foreign and not force:
        more = f" and {len(foreign) - 3} more" if len(foreign) > 3 else ""
        files = f"{', '.join(foreign[:3])}{more}"
        old = _manifest(place).get("target", target)
        raise InputError(
            f"bundle {str(place)!r}",
            f"the old bundle is for {old!s:.20}, not {target}, and its folder also holds {files}"
            if old != target
            else f"the old bundle's folder also holds {files}",
            id="export.foreign",
            next="choose another place (--out), or use --force to delete these files"
            if old != target
            else "move these away, choose another place (--out), or use --force to delete them",
        )


def _prefix(place: Path) -> str:
    return f".{place.name[:100]}-"


def _remove_stale(place: Path) -> None:
    for name in os.listdir(place.parent):
        if name.startswith(_prefix(place)) and name.endswith(PARTIAL):
            path = place.parent / name
            with suppress(OSError):
                if time.time() - path.stat().st_mtime > STALE_SECONDS:
                    shutil.rmtree(path)


@contextmanager
def _partial(place: Path) -> Iterator[Path]:
    """A new folder beside `place`, gone at the end unless it was moved."""
    folder = place.with_name(f"{_prefix(place)}{secrets.token_hex(4)}{PARTIAL}")
    folder.mkdir()
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _move(folder: Path, place: Path) -> None:
    """Rename `folder` to `place`; what was there goes away only after the new one is in place."""
    old = folder.with_name(folder.name.removesuffix(PARTIAL) + "-old" + PARTIAL)
    if place.exists():
        place.rename(old)
    try:
        folder.rename(place)
    except BaseException:
        if old.exists() and not place.exists():
            old.rename(place)
        raise
    shutil.rmtree(old, ignore_errors=True)


def _add(path: Path, source: Path | bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    if isinstance(source, bytes):
        path.write_bytes(source)
    else:
        shutil.copyfile(source, path)
