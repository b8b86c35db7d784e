"""Writing a bundle: a program and its golden cases as files and their manifest."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from importlib import metadata
from operator import index as integer
from pathlib import Path
from typing import Any

import numpy as np

from tinyedge.core.errors import BundleError, InputError, InternalError
from tinyedge.core.program.ports import pad, padded
from tinyedge.core.program.program import (
    Copy,
    Expression,
    Launch,
    Port,
    Program,
    State,
    Step,
    Weight,
)
from tinyedge.export.bundle import dtypes
from tinyedge.export.bundle.bounds import ALIGNMENT, SHARD_BYTES
from tinyedge.export.bundle.check import FORMAT, VERSION, check, features_used, requirements
from tinyedge.export.bundle.golden import Golden, GoldenInput
from tinyedge.export.bundle.manifest import MANIFEST, decode, encode

Array = np.ndarray[Any, Any]
Progress = Callable[[int, int], None]
Record = Mapping[str, Any]

LONG = 1024  # characters of a name, the most


def write(
    program: Program,
    folder: str | Path,
    *,
    goldens: Sequence[Golden] = (),
    tool: str = "",
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Write a program's manifest, kernels, weights and goldens into an existing, empty folder.

    The manifest comes last. progress(done, total) is called with bytes as they are written.
    Returns the manifest. The same program gives the same bytes. Raises InternalError if the
    program breaks a rule of the format: nothing is written then.
    """
    folder = Path(folder)
    golden_files = _Shards("golden")
    weight_files = _Shards("weights")
    cases = [_golden_record(program, case, golden_files) for case in goldens]
    weights = [_weight_record(weight, weight_files) for weight in program.weights]
    text, prelude, kernels = _kernel_text(program)
    kernel_name = f"kernels.{program.suffix}"
    # Compiled kernels have a number in their name, which comes before the point of the text's.
    kernel_files = {**dict(sorted(program.binaries.items())), kernel_name: text}
    total = golden_files.total + weight_files.total + sum(map(len, kernel_files.values()))

    # File numbers follow the sorted names: goldens, kernels, weights.
    _renumber((record for case in cases for record in case["inputs"]), 0)
    _renumber((record for case in cases for record in case["outputs"]), 0)
    first = len(golden_files.parts) + len(kernel_files)
    _renumber([prelude, *kernels], first - 1)
    _renumber((segment for weight in weights for segment in weight["segments"]), first)
    manifest = {
        "format": FORMAT,
        "version": VERSION,
        "tool": tool or f"tinyedge {_version()}",
        "target": program.target,
        "options": dict(program.options),
        **_records(program),
        "weights": weights,
        "prelude": prelude,
        "kernels": kernels,
        "golden": cases,
        "files": [
            *golden_files.placeholders(),
            *(
                {"name": name, "bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
                for name, data in kernel_files.items()
            ),
            *weight_files.placeholders(),
        ],
    }
    if program.images:
        manifest["images"] = [asdict(image) for image in program.images]
    sizes = (*manifest["arenas"], *weights)
    manifest["peak_bytes"] = sum(record["bytes"] for record in sizes)
    manifest["features"] = list(features_used(manifest))
    manifest["requirements"] = _merge(requirements(manifest), program.requirements)
    _self_check(manifest)

    done = 0

    def advance(count: int) -> None:
        nonlocal done
        done += count
        if progress:
            progress(done, total)

    written = [*golden_files.write(folder, advance)]
    for name, data in kernel_files.items():
        (folder / name).write_bytes(data)
        advance(len(data))
    written += weight_files.write(folder, advance)
    hashes = {record["name"]: record["sha256"] for record in written}
    for record in manifest["files"]:
        record["sha256"] = hashes.get(record["name"], record["sha256"])
    (folder / MANIFEST).write_bytes(encode(manifest))
    return manifest


@dataclass(frozen=True, eq=False)
class _Part:
    """Bytes of a file from `offset` on: those of some content from `start` on."""

    offset: int
    content: Callable[[], Array]
    start: int
    bytes: int


class _Shards:
    """Byte strings laid out in files of at most 32 MiB, each part at a multiple of 256 bytes."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.parts: list[list[_Part]] = []
        self.end = SHARD_BYTES
        self.total = 0

    def place(
        self, size: int, content: Callable[[], Array], *, whole: bool
    ) -> list[dict[str, int]]:
        """Lay out flat bytes and return their segments; one segment if `whole`.

        size: of the bytes; content: makes them, when they are written.
        """
        segments: list[dict[str, int]] = []
        taken = 0
        while taken < size or not segments:
            offset = -(-self.end // ALIGNMENT) * ALIGNMENT
            room = SHARD_BYTES - offset
            if not room or (whole and size > room):
                self.parts.append([])
                offset, room = 0, SHARD_BYTES
            part = _Part(offset, content, taken, min(room, size - taken))
            self.parts[-1].append(part)
            self.end = offset + part.bytes
            self.total += part.bytes
            file = len(self.parts) - 1
            segments.append({"file": file, "offset": offset, "bytes": part.bytes})
            taken += part.bytes
        return segments

    def name(self, number: int) -> str:
        return f"{self.kind}-{number:05}.bin"

    def placeholders(self) -> list[dict[str, Any]]:
        """Records of the files, before their hashes are known."""
        records = []
        for number, parts in enumerate(self.parts):
            size = parts[-1].offset + parts[-1].bytes
            records.append({"name": self.name(number), "bytes": size, "sha256": "0" * 64})
        return records

    def write(self, folder: Path, advance: Callable[[int], None]) -> Iterable[dict[str, Any]]:
        made: tuple[Callable[[], Array] | None, Any] = (None, None)  # the last whole content
        for number, parts in enumerate(self.parts):
            digest = hashlib.sha256()
            end = 0
            with open(folder / self.name(number), "wb") as file:
                for part in parts:
                    if part.content is not made[0]:
                        made = (None, None)  # goes before the next one comes
                        made = (part.content, part.content())
                    padding = bytes(part.offset - end)
                    data = made[1][part.start : part.start + part.bytes].data
                    for piece in (padding, data):
                        file.write(piece)
                        digest.update(piece)
                    end = part.offset + part.bytes
                    advance(part.bytes)
            yield {"name": self.name(number), "sha256": digest.hexdigest()}


def _renumber(records: Iterable[dict[str, int]], first: int) -> None:
    for record in records:
        if record["file"] != -1:
            record["file"] += first


def _merge(least: Mapping[str, int], declared: Mapping[str, Any]) -> dict[str, Any]:
    """The program's requirements, none lower than what its records need."""
    merged: dict[str, Any] = {**declared}
    for name, value in least.items():
        merged[name] = max(value, integer(declared.get(name, 0)))
    return merged


def _self_check(manifest: dict[str, Any]) -> None:
    try:
        check(decode(encode(manifest)))
    except (BundleError, ValueError) as error:
        cause = error.because if isinstance(error, BundleError) else str(error)
        if isinstance(error, BundleError) and error.id in ("bundle.manifest.size", "bundle.count"):
            raise InputError(
                "the model",
                f"it takes more than a bundle can hold: {cause}",
                id="model.limit",
                next="export a part of it: --outputs NAME,..",
            ) from error
        id = f"export.{error.id}" if isinstance(error, BundleError) else "export.bundle.value"
        raise InternalError(
            "the program to export",
            f"it breaks a rule of the bundle format: {cause}",
            id=id,
            next="please report it with the model and the command",
        ) from error


def _version() -> str:
    try:
        return metadata.version("tinyedge")
    except metadata.PackageNotFoundError:
        return "0"


def _bytes(array: Array) -> Array:
    """An array's elements as flat little-endian bytes, without a copy where possible."""
    little = array.dtype.newbyteorder("<")
    return np.ascontiguousarray(array, dtype=little).reshape(-1).view(np.uint8)


def _weight_record(weight: Weight, files: _Shards) -> dict[str, Any]:
    if weight.content is None:
        raise InternalError(f"weight {weight.name!r}", "it has no data", id="export.weight")
    if not callable(weight.content):
        _weight_bytes(weight)
    size = padded(weight.bytes)
    return {
        "name": _label(weight.name),
        "dtype": dtypes.written(weight.dtype),
        "storage": weight.storage,
        "shape": [integer(size) for size in weight.shape],
        "bytes": size,
        "segments": files.place(size, partial(_weight_bytes, weight), whole=False),
    }


def _weight_bytes(weight: Weight) -> Array:
    """A weight's bytes as the bundle holds them: whole words."""
    content = weight.data
    assert content is not None
    data = _bytes(content)
    if data.nbytes not in (weight.bytes, padded(weight.bytes)):
        because = f"it has {data.nbytes} bytes, not {weight.bytes}"
        raise InternalError(f"weight {weight.name!r}", because, id="export.weight")
    return pad(data, padded(weight.bytes))


def _label(name: str) -> str:
    """A name that is only shown, as a manifest may hold it."""
    text = name if name.isprintable() else ascii(name)[1:-1]
    return (text if len(text) <= LONG else f"{text[: LONG - 3]}...") or "unnamed"


def kernel_file(program: Program) -> str:
    """The text of all kernels, after the prelude, as the bundle's file holds it."""
    return _kernel_text(program)[0].decode("ascii")


def _kernel_text(program: Program) -> tuple[bytes, dict[str, Any], list[dict[str, Any]]]:
    """The kernels' file, and the records of the prelude and of each kernel."""
    prelude = program.prelude
    if prelude and not prelude.endswith("\n"):
        prelude += "\n"
    pieces = [prelude]
    offset = len(prelude)
    kernels: list[dict[str, Any]] = []
    for kernel in program.kernels:
        pieces += ["\n", kernel.source]
        record = {
            "entry": kernel.name,
            "file": 0,
            "offset": offset + 1,
            "bytes": len(kernel.source),
            "workgroup": [integer(size) for size in kernel.workgroup],
            "bindings": [
                {"access": binding.access, "dtype": binding.dtype} for binding in kernel.bindings
            ],
            "moves": [dict(move) for move in kernel.moves],
            "symbols": kernel.symbols,
        }
        kernels.append(record)
        offset += 1 + len(kernel.source)
    try:
        text = ("".join(pieces) + "\n").encode("ascii")
    except UnicodeEncodeError as error:
        raise InternalError(
            "the kernels' text", f"it is not ASCII: {error}", id="export.kernel"
        ) from error
    return text, {"file": 0, "offset": 0, "bytes": len(prelude)}, kernels


def _records(program: Program) -> dict[str, Any]:
    """The members of the manifest that mirror the program's own records."""
    counts: dict[int, int] = {}
    steps: list[dict[str, Any]] = []
    entries = []
    for entry in program.entries:
        flat = _flatten(entry.steps)
        outputs = program.outputs_of(entry)
        numbers = {port.name: number for number, port in outputs.items()}
        counts |= {number: numbers[port.count] for number, port in outputs.items() if port.count}
        entries.append(
            {
                "name": entry.name,
                "inputs": [*program.inputs_of(entry)],
                "outputs": [*outputs],
                "steps": [len(steps), len(flat)],
            }
        )
        steps += flat
    return {
        "symbols": [
            {
                "name": symbol.name,
                "min": integer(symbol.min),
                "max": integer(symbol.max),
                "step": integer(symbol.step),
            }
            for symbol in program.symbols
        ],
        "inputs": [_port_record(port) for port in program.inputs],
        "outputs": [_port_record(p, counts.get(i, -1)) for i, p in enumerate(program.outputs)],
        "states": [
            {
                **_tensor_record(state),
                "initial": state.initial,
                "update": state.update,
                "axis": state.axis,
            }
            for state in program.states
        ],
        "arenas": [{"bytes": integer(arena.bytes)} for arena in program.arenas],
        "buffers": [
            {
                "arena": buffer.arena,
                "weight": buffer.weight,
                "offset": integer(buffer.offset),
                "bytes": integer(buffer.bytes if buffer.weight < 0 else padded(buffer.bytes)),
            }
            for buffer in program.buffers
        ],
        "entries": entries,
        "steps": steps,
    }


def _tensor_record(port: Port | State) -> dict[str, Any]:
    return {
        "name": port.name,
        "dtype": dtypes.written(port.dtype),
        "storage": port.storage,
        "shape": [tokens(size) for size in port.shape],
        "buffer": port.buffer,
    }


def _port_record(port: Port, count: int = -1) -> dict[str, Any]:
    return {
        **_tensor_record(port),
        "slices": [
            {
                "name": part.name,
                "axis": integer(part.axis),
                "start": integer(part.start),
                "size": integer(part.size),
            }
            for part in port.slices
        ],
        "count": count,
        "axis": integer(port.count_axis),
    }


def tokens(expression: Expression) -> int | list[int | str]:
    """An expression as the manifest spells it: an integer or flat prefix tokens."""
    if not isinstance(expression, (str, tuple)):
        return integer(expression)
    flat: list[int | str] = []
    pending: list[Expression] = [expression]
    while pending:
        item = pending.pop()
        if isinstance(item, str):
            flat.append("$" + item)
        elif isinstance(item, tuple):
            flat.append(item[0])
            pending.extend(reversed(item[1:]))
        else:
            flat.append(integer(item))
    return flat


def _flatten(steps: Sequence[Step]) -> list[dict[str, Any]]:
    flat: list[dict[str, Any]] = []
    for step in steps:
        if isinstance(step, Launch):
            flat.append(
                {
                    "op": "launch",
                    "kernel": step.kernel,
                    "buffers": list(step.buffers),
                    "grid": [tokens(count) for count in step.grid],
                    "nodes": list(step.nodes),
                    "flops": integer(step.flops),
                }
            )
        elif isinstance(step, Copy):
            flat.append(
                {
                    "op": "copy",
                    "source": step.source,
                    "source_offset": integer(step.source_offset),
                    "destination": step.destination,
                    "destination_offset": integer(step.destination_offset),
                    "bytes": tokens(step.bytes),
                }
            )
        else:
            body = _flatten(step.body)
            head = {"op": "loop", "condition": step.condition, "bound": integer(step.bound)}
            flat += [{**head, "body": len(body)}, *body]
    return flat


def _golden_record(program: Program, case: Golden, files: _Shards) -> dict[str, Any]:
    names = [entry.name for entry in program.entries]

    def place(data: Array) -> dict[str, int]:
        if data.nbytes > SHARD_BYTES:
            raise InputError(
                "a golden's input",
                f"it has {data.nbytes} bytes",
                id="golden.input",
                supported=f"at most {SHARD_BYTES} bytes",
                next="export without --golden-input",
            )
        raw = _bytes(data)
        return files.place(raw.nbytes, lambda: raw, whole=True)[0]

    def place_input(record: GoldenInput) -> dict[str, int]:
        ends = {"min": integer(record.minimum), "max": integer(record.maximum)}
        if record.data is None:
            return {**ends, "file": -1, "offset": 0, "bytes": 0}
        return {**ends, **place(record.data)}

    return {
        "entry": names.index(case.entry),
        "seed": case.seed,
        "steps": case.steps,
        "symbols": [integer(case.symbols[symbol.name]) for symbol in program.symbols],
        "tolerance": case.tolerance,
        "made": case.made,
        "inputs": [place_input(record) for record in case.inputs],
        "outputs": [{"stride": out.stride, **place(out.data)} for out in case.outputs],
    }
