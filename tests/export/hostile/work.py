"""Constants that ask for more work or memory than an export may take."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Union

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto, helper

from tests.export.hostile.build import (
    FAR,
    Build,
    Cases,
    flag,
    floats,
    info,
    ints,
    iteration,
    model,
    node,
)

LARGE = 2_000_000_000  # elements that kernels can still count


def chain(nodes: Sequence[NodeProto], result: str, **weights: Any) -> ModelProto:
    """x + the sum of a result that depends on constants only. weights: by name, their values."""
    end = [
        node("Cast", [result], ["cast"], to=TensorProto.FLOAT),
        node("ReduceSum", ["cast"], ["sum"], keepdims=0),
        node("Add", ["x", "sum"]),
    ]
    return model([*nodes, *end], weights=[_weight(*item) for item in weights.items()], opset=20)


def _weight(name: str, value: Any) -> TensorProto:
    array = np.asarray(value)
    if array.dtype == bool:
        return flag(name, bool(value))
    return ints(name, array) if array.dtype.kind == "i" else floats(name, array)


def filled(shape: list[int], name: str = "f") -> tuple[NodeProto, dict[str, Any]]:
    """A constant of ones of any size, and the weight of its shape."""
    one = helper.make_tensor("value", TensorProto.FLOAT, [1], [1.0])
    return node("ConstantOfShape", [f"{name}_shape"], [name], value=one), {f"{name}_shape": shape}


def on_filled(shape: list[int], op: str, *operands: Any, **attributes: Any) -> ModelProto:
    """An operator on a large constant. operands: those after it; None for one left out."""
    fill, weights = filled(shape)
    given = {f"w{i}": value for i, value in enumerate(operands) if value is not None}
    names = ["" if value is None else f"w{i}" for i, value in enumerate(operands)]
    outputs = attributes.pop("outputs", 1)
    results = ["r", *(f"r{i}" for i in range(1, outputs))]
    return chain([fill, node(op, ["f", *names], results, **attributes)], "r", **weights, **given)


def spread(count: int, op: str, *operands: Any, **attributes: Any) -> ModelProto:
    """An operator on a range of so many floats, all of them different."""
    given = {f"w{i}": value for i, value in enumerate(operands) if value is not None}
    names = ["" if value is None else f"w{i}" for i, value in enumerate(operands)]
    outputs = attributes.pop("outputs", 1)
    results = ["r", *(f"r{i}" for i in range(1, outputs))]
    nodes = [
        node("Range", ["zero", "many", "one"], ["n"]),
        node("Cast", ["n"], ["f"], to=TensorProto.FLOAT),
        node(op, ["f", *names], results, **attributes),
    ]
    return chain(nodes, "r", zero=0, many=count, one=1, **given)


def two_filled(a: list[int], b: list[int], op: str, **attributes: Any) -> ModelProto:
    """An operator on two constants that are computed, not stored."""
    first, shapes = filled(a, "a")
    second, more = filled(b, "b")
    nodes = [
        first,
        second,
        node("Sin", ["a"], ["sa"]),
        node("Sin", ["b"], ["sb"]),
        node(op, ["sa", "sb"], ["r"], **attributes),
    ]
    return chain(nodes, "r", **shapes, **more)


def loops(trips: int, depth: int = 1, scan: bool = False, constant: bool = False) -> ModelProto:
    """Loops inside each other, each of so many iterations. scan: the outer one collects its
    states.
    """
    nodes, made = [node("Relu", ["s"], ["s0"])], ["s0"]
    for level in range(depth):
        outer = level == depth - 1
        graph = iteration(nodes, ["c", made[0], *([made[0]] if outer and scan else [])])
        first = ("start" if constant else "x") if outer else "s"
        made = [f"s{level + 1}", *(["states"] if outer and scan else [])]
        nodes = [node("Loop", ["m", "go", first], made, body=graph)]
    weights = [ints("m", trips), flag("go", True), floats("start", np.ones((2, 3)))]
    return model([*nodes, node("Add", ["x", made[0]])], weights=weights)


def doubled(times: int, op: str = "Concat") -> ModelProto:
    """A constant joined with itself again and again."""
    nodes = [
        node(op, ["v" if i == 0 else f"v{i - 1}"] * 2, [f"v{i}"], axis=0) for i in range(times)
    ]
    return chain(nodes, f"v{times - 1}", v=[1.5, 2.5])


def sines(count: int, size: int) -> ModelProto:
    """A chain of functions of a constant."""
    nodes = [
        node("Range", ["zero", "many", "one"], ["n"]),
        node("Cast", ["n"], ["u0"], to=TensorProto.FLOAT),
        *(node("Sin", [f"u{i}"], [f"u{i + 1}"]) for i in range(count)),
    ]
    return chain(nodes, f"u{count}", zero=0, many=size, one=1)


def one_hot(depth: int) -> ModelProto:
    return chain([node("OneHot", ["a", "b", "c"], ["r"])], "r", a=[1], b=depth, c=[0, 1])


def split(parts: int, constant: bool) -> ModelProto:
    names = [f"p{i}" for i in range(parts)]
    cut = node("Split", ["f" if constant else "x"], names, num_outputs=parts, axis=0)
    end = node("Sum", [names[0], names[-1]])
    if constant:
        fill, weights = filled([parts])
        rest = [_weight(*item) for item in weights.items()]
        return model([fill, cut, end], weights=rest, opset=20)
    return model([cut, end], inputs=[info("x", [parts])], opset=20)


def suppressed(boxes: int, constant: bool = True) -> ModelProto:
    if not constant:
        one = node("NonMaxSuppression", ["x", "s", "m"], ["r"])
        return model(
            [one],
            outputs=["r"],
            inputs=[info("x", [1, boxes, 4]), info("s", [1, 1, boxes])],
            weights=[ints("m", [boxes])],
        )
    first, shapes = filled([1, boxes, 4], "a")
    second, more = filled([1, 1, boxes], "b")
    one = node("NonMaxSuppression", ["a", "b", "m"], ["r"])
    return chain([first, second, one], "r", **shapes, **more, m=[boxes])


def arithmetic(count: int, width: int, op: str = "Add") -> ModelProto:
    """Chains of arithmetic on vectors of sizes. To be imported with --dim n=1..1000000000."""
    nodes = [
        node("Shape", ["x"], ["n"]),
        node("Expand", ["n", "width"], ["e"]),
        node("Range", ["zero", "many", "one"], ["steps"]),
        node("Add", ["e", "steps"], ["v0"]),
    ]
    nodes += [node(op, [f"v{i}", "n"], [f"v{i + 1}"]) for i in range(count)]
    nodes += [
        node("Cast", [f"v{count}"], ["f"], to=TensorProto.FLOAT),
        node("ReduceSum", ["f"], ["s"], keepdims=0),
        node("Add", ["x", "s"]),
    ]
    weights = [ints("width", [width]), ints("zero", 0), ints("one", 1), ints("many", width)]
    return model(nodes, inputs=[info("x", ["n"])], weights=weights)


def remainders(count: int) -> ModelProto:
    """Squares of squares of the remainder of a size, which is 0 or 1 in the end as at first."""
    nodes = [node("Shape", ["x"], ["n"]), node("Mod", ["n", "two"], ["v0"])]
    nodes += [node("Mul", [f"v{i}", f"v{i}"], [f"v{i + 1}"]) for i in range(count)]
    nodes += [node("Cast", [f"v{count}"], ["f"], to=TensorProto.FLOAT), node("Add", ["x", "f"])]
    return model(nodes, inputs=[info("x", ["n"])], weights=[ints("two", [2])])


def of_input(op: str, shape: list[Any], *operands: Any, outputs: int = 1) -> ModelProto:
    """An operator on an input of any size."""
    weights = [ints(f"w{i}", value) for i, value in enumerate(operands)]
    names = [f"w{i}" for i in range(len(operands))]
    results = ["y", *(f"y{i}" for i in range(1, outputs))]
    return model([node(op, ["x", *names], results)], inputs=[info("x", shape)], weights=weights)


FILL = (1 << 31) - 1  # the most elements that a tensor can have
LARGE_IMAGE = [1, 1, 40_000, 50_000]

CASES: Cases = {
    # Constants that are large by themselves.
    "range of 2e9": (lambda _: spread(LARGE, "Sin"), "imported"),
    "40 sines of 1e7": (lambda _: sines(40, 10_000_000), "imported"),
    "5000 sines of 1e5": (lambda _: sines(5000, 100_000), "imported"),
    "identity of 40,000": (lambda _: on_filled([40_000, 40_000], "EyeLike"), "imported"),
    "identity as an input": (
        lambda _: model(
            [node("EyeLike", ["x"], ["e"]), node("Add", ["x", "e"])],
            inputs=[info("x", [40_000, 40_000])],
        ),
        "imported",
    ),
    "fill of 2^31": (lambda _: on_filled([1 << 31], "ReduceMax"), "model.limit"),
    "greatest of 2^31 - 1": (lambda _: on_filled([FILL], "ReduceMax"), "imported"),
    "place of the greatest": (lambda _: on_filled([FILL], "ArgMax", axis=0), "imported"),
    "softmax of 2^31 - 1": (lambda _: on_filled([FILL], "Softmax", axis=0), "imported"),
    "running sum of 2^31 - 1": (lambda _: on_filled([FILL], "CumSum", 0), "imported"),
    "expanded to 1e10": (lambda _: on_filled([1], "Expand", [10**10]), "model.limit"),
    "expanded to 2e9": (lambda _: on_filled([1], "Expand", [LARGE]), "imported"),
    "tiled to 1e10": (lambda _: on_filled([10], "Tile", [10**9]), "model.limit"),
    "tiled to 2e9": (lambda _: on_filled([10], "Tile", [LARGE // 10]), "imported"),
    "padded to 1e10": (lambda _: on_filled([10], "Pad", [0, 10**10]), "model.limit"),
    "padded to 2e9": (lambda _: on_filled([10], "Pad", [0, LARGE]), "imported"),
    "reflected to 2e9": (
        lambda _: on_filled([LARGE // 2], "Pad", [0, LARGE // 2 - 1], mode="reflect"),
        ("imported", "model.limit"),
    ),
    "one-hot of 1e10": (lambda _: one_hot(10**10), "model.limit"),
    "one-hot of 2e9": (lambda _: one_hot(LARGE), "imported"),
    "triangle of 40,000": (lambda _: on_filled([40_000, 40_000], "Trilu"), "imported"),
    "transposed 2e9": (lambda _: on_filled([LARGE // 100, 100], "Transpose"), "imported"),
    "looked up in 2e9": (lambda _: on_filled([LARGE], "Gather", np.arange(1000)), "imported"),
    "written into 2e9": (
        lambda _: on_filled([LARGE], "ScatterElements", np.arange(9), np.ones(9), axis=0),
        "model.limit",
    ),
    "joined 40 times": (lambda _: doubled(40), "model.limit"),
    "joined 29 times": (lambda _: doubled(29), "imported"),
    "joined 20 times": (lambda _: doubled(20), "imported"),
    **{
        f"{mode} image of 2e9": (
            lambda _, mode=mode: on_filled(  # type: ignore[misc]
                [1, 1, 10, 10], "Resize", None, None, LARGE_IMAGE, mode=mode
            ),
            "imported",
        )
        for mode in ("nearest", "linear", "cubic")
    },
    "image of 1e10": (
        lambda _: on_filled([1, 1, 10, 10], "Resize", None, None, [1, 1, 10**5, 10**5]),
        "model.limit",
    ),
    # Results of which a run would know the size.
    "places in 3e8": (lambda _: on_filled([300_000_000], "NonZero"), "imported"),
    "places in 30,000 x 10,000": (lambda _: on_filled([30_000, 10_000], "NonZero"), "imported"),
    "different ones of 1e6": (lambda _: spread(1_000_000, "Unique"), "imported"),
    "boxes of 5e8": (lambda _: suppressed(LARGE // 4), "imported"),
    "boxes of 1e5": (lambda _: suppressed(100_000), "imported"),
    "boxes as an input": (lambda _: suppressed(LARGE // 4, False), "imported"),
    # Sorting.
    "top 10 of 2e9": (lambda _: spread(LARGE, "TopK", [10], outputs=2), "imported"),
    "1e6 sorted": (lambda _: spread(1_000_000, "TopK", [1_000_000], outputs=2), "imported"),
    "top of an input": (
        lambda _: of_input("TopK", [LARGE], [10], outputs=2),
        "imported",
    ),
    "sum along an input": (lambda _: of_input("CumSum", [LARGE], 0), "imported"),
    "sum along 2e9": (lambda _: spread(LARGE, "CumSum", 0), "imported"),
    # Sums of products.
    "einsum of 1.6e9": (
        lambda _: two_filled([40_000], [40_000], "Einsum", equation="i,j->ij"),
        "imported",
    ),
    "einsum of 6e12": (
        lambda _: two_filled([40_000, 4000], [4000, 40_000], "Einsum", equation="ik,kj->"),
        "imported",
    ),
    "einsum of 1e15": (
        lambda _: two_filled([100_000] * 2, [100_000] * 2, "Einsum", equation="ik,kj->"),
        "model.limit",
    ),
    "product of 1e13": (lambda _: two_filled([20_000] * 2, [20_000] * 2, "MatMul"), "imported"),
    "convolution of 8e13": (
        lambda _: two_filled([1, 100, 1000, 1000], [100] * 4, "Conv"),
        "imported",
    ),
    "transform of 1e6": (
        lambda _: on_filled([1, 1_000_000, 1], "DFT", None, 1),
        ("imported", "model.limit"),  # a bundle of 16 MB
    ),
    "transform of a prime": (
        lambda _: on_filled([1, 1_000_003, 1], "DFT", None, 1),
        "model.limit",
    ),
    "windows of 1e6": (
        lambda _: on_filled([1, 1, 40_000, 40_000], "MaxPool", kernel_shape=[1000, 1000]),
        "imported",
    ),
    "recurrence of 1e5": (
        lambda _: on_filled([100_000, 1, 1], "RNN", *[np.ones((1, 1, 1))] * 2, hidden_size=1),
        "model.limit",
    ),
    "samples of 2e9": (
        lambda _: two_filled([1, 1, 99, 99], [1, 40_000, 50_000, 2], "GridSample"),
        "model.limit",
    ),
    # Many steps.
    "loop of 2^63 - 1": (lambda _: loops(FAR), "model.limit"),
    "loop of constants": (lambda _: loops(FAR, constant=True), "model.limit"),
    "loop that collects": (lambda _: loops(FAR, scan=True), "model.limit"),
    "3 loops of 2^63 - 1": (lambda _: loops(FAR, 3), "model.limit"),
    "3 loops of 1000": (lambda _: loops(1000, 3), "model.limit"),
    "3 loops that collect": (lambda _: loops(FAR, 3, scan=True), "model.limit"),
    "split in 100,000": (lambda _: split(100_000, False), "model.limit"),
    "constant split in 100,000": (lambda _: split(100_000, True), "model.limit"),
    "split in 10,000": (lambda _: split(10_000, False), "imported"),
}

# With open sizes: the command line's options beside each.
OPEN: dict[str, tuple[Build, Union[str, tuple[str, ...]], list[str]]] = {
    "top of any size": (
        lambda _: of_input("TopK", ["n"], [1], outputs=2),
        "imported",
        ["n=1..2000000000"],
    ),
    "sum along any size": (
        lambda _: of_input("CumSum", ["n"], 0),
        "imported",
        ["n=1..2000000000"],
    ),
    "squares of sizes": (
        lambda _: model(
            [node("MatMul", ["x", "z"])], inputs=[info("x", ["n", 1]), info("z", [1, "n"])]
        ),
        "model.limit",
        ["n=1..2000000000"],
    ),
    "squares of a remainder": (lambda _: remainders(40), "imported", ["n=1..8"]),
    "100 x 4096 sizes": (lambda _: arithmetic(100, 4096), "imported", ["n=1..1000000000"]),
    "10,000 x 16 sizes": (lambda _: arithmetic(9_900, 16), "model.limit", ["n=1..1000000000"]),
    "5000 sizes": (lambda _: arithmetic(5000, 1), "imported", ["n=1..1000000000"]),
    "products of 16 sizes": (
        lambda _: arithmetic(50, 16, "Mul"),
        ("imported", "model.limit"),
        ["n=1..1000000000"],
    ),
    "quotients of 4096 sizes": (
        lambda _: arithmetic(20, 4096, "Div"),
        "imported",
        ["n=1..1000000000"],
    ),
}
