"""Verification of a manifest: stages 2 to 10 of bundle.md, in its order, with its error ids."""

from __future__ import annotations

import itertools
import re
from bisect import bisect
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from tinyedge.core.dtype import by_name
from tinyedge.export.bundle import schema
from tinyedge.export.bundle.dtypes import held, held_name
from tinyedge.export.bundle.manifest import INTEGER_LIMIT, refuse
from tinyedge.export.bundle.schema import STORAGE

FORMAT = "tinyedge-bundle"
VERSION = 1
SHARD_BYTES = 32 * 2**20
KERNEL_FILE_BYTES = 64 * 2**20
ALIGNMENT = 256

FILE_NAME = re.compile(r"(kernels|weights|golden)(-[0-9]{5})?\.[a-z0-9]{1,8}")

Record = Mapping[str, Any]


def check(manifest: Record) -> None:
    """Raise BundleError unless the manifest, as decoded, keeps every rule of the format."""
    _identity(manifest)
    (_WITH_IMAGES if "images" in manifest["features"] else _MANIFEST).check(manifest, "manifest")
    _names(manifest)
    _indices(manifest)
    _features_used(manifest)
    sizes = [_Sizes(manifest, "min"), _Sizes(manifest, "max")]
    for expression in _expressions(manifest):
        for size in sizes:
            size(expression)
    _bounds(manifest, sizes)
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


# --- stage 3: the shape of the records ---------------------------------------------------------


@dataclass(frozen=True)
class _Integer:
    least: int = 0
    most: int = INTEGER_LIMIT

    def accepts(self, values: Sequence[Any]) -> bool:
        """Whether all of many values are allowed; no one by one."""
        whole = set(map(type, values)) == {int}
        return whole and self.least <= min(values) and max(values) <= self.most

    def check(self, value: Any, where: str) -> None:
        if type(value) is not int or not self.least <= value <= self.most:
            raise refuse("bundle.field", f"{where} is no integer {self.least}..{self.most}")


@dataclass(frozen=True)
class _Text:
    most: int = 4096
    least: int = 0
    pattern: str = ""

    def accepts(self, values: Sequence[Any]) -> bool:
        """Whether all of many values are allowed; False also where one by one must be asked."""
        if self.pattern or set(map(type, values)) != {str}:
            return False
        lengths = set(map(len, values))  # a character may be two units
        return self.least <= min(lengths) and 2 * max(lengths) <= self.most

    def check(self, value: Any, where: str) -> None:
        if not isinstance(value, str):
            raise refuse("bundle.field", f"{where} is no string")
        length = len(value) + sum(character > "\uffff" for character in value)
        if not self.least <= length <= self.most:
            raise refuse("bundle.field", f"{where} has {length} characters, most {self.most}")
        if self.pattern and not re.fullmatch(self.pattern, value):
            raise refuse("bundle.field", f"{where} is {value!r:.80}, not of {self.pattern}")


@dataclass(frozen=True)
class _Choice:
    values: tuple[Any, ...]

    def check(self, value: Any, where: str) -> None:
        if not any(type(value) is type(allowed) and value == allowed for allowed in self.values):
            raise refuse("bundle.field", f"{where} is {value!r:.80}, not of {self.values}")


@dataclass(frozen=True)
class _Array:
    item: _Shape
    most: int
    least: int = 0

    def check(self, value: Any, where: str) -> None:
        if not isinstance(value, list):
            raise refuse("bundle.field", f"{where} is no array")
        if not self.least <= len(value) <= self.most:
            raise refuse(
                "bundle.count", f"{where} has {len(value)} elements, not {self.least}..{self.most}"
            )
        if isinstance(self.item, (_Integer, _Text)) and self.item.accepts(value):
            return
        for position, item in enumerate(value):
            self.item.check(item, f"{where}[{position}]")


@dataclass(frozen=True)
class _Object:
    """An object with exactly these members, or in a free object with these at least.

    `rule` is a check of the whole, done after the members'.
    """

    members: Mapping[str, _Shape]
    free: bool = False
    rule: Callable[[Record, str], None] | None = None

    def check(self, value: Any, where: str) -> None:
        if not isinstance(value, dict):
            raise refuse("bundle.field", f"{where} is no object")
        missing = self.members.keys() - value.keys()
        if missing:
            raise refuse("bundle.field", f"{where} has no {min(missing)}")
        unknown = value.keys() - self.members.keys()
        if unknown and not self.free:
            raise refuse("bundle.field", f"{where} has the unknown key {min(unknown)}")
        if self.free and len(value) > schema.KEYS:
            raise refuse("bundle.count", f"{where} has {len(value)} keys, most {schema.KEYS}")
        for key in sorted(self.members):
            self.members[key].check(value[key], f"{where}.{key}")
        if self.rule:
            self.rule(value, where)


@dataclass(frozen=True)
class _Step:
    kinds: Mapping[str, _Object]

    def check(self, value: Any, where: str) -> None:
        if not isinstance(value, dict):
            raise refuse("bundle.field", f"{where} is no object")
        op = value.get("op")
        if not isinstance(op, str) or op not in self.kinds:
            raise refuse("bundle.field", f"{where}.op is {op!r:.80}")
        self.kinds[op].check(value, where)


@dataclass(frozen=True)
class _Expression:
    def check(self, value: Any, where: str) -> None:
        tokens = value if isinstance(value, list) else [value]
        if isinstance(value, list) and not 1 <= len(value) <= schema.TOKENS:
            raise refuse("bundle.count", f"{where} has {len(value)} tokens, not 1..{schema.TOKENS}")
        allowed = {int, str} if isinstance(value, list) else {int}
        if not allowed.issuperset(map(type, tokens)):
            raise refuse("bundle.field", f"{where} is no expression")


@dataclass(frozen=True)
class _Type:
    """A type, or codes and their meaning."""

    def check(self, value: Any, where: str) -> None:
        if not isinstance(value, str) or held_name(value) not in STORAGE:
            raise refuse("bundle.field", f"{where} is {value!r:.80}, no type")


_Shape = _Integer | _Text | _Choice | _Array | _Object | _Step | _Expression | _Type


def _storage(record: Record, where: str) -> None:
    if record["storage"] not in STORAGE[held_name(record["dtype"])]:
        raise refuse("bundle.field", f"{where}: {record['storage']} cannot hold {record['dtype']}")


def _input_port(record: Record, where: str) -> None:
    _storage(record, where)
    if record["count"] != -1 or record["slices"]:
        raise refuse("bundle.field", f"{where}: an input has no count and no slices")


_RULES: Mapping[str, Callable[[Record, str], None] | None] = {
    "": None,
    "storage": _storage,
    "input": _input_port,
}
_SPECIAL: Mapping[str, _Shape] = {
    schema.DTYPE.name: _Type(),
    schema.STORAGE_TYPE.name: _Choice(tuple(schema.STORAGE)),
    schema.EXPRESSION.name: _Expression(),
}


def _shape(kind: schema.Kind, features: Collection[str]) -> _Shape:
    """What checks a value of a kind, in a manifest with these features."""
    if isinstance(kind, schema.Integer):
        return _Integer(kind.least, kind.most)
    if isinstance(kind, schema.Text):
        return _Text(kind.most, kind.least, kind.pattern)
    if isinstance(kind, schema.Choice):
        return _Choice(kind.values)
    if isinstance(kind, schema.Array):
        return _Array(_shape(kind.item, features), kind.most, kind.least)
    if isinstance(kind, schema.Record):
        return _record(kind, features)
    if kind is schema.STEP:
        return _Step({op: _record(record, features) for op, record in schema.STEPS.items()})
    return _SPECIAL[kind.name]


def _record(record: schema.Record, features: Collection[str]) -> _Object:
    fields = (f for f in record.fields if not f.feature or f.feature in features)
    members = {field.key: _shape(field.kind, features) for field in fields}
    return _Object(members, record.open, _RULES[record.rule])


_MANIFEST = _record(schema.ROOT, ())
_WITH_IMAGES = _record(schema.ROOT, ("images",))


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
    for kernel in manifest["kernels"]:
        file(kernel, "kernels", f"kernel {kernel['entry']}")
    for number, step in enumerate(manifest["steps"]):
        where = f"steps[{number}]"
        if step["op"] == "launch":
            within(step["kernel"], "kernels", where)
            same(step["buffers"], manifest["kernels"][step["kernel"]]["bindings"], where)
        used = _buffers_of(step)
        if used and not (min(used) >= 0 and max(used) < len(manifest["buffers"])):
            for buffer in used:
                within(buffer, "buffers", where)
    for number, case in enumerate(manifest["golden"]):
        where = f"golden[{number}]"
        within(case["entry"], "entries", where)
        entry = manifest["entries"][case["entry"]]
        same(case["symbols"], manifest["symbols"], where)
        same(case["inputs"], entry["inputs"], where)
        same(case["outputs"], entry["outputs"], where)
        for record in case["inputs"]:
            if record["file"] != -1:
                file(record, "golden", where)
        for record in case["outputs"]:
            file(record, "golden", where)


def _buffers_of(step: Record) -> list[int]:
    if step["op"] == "launch":
        return list(step["buffers"])
    if step["op"] == "copy":
        return [step["source"], step["destination"]]
    return [step["condition"]]


# --- stages 6 and 7: features and expressions --------------------------------------------------


def features_used(manifest: Record) -> tuple[str, ...]:
    """The features of the format that a manifest's records need, sorted."""
    ops = {step["op"] for step in manifest["steps"]}
    used = {
        "count": any(port["count"] != -1 for port in manifest["outputs"]),
        "entries": len(manifest["entries"]) > 1,
        "images": bool(manifest.get("images")),
        "loop": "loop" in ops,
        "state": bool(manifest["states"]),
        "symbols": bool(manifest["symbols"]),
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
            yield from step["counts"]
        elif step["op"] == "copy":
            yield step["bytes"]


@dataclass
class _Sizes:
    """Values of expressions with every symbol at its `min` or `max`, or at given values."""

    manifest: Record
    end: str
    given: Sequence[int] = ()
    symbols: dict[str, int] = field(init=False)
    known: dict[Any, int] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        symbols = self.manifest["symbols"]
        values = self.given or [symbol[self.end] for symbol in symbols]
        names = ["$" + symbol["name"] for symbol in symbols]
        self.symbols = dict(zip(names, values, strict=True))

    def __call__(self, expression: Any) -> int:
        if isinstance(expression, int):
            return expression
        key = tuple(expression)
        value = self.known.get(key)
        if value is None:
            value = self.known[key] = evaluate_tokens(expression, self.symbols)
        return value


def evaluate_tokens(tokens: Sequence[Any], symbols: Mapping[str, int]) -> int:
    """The value of a flat prefix expression; `symbols` has keys such as "$H"."""
    stack: list[int] = []
    for token in reversed(tokens):
        if type(token) is int or token in symbols:  # no such value is beyond 53 bits
            stack.append(token if type(token) is int else symbols[token])
            continue
        if token in _OPERATORS and len(stack) >= 2:
            first, second = stack.pop(), stack.pop()
            if token in ("floordiv", "ceildiv", "mod") and second < 1:
                raise refuse("bundle.expression", f"{_show(tokens)} divides by {second}")
            value = _OPERATORS[token](first, second)
        else:
            raise refuse("bundle.expression", f"{_show(tokens)}: bad token {token!r:.80}")
        if abs(value) > INTEGER_LIMIT:
            raise refuse("bundle.expression", f"{_show(tokens)} exceeds 53 bits")
        stack.append(value)
    if len(stack) != 1:
        raise refuse("bundle.expression", f"{_show(tokens)} leaves {len(stack)} values")
    return stack[0]


_OPERATORS: Mapping[str, Callable[[int, int], int]] = {
    "add": lambda a, b: a + b,
    "mul": lambda a, b: a * b,
    "sub": lambda a, b: a - b,
    "floordiv": lambda a, b: a // b,
    "ceildiv": lambda a, b: -(-a // b),
    "mod": lambda a, b: a % b,
    "min": min,
    "max": max,
}


def _show(tokens: Sequence[Any]) -> str:
    return f"{list(tokens)!r:.120}"


# --- stages 8 to 10: ranges, overlaps, requirements --------------------------------------------


def _bounds(manifest: Record, sizes: Sequence[_Sizes]) -> None:
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
            used.update(_buffers_of(step))
    for number, image in enumerate(manifest.get("images", ())):
        where = f"images[{number}]"
        pitch, pixel = image["pitch"], image_pixel(image["dtype"])
        need(pitch % pixel == 0 and pitch >= image["width"] * pixel, f"{where}: its pitch")
        room = manifest["buffers"][image["buffer"]]["bytes"]
        need(pitch * image["height"] <= room, f"{where} does not fit its buffer")
        need(image["buffer"] not in used, f"{where}: its buffer is not only a kernel's")


def image_pixel(dtype: str) -> int:
    """Bytes of a four-channel pixel."""
    return 4 * by_name(dtype).itemsize


def _port_bounds(
    manifest: Record, group: str, port: Record, sizes: Sequence[_Sizes], need: _Need
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


def _elements(shape: Sequence[Any], size: _Sizes, need: _Need, where: str) -> int:
    elements = 1
    for expression in shape:
        extent = size(expression)
        need(extent >= 0, f"{where}: a negative size")
        elements *= extent
        need(elements <= INTEGER_LIMIT, f"{where}: too many elements")
    return elements


def _step_bounds(manifest: Record, sizes: Sequence[_Sizes], need: _Need) -> None:
    buffers, steps = manifest["buffers"], manifest["steps"]
    weights = {number for number, buffer in enumerate(buffers) if buffer["arena"] == -1}
    accesses = _accesses(manifest)
    for number, step in enumerate(steps):
        where = f"steps[{number}]"
        if step["op"] == "launch":
            pairs = zip(step["buffers"], accesses[step["kernel"]], strict=True)
            written = {index for index, access in pairs if access == "read_write"}
            need(weights.isdisjoint(written), f"{where} writes a weight")
            for size in sizes:
                for count in step["counts"]:
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


def _accesses(manifest: Record) -> list[list[str]]:
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
    size = _Sizes(manifest, "max", case["symbols"])
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
    for record, index in zip(case["outputs"], entry["outputs"], strict=True):
        port = manifest["outputs"][index]
        elements = -(-_elements(port["shape"], size, need, where) // record["stride"])
        expected = elements * held(port["dtype"]).itemsize
        need(record["bytes"] == expected, f"{where}: the bytes of output {port['name']!r:.80}")
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


def _overlaps(manifest: Record, sizes: Sequence[_Sizes]) -> None:
    buffers = manifest["buffers"]
    segments = [item for weight in manifest["weights"] for item in weight["segments"]]
    for ranges in (segments, [manifest["prelude"], *manifest["kernels"]]):
        before = (0, 0)
        for item in ranges:
            start = (item["file"], item["offset"])
            if start < before:
                raise refuse("bundle.overlap", f"a file's ranges overlap or go back at {start}")
            before = (item["file"], item["offset"] + item["bytes"])

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
    order, accesses = _Order([_span(buffer) for buffer in buffers]), _accesses(manifest)
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


def _requirements(manifest: Record, sizes: Sequence[_Sizes]) -> None:
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
    buffers, accesses = manifest["buffers"], _accesses(manifest)
    wanted = ["read" if buffer["arena"] == -1 else "read_write" for buffer in buffers]
    bytes = [buffer["bytes"] for buffer in buffers]
    for number, step in enumerate(manifest["steps"]):
        if step["op"] != "launch":
            continue
        where = f"steps[{number}]"
        for size in sizes:
            for count in step["counts"]:
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
    for kernel in kernels:
        x, y, z = kernel["workgroup"]
        least["invocations"] = max(least["invocations"], x * y * z)
    sizes = [_Sizes(manifest, "min"), _Sizes(manifest, "max")]
    for step in manifest["steps"]:
        if step["op"] == "launch":
            bound = (buffers[index]["bytes"] for index in step["buffers"])
            least["binding_bytes"] = max(least["binding_bytes"], *bound)
            counts = (size(count) for size in sizes for count in step["counts"])
            least["workgroups"] = max(least["workgroups"], *counts)
    return least
