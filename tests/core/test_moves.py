"""Schedule moves: random legal lists never change what a kernel computes; illegal moves say why."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.agreement import Inputs, assert_agreement, compiled, find_target, reference, replay
from tinyedge.core import dtype as dt
from tinyedge.core.compiler import stages
from tinyedge.core.compiler.caps import Caps
from tinyedge.core.compiler.optimize import choose
from tinyedge.core.compiler.optimize.keeping import Keep
from tinyedge.core.compiler.optimize.kinds import To
from tinyedge.core.compiler.optimize.move import IllegalMove, Move, numbers, ranges
from tinyedge.core.compiler.optimize.moved import MovedKernel
from tinyedge.core.compiler.optimize.moves import (
    MOVES,
    Block,
    Extend,
    Fill,
    Merge,
    Overlap,
    PadTo,
    Partials,
    Peel,
    Reorder,
    Split,
    SplitK,
    Stage,
    Weigh,
    from_record,
)
from tinyedge.core.compiler.options import Options
from tinyedge.core.compiler.schedule.canonical import make_range
from tinyedge.core.errors import InternalError
from tinyedge.core.ir import args, ops
from tinyedge.core.ir.rewrite import substitute
from tinyedge.core.ir.spec import OUTPUT_KINDS, REDUCE_KINDS, check_kernel
from tinyedge.core.ir.text import kernel_text
from tinyedge.core.ir.uop import UOp, cast, const, toposort
from tinyedge.core.program.device import Device
from tinyedge.core.tensor.tensor import Tensor

KINDS = (*OUTPUT_KINDS, *REDUCE_KINDS)


def required(sink: UOp, caps: Caps) -> list[Move]:
    """Moves that a kernel always needs: padding in memory is written as well."""
    return [move for move in choose.baseline(sink, caps)[1] if isinstance(move, Fill)]


def random_moves(sink: UOp, caps: Caps, generator: random.Random) -> tuple[UOp, list[Move]]:
    """The kernel under up to twelve random legal moves."""
    moves: list[Move] = []
    for move in required(sink, caps):
        sink = move.apply(sink, caps)
        moves.append(move)
    for _ in range(generator.randint(1, 12)):
        present = ranges(sink)
        if not present:
            break
        chosen = generator.choice(present)
        number = chosen.arg.number
        factor = generator.choice((2, 3, 4, 5, 8, 16))
        along = [r.arg.number for r in generator.sample(present, min(3, len(present)))]
        move: Move = generator.choice(
            (
                Split(number, factor, max(numbers(sink)) + 1),
                Overlap(number, factor, max(numbers(sink)) + 1),
                PadTo(number, factor),
                Reorder(number, max(numbers(sink)) + 1),
                Peel(number, factor, max(numbers(sink)) + 1, generator.random() < 0.5),
                Overlap(number, factor, max(numbers(sink)) + 1),
                Weigh(max(numbers(sink)) + 1, number),
                Keep(max(numbers(sink)) + 1, number, along[0]),
                Stage(max(numbers(sink)) + 1, generator.randint(1, 2), tuple(along)),
                Stage(max(numbers(sink)) + 1, generator.randint(1, 2), (number,), ahead=True),
                Stage(max(numbers(sink)) + 1, generator.randint(1, 3), tuple(along), whole=True),
                Block(number, factor, max(numbers(sink)) + 1),
                SplitK(number, factor, max(numbers(sink)) + 1),
                Partials(number, factor, max(numbers(sink)) + 1),
                Extend(number, factor),
                Merge(number, generator.choice(present).arg.number, max(numbers(sink)) + 1),
                To(number, generator.choice(KINDS)),
                To(number, generator.choice(KINDS)),
            )
        )
        try:
            sink = move.apply(sink, caps)
        except IllegalMove as illegal:
            assert str(illegal).startswith("cannot ")
        else:
            moves.append(move)
    return sink, moves


def floats(*shape: int) -> np.ndarray[Any, Any]:
    return np.random.default_rng(sum(shape)).normal(size=shape).astype(np.float32)


def matmul(inputs: Inputs) -> dict[str, Tensor]:
    a, b = inputs.new(floats(6, 12)), inputs.new(floats(12, 8))
    bias = Tensor.weight("", floats(8))
    return {"y": (a @ b + bias).relu(), "odd": inputs.new(floats(5, 7)) @ inputs.new(floats(7, 3))}


def convolution(inputs: Inputs) -> dict[str, Tensor]:
    """Small: one thread may have all of it to do, and fill an array again in each inner loop.
    Mesa's software driver ends a kernel's loops after 65,535 iterations.
    """
    x = inputs.new(floats(1, 2, 6, 5))
    weight = Tensor.weight("", floats(4, 2, 3, 3))
    deep = Tensor.weight("", floats(2, 1, 3, 3))
    pads = ((1, 1), (1, 1))
    return {"y": x.conv(weight, pads=pads).relu(), "deep": x.conv(deep, pads=pads, groups=2)}


def rows(inputs: Inputs) -> dict[str, Tensor]:
    x = inputs.new(floats(5, 24))
    centered = x - x.mean(-1, keepdims=True)
    variance = (centered * centered).mean(-1, keepdims=True)
    return {"softmax": x.softmax(-1), "norm": centered / (variance + 1e-5).sqrt()}


def elementwise(inputs: Inputs) -> dict[str, Tensor]:
    x, y = inputs.new(floats(3, 8, 5)), inputs.new(floats(8, 1))
    flags = x > 0
    return {
        "chain": (x * 2.0 + y).tanh(),
        "flags": flags,
        "moved": x.permute((2, 0, 1)).pad(((1, 0), (0, 1), (2, 2))),
        "chosen": flags.where(x.exp(), -x),
        "integers": (inputs.new(np.arange(-12, 12, dtype=np.int32)) // 3) % 4,
    }


def reductions(inputs: Inputs) -> dict[str, Tensor]:
    x = inputs.new(floats(4, 16, 6))
    return {"sum": x.sum(1), "max": x.max((0, 2)), "all": x.sum(), "min": x[:, :15].min(1)}


def quantized(inputs: Inputs) -> dict[str, Tensor]:
    """Narrow integers from and to memory, int32 or float32 between."""
    x = inputs.new(np.arange(-72, 72, dtype=np.int8).reshape(6, 24))
    weight = inputs.new(np.arange(192, dtype=np.uint8).reshape(24, 8))
    scaled = inputs.new(np.arange(-32, 32, dtype=np.float32).reshape(4, 16)) * 11.3
    return {
        "product": (x.cast(dt.int32) - 3) @ weight.cast(dt.int32),
        "rounded": scaled.round().cast(dt.uint8),
        "and_back": scaled.cast(dt.int8).cast(dt.float32) * 0.5,
        "short": (scaled * 300.0).cast(dt.int16),
    }


def several(inputs: Inputs) -> dict[str, Tensor]:
    """Kernels that write two or three buffers; two products in one sum."""
    x, y = inputs.new(floats(9, 12)), inputs.new(floats(9, 12)) * 2.0
    weights = [Tensor.weight("", floats(12, 10) + n) for n in range(3)]
    sums, differences = (x + y).in_memory(), (x - y).in_memory()
    return {
        "sum": sums,
        "difference": differences,
        "one": (sums @ weights[0]).tanh().in_memory() @ weights[0].transpose(),
        "two": (sums @ weights[1]).in_memory() @ weights[0].transpose(),
        "joint": differences @ weights[1] + sums @ weights[2],
        "most": x.max(1),
        "mean": x.mean(1),
        "squares": (x * x).sum(1),
    }


def attention(inputs: Inputs) -> dict[str, Tensor]:
    """Of 9 and 16 keys, one with an additive mask."""
    q, k, v = (inputs.new(floats(2, n, 8)) for n in (5, 9, 9))
    longer = inputs.new(floats(1, 16, 8) * 2)
    masked = q[:1] @ longer.transpose() + inputs.new(floats(5, 16))
    return {"y": (q @ k.transpose()).attend(v), "masked": masked.attend(longer)}


def held(inputs: Inputs) -> dict[str, Tensor]:
    """A small layer within the next one."""
    one, two = (Tensor.weight("", floats(*shape)) for shape in ((24, 12), (12, 20)))
    return {"y": (inputs.new(floats(1, 24)) @ one).relu() @ two}


KERNELS = (
    *(held, attention, matmul, convolution, rows, elementwise),
    *(reductions, quantized, several),
)
TRIES = {"cpu": 6, "webgpu": 3, "qcom": 2, "cuda": 3}


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.__name__)
def test_random_legal_moves_change_nothing(
    kernel: Callable[[Inputs], dict[str, Tensor]],
    target: str,
    device: Device,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    inputs = Inputs()
    outputs = kernel(inputs)
    expected = reference(outputs, inputs, fp64_reference=True)
    done: list[list[Move]] = []
    for seed in range(TRIES[target]):
        generator = random.Random(seed)

        def chooser(
            sink: UOp, caps: Caps, *_: Any, g: random.Random = generator
        ) -> tuple[UOp, list[Move]]:
            moved, moves = random_moves(sink, caps, g)
            done.append(moves)
            again = sink
            for record in json.loads(json.dumps([move.record() for move in moves])):
                again = from_record(record).apply(again, caps)
            assert again is moved, "the records do not make the same kernel"
            return moved, moves

        monkeypatch.setattr(stages, "choose", chooser)
        done.clear()
        state = compiled(outputs, inputs, find_target(target), Options())
        program = state.program
        assert program is not None
        # kernels that share a text have lost the moves that deal out to threads, the last ones
        assert all(
            any(k.moves == (all_[: len(k.moves)] if k.groups else all_) for all_ in done)
            for k in state.kernels.values()
        )
        # kernels are formed anew where images are refused, and asked again for tiles in common
        again = target in ("qcom", "webgpu")
        assert len(done) == len(state.kernels) or (again and len(done) > len(state.kernels))
        kept = [[move.record() for move in k.moves] for k in state.kernels.values()]
        assert all(list(k.moves) in kept for k in program.kernels)
        try:
            assert_agreement(replay(program, device, inputs.arrays), expected)
        except Exception as error:
            raise AssertionError(f"seed {seed}: {error}\n{done}") from error


def kernel_of(tensor: Tensor, inputs: Inputs, target: str) -> tuple[UOp, Caps]:
    """The only kernel of a tensor, before its moves."""
    state = compiled({"y": tensor}, inputs, find_target(target))
    (launch,) = state.launches
    return launch.sink, state.caps


def test_illegal_moves_say_why() -> None:
    inputs = Inputs()
    sink, caps = kernel_of(inputs.new(floats(6, 100)).sum(1), inputs, "webgpu")
    (outer,) = (r.arg.number for r in ranges(sink) if r.arg.kind == "loop")
    (inner,) = (r.arg.number for r in ranges(sink) if r.arg.kind == "reduce")
    free = max(numbers(sink)) + 1
    grid = To(outer, "grid").apply(sink, caps)
    for kernel, move, text in [
        (sink, Split(outer, 4, free), "4 does not divide"),
        (sink, Split(outer, 1, free), "does not divide"),
        (sink, Split(outer, 2, outer), "is taken"),
        (sink, Split(99, 2, 100), "there is no range 99"),
        (sink, PadTo(outer, 3), "divides it already"),
        (sink, To(inner, "grid"), "it is reduce"),
        (sink, To(outer, "unroll"), "it is loop"),
        (sink, To(outer, "nonsense"), "it is loop"),
        (sink, To(outer, "vector"), "6 lanes"),
        (sink, To(inner, "unroll"), "100 copies"),
        (grid, To(outer, "local"), "it is grid"),
        (sink, Reorder(inner, free), "it is reduce"),
        (sink, Reorder(outer, inner), "is not the greatest"),
        (sink, Block(outer, 2, free), "it is loop"),
        (sink, Block(inner, 3, free), "3 does not divide"),
        (sink, Block(inner, 100, free), "100 does not divide"),
        (sink, Block(inner, 10, inner), "is taken"),
        (sink, Block(inner, 1, free), "no range is nested"),
        (sink, SplitK(outer, 2, free), "it is loop"),
        (sink, Extend(outer, 3), "it is loop"),
        (sink, Extend(inner, 10), "it is reduce"),
        (sink, SplitK(inner, 3, free), "100 steps in 3"),
        (sink, SplitK(inner, 10, inner), "is taken"),
        (sink, Merge(outer, inner, free), "they are loop and reduce"),
        (sink, Merge(outer, outer, free), "they are loop and loop"),
    ]:
        try:
            move.apply(kernel, caps)
        except IllegalMove as illegal:
            assert text in str(illegal)
        else:
            raise AssertionError(f"{move} is legal")
    many, caps = kernel_of(inputs.new(floats(300)) * 2.0, inputs, "webgpu")
    (number,) = numbers(many)
    with pytest.raises(IllegalMove, match="300 threads"):
        To(number, "local").apply(many, caps)
    split = Split(number, 4, 1).apply(many, caps)
    vector = To(2, "vector").apply(split, caps)
    assert [r.arg for r in ranges(vector)] == [args.Range(1, "loop"), args.Range(2, "vector")]
    again = Split(1, 3, 3).apply(vector, caps)
    with pytest.raises(IllegalMove, match="vectorize"):
        To(4, "vector").apply(again, caps)


def test_a_reduction_has_its_threads_once() -> None:
    """Two ranges of the same threads would be one coordinate: only a diagonal would be reduced."""
    inputs = Inputs()
    sink, caps = kernel_of(inputs.new(floats(3, 64)).sum(1), inputs, "webgpu")
    (inner,) = (r.arg.number for r in ranges(sink) if r.arg.kind == "reduce")
    free = max(numbers(sink)) + 1
    shared = To(free, "threads").apply(Split(inner, 8, free).apply(sink, caps), caps)
    with pytest.raises(IllegalMove, match="another range of the same threads"):
        To(free + 1, "threads").apply(shared, caps)
    twice = {
        r: UOp(ops.RANGE, dt.index, r.src, args.Range(r.arg.number, "threads"))
        for r in ranges(shared)
        if r.arg.kind == "reduce"
    }
    with pytest.raises(InternalError, match="depends on them twice"):
        check_kernel(substitute((shared,), twice)[0])
    (reduction,) = (node for node in toposort((sink,)) if node.op is ops.REDUCE_LOOP)
    r = make_range(const(64, dt.index), free, "reduce")
    scaled = UOp(ops.MUL, dt.float32, (reduction, cast(r, dt.float32)))
    outer = UOp(ops.REDUCE_LOOP, dt.float32, (scaled, r), ops.ADD)
    (nested,) = substitute((sink,), {reduction: outer})
    To(free, "threads").apply(To(inner, "threads").apply(nested, caps), caps)  # one uses the other
    within = UOp(ops.MUL, dt.float32, (reduction.src[0], cast(r, dt.float32)))
    body = UOp(ops.REDUCE_LOOP, dt.float32, (within, *reduction.src[1:]), ops.MAX)
    outer = UOp(ops.REDUCE_LOOP, dt.float32, (body, r), ops.ADD)
    (nested,) = substitute((sink,), {reduction: outer})
    with pytest.raises(IllegalMove, match="another range of the same threads"):
        To(free, "threads").apply(To(inner, "threads").apply(nested, caps), caps)


def test_vectors_of_narrow_integers() -> None:
    """Where the device has them, they are loaded, converted and stored as vectors."""
    inputs = Inputs()
    program = compiled(quantized(inputs), inputs, find_target("cpu"), Options()).program
    assert program is not None
    for kernel in program.kernels:
        assert any(move.get("kind") == "vector" for move in kernel.moves), kernel.source


def test_records() -> None:
    for move in (
        *(
            Split(3, 4, 7),
            Merge(3, 4, 7),
            Reorder(2, 9),
            PadTo(0, 16),
            Peel(2, 8, 5, overlap=True),
            Fill(2, 4),
        ),
        *(Block(2, 8, 5), Overlap(1, 8, 5), SplitK(2, 4, 5), Partials(3, 4, 7), Extend(2, 8)),
        *(To(1, "local"), Stage(9, 1, (3, 2), ahead=True)),
    ):
        record = move.record()
        assert record["move"] in MOVES
        assert from_record(json.loads(json.dumps(record))) == move
    assert len({Split(0, 2, 1), Split(0, 2, 1), Split(0, 4, 1)}) == 2
    with pytest.raises(KeyError):
        from_record({"move": "teleport", "range": 1})
    with pytest.raises(TypeError):
        from_record({"move": "split", "range": 1})


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.__name__)
def test_chosen_moves_can_be_replayed(
    kernel: Callable[[Inputs], dict[str, Tensor]], target: str
) -> None:
    """The list beside a kernel is all of its optimization."""
    inputs = Inputs()
    outputs = kernel(inputs)
    for optimize in (False, True):
        state = compiled(outputs, inputs, find_target(target), Options(optimize=optimize))
        for made in state.kernels.values():
            sink = made.sink
            for move in made.moves:
                sink = move.apply(sink, state.caps)
            assert sink is made.moved


def test_blocks_have_sums_of_their_own() -> None:
    """And threads, each a run of the steps."""
    inputs = Inputs()
    sink, caps = kernel_of(inputs.new(floats(6, 100)).sum(1), inputs, "webgpu")
    (inner,) = (r.arg.number for r in ranges(sink) if r.arg.kind == "reduce")
    free = max(numbers(sink)) + 1
    *_, blocked = kernel_text(Block(inner, 20, free).apply(sink, caps))
    assert blocked == "b0[r0] = sum(r2: sum(r3: b1[100*r0 + 20*r2 + r3]))"
    divided = SplitK(inner, 4, free).apply(sink, caps)
    assert [r.arg.kind for r in ranges(divided)] == ["loop", "threads", "reduce"]
    *_, text = kernel_text(divided)
    assert text == "b0[r0] = sum(r2, r3: b1[100*r0 + 25*r2 + r3])"


@pytest.mark.parametrize(
    ("columns", "vectors"), [(7, (4, 2)), (14, (8, 2)), (99, (8, 13)), (16, (8, 2))]
)
def test_rows_of_any_length_are_whole_vectors(columns: int, vectors: tuple[int, int]) -> None:
    """On the cpu: the last overlaps the one before where that makes at most half as many."""
    inputs = Inputs()
    x = inputs.new(floats(1, 4, 5, columns))
    deep = Tensor.weight("", floats(4, 1, 3, 3))
    y = x.conv(deep, pads=((1, 1), (1, 1)), groups=4)
    (kernel,) = compiled({"y": y}, inputs, find_target("cpu")).kernels.values()
    assert kernel.moved is not None
    moved, moves = kernel.moved, kernel.moves
    lanes, count = vectors
    sizes = {r.src[0].arg for r in ranges(moved) if r.arg.kind == "vector"}
    assert sizes == {lanes}
    assert any(r.src[0].arg == count for r in ranges(moved) if r.arg.kind != "vector")
    assert any(isinstance(move, Overlap) for move in moves) == (columns % lanes != 0)


def test_blocks_that_may_not_overlap() -> None:
    inputs = Inputs()
    sink, caps = kernel_of(inputs.new(floats(3, 11)).sum(1), inputs, "cpu")
    (outer,) = (r.arg.number for r in ranges(sink) if r.arg.kind == "loop")
    (inner,) = (r.arg.number for r in ranges(sink) if r.arg.kind == "reduce")
    free = max(numbers(sink)) + 1
    grid = To(outer, "grid").apply(sink, caps)
    (store,) = sink.src
    kept = UOp(ops.LOAD, store.src[1].dtype, (store.src[0], store.src[2]))
    both = UOp(ops.ADD, kept.dtype, (store.src[1], kept))
    added = sink.replace((store.replace((store.src[0], both, *store.src[2:])),))
    for kernel, move, facts, text in [
        (sink, Overlap(inner, 16, free), caps, "shorter than 16"),
        (grid, Overlap(outer, 2, free), caps, "it is grid"),
        (sink, Overlap(outer, 3, free), caps, "3 divides it"),
        (sink, Overlap(outer, 4, free), caps, "shorter than 4"),
        (sink, Overlap(outer, 2, outer), caps, "is taken"),
        (sink, Overlap(outer, 2, free), find_target("webgpu").caps("default"), "has threads"),
        (added, Overlap(outer, 2, free), caps, "what is stored is read"),
    ]:
        with pytest.raises(IllegalMove, match=text):
            move.apply(kernel, facts)


@pytest.mark.parametrize("target", ["webgpu", "cpu"])
def test_moves_that_are_done_together(target: str) -> None:
    """A chooser's kernel is the one that its moves make one by one, also where all are known to be
    legal.
    """
    inputs = Inputs()
    x, w = inputs.new(floats(1, 8, 12, 12)), inputs.new(floats(16, 8, 3, 3))
    sink, caps = kernel_of(x.conv(w, pads=((1, 1), (1, 1))), inputs, target)
    moved, moves = choose.choose(sink, caps)
    each, again = sink, MovedKernel(sink, caps)
    for move in moves:
        each = move.apply(each, caps)
        again.do(move, allowed=True)
    assert len(moves) > 4
    assert each is moved
    assert again.sink is moved
    assert again.ranges == ranges(moved)
