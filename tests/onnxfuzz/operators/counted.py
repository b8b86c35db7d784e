"""Results of which only a run knows the size, from inputs."""

from __future__ import annotations

import numpy as np

from tests.onnxfuzz.builder import Builder
from tests.onnxfuzz.makers import Made, maker


@maker("Range", weight=0.7)
def range_(g: Builder, op: str) -> Made:
    kind = g.choice(("int64", "int32", "float32"))
    step = g.choice((1, 2, -1, -3))
    start = g.integer(-5, 5)
    limit = start + step * g.integer(0, 9) + g.choice((0, 0, 1 if step > 0 else -1))
    values = [g.constant(value, kind) for value in (start, limit, step)]
    node = g.node(op, values)
    if g.chance(0.5):
        g.constants.discard(values[g.integer(0, 2)])
        g.bound(node, 12)
    return node


@maker("NonMaxSuppression", weight=0.5)
def non_max_suppression(g: Builder, op: str) -> Made:
    batch, classes, count = g.integer(1, 2), g.integer(1, 2), g.choice((1, 4, 9))

    def corners(rng, s):
        places = rng.integers(0, 12, (*s[:-1], 2)) / 4
        sizes = rng.integers(1, 9, (*s[:-1], 2)) / 4
        return np.concatenate([places, places + sizes], -1).astype(np.float32)

    boxes = g.filled((batch, count, 4), corners, False)
    scores = g.filled(
        (batch, classes, count),
        lambda rng, s: (rng.integers(0, 16, s) / 16).astype(np.float32),
        False,
    )
    inputs = [boxes, scores]
    inputs.append(g.given([g.integer(0, 5)]))
    inputs.append(g.constant([g.choice((0.0, 0.3, 0.55))], "float32"))
    if g.chance(0.6):
        inputs.append(g.constant([g.choice((0.0, 0.4))], "float32"))
    return g.node(op, inputs, center_point_box=g.choice((None, 0, 1)))


@maker("GatherOfNonZero", weight=0.5)
def found(g: Builder, op: str) -> Made:
    """x[mask], as exporters write it."""
    x = g.pick(("float32", "int64"), 1, 3)
    mask = g.leaf("bool", g.shape_of(x), constant=False)
    places = g.node("NonZero", [mask])
    pairs = g.node("Transpose", [places.output[0]])
    taken = g.node("GatherND", [x, pairs.output[0]])
    return [places, pairs, taken]
