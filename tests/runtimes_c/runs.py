"""Hand-written programs and inputs to run them with, one run after the other, on every backend."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from tests.runtimes_c.test_runtime import Arrays, floats
from tests.targets import programs
from tinyedge.core.program.program import Copy, Entry, Launch, Loop, Port, Program, Symbol

Run = tuple[str, Arrays]


def growing(target: str) -> Program:
    """y = 2 x and its copy, for x of shape [N, 64] where N may be 0."""
    return programs.program(
        target,
        symbols=(Symbol("N", 0, 4),),
        inputs=(Port("x", "float32", ("N", 64), "float32", 0),),
        outputs=(
            Port("y", "float32", ("N", 64), "float32", 1),
            Port("z", "float32", ("N", 64), "float32", 2),
        ),
        buffers=(programs.place(0), programs.place(1), programs.place(2)),
        kernels=(programs.kernel(target, "double_it", "ww", "b1[i] = 2.0f * b0[i];"),),
        entries=(
            Entry(
                "main",
                ("x",),
                ("y", "z"),
                (Launch(0, (0, 1), ("N", 1, 1)), Copy(1, 2, ("mul", "N", 256))),
            ),
        ),
    )


def nested(target: str, bound: int = 100) -> Program:
    """Launches and copies before, inside and behind loops in a loop: many straight pieces.

    bound: the most turns of the innermost loop.
    """
    program = programs.repeat(target, bound)
    (entry,) = program.entries
    (loop,) = entry.steps
    assert isinstance(loop, Loop)
    launch = loop.body[0]
    aside = Copy(0, 2, 256)
    body = (launch, Loop(1, 2, (Copy(2, 3, 256), launch, loop)), launch, aside)
    steps = (aside, Loop(1, 3, body), aside, Copy(3, 0, 256))
    buffers = (*program.buffers, programs.place(2), programs.place(3))
    return replace(program, buffers=buffers, entries=(replace(entry, steps=steps),))


def twins(target: str) -> Program:
    """An output that is an input: two buffers in one place."""
    x = Port("x", "float32", (64,), "float32", 0)
    return programs.program(
        target,
        inputs=(x,),
        outputs=(replace(x, name="y", buffer=1),),
        buffers=(programs.place(0), programs.place(0)),
        kernels=(),
        entries=(Entry("main", ("x",), ("y",), ()),),
    )


RUNS: dict[str, tuple[Callable[[str], Program], list[Run]]] = {
    "addition": (
        programs.addition,
        [("main", {"a": floats(4, 64, seed=i), "b:0": floats(4, 64, seed=9 - i)}) for i in (0, 1)],
    ),
    "symbolic": (
        programs.symbolic,
        [
            ("main", {"x": floats(n, m), "bias": floats(m)})
            for n, m in ((8, 16), (1, 4), (3, 8), (3, 8), (8, 16))
        ],
    ),
    "growing": (growing, [("main", {"x": floats(n, 64, seed=n)}) for n in (3, 0, 4, 0, 1, 4)]),
    "repeat": (
        programs.repeat,
        [("main", {"x": floats(64), "n": np.array([n], np.int64)}) for n in (7, 0, 500)],
    ),
    "nested": (
        nested,
        [("main", {"x": floats(64), "n": np.array([n], np.int64)}) for n in (1, 0, 9, 2)],
    ),
    "counter": (
        programs.counter,
        [("main", {"x": floats(64, seed=i)}) for i in range(3)] + [("peek", {}), ("peek", {})],
    ),
    "ports": (
        programs.ports,
        [
            (
                "main",
                {
                    port.name: (np.arange(5) + 3).astype(port.dtype)
                    for port in programs.ports("cpu").inputs
                },
            )
        ],
    ),
    "twins": (twins, [("main", {"x": floats(64, seed=i)}) for i in (0, 1)]),
    "count": (
        programs.selection,
        [("main", {"x": floats(8, 2), "n": np.array(n, np.int32)}) for n in (0, 3, 8)],
    ),
}
