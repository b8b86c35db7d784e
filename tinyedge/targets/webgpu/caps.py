"""What every WebGPU device guarantees: the default limits of the specification."""

from __future__ import annotations

from tinyedge.core.compiler.caps import Caps

PROFILES = {
    "default": Caps(
        dtypes=frozenset(("bool", "int32", "uint32", "float32")),
        vector=4,
        threads=256,
        grid=(65535, 65535, 65535),
        shared=16384,
        bindings=8,
        binding_bytes=128 * 2**20,
        buffer_bytes=256 * 2**20,
        alignment=256,
        typed_buffers=True,
        fp16_storage=True,
        max_vector_registers=64,
    )
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
