"""Stage 3 of bundle.md: the shape of a manifest's records, by the rows of schema.py."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from tinyedge.export.bundle import schema
from tinyedge.export.bundle.dtypes import held_name
from tinyedge.export.bundle.manifest import INTEGER_LIMIT, refuse
from tinyedge.export.bundle.schema import STORAGE

Record = Mapping[str, Any]


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


def _shape(kind: schema.Kind, features: frozenset[str]) -> _Shape:
    """What checks a value of a kind, in a manifest with such features."""
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


def _record(record: schema.Record, features: frozenset[str]) -> _Object:
    members = {
        field.key: _shape(field.kind, features)
        for field in record.fields
        if not field.feature or field.feature in features
    }
    return _Object(members, record.open, _RULES[record.rule])


@lru_cache
def _manifest(features: frozenset[str]) -> _Object:
    return _record(schema.ROOT, features)


def check_records(manifest: Record) -> None:
    """Raise BundleError unless all records have their fields, and these what they may hold."""
    _manifest(frozenset(manifest["features"])).check(manifest, "manifest")
