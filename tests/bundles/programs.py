"""Programs for the tests of bundles: small, legal, and together using every part of the format."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from tinyedge.core.program.program import (
    Arena,
    Binding,
    Buffer,
    Copy,
    Entry,
    Image,
    Kernel,
    Launch,
    Loop,
    Port,
    Program,
    Slice,
    State,
    Symbol,
    Variant,
    Weight,
)
from tinyedge.export.bundle import golden

READ = Binding("read", "float32")
WRITE = Binding("read_write", "float32")


def weight(name: str, size: int, seed: int = 0) -> Weight:
    """A float32 weight of `size` elements."""
    values = np.random.default_rng(seed).standard_normal(size).astype(np.float32)
    return Weight(name, "float32", (size,), "float32", values.view(np.uint8), size * 4)


def kernel(name: str, *bindings: Binding, symbols: bool = False, **fields: Any) -> Kernel:
    """A kernel whose text is made up; no device sees it."""
    source = f"@compute @workgroup_size(64)\nfn {name}() {{ }}\n"
    return Kernel(name, source, (64, 1, 1), bindings, symbols=symbols, **fields)


def plain(weights: tuple[Weight, ...] = (weight("w", 16),)) -> Program:
    """y = scale(x, w), with fixed sizes and no feature."""
    return Program(
        target="webgpu",
        suffix="wgsl",
        symbols=(),
        inputs=(Port("x", "float32", (4, 4), "float32", 0),),
        outputs=(Port("y", "float32", (4, 4), "float32", 1),),
        states=(),
        arenas=(Arena(512),),
        buffers=(
            Buffer(arena=0, offset=0, bytes=64),
            Buffer(arena=0, offset=256, bytes=64),
            *(Buffer(weight=i, bytes=w.bytes) for i, w in enumerate(weights)),
        ),
        weights=weights,
        kernels=(kernel("scale", WRITE, READ, WRITE),),
        entries=(
            Entry(
                "main",
                ("x",),
                ("y",),
                (Launch(0, (0, 2, 1), (1, 1, 1), ("Mul_0",), 16),),
                (0,),
                (0,),
            ),
        ),
        prelude="// shared\n",
    )


def everything() -> Program:
    """Every kind of record and step, and names that are no identifiers."""
    rows = ("ceildiv", ("mul", "batch size", 4), 64)
    launch = Launch(1, (0, 1), (rows, 1, 1), ('node "1"\\', "жук 🐞"), 128)
    return Program(
        target="webgpu",
        suffix="wgsl",
        symbols=(Symbol("batch size", 1, 65, 4), Symbol("mul", 0, 8)),
        inputs=(
            Port("input:0", "float32", ("batch size", 4), "float16", 0),
            Port("__proto__", "int64", (("max", "mul", 1),), "int32", 2),
            Port("flag", "bool", (), "int32", 3),
        ),
        outputs=(
            Port(
                "häuser/0",
                "float32",
                ("batch size", 4),
                "float32",
                1,
                (Slice("left", 1, 0, 2), Slice("right", 1, 2, 2)),
                "how many",
            ),
            Port("how many", "int64", (1,), "int32", 4),
        ),
        states=(
            State("cache", "float16", (2, 8), "float16", 5, 0, "shift", 1),
            State("position", "int32", (), "int32", 6),
        ),
        arenas=(Arena(4096), Arena(1024)),
        buffers=(
            Buffer(arena=0, offset=0, bytes=520),
            Buffer(arena=0, offset=768, bytes=1040),
            Buffer(arena=0, offset=2048, bytes=32),
            Buffer(arena=0, offset=2304, bytes=4),
            Buffer(arena=0, offset=2560, bytes=4),
            Buffer(arena=1, offset=0, bytes=32),
            Buffer(arena=1, offset=256, bytes=4),
            Buffer(weight=0, bytes=32),
            Buffer(weight=1, bytes=1200),
        ),
        weights=(weight("cache start", 8, 1), weight("w", 300, 2)),
        kernels=(
            kernel("scale", WRITE, READ, WRITE),
            kernel("count_1", WRITE, WRITE, symbols=True, moves=({"move": "split", "by": 4},)),
        ),
        entries=(
            Entry(
                "main",
                ("input:0", "flag"),
                ("häuser/0", "how many"),
                (
                    launch,
                    Loop(3, 1, (Copy(0, 1, ("mul", "batch size", 8)), launch)),
                    launch,
                    Loop(3, 10, (Loop(4, 5, (Loop(3, 2, (launch,)),)), Copy(7, 5, 32))),
                    Copy(5, 2, 16, 16, 8),
                ),
                (0, 2),
                (0, 1),
            ),
            Entry("again", ("__proto__",), ("how many",), (launch,), (1,), (1,)),
        ),
        prelude="struct Sizes { batch: i32 }\n",
        requirements={"workgroup_bytes": 4096, "features": ["f16"]},
        options={"precision": "fp16", "dims": ["x[0]=1..65:4"], "profile": {"name": "default"}},
    )


def pictures() -> Program:
    """Images in an arena and of a weight, beside buffers that may not be images."""
    develop = Launch(0, (0, 6, 5), (1, 1, 1), ("Conv_0",), 64)
    show = Launch(1, (5, 1), (1, 1, 1), ("Relu_0",), 64)
    return Program(
        target="qcom",
        suffix="cl",
        symbols=(),
        inputs=(Port("x", "float32", (4, 4), "float32", 0),),
        outputs=(Port("y", "float32", (4, 4), "float32", 1),),
        states=(State("seen", "float32", (4, 4), "float32", 2),),
        arenas=(Arena(2048),),
        buffers=(
            *(Buffer(arena=0, offset=256 * i, bytes=64) for i in range(5)),
            Buffer(arena=0, offset=1280, bytes=300),
            Buffer(weight=0, bytes=256),
        ),
        weights=(weight("w", 64),),
        kernels=(kernel("develop", READ, READ, WRITE), kernel("show", READ, WRITE)),
        entries=(
            Entry(
                "main",
                ("x",),
                ("y",),
                (develop, show, Copy(1, 2, 64), Loop(3, 2, (Copy(1, 4, 64),))),
                (0,),
                (0,),
            ),
        ),
        images=(Image(5, "float32", 5, 3, 96), Image(6, "float16", 4, 8, 32)),
    )


def variants() -> list[Variant]:
    """Two programs of one model: the first has a weight of its own beside the one of both."""
    last = plain()
    own = replace(last, weights=(weight("own", 64), *last.weights))
    buffers = tuple(
        replace(each, weight=each.weight + 1) if each.weight >= 0 else each for each in own.buffers
    )
    own = replace(own, buffers=(*buffers, Buffer(weight=0, bytes=256)))
    return [Variant("wide", ("avx2", "fma"), own), Variant("plain", ("sse2",), last)]


def run(inputs: Mapping[str, Any], entry: str, symbols: Mapping[str, int]) -> dict[str, Any]:
    """What the programs above pretend to compute."""
    if "x" in inputs:
        return {"y": inputs["x"] * np.float32(2)}
    if entry == "again":
        return {"how many": np.array([1], np.int64)}
    half = inputs["input:0"][: symbols["batch size"] // 2]
    return {"häuser/0": half * np.float32(0.5), "how many": np.array([len(half)], np.int64)}


def goldens(program: Program) -> list[golden.Golden]:
    """One case an entry, and one with given inputs."""
    cases = [
        golden.make(program, run, made="a test", entry=entry.name, seed=number)
        for number, entry in enumerate(program.entries)
    ]
    if "x" in program.entries[0].inputs:
        given = {"x": np.arange(16, dtype=np.float32).reshape(4, 4)}
        cases.append(golden.make(program, run, made="a test", given=given))
    return cases
