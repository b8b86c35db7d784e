"""Export as one act: the whole bundle is written beside its place, then put there."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import Any, Union

from tinyedge.core.errors import InputError
from tinyedge.core.files import next_place
from tinyedge.core.program.program import Program, Variant
from tinyedge.export.bundle.check import FILE_NAME, FORMAT
from tinyedge.export.bundle.golden import Golden
from tinyedge.export.bundle.manifest import (
    MANIFEST,
    OTHER_MANIFEST,
    SIZE_LIMIT,
    decode,
    other_manifest,
)
from tinyedge.export.bundle.writing import Progress, write
from tinyedge.export.package.replace import new_folder, put, remove_left
from tinyedge.export.package.trust import remember
from tinyedge.export.stamps import Files, stamp

# A file to copy, content, or content that holds the SHA-256 of the bundle's manifests, by their
# names.
Extra = Union[Path, bytes, Callable[[Mapping[str, str]], bytes]]


# What the Makefile of a bundle builds, and the file by which its folder is known.
BUILT = re.compile(r"build/(run|flags|[a-z0-9_]+\.(o|a|so))")
BUILD_FLAGS = "build/flags"
# The kernels of several programs, and the file by which they are known.
VARIANT_FILE = re.compile(r"model_[a-z0-9_]+\.c")
VARIANT_FLAGS = "model.mk"


def write_bundle(
    program: Program,
    out: str | Path,
    *,
    goldens: Sequence[Golden] = (),
    extras: Mapping[str, Extra] | None = None,
    tool: str = "",
    force: bool = False,
    inputs: Files | None = None,
    progress: Progress | None = None,
    variants: Sequence[Variant] = (),
    fallback: Program | None = None,
) -> Path:
    """Write a program as a bundle at `out` and return its path.

    variants: of a bundle of several programs all of them, the best first; the last is `program`.
    fallback: of the same model, for where `program` does not run.
    extras: what a target's user needs beside it (runtime, page, headers) by name, which may hold
    folders. progress(done, total) counts bytes. An existing bundle is replaced, with what its
    Makefile built; with force=True even if it holds files that this export does not write, but
    never if it holds a file of `inputs`. At each moment `out` holds the old
    bundle or the new one (replace.py says where there is a moment between). Raises InputError if
    `out` is something else than a bundle or an empty folder, or cannot be written, or if one of
    `inputs` is not what it was when it was read.
    """
    place = Path(os.path.realpath(out))
    content = dict(extras or {})
    for name in content:
        _check_name(name)

    def check(found: Path) -> None:
        _check_replaced(found, place, content, force, program.target, inputs or {})

    try:
        remove_left(place)
        check(place)
        place.parent.mkdir(parents=True, exist_ok=True)
        with new_folder(place) as folder:
            write(
                program,
                folder,
                goldens=goldens,
                tool=tool,
                progress=progress,
                variants=variants,
                fallback=fallback,
            )
            others = 1 if fallback is not None else len(variants) - 1
            names = [MANIFEST, *map(other_manifest, range(others))]
            hashes = _hashes(folder, names)
            for name, source in content.items():
                _add(folder / name, source(hashes) if callable(source) else source)
            _check_unchanged(inputs or {})
            put(folder, place, check)
            remember(hashes[MANIFEST])
    except OSError as error:
        moved = error.errno == errno.EXDEV  # a folder of an image's lower layer
        raise InputError(
            f"bundle {str(place)!r}",
            f"it cannot be written: {error.strerror or error}",
            id="export.write",
            next="remove the old bundle first, or choose another place"
            if moved
            else next_place(error),
        ) from error
    return place


def _hashes(folder: Path, manifests: Iterable[str]) -> dict[str, str]:
    """The SHA-256 of a bundle's own files by name, manifests first."""
    contents = {name: (folder / name).read_bytes() for name in manifests}
    files = [record for content in contents.values() for record in decode(content)["files"]]
    return {
        **{name: hashlib.sha256(content).hexdigest() for name, content in contents.items()},
        **{record["name"]: record["sha256"] for record in files},
    }


def _check_unchanged(inputs: Files) -> None:
    for path, before in inputs.items():
        try:
            now = None if before is None else stamp(path.stat())
        except OSError:
            now = ()
        if now != before:
            raise InputError(
                f"file {str(path)!r}",
                "it was changed while the model was exported",
                id="input.changed",
                next="export again when it is complete",
            )


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


def _is_own(name: str) -> bool:
    """Whether a file has a name that only a bundle's own files have, but for the manifest."""
    return bool(FILE_NAME.fullmatch(name) or OTHER_MANIFEST.fullmatch(name))


def _check_name(name: str) -> None:
    parts = PurePosixPath(name).parts
    usual = all(re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.-]*", part) for part in parts)
    reserved = name == MANIFEST or _is_own(name)
    if not parts or not usual or reserved or "/".join(parts) != name:
        raise InputError(f"extra file {name!r}", "a bundle cannot hold it", id="export.extra")


def usual_place(model: str | Path) -> Path:
    """Where the bundle of a model goes unless something else is said."""
    return Path(f"{Path(model).stem}.tinyedge")


def check_place(out: str | Path, inputs: Files | None = None) -> None:
    """Raise InputError unless a bundle may be at `out`: nothing, an empty folder, or a bundle.

    inputs: files that are read, none of which may be deleted with an old bundle.
    """
    place = Path(os.path.realpath(out))
    _check_found(place, place, inputs or {})


def _may_be_replaced(found: Path) -> bool:
    """Whether a folder is empty or a bundle; looked at again where another export changes it."""
    while (before := _identity(found)) is not None:
        with suppress(FileNotFoundError):
            if not any(found.iterdir()) or is_bundle(found):
                return True
        if _identity(found) == before:
            return False
    return True


def _identity(found: Path) -> tuple[int, int] | None:
    """What tells a folder from another one at its place; None: there is none."""
    with suppress(FileNotFoundError):
        status = found.stat()
        return status.st_dev, status.st_ino
    return None


def _check_found(found: Path, place: Path, inputs: Files) -> None:
    """`check_place` of what is at a place, or was and has another name now."""
    subject = f"bundle {str(place)!r}"
    if not os.path.lexists(found):
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
    if not found.is_dir():
        raise InputError(
            subject,
            "there is a file in its place",
            id="export.exists",
            supported="a new folder, an empty one or an existing bundle",
            next="remove it, or choose another place",
        )
    if not _may_be_replaced(found):
        raise InputError(
            subject,
            "the folder is not empty and no bundle",
            id="export.exists",
            supported="a new folder, an empty one or an existing bundle",
            next="remove it, or choose another place",
        )
    if os.path.ismount(found) or any(os.path.ismount(root) for root, _, _ in os.walk(found)):
        raise InputError(
            subject,
            "a file system is mounted there or below it, which cannot be replaced",
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
    for path in inputs:
        named, real = Path(os.path.realpath(path.parent)) / path.name, Path(os.path.realpath(path))
        if any(each.is_relative_to(place) for each in (named, real)):
            raise InputError(
                subject,
                f"{str(path)!r}, which the export reads, lies in its folder and would be deleted",
                id="export.input",
                next="choose another place (--out), or move the file away",
            )


def _check_replaced(
    found: Path,
    place: Path,
    extras: Mapping[str, Extra],
    force: bool,
    target: str,
    inputs: Files,
) -> None:
    """Raise InputError unless what was found at a place may be replaced as a whole.

    What a bundle brings beside its own files a user may have edited, so that a bundle of another
    target, which has other files, is not replaced by itself.
    """
    _check_found(found, place, inputs)
    names = _files_in(found)
    known = {MANIFEST, *extras}
    if BUILD_FLAGS in names:
        known.update(name for name in names if BUILT.fullmatch(name))
    if VARIANT_FLAGS in names and _manifest(found).get("target") == target:
        known.update(name for name in names if VARIANT_FILE.fullmatch(name))
        known.add(VARIANT_FLAGS)
    foreign = sorted(name for name in names if name not in known and not _is_own(name))
    if foreign and not force:
        more = f" and {len(foreign) - 3} more" if len(foreign) > 3 else ""
        files = f"{', '.join(foreign[:3])}{more}"
        old = _manifest(found).get("target", target)
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


def _files_in(folder: Path) -> list[str]:
    """The names of all files, and of links, below a folder; nothing where it is gone meanwhile."""
    names = []
    for root, folders, files in os.walk(folder):
        links = [name for name in folders if os.path.islink(os.path.join(root, name))]
        names += [Path(root, name).relative_to(folder).as_posix() for name in (*files, *links)]
    return names


def _add(path: Path, source: Path | bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    if isinstance(source, bytes):
        path.write_bytes(source)
    else:
        shutil.copyfile(source, path)
