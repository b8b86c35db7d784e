"""Tiles that threads share: filled and read, they mean what the loads meant, in any order of
threads; of one barrier less the grammar says so.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from tests.agreement import Inputs, compiled, find_target
from tests.core.test_cooperative import lowered
from tests.core.test_moves import floats, kernel_of
from tests.targets.test_workgroup_memory import BARRIERS, declared
from tinyedge.core.compiler import stages
from tinyedge.core.compiler.caps import Caps
from tinyedge.core.compiler.optimize.kinds import To
from tinyedge.core.compiler.optimize.move import IllegalMove, Move, numbers
from tinyedge.core.compiler.optimize.moved import MovedKernel
from tinyedge.core.compiler.optimize.moves import Split, SplitK, Stage
from tinyedge.core.errors import InternalError
from tinyedge.core.ir import ops
from tinyedge.core.ir.lowered import Linear, shared_bytes, workgroup_buffers
from tinyedge.core.ir.reference_kernel import run_kernel
from tinyedge.core.ir.reference_lowered import run_lowered
from tinyedge.core.ir.spec_lowered import check_lowered
from tinyedge.core.ir.text import kernel_text
from tinyedge.core.ir.uop import UOp, toposort

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Case:
    """A product [rows, summed] @ [summed, columns], in tiles. threads: of rows and of columns."""

    threads: tuple[int, int]
    upcast: int  # rows of a thread
    step: int  # of the sum, for which a tile is filled
    transposed: bool  # the second operand has its columns first
    swapped: bool  # the tile of the first operand has its rows last
    ahead: bool = False  # tiles are filled for the next step while one is computed
    rows: int = 24
    summed: int = 24
    columns: int = 16


CASES = (
    Case((2, 4), 3, 4, False, False),
    Case((2, 4), 3, 12, True, False),  # filled along the rows of a transposed operand
    Case((2, 2), 2, 12, False, True),
    Case((4, 1), 3, 2, False, False),  # more threads than vectors: some fill nothing
    Case((1, 2), 12, 12, True, True),  # so few threads that they fill in a loop
    Case((1, 1), 6, 24, False, False),  # one thread: no barrier
    Case((2, 4), 3, 4, False, False, ahead=True),
    Case((2, 4), 3, 12, True, False, ahead=True),  # two steps
    Case((4, 1), 3, 2, False, False, ahead=True),  # some fill nothing: under a condition
    Case((2, 2), 2, 24, False, True, ahead=True),  # no loop: filled once
)


def product(case: Case) -> tuple[UOp, Caps]:
    inputs = Inputs()
    a = inputs.new(floats(case.rows, case.summed))
    b = inputs.new(floats(case.summed, case.columns))
    if case.transposed:
        b = inputs.new(floats(case.columns, case.summed)).permute((1, 0))
    return kernel_of(a @ b, inputs, "cuda")


def staged(sink: UOp, caps: Caps, case: Case) -> MovedKernel:
    """The product with both operands in tiles. It has its rows as range 0, columns 1, summed 2."""
    kernel = MovedKernel(sink, caps)
    tiles: list[list[int]] = []
    for number, count, kind in ((0, case.upcast, "upcast"), (1, 4, "vector")):
        outer, inner = kernel.split(number, count)
        kernel.to(inner, kind)
        tiles.append([inner])
        if case.threads[number] > 1:
            outer, inner = kernel.split(outer, case.threads[number])
            kernel.to(inner, "local")
            tiles[-1].insert(0, inner)
        kernel.attempt(To(outer, "grid"))
    _, inner = kernel.split(2, case.step)
    first = (inner, *tiles[0]) if case.swapped else (*tiles[0], inner)
    for slot, along in ((1, first), (2, (inner, *tiles[1]))):
        kernel.do(Stage(max(numbers(kernel.sink)) + 1, slot, along, case.ahead))
    return kernel


def buffers(case: Case) -> list[Array]:
    shapes = ((case.rows, case.columns), (case.rows, case.summed), (case.summed, case.columns))
    return [floats(*shape).reshape(-1) for shape in shapes]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_tile_holds_what_was_loaded(case: Case) -> None:
    sink, caps = product(case)
    kernel = staged(sink, caps, case)
    plain, moved, threads = buffers(case), buffers(case), buffers(case)
    run_kernel(sink, plain)
    run_kernel(kernel.sink, moved)
    linear, shape = lowered(kernel.sink, caps)
    run_lowered(linear, shape, threads)
    np.testing.assert_allclose(moved[0], plain[0], rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(threads[0], plain[0], rtol=1e-5, atol=1e-5)
    block = case.step * (case.threads[0] * case.upcast + case.threads[1] * 4)
    memory = workgroup_buffers(linear.statements)
    halves = 2 if case.ahead and case.step < case.summed else 1
    assert sum(shared_bytes(each.dtype, each.arg.length) for each in memory) == 4 * block * halves
    assert sum(node.op is ops.BARRIER for node in linear.statements) == (
        0 if shape.threads == 1 else 1 if case.step == case.summed else 2
    )


@pytest.mark.parametrize("case", CASES, ids=str)
def test_no_barrier_is_one_too_many(case: Case) -> None:
    """Each keeps threads from what others still load, or have not stored."""
    linear, shape = lowered(staged(*product(case), case).sink, product(case)[1])
    for i, node in enumerate(linear.statements):
        if node.op is ops.BARRIER:
            rest = [*linear.statements[:i], *linear.statements[i + 1 :]]
            with pytest.raises(InternalError, match="needs a barrier"):
                check_lowered(Linear(rest, linear.values), shape)


def test_the_tile_of_a_convolution_has_its_padding() -> None:
    """What is read under a condition is so where the tile is filled, not where it is used."""
    inputs = Inputs()
    y = inputs.new(floats(1, 4, 8, 8)).conv(inputs.new(floats(4, 4, 3, 3)), pads=((1, 1), (1, 1)))
    sink, caps = kernel_of(y, inputs, "cuda")
    kernel = MovedKernel(sink, caps)
    local = kernel.left("loop")[-1]
    kernel.to(local, "local")
    guarded = [n for n in _loads(kernel.sink) if n.arg]
    (slot,) = {n.src[0].arg.slot for n in guarded}
    kernel.do(Stage(max(numbers(kernel.sink)) + 1, slot, (kernel.left("reduce")[0], local)))
    shape = (4 * 8 * 8, 4 * 8 * 8, 4 * 4 * 3 * 3)
    plain, threads = ([floats(n) for n in shape] for _ in range(2))
    run_kernel(sink, plain)
    run_lowered(*lowered(kernel.sink, caps), threads)
    np.testing.assert_allclose(threads[0], plain[0], rtol=1e-5, atol=1e-5)


def test_a_double_tile_within_a_loop_of_its_places() -> None:
    """The loop around the one that fills says at which places each half is loaded."""
    inputs = Inputs()
    sink, caps = kernel_of(inputs.new(floats(7, 30)).exp().sum(-1), inputs, "cuda")
    kernel = MovedKernel(sink, caps)
    for move in (Split(1, 5, 2), Stage(4, 1, (2,), ahead=True), SplitK(2, 2, 5)):
        kernel.do(move)
    plain, threads = ([floats(7), floats(7 * 30)] for _ in range(2))
    run_kernel(sink, plain)
    run_lowered(*lowered(kernel.sink, caps), threads)
    np.testing.assert_allclose(threads[0], plain[0], rtol=1e-5, atol=1e-5)


def _loads(sink: UOp) -> list[UOp]:
    return [node for node in toposort((sink,)) if node.op is ops.LOAD]


def test_illegal_stages_say_why() -> None:
    case = Case((2, 4), 3, 12, False, False)
    sink, caps = product(case)
    free = max(numbers(sink)) + 1
    local = To(1, "local").apply(sink, caps)
    tile = Stage(free, 2, (2, 1)).apply(local, caps)
    for kernel, move, text in [
        (sink, Stage(free, 1, (1,)), "nothing of it lies along"),
        (sink, Stage(free, 3, (1,)), "nothing of it lies along"),
        (sink, Stage(free, 0, (0,)), "nothing of it lies along"),
        (sink, Stage(2, 1, (0,)), "number 2 is taken"),
        (sink, Stage(free, 1, ()), "along ()"),
        (sink, Stage(free, 1, (0, 0)), "along (0, 0)"),
        (local, Stage(free, 2, (2,)), "differs along range 1, which is local"),
        (tile, Split(free, 2, free + 2), "it is staged"),
        (tile, To(free, "unroll"), "it is staged"),
        (tile, Stage(free + 2, 1, (free,)), "along range 3: it is staged"),
        (tile, To(free + 9, "local"), "there is no range"),
    ]:
        with pytest.raises(IllegalMove) as refused:
            move.apply(kernel, caps)
        assert text in str(refused.value), move
    large, caps = product(Case((1, 1), 1, 1, False, False, rows=128, summed=128))
    with pytest.raises(IllegalMove, match="its stages take 65536 bytes of 49152"):
        Stage(3, 1, (0, 2)).apply(large, caps)
    bare = find_target("qcom").caps("buffers")
    with pytest.raises(IllegalMove, match="there is no memory"):
        Stage(3, 1, (0, 2)).apply(large, bare)


@pytest.mark.parametrize("target", ["webgpu", "cuda"])
def test_manifest(target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bytes and barriers of a bundle are those of its text."""
    case = Case((2, 4), 3, 4, False, False)

    def chooser(sink: UOp, caps: Caps, *_: object) -> tuple[UOp, list[Move]]:
        kernel = staged(sink, caps, case)
        return kernel.sink, kernel.moves

    monkeypatch.setattr(stages, "choose", chooser)
    inputs = Inputs()
    y = inputs.new(floats(24, 24)) @ inputs.new(floats(24, 16))
    program = compiled({"y": y}, inputs, find_target(target)).program
    assert program is not None
    (kernel,) = program.kernels
    assert program.requirements["workgroup_bytes"] == declared(target, kernel.source) == 4 * 88
    assert kernel.source.count(BARRIERS[target]) == 2
    assert program.options["counters"]["barriers"] == 2


def test_text() -> None:
    sink, caps = product(Case((2, 4), 3, 4, False, False))
    *_, value = kernel_text(Stage(5, 1, (2,)).apply(sink, caps))
    assert value == "b0[16*r0 + r1] = sum(r2: stage(r5: b1[24*r0 + r5])[r2] * b2[16*r2 + r1])"
