"""Reductions in vectors along what they sum: what they give, and which kernels have them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.agreement import (
    Inputs,
    Tolerance,
    assert_agreement,
    compiled,
    find_target,
    reference,
    replay,
    run,
)
from tinyedge.core import dtype as dt
from tinyedge.core.compiler.compile import compile_graph
from tinyedge.core.compiler.optimize.keeping import Keep
from tinyedge.core.compiler.optimize.kinds import To
from tinyedge.core.compiler.optimize.move import IllegalMove, numbers, ranges
from tinyedge.core.compiler.optimize.moves import Peel, Split
from tinyedge.core.compiler.options import Options
from tinyedge.core.errors import InternalError
from tinyedge.core.ir import args, ops
from tinyedge.core.ir.lowered import Geometry, Linear, workgroup_buffers
from tinyedge.core.ir.reference_lowered import run_lowered
from tinyedge.core.ir.rewrite import substitute
from tinyedge.core.ir.shapes import symbol
from tinyedge.core.ir.spec import check_kernel
from tinyedge.core.ir.spec_lowered import check_lowered
from tinyedge.core.ir.text import statements_text
from tinyedge.core.ir.uop import UOp, const, toposort
from tinyedge.core.program.device import Device
from tinyedge.core.program.replay import Replay
from tinyedge.core.tensor.graph import Graph, Port
from tinyedge.core.tensor.tensor import Tensor

RNG = np.random.default_rng(11)
SIZES = (1, 3, 4, 5, 7, 8, 9, 12, 15, 16, 17, 31, 32, 33, 40, 63, 64, 65, 100, 257)
Array = np.ndarray[Any, Any]


def floats(*shape: int) -> Array:
    return RNG.normal(size=shape).astype(np.float32)


def kinds_of(tensor: Tensor, inputs: Inputs, target: str = "cpu") -> list[dict[str, int]]:
    """Of every kernel, the sizes of its ranges by kind."""
    state = compiled({"y": tensor}, inputs, find_target(target))
    return [
        {r.arg.kind: r.src[0].arg for r in ranges(kernel.moved)}
        for kernel in state.kernels.values()
    ]


def agree(
    outputs: dict[str, Tensor], inputs: Inputs, device: Device, profile: str = "default"
) -> None:
    program = compiled(outputs, inputs, find_target("cpu"), Options(profile=profile)).program
    assert program is not None
    expected = reference(outputs, inputs, fp64_reference=True)
    assert_agreement(replay(program, device, inputs.arrays), expected)


@pytest.mark.parametrize("size", SIZES)
def test_rows_of_every_length(size: int, cpu_device: Device) -> None:
    """Whole vectors, what is left over, and rows shorter than a vector."""
    inputs = Inputs()
    x, near = inputs.new(floats(3, size)), inputs.new(1 + 0.01 * floats(3, size))
    wide = inputs.new(floats(3, 2, size))
    whole = inputs.new(RNG.integers(-(2**30), 2**30, (3, size), np.int32))
    centered = x - x.mean(-1, keepdims=True)
    outputs = {
        "sum": x.sum(-1),
        "most": x.max(-1),
        "least": x.min(-1),
        "product": near.prod(-1),
        "softmax": x.softmax(-1),
        "norm": centered / ((centered * centered).mean(-1, keepdims=True) + 1e-5).sqrt(),
        "both": wide.sum((1, 2)),  # an outer range that is reduced as well
        "logarithm": (x - x.max(-1, keepdims=True)).exp().sum(-1).log(),
        "integers": whole.sum(-1),  # wraps
        "natural": whole.cast(dt.uint32).max(-1),
        "narrow": whole.cast(dt.int8).cast(dt.int32).sum(-1),
        "where": x.argmax(-1),
        "dot": (x * near).sum(),
    }
    agree(outputs, inputs, cpu_device)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, -0.0])
@pytest.mark.parametrize("size", [24, 77])
def test_special_values_in_every_lane(value: float, size: int, cpu_device: Device) -> None:
    """One in each place: those that the last vector takes a second time count once."""
    x = np.full((size, size), -1.0, np.float32)
    np.fill_diagonal(x, value)
    inputs = Inputs()
    rows = inputs.new(x)
    flat = inputs.new(np.full((2, size), value, np.float32))
    outputs = {
        "sum": rows.sum(-1),
        "most": rows.max(-1),
        "least": rows.min(-1),
        "softmax": rows.softmax(-1),
        "only": flat.max(-1),
        "same": flat.softmax(-1),
    }
    agree(outputs, inputs, cpu_device)


def test_open_sizes(cpu_device: Device) -> None:
    """A size that may be shorter than a vector, and one that may not."""
    for least in (1, 8):
        n = symbol("N", least, 90)
        x = Tensor.input("x", (2, n), dt.float32)
        outputs = {"sum": x.sum(-1), "most": x.max(-1), "softmax": x.softmax(-1)}
        ports = tuple(Port(name, y.dtype, y.shape, y.node) for name, y in outputs.items())
        compiled_graph = compile_graph(
            Graph((Port("x", dt.float32, x.shape),), ports), find_target("cpu"), Options()
        )
        made = [str(move) for k in compiled_graph.kernels.values() for move in k.moves]
        assert any("lanes" in move for move in made)
        program = compiled_graph.program
        assert program is not None
        with Replay(program, cpu_device, poison=True) as ready:
            for size in (least, 8, 9, 31, 32, 33, 64, 77, 90):
                inputs = Inputs()
                inputs.new(floats(2, size), "x", x.shape)
                actual = ready.run(inputs.arrays, symbols={"N": size})
                assert_agreement(actual, reference(outputs, inputs, {"N": size}))


def test_a_long_sum_is_nearer_to_the_true_one(cpu_device: Device) -> None:
    """One running total of so many numbers is off by about 1e-4 of them, partial ones by less."""
    values = RNG.random(2**20, np.float32)
    inputs = Inputs()
    outputs = {"sum": inputs.new(values).sum()}
    program = compiled(outputs, inputs, find_target("cpu")).program
    assert program is not None
    result = replay(program, cpu_device, inputs.arrays)["sum"]
    true = values.astype(np.float64).sum()
    running = np.cumsum(values, dtype=np.float32)[-1]
    assert abs(float(result) - true) < 0.1 * abs(float(running) - true)


@pytest.mark.parametrize("profile", ["sse", "avx512"])
def test_shorter_and_longer_vectors(profile: str, cpu_device: Device) -> None:
    """Rows of less than a vector too: of a part of one, down to four lanes."""
    inputs = Inputs()
    outputs = {}
    for size in (3, 6, 8, 13, 100):
        x = inputs.new(floats(3, size))
        outputs |= {f"sum{size}": x.sum(-1), f"softmax{size}": x.softmax(-1)}
        outputs |= {f"columns{size}": inputs.new(floats(70, size)).sum(0)}
    outputs["whole"] = inputs.new(RNG.integers(-9, 9, (3, 40), np.int32)).sum(-1)
    agree(outputs, inputs, cpu_device, profile)


LANES: dict[str, tuple[Callable[[Tensor], Tensor], tuple[int, ...]]] = {
    "row": (lambda x: x.sum(-1), (5, 256)),
    "whole": (lambda x: x.max(), (4096,)),
    "channels of an image": (lambda x: x.mean((2, 3)), (1, 16, 7, 7)),
    "dot": (lambda x: (x * x).sum(), (4096,)),
}
OUTPUTS: dict[str, tuple[Callable[[Tensor], Tensor], tuple[int, ...]]] = {
    "columns": (lambda x: x.sum(0), (256, 64)),
    "pixels of an image": (lambda x: x.mean((1, 2)), (1, 7, 7, 64)),
    "softmax of columns": (lambda x: x.softmax(0), (32, 64)),
    "short rows": (lambda x: x.sum(-1), (64, 3)),
}


@pytest.mark.parametrize("name", LANES)
def test_vectors_lie_along_what_is_summed(name: str) -> None:
    function, shape = LANES[name]
    inputs = Inputs()
    (kinds,) = kinds_of(function(inputs.new(floats(*shape))), inputs)
    assert kinds["lanes"] % 8 == 0 and "vector" not in kinds


@pytest.mark.parametrize("name", OUTPUTS)
def test_vectors_lie_along_what_is_written(name: str) -> None:
    function, shape = OUTPUTS[name]
    inputs = Inputs()
    (kinds,) = kinds_of(function(inputs.new(floats(*shape))), inputs)
    assert kinds["vector"] == 8 and "lanes" not in kinds


def test_strides_take_whole_cache_lines() -> None:
    """A long sum over rows is of eight vectors of columns at a time, a short one of a single one;
    the vectors of fewer columns are fewer.
    """
    inputs = Inputs()
    for shape, beside in (((256, 512), 8), ((256, 32), 4), ((256, 24), None), ((16, 512), None)):
        (kinds,) = kinds_of(inputs.new(floats(*shape)).sum(0), inputs)
        assert (kinds["vector"], kinds.get("upcast")) == (8, beside)


def test_rows_have_both() -> None:
    """Softmax is reduced along lanes and written in vectors; where threads share a row, by them,
    and where one is alone, in more vectors.
    """
    inputs = Inputs()
    y = inputs.new(floats(5, 256)).softmax(-1)
    (kinds,) = kinds_of(y, inputs)
    assert kinds["vector"] == 8 and kinds["lanes"] >= 16
    for target, lanes in (("webgpu", 4), ("cuda", 4), ("qcom", 16)):
        for kinds in kinds_of(y, inputs, target):
            assert (kinds["vector"], kinds["lanes"]) == (4, lanes)


@pytest.mark.parametrize(("target", "rows", "size"), [("webgpu", 100, 1000), ("cuda", 1024, 768)])
def test_threads_have_a_row_in_registers(target: str, rows: int, size: int) -> None:
    """Sixteen threads: each loads its part once and computes its exponentials once."""
    inputs = Inputs()
    y = inputs.new(floats(rows, size)).softmax(-1)
    (kernel,) = compiled({"y": y}, inputs, find_target(target)).kernels.values()
    assert kernel.text is not None
    nodes = toposort(kernel.text.linear.statements)
    loads = [n for n in nodes if n.op is ops.LOAD and n.src[0].op is ops.PARAM]
    vectors = -(-size // 64)
    assert [n.dtype.lanes for n in loads] == [4] * vectors
    assert sum(n.op is ops.EXP for n in nodes) == vectors


def test_a_short_row_is_in_registers() -> None:
    """Of up to 16 vectors each exponential is computed once, for the sum and for the result."""
    inputs = Inputs()
    for size, exponentials, loops in ((64, 8, 0), (56, 7, 0), (128, 16, 0), (256, 8, 3)):
        y = inputs.new(floats(5, size)).softmax(-1)
        state = compiled({"y": y}, inputs, find_target("cpu"))
        (kernel,) = state.kernels.values()
        assert kernel.text is not None
        statements = kernel.text.linear.statements
        assert sum(n.op is ops.EXP for n in toposort(statements)) == exponentials
        assert sum(n.op is ops.BEGIN for n in statements) == loops


@pytest.mark.parametrize(("size", "kept"), [(128, 0), (1000, 1), (16384, 1)])
def test_a_row_is_kept_where_there_is_room(size: int, kept: int) -> None:
    """One exponential an element, in registers or in an array."""
    inputs = Inputs()
    (kernel,) = compiled(
        {"y": inputs.new(floats(3, size)).softmax(-1)}, inputs, find_target("cpu")
    ).kernels.values()
    assert [move.record()["move"] for move in kernel.moves].count("keep") == kept
    stages = [n for n in toposort((kernel.moved,)) if n.op is ops.STAGE]
    assert [n.src[1].src[0].arg for n in stages] == [size] * kept


@pytest.mark.parametrize("size", [300, 4096, 16384])
def test_what_is_kept_is_made_of_vectors(size: int) -> None:
    """The greatest of a row, which each exponential needs, is found along lanes."""
    inputs = Inputs()
    (kernel,) = compiled(
        {"y": inputs.new(floats(3, size)).softmax(-1)}, inputs, find_target("cpu")
    ).kernels.values()
    (stage,) = (n for n in toposort((kernel.moved,)) if n.op is ops.STAGE)
    found = [n for n in toposort((stage,)) if n.op is ops.REDUCE_LOOP]
    assert found and all(any(r.arg.kind == "lanes" for r in n.src[1:]) for n in found)


@pytest.mark.parametrize(("size", "stored"), [(16400, [1, 1, 0, 0]), (20001, [1, 0])])
def test_a_longer_row_is_in_memory(
    size: int, stored: list[int], target: str, device: Device
) -> None:
    """One exponential an element: a kernel stores them, one divides them by their sum. The first
    one finds the greatest number of each block of a row, and the sum, too, and one how much less
    the block's is than the row's; of 20001 no blocks are whole vectors. Threads that share a row
    compute them twice, each few. A row or a block of it may be -infinity.
    """
    inputs = Inputs()
    rows = floats(5, size)
    rows[0, : size // 2], rows[1], rows[2, 9], rows[3, 70] = -np.inf, -np.inf, np.inf, np.nan
    outputs = {"y": inputs.new(rows).softmax(-1)}
    state = compiled(outputs, inputs, find_target(target))
    exponentials = [
        sum(n.op is ops.EXP for n in toposort((kernel.moved,))) for kernel in state.kernels.values()
    ]
    rest = target == "qcom" and size % 4 > 0  # behind the last vector, with statements of its own
    assert exponentials == (stored if target == "cpu" else [2 + rest])
    if target == "cpu":  # nothing of a row or a block is copied
        texts = [kernel.text for kernel in state.kernels.values()]
        assert not any(text and workgroup_buffers(text.linear.statements) for text in texts)
    assert state.program is not None
    assert_agreement(replay(state.program, device, inputs.arrays), reference(outputs, inputs))


def test_a_row_beside_elements_that_memory_rounds_up(cpu_device: Device) -> None:
    """One kernel stores both: zeros behind the elements, which a product reads, and none behind
    what is known of a row.
    """
    inputs = Inputs()
    x = inputs.new(floats(3, 50))
    most = x.max(-1).in_memory()
    less = (x - most.unsqueeze(-1)).in_memory()
    outputs = {"y": less @ inputs.new(floats(50, 8)), "most": most * 2.0}
    state = compiled(outputs, inputs, find_target("cpu"))
    assert max(len(kernel.sink.src) for kernel in state.kernels.values()) == 2
    assert_agreement(run(outputs, inputs, "cpu", cpu_device), reference(outputs, inputs))


def test_other_reductions_of_a_longer_row(cpu_device: Device) -> None:
    """Of its exponentials only the row's own sum is made of those of blocks."""
    for shape in ((3, 16400), (17000, 512)):
        inputs = Inputs()
        x = inputs.new(floats(*shape))
        e = (x - x.max(-1, keepdims=True)).exp()
        least, columns = e.min(-1), e.sum(0)
        outputs = {"y": e / e.sum(-1, keepdims=True), "least": least, "columns": columns}
        assert_agreement(run(outputs, inputs, "cpu", cpu_device), reference(outputs, inputs))
        outputs = {"y": e / columns}
        assert_agreement(run(outputs, inputs, "cpu", cpu_device), reference(outputs, inputs))


def test_a_longer_row_of_large_scores_in_fp16(cpu_device: Device) -> None:
    """A block's greatest score would be rounded by more than its exponentials can bear."""
    inputs = Inputs()
    outputs = {"y": inputs.new(floats(2, 16400) * 20 + 500).softmax(-1)}
    actual = run(outputs, inputs, "cpu", cpu_device, Options(precision="fp16"))
    assert_agreement(actual, reference(outputs, inputs), {"y": Tolerance(2e-3, 1e-4)})


def test_what_only_a_sum_reads_stays_with_it() -> None:
    """Nothing computes it again."""
    inputs = Inputs()
    x = inputs.new(floats(2, 20000))
    y = (x - x.max(-1, keepdims=True)).exp().sum(-1).log()
    assert len(compiled({"y": y}, inputs, find_target("cpu")).launches) == 1


def test_what_is_cheap_is_not_kept() -> None:
    """A row less its mean is computed again; what a costly function makes of it is not."""
    for function, kept in ((Tensor.relu, 0), (Tensor.tanh, 1)):
        inputs = Inputs()
        x = inputs.new(floats(3, 300))
        y = function(x - x.max(-1, keepdims=True))
        y = y / y.sum(-1, keepdims=True)
        (kernel,) = compiled({"y": y}, inputs, find_target("cpu")).kernels.values()
        assert sum(isinstance(move, Keep) for move in kernel.moves) == kept


def kernel_of(tensor: Tensor, inputs: Inputs, target: str = "cpu") -> Any:
    state = compiled({"y": tensor}, inputs, find_target(target))
    (launch,) = state.launches
    return launch.sink, state.caps


def test_illegal_moves_say_why() -> None:
    inputs = Inputs()
    sink, caps = kernel_of(inputs.new(floats(6, 100)).sum(1), inputs)
    (outer,) = (r.arg.number for r in ranges(sink) if r.arg.kind == "loop")
    (inner,) = (r.arg.number for r in ranges(sink) if r.arg.kind == "reduce")
    free = max(numbers(sink)) + 1
    split = Split(inner, 4, free).apply(sink, caps)
    twice = Split(free, 5, free + 2).apply(split, caps)
    long, _ = kernel_of(inputs.new(floats(2, 40)).cast(dt.int64).sum(1), inputs)
    (whole,) = (r.arg.number for r in ranges(long) if r.arg.kind == "reduce")
    for kernel, move, text in [
        (sink, To(outer, "lanes"), "it is loop"),
        (sink, To(inner, "lanes"), "100 of them"),
        (long, To(whole, "lanes"), "elements of another width"),
        (sink, Peel(outer, 8, free), "it is loop"),
        (sink, Peel(inner, 4, free), "4 divides it"),
        (sink, Peel(inner, 8, inner), "is taken"),
        (sink, Peel(inner, 128, free), "shorter than 128"),
        (To(free + 1, "lanes").apply(twice, caps), To(free + 3, "lanes"), "5 of them"),
    ]:
        with pytest.raises(IllegalMove, match=text):
            move.apply(kernel, caps)


def test_lanes_of_lanes() -> None:
    """A value has one dimension of lanes: neither another reduction's nor the output's beside."""
    inputs = Inputs()
    sink, caps = kernel_of(inputs.new(floats(8, 8, 8)).sum((0, 2)), inputs)
    output, *reduced = sorted(ranges(sink), key=lambda r: str(r.arg.kind))
    first, second = (r.arg.number for r in reduced)
    along = To(second, "lanes").apply(sink, caps)
    for kernel, move in [
        (along, To(first, "lanes")),
        (along, To(output.arg.number, "vector")),
        (To(output.arg.number, "vector").apply(sink, caps), To(second, "lanes")),
    ]:
        with pytest.raises(IllegalMove, match="depends on other lanes"):
            move.apply(kernel, caps)
    both = {r: UOp(ops.RANGE, dt.index, r.src, args.Range(r.arg.number, "lanes")) for r in reduced}
    with pytest.raises(InternalError, match="depends on lanes twice"):
        check_kernel(substitute((sink,), both)[0])


def test_what_is_peeled_has_ranges_of_its_own() -> None:
    """Two loops over one range would be nested in one another."""
    inputs = Inputs()
    sink, caps = kernel_of(inputs.new(floats(6, 3, 5)).permute((1, 0, 2)).sum((1, 2)), inputs)
    inner = next(n.src[-1] for n in toposort((sink,)) if n.op is ops.REDUCE_LOOP)
    peeled = Peel(inner.arg.number, 2, 7).apply(sink, caps)
    loops = [n.src[1:] for n in toposort((peeled,)) if n.op is ops.REDUCE_LOOP]
    assert [len(own) for own in loops] == [2, 1] and not set(loops[0]) & set(loops[1])
    assert sorted(r.arg.number for own in loops for r in own) == [1, 2, 8]


VECTOR = UOp(
    ops.VECTOR, dt.float32.vector(4), tuple(const(float(i), dt.float32) for i in (5, 1, 7, 2))
)
ONE = Geometry((1, 1, 1), (1, 1, 1), ())


def test_the_lanes_of_a_vector() -> None:
    """Their grammar, their text, and the order in which they are combined."""
    most = UOp(ops.REDUCE_LANES, dt.float32, (VECTOR,), ops.MAX)
    check_lowered(Linear([most]), ONE)
    run_lowered(Linear([most]), ONE, [])
    assert list(statements_text([most], {})) == ["v0 = max(lanes of float32x4(5, 1, 7, 2))"]
    for wrong in (
        UOp(ops.REDUCE_LANES, dt.float32, (const(1.0, dt.float32),), ops.ADD),
        UOp(ops.REDUCE_LANES, dt.int32, (VECTOR,), ops.ADD),
        UOp(ops.REDUCE_LANES, dt.float32, (VECTOR,), ops.SUB),
    ):
        with pytest.raises(InternalError, match="the lanes of a vector are combined"):
            check_lowered(Linear([wrong]), ONE)


def test_two_reductions_of_one_range_before_a_product(device: Device, target: str) -> None:
    """The threads that one has dealt the range out to are the other's, too."""
    inputs = Inputs()
    x, w = inputs.new(floats(1, 96, 35)), inputs.new(floats(1, 96))
    outputs = {"y": ((x.mean(-1) + x.max(-1)) * w).sum(-1)}
    state = compiled(outputs, inputs, find_target(target))
    assert_agreement(replay(state.program, device, inputs.arrays), reference(outputs, inputs))


@pytest.mark.parametrize("size", [77, 777, 1009, 4100])
def test_a_thread_alone_keeps_the_digits_of_a_sum(size: int, qcom_device: Device) -> None:
    """Rows and columns of numbers far from zero: a mean is off by a few units in its last place,
    where one running total of all numbers is off by up to 20.
    """
    inputs = Inputs()
    rows = inputs.new(1000 + floats(3, size))
    columns = inputs.new(1000 + floats(size, 8))
    few = inputs.new(1000 + floats(3, 7, 5, size)).permute((0, 2, 1, 3))
    tensors = {"row": (rows, 1), "column": (columns, 0), "several": (few, (1, 2, 3))}
    outputs = {name: tensor.mean(axes) for name, (tensor, axes) in tensors.items()}
    moved = rows - rows.mean(1, keepdims=True)
    outputs["variance"] = (moved * moved).mean(1)
    program = compiled(outputs, inputs, find_target("qcom")).program
    assert program is not None
    expected = reference(outputs, inputs, fp64_reference=True)
    near = Tolerance(greatest=4e-7)
    assert_agreement(
        replay(program, qcom_device, inputs.arrays), expected, dict.fromkeys(outputs, near)
    )


def test_blocks_of_a_sum_have_totals_of_their_own() -> None:
    """In statements as well, and blocks of blocks: each is a loop of at most 32 steps around the
    next one, with an accumulator.
    """
    inputs = Inputs()
    state = compiled({"y": inputs.new(floats(4096, 8)).sum(0)}, inputs, find_target("qcom"))
    (kernel,) = state.kernels.values()
    assert kernel.text is not None
    statements = kernel.text.linear.statements
    sizes = [n.src[0].src[0].arg for n in statements if n.op is ops.BEGIN]
    assert max(sizes) <= 32 and np.prod(sizes) == 1024  # four copies of a step
    assert sum(n.op is ops.ACCUMULATOR for n in statements) == len(sizes)
