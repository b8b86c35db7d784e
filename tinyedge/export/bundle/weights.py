"""Where weights and goldens lie: files of limited size, and what several programs share in them."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from operator import index as integer
from pathlib import Path
from typing import Any, Union

import numpy as np

from tinyedge.core.errors import InternalError
from tinyedge.core.program.ports import pad, padded
from tinyedge.core.program.program import Program, Weight
from tinyedge.export.bundle import dtypes
from tinyedge.export.bundle.bounds import ALIGNMENT, SHARD_BYTES
from tinyedge.export.bundle.digest import Digest

Array = np.ndarray[Any, Any]
Key = tuple[Union[int, str], ...]

LONG = 1024  # characters of a name, the most


@dataclass(frozen=True, eq=False)
class Part:
    """Bytes of a file from `offset` on: those of some content from `start` on."""

    offset: int
    content: Callable[[], Array]
    start: int
    bytes: int


class Shards:
    """Byte strings laid out in files of at most 32 MiB, each part at a multiple of 256 bytes."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.parts: list[list[Part]] = []
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
            part = Part(offset, content, taken, min(room, size - taken))
            self.parts[-1].append(part)
            self.end = offset + part.bytes
            self.total += part.bytes
            file = len(self.parts) - 1
            segments.append({"file": file, "offset": offset, "bytes": part.bytes})
            taken += part.bytes
        return segments

    def begin(self) -> None:
        """Lay out what follows in a file of its own."""
        self.end = SHARD_BYTES

    def name(self, number: int) -> str:
        return f"{self.kind}-{number:05}.bin"

    def placeholders(self) -> list[dict[str, Any]]:
        """Records of the files, before their hashes are known."""
        records = []
        for number, parts in enumerate(self.parts):
            size = parts[-1].offset + parts[-1].bytes
            records.append({"name": self.name(number), "bytes": size, "sha256": "0" * 64})
        return records

    def write(
        self, folder: Path, advance: Callable[[int], None], *, by_blocks: bool = False
    ) -> Iterable[dict[str, Any]]:
        """Write the files; gives each one's name, hash and, by blocks, those of its blocks."""
        made: tuple[Callable[[], Array] | None, Any] = (None, None)  # the last whole content
        for number, parts in enumerate(self.parts):
            digest = Digest(by_blocks)
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
            whole, blocks = digest.hexdigests()
            yield {"name": self.name(number), "sha256": whole, "blocks": blocks}


def place_weights(programs: Sequence[Program]) -> tuple[Shards, list[list[dict[str, Any]]]]:
    """The files of the weights of all programs, and for each program its weights' records.

    Weights of equal bytes are stored once. A file holds weights of the same programs, so that none
    is read for a program that does not need it.
    """
    files = Shards("weights")
    keys = [_keys(program, hashed=len(programs) > 1) for program in programs]
    users: dict[Key, list[int]] = {}
    for number, listed in enumerate(keys):
        for key in listed:
            users.setdefault(key, []).append(number)
    groups = sorted(dict.fromkeys(map(tuple, users.values())), key=lambda group: -len(group))
    places: dict[Key, list[dict[str, int]]] = {}
    for group in groups:
        files.begin()
        for key, weight in zip(keys[group[0]], programs[group[0]].weights, strict=True):
            if tuple(users[key]) == group:
                content = partial(weight_bytes, weight)
                places[key] = files.place(padded(weight.bytes), content, whole=False)
    return files, [
        [
            _weight_record(weight, places[key])
            for weight, key in zip(program.weights, listed, strict=True)
        ]
        for program, listed in zip(programs, keys, strict=True)
    ]


def _keys(program: Program, hashed: bool) -> list[Key]:
    """What tells the weights of a program from each other and, hashed, knows those of equal bytes
    in another program. Of one program no two are the same: the format has each at its own place.
    """
    if not hashed:
        return [(number,) for number in range(len(program.weights))]
    found: Counter[str] = Counter()
    keys: list[Key] = []
    for weight in program.weights:
        digest = hashlib.sha256(weight_bytes(weight).data).hexdigest()
        keys.append((digest, found[digest]))
        found[digest] += 1
    return keys


def in_order_of_files(
    program: Program, weights: Sequence[dict[str, Any]]
) -> tuple[Program, list[dict[str, Any]], list[int]]:
    """A program with its weights, and their records, in the order in which they lie in files; the
    records' files are numbers of the third, those that hold some.
    """
    places = [(w["segments"][0]["file"], w["segments"][0]["offset"]) for w in weights]
    order = sorted(range(len(weights)), key=places.__getitem__)
    new = {-1: -1} | {old: number for number, old in enumerate(order)}
    used = sorted({segment["file"] for weight in weights for segment in weight["segments"]})
    records = [
        {
            **weights[old],
            "segments": [
                {**segment, "file": used.index(segment["file"])}
                for segment in weights[old]["segments"]
            ],
        }
        for old in order
    ]
    ordered = replace(
        program,
        weights=tuple(program.weights[old] for old in order),
        buffers=tuple(replace(each, weight=new[each.weight]) for each in program.buffers),
        states=tuple(replace(each, initial=new[each.initial]) for each in program.states),
    )
    return ordered, records, used


def _weight_record(weight: Weight, segments: list[dict[str, int]]) -> dict[str, Any]:
    if weight.content is None:
        raise InternalError(f"weight {weight.name!r}", "it has no data", id="export.weight")
    if not callable(weight.content):
        weight_bytes(weight)
    return {
        "name": _label(weight.name),
        "dtype": dtypes.written(weight.dtype),
        "storage": weight.storage,
        "shape": [integer(size) for size in weight.shape],
        "bytes": padded(weight.bytes),
        "segments": segments,
    }


def weight_bytes(weight: Weight) -> Array:
    """A weight's bytes as the bundle holds them: whole words."""
    content = weight.data
    assert content is not None
    data = flat_bytes(content)
    if data.nbytes not in (weight.bytes, padded(weight.bytes)):
        because = f"it has {data.nbytes} bytes, not {weight.bytes}"
        raise InternalError(f"weight {weight.name!r}", because, id="export.weight")
    return pad(data, padded(weight.bytes))


def _label(name: str) -> str:
    """A name that is only shown, as a manifest may hold it."""
    text = name if name.isprintable() else ascii(name)[1:-1]
    return (text if len(text) <= LONG else f"{text[: LONG - 3]}...") or "unnamed"


def flat_bytes(array: Array) -> Array:
    """An array's elements as flat little-endian bytes, without a copy where possible."""
    little = array.dtype.newbyteorder("<")
    return np.ascontiguousarray(array, dtype=little).reshape(-1).view(np.uint8)
