"""What a CPU can do, as the compiler sees it through C."""

from __future__ import annotations

from tinyedge.core.compiler.caps import Caps, TypeCaps

TYPES = {
    "bool": TypeCaps(stored="int32"),
    **dict.fromkeys(("int8", "int16", "uint8", "uint16"), TypeCaps(vectors="memory")),
    **dict.fromkeys(("int32", "uint32", "float32"), TypeCaps()),
    **dict.fromkeys(("int64", "uint64", "float64"), TypeCaps(vectors="none")),
    "float16": TypeCaps(computed="float32", vectors="memory"),
}

PROFILES = {
    "default": Caps(
        types=TYPES,
        vector=8,
        grid=(2**31 - 1,),
        unaligned=True,
        max_vector_registers=16,
        alignment=256,
    )
}

# What this target cannot do, by name, and why. Tests leave out this and nothing else.
LIMITATIONS: dict[str, str] = {}
