"""If, Loop and Scan with small bodies that also use values around them."""

from __future__ import annotations

from onnx import TensorProto, helper

from tests.onnxfuzz.builder import Builder
from tests.onnxfuzz.case import element_type
from tests.onnxfuzz.makers import Made, maker

KINDS = ("float32", "int32", "int64")
UNARY = ("Abs", "Neg", "Identity", "Relu")
BINARY = ("Add", "Sub", "Max", "Min")


def _info(g: Builder, name: str, like: str, axes: int | None = None):
    array = g.array(like)
    rank = array.ndim if axes is None else axes
    return helper.make_tensor_value_info(name, element_type(array), [None] * rank)


def _unary(g: Builder, x: str):
    integer = g.kind_of(x) if x in g.values else "float32"
    ops = UNARY if integer == "float32" or g.opset >= 14 else UNARY[:3]
    return lambda name: g.node(g.choice(ops), [name])


@maker("If", weight=1.5)
def branch(g: Builder, op: str) -> Made:
    x = g.pick(KINDS, 0, 3)
    condition = g.leaf("bool", (), constant=g.chance(0.3))
    other = g.leaf(g.kind_of(x), g.shape_of(x), constant=False)
    branches = []
    for _ in range(2):
        nodes = [g.node(g.choice(BINARY), [x, other])]
        for _ in range(g.integer(0, 2)):
            nodes.append(_unary(g, x)(nodes[-1].output[0]))
        result = _info(g, nodes[-1].output[0], x)
        branches.append(helper.make_graph(nodes, "branch", [], [result]))
    return g.node(op, [condition], then_branch=branches[0], else_branch=branches[1])


@maker("Loop", weight=1.5)
def loop(g: Builder, op: str) -> Made:
    """So many iterations, known or not, or until a sum is large; with or without scan outputs."""
    x = g.pick(KINDS, 0, 2, style="small", least=1)
    step = g.leaf(g.kind_of(x), g.shape_of(x), "small")
    iteration, going, value = g.fresh("b"), g.fresh("b"), g.fresh("b")
    added = g.node(g.choice(("Add", "Sub", "Max")), [value, step])
    nodes = [added]
    kept = g.node("Identity", [going])
    scans = g.chance(0.5)
    outputs = [
        helper.make_tensor_value_info(kept.output[0], TensorProto.BOOL, []),
        _info(g, added.output[0], x),
    ]
    if scans:
        nodes.append(_unary(g, x)(added.output[0]))
        outputs.append(_info(g, nodes[-1].output[0], x))
    nodes.append(kept)
    body = helper.make_graph(
        nodes,
        "body",
        [
            helper.make_tensor_value_info(iteration, TensorProto.INT64, []),
            helper.make_tensor_value_info(going, TensorProto.BOOL, []),
            _info(g, value, x),
        ],
        outputs,
    )
    trips = g.constant(g.integer(0, 4))
    start = g.constant(True, "bool") if g.chance(0.5) else ""
    node = g.node(op, [trips, start, x], 2 if scans else 1, body=body)
    if g.chance(0.5):
        g.constants.discard(trips)
        g.bound(node, 6)
    return node


@maker("Scan", weight=1)
def scan(g: Builder, op: str) -> Made:
    x = g.pick(KINDS, 1, 3, least=1)
    axis = g.axis(x)
    shape = list(g.shape_of(x))
    del shape[axis]
    state = g.leaf(g.kind_of(x), tuple(shape))
    before, row = g.fresh("b"), g.fresh("b")
    added = g.node(g.choice(BINARY), [before, row])
    out = _unary(g, x)(added.output[0])
    body = helper.make_graph(
        [added, out],
        "body",
        [_info(g, before, state), _info(g, row, state)],
        [_info(g, added.output[0], state), _info(g, out.output[0], state)],
    )
    reverse = g.choice((None, [0], [1]))
    return g.node(
        op,
        [state, x],
        2,
        body=body,
        num_scan_inputs=1,
        scan_input_axes=[axis],
        scan_input_directions=reverse,
        scan_output_axes=g.choice((None, [0], [-1])),
        scan_output_directions=g.choice((None, [0], [1])),
    )
