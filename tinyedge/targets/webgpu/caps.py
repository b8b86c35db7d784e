"""What every WebGPU device guarantees: the default limits of the specification."""

from __future__ import annotations

from dataclasses import replace

from tinyedge.core.compiler.caps import Caps, TypeCaps

TYPES = {
    "bool": TypeCaps(stored="int32"),
    **dict.fromkeys(("int32", "uint32"), TypeCaps()),
    **dict.fromkeys(("int8", "int16", "int64"), TypeCaps(computed="int32")),
    **dict.fromkeys(("uint8", "uint16", "uint64"), TypeCaps(computed="uint32")),
    "float32": TypeCaps(kept="float16"),
    "float64": TypeCaps(computed="float32"),
    # two share a word, and the functions that pack them take pairs
    "float16": TypeCaps(computed="float32", vectors="memory", scalar_stores=False, casts=False),
}

DEFAULT = Caps(
    types=TYPES,
    vector=4,
    threads=256,
    grid=(65535, 65535, 65535),
    shared=16384,
    bindings=8,
    binding_bytes=128 * 2**20,
    buffer_bytes=256 * 2**20,
    alignment=256,
    arenas_bound_for_writing=True,
    typed_buffers=True,
    max_vector_registers=64,
    max_registers=64,  # phones have so many
    tiles=(*((rows, 1) for rows in (1, 2, 3, 4, 6, 7, 8)), (4, 2), (5, 2)),  # up to 68 registers
    vectors_in_turn=True,
    threads_to_saturate=1024,  # an integrated GPU has 256 to 1024 lanes
    threads_to_stream=4096,  # some loads of each lane are on their way at once
    shares_sizes=True,
)

# shared: contractions have tiles in workgroup memory; each size has a text of its own.
# wide: a thread of a contraction has up to 16 vectors of sums, which takes some 110 registers.
PROFILES = {
    "default": DEFAULT,
    "wide": replace(DEFAULT, tiles=(*DEFAULT.tiles, *((rows, 2) for rows in (6, 7, 8)))),
    "shared": replace(DEFAULT, shared_tiles=True, shares_sizes=False),
}

# What this target cannot do, by name, and why. Tests leave out this and nothing else.
LIMITATIONS = {
    "int64": "WGSL has no 64-bit integers: values are computed as int32 and must fit it",
    "uint64": "WGSL has no 64-bit integers: values are computed as uint32 and must fit it",
    "float64": "WGSL has no doubles: values are computed as float32",
    "int8": "WGSL has no 8-bit types: computed as int32 and wrap",
    "uint8": "WGSL has no 8-bit types: computed as uint32 and wrap",
    "int16": "WGSL has no 16-bit integers: computed as int32 and wrap",
    "uint16": "WGSL has no 16-bit integers: computed as uint32 and wrap",
    "subnormal": "WGSL allows devices to flush subnormal numbers to zero",
}
