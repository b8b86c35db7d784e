"""What a device can do: the record that passes read instead of a target's name."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Caps:
    """Facts that the scheduler, the chooser and lowering read."""

    dtypes: frozenset[str]  # element types that kernels can compute with
    vector: int = 4  # lanes of a 16-byte (or the device's natural) vector
    threads: int = 1  # most threads a workgroup; 1 where there are none
    grid: tuple[int, ...] = (2**31 - 1,)  # most workgroups along each dimension
    shared: int = 0  # bytes of workgroup memory
    # threads that run together and can exchange values in registers, a power of two; 1: each has
    # its own alone
    # threads that run together and exchange values in registers, a power of two; 1: each is alone
    subgroup: int = 1
    bindings: int = 31  # most buffers a kernel
    binding_bytes: int = 2**31  # the largest binding
    buffer_bytes: int = 2**31  # the largest allocation
    alignment: int = 256  # of a buffer's offset in an arena, bytes
    unaligned: bool = False  # vectors may be loaded from any element
    # types of fewer than 32 bits whose vectors can be loaded, converted and stored
    narrow: frozenset[str] = frozenset({"float16"})
    typed_buffers: bool = False  # a buffer has one element type a kernel, scalars or vectors
    fp16_storage: bool = False  # float32 values between kernels can be kept as fp16
    # fp16 values can be written one by one; else in whole vectors only, because two share a word
    fp16_scalar_stores: bool = False
    max_vector_registers: int = 64  # vector registers that a tile may fill
    # threads of a kernel that keep the device busy; with fewer, tiles are made smaller
    threads_to_saturate: int = 4096
    # most pixels along a side of an image (four fp32 or fp16 values a pixel, zeros outside); 0:
    # there are no images
    image: int = 0
    image_pitch: int = 1  # pixels of which a row of an image in memory is a multiple
