"""Models of float16: fp16 values in memory, float32 between, and what is infinite is so at an
output.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from tests.agreement import find_target, replay
from tests.export.hostile.build import info, model
from tests.imported import import_model
from tinyedge.core.compiler.compile import compile_graph
from tinyedge.core.compiler.options import Options
from tinyedge.core.dtype import from_numpy
from tinyedge.core.ir.reference import evaluate
from tinyedge.core.program.device import Device
from tinyedge.core.program.program import Program
from tinyedge.core.tensor.graph import Graph, Port

H, F, INF, NAN = np.float16, np.float32, np.inf, np.nan
Array = Any
Nodes = list[tuple[Any, ...]]

RANDOM = np.random.default_rng(3)
SIGNS = np.sign(RANDOM.standard_normal((6, 64)))
DEVIATING = (SIGNS * 800 + RANDOM.uniform(-50, 50, (6, 64))).astype(H)


def graph_of(
    nodes: Nodes, outputs: tuple[str, ...], inputs: dict[str, Array], weights: dict[str, Array]
) -> Graph:
    """nodes: operator, operands, results, attributes."""
    made = [helper.make_node(op, a, b, **dict(*more)) for op, a, b, *more in nodes]
    kinds = {name: helper.np_dtype_to_tensor_dtype(a.dtype) for name, a in inputs.items()}
    proto = model(
        made,
        inputs=[info(name, list(a.shape), kinds[name]) for name, a in inputs.items()],
        outputs=outputs,
        weights=[numpy_helper.from_array(np.asarray(a), name) for name, a in weights.items()],
    )
    found = import_model(proto.SerializeToString()).outputs
    ports = tuple(Port(name, t.dtype, t.shape, t.node) for name, t in found.items())
    given = tuple(Port(name, from_numpy(a.dtype), a.shape) for name, a in inputs.items())
    return Graph(given, ports)


def compiled(graph: Graph, target: str, precision: str = "fp32", optimize: bool = True) -> Program:
    options = Options(optimize, precision=precision)
    program = compile_graph(graph, find_target(target), options).program
    assert program is not None
    return program


def precisions(target: str) -> list[str]:
    return ["fp32", "fp16"] if find_target(target).caps().fp16_storage else ["fp32"]


def exact(values: Array) -> Array:
    """Float64 from halves."""
    return np.asarray(values, np.float64)


# Normalization in parts: the variance, 640,000, is beyond halves.
PARTS: Nodes = [
    ("ReduceMean", ["x"], ["mean"], {"axes": [-1]}),
    ("Sub", ["x", "mean"], ["difference"]),
    ("Pow", ["difference", "two"], ["square"]),
    ("ReduceMean", ["square"], ["variance"], {"axes": [-1]}),
    ("Sqrt", ["variance"], ["deviation"]),
    ("Div", ["difference", "deviation"], ["y"]),
]
TWO = {"two": H(2)}
CENTERED = exact(DEVIATING) - exact(DEVIATING).mean(-1, keepdims=True)
NORMAL = CENTERED / np.sqrt((CENTERED**2).mean(-1, keepdims=True))

LARGE = np.linspace(-3, 14, 128, dtype=H).reshape(2, 64)  # of which halves hold no exponentials
QUERY = np.full((4, 96), 120, H)
KEY = (np.arange(96 * 8).reshape(96, 8) % 7 + 100).astype(H)

TAPS = np.outer([2, 3, 3, 3, 3, 2], [2, 3, 3, 3, 3, 2])  # of a window, inside the image

# Nodes, weights, the input, the right output.
CASES: dict[str, tuple[Nodes, dict[str, Array], Array, Array]] = {
    "layer norm": (PARTS, TWO, DEVIATING, NORMAL),
    "norm of a row": (
        [
            ("Mul", ["x", "x"], ["square"]),
            ("ReduceSum", ["square"], ["sum"]),
            ("Sqrt", ["sum"], ["norm"]),
            ("Div", ["x", "norm"], ["y"]),
        ],
        {},
        DEVIATING,
        exact(DEVIATING) / np.sqrt((exact(DEVIATING) ** 2).sum()),
    ),
    "softmax": (
        [
            ("Exp", ["x"], ["e"]),
            ("ReduceSum", ["e", "last"], ["sum"]),
            ("Div", ["e", "sum"], ["y"]),
        ],
        {"last": np.array([-1])},
        LARGE,
        np.exp(exact(LARGE)) / np.exp(exact(LARGE)).sum(-1, keepdims=True),
    ),
    "scores": (
        [
            ("MatMul", ["x", "key"], ["product"]),
            ("Mul", ["product", "scale"], ["y"]),
        ],
        {"key": KEY, "scale": H(2**-10)},
        QUERY,
        exact(QUERY) @ exact(KEY) / 1024,
    ),
    "channels": (
        [
            ("Conv", ["x", "w"], ["c"], {"pads": [1, 1, 1, 1]}),
            ("ReduceMean", ["c"], ["mean"], {"axes": [2, 3]}),
            ("Div", ["c", "mean"], ["y"]),
        ],
        {"w": np.full((8, 4, 3, 3), 100, H)},
        np.full((1, 4, 6, 6), 500, H),
        np.broadcast_to(TAPS / TAPS.mean(), (1, 8, 6, 6)),
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_what_lies_between_may_be_beyond_halves(case: str, target: str, device: Device) -> None:
    nodes, weights, x, right = CASES[case]
    graph = graph_of(nodes, ("y",), {"x": x}, weights)
    for optimize in (True, False):
        got = replay(compiled(graph, target, optimize=optimize), device, {"x": x})["y"]
        np.testing.assert_allclose(exact(got), right, rtol=1e-3, atol=1e-6)
    (got,) = evaluate([graph.outputs[0].node], {"x": x})
    np.testing.assert_allclose(exact(got), right, rtol=1e-3, atol=1e-6)


@pytest.mark.parametrize("case", ["layer norm", "norm of a row"])
def test_sums_that_leave_little_stay_floats(case: str, target: str, device: Device) -> None:
    """With `fp16`, too, and if every tensor is read twice, so that it has memory of its own."""
    nodes, weights, x, right = CASES[case]
    last = nodes[-1][1][1]
    more = [*nodes, ("Neg", [last], ["negative"]), ("Neg", ["negative"], ["again"])]
    more[len(nodes) - 1] = ("Div", [nodes[-1][1][0], "again"], ["y"])
    for precision in precisions(target):
        for chain in (nodes, [*more[: len(nodes) - 1], *more[len(nodes) :], more[len(nodes) - 1]]):
            graph = graph_of(chain, ("y",), {"x": x}, weights)
            got = replay(compiled(graph, target, precision), device, {"x": x})["y"]
            np.testing.assert_allclose(exact(got), right, rtol=2e-3, atol=1e-6)


def test_an_output_is_infinite_and_what_is_made_of_it_is_not(target: str, device: Device) -> None:
    x = np.array([[300, -300, 2, INF, -INF, NAN, 255.875, 256]], H)
    nodes: Nodes = [("Mul", ["x", "x"], ["square"]), ("Sqrt", ["square"], ["size"])]
    graph = graph_of(nodes, ("square", "size"), {"x": x}, {})
    for precision in precisions(target):
        got = replay(compiled(graph, target, precision), device, {"x": x})
        np.testing.assert_array_equal(
            got["square"], np.array([[INF, INF, 4, INF, INF, NAN, 65472, INF]], H)
        )
        np.testing.assert_array_equal(got["size"], np.abs(x))


def test_a_cast_to_float16_rounds(target: str, device: Device) -> None:
    """As the operator says, whatever becomes of its result."""
    x = np.array([2049, 2051, -65519, 65520, 7e4, -INF, NAN, 1e-8, 3e-8, 0.1, 1e-5, -0.0], F)
    i = np.array([2049, 2051, -70000, 65519], np.int32)
    nodes: Nodes = [
        ("Cast", ["x"], ["h"], {"to": TensorProto.FLOAT16}),
        ("Cast", ["h"], ["y"], {"to": TensorProto.FLOAT}),
        ("Cast", ["i"], ["g"], {"to": TensorProto.FLOAT16}),
        ("Cast", ["g"], ["z"], {"to": TensorProto.FLOAT}),
    ]
    graph = graph_of(nodes, ("h", "y", "z"), {"x": x, "i": i}, {})
    got = replay(compiled(graph, target), device, {"x": x, "i": i})
    with np.errstate(over="ignore"):
        np.testing.assert_array_equal(got["h"], x.astype(H))
        np.testing.assert_array_equal(got["y"], x.astype(H).astype(F))
        np.testing.assert_array_equal(got["z"], i.astype(H).astype(F))


@pytest.mark.parametrize("dtype", [F, H])
def test_a_row_of_which_all_is_masked(dtype: Any, target: str, device: Device) -> None:
    """NaN, as the definition gives, though the masked scores are stored between two kernels."""
    x = RANDOM.standard_normal((4, 512)).astype(dtype)
    mask = np.where(np.arange(2048).reshape(4, 512) % 3 == 0, -INF, 0).astype(dtype)
    mask[1] = -INF
    nodes: Nodes = [
        ("MatMul", ["x", "w"], ["product"]),
        ("Add", ["product", "mask"], ["scores"]),
        ("Softmax", ["scores"], ["y"]),
        ("Neg", ["scores"], ["z"]),
    ]
    weights = {"w": (np.eye(512) * 0.5).astype(dtype)}
    given = {"x": x, "mask": mask}
    graph = graph_of(nodes, ("y", "z"), given, weights)
    scores = exact(x) * 0.5 + mask
    with np.errstate(invalid="ignore"):
        e = np.exp(scores - scores.max(-1, keepdims=True))
    for precision in precisions(target):
        got = replay(compiled(graph, target, precision), device, given)
        np.testing.assert_allclose(exact(got["y"]), e / e.sum(-1, keepdims=True), 4e-3, 1e-6)
        np.testing.assert_allclose(exact(got["z"]), -scores, 4e-3, 1e-3)


@pytest.mark.parametrize("how", ["Concat", "ScatterND"])
def test_a_cache_is_made_once(how: str, target: str, device: Device) -> None:
    """Halves of memory and new values, joined as an output, are read from it inside, too."""
    past, x = RANDOM.standard_normal((24, 8)).astype(H), RANDOM.standard_normal((4, 8)).astype(H)
    places = np.array([[3], [20], [1], [9]])
    present, new = exact(past), np.exp(exact(x))
    if how == "Concat":
        join: tuple[Any, ...] = (how, ["past", "new"], ["present"], {"axis": 0})
        present = np.concatenate([present, new])
    else:
        join = (how, ["past", "places", "new"], ["present"])
        present[places[:, 0]] = new
    nodes: Nodes = [("Exp", ["x"], ["new"]), join, ("ReduceSum", ["present", "axis"], ["y"])]
    given = {"past": past, "x": x} | ({"places": places} if how == "ScatterND" else {})
    graph = graph_of(nodes, ("present", "y"), given, {"axis": np.array([0])})
    program = compiled(graph, target)
    got = replay(program, device, given)
    np.testing.assert_allclose(exact(got["present"]), present, 1e-3)
    read = exact(got["present"]).sum(0, keepdims=True)
    np.testing.assert_allclose(exact(got["y"]), read, 1e-3, 1e-5)
    if find_target(target).caps().fp16_scalar_stores:
        assert max(buffer.bytes for buffer in program.buffers) == present.size * 2


def test_halves_in_memory(target: str) -> None:
    """Weights are fp16 everywhere; inputs and outputs where fp16 values can be written one by
    one.
    """
    weight = RANDOM.standard_normal((128, 128)).astype(H)
    graph = graph_of([("MatMul", ["x", "w"], ["y"])], ("y",), {"x": weight}, {"w": weight})
    program = compiled(graph, target)
    assert [w.storage for w in program.weights] == ["float16"]
    wanted = "float16" if find_target(target).caps().fp16_scalar_stores else "float32"
    assert [port.storage for port in (*program.inputs, *program.outputs)] == [wanted] * 2
