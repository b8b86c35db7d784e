"""A part of a model: what a selection of values keeps, and what it leaves out."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from tests.export.hostile import info, ints, model, node
from tests.imported import import_model
from tinyedge.core.errors import InputError, ModelError
from tinyedge.core.ir.reference import evaluate


def _import(proto: Any, outputs: list[str], **more: Any) -> Any:
    return import_model(proto.SerializeToString(), outputs=outputs, **more)


def test_a_value_of_each_kind() -> None:
    """An output of a node, an initializer, an input; each once, in the order of their names."""
    proto = model([node("Neg", ["x"], ["a"]), node("Abs", ["a"])], weights=[ints("w", [1, 2])])
    imported = _import(proto, ["a", "w", "x", "a"])
    assert list(imported.outputs) == ["a", "w", "x"]
    x = np.ones((2, 3), np.float32)
    values = evaluate([tensor.node for tensor in imported.outputs.values()], {"x": x})
    assert values[0].tolist() == (-x).tolist() and values[1].tolist() == [1, 2]


def test_what_subgraphs_need_is_kept() -> None:
    """A branch reads a value of the graph around it, and an input that nothing else reads."""
    names = ("then", "else")
    branches = {
        f"{name}_branch": helper.make_graph(
            [node("Add", ["a", value], [f"of_{name}"])],
            name,
            [],
            [helper.make_empty_tensor_value_info(f"of_{name}")],
        )
        for name, value in zip(names, ("p", "q"), strict=True)
    }
    nodes = [
        node("Neg", ["x"], ["a"]),
        node("If", ["c"], ["chosen"], **branches),
        node("Mul", ["chosen", "r"]),
    ]
    inputs = [info(name, [2, 3]) for name in ("x", "p", "q", "r")]
    proto = model(nodes, inputs=[*inputs, info("c", [], TensorProto.BOOL)])
    imported = _import(proto, ["chosen"])
    assert [each.name for each in imported.inputs] == ["x", "p", "q", "c"]
    assert imported.warnings == ("the chosen outputs need no input 'r': left out",)


def test_nodes_keep_their_names() -> None:
    """A node without a name has that of its place in the whole graph, whatever is left out."""
    nodes = [
        node("Neg", ["x"], ["a"]),
        node("Abs", ["x"], ["b"]),
        node("Frobnicate", ["b"], ["c"]),
        node("Add", ["a", "c"]),
    ]
    with pytest.raises(InputError, match="'Frobnicate_2'"):
        import_model(model(nodes).SerializeToString())
    with pytest.raises(InputError, match="'Frobnicate_2'"):
        _import(model(nodes), ["c"])
    backwards = model(nodes[::-1])
    with pytest.raises(InputError) as whole:
        import_model(backwards.SerializeToString())
    with pytest.raises(InputError) as part:
        _import(backwards, ["c"])
    assert str(whole.value) == str(part.value)


def test_sizes_and_bounds_of_what_is_left_out_may_be_given() -> None:
    """The same options go with every part of a model; those that no part has are refused."""
    loop = helper.make_graph(
        [node("Identity", ["state"], ["next"]), node("Identity", ["going"], ["on"])],
        "body",
        [
            info("number", [], TensorProto.INT64),
            info("going", [], TensorProto.BOOL),
            info("state", ["n", 3]),
        ],
        [helper.make_empty_tensor_value_info(name) for name in ("on", "next")],
    )
    nodes = [
        helper.make_node("Loop", ["", "go", "z"], ["y"], name="grow", body=loop),
        node("Relu", ["x"], ["small"]),
    ]
    inputs = [info("x", [2, 3]), info("z", [1, "n"]), info("go", [], TensorProto.BOOL)]
    proto = model(nodes, inputs=inputs)
    given: dict[str, Any] = {"dims": {"n": 4, "z[1]": 4}, "bounds": {"grow": 3}}
    assert list(_import(proto, ["small"], **given).outputs) == ["small"]
    assert list(_import(proto, ["y"], **given).outputs) == ["y"]
    with pytest.raises(InputError, match="no such symbolic size"):
        _import(proto, ["small"], dims={"m": 4})
    with pytest.raises(InputError, match=r"input\.bound"):
        _import(proto, ["small"], bounds={"shrink": 4})


def test_a_weight_is_not_changed_for_one_user_where_it_is_an_output_too() -> None:
    """A factor after a convolution goes into its weights, but not those of the output before it."""
    weight = numpy_helper.from_array(np.ones((1, 1, 1, 1), np.float32), "w")
    factor = numpy_helper.from_array(np.full((1, 1, 1), 3, np.float32), "k")
    nodes = [node("Conv", ["x", "w"], ["c"]), node("Mul", ["c", "k"])]
    proto = model(nodes, inputs=[info("x", [1, 1, 2, 2])], weights=[weight, factor])
    imported = _import(proto, ["y", "c"])
    x = np.ones((1, 1, 2, 2), np.float32)
    values = evaluate([tensor.node for tensor in imported.outputs.values()], {"x": x})
    by_name = dict(zip(imported.outputs, values, strict=True))
    assert by_name["c"].max() == 1 and by_name["y"].min() == 3


def test_a_damaged_graph_is_found_in_any_part() -> None:
    cycle = [node("Neg", ["b"], ["a"]), node("Neg", ["a"], ["b"]), node("Relu", ["x"])]
    with pytest.raises(ModelError, match="cycle"):
        _import(model(cycle), ["y"])
