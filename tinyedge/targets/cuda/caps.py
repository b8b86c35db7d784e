"""What every NVIDIA GPU from compute capability 7.5 on has."""

from __future__ import annotations

from tinyedge.core.compiler.caps import Caps, TypeCaps

SCALARS = ("int8", "int16", "int64", "uint8", "uint16", "uint64", "float64")
TYPES = {
    "bool": TypeCaps(stored="int32"),
    **dict.fromkeys(("int32", "uint32"), TypeCaps()),
    **dict.fromkeys(SCALARS, TypeCaps(vectors="none")),
    "float32": TypeCaps(kept="float16"),
    "float16": TypeCaps(computed="float32", vectors="memory"),
}

PROFILES = {
    "default": Caps(
        types=TYPES,
        vector=4,
        threads=1024,
        grid=(2**31 - 1, 65535, 65535),
        shared=48 * 1024,
        shared_tiles=True,
        subgroup=32,
        bindings=64,
        alignment=256,
        max_vector_registers=64,
        max_registers=128,  # of 65,536: so that 512 threads share a multiprocessor
        window_registers=32,
        tiles=tuple((rows, 1) for rows in (1, 2, 3, 4, 6, 7, 8)),
    )
}

# What this target cannot do, by name, and why. Tests leave out this and nothing else.
LIMITATIONS: dict[str, str] = {}
