"""Reading a bundle: the checks of bundle.md, then the program that the manifest says."""

from __future__ import annotations

import hashlib
import os
import shlex
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from io import FileIO
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from tinyedge.core.dtype import by_name
from tinyedge.core.errors import BundleError, InputError
from tinyedge.core.files import regular_file
from tinyedge.core.program.program import (
    Arena,
    Binding,
    Buffer,
    Copy,
    Entry,
    Expression,
    Image,
    Kernel,
    Launch,
    Loop,
    Port,
    Program,
    Slice,
    State,
    Step,
    Symbol,
    Weight,
)
from tinyedge.export.bundle import dtypes
from tinyedge.export.bundle.check import check
from tinyedge.export.bundle.digest import Digest
from tinyedge.export.bundle.golden import Golden, GoldenInput, GoldenOutput
from tinyedge.export.bundle.manifest import MANIFEST, SIZE_LIMIT, decode, other_manifest, refuse
from tinyedge.export.bundle.repack import Axes, repacked

Array = np.ndarray[Any, Any]
T = TypeVar("T")
Record = Mapping[str, Any]

PRIVATE = ("buffer", "storage", "initial")  # of a port, in the programs of one bundle
PIECE_BYTES = 2**20  # of a file, read and hashed at a time
REPLACEMENTS = 8  # of a folder by exports while it is read, before that is an error


@dataclass(frozen=True)
class Choice:
    """One of several programs of a bundle: its name, and what it requires of a device, in words of
    the target.
    """

    name: str
    requires: tuple[str, ...]


# The name of the choice to take, given the target and all of them; "" where there are none.
Choose = Callable[[str, Sequence[Choice]], str]


@dataclass(frozen=True, eq=False)
class Bundle:
    """A verified bundle: its manifest as decoded, and its Program.

    What was read stays what was verified, whatever becomes of the files.
    """

    path: Path
    manifest: dict[str, Any]
    program: Program
    plan: str  # the SHA-256 of manifest.json
    hashes: bool = True
    variant: str = ""  # which of several programs this is
    choices: tuple[Choice, ...] = ()  # all of these, the best first

    def goldens(self) -> tuple[Golden, ...]:
        """The stored cases, after verification of their files. Raises BundleError."""
        files = _read_files(self.path, self.manifest, ("golden",), self.hashes)
        return tuple(self._golden(record, files) for record in self.manifest["golden"])

    def _golden(self, record: Record, files: Mapping[int, Array]) -> Golden:
        program = self.program
        entry = self.manifest["entries"][record["entry"]]
        symbols = [symbol.name for symbol in program.symbols]
        inputs = []
        for index, item in zip(entry["inputs"], record["inputs"], strict=True):
            stored = item["file"] != -1
            data = _elements(files, item, program.inputs[index].dtype) if stored else None
            inputs.append(GoldenInput(item["min"], item["max"], data))
        ports = [*(program.outputs[index] for index in entry["outputs"]), *program.states]
        outputs = tuple(
            GoldenOutput(item["stride"], _elements(files, item, port.dtype))
            for port, item in zip(ports, record["outputs"], strict=False)
        )
        count = len(entry["outputs"])
        return Golden(
            entry=entry["name"],
            seed=record["seed"],
            steps=record["steps"],
            symbols=dict(zip(symbols, record["symbols"], strict=True)),
            tolerance=record["tolerance"],
            made=record["made"],
            inputs=tuple(inputs),
            outputs=outputs[:count],
            states=outputs[count:],
        )


def read_manifest(path: str | Path, variant: str = "") -> dict[str, Any]:
    """A bundle's manifest, checked by stages 1 to 10 of bundle.md. Raises BundleError.

    variant: of a bundle of several programs, the one whose manifest it is; "": manifest.json.
    """

    def whole(folder: Path) -> dict[str, Any]:
        manifest, _ = _manifest(folder)
        return _of_variant(folder, manifest, variant) if variant else manifest

    return _whole(Path(path), whole)


def read(
    path: str | Path, *, hashes: bool = True, weights: bool = True, choose: Choose | None = None
) -> Bundle:
    """Verify a bundle and read its Program. Raises BundleError with an id of bundle.md.

    hashes=False skips the files' hashes (for fuzzing only). weights=False verifies weights, but
    keeps none. choose: which of several programs is read, the only one that is verified; default:
    that of manifest.json. Golden files are neither needed nor touched.
    """

    def whole(folder: Path) -> Bundle:
        manifest, plan = _manifest(folder)
        choices = choices_of(manifest)
        name = choices[-1].name if choices else ""
        if choose is not None:
            name = choose(manifest["target"], choices)
        if name:
            manifest = _of_variant(folder, manifest, name)
        files = _read_files(folder, manifest, ("kernels",), hashes)
        files |= _read_files(folder, manifest, ("weights",), hashes, keep=weights)
        program = _program(manifest, files)
        return Bundle(folder, manifest, program, plan, hashes, name, choices)

    return _whole(Path(path), whole)


def variants_of(path: str | Path) -> list[dict[str, Any]]:
    """Facts of each program of a bundle of several, the best first; none of a bundle of one.

    added_bytes: of the files that only this one has; added_weight_bytes: of those of weights.
    Raises BundleError.
    """

    def whole(folder: Path) -> list[dict[str, Any]]:
        root, _ = _manifest(folder)
        choices = choices_of(root)
        manifests = [_of_variant(folder, root, choice.name) for choice in choices]
        return [
            {"name": choice.name, "requires": list(choice.requires), **facts}
            for choice, facts in zip(choices, _facts(manifests), strict=True)
        ]

    return _whole(Path(path), whole)


def fallback_of(path: str | Path) -> dict[str, Any] | None:
    """Facts of a bundle's program for WebAssembly, as `variants_of` gives; None: it has none.

    Raises BundleError.
    """
    other = read_fallback(path)
    return _facts([other, read_manifest(path)])[0] if other is not None else None


def _facts(manifests: Sequence[Record]) -> list[dict[str, Any]]:
    """Facts of each of a bundle's programs."""
    users = Counter(file["name"] for manifest in manifests for file in manifest["files"])
    return [
        {
            "launches": sum(step["op"] == "launch" for step in manifest["steps"]),
            "weight_bytes": sum(weight["bytes"] for weight in manifest["weights"]),
            "peak_bytes": manifest["peak_bytes"],
            "added_bytes": sum(file["bytes"] for file in own),
            "added_weight_bytes": sum(f["bytes"] for f in own if f["name"].startswith("weights")),
        }
        for manifest in manifests
        for own in [[file for file in manifest["files"] if users[file["name"]] == 1]]
    ]


def choices_of(manifest: Record) -> tuple[Choice, ...]:
    """The programs of a bundle of several, the best first; none of a bundle of one."""
    listed = (*manifest["variants"], manifest["variant"]) if "variants" in manifest else ()
    return tuple(Choice(each["name"], tuple(each["requires"])) for each in listed)


def say_choices(choices: Iterable[Choice]) -> str:
    """The names of programs or profiles, for messages. What "default" requires is said, as its name
    does not.
    """
    return ", ".join(
        f"{each.name} ({', '.join(each.requires)})"
        if each.name == "default" and each.requires
        else each.name
        for each in choices
    )


def _of_variant(folder: Path, manifest: Record, name: str) -> dict[str, Any]:
    """The manifest of a bundle's program of that name, verified; `manifest`: manifest.json."""
    for number, record in enumerate(manifest.get("variants", ())):
        if record["name"] == name:
            return _other(folder / other_manifest(number), record, manifest, manifest["target"])
    names = [choice.name for choice in choices_of(manifest)]
    if name in names:
        return dict(manifest)
    raise InputError(
        f"variant {name!r:.80}",
        "the bundle has no such variant" if names else "the bundle has one program only",
        id="option.variant",
        supported=say_choices(choices_of(manifest)),
        next="" if names else "leave the variant out",
    )


def _other(path: Path, record: Record, manifest: Record, target: str) -> dict[str, Any]:
    """One more manifest of a bundle, verified.

    record: what manifest.json, which is `manifest`, has of it.
    """
    content = _read_file(path, "bundle.file.missing", SIZE_LIMIT).tobytes()
    if len(content) != record["bytes"]:
        because = f"it has {len(content)} bytes, not {record['bytes']}"
        raise refuse("bundle.file.size", because, str(path))
    if hashlib.sha256(content).hexdigest() != record["sha256"]:
        raise refuse("bundle.file.hash", "its SHA-256 is another", str(path))
    other = decode(content)
    check(other)
    if other["target"] != target:
        raise refuse("bundle.target", f"its target is {other['target']!r}, not {target}", str(path))
    if _interface(other) != _interface(manifest):
        raise refuse("bundle.name", "its inputs and outputs are others", str(path))
    return other


def read_fallback(path: str | Path) -> dict[str, Any] | None:
    """The manifest of a bundle's program for WebAssembly, checked; None: it has none.

    Raises BundleError.
    """

    def whole(folder: Path) -> dict[str, Any] | None:
        manifest, _ = _manifest(folder)
        record = manifest.get("fallback")
        if record is None:
            return None
        return _other(folder / other_manifest(0), record, manifest, "wasm")

    return _whole(Path(path), whole)


def _interface(manifest: Record) -> Any:
    """What all programs of a bundle have in common."""
    ports = [
        [{key: value for key, value in port.items() if key not in PRIVATE} for port in manifest[g]]
        for g in ("inputs", "outputs", "states")
    ]
    entries = [(each["name"], each["inputs"], each["outputs"]) for each in manifest["entries"]]
    return manifest["symbols"], ports, entries


def _whole(path: Path, reader: Callable[[Path], T]) -> T:
    """What a reader makes of a folder; once more where an export replaced the folder meanwhile."""
    _check_folder(path)
    for _ in range(REPLACEMENTS):
        before = _identity(path)
        try:
            return reader(path)
        except BundleError:
            if _identity(path) == before:
                raise
    return reader(path)


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _manifest(folder: Path) -> tuple[dict[str, Any], str]:
    """A folder's manifest, checked, and the SHA-256 of its bytes."""
    content = _read_file(folder / MANIFEST, "bundle.manifest.missing", SIZE_LIMIT).tobytes()
    manifest = decode(content)
    check(manifest)
    return manifest, hashlib.sha256(content).hexdigest()


def _check_folder(path: Path) -> None:
    """Raise BundleError unless there is a folder with a manifest."""
    if path.is_dir():
        if os.path.lexists(path / MANIFEST):
            return
        raise BundleError(
            str(path),
            "the folder has no manifest.json, so it is no bundle",
            id="bundle.manifest.missing",
            supported="a bundle: a folder with manifest.json in it",
            next="give a bundle's folder, or its files again where they were lost",
        )
    model = path.suffix == ".onnx"
    exists = os.path.lexists(path)
    kind = "an ONNX model is no bundle" if model else "it is no folder, so it is no bundle"
    raise BundleError(
        str(path),
        kind if exists else "there is no such folder",
        id="bundle.manifest.missing",
        supported="a bundle: a folder with manifest.json in it",
        next=f"tinyedge export {shlex.quote(str(path)) if model and exists else 'model.onnx'}",
    )


@contextmanager
def _opened(path: Path, missing: str) -> Iterator[tuple[FileIO, int]]:
    """A regular file and its size. Links, pipes and devices count as missing."""
    try:
        with regular_file(path) as (file, status):
            yield file, status.st_size
    except (OSError, ValueError) as error:
        because = getattr(error, "strerror", None) or str(error)
        raise refuse(missing, f"it cannot be read: {because}", str(path)) from error


def _read_file(path: Path, missing: str, limit: int) -> Array:
    """The bytes of a file, at most `limit`."""
    with _opened(path, missing) as (file, size):
        if size > limit:
            because = f"it has {size} bytes, more than {limit}"
            raise refuse("bundle.manifest.size", because, str(path))
        return np.frombuffer(file.read(limit), np.uint8)


def _read_files(
    folder: Path, manifest: Record, kinds: tuple[str, ...], hashes: bool, *, keep: bool = True
) -> dict[int, Array]:
    """The bundle's files of some kinds by index, each verified; nothing unless they are kept.

    They are copies, which a file that is overwritten or cut afterwards does not change: a mapped
    file would.
    """
    found: dict[int, Array] = {}
    expected = {n: blocks for n, blocks in enumerate(manifest.get("blocks", ())) if blocks}
    for number, record in enumerate(manifest["files"]):
        if not record["name"].startswith(kinds):
            continue
        path, bytes = folder / record["name"], record["bytes"]
        content = np.empty(bytes if keep else min(bytes, PIECE_BYTES), np.uint8)
        digest, done = Digest(number in expected), 0
        with _opened(path, "bundle.file.missing") as (file, size):
            if size == bytes:
                while done < bytes:
                    part = content[done:] if keep else content[: bytes - done]
                    count = file.readinto(part[:PIECE_BYTES].data)
                    if not count:
                        break
                    digest.update(part[:count].data)
                    done += count
            else:
                done = size
        if done != bytes:
            raise refuse("bundle.file.size", f"it has {done} bytes, not {bytes}", str(path))
        whole, blocks = digest.hexdigests()
        if hashes and (whole != record["sha256"] or blocks != expected.get(number, [])):
            raise refuse("bundle.file.hash", "its SHA-256 is another", str(path))
        if keep:
            content.flags.writeable = False
            found[number] = content
    return found


def _slice(files: Mapping[int, Array], record: Record) -> Array:
    end = record["offset"] + record["bytes"]
    return files[record["file"]][record["offset"] : end]


def _elements(files: Mapping[int, Array], record: Record, dtype: str) -> Array:
    """Stored elements of a declared dtype. A bool that is neither 0 nor 1 reads as True."""
    data = _slice(files, record)
    if dtype == "bool":
        truth: Array = data != 0
        return truth
    little = data.view(by_name(dtype).numpy.newbyteorder("<"))
    values: Array = little.astype(by_name(dtype).numpy, copy=False)
    return values


def _program(manifest: Record, files: Mapping[int, Array]) -> Program:
    inputs = tuple(_port(record, manifest) for record in manifest["inputs"])
    outputs = tuple(_port(record, manifest) for record in manifest["outputs"])
    entries = []
    for record in manifest["entries"]:
        first, count = record["steps"]
        entries.append(
            Entry(
                name=record["name"],
                inputs=tuple(inputs[index].name for index in record["inputs"]),
                outputs=tuple(outputs[index].name for index in record["outputs"]),
                steps=_nest(manifest["steps"], first, first + count),
                input_numbers=tuple(record["inputs"]),
                output_numbers=tuple(record["outputs"]),
            )
        )
    repacks = manifest.get("repacks", [()] * len(manifest["weights"]))
    return Program(
        target=manifest["target"],
        suffix=_suffix(manifest),
        symbols=tuple(Symbol(**record) for record in manifest["symbols"]),
        inputs=inputs,
        outputs=outputs,
        states=tuple(_state(record) for record in manifest["states"]),
        arenas=tuple(Arena(**record) for record in manifest["arenas"]),
        buffers=tuple(Buffer(**record) for record in manifest["buffers"]),
        weights=tuple(
            _weight(record, files, axes)
            for record, axes in zip(manifest["weights"], repacks, strict=True)
        ),
        kernels=tuple(_kernel(record, files) for record in manifest["kernels"]),
        entries=tuple(entries),
        images=tuple(Image(**record) for record in manifest.get("images", ())),
        prelude=_text(manifest["prelude"], files),
        requirements=manifest["requirements"],
        options=manifest["options"],
        binaries={
            record["name"]: files[number].tobytes()
            for number, record in enumerate(manifest["files"])
            if record["name"].startswith("kernels-") and number != manifest["prelude"]["file"]
        },
    )


def _suffix(manifest: Record) -> str:
    """That of the kernels' text: the prelude's file, in which they are too."""
    name: str = manifest["files"][manifest["prelude"]["file"]]["name"]
    return name.rpartition(".")[2]


def _shape(record: Record) -> tuple[Expression, ...]:
    return tuple(_expression(size) for size in record["shape"])


def _expression(value: int | Sequence[int | str]) -> Expression:
    """An expression from its tokens, which were checked."""
    if isinstance(value, int):
        return value
    stack: list[Expression] = []
    for token in reversed(value):
        if isinstance(token, str) and not token.startswith("$"):
            first, second = stack.pop(), stack.pop()
            stack.append((token, first, second))
        else:
            stack.append(token[1:] if isinstance(token, str) else token)
    return stack[0]


def _port(record: Record, manifest: Record) -> Port:
    count: int = record["count"]
    return Port(
        name=record["name"],
        dtype=dtypes.read(record["dtype"]),
        shape=_shape(record),
        storage=record["storage"],
        buffer=record["buffer"],
        slices=tuple(Slice(**part) for part in record["slices"]),
        count=manifest["outputs"][count]["name"] if count != -1 else "",
        count_axis=record["axis"],
    )


def _state(record: Record) -> State:
    return State(**{**record, "dtype": dtypes.read(record["dtype"]), "shape": _shape(record)})


def _weight(record: Record, files: Mapping[int, Array], repack: Axes) -> Weight:
    """A weight as kernels read it."""
    kept = all(segment["file"] in files for segment in record["segments"])
    parts = [_slice(files, segment) for segment in record["segments"]] if kept else []
    data = np.concatenate(parts) if len(parts) > 1 else parts[0] if parts else None
    if data is not None and repack:
        data = repacked(data, repack)
    return Weight(
        name=record["name"],
        dtype=dtypes.read(record["dtype"]),
        shape=tuple(record["shape"]),
        storage=record["storage"],
        content=data,
        bytes=record["bytes"],
    )


def _text(record: Record, files: Mapping[int, Array]) -> str:
    try:
        return _slice(files, record).tobytes().decode("ascii")
    except UnicodeDecodeError as error:
        raise refuse("bundle.file.text", f"a kernel is not ASCII: {error}", "kernels") from error


def _kernel(record: Record, files: Mapping[int, Array]) -> Kernel:
    x, y, z = record["workgroup"]
    return Kernel(
        name=record["entry"],
        source=_text(record, files),
        workgroup=(x, y, z),
        bindings=tuple(Binding(**binding) for binding in record["bindings"]),
        moves=tuple(record["moves"]),
        symbols=record["symbols"],
    )


def _nest(steps: Sequence[Record], first: int, end: int) -> tuple[Step, ...]:
    nested: list[Step] = []
    number = first
    while number < end:
        record = steps[number]
        number += 1
        if record["op"] == "launch":
            x, y, z = (_expression(count) for count in record["grid"])
            launch = Launch(
                kernel=record["kernel"],
                buffers=tuple(record["buffers"]),
                grid=(x, y, z),
                nodes=tuple(record["nodes"]),
                flops=record["flops"],
            )
            nested.append(launch)
        elif record["op"] == "copy":
            fields = {name: value for name, value in record.items() if name != "op"}
            nested.append(Copy(**{**fields, "bytes": _expression(record["bytes"])}))
        else:
            after = number + record["body"]
            body = _nest(steps, number, after)
            nested.append(Loop(record["condition"], record["bound"], body))
            number = after
    return tuple(nested)
