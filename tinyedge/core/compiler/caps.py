"""What a device can do: the record that passes read instead of a target's name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from tinyedge.core.dtype import DType, by_name


@dataclass(frozen=True)
class TypeCaps:
    """What kernels and memory make of an element type. Empty names mean the type itself."""

    computed: str = ""  # the type that kernels compute it as ("int64" as "int32")
    stored: str = ""  # the type in memory of what kernels compute with ("bool" in "int32")
    # what vectors of it are good for: all that scalars are; to be loaded, converted and stored; or
    # nothing
    vectors: Literal["all", "memory", "none"] = "all"
    # the narrower type that its tensors between kernels can be kept as ("float32" as "float16")
    kept: str = ""
    scalar_stores: bool = True  # elements are written one by one; else whole vectors only
    # a cast to it gives a value, as any cast does; else only what stores it converts, and clips
    casts: bool = True


@dataclass(frozen=True)
class Caps:
    """Facts that the scheduler, the chooser and lowering read."""

    types: Mapping[str, TypeCaps]  # by name, every type that a model may have
    vector: int = 4  # lanes of a 16-byte (or the device's natural) vector
    threads: int = 1  # most threads a workgroup; 1 where there are none
    grid: tuple[int, ...] = (2**31 - 1,)  # most workgroups along each dimension
    shared: int = 0  # bytes of workgroup memory
    shared_tiles: bool = False  # contractions are faster with tiles in workgroup memory
    array: int = 0  # bytes of arrays that a thread has for itself where it is alone
    # bytes that stay near a core: its part of the last cache before memory; 0: not known
    cache: int = 0
    # threads that run together and exchange values in registers, a power of two; 1: each is alone
    subgroup: int = 1
    bindings: int = 31  # most buffers a kernel
    binding_bytes: int = 2**31  # the largest binding
    buffer_bytes: int = 2**31  # the largest allocation
    alignment: int = 256  # of a buffer's offset in an arena, bytes
    unaligned: bool = False  # vectors may be loaded from any element
    # a scalar is loaded into all lanes of a vector as fast as a vector is
    scalar_operands: bool = False
    # elements of any type that are zero in memory, to be read in place of a buffer's where a guard
    # is false; 0: a buffer has no pointer that may point elsewhere
    zeros: int = 0
    # kernels bind what lies in an arena for writing, also where they only read it
    arenas_bound_for_writing: bool = False
    # weights are stored once, for another program too, that may read them in another order: each
    # element lies in them once, and parts of a weight are no weights of their own
    shares_weights: bool = False
    typed_buffers: bool = False  # a buffer has one element type a kernel, scalars or vectors
    max_vector_registers: int = 64  # vector registers that a tile may fill
    # all that a step of a tile loads is in registers at once, as its compiler loads it first
    loads_first: bool = False
    # numbers that a thread may have in registers, where more keep others from running; 0: no limit
    max_registers: int = 0
    # vectors that a tile of windows with a filter for each channel may have in registers: its sums,
    # those of a picture's border and what they load; 0: no limit
    window_registers: int = 0
    # rows and vectors of the tiles that a thread computes, where a workgroup has several
    tiles: tuple[tuple[int, int], ...] = ((1, 1), (2, 1), (3, 1), (4, 1), (6, 1), (8, 1))
    # a tile takes each vector's products with all of its rows at once, not one sum after the other
    vectors_in_turn: bool = False
    # lanes of a vector of which the language's functions, as the exponential, are computed at once
    function_lanes: int = 0
    # one instruction has the products of pairs of 16-bit integers, added (the row PAIRS)
    pairs: bool = False
    # the products of four unsigned bytes with signed ones, added, take no longer (the row QUADS)
    quads: bool = False
    levels: bool = False  # quotients rounded to levels of 8 bits are computed by the row LEVEL
    divides: bool = False  # a reciprocal is a division, so that a quotient takes no longer
    load_cost: float = 1.0  # of a vector's load, against a vector's product and sum
    # threads of a kernel that keep the device busy; with fewer, tiles are made smaller
    threads_to_saturate: int = 4096
    threads_to_stream: int = 0  # the same where each does little but load; 0: as many
    # elements from which a reduction to few is worth a second launch
    long_reduction: int = 2**15
    # kernels are compiled where they run: they should be few, and of few loads in their texts
    shares_sizes: bool = False
    # most pixels along a side of an image (four fp32 or fp16 values a pixel, zeros outside); 0:
    # there are no images
    image: int = 0
    image_pitch: int = 1  # pixels of which a row of an image in memory is a multiple

    @property
    def streams(self) -> int:
        """Threads that keep memory busy."""
        return self.threads_to_stream or self.threads_to_saturate

    @property
    def room(self) -> int:
        """Bytes of what a workgroup keeps beside its registers."""
        return self.shared if self.threads > 1 else self.array

    @property
    def computed_as(self) -> Mapping[str, str]:
        """The types that kernels compute as others, by name."""
        return {name: each.computed for name, each in self.types.items() if each.computed}

    def computes(self, name: str) -> bool:
        """Whether kernels compute with a type as it is."""
        return name in self.types and not self.types[name].computed

    def computed_type(self, dtype: DType) -> DType:
        """The type that kernels compute a type of the model as."""
        return by_name(self.computed_as.get(dtype.held.name, dtype.held.name))

    def stored_type(self, dtype: DType) -> DType:
        """The type in memory of a type that kernels compute with."""
        row = self.types.get(dtype.name)
        return by_name(row.stored) if row is not None and row.stored else dtype

    def vectors(self, dtype: DType) -> str:
        """What vectors of a type are good for, as `TypeCaps.vectors` says."""
        return self.types[dtype.name].vectors if dtype.name in self.types else "none"

    @property
    def fp16_storage(self) -> bool:
        """Whether float32 values between kernels can be kept as fp16."""
        return self.types["float32"].kept == "float16"

    @property
    def fp16_scalar_stores(self) -> bool:
        """Whether fp16 values can be written one by one; else two share a word."""
        return self.types["float16"].scalar_stores

    def with_type(self, name: str, **changes: Any) -> Caps:
        """These facts but for some of a type's."""
        return replace(self, types={**self.types, name: replace(self.types[name], **changes)})

    def in_fp64(self) -> Caps:
        """These facts for reference values: floats are computed in double precision, and float64
        is stored as float32.
        """
        wider = self.with_type("float32", computed="float64")
        wider = wider.with_type("float16", computed="float64")
        return wider.with_type("float64", stored="float32", vectors="all")
