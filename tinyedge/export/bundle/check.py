"""Verification of a manifest: stages 2 to 10 of bundle.md, in its order, with its error ids."""

from __future__ import annotations

import itertools
import re
from bisect import bisect
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from tinyedge.export.bundle import schema
from tinyedge.export.bundle.bounds import BLOCK_BYTES, accesses_of, buffers_of, check_bounds
from tinyedge.export.bundle.expressions import Sizes
from tinyedge.export.bundle.manifest import refuse
from tinyedge.export.bundle.records import check_records

FORMAT = "tinyedge-bundle"
VERSION = 1

FILE_NAME = re.compile(r"(kernels|weights|golden)(-[0-9]{5})?\.[a-z0-9]{1,8}")

Record = Mapping[str, Any]


def check(manifest: Record) -> None:
    """Raise BundleError unless the manifest, as decoded, keeps every rule of the format."""
    _identity(manifest)
    check_records(manifest)
    _names(manifest)
    _indices(manifest)
    _features_used(manifest)
    sizes = [Sizes(manifest, "min"), Sizes(manifest, "max")]
    for expression in _expressions(manifest):
        for size in sizes:
            size(expression)
    check_bounds(manifest, sizes)
    _overlaps(manifest, sizes)
    _requirements(manifest, sizes)


# --- stage 2: is this ours ---------------------------------------------------------------------


def _identity(manifest: Record) -> None:
    if manifest.get("format") != FORMAT:
        raise refuse("bundle.format", f"its format is {manifest.get('format')!r:.80}")
    version = manifest.get("version")
    if version != VERSION or isinstance(version, bool):
        raise refuse("bundle.version", f"its version is {version!r:.80}, not {VERSION}")
    features = manifest.get("features")
    if not isinstance(features, list):
        raise refuse("bundle.feature", "features is no array")
    for feature in features:
        if feature not in tuple(schema.FEATURES):
            raise refuse("bundle.feature", f"it requires {feature!r:.80}, which is not known")
    target = manifest.get("target")
    if not isinstance(target, str) or not re.fullmatch(r"[a-z][a-z0-9]{0,31}", target):
        raise refuse("bundle.target", f"its target is {target!r:.80}")


# --- stages 4 and 5: names and indices ---------------------------------------------------------


def _names(manifest: Record) -> None:
    def unique(names: Iterable[str], where: str) -> None:
        seen: set[str] = set()
        for name in names:
            if name in seen:
                raise refuse("bundle.name", f"{where} has two of {name!r:.80}")
            seen.add(name)

    def increasing(names: Sequence[str], where: str) -> None:
        for before, after in itertools.pairwise(names):
            if before >= after:
                raise refuse("bundle.name", f"{where}: {after!r:.80} after {before!r:.80}")

    increasing(manifest["features"], "features")
    for group in ("symbols", "states", "entries"):
        unique([record["name"] for record in manifest[group]], group)
    for entry in manifest["entries"]:
        for group in ("inputs", "outputs"):
            listed = set(entry[group])  # what else it lists is for the next stage
            names = (p["name"] for i, p in enumerate(manifest[group]) if i in listed)
            unique(names, f"entry {entry['name']!r:.80}, in its {group},")
    for port in manifest["outputs"]:
        unique([part["name"] for part in port["slices"]], f"the slices of {port['name']!r:.80}")
    unique([kernel["entry"] for kernel in manifest["kernels"]], "kernels")
    for record in manifest["files"]:
        if not FILE_NAME.fullmatch(record["name"]):
            raise refuse("bundle.name", f"{record['name']!r:.80} is no name of a bundle's file")
    increasing([record["name"] for record in manifest["files"]], "files")


def _indices(manifest: Record) -> None:
    def within(index: int, group: str, where: str) -> None:
        if not 0 <= index < len(manifest[group]):
            raise refuse("bundle.index", f"{where}: there is no {group}[{index}]")

    def file(record: Record, kind: str, where: str) -> None:
        within(record["file"], "files", where)
        name = manifest["files"][record["file"]]["name"]
        if not name.startswith(kind):
            raise refuse("bundle.index", f"{where}: {name} is no file of {kind}")

    def same(actual: Sequence[Any], expected: Sequence[Any], where: str) -> None:
        if len(actual) != len(expected):
            raise refuse("bundle.index", f"{where}: {len(actual)}, not {len(expected)}")

    file(manifest["prelude"], "kernels", "prelude")
    for group in ("inputs", "outputs", "states"):
        for port in manifest[group]:
            within(port["buffer"], "buffers", f"{group}: {port['name']!r:.80}")
    for port in manifest["outputs"]:
        if port["count"] != -1:
            within(port["count"], "outputs", f"the count of {port['name']!r:.80}")
    for state in manifest["states"]:
        if state["initial"] != -1:
            within(state["initial"], "weights", f"states: {state['name']!r:.80}")
    for entry in manifest["entries"]:
        for group in ("inputs", "outputs"):
            for index in entry[group]:
                within(index, group, f"entry {entry['name']!r:.80}")
            if len(set(entry[group])) != len(entry[group]):
                raise refuse("bundle.index", f"entry {entry['name']!r:.80} repeats one of {group}")
        listed = {-1, *entry["outputs"]}
        for index in entry["outputs"]:
            if manifest["outputs"][index]["count"] not in listed:
                raise refuse("bundle.index", f"entry {entry['name']!r:.80} lacks a count")
    for number, buffer in enumerate(manifest["buffers"]):
        if (buffer["arena"] == -1) == (buffer["weight"] == -1):
            raise refuse("bundle.index", f"buffers[{number}] is not one of arena and weight")
        group = "arenas" if buffer["weight"] == -1 else "weights"
        within(max(buffer["arena"], buffer["weight"]), group, f"buffers[{number}]")
    for number, image in enumerate(manifest.get("images", ())):
        within(image["buffer"], "buffers", f"images[{number}]")
        if number and image["buffer"] <= manifest["images"][number - 1]["buffer"]:
            raise refuse("bundle.index", f"images[{number}]: its buffer does not increase")
    for weight in manifest["weights"]:
        for segment in weight["segments"]:
            file(segment, "weights", f"weight {weight['name']!r:.80}")
    if "repacks" in manifest:
        same(manifest["repacks"], manifest["weights"], "repacks")
    for kernel in manifest["kernels"]:
        file(kernel, "kernels", f"kernel {kernel['entry']}")
    for number, step in enumerate(manifest["steps"]):
        where = f"steps[{number}]"
        if step["op"] == "launch":
            within(step["kernel"], "kernels", where)
            same(step["buffers"], manifest["kernels"][step["kernel"]]["bindings"], where)
        used = buffers_of(step)
        if used and not (min(used) >= 0 and max(used) < len(manifest["buffers"])):
            for buffer in used:
                within(buffer, "buffers", where)
    for number, case in enumerate(manifest["golden"]):
        where = f"golden[{number}]"
        within(case["entry"], "entries", where)
        entry = manifest["entries"][case["entry"]]
        same(case["symbols"], manifest["symbols"], where)
        same(case["inputs"], entry["inputs"], where)
        told = [*entry["outputs"], *manifest["states"]]
        same(
            case["outputs"], told if len(case["outputs"]) == len(told) else entry["outputs"], where
        )
        for record in case["inputs"]:
            if record["file"] != -1:
                file(record, "golden", where)
        for record in case["outputs"]:
            file(record, "golden", where)
    if "blocks" in manifest:
        same(manifest["blocks"], manifest["files"], "blocks")
        for number, (hashes, record) in enumerate(
            zip(manifest["blocks"], manifest["files"], strict=True)
        ):
            same(hashes, range(block_count(record)), f"blocks[{number}]")


def block_count(record: Record) -> int:
    """How many hashes of blocks a file has where files have some."""
    return -(-record["bytes"] // BLOCK_BYTES) if record["name"].startswith("weights") else 0


# --- stages 6 and 7: features and expressions --------------------------------------------------


def features_used(manifest: Record) -> tuple[str, ...]:
    """The features of the format that a manifest's records need, sorted."""
    ops = {step["op"] for step in manifest["steps"]}
    used = {
        "blocks": "blocks" in manifest,
        "count": any(port["count"] != -1 for port in manifest["outputs"]),
        "entries": len(manifest["entries"]) > 1,
        "fallback": "fallback" in manifest,
        "images": bool(manifest.get("images")),
        "loop": "loop" in ops,
        "repacks": "repacks" in manifest,
        "state": bool(manifest["states"]),
        "symbols": bool(manifest["symbols"]),
        "variants": "variants" in manifest,
    }
    return tuple(sorted(name for name, use in used.items() if use))


def _features_used(manifest: Record) -> None:
    for feature in features_used(manifest):
        if feature not in manifest["features"]:
            raise refuse("bundle.feature", f"it uses {feature} without listing it")


def _expressions(manifest: Record) -> Iterator[Any]:
    for group in ("inputs", "outputs", "states"):
        for port in manifest[group]:
            yield from port["shape"]
    for step in manifest["steps"]:
        if step["op"] == "launch":
            yield from step["grid"]
        elif step["op"] == "copy":
            yield step["bytes"]


# --- stages 8 to 10: ranges, overlaps, requirements --------------------------------------------


class _Span(NamedTuple):
    """Bytes [start, end) of an arena, or of a weight (`arena` is -1 - weight)."""

    arena: int
    start: int
    end: int

    def overlaps(self, other: _Span) -> bool:
        return self.arena == other.arena and self.start < other.end and other.start < self.end


def _span(buffer: Record, offset: int = 0, length: int | None = None) -> _Span:
    arena = buffer["arena"] if buffer["arena"] != -1 else -1 - buffer["weight"]
    start = buffer["offset"] + offset
    return _Span(arena, start, start + (buffer["bytes"] if length is None else length))


def _disjoint(spans: Sequence[_Span], where: str) -> None:
    ordered = sorted(spans)
    for before, after in itertools.pairwise(ordered):
        if before.overlaps(after):
            raise refuse("bundle.overlap", f"{where}: two ranges overlap")


def _overlaps(manifest: Record, sizes: Sequence[Sizes]) -> None:
    buffers = manifest["buffers"]
    segments = [item for weight in manifest["weights"] for item in weight["segments"]]
    for ranges in (segments, [manifest["prelude"], *manifest["kernels"]]):
        before = (0, 0)
        for item in ranges:
            start = (item["file"], item["offset"])
            if start < before:
                raise refuse("bundle.overlap", f"a file's ranges overlap or go back at {start}")
            before = (item["file"], item["offset"] + item["bytes"])

    for number, axes in enumerate(manifest.get("repacks", ())):
        wide = [(stride, used) for _, used, stride in axes if used > 1]
        for (inner, used), (outer, _) in itertools.pairwise(sorted(wide)):
            if inner * used > outer:
                raise refuse("bundle.overlap", f"repacks[{number}]: words may share a place")

    def spans(group: str, indices: Sequence[int]) -> list[_Span]:
        return [_span(buffers[manifest[group][index]["buffer"]]) for index in indices]

    for entry in manifest["entries"]:
        where = f"entry {entry['name']!r:.80}"
        _disjoint(spans("inputs", entry["inputs"]), f"inputs of {where}")
        _disjoint(list(set(spans("outputs", entry["outputs"]))), f"outputs of {where}")
    states = sorted(spans("states", range(len(manifest["states"]))))
    _disjoint(states, "states")
    for group in ("inputs", "outputs"):
        for port in set(spans(group, range(len(manifest[group])))):
            place = bisect(states, port)
            _disjoint([*states[max(0, place - 1) : place + 1], port], f"states and {group}")
    order, accesses = _Order([_span(buffer) for buffer in buffers]), accesses_of(manifest)
    equal = manifest["target"] != "webgpu"
    for number, step in enumerate(manifest["steps"]):
        if step["op"] == "launch":
            if order.overlap(step["buffers"], accesses[step["kernel"]], equal):
                _launch_overlaps(manifest, step, f"steps[{number}]")
        elif step["op"] == "copy":
            where = f"steps[{number}]"
            for size in sizes:
                length = size(step["bytes"])
                ends = ("source", "destination")
                pair = [_span(buffers[step[e]], step[e + "_offset"], length) for e in ends]
                _disjoint(pair if length else [], where)


class _Order:
    """All spans of buffers in order, to find overlaps in a launch from left to right."""

    def __init__(self, spans: Sequence[_Span]) -> None:
        self.spans = sorted(set(spans))
        ranks = {span: rank for rank, span in enumerate(self.spans)}
        self.ranks = [ranks[span] for span in spans]  # of each buffer; equal ones have one
        self.groups = self._groups()

    def _groups(self) -> list[int]:
        """A number for each buffer: those of other numbers do not overlap it."""
        groups: list[int] = []  # of each span
        memory, reached = 0, -1
        for rank, (arena, start, end) in enumerate(self.spans):
            apart = start >= reached or arena != memory
            groups.append(rank if apart else groups[-1])
            memory, reached = arena, end if apart else max(reached, end)
        return [groups[rank] for rank in self.ranks]

    def overlap(self, buffers: Sequence[int], accesses: Sequence[str], equal: bool) -> bool:
        """Whether a range that a launch writes overlaps another one; equal: it may be the same.

        What overlaps any span to its left overlaps the one of these that reaches furthest; and if
        it may not overlap the one, it may not overlap the other, or that one was found before.
        """
        if len(set(map(self.groups.__getitem__, buffers))) == len(buffers):
            return False
        ranks = [self.ranks[buffer] for buffer in buffers]
        pairs = zip(ranks, accesses, strict=True)
        written = {rank for rank, access in pairs if access == "read_write"}
        distinct = sorted(set(ranks))
        if len(distinct) < len(ranks) and not equal:
            if any(ranks.count(rank) > 1 for rank in written):
                return True
        memory, reached, furthest = 0, -1, -1
        for rank in distinct:
            arena, start, end = self.spans[rank]
            if start >= reached or arena != memory:
                memory, reached, furthest = arena, end, rank
                continue
            if rank in written or furthest in written:
                return True
            if end > reached:
                reached, furthest = end, rank
        return False


def _launch_overlaps(manifest: Record, step: Record, where: str) -> None:
    """Raise BundleError that names the two buffers of a launch that overlap."""
    spans = [_span(manifest["buffers"][index]) for index in step["buffers"]]
    bindings = manifest["kernels"][step["kernel"]]["bindings"]
    written = [binding["access"] == "read_write" for binding in bindings]
    for one in range(len(spans)):
        for two in range(one):
            identical = spans[one] == spans[two] and manifest["target"] != "webgpu"
            writes = written[one] or written[two]
            if writes and not identical and spans[one].overlaps(spans[two]):
                raise refuse("bundle.overlap", f"{where}: buffers {two} and {one} overlap")


def _requirements(manifest: Record, sizes: Sequence[Sizes]) -> None:
    limits = manifest["requirements"]

    def need(value: int, limit: str, where: str) -> None:
        if value > limits[limit]:
            raise refuse("bundle.requirement", f"{where}: {value}, but {limit} {limits[limit]}")

    for group in ("arenas", "weights"):
        for number, record in enumerate(manifest[group]):
            need(record["bytes"], "buffer_bytes", f"{group}[{number}]")
    for kernel in manifest["kernels"]:
        need(len(kernel["bindings"]), "bindings", kernel["entry"])
        x, y, z = kernel["workgroup"]
        need(x * y * z, "invocations", kernel["entry"])
    for number, image in enumerate(manifest.get("images", ())):
        for limit in ("width", "height"):
            need(image[limit], f"image_{limit}", f"images[{number}]")
    buffers, accesses = manifest["buffers"], accesses_of(manifest)
    wanted = ["read" if buffer["arena"] == -1 else "read_write" for buffer in buffers]
    bytes = [buffer["bytes"] for buffer in buffers]
    for number, step in enumerate(manifest["steps"]):
        if step["op"] != "launch":
            continue
        where = f"steps[{number}]"
        for size in sizes:
            for count in step["grid"]:
                need(size(count), "workgroups", where)
        need(max(map(bytes.__getitem__, step["buffers"])), "binding_bytes", where)
        pairs = zip(step["buffers"], accesses[step["kernel"]], strict=True)
        odd = [index for index, access in pairs if access != wanted[index]]
        if odd and manifest["target"] == "webgpu":
            because = f"{where}: buffers[{odd[0]}] is not bound {wanted[odd[0]]}"
            raise refuse("bundle.requirement", because)


def requirements(manifest: Record) -> dict[str, int]:
    """The least requirements that the manifest's own records have (`workgroup_bytes` apart)."""
    buffers, kernels = manifest["buffers"], manifest["kernels"]
    least = {
        "bindings": max((len(kernel["bindings"]) for kernel in kernels), default=0),
        "binding_bytes": 0,
        "buffer_bytes": 0,
        "invocations": 0,
        "workgroups": 0,
        "workgroup_bytes": 0,
    }
    for limit in ("width", "height") if "images" in manifest else ():
        images = manifest["images"]
        least[f"image_{limit}"] = max((image[limit] for image in images), default=0)
    for record in (*manifest["arenas"], *manifest["weights"]):
        least["buffer_bytes"] = max(least["buffer_bytes"], record["bytes"])
    if manifest["target"] == "webgpu":  # a page reads all outputs of an entry by way of one buffer
        outputs = manifest["outputs"]
        for entry in manifest["entries"]:
            bytes = sum(buffers[outputs[number]["buffer"]]["bytes"] for number in entry["outputs"])
            least["buffer_bytes"] = max(least["buffer_bytes"], bytes)
    for kernel in kernels:
        x, y, z = kernel["workgroup"]
        least["invocations"] = max(least["invocations"], x * y * z)
    sizes = [Sizes(manifest, "min"), Sizes(manifest, "max")]
    for step in manifest["steps"]:
        if step["op"] == "launch":
            bound = (buffers[index]["bytes"] for index in step["buffers"])
            least["binding_bytes"] = max(least["binding_bytes"], *bound)
            counts = (size(count) for size in sizes for count in step["grid"])
            least["workgroups"] = max(least["workgroups"], *counts)
    return least
