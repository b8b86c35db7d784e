"""Operators that work on elements, with broadcasting."""

from __future__ import annotations

import numpy as np
from onnx import helper

from tests.onnxfuzz.builder import (
    ALL,
    FLOATS,
    INTEGERS,
    NUMBERS,
    SIGNED,
    UNSIGNED,
    Builder,
    Unsuitable,
)
from tests.onnxfuzz.makers import Made, maker

SIGNS = (*FLOATS, *SIGNED)


def _moderate(limit: float):
    """Whether all that is finite is within a limit."""

    def when(array):
        with np.errstate(all="ignore"):
            return not (np.isfinite(array) & (np.abs(array.astype(np.float64)) > limit)).any()

    return when


@maker("Abs", "Neg", "Sign")
def signs(g: Builder, op: str) -> Made:
    return g.node(op, [g.pick(SIGNS if op == "Neg" else NUMBERS)])


@maker("Relu")
def relu(g: Builder, op: str) -> Made:
    return g.node(op, [g.pick(SIGNS if g.opset >= 14 else FLOATS)])


@maker("Reciprocal")
def reciprocal(g: Builder, op: str) -> Made:
    return g.node(op, [g.pick(FLOATS, when=_no_zero)])


def _no_zero(array) -> bool:
    """Of a zero that was computed, nothing says which sign it has."""
    return bool((array != 0).all())


@maker("Floor", "Ceil", "Round", "Sqrt", "IsNaN", "Softsign", "HardSwish")
def of_floats(g: Builder, op: str) -> Made:
    return g.node(op, [g.pick(FLOATS)])


@maker("Exp", "Sinh", "Cosh", "Gelu", "Mish", "Softplus")
def growing(g: Builder, op: str) -> Made:
    x = g.pick(FLOATS, when=_moderate(20))
    if op == "Gelu":
        return g.node(op, [x], approximate=g.choice(("none", "tanh")))
    return g.node(op, [x])


@maker("Log", "Erf", "Sin", "Cos", "Tan", "Tanh", "Sigmoid", "Atan", "Asinh")
def smooth(g: Builder, op: str) -> Made:
    return g.node(op, [g.pick(FLOATS, when=_moderate(300))])


@maker("Asin", "Acos", "Atanh")
def within_one(g: Builder, op: str) -> Made:
    return g.node(op, [g.pick(FLOATS, style="unit", when=_moderate(1), fresh=0.5)])


@maker("Acosh")
def above_one(g: Builder, op: str) -> Made:
    return g.node(op, [g.pick(FLOATS, style="positive", fresh=0.4)])


@maker("LeakyRelu", "Elu", "Celu", "ThresholdedRelu", "Selu", "HardSigmoid", "Shrink", "Swish")
def activations(g: Builder, op: str) -> Made:
    x = g.pick(FLOATS)
    alpha = g.choice((None, 0.25, 1.0, 2.0, 0.5)) if op != "Shrink" else None
    if op == "Selu":
        return g.node(op, [x], alpha=alpha, gamma=g.choice((None, 0.5, 2.0)))
    if op == "HardSigmoid":
        return g.node(op, [x], alpha=alpha, beta=g.choice((None, 0.5, -0.25)))
    if op == "Shrink":
        return g.node(op, [x], bias=g.choice((None, 0.5)), lambd=g.choice((None, 1.0, 0.25)))
    return g.node(op, [x], alpha=alpha)


@maker("Add", "Sub", "Mul", weight=2)
def arithmetic(g: Builder, op: str) -> Made:
    x = g.pick(NUMBERS if g.opset >= 14 else (*FLOATS, "int32", "int64", "uint32", "uint64"))
    pair = [x, g.partner(x)]
    g.random.shuffle(pair)
    return g.node(op, pair)


@maker("Div")
def div(g: Builder, op: str) -> Made:
    x = g.pick(NUMBERS if g.opset >= 14 else (*FLOATS, "int32", "int64"))
    kind = g.kind_of(x)
    y = g.partner(x, style="positive") if kind in INTEGERS else g.partner(x)
    if kind in INTEGERS and (g.array(y) == 0).any():
        y = g.leaf(kind, g.shape_of(x), "positive")
    if y not in g.new and not all(_no_zero(value.array) for value in g.values[y]):
        raise Unsuitable
    return g.node(op, [x, y])


@maker("Mod")
def mod(g: Builder, op: str) -> Made:
    fmod = g.integer(0, 1)
    x = g.pick(NUMBERS if fmod else INTEGERS)
    shape = [1 if g.chance(0.3) else size for size in g.shape_of(x)]
    if g.kind_of(x) in INTEGERS:
        kind = g.kind_of(x)

        def divisors(rng, shape):
            made = rng.integers(1, 8, shape).astype(kind)
            signs = 1 if kind in UNSIGNED else rng.choice(np.array([-1, 1], kind), shape)
            return made * signs

        return g.node(op, [x, g.filled(tuple(shape), divisors)], fmod=fmod)
    return g.node(op, [x, g.leaf(g.kind_of(x), tuple(shape))], fmod=1)


@maker("Pow")
def power(g: Builder, op: str) -> Made:
    x = g.pick((*FLOATS, "int32", "int64"), when=_moderate(30))
    if g.kind_of(x) in INTEGERS:
        return g.node(op, [x, g.leaf(g.choice(("int32", "int64")), (), "positive")])
    kind = g.choice((g.kind_of(x), "float32", "int64"))
    shape = () if g.chance(0.5) else g.shape_of(x)
    exponents = np.array([-2, -1, 0, 1, 2, 3] if kind == "int64" else [-1, 0, 0.5, 1, 2, 3, 1.5])
    if not all(_no_zero(value.array) for value in g.values[x]):
        exponents = exponents[exponents >= 0]
    y = g.filled(shape, lambda rng, s: rng.choice(exponents, s).astype(kind))
    return g.node(op, [x, y])


@maker("Max", "Min", "Sum", "Mean")
def variadic(g: Builder, op: str) -> Made:
    x = g.pick(NUMBERS if op in ("Max", "Min") else FLOATS)
    others = [g.partner(x) for _ in range(g.choice((0, 1, 1, 2, 3)))]
    return g.node(op, [x, *others])


@maker("Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual")
def comparisons(g: Builder, op: str) -> Made:
    x = g.pick(ALL if op == "Equal" else NUMBERS)
    return g.node(op, [x, g.partner(x)])


@maker("Not")
def negation(g: Builder, op: str) -> Made:
    return g.node(op, [g.pick(("bool",))])


@maker("And", "Or", "Xor")
def logic(g: Builder, op: str) -> Made:
    x = g.pick(("bool",))
    return g.node(op, [x, g.partner(x)])


@maker("BitwiseAnd", "BitwiseOr", "BitwiseXor")
def bitwise(g: Builder, op: str) -> Made:
    x = g.pick(INTEGERS)
    return g.node(op, [x, g.partner(x)])


@maker("BitwiseNot")
def bitwise_not(g: Builder, op: str) -> Made:
    return g.node(op, [g.pick(INTEGERS)])


@maker("BitShift")
def shift(g: Builder, op: str) -> Made:
    x = g.pick(UNSIGNED, fresh=0.4)
    kind = g.kind_of(x)
    bits = np.dtype(kind).itemsize * 8
    shape = tuple(1 if g.chance(0.3) else size for size in g.shape_of(x))
    y = g.filled(shape, lambda rng, s: rng.integers(0, bits + 2, s).astype(kind))
    return g.node(op, [x, y], direction=g.choice(("LEFT", "RIGHT")))


@maker("IsInf")
def is_inf(g: Builder, op: str) -> Made:
    kinds = FLOATS if g.opset >= 20 else FLOATS[:2]
    positive, negative = g.choice((None, 0, 1)), g.choice((None, 0, 1))
    return g.node(op, [g.pick(kinds)], detect_positive=positive, detect_negative=negative)


@maker("Where", weight=2)
def where(g: Builder, op: str) -> Made:
    x = g.pick(ALL)
    return g.node(op, [g.partner(x, "bool"), x, g.partner(x)])


@maker("Clip")
def clip(g: Builder, op: str) -> Made:
    x = g.pick(NUMBERS)
    kind = g.kind_of(x)
    ends = [g.leaf(kind, (), "plain") if g.chance(0.7) else "" for _ in range(2)]
    return g.node(op, [x, *ends])


@maker("PRelu")
def prelu(g: Builder, op: str) -> Made:
    x = g.pick((*FLOATS, "int32", "int64"))
    shape = tuple(1 if g.chance(0.3) else size for size in g.shape_of(x))
    return g.node(op, [x, g.leaf(g.kind_of(x), shape[g.integer(0, len(shape)) :])])


@maker("Cast", weight=2)
def cast(g: Builder, op: str) -> Made:
    x = g.pick(ALL, when=_castable)
    return g.node(op, [x], to=helper.np_dtype_to_tensor_dtype(np.dtype(g.kind(ALL))))


def _castable(array) -> bool:
    """Whether every integer type's conversion of it is defined."""
    if array.dtype.kind != "f":
        return True
    return bool(np.isfinite(array).all() and (array >= 0).all() and (array < 127).all())


@maker("CastLike")
def cast_like(g: Builder, op: str) -> Made:
    x = g.pick(ALL, when=_castable)
    return g.node(op, [x, g.pick(ALL, fresh=0.5)])


@maker("Identity")
def identity(g: Builder, op: str) -> Made:
    return g.node(op, [g.pick(ALL)])
