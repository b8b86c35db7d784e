"""The one frozen record of choices that goes down the call chain."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Options:
    """optimize: choose schedule moves (False: the plainest legal ones). profile: which caps of the
    target. winograd: with these moves, and in fp32, convolutions are computed by Winograd's
    method where that pays, as long as it adds at most so many times the bytes of the weights.
    attention: with these moves, the softmax of scores and its product with values are one kernel
    where that pays.

    precision: "fp32", or "fp16" for activations and weights kept as fp16. fp64_reference: compute
    float32 in double precision, for reference values; with "fp16", what would be fp16 is kept in
    full and named in `Compilation.rounded`. architectures: what kernels are compiled for at export,
    where they are; none: the target's default ones. folded_work: operations on elements that
    computing constants may take, beside what the weights allow; what takes more is left to the run.
    folded_growth: how many times the bytes of the weights the computed constants may take.
    """

    optimize: bool = True
    profile: str = "default"
    precision: str = "fp32"
    fp64_reference: bool = False
    architectures: tuple[str, ...] = ()
    folded_work: int = 1 << 28
    folded_growth: int = 2
    winograd: float = 1.0
    attention: bool = True
