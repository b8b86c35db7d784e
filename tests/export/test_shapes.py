"""Shape arithmetic with symbolic sizes, constants, and sizes that must agree."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, numpy_helper

from tests.export.hostile import info, ints, model, node
from tests.imported import import_model
from tinyedge.core.errors import InputError
from tinyedge.core.ir import ops
from tinyedge.core.ir.reference import evaluate, size_value
from tinyedge.core.ir.uop import UOp, toposort
from tinyedge.export.onnx import ImportedModel


def _import(nodes: list[Any], weights: list[Any], shape: list[Any], dims: Any) -> ImportedModel:
    source = model(nodes, inputs=[info("x", shape)], weights=weights)
    return import_model(source.SerializeToString(), dims=dims)


def _floats(name: str, values: Any) -> Any:
    return numpy_helper.from_array(np.asarray(values, np.float32), name)


def test_a_reshape_target_computed_from_the_shape() -> None:
    """view(batch, -1, heads): Shape, Gather, Unsqueeze, Concat, Reshape."""
    nodes = [
        node("Shape", ["x"], ["s"]),
        node("Gather", ["s", "one"], ["n"]),
        node("Unsqueeze", ["n", "axis"], ["n1"]),
        node("Div", ["n1", "four"], ["q"]),
        node("Concat", ["minus", "q", "four"], ["t"], axis=0),
        node("Reshape", ["x", "t"]),
    ]
    weights = [ints("one", 1), ints("axis", [0]), ints("four", [4]), ints("minus", [-1])]
    imported = _import(nodes, weights, [3, "n"], {"n": "4..64:4"})
    shape = imported.outputs["y"].shape
    assert [size_value(size, {"n": 24}) for size in shape] == [3, 6, 4]
    (symbol,) = imported.symbols
    assert symbol.op is ops.SYMBOL
    nodes_left = toposort([imported.outputs["y"].node])
    assert not any(n.op in (ops.GATHER, ops.ASSIGN, ops.CAST) for n in nodes_left)


@pytest.mark.parametrize("scale, size", [(2.0, 20), (0.5, 5), (1.5, 15)])
def test_sizes_scaled_in_float(scale: float, size: int) -> None:
    """interpolate(scale_factor): Cast to float, Mul, Floor, Cast to int64, Resize by sizes."""
    nodes = [
        node("Shape", ["x"], ["s"]),
        node("Slice", ["s", "two", "four"], ["hw"]),
        node("Cast", ["hw"], ["f"], to=TensorProto.FLOAT),
        node("Mul", ["f", "scale"], ["m"]),
        node("Floor", ["m"], ["fl"]),
        node("Cast", ["fl"], ["i"], to=TensorProto.INT64),
        node("ConstantOfShape", ["i"]),
    ]
    weights = [ints("two", [2]), ints("four", [4]), _floats("scale", scale)]
    imported = _import(nodes, weights, [1, 1, "h", 10], {"h": "2..100"})
    shape = imported.outputs["y"].shape
    assert [size_value(s, {"h": 10}) for s in shape] == [size, size]
    assert [size_value(s, {"h": 7}) for s in shape] == [int(7 * scale), size]


def test_expand_by_where_of_shapes() -> None:
    """torch's expand(-1, n): Where(Equal(target, -1), 1, target), with a symbolic target."""
    nodes = [
        node("Shape", ["x"], ["s"]),
        node("Equal", ["s", "minus"], ["e"]),
        node("Where", ["e", "ones", "s"], ["t"]),
        node("Expand", ["w", "t"]),
    ]
    weights = [ints("minus", -1), ints("ones", [1, 1]), _floats("w", [[7.0]])]
    imported = _import(nodes, weights, [1, "n"], {"n": "1..9"})
    (value,) = evaluate([imported.outputs["y"].node], {}, {"n": 3})
    assert value.tolist() == [[7.0, 7.0, 7.0]]


def test_slices_of_a_symbolic_axis() -> None:
    nodes = [
        node("Slice", ["x", "start", "end", "axes"], ["a"]),
        node("Slice", ["x", "zero", "start", "axes"], ["b"]),
        node("Concat", ["a", "b"], axis=1),
    ]
    weights = [
        ints("start", [-3]),
        ints("end", [np.iinfo(np.int64).max]),
        ints("axes", [1]),
        ints("zero", [0]),
    ]
    imported = _import(nodes, weights, [1, "n"], {"n": "5..9"})
    feeds = {"x": np.arange(6, dtype=np.float32)[None]}
    (value,) = evaluate([imported.outputs["y"].node], feeds, {"n": 6})
    assert value.tolist() == [[3, 4, 5, 0, 1, 2]]


def test_unequal_sizes_suggest_a_step() -> None:
    """A skip connection over two halvings needs sizes that are multiples of 4."""
    pool = {"kernel_shape": [2, 2], "strides": [2, 2]}
    nodes = [
        node("MaxPool", ["x"], ["a"], **pool),
        node("MaxPool", ["a"], ["b"], **pool),
        node("Resize", ["b", "", "s"], ["c"], mode="nearest"),
        node("Add", ["a", "c"], name="skip"),
    ]
    weights = [_floats("s", [1, 1, 2, 2])]
    shape = [1, 1, "h", 16]
    with pytest.raises(InputError) as caught:
        _import(nodes, weights, shape, {"h": "8..101"})
    assert caught.value.id == "input.sizes" and "'skip'" in caught.value.subject
    assert caught.value.next == "give the size a step: --dim 'h=8..100:4'"
    assert _import(nodes, weights, shape, {"h": "8..100:4"}).outputs["y"].ndim == 4


def test_constant_nodes_are_folded_and_named() -> None:
    nodes = [
        node("Mul", ["w", "w"], ["v"]),
        node("Transpose", ["v"], ["t"], name="turn"),
        node("MatMul", ["x", "t"]),
    ]
    imported = _import(nodes, [_floats("w", np.arange(6).reshape(2, 3))], [2, 3], {})
    weights = [n.arg.source for n in toposort([imported.outputs["y"].node]) if n.op is ops.BUFFER]
    assert [w.name for w in weights] == ["x", "turn"]
    assert weights[1].data.tolist() == [[0, 9], [1, 16], [4, 25]]


def test_great_constants_are_left_to_the_graph() -> None:
    """A constant result is computed only up to the size of what it is made of."""
    nodes = [node("Expand", ["w", "s"], ["v"]), node("Exp", ["v"], ["e"]), node("Add", ["x", "e"])]
    weights = [_floats("w", np.arange(1000)), ints("s", [1000, 1000])]
    imported = _import(nodes, weights, [1000, 1000], {})
    arrays = [
        n.arg.source.data for n in toposort([imported.outputs["y"].node]) if n.op is ops.BUFFER
    ]
    assert max(a.size for a in arrays if a is not None) == 1000


def test_dims_by_symbol_and_by_place() -> None:
    source = model([node("Relu", ["x"])], inputs=[info("x", ["b", "n", None])])
    data = source.SerializeToString()
    imported = import_model(data, dims={"x[1]": 8, "x[2]": "2..7:2"})
    assert imported.inputs[0].shape[:2] == (1, 8)
    last = imported.inputs[0].shape[2]
    assert isinstance(last, UOp) and size_value(last, {"x[2]": 6}) == 6
    assert imported.warnings == ("the open leading size x[0] (b) is taken as 1",)
    for dims, part in (
        ({"n": 8, "x[1]": 9, "x[2]": 1}, "another value"),
        ({"m": 8}, "no such symbolic size"),
        ({"n": "8..4"}, "empty"),
        ({"n": "2..8:0"}, "start at 1"),
        ({"n": "many"}, "not a size"),
    ):
        with pytest.raises(InputError, match=part):
            import_model(data, dims=dims)


def test_a_great_weight_used_in_two_ways_is_kept_once() -> None:
    """Tied embeddings: gathered from, and transposed for the product at the end."""
    nodes = [
        node("Transpose", ["w"], ["t"]),
        node("Gather", ["w", "i"], ["rows"]),
        node("Add", ["x", "rows"], ["h"]),
        node("MatMul", ["h", "t"]),
    ]
    weights = [_floats("w", np.arange(600 * 600).reshape(600, 600)), ints("i", [5, 7])]
    imported = _import(nodes, weights, [2, 600], {})
    arrays = [
        n.arg.source.data for n in toposort([imported.outputs["y"].node]) if n.op is ops.BUFFER
    ]
    assert sorted(a.size for a in arrays if a is not None) == [2 * 600, 600 * 600]
