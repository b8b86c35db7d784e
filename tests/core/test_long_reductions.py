"""Reductions of very many elements to a few: two launches, the same values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.agreement import Inputs, assert_agreement, compiled, find_target, reference, replay
from tinyedge.core import dtype as dt
from tinyedge.core.compiler.compile import compile_graph
from tinyedge.core.compiler.options import Options
from tinyedge.core.gradient.transforms import grad
from tinyedge.core.ir import ops
from tinyedge.core.ir.shapes import symbol
from tinyedge.core.ir.uop import toposort
from tinyedge.core.program.device import Device
from tinyedge.core.program.program import Launch
from tinyedge.core.tensor.graph import Graph, Port
from tinyedge.core.tensor.tensor import Tensor

RNG = np.random.default_rng(5)
MANY = 2**18  # elements that are many for every target
Function = Callable[[Tensor], Tensor]
Outputs = dict[str, Tensor]

# What is reduced, and in how many launches; on a processor, and with threads, if they differ.
CASES: dict[str, tuple[Function, tuple[int, ...], int | tuple[int, int]]] = {
    "all": (lambda x: x.sum(), (MANY,), 2),
    "rows": (lambda x: x.max(1), (3, MANY), 2),
    "columns": (lambda x: x.sum(0), (MANY, 2), 2),
    "neighboring axes": (lambda x: x.min((1, 2, 3)), (2, 4, 256, 260), 2),
    "axes apart": (lambda x: x.sum((0, 2)), (2, 3, MANY), 2),
    "no multiple": (lambda x: x.max(), (MANY + 77,), 3),
    "a prime": (lambda x: x.sum() * 2.0, (300_007,), 3),
    "what is computed": (lambda x: (x * 0.5).exp().sum(-1, keepdims=True), (1, MANY), 2),
    "softmax": (lambda x: x.softmax(-1), (MANY,), (4, 3)),
    "softmax of rows": (lambda x: x.softmax(-1), (5, 40_000), (4, 3)),
    "the logarithm of a softmax": (lambda x: x.log_softmax(0), (40_000, 3), (1, 3)),
    "the place": (lambda x: x.argmax(0), (MANY,), (4, 2)),
    "the place of rows": (lambda x: x.argmax(1), (2, MANY), (4, 2)),
    "many results": (lambda x: x.sum(1), (600, 2048), 1),
    "not so many": (lambda x: x.sum(), (8192,), 1),
}


def floats(*shape: int) -> np.ndarray[Any, Any]:
    return RNG.normal(size=shape).astype(np.float32)


@pytest.mark.parametrize("name", CASES)
def test_values(name: str, cpu_device: Device, webgpu_device: Device) -> None:
    function, shape, launches = CASES[name]
    inputs = Inputs()
    outputs = {"y": function(inputs.new(floats(*shape)))}
    expected = reference(outputs, inputs, fp64_reference=True)
    counts = launches if isinstance(launches, tuple) else (launches, launches)
    found = zip((("cpu", cpu_device), ("webgpu", webgpu_device)), counts, strict=True)
    for (target, device), count in found:
        program = compiled(outputs, inputs, find_target(target)).program
        assert program is not None
        assert len(program.entries[0].steps) == count
        assert_agreement(replay(program, device, inputs.arrays), expected)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_special_values(value: float, cpu_device: Device) -> None:
    """In the first block, in the last one, and behind it."""
    for place in (0, MANY - 1, MANY + 70):
        x = floats(MANY + 77)
        x[place] = value
        inputs = Inputs()
        tensor = inputs.new(x)
        outputs = {"most": tensor.max(), "least": tensor.min(), "sum": tensor.sum()}
        program = compiled(outputs, inputs, find_target("cpu")).program
        assert program is not None
        actual = replay(program, cpu_device, inputs.arrays)
        assert_agreement(actual, reference(outputs, inputs, fp64_reference=True))


def _moments(x: Tensor) -> Outputs:
    mean = x.mean(-1)
    return {"mean": mean, "variance": (x * x).mean(-1) - mean * mean, "most": x.max(-1)}


def _several(x: Tensor) -> Outputs:
    sums = {"sum": x.blocked_sum(-1), "squares": (x * x).blocked_sum(-1)}
    return {"most": x.max(-1), **sums}


def _channels(x: Tensor) -> Outputs:
    axes = (0, 2, 3)
    return {"sum": x.blocked_sum(axes), "least": x.min(axes), "most": x.abs().max(axes)}


def _step(x: Tensor) -> Outputs:
    """A gradient, its norm and its greatest element."""
    found = grad(lambda x: (x * x * x).mean())(x)
    return {"dx": found, "norm": (found * found).blocked_sum().sqrt(), "most": found.abs().max()}


def _least_of_lowered(x: Tensor) -> Outputs:
    """The sum waits for the greatest: it cannot be read with it."""
    return {"sum": (x - x.max(-1, keepdims=True)).blocked_sum(-1)}


BESIDE = (  # reductions of the same elements: what is made, of what, in how many launches
    (_several, (3, 65536), 2),
    (_several, (3, 65537), 2),
    (_moments, (3, 65537), 3),
    (_channels, (16, 5, 64, 65), 2),
    (lambda x: {"sum": x.sum(), "most": x.max()}, (MANY,), 2),
    (_step, (300, 301), 3),
    (_least_of_lowered, (3, 65537), {"cpu": 3, "webgpu": 5, "qcom": 5, "cuda": 5}),
)


@pytest.mark.parametrize(("function", "shape", "launches"), BESIDE)
def test_reductions_of_the_same_take_the_same_blocks(
    function: Callable[[Tensor], Outputs],
    shape: tuple[int, ...],
    launches: int | dict[str, int],
    target: str,
    device: Device,
) -> None:
    inputs = Inputs()
    outputs = function(inputs.new(floats(*shape)))
    program = compiled(outputs, inputs, find_target(target)).program
    assert program is not None
    wanted = launches if isinstance(launches, int) else launches[target]
    assert len(program.entries[0].steps) == wanted
    expected = reference(outputs, inputs, fp64_reference=True)
    assert_agreement(replay(program, device, inputs.arrays), expected)


def test_parts_of_squares_are_not_kept_as_fp16(webgpu_device: Device) -> None:
    """Those of a block of 256 numbers near 100 are beyond what fp16 holds."""
    inputs = Inputs()
    outputs = _several(inputs.new(floats(3, 65536) * 100))
    program = compiled(outputs, inputs, find_target("webgpu"), Options(precision="fp16")).program
    assert program is not None and len(program.entries[0].steps) == 2
    expected = reference(outputs, inputs, fp64_reference=True)
    assert_agreement(replay(program, webgpu_device, inputs.arrays), expected)


def _place_of_an_equal(x: Tensor) -> Tensor:
    """The first place of what equals the greatest number, as NaN does nowhere."""
    count = x.shape[-1]
    return x.eq(x.max(-1, keepdims=True)).where(Tensor.arange(count), count).min(-1, keepdims=True)


# Of a row that is read but once, and in how many launches.
ROWS: dict[str, tuple[Function, int]] = {
    "softmax": (lambda x: x.softmax(-1), 3),
    "its logarithm": (lambda x: x.log_softmax(-1), 3),
    "the logarithm of a sum": (lambda x: x.log_sum_exp(-1, keepdims=True), 2),
    "the first place": (lambda x: x.argmax(-1, keepdims=True), 2),
    "the last place": (lambda x: x.argmax(-1, last=True), 2),
    "the place of an equal": (_place_of_an_equal, 2),
}


@pytest.mark.parametrize("name", ROWS)
def test_special_values_of_a_row(name: str, webgpu_device: Device) -> None:
    """One of them, a block of them, and nothing else; and the greatest number several times."""
    function, launches = ROWS[name]
    given = floats(40_000)
    inputs = Inputs()
    outputs = {"y": function(inputs.new(given))}
    program = compiled(outputs, inputs, find_target("webgpu")).program
    assert program is not None and len(program.entries[0].steps) == launches
    (port,) = inputs.arrays
    for value in (np.nan, np.inf, -np.inf, 7.0):
        for part in (slice(5, 6), slice(0, 3000), slice(None), slice(2500, None, 9000)):
            x = given - 200
            x[part] = value
            inputs.arrays[port] = x
            actual = replay(program, webgpu_device, inputs.arrays)
            with np.errstate(invalid="ignore"):
                assert_agreement(actual, reference(outputs, inputs, fp64_reference=True))


def test_integers_stay_exact(cpu_device: Device) -> None:
    inputs = Inputs()
    x = inputs.new(RNG.integers(-(2**31), 2**31 - 1, (MANY + 1,), np.int32))
    outputs = {"sum": x.sum(), "most": x.max(), "least": x.cast(dt.uint32).min()}
    program = compiled(outputs, inputs, find_target("cpu")).program
    assert program is not None
    actual = replay(program, cpu_device, inputs.arrays)
    assert_agreement(actual, reference(outputs, inputs))


def grids(tensor: Tensor, inputs: Inputs, target: str, **options: Any) -> list[int]:
    program = compiled({"y": tensor}, inputs, find_target(target), Options(**options)).program
    assert program is not None
    return [step.grid[0] for step in program.entries[0].steps]  # type: ignore[union-attr]


def test_workgroups() -> None:
    """So many that threads keep busy, whose results one adds up."""
    inputs = Inputs()
    x = inputs.new(np.zeros(2**20, np.float32))
    assert grids(x.sum(), inputs, "cpu") == [64, 1]
    for target in ("webgpu", "cuda"):
        assert grids(x.sum(), inputs, target) == [256, 1]  # each adds up eight blocks of 512
    # no memory that threads share: each adds up a block of 1024, 64 threads a workgroup
    assert grids(x.sum(), inputs, "qcom") == [16, 1]
    # 64 columns are one workgroup's: the rows are cut as those of one column
    columns = inputs.new(np.zeros((MANY, 64), np.float32))
    assert grids(columns.sum(0), inputs, "cpu") == [64, 1]
    assert grids(columns.sum(0), inputs, "webgpu") == [64, 1]
    assert grids(x.sum(), inputs, "cpu", optimize=False) == [1]
    assert grids(x.sum(), inputs, "cpu", optimize=False, fp64_reference=True) == [1]


def test_open_sizes_stay_as_they_are() -> None:
    n = symbol("N", 1, 2**20)
    x = Tensor.input("x", (n,), dt.float32)
    graph = Graph((Port("x", dt.float32, x.shape),), (Port("y", dt.float32, (), x.sum().node),))
    program = compile_graph(graph, find_target("cpu")).program
    assert program is not None and len(program.entries[0].steps) == 1


# Products of few results: rows, summed, columns, and the launches they are on a device that shares
# tiles in workgroup memory.
PRODUCTS = {
    "few results": ((49, 4608, 512), 2),
    "few of a short sum": ((49, 512, 512), 1),
    "many results": ((3136, 1024, 256), 1),
    "no equal parts": ((49, 4609, 512), 1),
    "one row": ((1, 4096, 1000), 1),
}


@pytest.mark.parametrize("name", PRODUCTS)
def test_products_of_few_results(name: str, cuda_device: Device) -> None:
    (rows, summed, columns), launches = PRODUCTS[name]
    inputs = Inputs()
    weight = Tensor.weight("w", floats(summed, columns))
    outputs = {"y": (inputs.new(floats(rows, summed)) @ weight).relu()}
    program = compiled(outputs, inputs, find_target("cuda")).program
    assert program is not None
    assert len(program.entries[0].steps) == launches
    if launches > 1:
        expected = reference(outputs, inputs, fp64_reference=True)
        assert_agreement(replay(program, cuda_device, inputs.arrays), expected)


def test_a_layer_of_few_pixels(cuda_device: Device) -> None:
    inputs = Inputs()
    weight = Tensor.weight("w", floats(64, 512, 3, 3))
    x = inputs.new(floats(1, 512, 7, 7))
    outputs = {"y": x.conv(weight, pads=((1, 1), (1, 1))).relu()}
    options = Options(winograd=0)
    program = compiled(outputs, inputs, find_target("cuda"), options).program
    assert program is not None
    assert len(program.entries[0].steps) >= 2
    expected = reference(outputs, inputs, fp64_reference=True)
    assert_agreement(replay(program, cuda_device, inputs.arrays), expected)


# Images of a batch, and launches: a sum over them is that of parts of the batch, if it is long.
@pytest.mark.parametrize(("images", "launches"), [(64, 2), (4, 1)])
def test_a_filters_gradient_is_a_tile(images: int, launches: int, webgpu_device: Device) -> None:
    """Results of 5 x 5 taps lie in no vectors: a thread has five, and takes five steps at once, for
    which it loads each pixel once.
    """
    inputs = Inputs()
    x, w = inputs.new(floats(images, 4, 14, 14)), inputs.new(floats(8, 4, 5, 5))
    y = inputs.new(floats(images, 8, 10, 10))
    outputs = {"w": grad(lambda w: (x.conv(w) * y).sum())(w)}
    state = compiled(outputs, inputs, find_target("webgpu"))
    assert len(state.launches) == launches
    kernel = state.kernels[state.launches[0].sink]
    assert kernel.text is not None
    sums = [n for n in kernel.text.linear.statements if n.op is ops.ACCUMULATOR]
    added = [n for n in kernel.text.linear.statements if n.op is ops.SET]
    loads = [n for n in toposort(kernel.text.linear.statements) if n.op is ops.LOAD]
    assert (len(sums), len(added), len(loads)) == (5, 25, 5 + 9)
    assert state.program is not None
    expected = reference(outputs, inputs, fp64_reference=True)
    assert_agreement(replay(state.program, webgpu_device, inputs.arrays), expected)


def test_parts_of_a_product_that_cancel_in_fp16(webgpu_device: Device) -> None:
    """Each half of the sum is beyond fp16, the sum and what is made of it are not."""
    inputs, length = Inputs(), 16384
    x = inputs.new(np.full((2, length), 8, np.float32))
    signs = np.repeat(np.array([10, -10], np.float32), length // 2)[:, None].repeat(3, 1)
    signs[0] = 200
    outputs = {"y": (x @ Tensor.weight("w", signs)) * 0.5}
    program = compiled(outputs, inputs, find_target("webgpu"), Options(precision="fp16")).program
    assert program is not None
    found = replay(program, webgpu_device, inputs.arrays)["y"]
    np.testing.assert_array_equal(found, np.full((2, 3), 760, np.float32))


@pytest.mark.parametrize("target", ["webgpu", "cuda", "cpu"])
def test_a_product_of_nothing(target: str) -> None:
    inputs = Inputs()
    left, right = (inputs.new(np.zeros(shape, np.float32)) for shape in ((0, 4, 500), (0, 500, 3)))
    total = (left @ right).sum() + inputs.new(np.ones(3, np.float32))
    program = compiled({"y": total}, inputs, find_target(target)).program
    assert program is not None and program.outputs[0].shape == (3,)


SOFTMAX: dict[str, tuple[Function, bool]] = {
    "whole": (lambda x: x.softmax(-1), True),
    "a part of it": (lambda x: x.softmax(-1)[:, :20_000], False),
    "of which more is made": (lambda x: x.softmax(-1).max(-1), False),
}


@pytest.mark.parametrize("name", SOFTMAX)
def test_exponentials_lie_in_the_result(name: str, cpu_device: Device) -> None:
    """On the cpu, of a long row, where they have as many elements: one array less is written."""
    function, within = SOFTMAX[name]
    inputs = Inputs()
    outputs = {"y": function(inputs.new(floats(1, 40_000)))}
    program = compiled(outputs, inputs, find_target("cpu")).program
    assert program is not None
    result, (first, *_, last) = program.outputs[0].buffer, program.entries[0].steps
    assert isinstance(first, Launch) and isinstance(last, Launch)
    assert (result in first.buffers) == within and last.buffers.count(result) == 1
    expected = reference(outputs, inputs, fp64_reference=True)
    assert_agreement(replay(program, cpu_device, inputs.arrays), expected)


def test_exponents_of_a_long_product_are_not_cut(cpu_device: Device) -> None:
    """A quarter of a million factors come to 2^(2^25), and the others back to 1."""
    quarter = 1 << 18
    factors = np.full(4 * quarter, 2.0**-42, np.float32)
    factors[:quarter] = 2.0**126
    inputs = Inputs()
    outputs = {"product": inputs.new(factors).prod()}
    program = compiled(outputs, inputs, find_target("cpu")).program
    assert program is not None
    (product,) = replay(program, cpu_device, inputs.arrays).values()
    assert product == reference(outputs, inputs)["product"] == 1.0


def test_what_is_rounded_up_lies_along_no_other_output(cpu_device: Device) -> None:
    """Parts of a product whose rows lie across, of which some are written in whole vectors."""
    inputs = Inputs()
    outputs = {"product": inputs.new(1 + floats(65, 13) * 0.1).prod(0)}
    program = compiled(outputs, inputs, find_target("cpu"), Options(precision="fp16")).program
    assert program is not None
    expected = reference(outputs, inputs, fp64_reference=True)
    assert_agreement(replay(program, cpu_device, inputs.arrays), expected)
