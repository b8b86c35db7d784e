"""The cpu's kernels for a page where there is no WebGPU, in vectors of WebAssembly's 128 bits."""

from __future__ import annotations

from dataclasses import replace

from tinyedge.core.compiler.target import Target
from tinyedge.targets.cpu import wasm
from tinyedge.targets.cpu.caps import DEFAULT
from tinyedge.targets.cpu.render import prelude, render

TARGET = Target(
    name="wasm",
    profiles={
        "default": replace(
            DEFAULT,
            vector=4,
            # of 16 on x64 V8 keeps one, and a product without relaxed SIMD takes another
            max_vector_registers=14,
            loads_first=True,
            pairs=True,
            # What a page binds, it binds as for WebGPU: arenas for writing.
            arenas_bound_for_writing=True,
            shares_weights=True,
        )
    },
    render=render,
    prelude=prelude("prelude.c"),
    suffix="c",
    compiler=wasm,
)
