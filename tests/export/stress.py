"""Models that repeat one operator: what an export takes should grow as they do.

Each family of operators is a *link*: nodes from a tensor to one of the same shape, [8, 12]. Links
are put one behind the other, beside each other, or as rungs of a ladder, where each result is used
twice.

"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from onnx import TensorProto, helper, numpy_helper

SHAPE = (8, 12)


class Maker:
    """Collects a model's nodes and constants; equal constants are one."""

    def __init__(self) -> None:
        self.nodes: list[Any] = []
        self.constants: dict[bytes, str] = {}
        self.weights: list[Any] = []

    def node(self, operator: str, *inputs: str, outputs: int = 1, **attributes: Any) -> Any:
        """Add a node; the name of its result, of several a list."""
        names = [f"v{len(self.nodes)}_{number}" for number in range(outputs)]
        domain = attributes.pop("domain", "")
        made = helper.make_node(operator, inputs, names, domain=domain, **attributes)
        self.nodes.append(made)
        return names[0] if outputs == 1 else names

    def ints(self, *values: Any) -> str:
        """A constant of int64."""
        return self.array(np.array(values, np.int64))

    def number(self, value: float) -> str:
        """A constant float32."""
        return self.array(np.array(value, np.float32))

    def array(self, values: Any) -> str:
        """A constant."""
        key = values.tobytes() + str((values.dtype, values.shape)).encode()
        if key not in self.constants:
            self.constants[key] = f"c{len(self.constants)}"
            self.weights.append(numpy_helper.from_array(values, self.constants[key]))
        return self.constants[key]

    def model(self, result: str) -> Any:
        """The model from x to the result."""
        value = helper.make_tensor_value_info
        ports = [value("x", TensorProto.FLOAT, SHAPE)], [value(result, TensorProto.FLOAT, None)]
        graph = helper.make_graph(self.nodes, "g", *ports, self.weights)
        opset = [helper.make_opsetid("", 20)]
        return helper.make_model(graph, opset_imports=opset, ir_version=9)


def weight(*shape: int) -> Any:
    """Small float32 numbers."""
    return np.random.default_rng(7).normal(0, 0.1, shape).astype(np.float32)


Link = Callable[[Maker, str], str]
LINKS: dict[str, Link] = {}


def link(make: Link) -> Link:
    """Enter a family of operators in LINKS."""
    LINKS[make.__name__.strip("_")] = make
    return make


def unary(operator: str, **attributes: Any) -> None:
    """A family of one operator with one operand."""
    LINKS[operator.lower()] = lambda m, x: m.node(operator, x, **attributes)


for name in ("Relu", "Exp", "Erf", "Round", "Sign", "Mish", "HardSwish", "Gelu"):
    unary(name)
unary("Softmax", axis=-1)
unary("LogSoftmax", axis=0)
unary("Hardmax", axis=-1)
unary("LpNormalization", axis=-1)
unary("Identity")


@link
def add(m: Maker, x: str) -> str:
    return m.node("Add", x, m.array(weight(12)))


@link
def mod(m: Maker, x: str) -> str:
    return m.node("Mod", x, m.number(0.7), fmod=1)


@link
def power(m: Maker, x: str) -> str:
    return m.node("Pow", x, m.number(2.0))


@link
def square(m: Maker, x: str) -> str:
    return m.node("Mul", x, x)


@link
def where(m: Maker, x: str) -> str:
    return m.node("Where", m.node("Greater", x, m.number(0.1)), x, m.node("Neg", x))


@link
def isnan(m: Maker, x: str) -> str:
    return m.node("Cast", m.node("IsNaN", x), to=TensorProto.FLOAT)


@link
def clip(m: Maker, x: str) -> str:
    return m.node("Clip", x, m.number(-1), m.number(1))


@link
def casts(m: Maker, x: str) -> str:
    for kind in (TensorProto.INT32, TensorProto.FLOAT16, TensorProto.UINT8, TensorProto.FLOAT):
        x = m.node("Cast", x, to=kind)
    return x


@link
def quantized(m: Maker, x: str) -> str:
    scale, zero = m.number(0.1), m.array(np.array(3, np.uint8))
    return m.node("DequantizeLinear", m.node("QuantizeLinear", x, scale, zero), scale, zero)


@link
def dynamically_quantized(m: Maker, x: str) -> str:
    return m.node("DequantizeLinear", *m.node("DynamicQuantizeLinear", x, outputs=3))


@link
def shuffle(m: Maker, x: str) -> str:
    y = m.node("Transpose", m.node("Reshape", x, m.ints(2, 4, 12)), perm=[1, 0, 2])
    return m.node("Relu", m.node("Reshape", y, m.ints(*SHAPE)))


@link
def skewed(m: Maker, x: str) -> str:
    y = m.node("Transpose", m.node("Reshape", x, m.ints(6, 16)), perm=[1, 0])
    return m.node("Relu", m.node("Reshape", y, m.ints(*SHAPE)))


@link
def moved_only(m: Maker, x: str) -> str:
    y = m.node("Transpose", m.node("Reshape", x, m.ints(6, 16)), perm=[1, 0])
    return m.node("Reshape", y, m.ints(*SHAPE))


@link
def transposed(m: Maker, x: str) -> str:
    return m.node("Relu", m.node("Transpose", m.node("Relu", m.node("Transpose", x))))


def _padded(mode: str) -> None:
    def make(m: Maker, x: str) -> str:
        y = m.node("Pad", x, m.ints(1, 2, 0, 1), mode=mode)
        return m.node("Slice", y, m.ints(0, 1), m.ints(8, 13))

    LINKS[f"pad_{mode}"] = make


for kind in ("constant", "reflect", "edge", "wrap"):
    _padded(kind)


@link
def rolled(m: Maker, x: str) -> str:
    first = m.node("Slice", x, m.ints(0), m.ints(3), m.ints(1))
    last = m.node("Slice", x, m.ints(3), m.ints(12), m.ints(1))
    return m.node("Concat", last, first, axis=1)


@link
def split(m: Maker, x: str) -> str:
    parts = m.node("Split", x, outputs=3, axis=1, num_outputs=3)
    return m.node("Concat", *reversed(parts), axis=1)


@link
def split_and_computed(m: Maker, x: str) -> str:
    parts = m.node("Split", x, m.ints(1, 4, 7), outputs=3, axis=1)
    return m.node("Concat", *(m.node("Exp", part) for part in parts), axis=1)


@link
def strided(m: Maker, x: str) -> str:
    odd = m.node("Slice", x, m.ints(1), m.ints(99), m.ints(1), m.ints(2))
    even = m.node("Slice", x, m.ints(0), m.ints(99), m.ints(1), m.ints(2))
    return m.node("Concat", m.node("Neg", odd), even, axis=1)


@link
def flipped(m: Maker, x: str) -> str:
    y = m.node("Slice", x, m.ints(-1), m.ints(-99), m.ints(1), m.ints(-1))
    return m.node("Add", x, y)


@link
def gather(m: Maker, x: str) -> str:
    return m.node("Gather", x, m.ints(7, 1, 2, 3, 6, 5, 4, 0), axis=0)


@link
def gather_elements(m: Maker, x: str) -> str:
    return m.node("GatherElements", x, m.array(np.tile(np.arange(12)[::-1], (8, 1))), axis=1)


@link
def gather_nd(m: Maker, x: str) -> str:
    return m.node("GatherND", x, m.array(np.arange(8)[::-1].reshape(8, 1).copy()))


@link
def gather_computed(m: Maker, x: str) -> str:
    column = m.node("ReduceMax", x, m.ints(1), keepdims=0)
    return m.node("Gather", x, m.node("Cast", column, to=TensorProto.INT32), axis=0)


@link
def scatter_nd(m: Maker, x: str) -> str:
    return m.node("ScatterND", x, m.ints([3], [1]), m.array(weight(2, 12)))


@link
def scatter_added(m: Maker, x: str) -> str:
    return m.node("ScatterND", x, m.ints([3], [3]), m.array(weight(2, 12)), reduction="add")


@link
def scatter_elements(m: Maker, x: str) -> str:
    return m.node("ScatterElements", x, m.ints([3, 1]), m.array(weight(1, 2)), axis=1)


@link
def expand(m: Maker, x: str) -> str:
    wide = m.node("Expand", m.node("Unsqueeze", x, m.ints(0)), m.ints(3, 8, 12))
    return m.node("ReduceSum", m.node("Relu", wide), m.ints(0), keepdims=0)


@link
def tile(m: Maker, x: str) -> str:
    return m.node("Slice", m.node("Tile", x, m.ints(2, 2)), m.ints(4, 6), m.ints(12, 18))


@link
def resized(m: Maker, x: str) -> str:
    y = m.node("Reshape", x, m.ints(1, 1, 8, 12))
    up = m.node("Resize", y, "", "", m.ints(1, 1, 16, 24), mode="linear")
    down = m.node("Resize", up, "", "", m.ints(1, 1, 8, 12), mode="nearest")
    return m.node("Reshape", down, m.ints(*SHAPE))


@link
def cubic(m: Maker, x: str) -> str:
    y = m.node("Reshape", x, m.ints(1, 1, 8, 12))
    y = m.node("Resize", y, "", m.array(np.ones(4, np.float32) * 1.0), mode="cubic")
    y = m.node("Resize", y, "", "", m.ints(1, 1, 9, 13), mode="cubic", antialias=1)
    return m.node("Slice", m.node("Reshape", y, m.ints(9, 13)), m.ints(0, 0), m.ints(8, 12))


@link
def depth_to_space(m: Maker, x: str) -> str:
    y = m.node("Reshape", x, m.ints(1, 4, 4, 6))
    y = m.node("Relu", m.node("DepthToSpace", y, blocksize=2, mode="CRD"))
    return m.node("Reshape", m.node("SpaceToDepth", y, blocksize=2), m.ints(*SHAPE))


@link
def einsum(m: Maker, x: str) -> str:
    return m.node("Einsum", x, m.array(weight(12, 12)), x, equation="ij,jk,il->ik")


@link
def matmul(m: Maker, x: str) -> str:
    return m.node("MatMul", x, m.array(weight(12, 12)))


@link
def gemm(m: Maker, x: str) -> str:
    return m.node("Gemm", x, m.array(weight(12, 12)), m.array(weight(12)), transB=1)


@link
def self_product(m: Maker, x: str) -> str:
    return m.node("MatMul", m.node("MatMul", x, m.node("Transpose", x)), x)


@link
def reduce_mean(m: Maker, x: str) -> str:
    return m.node("Sub", x, m.node("ReduceMean", x, m.ints(1)))


@link
def reduce_first(m: Maker, x: str) -> str:
    return m.node("Mul", x, m.node("ReduceL2", x, m.ints(0)))


@link
def reduce_all(m: Maker, x: str) -> str:
    return m.node("Add", x, m.node("ReduceMax", x))


@link
def arg_max(m: Maker, x: str) -> str:
    place = m.node("Cast", m.node("ArgMax", x, axis=1), to=TensorProto.FLOAT)
    return m.node("Add", x, place)


@link
def top_k(m: Maker, x: str) -> str:
    return m.node("Add", x, m.node("TopK", x, m.ints(12), outputs=2)[0])


@link
def cumulated(m: Maker, x: str) -> str:
    return m.node("CumSum", x, m.array(np.array(1)))


@link
def triangle(m: Maker, x: str) -> str:
    return m.node("Trilu", x, upper=1)


@link
def normalized(m: Maker, x: str) -> str:
    return m.node("LayerNormalization", x, m.array(weight(12)), m.array(weight(12)), axis=1)


@link
def conv(m: Maker, x: str) -> str:
    y = m.node("Reshape", x, m.ints(1, 1, 8, 12))
    y = m.node("Conv", y, m.array(weight(1, 1, 3, 3)), pads=[1, 1, 1, 1])
    return m.node("Reshape", y, m.ints(*SHAPE))


@link
def conv_transpose(m: Maker, x: str) -> str:
    y = m.node("Reshape", x, m.ints(1, 1, 8, 12))
    y = m.node("ConvTranspose", y, m.array(weight(1, 1, 3, 3)), pads=[1, 1, 1, 1])
    return m.node("Reshape", y, m.ints(*SHAPE))


@link
def pooled(m: Maker, x: str) -> str:
    y = m.node("Reshape", x, m.ints(1, 8, 12))
    y = m.node("MaxPool", y, kernel_shape=[3], pads=[1, 1])
    y = m.node("AveragePool", y, kernel_shape=[3], pads=[1, 1])
    return m.node("Reshape", y, m.ints(*SHAPE))


@link
def recurrent(m: Maker, x: str) -> str:
    y = m.node("Unsqueeze", x, m.ints(1))
    y = m.node("LSTM", y, m.array(weight(1, 48, 12)), m.array(weight(1, 48, 12)), hidden_size=12)
    return m.node("Reshape", y, m.ints(*SHAPE))


@link
def branches(m: Maker, x: str) -> str:
    value = helper.make_tensor_value_info
    condition = m.node("Greater", m.node("ReduceMax", x, keepdims=0), m.number(0.1))
    graphs = []
    for operator in ("Exp", "Neg"):
        body = [helper.make_node(operator, [x], [f"{operator} {x}"])]
        result = [value(f"{operator} {x}", TensorProto.FLOAT, SHAPE)]
        graphs.append(helper.make_graph(body, operator, [], result))
    return m.node("If", condition, then_branch=graphs[0], else_branch=graphs[1])


@link
def loops(m: Maker, x: str) -> str:
    value = helper.make_tensor_value_info
    body = helper.make_graph(
        [
            helper.make_node("Identity", ["c"], ["c out"]),
            helper.make_node("Exp", ["v"], ["e"]),
            helper.make_node("Softmax", ["e"], ["v out"]),
        ],
        "body",
        [
            value("i", TensorProto.INT64, []),
            value("c", TensorProto.BOOL, []),
            value("v", TensorProto.FLOAT, SHAPE),
        ],
        [value("c out", TensorProto.BOOL, []), value("v out", TensorProto.FLOAT, SHAPE)],
    )
    return m.node("Loop", m.array(np.array(3)), "", x, body=body)


@link
def sequences(m: Maker, x: str) -> str:
    both = m.node("SequenceConstruct", x, m.node("Neg", x))
    both = m.node("SequenceInsert", both, m.node("Exp", x), m.array(np.array(1)))
    return m.node("SequenceAt", m.node("SequenceErase", both), m.array(np.array(-1)))


@link
def shape_of(m: Maker, x: str) -> str:
    return m.node("Reshape", x, m.node("Shape", x))


@link
def sampled(m: Maker, x: str) -> str:
    y = m.node("Reshape", x, m.ints(1, 1, 8, 12))
    grid = m.array(np.clip(weight(1, 8, 12, 2) * 4, -1, 1))
    return m.node("Reshape", m.node("GridSample", y, grid), m.ints(*SHAPE))


@link
def one_hot(m: Maker, x: str) -> str:
    place = m.node("ArgMax", x, axis=1, keepdims=0)
    hot = m.node("OneHot", place, m.ints(12), m.array(np.array([0, 1], np.float32)))
    return m.node("Add", x, hot)


@link
def determinant(m: Maker, x: str) -> str:
    return m.node("Mul", x, m.node("Det", m.node("Slice", x, m.ints(0, 0), m.ints(3, 3))))


@link
def reversed_rows(m: Maker, x: str) -> str:
    lengths = m.array(np.array([3] * 12))
    return m.node("ReverseSequence", x, lengths, time_axis=0, batch_axis=1)


@link
def unfolded(m: Maker, x: str) -> str:
    return m.node("Add", m.node("Slice", x, m.ints(0), m.ints(1)), x)


# How links are put together.


def chain(m: Maker, x: str, make: Link, count: int) -> str:
    """One behind the other."""
    for _ in range(count):
        x = make(m, x)
    return x


def ladder(m: Maker, x: str, make: Link, count: int) -> str:
    """Each result is used by the next link, and beside it."""
    for _ in range(count):
        x = m.node("Add", make(m, x), x)
    return x


def fan(m: Maker, x: str, make: Link, count: int) -> str:
    """All of one tensor, beside each other."""
    parts = [make(m, m.node("Mul", x, m.number(number + 1))) for number in range(count)]
    return m.node("Concat", *parts, axis=0)


def summed(m: Maker, x: str, make: Link, count: int) -> str:
    """Beside each other, added up one after the other."""
    total = x
    for number in range(count):
        total = m.node("Add", total, make(m, m.node("Mul", x, m.number(number + 1))))
    return total


SHAPES: dict[str, Callable[[Maker, str, Link, int], str]] = {
    "chain": chain,
    "ladder": ladder,
    "fan": fan,
    "summed": summed,
}


def build(family: str, shape: str, count: int) -> Any:
    """The model of so many links."""
    maker = Maker()
    return maker.model(SHAPES[shape](maker, "x", LINKS[family], count))
