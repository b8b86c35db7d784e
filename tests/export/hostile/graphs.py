"""Graphs that contradict themselves: cycles, values made twice, functions and loops without end."""

from __future__ import annotations

from onnx import GraphProto, ModelProto, TensorProto, helper

from tests.export.hostile.build import (
    FAR,
    HUGE,
    RELU,
    Cases,
    body,
    call,
    calling,
    flag,
    floats,
    function,
    info,
    ints,
    iteration,
    model,
    node,
)


def _nested_ifs(depth: int) -> ModelProto:
    """Both branches hold the next If: 2 ** depth graphs, where the condition is not known."""
    graph: GraphProto | None = None
    for level in range(depth):
        last = f"o{level}"
        one = node("Identity", ["x"], [last])
        if graph is not None:
            one = node("If", ["c"], [last], then_branch=graph, else_branch=graph)
        graph = body([one], [], [last])
    top = node("If", ["c"], ["y"], then_branch=graph, else_branch=graph)
    return model([top], inputs=[info("x", [2, 3]), info("c", [], TensorProto.BOOL)])


def _chain(count: int) -> ModelProto:
    nodes = [node("Relu", ["x"], ["v0"])]
    nodes += [node("Neg", [f"v{i}"], [f"v{i + 1}"]) for i in range(count)]
    return model(nodes, outputs=(f"v{count}",))


def _doubling_functions(levels: int) -> ModelProto:
    """Every function calls the next twice: 2 ** levels nodes when inlined."""
    functions = []
    for level in range(levels):
        last = level + 1 == levels
        inner = [
            node("Relu", [a], [b]) if last else call(f"f{level + 1}", [a], [b])
            for a, b in (("a", "t"), ("t", "b"))
        ]
        functions.append(function(f"f{level}", inner))
    return calling(functions)


def _chained_functions(levels: int) -> ModelProto:
    """Every function calls the next: inlined inside each other."""
    functions = [function(f"f{i}", [call(f"f{i + 1}")]) for i in range(levels)]
    return calling([*functions, function(f"f{levels}", [node("Relu", ["a"], ["b"])])])


def _circle_of_functions() -> ModelProto:
    return calling([function("f0", [call("f1")]), function("f1", [call("f0")])])


def _recursion_in_branch() -> ModelProto:
    branch = body([call("f0", ["a"], ["r"])], [], ["r"])
    inner = [
        node("Constant", [], ["c"], value=flag("c", True)),
        node("If", ["c"], ["b"], then_branch=branch, else_branch=branch),
    ]
    return calling([function("f0", inner)])


def _loop(graph: GraphProto, *, trips: int | None = None) -> ModelProto:
    weights = [flag("go", True)] + ([ints("m", trips)] if trips is not None else [])
    inputs = ["m" if trips is not None else "", "go", "x"]
    return model([node("Loop", inputs, body=graph)], weights=weights)


def _endless_loop() -> ModelProto:
    nodes = [node("Identity", ["c"], ["c1"]), node("Identity", ["s"], ["s1"])]
    return _loop(iteration(nodes, ["c1", "s1"]))


def _nested_loops(depth: int, trips: int) -> ModelProto:
    """Loops inside each other, each of `trips` iterations."""
    nodes = [node("Relu", ["s"], ["s1"])]
    for level in range(depth):
        graph = helper.make_graph(
            nodes,
            "body",
            [
                info(f"i{level}", [], TensorProto.INT64),
                info(f"c{level}", [], TensorProto.BOOL),
                info("s" if level == 0 else f"s_{level}", [2, 3]),
            ],
            [helper.make_empty_tensor_value_info(n) for n in (f"c{level}", f"s{level + 1}")],
        )
        source = "x" if level + 1 == depth else f"s_{level + 1}"
        result = "y" if level + 1 == depth else f"s{level + 2}"
        nodes = [node("Loop", ["m", "", source], [result], body=graph)]
    return model(nodes, weights=[ints("m", trips)])


def _growing_loop() -> ModelProto:
    """Every iteration joins a tensor with itself."""
    nodes = [node("Concat", ["s", "s"], ["s1"], axis=0), node("Identity", ["c"], ["c1"])]
    return _loop(iteration(nodes, ["c1", "s1"]), trips=100)


def _loop_with_weights(count: int) -> ModelProto:
    """Every iteration has a large constant of its own."""
    weights = [floats("w", range(6 * count))]
    nodes = [
        node("Constant", [], ["shape"], value=ints("shape", [count, 2, 3])),
        node("Reshape", ["w", "shape"], ["w1"]),
        node("ReduceSum", ["w1", "axis"], ["w2"], keepdims=0),
        node("Add", ["s", "w2"], ["s1"]),
        node("Identity", ["c"], ["c1"]),
    ]
    return _loop(iteration(nodes, ["c1", "s1"], [*weights, ints("axis", [0])]), trips=1000)


def _loop_over_dead_branch(count: int) -> ModelProto:
    """Every iteration passes a branch that is never taken, with many nodes."""
    dead = [node("Relu", ["s" if i == 0 else f"d{i - 1}"], [f"d{i}"]) for i in range(count)]
    live = body([node("Identity", ["s"], ["r"])], [], ["r"])
    nodes = [
        node("If", ["c"], ["s1"], then_branch=live, else_branch=body(dead, [], [f"d{count - 1}"])),
        node("Identity", ["c"], ["c1"]),
    ]
    return _loop(iteration(nodes, ["c1", "s1"]), trips=1000)


def _joined_sequence() -> ModelProto:
    """A sequence that is inserted into for ever."""
    graph = body(
        [node("SequenceInsert", ["s", "x"], ["s1"]), node("Identity", ["c"], ["c1"])],
        [
            info("i", [], TensorProto.INT64),
            info("c", [], TensorProto.BOOL),
            helper.make_tensor_sequence_value_info("s", TensorProto.FLOAT, [2, 3]),
        ],
        ["c1", "s1"],
    )
    nodes = [
        node("SequenceEmpty", [], ["e"]),
        node("Loop", ["m", "", "e"], ["t"], body=graph),
        node("ConcatFromSequence", ["t"], axis=0),
    ]
    return model(nodes, weights=[ints("m", HUGE)])


def _branch_uses_later_value() -> ModelProto:
    branch = body([node("Relu", ["later"], ["r"])], [], ["r"])
    nodes = [
        node("If", ["go"], ["y"], then_branch=branch, else_branch=branch),
        node("Neg", ["y"], ["later"]),
    ]
    return model(nodes, weights=[flag("go", True)])


def _with_types(**types: object) -> ModelProto:
    result = model([RELU])
    for name, kind in types.items():
        result.graph.input.append(helper.make_value_info(name, kind))
    return result


def _wide(op: str, count: int) -> ModelProto:
    attributes = {"axis": 0} if op == "Concat" else {}
    return model([node(op, ["x"] * count, **attributes)])


def squares(times: int) -> ModelProto:
    """A symbolic size plus one, multiplied with itself again and again."""
    nodes = [
        node("Shape", ["x"], ["all"]),
        node("Gather", ["all", "zero"], ["n"]),
        node("Add", ["n", "one"], ["n0"]),
    ]
    nodes += [node("Mul", [f"n{i}", f"n{i}"], [f"n{i + 1}"]) for i in range(times)]
    nodes += [node("Mod", [f"n{times}", "few"], ["rest"]), node("Expand", ["x1", "rest"])]
    weights = [ints("zero", [0]), ints("one", [1]), ints("few", [7]), floats("x1", [1])]
    return model(nodes, inputs=[info("x", ["n", 3])], weights=weights)


CASES: Cases = {
    "unknown operator": (lambda _: model([node("Frobnicate", ["x"])]), "model.unsupported"),
    "operator without a name": (lambda _: model([node("", ["x"])]), "model.unsupported"),
    "unknown domain": (
        lambda _: model([helper.make_node("Relu", ["x"], ["y"], domain="evil")]),
        ("model.unsupported", "model.opset"),
    ),
    "undefined input": (lambda _: model([node("Add", ["x", "z"])]), "model.undefined-value"),
    "undefined output": (lambda _: model([RELU], outputs=("z",)), "model.undefined-value"),
    "cycle": (
        lambda _: model(
            [node("Add", ["x", "b"], ["a"]), node("Relu", ["a"], ["b"])], outputs=("b",)
        ),
        "model.cycle",
    ),
    "own input": (lambda _: model([node("Add", ["x", "y"])]), "model.cycle"),
    "cycle through a branch": (lambda _: _branch_uses_later_value(), "model.cycle"),
    "made twice": (lambda _: model([RELU, RELU]), "model.duplicate-name"),
    "one node makes it twice": (
        lambda _: model([node("Split", ["x"], ["y", "y"], axis=0)]),
        "model.duplicate-name",
    ),
    "output twice": (lambda _: model([RELU], outputs=("y", "y")), "model.duplicate-name"),
    "output without a name": (
        lambda _: model([RELU], outputs=("",)),
        ("model.undefined-value", "model.duplicate-name"),
    ),
    "input made again": (lambda _: model([node("Relu", ["x"], ["x"])]), "model.duplicate-name"),
    "weight made again": (
        lambda _: model([node("Relu", ["x"], ["w"])], weights=[floats("w", [1])]),
        "model.duplicate-name",
    ),
    "input twice": (
        lambda _: model([RELU], inputs=[info("x", [1]), info("x", [1])]),
        "model.duplicate-name",
    ),
    "input without a name": (
        lambda _: model([RELU], inputs=[info("x", [1]), info("", [1])]),
        "model.duplicate-name",
    ),
    "weight twice": (
        lambda _: model([RELU], weights=[ints("w", [1]), ints("w", [2])]),
        "model.duplicate-name",
    ),
    "weight without a name": (
        lambda _: model([RELU], weights=[ints("", [1])]),
        "imported",
    ),
    "function twice": (
        lambda _: calling(
            [function("f0", [node(op, ["a"], ["b"])]) for op in ("Relu", "Neg")],
        ),
        "model.duplicate-name",
    ),
    "recursive function": (
        lambda _: calling([function("f0", [call("f0")])]),
        "model.cycle",
    ),
    "circle of functions": (lambda _: _circle_of_functions(), "model.cycle"),
    "recursion in a branch": (lambda _: _recursion_in_branch(), "model.cycle"),
    "function without its result": (
        lambda _: calling([function("f0", [node("Relu", ["a"], ["c"])])]),
        "model.undefined-value",
    ),
    "doubling functions": (lambda _: _doubling_functions(40), "model.limit"),
    "1000 functions inside each other": (lambda _: _chained_functions(1000), "model.limit"),
    "16,000 branches": (lambda _: _nested_ifs(13), ("imported", "model.limit")),
    "chain of 100,000": (lambda _: _chain(100_000), "model.limit"),
    "endless loop": (lambda _: _endless_loop(), "model.limit"),
    "loop of 2^40 iterations": (
        lambda _: _loop(iteration([node("Relu", ["s"], ["s1"])], ["c", "s1"]), trips=HUGE),
        "model.limit",
    ),
    "loop of 2^63 empty iterations": (
        lambda _: _loop(iteration([], ["c", "s"]), trips=FAR),
        "model.limit",
    ),
    "1000^6 iterations": (lambda _: _nested_loops(6, 1000), "model.limit"),
    "growing loop": (lambda _: _growing_loop(), ("model.limit", "model.node")),
    "loop of large constants": (lambda _: _loop_with_weights(1 << 17), ("imported", "model.limit")),
    "loop over a dead branch": (
        lambda _: _loop_over_dead_branch(10_000),
        ("imported", "model.limit"),
    ),
    "endless sequence": (lambda _: _joined_sequence(), "model.limit"),
    "sequence input": (
        lambda _: _with_types(
            z=helper.make_sequence_type_proto(helper.make_tensor_type_proto(1, [1]))
        ),
        "model.unsupported",
    ),
    "input without a type": (
        lambda _: model([RELU], inputs=[info("x", [1]), helper.make_empty_tensor_value_info("z")]),
        "model.unsupported",
    ),
    "input without shape": (lambda _: model([RELU], inputs=[info("x", None)]), "model.unsupported"),
    "open size": (lambda _: model([RELU], inputs=[info("x", [1, "n"])]), "input.open-dims"),
    "20,000 inputs of a Concat": (lambda _: _wide("Concat", 20_000), "model.limit"),
    "500 inputs of a Concat": (lambda _: _wide("Concat", 500), "imported"),
    "20,000 inputs of a Sum": (lambda _: _wide("Sum", 20_000), "model.limit"),
    "5,000 inputs of a Sum": (lambda _: _wide("Sum", 5_000), "imported"),
    "10,000 outputs": (
        lambda _: model(
            [node("Relu", ["x"], [f"y{i}"]) for i in range(10_000)],
            outputs=[f"y{i}" for i in range(10_000)],
        ),
        ("imported", "model.limit"),
    ),
    "20,000 inputs": (
        lambda _: model(
            [RELU], inputs=[info("x", [1]), *(info(f"x{i}", [1]) for i in range(20_000))]
        ),
        ("imported", "model.limit"),
    ),
    "20,000 unsupported nodes": (
        lambda _: model(
            [node("Frobnicate", ["x"], [f"y{i}"]) for i in range(20_000)], outputs=["y0"]
        ),
        "model.unsupported",
    ),
}

# Names that break out of where they are printed, if they are printed as they are.
NAMES = (
    "</script><script>alert(1)</script>",
    "__proto__",
    "constructor",
    "var<storage>",
    "fn",
    "int main(){}",
    "restrict",
    "../../etc/passwd",
    "CON",
    "a\nb",
    "\x1b[2J\x1b]0;title\x07",
    "'; rm -rf / #",
    "%s%n",
    "\u202etxt.exe",
    "\ud7ff\U0001f480",
    "x" * 10_000,
    "名前",
    "a.b",
    "a_b",
    "a-b",
    "A_B",
    "0",
)
