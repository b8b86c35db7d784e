"""The cpu's kernels for a page where there is no WebGPU, in vectors of WebAssembly's 128 bits."""

from __future__ import annotations

from dataclasses import replace

from tinyedge.core.compiler.target import Target
from tinyedge.targets.cpu import wasm
from tinyedge.targets.cpu.caps import DEFAULT
from tinyedge.targets.cpu.render import prelude, render

TARGET = Target(
    name="wasm",
    # What a page binds, it binds as for WebGPU: arenas for writing.
    profiles={
        "default": replace(DEFAULT, vector=4, arenas_bound_for_writing=True, shares_weights=True)
    },
    render=render,
    prelude=prelude("prelude.c"),
    suffix="c",
    compiler=wasm,
)
