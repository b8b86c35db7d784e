"""Fits constants that are alone in their rule to measurements, each by kernels that it decides.

* `BORDERS`, of layers with a filter for each channel: whether a tile lies along the rows of the
  picture or across them goes by the numbers that it reads, and by its borders.
* `GAIN`, of products whose columns are whole vectors: how much less panels of which the last
  overlaps must cost than those of a width that divides the columns.
* `NUMBER`, on devices, of first layers: what a number's load costs, of a vector's.
* `LOSS`, on devices, of whole networks: by how much a kernel may be slower by the estimate, if it
  then is one with others. A kernel is compiled once for `RUNS` runs, which the seconds have.

Each shape is compiled with every value on a grid, and kernels that differ are measured in turn. A
shape with the same kernels for all values says nothing and is left out.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx

from tests.bench import cases
from tests.study import fit, networks
from tests.study.device import replayed
from tests.study.fit import Inputs, Measured, Shape
from tests.study.sides import Say
from tinyedge.core.compiler.optimize import common_tiles, tiles
from tinyedge.core.program.program import Program

os.environ["MESA_SHADER_CACHE_DISABLE"] = "true"  # or compiling is once, and then reading a file

RUNS = 10  # for which a network's kernels are compiled once
LEAST = 0.3  # seconds for which a device's runs are repeated, at least


@dataclass(frozen=True)
class Constant:
    """One of a module, the values that are tried, and the shapes of networks that it decides."""

    module: Any
    grid: tuple[float, ...]
    shapes: Callable[[Sequence[str]], list[Shape]]
    target: str = "cpu"
    runs: int = 0  # for which a shape is compiled once; 0: compiling does not count


# The shapes.


# Channels, height, width, sides of the filter, stride: rows of which tiles are a part.
WINDOWS = (
    *((8, 24, 160, (3, 3), 1), (32, 24, 160, (3, 3), 1), (64, 12, 160, (3, 3), 1)),
    *((96, 24, 160, (3, 3), 2), (16, 48, 320, (3, 3), 2), (240, 28, 28, (5, 5), 1)),
)


def windows(models: Sequence[str]) -> list[Shape]:
    """Layers of networks with a filter for each channel, and some of long rows."""
    own = [each_channel(c, h, w, sides, s, sides[0] // 2) for c, h, w, sides, s in WINDOWS]
    return list({shape.name: shape for shape in (*fit.shapes(models, window), *own)}.values())


def window(node: Any, x: tuple[int, ...], w: tuple[int, ...]) -> Shape | None:
    """A convolution with a filter for each channel, channels innermost as in a network."""
    given = {each.name: onnx.helper.get_attribute_value(each) for each in node.attribute}
    if node.op_type != "Conv" or w[1] != 1 or not given.get("group", 1) == w[0] == x[1]:
        return None
    return each_channel(*x[1:], w[2:], given["strides"][0], given.get("pads", [0])[0])


def each_channel(
    channels: int, height: int, width: int, sides: tuple[int, ...], stride: int, pad: int
) -> Shape:
    weight = fit.random((channels, 1, *sides))

    def convolve(x: Any) -> Any:
        from tinyedge import Tensor

        first = x.permute((0, 3, 1, 2))
        settings: dict[str, Any] = {"strides": (stride,) * 2, "pads": ((pad, pad),) * 2}
        y = first.conv(Tensor.weight("w", weight), groups=channels, **settings)
        return y.permute((0, 2, 3, 1))

    name = f"{channels}x{height}x{width}, {sides[0]}x{sides[1]}/{stride}, each channel"
    return Shape(name, convolve, {"x": fit.random((1, height, width, channels))})


# Columns for which panels that overlap cost little less than others, or little more.
COLUMNS = (56, 104, 160, 256, 304, 352, 512, 520, 544, 640, 736, 784, 992, 1000, 1024, 1280)


def products(models: Sequence[str]) -> list[Shape]:
    """Those of networks, convolutions of 1 x 1 among them, and some of other widths."""
    found = fit.shapes(models, product)
    own = [fit.product(197, 256, columns) for columns in COLUMNS]
    return list({shape.name: shape for shape in (*found, *own)}.values())


def product(node: Any, x: tuple[int, ...], w: tuple[int, ...]) -> Shape | None:
    given = {each.name: onnx.helper.get_attribute_value(each) for each in node.attribute}
    if node.op_type != "Conv" or w[2:] != (1, 1) or given.get("group", 1) != 1:
        return None if node.op_type == "Conv" else fit.contraction(node, x, w)
    return fit.product(x[2] * x[3] // given["strides"][0] ** 2, w[1], w[0])


# Channels, height, width, filters, side of the filter, stride: tiles that divide a row, or do not.
PICTURES = (
    *((3, 128, 128, 32, 3, 1), (3, 128, 130, 32, 3, 1), (3, 120, 120, 32, 3, 1)),
    *((3, 160, 160, 32, 3, 1), (3, 112, 112, 32, 3, 1), (3, 224, 224, 64, 3, 1)),
    *((3, 224, 224, 32, 3, 2), (3, 224, 224, 64, 7, 2), (1, 64, 64, 32, 5, 1)),
)


def first_layers(models: Sequence[str]) -> list[Shape]:
    """Those of networks, and some of other sizes: of a picture's channels, which lie apart."""
    found = fit.shapes(models, first_layer)
    own = [
        picture((1, c, h, w), (filters, c, k, k), s, k // 2) for c, h, w, filters, k, s in PICTURES
    ]
    return list({shape.name: shape for shape in (*found, *own)}.values())


def first_layer(node: Any, x: tuple[int, ...], w: tuple[int, ...]) -> Shape | None:
    given = {each.name: onnx.helper.get_attribute_value(each) for each in node.attribute}
    if node.op_type != "Conv" or x[1] not in (1, 3) or given.get("group", 1) != 1:
        return None
    return picture(x, w, given["strides"][0], given.get("pads", [0])[0])


def picture(x: tuple[int, ...], w: tuple[int, ...], stride: int, pad: int) -> Shape:
    """A convolution that leaves channels innermost, as the next layer reads them."""
    alone = fit.convolution(x, w, stride, pad)
    function = alone.function
    return Shape(alone.name, lambda x: function(x).permute((0, 2, 3, 1)), alone.inputs)


def whole(models: Sequence[str]) -> list[Shape]:
    """Networks."""
    found = []
    for name in models:
        path = cases.ALL[name].path
        found.append(Shape(name, path, networks.feeds(onnx.load(path))))
    return found


CONSTANTS = {
    "BORDERS": Constant(tiles, (0.01, 0.03, 0.1, 0.2, 0.4, 1.0), windows),
    "GAIN": Constant(tiles, (0.8, 0.85, 0.9, 0.95, 0.98, 1.0), products),
    "NUMBER": Constant(tiles, (0.25, 0.33, 0.42, 0.5, 0.7, 1.0), first_layers, "webgpu"),
    "LOSS": Constant(common_tiles, (0.001, 0.03, 0.1, 0.2, 0.4), whole, "webgpu", RUNS),
}


# Measuring.


def device_seconds(program: Program, inputs: Inputs) -> tuple[float, float]:
    """Seconds of compiling all kernels with a first run, beyond a run, by a device that has none
    yet; and of a run. Of the processor, but for a run where the device is another one.
    """
    device, clock = replayed.fresh(program.target)
    begin = time.process_time()
    made = replayed.Replayed(device, replayed.built(program, device), inputs)
    made.run()
    first = time.process_time() - begin
    run, begin = first, time.perf_counter()
    while time.perf_counter() - begin < LEAST:
        run = min(run, replayed.seconds(made, clock))
    made.close()
    device.close()
    return max(0.0, first - run), run


def measure_shape(name: str, shape: Shape, profile: str, runs: int) -> Measured:
    """A shape's kernels by the constant's value; not measured where all are the same."""
    constant = CONSTANTS[name]
    found = Measured(shape)

    def taken(program: Program, inputs: Inputs, runs: int) -> float:
        if constant.target == "cpu":
            return fit.seconds_of(program, inputs, runs)
        compiling, run = device_seconds(program, inputs)
        text = fit.text_of(program)
        found.compiling[text] = min(compiling, found.compiling.get(text, compiling))
        return run + (compiling / constant.runs if constant.runs else 0.0)

    found.taken = taken
    for value in constant.grid:
        with fit.constants(constant.module, {name: value}):
            program = fit.compiled(shape, profile, target=constant.target)
        found.chosen[value] = fit.text_of(program)
        found.programs.setdefault(found.chosen[value], program)
    for _ in range(fit.ROUNDS if len(found.programs) > 1 else 0):
        found.measure(found.programs, runs)
    return found


def measure(name: str, models: Sequence[str], profile: str, runs: int, say: Say) -> dict[str, Any]:
    """The report: a row for each shape that the constant decides, one for each value, and the
    constant before and after.
    """
    constant = CONSTANTS[name]
    shapes = constant.shapes(models)
    found = []
    for shape in shapes:
        say(f"{name}: {shape.name}")
        found.append(measure_shape(name, shape, profile, runs))
    decided = [each for each in found if each.seconds]
    now = {name: getattr(constant.module, name)}

    def loss(values: fit.Constants) -> float:
        return float(np.mean([each.loss(each.chosen[values[name]]) for each in decided] or [0]))

    unknown = [each.unknown(each.chosen[now[name]]) for each in decided]
    fitted, losses = fit.search({name: constant.grid}, now, loss, float(np.mean(unknown or [0])))
    return {
        "target": constant.target,
        "runs": constant.runs,
        "shapes": len(shapes),
        "now": now,
        "fitted": fitted,
        "loss": losses,
        "rows": [_row(each, now[name], fitted[name]) for each in decided],
        "values": [
            {
                "value": value,
                "loss": loss({name: value}),
                "kernels": sum(len(each.programs[each.chosen[value]].kernels) for each in decided),
                "compiling": sum(each.compiling.get(each.chosen[value], 0.0) for each in decided),
            }
            for value in constant.grid
        ],
    }


def _row(found: Measured, now: float, fitted: float) -> dict[str, Any]:
    return {
        "shape": found.shape.name,
        "tried": len(found.seconds),
        "best_seconds": found.best,
        "values": [v for v, text in found.chosen.items() if not found.loss(text)],
    } | {
        f"{word}_{what}": of(found.chosen[value])
        for word, value in (("now", now), ("fitted", fitted))
        for what, of in (("loss", found.loss), ("unknown", found.unknown))
    }
