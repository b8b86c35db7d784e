"""What a CPU can do, as the compiler sees it through C."""

from __future__ import annotations

from tinyedge.core import dtype as dt
from tinyedge.core.compiler.caps import Caps

NARROW = frozenset({"float16", "int8", "uint8", "int16", "uint16"})
TYPES = frozenset(dtype.name for dtype in dt.ALL)

PROFILES = {
    "default": Caps(
        dtypes=TYPES,
        vector=8,
        grid=(2**31 - 1,),
        unaligned=True,
        narrow=NARROW,
        fp16_scalar_stores=True,
        max_vector_registers=16,
        alignment=256,
    )
}

# What this target cannot do, by name, and why. Tests leave out this and nothing else.
LIMITATIONS: dict[str, str] = {}
