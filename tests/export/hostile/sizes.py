"""Nodes that ask for more than there is, and attributes that no operator allows."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import AttributeProto, ModelProto, TensorProto, helper, numpy_helper

from tests.export.hostile.build import (
    FAR,
    HUGE,
    RELU,
    Cases,
    flag,
    floats,
    info,
    ints,
    model,
    node,
    tensor,
)

TOO_MUCH = ("model.node", "model.limit")
SIZE = 1 << 30


def _op(
    op: str, *operands: Any, opset: int = 20, outputs: int = 1, **attributes: Any
) -> ModelProto:
    """One node whose operands after x [2, 3] are constants."""
    weights = [_constant(f"w{i}", value) for i, value in enumerate(operands) if value is not None]
    names = ["x", *("" if v is None else f"w{i}" for i, v in enumerate(operands))]
    results = ["y", *(f"y{i}" for i in range(1, outputs))]
    return model([node(op, names, results, **attributes)], weights=weights, opset=opset)


def _constant(name: str, value: Any) -> TensorProto:
    array = np.asarray(value)
    kind = np.int64 if array.dtype.kind == "i" else np.float32
    return numpy_helper.from_array(array.astype(kind), name)


def _free(op: str, *operands: Any, opset: int = 20, **attributes: Any) -> ModelProto:
    """One node of constants only."""
    weights = [_constant(f"w{i}", value) for i, value in enumerate(operands)]
    names = [weight.name for weight in weights]
    return model([node(op, names, **attributes)], weights=weights, opset=opset)


def _image(op: str, *operands: Any, opset: int = 20, **attributes: Any) -> ModelProto:
    """One node on an image x [1, 4, 5, 5]."""
    result = _op(op, *operands, opset=opset, **attributes)
    result.graph.input[0].CopyFrom(info("x", [1, 4, 5, 5]))
    return result


def _offsets(**attributes: Any) -> ModelProto:
    weight, offset = np.ones((1, 4, 2, 2)), np.zeros((1, 8, 4, 4))
    return _image("DeformConv", weight, offset, opset=22, **attributes)


def _conv(op: str = "Conv", kernel: int = 3, **attributes: Any) -> ModelProto:
    return _image(op, np.ones((4, 4, kernel, kernel)), **attributes)


def _on(shape: list[Any], op: str, *operands: Any, **more: Any) -> ModelProto:
    result = _op(op, *operands, **more)
    result.graph.input[0].CopyFrom(info("x", shape))
    return result


def _attribute_of_type(kind: Any) -> ModelProto:
    one = node("Softmax", ["x"], axis=1)
    one.attribute[0].type = kind
    return model([one])


def _reference_outside() -> ModelProto:
    """A reference to a function's attribute where there is no function."""
    one = node("LeakyRelu", ["x"])
    one.attribute.add(name="alpha", ref_attr_name="slope", type=AttributeProto.FLOAT)
    return model([one])


def _attribute_twice() -> ModelProto:
    one = node("Softmax", ["x"], axis=1)
    one.attribute.append(one.attribute[0])
    return model([one])


def _recurrent(op: str, steps: int, hidden: int, **attributes: Any) -> ModelProto:
    gates = {"RNN": 1, "GRU": 3, "LSTM": 4}[op]
    size = max(0, min(hidden, 1))
    weights = [floats(n, np.ones((1, gates * size, 1))) for n in ("w", "r")]
    one = node(op, ["x", "w", "r"], hidden_size=hidden, **attributes)
    return model([one], inputs=[info("x", [steps, 1, 1])], weights=weights)


def _folded_chain(count: int, size: int) -> ModelProto:
    """Constants of 1 MB, each computed from the one before."""
    nodes = [
        node("Range", ["zero", "size", "one"], ["r"]),
        node("Cast", ["r"], ["v0"], to=TensorProto.FLOAT),
    ]
    nodes += [node("Sin", [f"v{i}"], [f"v{i + 1}"]) for i in range(count)]
    nodes += [node("ReduceSum", [f"v{count}"], ["s"], keepdims=0), node("Add", ["x", "s"])]
    return model(nodes, weights=[ints("zero", 0), ints("size", size), ints("one", 1)])


def _resizes(count: int, size: int) -> ModelProto:
    """Each needs a table of indices and one of weights."""
    nodes = []
    for i in range(count):
        nodes.append(node("Resize", ["x", "", "", "s"], [f"v{i}"], mode="linear"))
        nodes.append(node("ReduceSum", [f"v{i}"], [f"s{i}"], keepdims=0))
    nodes.append(node("Sum", [f"s{i}" for i in range(count)]))
    return model(nodes, weights=[ints("s", [1, size])], inputs=[info("x", [1, 3])])


def _growing(op: str, times: int) -> ModelProto:
    """A tensor joined with itself again and again."""
    nodes = [
        node(op, ["x" if i == 0 else f"v{i - 1}"] * 2, [f"v{i}"], axis=0) for i in range(times)
    ]
    return model([*nodes, node("ReduceSum", [f"v{times - 1}"])])


def _tiles(times: int) -> ModelProto:
    nodes = [node("Tile", ["x" if i == 0 else f"v{i - 1}", "r"], [f"v{i}"]) for i in range(times)]
    return model([*nodes, node("ReduceSum", [f"v{times - 1}"])], weights=[ints("r", [1000, 1])])


CASES: Cases = {
    # Sizes of inputs.
    "input of 2^80": (lambda _: model([RELU], inputs=[info("x", [HUGE, HUGE])]), "model.limit"),
    "input of 2^31": (lambda _: model([RELU], inputs=[info("x", [1 << 31])]), "model.limit"),
    "input whose sizes multiply to 0": (
        lambda _: model([RELU], inputs=[info("x", [1 << 30] * 4)]),
        "model.limit",
    ),
    "input of 2^63 - 1": (lambda _: model([RELU], inputs=[info("x", [FAR])]), "model.limit"),
    "negative input": (lambda _: model([RELU], inputs=[info("x", [2, -3])]), "input.open-dims"),
    "input of 100 axes": (lambda _: model([RELU], inputs=[info("x", [1] * 100)]), "model.limit"),
    "input of 2^31 and 0": (
        lambda _: model([RELU], inputs=[info("x", [SIZE, SIZE, 0])]),
        "model.limit",
    ),
    # Operators that explode.
    "expand to 2^40": (lambda _: _op("Expand", [HUGE, 2, 3]), TOO_MUCH),
    "expand to 2^80": (lambda _: _op("Expand", [HUGE, HUGE, 2, 3]), TOO_MUCH),
    "expand to -1": (lambda _: _op("Expand", [-5, 2, 3]), "model.node"),
    "tile 2^40": (lambda _: _op("Tile", [HUGE, 1]), TOO_MUCH),
    "tile -1": (lambda _: _op("Tile", [-1, 1]), "model.node"),
    "tiles of tiles": (lambda _: _tiles(30), TOO_MUCH),
    "joined with itself": (lambda _: _growing("Concat", 60), TOO_MUCH),
    "fill of 2^40": (lambda _: _free("ConstantOfShape", [HUGE]), TOO_MUCH),
    "fill of 100 axes": (lambda _: _free("ConstantOfShape", [1] * 100), TOO_MUCH),
    "fill of -1": (lambda _: _free("ConstantOfShape", [-1]), "model.node"),
    "fill of 1,000,000 axes": (lambda _: _free("ConstantOfShape", [1] * 1_000_000), TOO_MUCH),
    "range of 2^40": (lambda _: _free("Range", 0, HUGE, 1), TOO_MUCH),
    "range by 0": (lambda _: _free("Range", 0, 9, 0), "model.node"),
    "range by NaN": (lambda _: _free("Range", 0.0, 9.0, float("nan")), "model.node"),
    "range by 1e-30": (lambda _: _free("Range", 0.0, 9.0, 1e-30), TOO_MUCH),
    "range of int64": (lambda _: _free("Range", -FAR, FAR, 1), TOO_MUCH),
    "pad by 2^40": (lambda _: _op("Pad", [HUGE, 0, 0, 0]), TOO_MUCH),
    "pad by 2^63 - 1": (lambda _: _op("Pad", [FAR, FAR, FAR, FAR]), TOO_MUCH),
    "pad by -10": (lambda _: _op("Pad", [-10, 0, 0, 0]), "model.node"),
    "reflect 2^30": (lambda _: _op("Pad", [0, SIZE, 0, 0], mode="reflect"), TOO_MUCH),
    "edge 2^30": (lambda _: _op("Pad", [0, SIZE, 0, 0], mode="edge"), TOO_MUCH),
    "wrap 2^30": (lambda _: _op("Pad", [0, SIZE, 0, 0], mode="wrap"), TOO_MUCH),
    "resize to 2^40": (lambda _: _op("Resize", None, None, [HUGE, 3]), TOO_MUCH),
    "resize to 2^30, linear": (
        lambda _: _on([1, 2], "Resize", None, None, [1, SIZE], mode="linear"),
        TOO_MUCH,
    ),
    "resize to 2^30, cubic": (
        lambda _: _on([1, 2], "Resize", None, None, [1, SIZE], mode="cubic"),
        TOO_MUCH,
    ),
    "resize to 2^20, antialiased": (
        lambda _: _on([1, 1 << 20], "Resize", None, None, [1, 1 << 10], mode="linear", antialias=1),
        ("imported", "model.limit"),
    ),
    "resize by infinity": (lambda _: _op("Resize", None, [np.inf, 1.0]), "model.node"),
    "resize by NaN": (lambda _: _op("Resize", None, [np.nan, 1.0]), "model.node"),
    "resize by -1": (lambda _: _op("Resize", None, [-1.0, 1.0]), "model.node"),
    "resize by 1e30": (lambda _: _op("Resize", None, [1e30, 1.0]), TOO_MUCH),
    "resize to 0": (lambda _: _op("Resize", None, None, [0, 3]), ("model.node", "imported")),
    "upsample by 1e30": (lambda _: _op("Upsample", [1e30, 1.0], opset=9), TOO_MUCH),
    "200 tables of 2^20": (lambda _: _resizes(200, 1 << 20), ("imported", "model.limit")),
    "4000 constants of 0.5 MB": (lambda _: _folded_chain(4000, 1 << 17), "imported"),
    "one-hot 2^40": (lambda _: _free("OneHot", [1], HUGE, [0, 1]), TOO_MUCH),
    "one-hot -1": (lambda _: _free("OneHot", [1], -1, [0, 1]), "model.node"),
    "split in 2^40": (lambda _: _op("Split", num_outputs=HUGE), "model.node"),
    "split by 2^40": (lambda _: _op("Split", [HUGE, 2 - HUGE], outputs=2), "model.node"),
    "gather of 2^40": (
        lambda _: _on([1 << 20], "Gather", np.zeros((1, 1, 1)).astype(int)),
        "imported",
    ),
    "outer product of 2^40": (
        lambda _: model(
            [node("MatMul", ["a", "b"])],
            inputs=[info("a", [1 << 20, 1]), info("b", [1, 1 << 20])],
        ),
        TOO_MUCH,
    ),
    "sum of 2^40": (
        lambda _: model(
            [node("Add", ["a", "b"])], inputs=[info("a", [1 << 20, 1]), info("b", [1 << 20])]
        ),
        TOO_MUCH,
    ),
    "einsum of 2^60": (
        lambda _: model(
            [node("Einsum", ["a", "a", "a"], equation="i,j,k->ijk")], inputs=[info("a", [1 << 20])]
        ),
        TOO_MUCH,
    ),
    "einsum of 100,000 letters": (
        lambda _: model([node("Einsum", ["x"], equation="i" * 100_000 + "->i")]),
        ("model.node", "model.unsupported"),
    ),
    "top 2^40": (lambda _: _op("TopK", [HUGE], outputs=2), "model.node"),
    "top -1": (lambda _: _op("TopK", [-1], outputs=2), "model.node"),
    "depth to space of 2^40": (lambda _: _image("DepthToSpace", blocksize=HUGE), "model.node"),
    "depth to space of 0": (lambda _: _image("DepthToSpace", blocksize=0), "model.node"),
    "space to depth of 0": (lambda _: _image("SpaceToDepth", blocksize=0), "model.node"),
    "window of 2^40": (lambda _: _free("HannWindow", HUGE), TOO_MUCH),
    "window of -1": (lambda _: _free("HammingWindow", -1), "imported"),
    "transform of 2^30": (lambda _: _on([4, 1], "DFT", SIZE, opset=17, axis=0), TOO_MUCH),
    "transform of 0": (lambda _: _on([4, 1], "DFT", 0, opset=17, axis=0), "model.node"),
    "frames of 0": (lambda _: _on([1, 64, 1], "STFT", 0, None, 16), "model.node"),
    "mel of 2^60": (lambda _: _free("MelWeightMatrix", SIZE, SIZE, 8000, 0.0, 4000.0), TOO_MUCH),
    "Col2Im of 2^40": (lambda _: _on([1, 4, 1], "Col2Im", [HUGE, 1], [2, 2]), TOO_MUCH),
    "unpool to 2^40": (
        lambda _: _image(
            "MaxUnpool", np.zeros((1, 4, 5, 5), int), [1, 4, HUGE, 5], kernel_shape=[2, 2]
        ),
        TOO_MUCH,
    ),
    "region of 2^40": (
        lambda _: _image(
            "RoiAlign", np.ones((1, 4)), np.zeros(1, int), output_height=HUGE, sampling_ratio=1
        ),
        TOO_MUCH,
    ),
    "region sampled 2^30 times": (
        lambda _: _image("RoiAlign", np.ones((1, 4)), np.zeros(1, int), sampling_ratio=SIZE),
        TOO_MUCH,
    ),
    "affine grid of 2^40": (
        lambda _: _on([1, 2, 3], "AffineGrid", [1, 1, HUGE, 2]),
        TOO_MUCH,
    ),
    "crop to -3": (lambda _: _op("CenterCropPad", [-3, 3]), "model.node"),
    "transposed and cut by 10": (
        lambda _: _conv("ConvTranspose", pads=[10, 0, 0, 0]),
        "model.node",
    ),
    "unpool to -3": (
        lambda _: _image(
            "MaxUnpool", np.zeros((1, 4, 5, 5), int), [1, 4, -3, 5], kernel_shape=[2, 2]
        ),
        "model.node",
    ),
    "crop to 2^40": (lambda _: _op("CenterCropPad", [HUGE, 3]), TOO_MUCH),
    "random of 2^40": (lambda _: _free("RandomNormal", shape=[HUGE]), ("model.limit",)),
    "recurrence of 2^30 steps": (lambda _: _recurrent("RNN", SIZE, 1), TOO_MUCH),
    "recurrence of 2^40 units": (lambda _: _recurrent("GRU", 4, HUGE), TOO_MUCH),
    "recurrence of 0 units": (lambda _: _recurrent("LSTM", 4, 0), "model.node"),
    "recurrence backwards": (
        lambda _: _recurrent("LSTM", 4, 1, direction="evil"),
        "model.node",
    ),
    # Attributes.
    "attribute of another type": (lambda _: _attribute_of_type(AttributeProto.FLOAT), "model.node"),
    "attribute of type 99": (lambda _: _attribute_of_type(0), "model.node"),
    "attribute twice": (lambda _: _attribute_twice(), "model.node"),
    "reference outside of a function": (lambda _: _reference_outside(), "model.node"),
    "unknown attribute": (lambda _: _op("Relu", beta=1.0), "model.node"),
    "missing attribute": (lambda _: _op("DepthToSpace"), "model.node"),
    "too many inputs": (lambda _: _op("Relu", 1), "model.node"),
    "missing input": (lambda _: model([node("MatMul", ["x", ""])]), "model.node"),
    "no inputs": (lambda _: model([node("Relu", [])]), "model.node"),
    "too many outputs": (lambda _: _op("Relu", outputs=2), "model.node"),
    "axis 99": (lambda _: _op("Softmax", axis=99), "model.node"),
    "axis 2^40": (lambda _: _op("Softmax", axis=HUGE), "model.node"),
    "axes twice": (lambda _: _op("Unsqueeze", [0, 0]), "model.node"),
    "1,000,000 axes": (lambda _: _op("Unsqueeze", np.arange(1_000_000)), TOO_MUCH),
    "permutation of 1,000,000": (
        lambda _: _op("Transpose", perm=list(range(1_000_000))),
        "model.node",
    ),
    "stride 0": (lambda _: _conv(strides=[0, 1]), "model.node"),
    "stride -1": (lambda _: _conv(strides=[-1, 1]), "model.node"),
    "stride 2^40": (lambda _: _conv(strides=[HUGE, 1]), ("imported", "model.node")),
    "dilation 0": (lambda _: _conv(dilations=[0, 1]), "model.node"),
    "dilation 2^40": (lambda _: _conv(dilations=[HUGE, 1]), "model.node"),
    "dilation 2^63 - 1": (lambda _: _conv(dilations=[FAR, 1]), "model.node"),
    "group 0": (lambda _: _conv(group=0), "model.node"),
    "group 3": (lambda _: _conv(group=3), "model.node"),
    "group -1": (lambda _: _conv(group=-1), "model.node"),
    "negative padding": (lambda _: _conv(pads=[-1, 0, 0, 0]), "model.node"),
    "padding 2^40": (lambda _: _conv(pads=[HUGE, 0, 0, 0]), TOO_MUCH),
    "one padding": (lambda _: _conv(pads=[1]), "model.node"),
    "kernel of 0": (lambda _: _conv(kernel=0), ("model.node", "imported")),
    "kernel that is not the weight's": (lambda _: _conv(kernel_shape=[9, 9]), "model.node"),
    "transposed stride 2^40": (lambda _: _conv("ConvTranspose", strides=[HUGE, 1]), TOO_MUCH),
    "transposed stride 0": (lambda _: _conv("ConvTranspose", strides=[0, 1]), "model.node"),
    "output padding 2^40": (
        lambda _: _conv("ConvTranspose", output_padding=[HUGE, 0]),
        TOO_MUCH,
    ),
    "output shape -1": (lambda _: _conv("ConvTranspose", output_shape=[-1, 5]), "model.node"),
    "pooling kernel 0": (lambda _: _image("MaxPool", kernel_shape=[0, 1]), "model.node"),
    "pooling kernel 2^40": (lambda _: _image("MaxPool", kernel_shape=[HUGE, 1]), "model.node"),
    "pooling stride 0": (
        lambda _: _image("AveragePool", kernel_shape=[1, 1], strides=[0, 1]),
        "model.node",
    ),
    "pooling padding 2^40": (
        lambda _: _image("AveragePool", kernel_shape=[1, 1], pads=[HUGE, 0, 0, 0]),
        TOO_MUCH,
    ),
    "pooling norm 0": (lambda _: _image("LpPool", kernel_shape=[1, 1], p=0), "model.node"),
    "auto_pad": (lambda _: _image("MaxPool", kernel_shape=[1, 1], auto_pad="EVIL"), "model.node"),
    "normalized over 0": (lambda _: _image("LRN", size=0), "model.node"),
    "0 groups of channels": (
        lambda _: _image("GroupNormalization", np.ones(4), np.ones(4), opset=21, num_groups=0),
        "model.node",
    ),
    "0 heads": (
        lambda _: model(
            [node("Attention", ["x", "x", "x"], q_num_heads=0, kv_num_heads=0)],
            inputs=[info("x", [1, 4, 8])],
            opset=23,
        ),
        "model.node",
    ),
    "blocks of 0": (
        lambda _: _op("QuantizeLinear", np.ones((2, 3)), opset=21, block_size=0, axis=99),
        "model.node",
    ),
    "blocks of -1": (
        lambda _: _op("QuantizeLinear", np.ones((2, 3)), opset=21, block_size=-1),
        "model.node",
    ),
    "reshape": (lambda _: _op("Reshape", [4, 4]), "model.node"),
    "reshape -1 -1": (lambda _: _op("Reshape", [-1, -1]), "model.node"),
    "reshape to 0": (lambda _: _op("Reshape", [0, 0, 0, 0]), "model.node"),
    "reshape -2": (lambda _: _op("Reshape", [-2, 3]), "model.node"),
    "reshape to 2^63": (lambda _: _op("Reshape", [FAR, FAR]), "model.node"),
    "slice step 0": (lambda _: _op("Slice", [0], [1], [0], [0]), "model.node"),
    "slice of int64": (lambda _: _op("Slice", [-FAR - 1], [FAR], [0], [FAR]), "imported"),
    "gather out of range": (lambda _: _op("Gather", [7]), "model.node"),
    "gather of 100 batches": (
        lambda _: _op("GatherND", np.zeros((2, 1), int), batch_dims=100),
        "model.node",
    ),
    "scatter out of range": (
        lambda _: _op("ScatterElements", np.full((1, 1), 7), np.ones((1, 1))),
        "model.node",
    ),
    "split": (lambda _: _op("Split", [5]), "model.node"),
    "transpose": (lambda _: _op("Transpose", perm=[0, 0]), "model.node"),
    "squeeze": (lambda _: _op("Squeeze", [0]), "model.node"),
    "triangle at 2^63 - 1": (lambda _: _op("Trilu", FAR), "imported"),
    "diagonal at 2^63 - 1": (lambda _: _op("EyeLike", k=FAR), "imported"),
    "diagonal at -2^63": (lambda _: _op("EyeLike", k=-FAR - 1), "imported"),
    "normalized over 2^63 - 1": (lambda _: _image("LRN", size=FAR), "imported"),
    "offsets at strides of 2^63 - 1": (lambda _: _offsets(strides=[FAR, 1]), "model.node"),
    "offsets at dilations of 2^63 - 1": (lambda _: _offsets(dilations=[FAR, 1]), "model.node"),
    "offsets and padding of 2^63 - 1": (lambda _: _offsets(pads=[FAR, 0, 0, 0]), "model.node"),
    "division of integers by 0": (
        lambda _: model(
            [node("Div", ["a", "b"], ["c"]), node("Expand", ["x", "c"])],
            weights=[ints("a", [5]), ints("b", [0])],
        ),
        ("model.node", "model.unsupported", "model.limit"),
    ),
    "remainder of INT64_MIN": (
        lambda _: model(
            [node("Mod", ["a", "b"], ["c"]), node("Unsqueeze", ["x", "c"])],
            weights=[ints("a", [-FAR - 1]), ints("b", [-1])],
        ),
        "imported",
    ),
    "cast to nothing": (lambda _: _op("Cast", to=99), "model.dtype"),
    "cast to text": (lambda _: _op("Cast", to=TensorProto.STRING), "model.dtype"),
    "shapes that differ": (
        lambda _: model([node("Add", ["x", "w"])], weights=[tensor("w", [4], bytes(16))]),
        "model.node",
    ),
    "types that differ": (
        lambda _: model([node("Add", ["x", "w"])], weights=[ints("w", [1, 2, 3])]),
        "model.node",
    ),
    "condition of three": (
        lambda _: model([node("Where", ["w", "x", "x"])], weights=[ints("w", [1, 0, 1])], opset=17),
        "model.node",
    ),
    "trips of two": (
        lambda _: model(
            [
                helper.make_node(
                    "Loop",
                    ["m", "go", "x"],
                    ["y"],
                    body=helper.make_graph(
                        [node("Relu", ["s"], ["s1"])],
                        "body",
                        [
                            info("i", [], TensorProto.INT64),
                            info("c", [], TensorProto.BOOL),
                            info("s", [2, 3]),
                        ],
                        [helper.make_empty_tensor_value_info(n) for n in ("c", "s1")],
                    ),
                )
            ],
            weights=[ints("m", [1, 2]), flag("go", True)],
        ),
        ("model.node", "imported"),
    ),
    "shape that the run computes": (
        lambda _: model(
            [node("Reshape", ["x", "s"])],
            inputs=[info("x", [6]), info("s", [2], TensorProto.INT64)],
        ),
        "model.unsupported",
    ),
}
