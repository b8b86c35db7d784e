"""Manifests with a few changes that know their structure, so that many are accepted."""

from __future__ import annotations

import copy
import random
from collections.abc import Iterator
from typing import Any

from tinyedge.export.bundle.check import features_used
from tinyedge.export.bundle.manifest import encode

Manifest = dict[str, Any]

# What is changed, and how often. What people read (names, moves, nodes) and hashes are left alone.
PARTS = {
    **{"steps": 12, "buffers": 6, "kernels": 4, "symbols": 3, "inputs": 3, "outputs": 3},
    **{"states": 3, "arenas": 2, "entries": 2, "golden": 1, "weights": 1},
}
KEPT = {"name", "moves", "nodes", "entry", "made", "op", "sha256", "file", "dtype", "storage"}
RARELY = {"dtype", "storage", "op", "file"}

NUMBERS = (0, 1, 2, 3, 4, 7, 8, 12, 16, 64, 255, 256, 512, 1024, 4096, 2**16, 2**31 - 1)
OPERATORS = ("add", "mul", "sub", "floordiv", "ceildiv", "mod", "min", "max")


class Mutator:
    """Changes one manifest again and again, each time from its sound state."""

    def __init__(self, manifest: Manifest, seed: int) -> None:
        self.manifest = manifest
        self.random = random.Random(seed)

    def mutants(self, count: int) -> Iterator[bytes]:
        """Canonical texts that differ from the manifest's."""
        sound = encode(self.manifest)
        while count:
            text = self._mutant()
            if text != sound:
                yield text
                count -= 1

    def _mutant(self) -> bytes:
        mutant = copy.deepcopy(self.manifest)
        for _ in range(self.random.choice((1, 1, 1, 2, 2, 3, 5))):
            self._change(mutant)
        if self.random.random() < 0.9:
            repair(mutant)
        return encode(mutant)

    def _change(self, mutant: Manifest) -> None:
        parts = [part for part in PARTS if mutant[part]]
        part = self.random.choices(parts, [PARTS[part] for part in parts])[0]
        if self.random.random() < 0.08:
            self._change_list(mutant[part])
            return
        record: Any = mutant[part]
        others: Any = record
        key: Any = self.random.randrange(len(record))
        while isinstance(record[key], (dict, list)) and record[key]:
            if isinstance(record[key], list) and self.random.random() < 0.15:
                self._change_list(record[key])
                return
            others, record = record, record[key]
            if isinstance(record, dict):
                rare = self.random.random() < 0.05
                keys = [k for k in record if k not in KEPT or (rare and k in RARELY)]
                key = self.random.choice(keys or list(record))
            else:
                key = self.random.randrange(len(record))
        if key not in KEPT or key in RARELY:
            record[key] = self._instead_of(record[key], key, record, others)

    def _change_list(self, values: list[Any]) -> None:
        if not values:
            return
        one, two = (self.random.randrange(len(values)) for _ in range(2))
        kind = self.random.randrange(4)
        if kind == 0:
            del values[one]
        elif kind == 1:
            values.insert(two, copy.deepcopy(values[one]))
        else:
            values[one], values[two] = values[two], values[one]

    def _instead_of(self, value: Any, key: Any, record: Any, others: Any) -> Any:
        siblings = record if isinstance(record, list) else others
        if self.random.random() < 0.4 and isinstance(siblings, list):
            values = [
                item.get(key) if isinstance(item, dict) else item
                for item in siblings
                if not isinstance(item, dict) or key in item
            ]
            if values:
                return copy.deepcopy(self.random.choice(values))
        if isinstance(value, bool):
            return not value
        if isinstance(value, int):
            return self._number(value)
        if isinstance(value, str) and value in OPERATORS:
            return self.random.choice(OPERATORS)
        if key == "access":
            return "read" if value == "read_write" else "read_write"
        return value

    def _number(self, value: int) -> int:
        kind = self.random.randrange(6)
        if kind == 0:
            return self.random.choice(NUMBERS)
        if kind == 1:
            return value * self.random.choice((2, 3, 4, 6))
        if kind == 2:
            return value // self.random.choice((2, 3, 4))
        if kind == 3:
            return value + self.random.choice((-256, 256, -512, 512))
        return value + self.random.choice((-8, -4, -1, 1, 4, 8))


def repair(manifest: Manifest) -> None:
    """Make right again what follows from the rest, as someone who means harm would."""
    try:
        manifest["peak_bytes"] = sum(
            record["bytes"] for record in (*manifest["arenas"], *manifest["weights"])
        )
        manifest["features"] = list(features_used(manifest))
    except (KeyError, TypeError):
        return
    for limit, value in manifest["requirements"].items():
        if isinstance(value, int):
            manifest["requirements"][limit] = 2**40
    entries = manifest["entries"]
    if len(entries) == 1:
        entries[0]["steps"] = [0, len(manifest["steps"])]
    for buffer in manifest["buffers"]:
        if buffer["arena"] != -1 and 0 <= buffer["arena"] < len(manifest["arenas"]):
            arena = manifest["arenas"][buffer["arena"]]
            if buffer["offset"] + buffer["bytes"] > arena["bytes"] > 0:
                buffer["offset"] = max(0, arena["bytes"] - buffer["bytes"]) // 256 * 256
