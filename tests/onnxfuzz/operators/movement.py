"""Views and copies: no arithmetic."""

from __future__ import annotations

import math

from tests.onnxfuzz.builder import ALL, FLOATS, NUMBERS, Builder, Unsuitable
from tests.onnxfuzz.makers import Made, maker

FAR = 2**63 - 1


@maker("Transpose", weight=2)
def transpose(g: Builder, op: str) -> Made:
    x = g.pick(ALL)
    rank = g.array(x).ndim
    order = g.random.sample(range(rank), rank) if g.chance(0.85) else None
    return g.node(op, [x], perm=order or None)


@maker("Concat", weight=2)
def concat(g: Builder, op: str) -> Made:
    x = g.pick(ALL, 1)
    axis = g.axis(x)
    inputs = [x]
    for _ in range(g.integer(0, 3)):
        shape = list(g.shape_of(x))
        shape[axis] = g.size()
        inputs.append(x if g.chance(0.15) else g.leaf(g.kind_of(x), tuple(shape)))
    g.random.shuffle(inputs)
    return g.node(op, inputs, axis=axis)


@maker("Split", weight=1.5)
def split(g: Builder, op: str) -> Made:
    x = g.pick(ALL, 1)
    axis = g.axis(x)
    if g.chance(0.4) and g.opset >= 18:
        size = g.least(x, axis)
        return g.node(
            op, [x], outputs := g.integer(1, max(1, min(4, size))), axis=axis, num_outputs=outputs
        )
    size = g.known(x, axis)
    cuts = sorted(g.integer(0, size) for _ in range(g.integer(0, 3)))
    sizes = [b - a for a, b in zip([0, *cuts], [*cuts, size], strict=True)]
    return g.node(op, [x, g.constant(sizes)], len(sizes), axis=axis)


@maker("Slice", weight=3)
def slices(g: Builder, op: str) -> Made:
    x = g.pick(ALL, 1)
    axes = g.axes(x)
    starts, ends, steps = [], [], []
    for axis in axes:
        size = g.shape_of(x)[axis]
        step = g.choice((1, 1, 1, 2, 3, -1, -2, FAR, -FAR))
        near = [g.integer(-size - 2, size + 2) for _ in range(2)]
        if g.chance(0.6):
            near = sorted(near, key=lambda p: p % max(size, 1), reverse=step < 0)
        start = g.choice((near[0], near[0], 0, -1, FAR if step < 0 else 0))
        end = g.choice((near[1], near[1], FAR if step > 0 else -FAR - 1, FAR, size))
        starts.append(start)
        ends.append(end)
        steps.append(step)
    kind = "int64"
    if max(map(abs, [*starts, *ends, *steps])) < 2**31 and g.chance(0.2):
        kind = "int32"
    inputs = [x, g.constant(starts, kind), g.constant(ends, kind)]
    first = list(range(len(axes)))
    if axes != first or g.chance(0.5) or any(s != 1 for s in steps):
        inputs.append(g.constant(axes, kind))
    if any(s != 1 for s in steps):
        inputs.append(g.constant(steps, kind))
    return g.node(op, inputs)


@maker("Pad", weight=2)
def pad(g: Builder, op: str) -> Made:
    mode = g.choice(
        ("constant", "constant", "reflect", "edge", *(("wrap",) if g.opset >= 19 else ()))
    )
    x = g.pick(ALL if mode == "constant" else NUMBERS, 1, 5)
    axes = list(range(g.array(x).ndim))
    chosen = None
    if g.opset >= 18 and g.chance(0.4):
        axes = g.axes(x)
        chosen = g.constant(axes)
    least = [g.least(x, axis) for axis in axes]
    limit = [
        {"reflect": size - 1, "wrap": size, "edge": 3 if size else 0}.get(mode, 3) for size in least
    ]
    pads = [g.integer(0, max(0, min(most, 4))) if g.chance(0.7) else 0 for most in [*limit, *limit]]
    if mode == "constant" and g.chance(0.3):
        pads = [
            -g.integer(0, size // 2) if g.chance(0.4) else p
            for p, size in zip(pads, [*least, *least], strict=True)
        ]
    inputs = [x, g.constant(pads)]
    value = g.leaf(g.kind_of(x), ()) if mode == "constant" and g.chance(0.6) else ""
    return g.node(op, [*inputs, value, chosen or ""], mode=mode)


@maker("Tile")
def tile(g: Builder, op: str) -> Made:
    x = g.pick(ALL, 1)
    repeats = [g.choice((1, 1, 2, 3, 0 if g.chance(0.1) else 1)) for _ in g.shape_of(x)]
    return g.node(op, [x, g.constant(repeats)])


@maker("Expand", weight=1.5)
def expand(g: Builder, op: str) -> Made:
    x = g.pick(ALL)
    shape = [g.choice((1, 1, size)) if size != 1 else g.choice((1, 2, 3)) for size in g.shape_of(x)]
    shape = [1 if size == g.open else size for size in shape]
    shape = [*g.shape(0, 2)[:1], *shape] if g.chance(0.2) else shape
    return g.node(op, [x, g.constant(shape)])


@maker("Reshape", weight=3)
def reshape(g: Builder, op: str) -> Made:
    x = g.pick(ALL)
    shape = list(g.shape_of(x))
    count = math.prod(shape)
    made: list[int] = []
    if g.chance(0.6) and shape:  # neighbors joined, one size split
        axis = g.integer(0, len(shape) - 1)
        made = [*shape]
        if g.chance(0.5) and axis + 1 < len(shape):
            made[axis : axis + 2] = [shape[axis] * shape[axis + 1]]
        else:
            divisors = [d for d in range(1, max(shape[axis], 1) + 1) if shape[axis] % d == 0]
            d = g.choice(divisors)
            made[axis : axis + 1] = [shape[axis] // d, d]
    else:
        rest = count
        while rest > 1 and len(made) < 4:
            d = g.choice([d for d in range(1, rest + 1) if rest % d == 0])
            made.append(d)
            rest //= d
        made.append(rest)
    if g.open:
        made = [-1 if size == g.open else size for size in made]
    elif made and g.chance(0.4) and count:
        made[g.integer(0, len(made) - 1)] = -1
    zero = None
    for axis, size in enumerate(shape):
        if axis < len(made) and made[axis] == size and size and g.chance(0.3):
            made[axis] = 0
    if 0 in shape and g.opset >= 14:
        zero = 1
    return g.node(op, [x, g.constant(made)], allowzero=zero)


@maker("Flatten")
def flatten(g: Builder, op: str) -> Made:
    x = g.pick(ALL)
    rank = g.array(x).ndim
    axis = g.integer(-rank, rank) if g.chance(0.9) else None
    return g.node(op, [x], axis=axis)


@maker("Squeeze")
def squeeze(g: Builder, op: str) -> Made:
    x = g.pick(ALL, 1, fresh=0.05)
    ones = [axis for axis, size in enumerate(g.shape_of(x)) if size == 1]
    if not ones:
        raise Unsuitable
    chosen = g.random.sample(ones, g.integer(1, len(ones)))
    rank = g.array(x).ndim
    axes = [axis - rank if g.chance(0.3) else axis for axis in chosen]
    return g.node(op, [x] if g.chance(0.2) else [x, g.constant(axes)])


@maker("Unsqueeze")
def unsqueeze(g: Builder, op: str) -> Made:
    x = g.pick(ALL, 0, 3)
    more = g.integer(1, 2)
    rank = g.array(x).ndim + more
    axes = g.random.sample(range(rank), more)
    axes = [axis - rank if g.chance(0.3) else axis for axis in axes]
    return g.node(op, [x, g.constant(axes)])


@maker("DepthToSpace", "SpaceToDepth")
def blocks(g: Builder, op: str) -> Made:
    block = g.choice((1, 2, 3))
    n, c, h, w = (
        g.shape(1, 1)[0] if g.chance(0.3) else 1,
        g.integer(1, 3),
        g.integer(1, 4),
        g.integer(1, 4),
    )
    kind = g.kind(FLOATS[:2])
    if op == "DepthToSpace":
        x = g.leaf(kind, (n, c * block * block, h, w), constant=False)
        return g.node(op, [x], blocksize=block, mode=g.choice((None, "DCR", "CRD")))
    return g.node(op, [g.leaf(kind, (n, c, h * block, w * block), constant=False)], blocksize=block)


@maker("Trilu")
def trilu(g: Builder, op: str) -> Made:
    x = g.pick(ALL, 2)
    inputs = [x]
    if g.chance(0.7):
        inputs.append(g.given(g.integer(-4, 4)))
    return g.node(op, inputs, upper=g.choice((None, 0, 1)))


@maker("EyeLike")
def eye_like(g: Builder, op: str) -> Made:
    x = g.pick(("float32", "float64", "int64", "int32", "uint64"), 2, 2)
    return g.node(op, [x], k=g.choice((None, 0, 1, -2)), dtype=g.choice((None, 1, 7, 6)))


@maker("ReverseSequence")
def reverse_sequence(g: Builder, op: str) -> Made:
    x = g.pick(ALL, 2, least=1)
    time = g.integer(0, 1)
    most = g.least(x, time)
    shape = (g.shape_of(x)[1 - time],)
    lengths = g.filled(shape, lambda rng, s: rng.integers(1, most + 1, s))
    return g.node(op, [x, lengths], time_axis=time, batch_axis=1 - time)


@maker("CenterCropPad")
def center_crop_pad(g: Builder, op: str) -> Made:
    x = g.pick(NUMBERS, 1, 4)
    axes = g.axes(x)
    shape = g.constant([g.choice((1, 2, 3, 5, 8)) for _ in axes])
    return g.node(op, [x, shape], axes=axes)


@maker("SplitToSequence")
def sequence(g: Builder, op: str) -> Made:
    x = g.pick(("float32", "int64", "int32", "bool"), 1, least=1)
    axis = g.axis(x)
    size = g.known(x, axis)
    keepdims = g.choice((None, 0, 1))
    inputs = [x]
    parts = size
    if g.chance(0.6):
        step = g.integer(1, size)
        inputs.append(g.constant(step))
        parts = -(-size // step)
        keepdims = None
    first = g.node(op, inputs, axis=axis, keepdims=keepdims)
    place = g.constant(g.integer(-parts, parts - 1))
    if g.chance(0.5):
        return [first, g.node("SequenceAt", [first.output[0], place])]
    if parts < 2:
        raise Unsuitable
    erased = g.node("SequenceErase", [first.output[0], place])
    stacked = keepdims == 0
    joined = g.node(
        "ConcatFromSequence", [erased.output[0]], axis=axis, new_axis=1 if stacked else None
    )
    length = g.node("SequenceLength", [erased.output[0]])
    return [first, erased, joined, length], [joined.output[0], length.output[0]]


@maker("SequenceConstruct")
def construct(g: Builder, op: str) -> Made:
    x = g.pick(("float32", "int64"), 1, 3)
    inputs = [x, *(g.leaf(g.kind_of(x), g.shape_of(x), constant=False) for _ in range(2))]
    first = g.node(op, inputs)
    place = g.constant(g.integer(-3, 3))
    inserted = g.node("SequenceInsert", [first.output[0], inputs[0], place])
    rank = g.array(x).ndim
    joined = g.node(
        "ConcatFromSequence",
        [inserted.output[0]],
        axis=g.integer(0, rank - 1),
        new_axis=g.integer(0, 1),
    )
    return [first, inserted, joined]


@maker("Dropout")
def dropout(g: Builder, op: str) -> Made:
    return g.node(op, [g.pick(FLOATS)], g.integer(1, 2))
