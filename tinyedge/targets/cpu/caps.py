"""What a CPU can do, as the compiler sees it through C."""

from __future__ import annotations

from dataclasses import replace

from tinyedge.core.compiler.caps import Caps, TypeCaps

TYPES = {
    "bool": TypeCaps(stored="int32"),
    **dict.fromkeys(("int8", "int16", "uint8", "uint16"), TypeCaps(vectors="memory")),
    **dict.fromkeys(("int32", "uint32", "float32"), TypeCaps()),
    **dict.fromkeys(("int64", "uint64", "float64"), TypeCaps(vectors="none")),
    "float16": TypeCaps(computed="float32", vectors="memory"),
}

DEFAULT = Caps(
    types=TYPES,
    vector=8,
    grid=(2**31 - 1,),
    unaligned=True,
    scalar_operands=True,
    zeros=4096,
    array=2**16,
    levels=True,
    divides=True,
    cache=3 * 2**20,
    max_vector_registers=16,
    long_reduction=2**18,
    alignment=256,
)
# By the lanes of a vector, the registers that tiles fill and a core's part of the last cache. All
# run everywhere, as the C compiler makes short vectors of long ones. "default" is for x86 with
# AVX2. "sse" is for others, too, of which not all have products in pairs. Words of four bytes are
# loaded as x86 has them, the first one lowest.
PROFILES = {
    "default": replace(DEFAULT, pairs=True, quads=True),
    "sse": replace(DEFAULT, vector=4, cache=2 * 2**20),
    # 32, and one more as a product takes its scalar from memory
    "avx512": replace(DEFAULT, vector=16, max_vector_registers=33, pairs=True, quads=True),
    "neon": replace(DEFAULT, vector=4, max_vector_registers=32, cache=2**20),
}

# The instruction sets of each, for a bundle that holds several, as flags of C compilers name them.
# "sse" runs on all processors.
REQUIRES: dict[str, tuple[str, ...]] = {
    "default": ("avx2", "fma", "f16c"),
    "sse": (),
    "avx512": ("avx512f", "avx512bw", "avx512dq", "avx512vl", "avx2", "fma", "f16c"),
    "neon": ("neon",),
}

# What this target cannot do, by name, and why. Tests leave out this and nothing else.
LIMITATIONS: dict[str, str] = {}
