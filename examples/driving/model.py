"""Build the example's models: `python model.py OUT` writes drive.onnx, frame.onnx, wide_frame.onnx.

drive.onnx is a network of the kind that drives a car: two cameras, the driver's wishes and five
seconds of its own features go in, one packed row of predictions comes out. Its weights are random,
from a fixed seed, so its predictions mean nothing; its shapes, operators and sizes are believable.
frame.onnx and wide_frame.onnx make what it sees of a camera's frame. README.md has the tables.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

Array = np.ndarray[Any, Any]

SEED = 20
OPSET = 17

CAMERA = (1208, 1928)  # rows and columns of a frame
ROWS, COLUMNS = 128, 256  # of each plane that the network sees; its luma has twice as many
PLANES = 6
FEATURES = 512
PAST = 99  # features and desires of 99 runs, at 20 Hz, and the current ones: five seconds
DESIRES = 8

# The parts of `outputs` and their sizes. Where a mean has a deviation, that follows at once.
SLICES = (
    ("plan", 5 * (2 * 33 * 15 + 1)),  # 5 paths: 33 points of position, speed, .. (15), its weight
    ("lane_lines", 4 * 2 * 33 * 2),  # 4 lines: 33 points across and up
    ("lane_line_prob", 4 * 2),
    ("road_edges", 2 * 2 * 33 * 2),
    ("lead", 2 * (2 * 6 * 4 + 3)),  # 2 guesses: 6 times of x, y, speed, acceleration; weights
    ("lead_prob", 3),
    ("desire_state", DESIRES),
    ("desire_pred", 4 * DESIRES),
    ("pose", 2 * 6),  # speed and turn rate
    ("wide_from_device", 2 * 3),
    ("road_transform", 2 * 6),
    ("features", FEATURES),
)
OUTPUTS = sum(size for _, size in SLICES)
HEADS = (  # width of the hidden layer, and what it predicts
    (512, ("plan",)),
    (256, ("lane_lines", "lane_line_prob", "road_edges")),
    (256, ("lead", "lead_prob")),
    (128, ("desire_state", "desire_pred")),
    (128, ("pose", "wide_from_device", "road_transform")),
)


class Stage(NamedTuple):
    """Blocks of the trunk. stride: of the first one. gated: by squeeze and excitation."""

    channels: int
    blocks: int
    stride: int
    kernel: int
    expansion: int
    gated: bool


STEM = 24
STAGES = (
    Stage(24, 1, 1, 3, 1, False),
    Stage(32, 2, 2, 3, 4, False),
    Stage(48, 2, 2, 5, 4, False),
    Stage(96, 3, 2, 3, 6, True),
    Stage(128, 3, 1, 5, 6, True),
    Stage(192, 3, 2, 5, 6, True),
)
HEIGHT, WIDTH = ROWS // 32, COLUMNS // 32  # of the last stage's maps
ATTENTION_HEADS = 8

# What a layer's weights are multiplied by, beside 1/sqrt(inputs), so that values stay near 1.
LINEAR = 1.0
AFTER_SWISH = 1.68  # x * sigmoid(x) leaves 0.36 of a normal's square
AFTER_GATE = 3.4  # a sigmoid near 1/2 as well
AFTER_ELU = 1.25


class Net:
    """Nodes and weights of a graph as they are added."""

    def __init__(self, seed: int = SEED) -> None:
        self.nodes: list[Any] = []
        self.weights: dict[str, Array] = {}
        self.random = np.random.default_rng(seed)

    def add(self, kind: str, *inputs: str, name: str, **attributes: Any) -> str:
        """A node with one output, both of this name; the name."""
        self.nodes.append(helper.make_node(kind, inputs, [name], name, **attributes))
        return name

    def constant(self, name: str, value: Any, dtype: Any = np.float32) -> str:
        self.weights[name] = np.asarray(value, dtype)
        return name

    def drawn(self, name: str, shape: tuple[int, ...], scale: float) -> str:
        return self.constant(name, self.random.standard_normal(shape) * scale)

    def linear(self, x: str, name: str, inputs: int, outputs: int, gain: float) -> str:
        """x [.., inputs] -> [.., outputs]."""
        weight = self.drawn(f"{name}.weight", (inputs, outputs), gain / np.sqrt(inputs))
        bias = self.drawn(f"{name}.bias", (outputs,), 0.1)
        return self.add(
            "Add", self.add("MatMul", x, weight, name=f"{name}.product"), bias, name=name
        )

    def convolution(
        self,
        x: str,
        name: str,
        inputs: int,
        outputs: int,
        gain: float,
        *,
        kernel: int = 1,
        stride: int = 1,
        depthwise: bool = False,
    ) -> str:
        """x [1, inputs, H, W] -> [1, outputs, H / stride, W / stride]; batch norm is folded in."""
        each = 1 if depthwise else inputs
        scale = gain / np.sqrt(each * kernel * kernel)
        weight = self.drawn(f"{name}.weight", (outputs, each, kernel, kernel), scale)
        bias = self.drawn(f"{name}.bias", (outputs,), 0.1)
        return self.add(
            "Conv",
            *(x, weight, bias),
            name=name,
            kernel_shape=[kernel, kernel],
            strides=[stride, stride],
            pads=[kernel // 2] * 4,
            group=inputs if depthwise else 1,
        )

    def swish(self, x: str) -> str:
        return self.add("Mul", x, self.add("Sigmoid", x, name=f"{x}.sigmoid"), name=f"{x}.swish")

    def model(self, inputs: dict[str, tuple[Any, ...]], outputs: dict[str, tuple[Any, ...]]) -> Any:
        """The checked model. inputs, outputs: name -> element type and sizes."""
        ports = [
            [
                helper.make_tensor_value_info(name, kind, shape)
                for name, (kind, *shape) in group.items()
            ]
            for group in (inputs, outputs)
        ]
        weights = [numpy_helper.from_array(array, name) for name, array in self.weights.items()]
        graph = helper.make_graph(self.nodes, "driving", *ports, weights)
        opsets = [helper.make_opsetid("", OPSET)]
        model = helper.make_model(graph, opset_imports=opsets, ir_version=8)
        onnx.checker.check_model(model, full_check=True)
        return model


# --- the driving model ----------------------------------------------------------------------------


def block(net: Net, x: str, name: str, inputs: int, outputs: int, stage: Stage, stride: int) -> str:
    """A mobile inverted bottleneck, as of EfficientNet."""
    wide = inputs * stage.expansion
    y = x
    if stage.expansion > 1:
        y = net.swish(net.convolution(x, f"{name}.expand", inputs, wide, LINEAR))
    depth = {"kernel": stage.kernel, "stride": stride, "depthwise": True}
    y = net.swish(net.convolution(y, f"{name}.depth", wide, wide, AFTER_SWISH, **depth))
    gain = AFTER_SWISH
    if stage.gated:
        squeezed = max(8, inputs // 4)
        mean = net.add("GlobalAveragePool", y, name=f"{name}.mean")
        gate = net.swish(net.convolution(mean, f"{name}.squeeze", wide, squeezed, gain))
        gate = net.convolution(gate, f"{name}.excite", squeezed, wide, gain)
        y = net.add("Mul", y, net.add("Sigmoid", gate, name=f"{name}.gate"), name=f"{name}.gated")
        gain = AFTER_GATE
    residual = inputs == outputs and stride == 1
    y = net.convolution(y, f"{name}.project", wide, outputs, gain / (2 if residual else 1))
    return net.add("Add", x, y, name=f"{name}.sum") if residual else y


def vision(net: Net, width: float) -> str:
    """Two stacks of planes, uint8 [1, 12, 128, 256] -> the current feature, float32 [1, 512]."""

    def channels(count: int) -> int:
        return max(8, round(count * width / 8) * 8)

    middle = net.constant("middle", 128)
    scale = net.constant("scale", 1 / 128)
    seen = []
    for camera in ("frames", "wide_frames"):
        x = net.add("Cast", camera, name=f"{camera}.float", to=TensorProto.FLOAT)
        x = net.add("Sub", x, middle, name=f"{camera}.centered")
        x = net.add("Mul", x, scale, name=f"{camera}.scaled")
        planes = 2 * PLANES
        x = net.convolution(
            x, f"{camera}.stem", planes, channels(STEM), AFTER_SWISH, kernel=3, stride=2
        )
        seen.append(net.swish(x))
    x = net.add("Concat", *seen, name="cameras", axis=1)
    inputs = 2 * channels(STEM)
    for number, stage in enumerate(STAGES):
        outputs = channels(stage.channels)
        for repeat in range(stage.blocks):
            stride = 1 if repeat else stage.stride
            x = block(net, x, f"stage{number}.{repeat}", inputs, outputs, stage, stride)
            inputs = outputs
    x = net.swish(net.convolution(x, "top", inputs, channels(64), LINEAR))
    x = net.add("Flatten", x, name="flat", axis=1)
    x = net.linear(x, "feature", channels(64) * HEIGHT * WIDTH, FEATURES, AFTER_SWISH)
    return normalized(net, x, "feature")


def normalized(net: Net, x: str, name: str) -> str:
    size = FEATURES
    scale = net.constant(f"{name}.norm.scale", 1 + 0.1 * net.random.standard_normal(size))
    bias = net.drawn(f"{name}.norm.bias", (size,), 0.1)
    return net.add("LayerNormalization", x, scale, bias, name=f"{name}.norm", axis=-1)


def context(net: Net, feature: str, desire: str) -> str:
    """The current feature attends to the last five seconds: [1, 1, 512] -> [1, 1, 512]."""
    size, heads = FEATURES, ATTENTION_HEADS
    wished = net.linear("desires", "past.desire", DESIRES, size, LINEAR)
    places = net.drawn("past.places", (PAST, size), 0.3)
    past = net.add(
        "Add", "features", net.add("Add", wished, places, name="past.placed"), name="past"
    )
    wished = net.linear(desire, "present.desire", DESIRES, size, LINEAR)
    present = net.add("Add", feature, wished, name="present")
    query = net.linear(present, "query", size, size, LINEAR)
    keys, values = (net.linear(past, name, size, size, LINEAR) for name in ("keys", "values"))
    shape = net.constant("attention.split", [0, -1, heads, size // heads], np.int64)

    def split(x: str, order: tuple[int, ...]) -> str:
        x = net.add("Reshape", x, shape, name=f"{x}.split")
        return net.add("Transpose", x, name=f"{x}.heads", perm=order)

    scores = net.add("MatMul", split(query, (0, 2, 1, 3)), split(keys, (0, 2, 3, 1)), name="scores")
    root = net.constant("scores.root", 1 / np.sqrt(size / heads))
    scores = net.add("Mul", scores, root, name="scores.scaled")
    scores = net.add("Softmax", scores, name="attention", axis=-1)
    x = net.add("MatMul", scores, split(values, (0, 2, 1, 3)), name="attended")
    x = net.add("Transpose", x, name="attended.times", perm=(0, 2, 1, 3))
    joined = net.constant("attention.joined", [0, 0, size], np.int64)
    x = net.add("Reshape", x, joined, name="attended.joined")
    x = net.add("Add", present, net.linear(x, "mixed", size, size, 3.0), name="recalled")
    y = net.add("Elu", net.linear(x, "widened", size, 2 * size, LINEAR), name="widened.elu")
    x = net.add("Add", x, net.linear(y, "narrowed", 2 * size, size, AFTER_ELU), name="thought")
    return normalized(net, x, "context")


def drive(width: float = 1.0) -> Any:
    """drive.onnx. width: of the trunk and the heads, as a part of the full one."""
    net = Net()
    flat = net.constant("row", [1, FEATURES], np.int64)
    feature = vision(net, width)
    time = net.constant("time", [1, 1, FEATURES], np.int64)
    feature = net.add("Reshape", feature, time, name="features_out")
    # Only a wish that begins counts, however long it is held.
    begun = net.add("Sub", "desire", "last_desire", name="desire.change")
    begun = net.add("Relu", begun, name="desire.begun")
    net.add("Identity", "desire", name="last_desire_out")
    moment = net.constant("moment", [1, 1, DESIRES], np.int64)
    begun = net.add("Reshape", begun, moment, name="desires_out")
    x = net.add("Reshape", context(net, feature, begun), flat, name="context.row")
    x = net.add("Concat", x, "traffic_convention", name="situation", axis=1)
    sizes = dict(SLICES)
    parts = []
    for hidden, names in HEADS:
        head = names[0]
        hidden = max(32, round(hidden * width / 8) * 8)
        y = net.linear(x, f"{head}.hidden", FEATURES + 2, hidden, LINEAR)
        y = net.add("Elu", y, name=f"{head}.elu")
        parts.append(net.linear(y, head, hidden, sum(sizes[name] for name in names), AFTER_ELU))
    parts.append(net.add("Reshape", feature, flat, name="feature.row"))
    net.add("Concat", *parts, name="outputs", axis=1)
    floats, bytes = TensorProto.FLOAT, TensorProto.UINT8
    return net.model(
        {
            "frames": (bytes, 1, 2 * PLANES, ROWS, COLUMNS),
            "wide_frames": (bytes, 1, 2 * PLANES, ROWS, COLUMNS),
            "desire": (floats, 1, DESIRES),
            "traffic_convention": (floats, 1, 2),
            "last_desire": (floats, 1, DESIRES),
            "desires": (floats, 1, PAST, DESIRES),
            "features": (floats, 1, PAST, FEATURES),
        },
        {
            "outputs": (floats, 1, OUTPUTS),
            "last_desire_out": (floats, 1, DESIRES),
            "desires_out": (floats, 1, 1, DESIRES),
            "features_out": (floats, 1, 1, FEATURES),
        },
    )


# --- what it sees of a camera ---------------------------------------------------------------------


def frame(prefix: str = "", camera: tuple[int, int] = CAMERA) -> Any:
    """frame.onnx: a camera's NV12 frame -> six planes as the model sees them. See README.md.

    prefix: of the names of inputs and output. camera: rows and columns, both even.
    """
    rows, columns = camera
    net = Net()
    y, uv, transform = (f"{prefix}{name}" for name in ("y", "uv", "transform"))
    # Where each pixel of the planes lies among the model's luma pixels: luma is four planes by the
    # parity of column and row, and a pixel of U or V lies in the middle of four of luma.
    across, down = np.arange(COLUMNS) * 2.0, np.arange(ROWS)[:, None] * 2.0
    phases = np.arange(4)[:, None, None]
    nine = net.constant("nine", [9], np.int64)
    flat = net.add("Reshape", transform, nine, name="transform.flat")
    parts = [f"transform.{row}{column}" for row in range(3) for column in range(3)]
    net.nodes.append(helper.make_node("Split", [flat], parts, "transform.parts", axis=0))

    def place(name: str, x: Array, y: Array, half: bool) -> str:
        """The number of the camera's pixel that is nearest to each of the model's, at its edge."""
        u, v = net.constant(f"{name}.u", x), net.constant(f"{name}.v", y)
        sums = []
        for row in range(3):
            a, b, c = parts[3 * row : 3 * row + 3]
            product = net.add("Mul", v, b, name=f"{name}.{row}.v")
            constant = net.add("Add", product, c, name=f"{name}.{row}.rest")
            product = net.add("Mul", u, a, name=f"{name}.{row}.u")
            sums.append(net.add("Add", product, constant, name=f"{name}.{row}"))
        found = []
        for axis, (total, size) in enumerate(zip(sums, (columns, rows), strict=False)):
            step = f"{name}.{'xy'[axis]}"
            at = net.add("Div", total, sums[2], name=f"{step}.exact")
            if half:  # (at - 1/2) / 2, in pixels of U and V
                size //= 2
                at = net.add("Mul", at, net.constant(f"{step}.half", 0.5), name=f"{step}.halved")
                at = net.add(
                    "Sub", at, net.constant(f"{step}.quarter", 0.25), name=f"{step}.middle"
                )
            at = net.add("Round", at, name=f"{step}.nearest")
            least, most = net.constant(f"{step}.least", 0), net.constant(f"{step}.most", size - 1)
            at = net.add("Clip", at, least, most, name=f"{step}.inside")
            found.append(net.add("Cast", at, name=step, to=TensorProto.INT32))
        size = net.constant(f"{name}.columns", columns // 2 if half else columns, np.int32)
        start = net.add("Mul", found[1], size, name=f"{name}.row")
        return net.add("Add", start, found[0], name=name)

    luma = place("luma", across + phases // 2, down + phases % 2, half=False)
    chroma = place("chroma", across + 0.5, down + 0.5, half=True)
    pixels = net.add("Reshape", y, net.constant("all", [-1], np.int64), name="y.pixels")
    light = net.add("Gather", pixels, luma, name="light", axis=0)
    pairs = net.add("Reshape", uv, net.constant("pairs", [-1, 2], np.int64), name="uv.pixels")
    color = net.add("Gather", pairs, chroma, name="color.pairs", axis=0)
    color = net.add("Transpose", color, name="color", perm=(2, 0, 1))
    planes = net.add("Concat", light, color, name="planes", axis=0)
    shape = net.constant("shape", [1, PLANES, ROWS, COLUMNS], np.int64)
    net.add("Reshape", planes, shape, name=f"{prefix}frame")
    bytes = TensorProto.UINT8
    return net.model(
        {
            y: (bytes, rows, columns),
            uv: (bytes, rows // 2, columns // 2, 2),
            transform: (TensorProto.FLOAT, 3, 3),
        },
        {f"{prefix}frame": (bytes, 1, PLANES, ROWS, COLUMNS)},
    )


# --- the files ------------------------------------------------------------------------------------


def slices() -> dict[str, dict[str, list[int]]]:
    """The named parts of `outputs`: where each begins and ends."""
    ends = np.cumsum([size for _, size in SLICES]).tolist()
    return {
        "outputs": {name: [end - size, end] for (name, size), end in zip(SLICES, ends, strict=True)}
    }


def test_card(seed: int) -> Array:
    """What the states of the frames hold before any came, so that self-tests see something."""
    row, column = np.mgrid[0:ROWS, 0:COLUMNS]
    tiles = np.random.default_rng(seed).integers(0, 128, (2 * PLANES, ROWS // 8, COLUMNS // 8))
    smooth = (row + column // 2) % 128
    return (np.kron(tiles, np.ones((8, 8), int)) + smooth)[None].astype(np.uint8)


def test_transform(camera: tuple[int, int]) -> Array:
    """A transform for self-tests: no pixel's place is so near to the middle between two that
    another device might round it to the other.
    """
    down, across = camera[0] * 8 // (2 * ROWS) / 8, camera[1] * 8 // (2 * COLUMNS) / 8
    affine = [[across, -1 / 8, 3.3], [1 / 8, down, 1.3], [0, 0, 1]]
    return (2 * np.array(affine)).astype(np.float32)


def size_of(text: str) -> tuple[int, int]:
    rows, columns = (int(part) for part in text.split("x"))
    if rows < 2 or columns < 2 or rows % 2 or columns % 2:
        raise ValueError(text)
    return rows, columns


def main() -> None:
    parser = argparse.ArgumentParser(description="Build the models of the driving example.")
    parser.add_argument("out", type=Path, help="a folder")
    parser.add_argument("--width", type=float, default=1.0, help="of the network, 0.25 for tests")
    parser.add_argument("--camera", type=size_of, default=CAMERA, metavar="ROWSxCOLUMNS")
    options = parser.parse_args()
    out: Path = options.out
    out.mkdir(parents=True, exist_ok=True)
    models = {
        "drive": drive(options.width),
        "frame": frame(camera=options.camera),
        "wide_frame": frame("wide_", options.camera),
    }
    for name, model in models.items():
        onnx.save(model, out / f"{name}.onnx")
    (out / "slices.json").write_text(json.dumps(slices(), indent=1) + "\n", "ascii")
    np.save(out / "transform.npy", test_transform(options.camera))
    for seed, name in enumerate(("frames", "wide_frames")):
        np.save(out / f"{name}.npy", test_card(seed))
    weights = sum(int(np.prod(array.dims)) for array in models["drive"].graph.initializer)
    print(f"{out}: {', '.join(models)}; {weights / 1e6:.1f} million weights")


if __name__ == "__main__":
    main()
