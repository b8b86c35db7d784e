"""What every NVIDIA GPU from compute capability 7.5 on has."""

from __future__ import annotations

from tinyedge.core import dtype as dt
from tinyedge.core.compiler.caps import Caps

TYPES = frozenset(dtype.name for dtype in dt.ALL)

PROFILES = {
    "default": Caps(
        dtypes=TYPES,
        vector=4,
        threads=1024,
        grid=(2**31 - 1, 65535, 65535),
        shared=48 * 1024,
        subgroup=32,
        bindings=64,
        alignment=256,
        fp16_storage=True,
        fp16_scalar_stores=True,
        max_vector_registers=64,
    )
}

# What this target cannot do, by name, and why. Tests leave out this and nothing else.
LIMITATIONS: dict[str, str] = {}
