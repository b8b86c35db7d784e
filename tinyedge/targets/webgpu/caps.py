"""What every WebGPU device guarantees: the default limits of the specification."""

from __future__ import annotations

from tinyedge.core.caps import Caps

PROFILES = {
    "default": Caps(
        dtypes=frozenset(("bool", "int32", "uint32", "float32")),
        storage=frozenset(("int32", "uint32", "float32")),
        vector=4,
        workgroup=(256, 256, 64),
        threads=256,
        grid=(65535, 65535, 65535),
        shared=16384,
        bindings=8,
        binding_bytes=128 * 2**20,
        buffer_bytes=256 * 2**20,
        alignment=256,
        robust=True,
        typed_buffers=True,
        registers=64,
    )
}
