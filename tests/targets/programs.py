"""Tiny hand-written programs, the same for every target, to test devices without the compiler."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tinyedge.choices import TARGETS, find_target
from tinyedge.core.program.program import (
    Arena,
    Binding,
    Buffer,
    Copy,
    Entry,
    Kernel,
    Launch,
    Loop,
    Port,
    Program,
    Slice,
    State,
    Symbol,
    Weight,
)

WORKGROUP = 64
ARENA = 16384


def kernel(target: str, name: str, accesses: str, statement: str, symbols: bool = False) -> Kernel:
    """A kernel that runs `statement` for each element i.

    accesses: a letter per buffer: r or w, capital for int32, else float32. The statement is C,
    OpenCL C, CUDA C and WGSL; buffers are b0, b1, ..., the first symbol is size.
    """
    bindings = tuple(
        Binding(
            "read" if letter in "rR" else "read_write", "int32" if letter.isupper() else "float32"
        )
        for letter in accesses
    )
    source = WRITERS[target](name, bindings, statement, symbols)
    return Kernel(name, source, (WORKGROUP, 1, 1), bindings, symbols=symbols)


def _c(name: str, bindings: tuple[Binding, ...], statement: str, symbols: bool) -> str:
    lines = [
        f"void {name}(void *const *buffers, const int32_t *symbols, int32_t begin, int32_t end) {{"
    ]
    for index, binding in enumerate(bindings):
        element = "int32_t" if binding.dtype == "int32" else "float"
        lines.append(f"  {element} *b{index} = buffers[{index}];")
    if symbols:
        lines.append("  int32_t size = symbols[0];")
    lines.append(
        f"  for (int32_t i = begin * {WORKGROUP}; i < end * {WORKGROUP}; i++) {{ {statement} }}"
    )
    return "\n".join([*lines, "}"])


def _wgsl(name: str, bindings: tuple[Binding, ...], statement: str, symbols: bool) -> str:
    lines = []
    for index, binding in enumerate(bindings):
        element = "i32" if binding.dtype == "int32" else "f32"
        lines.append(
            f"@group(0) @binding({index}) "
            f"var<storage, {binding.access}> b{index}: array<{element}>;"
        )
    if symbols:
        lines.append(f"@group(0) @binding({len(bindings)}) var<uniform> symbols: vec4<i32>;")
    lines.append(f"@compute @workgroup_size({WORKGROUP}) fn {name}")
    lines.append("(@builtin(global_invocation_id) id: vec3<u32>) {")
    lines.append("  let i = i32(id.x);")
    if symbols:
        lines.append("  let size = symbols.x;")
    return "\n".join([*lines, f"  {statement}", "}"])


def _cuda(name: str, bindings: tuple[Binding, ...], statement: str, symbols: bool) -> str:
    arguments = [
        f"{'int' if binding.dtype == 'int32' else 'float'} *b{index}"
        for index, binding in enumerate(bindings)
    ]
    arguments += ["const int *symbols"] if symbols else []
    lines = [f'extern "C" __global__ void {name}({", ".join(arguments)}) {{']
    lines.append(f"  const int i = (int)blockIdx.x * {WORKGROUP} + (int)threadIdx.x;")
    if symbols:
        lines.append("  const int size = symbols[0];")
    return "\n".join([*lines, f"  {statement}", "}"])


def _opencl(name: str, bindings: tuple[Binding, ...], statement: str, symbols: bool) -> str:
    arguments = [
        f"__global {'int' if binding.dtype == 'int32' else 'float'} *b{index}"
        for index, binding in enumerate(bindings)
    ]
    arguments += ["__constant int *symbols"] if symbols else []
    lines = [
        f"__kernel __attribute__((reqd_work_group_size({WORKGROUP}, 1, 1)))",
        f"void {name}({', '.join(arguments)}) {{",
        "  const int i = get_global_id(0);",
    ]
    if symbols:
        lines.append("  const int size = symbols[0];")
    return "\n".join([*lines, f"  {statement}", "}"])


WRITERS = {"cpu": _c, "fake": _c, "webgpu": _wgsl, "qcom": _opencl, "cuda": _cuda}
PRELUDE = {"cpu": "#include <stdint.h>\n#include <math.h>\n", "webgpu": ""}


def program(
    target: str,
    *,
    inputs: tuple[Port, ...],
    outputs: tuple[Port, ...],
    buffers: tuple[Buffer, ...],
    kernels: tuple[Kernel, ...],
    entries: tuple[Entry, ...],
    symbols: tuple[Symbol, ...] = (),
    states: tuple[State, ...] = (),
    weights: tuple[Weight, ...] = (),
) -> Program:
    return Program(
        target=target,
        suffix=find_target(target).suffix if target in TARGETS else "txt",
        symbols=symbols,
        inputs=inputs,
        outputs=outputs,
        states=states,
        arenas=(Arena(ARENA),),
        buffers=buffers,
        weights=weights,
        kernels=kernels,
        entries=entries,
        prelude=PRELUDE.get(target, ""),
    )


def place(index: int, bytes: int = 1024) -> Buffer:
    """The index-th kilobyte of the arena."""
    return Buffer(arena=0, offset=index * 1024, bytes=bytes)


def constant(name: str, values: list[float] | np.ndarray) -> Weight:
    data = np.asarray(values, "<f4")
    content = data.view(np.uint8).reshape(-1)
    return Weight(name, "float32", data.shape, "float32", content, content.nbytes)


def addition(target: str) -> Program:
    """c = a + b + weight, then a copy: two outputs, one with a named slice."""
    launch = Launch(0, (0, 1, 3, 2), (4, 1, 1), ("Add_0",), 512)
    return program(
        target,
        inputs=(
            Port("a", "float32", (4, 64), "float32", 0),
            Port("b:0", "float32", (4, 64), "float32", 1),
        ),
        outputs=(
            Port("c", "float32", (4, 64), "float32", 2, (Slice("tail", 0, 3, 1),)),
            Port("half", "float32", (2, 64), "float32", 4),
        ),
        buffers=(place(0), place(1), place(2), Buffer(weight=0, bytes=1024), place(3)),
        weights=(constant("w", np.arange(256)),),
        kernels=(kernel(target, "add", "wwrw", "b3[i] = b0[i] + b1[i] + b2[i];"),),
        entries=(Entry("main", ("a", "b:0"), ("c", "half"), (launch, Copy(2, 4, 512, 512, 0))),),
    )


def several(target: str) -> Program:
    """`addition` with more kernels, which no step uses: each is compiled apart."""
    add = "b3[i] = b0[i] + b1[i] + b2[i];"
    more = (kernel(target, f"add_{n}", "wwrw", add) for n in range(3))
    program = addition(target)
    return replace(program, kernels=(*program.kernels, *more))


def symbolic(target: str) -> Program:
    """y = 2 x, flat, for x of shape [N, M]; M in steps of 4 up to 16."""
    total = ("mul", "N", "M")
    launch = Launch(0, (0, 1), (("ceildiv", total, WORKGROUP), 1, 1))
    double = "if (i < size * 16) { b1[i] = 2.0f * b0[i]; }"
    return program(
        target,
        symbols=(Symbol("N", 1, 8), Symbol("M", 4, 16, 4)),
        inputs=(
            Port("x", "float32", ("N", "M"), "float32", 0),
            Port("bias", "float32", ("M",), "float32", 2),
        ),
        outputs=(Port("y", "float32", (total,), "float32", 1),),
        buffers=(place(0), place(1), place(2)),
        kernels=(kernel(target, "double_it", "ww", double, symbols=True),),
        entries=(Entry("main", ("x", "bias"), ("y",), (launch,)),),
    )


def repeat(target: str, bound: int = 100) -> Program:
    """Counts n down to zero, adding 1 to x each time."""
    step = "b0[i] = b0[i] + 1.0f; if (i == 0) { b1[0] = b1[0] - 1; }"
    return program(
        target,
        inputs=(
            Port("x", "float32", (64,), "float32", 0),
            Port("n", "int64", (1,), "int32", 1),
        ),
        outputs=(
            Port("x_out", "float32", (64,), "float32", 0),
            Port("left", "int64", (1,), "int32", 1),
        ),
        buffers=(place(0), place(1)),
        kernels=(kernel(target, "turn", "wW", step),),
        entries=(
            Entry(
                "main",
                ("x", "n"),
                ("x_out", "left"),
                (Loop(1, bound, (Launch(0, (0, 1), (1, 1, 1)),)),),
            ),
        ),
    )


def counter(target: str) -> Program:
    """total += x, in a state that starts at 10; the entry `peek` copies it."""
    return program(
        target,
        inputs=(Port("x", "float32", (64,), "float32", 0),),
        outputs=(Port("total", "float32", (64,), "float32", 1),),
        states=(State("memory", "float32", (64,), "float32", 2, initial=0),),
        buffers=(place(0), place(1), place(2, 256)),
        weights=(constant("ten", np.full(64, 10.0)),),
        kernels=(kernel(target, "accumulate", "ww", "b1[i] = b1[i] + b0[i];"),),
        entries=(
            Entry("main", ("x",), ("total",), (Launch(0, (0, 2), (1, 1, 1)), Copy(2, 1, 256))),
            Entry("peek", (), ("total",), (Copy(2, 1, 256),)),
        ),
    )


def ports(target: str) -> Program:
    """Ports of many dtypes and storages; each output lies where its input lies."""
    kinds = (
        ("int64", "int32"),
        ("float64", "float32"),
        ("bool", "int32"),
        ("bool", "bool"),
        ("int8", "int32"),
        ("uint8", "uint8"),
        ("float16", "float16"),
        ("float32", "float16"),
        ("uint64", "uint32"),
    )
    names = [f"{dtype}_{storage}" for dtype, storage in kinds]
    count = len(kinds)
    return program(
        target,
        inputs=tuple(
            Port(f"in_{name}", dtype, (5,), storage, index)
            for index, (name, (dtype, storage)) in enumerate(zip(names, kinds, strict=True))
        ),
        outputs=tuple(
            Port(f"out_{name}", dtype, (5,), storage, index)
            for index, (name, (dtype, storage)) in enumerate(zip(names, kinds, strict=True))
        ),
        buffers=tuple(place(index, 64) for index in range(count)),
        kernels=(),
        entries=(
            Entry(
                "main",
                tuple(f"in_{name}" for name in names),
                tuple(f"out_{name}" for name in names),
                (),
            ),
        ),
    )


def selection(target: str) -> Program:
    """Gives the first n rows of x, and as `beside` the same elements in two rows of n."""
    return program(
        target,
        inputs=(
            Port("x", "float32", (8, 2), "float32", 0),
            Port("n", "int32", (), "int32", 1),
        ),
        outputs=(
            Port("picked", "float32", (8, 2), "float32", 0, count="number"),
            Port("beside", "float32", (2, 8), "float32", 0, count="number", count_axis=1),
            Port("number", "int32", (), "int32", 1),
        ),
        buffers=(place(0), place(1)),
        kernels=(),
        entries=(Entry("main", ("x", "n"), ("picked", "beside", "number"), ()),),
    )
