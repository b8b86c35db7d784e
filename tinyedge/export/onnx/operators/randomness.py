"""Operators that draw random numbers, and dropout, which does in training: by keys of a state."""

from __future__ import annotations

from tinyedge.core import dtype as dt
from tinyedge.core.dtype import DType
from tinyedge.core.ir.uop import Shape
from tinyedge.core.tensor import random
from tinyedge.core.tensor.tensor import Tensor
from tinyedge.export.onnx.registry import Node, operator

IN_LOOP = "not in loops that are not unrolled"


def _key(node: Node, whole: bool = False) -> Tensor:
    """A key for a node. whole: its seed is an integer. Raises UnsupportedOp in a loop's body, of
    which all iterations would draw the same.
    """
    if node.call_site.in_loop_body:
        raise node.unsupported(
            "it draws random numbers in each iteration of a loop that is not unrolled",
            supported="nodes outside of such loops",
            next="make the loop's number of iterations constant, or its numbers an input",
        )
    if not node.has("seed"):
        return node.context.draws.key()
    return node.context.draws.key(node.integer("seed", 0) if whole else node.number("seed", 0.0))


def _floats(node: Node, default: DType) -> DType:
    dtype = node.dtype("dtype", default)
    if not dtype.is_float:
        raise node.invalid(f"it draws numbers of {dtype}")
    return dtype


def _uniform(node: Node, shape: Shape, dtype: DType) -> Tensor:
    low, high = node.number("low", 0.0), node.number("high", 1.0)
    wide = dt.float64 if dtype is dt.float64 else dt.float32
    return random.uniform(_key(node), shape, low, high, wide).cast(dtype)


def _normal(node: Node, shape: Shape, dtype: DType) -> Tensor:
    mean, scale = node.number("mean", 0.0), node.number("scale", 1.0)
    wide = dt.float64 if dtype is dt.float64 else dt.float32
    return random.normal(_key(node), shape, mean, scale, wide).cast(dtype)


def _shape(node: Node) -> list[int]:
    shape = node.integer_list("shape")
    if shape is None or any(size < 0 for size in shape):
        raise node.invalid("its shape is missing" if shape is None else f"its shape is {shape}")
    return shape


@operator("RandomUniform", limits=IN_LOOP)
def random_uniform(node: Node) -> Tensor:
    return _uniform(node, tuple(_shape(node)), _floats(node, dt.float32))


@operator("RandomUniformLike", limits=IN_LOOP)
def random_uniform_like(node: Node, x: Tensor) -> Tensor:
    return _uniform(node, x.shape, _floats(node, x.dtype))


@operator("RandomNormal", limits=IN_LOOP)
def random_normal(node: Node) -> Tensor:
    return _normal(node, tuple(_shape(node)), _floats(node, dt.float32))


@operator("RandomNormalLike", limits=IN_LOOP)
def random_normal_like(node: Node, x: Tensor) -> Tensor:
    return _normal(node, x.shape, _floats(node, x.dtype))


@operator("Bernoulli", limits=IN_LOOP)
def bernoulli(node: Node, x: Tensor) -> Tensor:
    dtype = node.dtype("dtype", x.dtype)
    wide = x if x.dtype is dt.float64 else x.cast(dt.float32)
    return random.bernoulli(_key(node), x.shape, wide).cast(dtype)


@operator("Multinomial", limits=IN_LOOP)
def multinomial(node: Node, x: Tensor) -> Tensor:
    """Places [batch, sample_size] by logarithms [batch, classes] of chances that need no sum."""
    if x.ndim != 2:
        raise node.invalid(f"its input has {x.ndim} axes, not 2")
    node.needs(x.shape[1], 1)
    count = node.integer("sample_size", 1)
    if count < 1:
        raise node.invalid(f"its sample_size is {count}")
    drawn = random.categorical(_key(node), x, shape=(count,))
    return drawn.permute((1, 0)).cast(node.dtype("dtype", dt.int32))


# Dropout.


@operator("Dropout", limits=f"training: {IN_LOOP}")
def dropout(
    node: Node, x: Tensor, ratio: Tensor | None = None, training: Tensor | None = None
) -> list[Tensor]:
    """Before opset 12 nothing is an input, and only `is_test`, before 7, says what is trained."""
    if node.opset >= 7:
        y, kept = dropped(node, x, ratio, training)
        return [y, kept if node.opset >= 10 else kept.cast(x.dtype)]
    rate, trained = node.number("ratio", 0.5), not node.integer("is_test", 0)
    y, kept = _dropped(node, x, Tensor(rate, dt.float32)) if trained and rate else _all(x)
    return [y, kept.cast(x.dtype)]


def dropped(
    node: Node, x: Tensor, ratio: Tensor | None, training: Tensor | None
) -> tuple[Tensor, Tensor]:
    """x with elements that are 0 with a chance of `ratio`, the others divided by 1 - ratio, and
    which ones were kept; all of x where `training` is absent or false, or the ratio 0.
    """
    node.has("seed")
    on, rate = node.known(training), node.known(ratio)
    if (
        training is None
        or (on is not None and not on.all())
        or (rate is not None and not rate.any())
    ):
        return _all(x)
    y, kept = _dropped(node, x, Tensor(0.5, dt.float32) if ratio is None else ratio.reshape(()))
    if on is not None:
        return y, kept
    training = training.cast(dt.bool_).reshape(())
    return training.where(y, x), kept | ~training


def _all(x: Tensor) -> tuple[Tensor, Tensor]:
    return x, Tensor.full(x.shape, True, dt.bool_)


def _dropped(node: Node, x: Tensor, rate: Tensor) -> tuple[Tensor, Tensor]:
    """x with elements dropped at a rate, a scalar, and which were kept."""
    share = 1.0 - rate.cast(dt.float32)
    kept = random.bernoulli(_key(node, whole=True), x.shape, share)
    return kept.where(x * (1.0 / share).cast(x.dtype), 0), kept
