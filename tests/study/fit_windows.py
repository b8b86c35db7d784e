"""Fits what a border costs a window's tile to measurements: of filters for each channel.

Such a layer's tile lies along the rows of the picture or across them, by the numbers that it reads
and by its borders (`tiles.BORDERS`). Each layer of some networks is compiled alone with every cost
on a grid, with channels innermost as in a network; kernels that differ are measured in turn.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx

from tests.study import fit
from tests.study.fit import Measured, Shape
from tests.study.sides import Say
from tinyedge.core.compiler.optimize import tiles

GRIDS = {"BORDERS": (0.01, 0.03, 0.1, 0.2, 0.4, 1.0)}


def window(node: Any, x: tuple[int, ...], w: tuple[int, ...]) -> Shape | None:
    """A convolution with a filter for each channel."""
    given = {each.name: onnx.helper.get_attribute_value(each) for each in node.attribute}
    if node.op_type != "Conv" or w[1] != 1 or not given.get("group", 1) == w[0] == x[1]:
        return None
    _, channels, height, width = x
    stride, pad, weight = given["strides"][0], given.get("pads", [0])[0], fit.random(w)

    def convolve(x: Any) -> Any:
        from tinyedge import Tensor

        first = x.permute((0, 3, 1, 2))
        settings: dict[str, Any] = {"strides": (stride,) * 2, "pads": ((pad, pad),) * 2}
        y = first.conv(Tensor.weight("w", weight), groups=channels, **settings)
        return y.permute((0, 2, 3, 1))

    name = f"{channels}x{height}x{width}, {w[2]}x{w[3]}/{stride}, each channel"
    return Shape(name, convolve, {"x": fit.random((1, height, width, channels))})


def measure_layer(shape: Shape, profile: str, runs: int) -> Measured:
    """A layer's kernels, by what a border costs."""
    found = Measured(shape)
    for cost in GRIDS["BORDERS"]:
        with fit.constants(tiles, {"BORDERS": cost}):
            program = fit.compiled(shape, profile)
        found.chosen[cost] = fit.text_of(program)
        found.programs.setdefault(found.chosen[cost], program)
    for _ in range(fit.ROUNDS):
        found.measure(found.programs, runs)
    return found


def measure(models: Sequence[str], profile: str, runs: int, say: Say) -> dict[str, Any]:
    """The report: a row for each layer, and the constant before and after; no rows without one."""
    found = []
    for shape in fit.shapes(models, window):
        say(f"borders of {shape.name}")
        found.append(measure_layer(shape, profile, runs))
    now = {"BORDERS": tiles.BORDERS}

    def loss(values: fit.Constants) -> float:
        return float(np.mean([each.loss(each.chosen[values["BORDERS"]]) for each in found] or [0]))

    unknown = [each.unknown(each.chosen[tiles.BORDERS]) for each in found]
    fitted, losses = fit.search(GRIDS, now, loss, float(np.mean(unknown or [0])))
    return {
        "now": now,
        "fitted": fitted,
        "loss": losses,
        "rows": [
            {"shape": each.shape.name, "tried": len(each.seconds), "best_seconds": each.best}
            | {
                f"{word}_{what}": of(each.chosen[values["BORDERS"]])
                for word, values in (("now", now), ("fitted", fitted))
                for what, of in (("loss", each.loss), ("unknown", each.unknown))
            }
            for each in found
        ],
    }
