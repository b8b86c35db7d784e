"""A kernel's text grows as its operations do, for every target: no operand is written out twice.

Two mistakes would show here. A printer that writes an operand more than once doubles the text with
each step of a chain; one that nests without end makes expressions that compilers refuse.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from tests.agreement import Inputs, compiled, find_target
from tests.imported import import_model
from tests.rows import ELEMENTWISE, accepts
from tinyedge.core import dtype as dt
from tinyedge.core.compiler.compile import compile_graph
from tinyedge.core.compiler.options import Options
from tinyedge.core.compiler.state import Compilation
from tinyedge.core.dtype import DType
from tinyedge.core.ir import ops
from tinyedge.core.ir.uop import elementwise, toposort
from tinyedge.core.tensor.graph import Graph
from tinyedge.core.tensor.tensor import Tensor

Step = Callable[[Tensor], Tensor]

FIXED = 6000  # bytes of a kernel's head and of the helpers that WGSL kernels carry
EACH = 110  # bytes of a node
DEEPEST = 110  # brackets in brackets: Tint refuses 128, clang 256
LENGTHS = (1, 2, 4, 8, 64)
SHORT = (1, 4, 16)  # enough for text that doubles with each step
SHAPES = ((1, 4, 8, 8), (5,))  # in vectors, and in scalars
TYPES = (dt.float32, dt.float16, dt.int8, dt.uint8, dt.int64, dt.uint32, dt.bool_)


def check(found: Compilation) -> int:
    """The nodes of all kernels; none has more text, or more brackets, than these ask for."""
    assert found.program is not None
    total = 0
    for kernel in found.kernels.values():
        assert kernel.text is not None
        nodes = len(toposort(kernel.text.linear.statements))
        assert len(kernel.source) <= FIXED + EACH * nodes, kernel.source[-3000:]
        deepest = max(map(_depth, kernel.source.splitlines()))
        assert deepest <= DEEPEST, f"{deepest} brackets in brackets"
        total += nodes
    return total


def _depth(line: str) -> int:
    depth = deepest = 0
    for bracket in re.findall(r"[(\[{}\])]", line):
        depth += 1 if bracket in "([{" else -1
        deepest = max(deepest, depth)
    return deepest


def chain(
    step: Step,
    dtype: DType,
    shape: tuple[int, ...],
    target: str,
    lengths: tuple[int, ...] = LENGTHS,
) -> None:
    """Longer and longer chains of a step: the shorter ones fail first, before they are too long."""
    first = 0
    for length in lengths:
        inputs = Inputs()
        x = inputs.new(np.ones(shape, dtype.numpy))
        for _ in range(length):
            x = step(x)
            assert x.dtype is dtype
        nodes = check(compiled({"y": x}, inputs, find_target(target), Options()))
        first = first or nodes
        assert nodes <= 2 * first * length + 200  # where a kernel is cut, some is computed twice


def rows(row: ops.Primitive, dtype: DType) -> Iterator[tuple[str, Step]]:
    """Steps of one row that give the type again: with a constant, and with another tensor."""

    def made(*operands: Tensor) -> Tensor:
        return Tensor(elementwise(row, *(t.node for t in operands))).cast(dtype)

    def number(x: Tensor) -> Tensor:
        return Tensor.full(x.shape, 3 if dtype.kind != "b" else True, dtype)

    if row.arity == 1:
        yield "of", made
        if dtype.kind != "b":
            yield "of a product", lambda x: made(x * 3)
    elif row is ops.WHERE:
        yield "of", lambda x: made(x.eq(1), x, number(x))
        yield "turned", lambda x: made(x.ne(1), number(x), x)
    else:
        yield "a number", lambda x: made(x, number(x))
        yield "of a number", lambda x: made(number(x), x)
        yield (
            "a tensor",
            lambda x: made(x, x.flip((0,)) if x.ndim == 1 else x.permute((0, 1, 3, 2))),
        )


@pytest.mark.parametrize("whole", [False, pytest.param(True, marks=pytest.mark.slow)])
@pytest.mark.parametrize("row", ELEMENTWISE, ids=str)
def test_chains_of_rows(row: ops.Primitive, whole: bool, target: str) -> None:
    """Long ones of the first type that a row takes, or of all."""
    types = [dtype for dtype in TYPES if accepts(row, dtype)]
    for dtype in types:
        lengths = LENGTHS if whole or dtype is types[0] else SHORT
        for number, (_, step) in enumerate(rows(row, dtype)):
            chain(step, dtype, SHAPES[number == 1], target, lengths)


@pytest.mark.parametrize("between", [d for d in dt.ALL if d is not dt.float32], ids=str)
def test_chains_of_casts(between: DType, target: str) -> None:
    for shape in SHAPES:
        chain(lambda x: (x * 1.5).cast(between).cast(dt.float32), dt.float32, shape, target)
        if between.kind != "b":
            chain(lambda x: (x * 3).cast(dt.float32).cast(between), between, shape, target)
    if between in (dt.int32, dt.uint32):
        back = lambda x: ((x * 1.5).bitcast(between) + 1).bitcast(dt.float32)  # noqa: E731
        chain(back, dt.float32, SHAPES[0], target)


@pytest.mark.parametrize("step", ["clip", "maximum", "relu", "gelu", "softplus", "mix"])
def test_chains_of_functions(step: str, target: str) -> None:
    steps: dict[str, Step] = {
        "clip": lambda x: (x * 1.1).clip(-1, 1),
        "maximum": lambda x: (x + 1.1).maximum(0.5),
        "relu": lambda x: (x - 0.1).relu(),
        "gelu": lambda x: x * (x * 0.7).tanh(),
        "softplus": lambda x: ((x * 0.1).exp() + 1).log(),
        "mix": lambda x: (x * 3.7).clip(-9, 9).round().cast(dt.int32).maximum(-5).cast(dt.float32),
    }
    for shape in SHAPES:
        chain(steps[step], dt.float32, shape, target)


@pytest.mark.parametrize("kind", ["UINT8", "INT8", "INT16", "UINT4", "FLOAT8E4M3FN"])
@pytest.mark.parametrize("axis", [None, 1])
def test_chains_of_quantizers(kind: str, axis: int | None, target: str) -> None:
    """As onnxruntime's tools write them around every operator."""
    first = 0
    for length in LENGTHS if "FLOAT" not in kind else LENGTHS[:-1]:
        found = compile_graph(quantized(kind, axis, length), find_target(target), Options())
        nodes = check(found)
        first = first or nodes
        assert nodes <= 2 * first * length + 200  # where a kernel is cut, some is computed twice


def quantized(kind: str, axis: int | None, length: int) -> Graph:
    """A chain of Mul, QuantizeLinear and DequantizeLinear."""
    count = () if axis is None else (4,)
    code = getattr(TensorProto, kind)
    zero = helper.make_tensor(
        "zero", code, count, [0 if "FLOAT" in kind else 3] * max(1, *count, 1)
    )
    scale = numpy_helper.from_array(np.full(count, 0.1, np.float32), "scale")
    factor = numpy_helper.from_array(np.float32(1.1), "factor")
    nodes, x = [], "x"
    for number in range(length):
        nodes.append(helper.make_node("Mul", [x, "factor"], [f"m{number}"]))
        names = [f"m{number}", "scale", "zero"]
        nodes.append(helper.make_node("QuantizeLinear", names, [f"q{number}"], axis=axis or 0))
        names[0] = f"q{number}"
        x = f"d{number}"
        nodes.append(helper.make_node("DequantizeLinear", names, [x], axis=axis or 0))
    shape = [1, 4, 8, 8]
    ports = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name in ("x", x)]
    graph = helper.make_graph(nodes, "g", ports[:1], ports[1:], [zero, scale, factor])
    opset = [helper.make_opsetid("", 21)]
    model = helper.make_model(graph, opset_imports=opset, ir_version=10)
    return import_model(model.SerializeToString()).graph()


@pytest.mark.parametrize("seed", range(12))
def test_random_graphs(seed: int, target: str) -> None:
    """Values are used again and again, in any order and type."""
    rng = random.Random(seed)
    inputs = Inputs()
    shape = rng.choice(SHAPES)
    pool = [inputs.new(np.ones(shape, np.float32)) for _ in range(2)]
    for _ in range(120):
        pool.append(grown(rng, rng.choice(pool[-6:]), rng.choice(pool)))
    check(compiled({"y": pool[-1], "z": pool[-2]}, inputs, find_target(target), Options()))


def grown(rng: random.Random, x: Tensor, y: Tensor) -> Tensor:
    forms: tuple[Callable[[], Tensor], ...] = (
        lambda: x * 1.1 + y,
        lambda: x.maximum(0.25),
        lambda: x.minimum(y),
        lambda: (x * y).clip(-2, 2),
        lambda: x.cast(rng.choice((dt.int32, dt.uint8, dt.int16))).cast(dt.float32),
        lambda: (x < y).where(x, -y),
        lambda: (x - y).abs().sqrt(),
        lambda: x.cast(dt.int32).maximum(3).cast(dt.float32) + y,
    )
    return rng.choice(forms)()
