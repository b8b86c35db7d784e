"""Element types as a manifest writes them: a native type, or `uint16:bfloat16`, codes and what they
mean.
"""

from __future__ import annotations

import re

from tinyedge.core.dtype import STORED, DType, by_name

_CODES = re.compile(r"(u?int(?:8|16)):\w{1,32}", re.ASCII)
_WRITTEN = {f"{dtype.storage_type}:{dtype.name}": dtype.name for dtype in STORED}


def written(name: str) -> str:
    """A type's name as the manifest has it."""
    storage_type = by_name(name).storage_type
    return f"{storage_type}:{name}" if storage_type else name


def held_name(text: str) -> str:
    """The native type that callers of a runtime give and get; any other text as it is."""
    found = _CODES.fullmatch(text)
    return found[1] if found else text


def held(text: str) -> DType:
    """The native type behind a type that was checked."""
    return by_name(held_name(text))


def read(text: str) -> str:
    """The name of a type from the manifest; codes of a meaning not known here are just codes."""
    return _WRITTEN.get(text, held_name(text))
