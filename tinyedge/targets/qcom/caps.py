"""What every Adreno of the 5xx, 6xx and 7xx series offers through OpenCL 1.2, full profile."""

from __future__ import annotations

from dataclasses import replace

from tinyedge.core.compiler.caps import Caps

INTEGERS = frozenset(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64))

# Without workgroup memory: barriers cost an Adreno more than what they save in most kernels.
BUFFERS = Caps(
    dtypes=INTEGERS | {"bool", "float32"},
    vector=4,
    threads=128,  # devices allow 256 to 1024, but fewer for a kernel that takes many registers
    grid=(65535, 65535, 65535),
    shared=0,
    bindings=31,
    binding_bytes=128 * 2**20,  # what OpenCL promises for one allocation
    buffer_bytes=128 * 2**20,
    alignment=256,
    fp16_storage=True,
    fp16_scalar_stores=True,
    max_vector_registers=32,
    threads_to_saturate=2048,  # 16 waves of 128, on 2 (Adreno 630) to 6 shader processors
)

# Images: through the texture units, which have a cache, unpack fp16 values and read zeros outside.
# A view of a buffer needs rows and places at multiples of 64 pixels on the devices that say.
IMAGES = replace(BUFFERS, image=16384, image_pitch=64, alignment=1024)

# With it: for models of few results that are long sums (large products with a vector, means and
# softmax over long rows), where one thread a result would leave the device idle.
PROFILES = {"default": IMAGES, "buffers": BUFFERS, "local": replace(IMAGES, shared=16384)}

# What this target cannot do, by name, and why. Tests leave out this and nothing else.
LIMITATIONS = {
    "float64": "Adreno GPUs have no doubles: values are computed as float32",
    "subnormal": "Adreno GPUs flush subnormal numbers to zero",
}
