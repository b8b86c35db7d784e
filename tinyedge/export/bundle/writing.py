"""Writing a bundle: a program and its golden cases as files and their manifest."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from importlib import metadata
from operator import index as integer
from pathlib import Path
from typing import Any

import numpy as np

from tinyedge.core.errors import BundleError, InputError, InternalError
from tinyedge.core.program.ports import padded
from tinyedge.core.program.program import (
    Copy,
    Expression,
    Launch,
    Port,
    Program,
    State,
    Step,
    Variant,
)
from tinyedge.export.bundle import dtypes, schema
from tinyedge.export.bundle.bounds import SHARD_BYTES
from tinyedge.export.bundle.check import (
    FORMAT,
    VERSION,
    block_count,
    check,
    features_used,
    requirements,
)
from tinyedge.export.bundle.golden import Golden, GoldenInput
from tinyedge.export.bundle.manifest import MANIFEST, decode, encode, other_manifest
from tinyedge.export.bundle.repack import share_weights
from tinyedge.export.bundle.weights import Shards, flat_bytes, in_order_of_files, place_weights

Array = np.ndarray[Any, Any]
Progress = Callable[[int, int], None]
Record = Mapping[str, Any]


def write(
    program: Program,
    folder: str | Path,
    *,
    goldens: Sequence[Golden] = (),
    tool: str = "",
    progress: Progress | None = None,
    variants: Sequence[Variant] = (),
    fallback: Program | None = None,
) -> dict[str, Any]:
    """Write a program's manifest, kernels, weights and goldens into an existing, empty folder.

    variants: of a bundle of several programs all of them, the best first; the last is `program`.
    fallback: of the same model, for where `program` does not run; not beside variants. Its weights
    are stored as `program` reads them where they differ in order alone.
    The manifest comes last. progress(done, total) is called with bytes as they are written.
    Returns the manifest. The same program gives the same bytes. Raises InternalError if the
    program breaks a rule of the format: nothing is written then.
    """
    folder = Path(folder)
    others = variants[:-1]
    spare = []
    if fallback is not None:
        program, fallback = share_weights(program, fallback)
        spare = [fallback]
    programs = [*(variant.program for variant in others), *spare, program]
    golden_files = Shards("golden")
    cases = [_golden_record(program, case, golden_files) for case in goldens]
    weight_files, placed = place_weights(programs)
    kernels: dict[str, bytes] = {}
    manifests = []
    for number, (each, weights) in enumerate(zip(programs, placed, strict=True), 1):
        suffix = f"-{number:05}" if number < len(programs) else ""
        files, manifest = _manifest(each, weights, weight_files, cases, golden_files, suffix)
        kernels |= files
        if each is fallback:
            _leave_out_what_is_told(manifest)
        manifests.append({**manifest, "tool": tool or f"tinyedge {_version()}"})
    if others:
        last = variants[-1]
        manifests[-1]["variant"] = {"name": last.name, "requires": list(last.requires)}
        manifests[-1]["variants"] = [
            {"name": each.name, "requires": list(each.requires), "bytes": 0, "sha256": "0" * 64}
            for each in others
        ]
    if fallback is not None:
        manifests[-1]["fallback"] = {"bytes": 0, "sha256": "0" * 64}
    for manifest in manifests:
        manifest["features"] = list(features_used(manifest))
        _self_check(manifest)

    done = 0
    total = golden_files.total + weight_files.total + sum(map(len, kernels.values()))

    def advance(count: int) -> None:
        nonlocal done
        done += count
        if progress:
            progress(done, total)

    written = [*golden_files.write(folder, advance)]
    for name, data in kernels.items():
        (folder / name).write_bytes(data)
        advance(len(data))
    by_blocks = any("blocks" in manifest for manifest in manifests)
    written += weight_files.write(folder, advance, by_blocks=by_blocks)
    hashes = {record["name"]: record for record in written}
    *rest, manifest = manifests
    for number, other in enumerate(rest):
        facts = _write_manifest(folder / other_manifest(number), other, hashes)
        (manifest["variants"][number] if others else manifest["fallback"]).update(facts)
    _write_manifest(folder / MANIFEST, manifest, hashes)
    return manifest


def _leave_out_what_is_told(manifest: dict[str, Any]) -> None:
    """Without what only people read, as pages fetch a fallback's manifest beside the other one,
    which has the model's nodes.
    """
    for kernel in manifest["kernels"]:
        kernel["moves"] = []
    for step in manifest["steps"]:
        if step["op"] == "launch":
            step["nodes"] = []


def _write_manifest(
    path: Path, manifest: dict[str, Any], hashes: Mapping[str, Record]
) -> dict[str, Any]:
    """Write a manifest with its files' hashes; gives its own size and hash."""
    for number, record in enumerate(manifest["files"]):
        found = hashes.get(record["name"], record)
        record["sha256"] = found["sha256"]
        if manifest.get("blocks", {number: ()})[number]:
            manifest["blocks"][number] = found["blocks"]
    content = encode(manifest)
    path.write_bytes(content)
    return {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}


def _manifest(
    program: Program,
    weights: Sequence[dict[str, Any]],
    weight_files: Shards,
    cases: Sequence[dict[str, Any]],
    golden_files: Shards,
    suffix: str,
) -> tuple[dict[str, bytes], dict[str, Any]]:
    """A program's files of kernels, by name, and its manifest, but for features and hashes.

    weights: their records. suffix: of the name of the kernels' file.
    """
    program, weights, used = in_order_of_files(program, weights)
    text, prelude, kernels = _kernel_text(program)
    name = f"kernels{suffix}.{program.suffix}"
    kernel_files = dict(sorted({**program.binaries, name: text}.items()))
    # File numbers follow the sorted names: goldens, kernels, weights.
    first = len(golden_files.parts) + len(kernel_files)
    _renumber([prelude, *kernels], len(golden_files.parts) + list(kernel_files).index(name))
    _renumber((segment for weight in weights for segment in weight["segments"]), first)
    placeholders = weight_files.placeholders()
    manifest = {
        "format": FORMAT,
        "version": VERSION,
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
            *(placeholders[number] for number in used),
        ],
    }
    if program.images:
        manifest["images"] = [asdict(image) for image in program.images]
    if any(each.repack for each in program.weights):
        manifest["repacks"] = [list(map(list, each.repack)) for each in program.weights]
    if program.target in schema.IN_PAGES:
        counts = list(map(block_count, manifest["files"]))
        if max(counts) > 1:
            manifest["blocks"] = [["0" * 64] * count for count in counts]
    sizes = (*manifest["arenas"], *weights)
    manifest["peak_bytes"] = sum(record["bytes"] for record in sizes)
    manifest["requirements"] = _merge(requirements(manifest), program.requirements)
    return kernel_files, manifest


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


def _golden_record(program: Program, case: Golden, files: Shards) -> dict[str, Any]:
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
        raw = flat_bytes(data)
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
        "outputs": [
            {"stride": out.stride, **place(out.data)} for out in (*case.outputs, *case.states)
        ],
    }
