"""What a device can do: the record that passes read instead of a target's name."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Caps:
    """Facts that the scheduler, the chooser and lowering read.

    dtypes: element types that kernels can compute with.
    vector: lanes of a 16-byte (or the device's natural) vector.
    threads: most threads a workgroup; 1 where there are none.
    grid: most workgroups along each dimension. shared: bytes of workgroup memory.
    bindings: most buffers a kernel. binding_bytes, buffer_bytes: largest binding and allocation.
    alignment: of a buffer's offset in an arena, bytes.
    unaligned: vectors may be loaded from any element.
    narrow: types of fewer than 32 bits whose vectors can be loaded, converted and stored.
    typed_buffers: a buffer has one element type a kernel, scalars or vectors.
    halves: float32 values between kernels can be kept as halves. half_stores: halves can be written
    one by one; else in whole vectors only, because two share a word.
    registers: vector registers that a tile may fill.
    busy: threads of a kernel that keep the device busy; with fewer, tiles are made smaller.
    image: most pixels along a side of an image (four floats or halves a pixel, zeros outside); 0:
    there are no images. image_pitch: pixels of which a row of an image in memory is a multiple.
    """

    dtypes: frozenset[str]
    vector: int = 4
    threads: int = 1
    grid: tuple[int, ...] = (2**31 - 1,)
    shared: int = 0
    bindings: int = 31
    binding_bytes: int = 2**31
    buffer_bytes: int = 2**31
    alignment: int = 256
    unaligned: bool = False
    narrow: frozenset[str] = frozenset({"float16"})
    typed_buffers: bool = False
    halves: bool = False
    half_stores: bool = False
    registers: int = 64
    threads_to_saturate: int = 4096
    image: int = 0
    image_pitch: int = 1
