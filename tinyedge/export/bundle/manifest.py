"""The text of `manifest.json`: restricted JSON with exactly one spelling (see bundle.md)."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

from tinyedge.core.errors import BundleError

MANIFEST = "manifest.json"
OTHER_MANIFEST = re.compile("manifest-[0-9]{5}[.]json")  # of a bundle of several programs
SIZE_LIMIT = 16 * 2**20
DEPTH_LIMIT = 8
INTEGER_LIMIT = 2**53 - 1

_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,63}")
_FORBIDDEN = re.compile("[\x00-\x1f\x7f\ud800-\udfff]")


def other_manifest(number: int) -> str:
    """The file of entry `number` of a manifest's `variants`."""
    return f"manifest-{number + 1:05}.json"


def encode(manifest: dict[str, Any]) -> bytes:
    """The canonical text of a manifest. Raises ValueError for what restricted JSON cannot say."""
    _walk(manifest)
    return _spell(manifest)


def _spell(manifest: dict[str, Any]) -> bytes:
    members = [f"{_compact(key)}:{_member(manifest[key])}" for key in sorted(manifest)]
    return ("{\n" + ",\n".join(members) + "\n}\n").encode("ascii")


def decode(text: bytes) -> dict[str, Any]:
    """The value of a canonical text. Raises BundleError `bundle.manifest.syntax` or `.size`."""
    if len(text) > SIZE_LIMIT:
        raise refuse("bundle.manifest.size", f"it has {len(text)} bytes, more than {SIZE_LIMIT}")
    try:
        value = json.loads(text.decode("ascii"), parse_constant=_no_constant)
        _walk(value)
        if not isinstance(value, dict) or _spell(value) != text:
            raise ValueError("a repeated or unsorted key, white space, or another spelling")
    except (ValueError, RecursionError) as error:
        raise refuse("bundle.manifest.syntax", f"it is not canonical JSON: {error}") from error
    return value


def refuse(id: str, because: str, subject: str = MANIFEST) -> BundleError:
    """The error for a bundle that breaks its format."""
    return BundleError(
        subject,
        because,
        id=id,
        supported="bundles of format version 1, unchanged since their export",
        next="export the model again, or fetch the bundle's files again",
    )


def _compact(value: Any) -> str:
    return json.dumps(value, ensure_ascii=True, sort_keys=True, separators=(",", ":"))


def _member(value: Any) -> str:
    if isinstance(value, (list, tuple)) and value:
        return "[\n" + ",\n".join(map(_compact, value)) + "\n]"
    return _compact(value)


def _no_constant(text: str) -> Any:
    raise ValueError(f"{text} is not allowed")


def _plain(values: Sequence[Any]) -> bool:
    """Whether all are numbers, or all texts, that restricted JSON allows, as in most long lists."""
    kinds = set(map(type, values))
    if kinds == {int}:
        return bool(-INTEGER_LIMIT <= min(values) and max(values) <= INTEGER_LIMIT)
    return kinds == {str} and not _FORBIDDEN.search("".join(values))


def _walk(root: Any) -> None:
    """Raise ValueError unless every value is one that restricted JSON allows."""
    level: list[Any] = [root]
    keys: set[Any] = set()  # that were found allowed
    for depth in range(1, DEPTH_LIMIT + 2):
        below: list[Any] = []
        for value in level:
            kind = type(value)
            if kind is str:
                if _FORBIDDEN.search(value):
                    raise ValueError(f"a control character or lone surrogate in {value!r:.80}")
            elif kind is int:
                if not -INTEGER_LIMIT <= value <= INTEGER_LIMIT:
                    raise ValueError("an integer beyond 2^53 - 1")
            elif kind is list or kind is tuple:
                if not _plain(value):
                    below += value
            elif kind is dict:
                if not keys.issuperset(value):
                    for key in value:
                        if type(key) is not str or not _KEY.fullmatch(key):
                            raise ValueError(f"the key {key!r:.80}")
                    keys.update(value)
                below += value.values()
            elif kind is not bool:
                raise ValueError(f"a value of type {kind.__name__}: {value!r:.80}")
            if depth > DEPTH_LIMIT and kind in (list, tuple, dict):
                raise ValueError(f"depth above {DEPTH_LIMIT}")
        level = below
