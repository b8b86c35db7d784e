"""Stage 8 of bundle.md: what lies within what, with every symbol at its least and its most."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any

from tinyedge.core.dtype import by_name
from tinyedge.export.bundle.dtypes import held
from tinyedge.export.bundle.expressions import Sizes
from tinyedge.export.bundle.manifest import INTEGER_LIMIT, refuse

SHARD_BYTES = 32 * 2**20
BLOCK_BYTES = 2**20  # of a file of weights, which have hashes of their own
KERNEL_FILE_BYTES = 64 * 2**20
ALIGNMENT = 256

Record = Mapping[str, Any]


def check_bounds(manifest: Record, sizes: Sequence[Sizes]) -> None:
    def need(condition: bool, because: str) -> None:
        if not condition:
            raise refuse("bundle.bounds", because)

    arenas, weights, buffers = manifest["arenas"], manifest["weights"], manifest["buffers"]
    for symbol in manifest["symbols"]:
        need(
            symbol["min"] <= symbol["max"]
            and (symbol["max"] - symbol["min"]) % symbol["step"] == 0,
            f"symbol {symbol['name']!r:.80}: min, max and step do not fit",
        )
    for number, arena in enumerate(arenas):
        need(arena["bytes"] > 0 and arena["bytes"] % ALIGNMENT == 0, f"arenas[{number}].bytes")
    total = sum(record["bytes"] for record in (*arenas, *weights))
    need(manifest["peak_bytes"] == total, f"peak_bytes is not {total}")
    for record in manifest["files"]:
        limit = KERNEL_FILE_BYTES if record["name"].startswith("kernels") else SHARD_BYTES
        need(record["bytes"] <= limit, f"{record['name']} has more than {limit} bytes")
    _weight_bounds(manifest, need)
    for number, buffer in enumerate(buffers):
        offset, size = buffer["offset"], buffer["bytes"]
        need(offset % ALIGNMENT == 0 and size > 0 and size % 4 == 0, f"buffers[{number}]: align")
        if buffer["arena"] != -1:
            room = arenas[buffer["arena"]]["bytes"]
            need(offset + size <= room, f"buffers[{number}] leaves its arena")
        else:
            room = weights[buffer["weight"]]["bytes"]
            need(offset == 0 and size == room, f"buffers[{number}] is not all of its weight")
    _image_bounds(manifest, need)
    _repack_bounds(manifest, need)
    for group in ("inputs", "outputs", "states"):
        for port in manifest[group]:
            _port_bounds(manifest, group, port, sizes, need)
    _step_bounds(manifest, sizes, need)
    for number, case in enumerate(manifest["golden"]):
        _golden_bounds(manifest, case, f"golden[{number}]", need)


_Need = Callable[[bool, str], None]


def _weight_bounds(manifest: Record, need: _Need) -> None:
    files = manifest["files"]
    for weight in manifest["weights"]:
        where = f"weight {weight['name']!r:.80}"
        size, segments = weight["bytes"], weight["segments"]
        need(size > 0 and size % 4 == 0, f"{where}: bytes")
        need(sum(segment["bytes"] for segment in segments) == size, f"{where}: its segments' sum")
        for segment in segments:
            need(segment["offset"] % ALIGNMENT == 0 and segment["bytes"] > 0, f"{where}: segment")
            end = segment["offset"] + segment["bytes"]
            need(end <= files[segment["file"]]["bytes"], f"{where} leaves its file")
        cut = all(segment["bytes"] % ALIGNMENT == 0 for segment in segments[:-1])
        need(cut, f"{where} is not cut at multiples of {ALIGNMENT}")
    for record in (manifest["prelude"], *manifest["kernels"]):
        where = record.get("entry", "prelude")
        end = record["offset"] + record["bytes"]
        need(end <= files[record["file"]]["bytes"], f"{where} leaves its file")
        need(record["bytes"] > 0 or "entry" not in record, f"kernel {where} is empty")


def _image_bounds(manifest: Record, need: _Need) -> None:
    used = {port["buffer"] for g in ("inputs", "outputs", "states") for port in manifest[g]}
    for step in manifest["steps"]:
        if step["op"] != "launch":
            used.update(buffers_of(step))
    for number, image in enumerate(manifest.get("images", ())):
        where = f"images[{number}]"
        pitch, pixel = image["pitch"], image_pixel(image["dtype"])
        need(pitch % pixel == 0 and pitch >= image["width"] * pixel, f"{where}: its pitch")
        room = manifest["buffers"][image["buffer"]]["bytes"]
        need(pitch * image["height"] <= room, f"{where} does not fit its buffer")
        need(image["buffer"] not in used, f"{where}: its buffer is not only a kernel's")


def _repack_bounds(manifest: Record, need: _Need) -> None:
    for number, axes in enumerate(manifest.get("repacks", ())):
        where, words = f"repacks[{number}]", manifest["weights"][number]["bytes"] // 4
        need(all(used <= places for places, used, _ in axes), f"{where} uses more than there is")
        reached = max((used * stride for _, used, stride in axes), default=1)
        places = prod(places for places, _, _ in axes)
        need(max(places, reached) <= words, f"{where} leaves its weight")


def image_pixel(dtype: str) -> int:
    """Bytes of a four-channel pixel."""
    return 4 * by_name(dtype).itemsize


def _port_bounds(
    manifest: Record, group: str, port: Record, sizes: Sequence[Sizes], need: _Need
) -> None:
    where = f"{group}: {port['name']!r:.80}"
    buffer = manifest["buffers"][port["buffer"]]
    need(buffer["arena"] != -1, f"{where} lies in a weight")
    for size in sizes:
        elements = _elements(port["shape"], size, need, where)
        itemsize = by_name(port["storage"]).itemsize
        need(elements * itemsize <= buffer["bytes"], f"{where} does not fit its buffer")
    if group == "states":
        initial = manifest["weights"][port["initial"]]["bytes"] if port["initial"] != -1 else 0
        need(initial <= buffer["bytes"], f"{where}: the initial value does not fit")
        return
    for part in port["slices"]:
        need(part["axis"] < len(port["shape"]), f"{where}: a slice's axis")
        extent = sizes[0](port["shape"][part["axis"]])
        need(part["start"] + part["size"] <= extent, f"{where}: a slice's range")
    if port["count"] != -1:
        other = manifest["outputs"][port["count"]]
        need(held(other["dtype"]).is_int, f"{where}: its count is no integer")
        need(port["axis"] < len(port["shape"]), f"{where} has no axis that its count is of")
        for size in sizes:
            one = _elements(other["shape"], size, need, where)
            need(one == 1, f"{where}: its count has {one} elements")


def _elements(shape: Sequence[Any], size: Sizes, need: _Need, where: str) -> int:
    elements = 1
    for expression in shape:
        extent = size(expression)
        need(extent >= 0, f"{where}: a negative size")
        elements *= extent
        need(elements <= INTEGER_LIMIT, f"{where}: too many elements")
    return elements


def _step_bounds(manifest: Record, sizes: Sequence[Sizes], need: _Need) -> None:
    buffers, steps = manifest["buffers"], manifest["steps"]
    weights = {number for number, buffer in enumerate(buffers) if buffer["arena"] == -1}
    accesses = accesses_of(manifest)
    for number, step in enumerate(steps):
        where = f"steps[{number}]"
        if step["op"] == "launch":
            pairs = zip(step["buffers"], accesses[step["kernel"]], strict=True)
            written = {index for index, access in pairs if access == "read_write"}
            need(weights.isdisjoint(written), f"{where} writes a weight")
            for size in sizes:
                for count in step["grid"]:
                    need(0 <= size(count) < 2**31, f"{where}: its counts")
        elif step["op"] == "copy":
            need(buffers[step["destination"]]["arena"] != -1, f"{where} writes a weight")
            for size in sizes:
                length = size(step["bytes"])
                need(length >= 0 and length % 4 == 0, f"{where}: its bytes")
                for end in ("source", "destination"):
                    offset = step[end + "_offset"]
                    room = buffers[step[end]]["bytes"]
                    need(offset % 4 == 0 and offset + length <= room, f"{where}: its {end}")
        else:
            need(buffers[step["condition"]]["arena"] != -1, f"{where}: condition in a weight")
    reached = 0
    for entry in manifest["entries"]:
        first, count = entry["steps"]
        where = f"entry {entry['name']!r:.80}"
        need(first == reached and first + count <= len(steps), f"{where}: its range of steps")
        reached = first + count
        _blocks(steps, first, reached, need)
    need(reached == len(steps), "steps that belong to no entry")


def accesses_of(manifest: Record) -> list[list[str]]:
    """How each kernel takes its buffers."""
    return [[binding["access"] for binding in k["bindings"]] for k in manifest["kernels"]]


def _blocks(steps: Sequence[Record], first: int, end: int, need: _Need) -> None:
    """Check that the blocks in [first, end) nest properly and at most 8 deep."""
    around = [(end, 0)]
    for number in range(first, end):
        while around[-1][0] == number:
            around.pop()
        step = steps[number]
        if step["op"] != "loop":
            continue
        after = number + 1 + step["body"]
        limit, depth = around[-1]
        need(after <= limit, f"steps[{number}]: its block leaves the block around it")
        need(depth < 8, f"steps[{number}]: blocks nested more than 8 deep")
        if step["body"]:
            around.append((after, depth + 1))


def _golden_bounds(manifest: Record, case: Record, where: str, need: _Need) -> None:
    for symbol, value in zip(manifest["symbols"], case["symbols"], strict=True):
        inside = symbol["min"] <= value <= symbol["max"]
        need(inside and (value - symbol["min"]) % symbol["step"] == 0, f"{where}: symbols")
    size = Sizes(manifest, "max", case["symbols"])
    entry = manifest["entries"][case["entry"]]
    for record, index in zip(case["inputs"], entry["inputs"], strict=True):
        port = manifest["inputs"][index]
        elements = _elements(port["shape"], size, need, where)
        dtype = held(port["dtype"])
        stored = record["file"] != -1
        expected = elements * dtype.itemsize if stored else 0
        need(record["bytes"] == expected, f"{where}: the bytes of input {port['name']!r:.80}")
        need(stored or record["offset"] == 0, f"{where}: a generated input has an offset")
        if stored:
            _stored(manifest, record, where, need)
        ends = (record["min"], record["max"])
        legal = ends == (0, 0) if stored else _golden_range(port["dtype"], *ends)
        need(legal, f"{where}: min and max of input {port['name']!r:.80}")
    ports = [*(manifest["outputs"][index] for index in entry["outputs"]), *manifest["states"]]
    for number, (record, port) in enumerate(zip(case["outputs"], ports, strict=False)):
        elements = -(-_elements(port["shape"], size, need, where) // record["stride"])
        expected = elements * held(port["dtype"]).itemsize
        untold = number >= len(entry["outputs"]) and not record["bytes"]
        right = untold or record["bytes"] == expected
        need(right, f"{where}: the bytes of output {port['name']!r:.80}")
        _stored(manifest, record, where, need)


def _stored(manifest: Record, record: Record, where: str, need: _Need) -> None:
    need(record["offset"] % ALIGNMENT == 0, f"{where}: an offset")
    room = manifest["files"][record["file"]]["bytes"]
    need(record["offset"] + record["bytes"] <= room, f"{where}: a range leaves its file")


def _golden_range(dtype_name: str, least: int, most: int) -> bool:
    dtype = held(dtype_name)
    if dtype.name == "float16":
        return (least, most) in ((-1, 1), (0, 1))
    if dtype.is_float:
        return -(2**20) <= least <= most <= 2**20
    low, high = dtype.limits
    return low <= least <= most <= high and most - least < 2**32


def buffers_of(step: Record) -> list[int]:
    if step["op"] == "launch":
        return list(step["buffers"])
    if step["op"] == "copy":
        return [step["source"], step["destination"]]
    return [step["condition"]]
