"""Normalizations and attention."""

from __future__ import annotations

from tests.onnxfuzz.builder import FLOATS, Builder, Unsuitable
from tests.onnxfuzz.makers import Made, maker
from tests.onnxfuzz.operators.images import picture


def _epsilon(g: Builder) -> float | None:
    return g.choice((None, 1e-3, 0.5))


def _parameter(g: Builder, kind: str, shape: tuple[int, ...]) -> str:
    """A scale or a bias: finite."""
    return g.leaf(kind, shape, g.choice(("plain", "normal")))


@maker("LayerNormalization", "RMSNormalization", weight=1.5)
def layer(g: Builder, op: str) -> Made:
    x = g.pick(FLOATS, 1, 4, least=1)
    axis = g.axis(x)
    kind = g.kind_of(x)
    shape = g.shape_of(x)[axis:]
    inputs = [x, _parameter(g, kind, shape)]
    outputs = 1
    if op == "LayerNormalization":
        if g.chance(0.6):
            inputs.append(_parameter(g, kind, shape))
        outputs = g.choice((1, 1, 1, 3))
    return g.node(op, inputs, outputs, axis=axis, epsilon=_epsilon(g))


@maker("BatchNormalization", weight=1.5)
def batch(g: Builder, op: str) -> Made:
    x = g.pick(FLOATS, 2, 5, least=1)
    kind = g.kind_of(x)
    channels = (g.known(x, 1),)
    parameters = [g.leaf(kind, channels, "plain") for _ in range(3)]
    return g.node(op, [x, *parameters, g.leaf(kind, channels, "positive")], epsilon=_epsilon(g))


@maker("InstanceNormalization")
def instance(g: Builder, op: str) -> Made:
    x = picture(g)
    channels = (g.known(x, 1),)
    kind = g.kind_of(x)
    return g.node(op, [x, *(_parameter(g, kind, channels) for _ in range(2))], epsilon=_epsilon(g))


@maker("GroupNormalization")
def group(g: Builder, op: str) -> Made:
    x = picture(g)
    channels = g.known(x, 1)
    groups = g.choice([d for d in range(1, channels + 1) if channels % d == 0])
    count = (groups if g.opset < 21 else channels,)
    kind = g.kind_of(x)
    inputs = [x, *(_parameter(g, kind, count) for _ in range(2))]
    return g.node(op, inputs, num_groups=groups, epsilon=_epsilon(g))


@maker("MeanVarianceNormalization")
def mean_variance(g: Builder, op: str) -> Made:
    x = g.pick(("float32",), 4, 4, least=1)
    return g.node(op, [x], axes=g.axes(x) if g.chance(0.6) else None)


@maker("LpNormalization")
def lp(g: Builder, op: str) -> Made:
    x = g.pick(FLOATS[:2], 1, least=1)
    return g.node(op, [x], axis=g.axis(x), p=g.choice((None, 1, 2)))


@maker("Attention", weight=2)
def attention(g: Builder, op: str) -> Made:
    if g.opset < 23:
        raise Unsuitable
    batch, heads, size = g.integer(1, 2), g.choice((1, 2, 4)), g.choice((2, 3, 8))
    keys = g.choice([d for d in (1, 2, 4) if heads % d == 0])
    queries, length = g.choice((1, 3, 4)), g.choice((1, 4, 5))
    kind = g.choice(("float32", "float32", "float16"))
    wide = g.chance(0.5)
    attributes: dict = {}
    if wide:
        shapes = [(batch, heads, queries, size), *[(batch, keys, length, size)] * 2]
    else:
        shapes = [(batch, queries, heads * size), *[(batch, length, keys * size)] * 2]
        attributes = {"q_num_heads": heads, "kv_num_heads": keys}
    inputs = [g.leaf(kind, shape, "normal", False) for shape in shapes]
    if g.chance(0.4):
        mask = g.leaf(g.choice(("bool", kind)), (queries, length), "plain")
        inputs.append(mask)
    if g.chance(0.3):
        attributes["softcap"] = g.choice((2.0, 30.0))
    if g.chance(0.3):
        attributes["is_causal"] = 1
    return g.node(op, inputs, scale=g.choice((None, 0.5)), **attributes)


@maker("RotaryEmbedding")
def rotary(g: Builder, op: str) -> Made:
    if g.opset < 23:
        raise Unsuitable
    batch, heads, length, half = (
        g.integer(1, 2),
        g.integer(1, 2),
        g.integer(1, 3),
        g.choice((1, 2, 4)),
    )
    x = g.leaf("float32", (batch, heads, length, 2 * half), constant=False)
    interleaved = g.choice((None, 0, 1))
    if g.chance(0.5):
        caches = [g.leaf("float32", (batch, length, half), "normal") for _ in range(2)]
        return g.node(op, [x, *caches], interleaved=interleaved)
    caches = [g.leaf("float32", (6, half), "normal") for _ in range(2)]
    positions = g.filled((batch, length), lambda rng, s: rng.integers(0, 6, s))
    return g.node(op, [x, *caches, positions], interleaved=interleaved)


@maker("DFT")
def dft(g: Builder, op: str) -> Made:
    length, parts = g.choice((1, 2, 3, 5, 8)), g.choice((1, 2))
    x = g.leaf("float32", (g.integer(1, 2), length, parts), "plain", False)
    one_sided = 1 if parts == 1 and g.chance(0.5) else None
    inverse = g.choice((None, 1)) if one_sided is None else None
    if g.opset < 20:
        if g.opset < 17:
            raise Unsuitable
        return g.node(op, [x], axis=1, onesided=one_sided, inverse=inverse)
    return g.node(op, [x, "", g.constant(1)], onesided=one_sided, inverse=inverse)


@maker("STFT")
def stft(g: Builder, op: str) -> Made:
    step, length = g.integer(1, 4), g.choice((4, 5, 8))
    signal = g.leaf("float32", (g.integer(1, 2), length + g.integer(0, 9), 1), "plain", False)
    if g.opset < 17:
        raise Unsuitable
    window = g.leaf("float32", (length,), "unit", True) if g.chance(0.6) else ""
    frames = g.constant(length) if not window or g.chance(0.5) else ""
    return g.node(op, [signal, g.constant(step), window, frames], onesided=g.choice((None, 0, 1)))


@maker("HannWindow", "HammingWindow", "BlackmanWindow")
def windows(g: Builder, op: str) -> Made:
    return g.node(op, [g.constant(g.integer(1, 12))], periodic=g.choice((None, 0, 1)))
