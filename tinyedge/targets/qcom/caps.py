"""What every Adreno of the 5xx, 6xx and 7xx series offers through OpenCL 1.2, full profile."""

from __future__ import annotations

from dataclasses import replace

from tinyedge.core.compiler.caps import Caps, TypeCaps

SCALARS = ("int8", "int16", "int64", "uint8", "uint16", "uint64")
TYPES = {
    "bool": TypeCaps(stored="int32"),
    **dict.fromkeys(("int32", "uint32"), TypeCaps()),
    **dict.fromkeys(SCALARS, TypeCaps(vectors="none")),
    "float32": TypeCaps(kept="float16"),
    "float64": TypeCaps(computed="float32"),
    "float16": TypeCaps(computed="float32", vectors="memory", casts=False),
}

# Without workgroup memory: barriers cost an Adreno more than what they save in most kernels.
BUFFERS = Caps(
    types=TYPES,
    vector=4,
    threads=128,  # devices allow 256 to 1024, but fewer for a kernel that takes many registers
    grid=(65535, 65535, 65535),
    shared=0,
    bindings=31,
    binding_bytes=128 * 2**20,  # what OpenCL promises for one allocation
    buffer_bytes=128 * 2**20,
    alignment=256,
    max_vector_registers=32,
    tiles=(*((rows, 1) for rows in (1, 2, 3, 4, 6, 7, 8)), *((rows, 2) for rows in (4, 6, 7, 8))),
    # an integrated GPU has 256 to 1024 lanes; on a processor small tiles wait for their sums
    threads_to_saturate=512,
    function_lanes=16,  # OpenCL's longest vectors
)

# Images: through the texture units, which have a cache, unpack fp16 values and read zeros outside.
# A view of a buffer needs rows and places at multiples of 64 pixels on the devices that say.
IMAGES = replace(
    BUFFERS,
    image=16384,
    image_pitch=64,
    alignment=1024,
    load_cost=2.0,
    # large tiles take 48 registers, of which each of the 2 processors of an Adreno 630 has room for
    # 4 waves of 128
    threads_to_saturate=1024,
)

# With it: for models of few results that are long sums (large products with a vector, means and
# softmax over long rows), where one thread a result would leave the device idle.
# With shared: products and convolutions read buffers through tiles in workgroup memory.
# processor: OpenCL on a CPU runs a thread's vectors as they are, on few cores.
PROFILES = {
    "default": IMAGES,
    "buffers": BUFFERS,
    "local": replace(IMAGES, shared=16384),
    "shared": replace(BUFFERS, shared=16384, shared_tiles=True, threads_to_saturate=2048),
    "processor": replace(BUFFERS, vector=16, threads_to_saturate=64),
}

# What this target cannot do, by name, and why. Tests leave out this and nothing else.
LIMITATIONS = {
    "float64": "Adreno GPUs have no doubles: values are computed as float32",
    "subnormal": "Adreno GPUs flush subnormal numbers to zero",
}
