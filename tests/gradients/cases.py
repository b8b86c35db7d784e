"""Functions with derivatives, by name, and arguments at which they have them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tinyedge import checkpoint
from tinyedge.core import dtype as dt
from tinyedge.core.ir import ops
from tinyedge.core.tensor.tensor import Tensor

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Case:
    """function: of tensors of floats. arrays: its arguments, in doubles."""

    name: str
    function: Callable[..., Tensor]
    arrays: tuple[Array, ...]


def _values(*shape: int, seed: int = 0) -> Array:
    """Distinct numbers from -2 to 2 in no order, none of them near 0 or an integer, no two of them
    near each other.
    """
    count = int(np.prod(shape))
    numbers = (np.arange(count) + 0.5) / count * 4 - 2
    fraction = np.clip(np.abs(numbers) % 1, 0.1, 0.9) + np.arange(count) * 1e-4
    result = np.sign(numbers) * (np.floor(np.abs(numbers)) + fraction)
    return np.random.default_rng(seed + count).permutation(result).reshape(shape)


def _positive(*shape: int) -> Array:
    return np.abs(_values(*shape, seed=7)) + 0.25


PLACES = np.array([[0, 2, 2, 9], [1, 1, 1, -1]], np.int32)


def _scatter(op: Any) -> Callable[..., Tensor]:
    return lambda base, updates: base.scatter(1, Tensor(PLACES), updates, op)


def _repeated(x: Tensor, w: Tensor) -> Tensor:
    return Tensor.loop([x], lambda value: [(value @ w).tanh()], trips=4)[0]


def _while(x: Tensor, w: Tensor) -> Tensor:
    first = [Tensor(True), Tensor(0, dt.int32), x]
    return Tensor.loop(
        first, lambda go, i, value: [i < 4, i + 1, (value @ w).tanh() * value], bound=9
    )[2]


def _nested(x: Tensor, w: Tensor) -> Tensor:
    def outer(value: Tensor) -> list[Tensor]:
        inner = Tensor.loop([value], lambda y: [(y @ w).tanh() + value], trips=2)[0]
        return [inner * w.sum()]

    return Tensor.loop([x], outer, trips=3)[0]


def elementwise() -> Iterator[Case]:
    x, p = _values(3, 4), _positive(3, 4)
    for name in ("exp", "sin", "cos", "tanh", "abs", "sigmoid", "softplus", "silu", "erf", "floor"):
        yield Case(name, lambda a, name=name: getattr(a, name)(), (x,))
    for name in ("log", "sqrt"):
        yield Case(name, lambda a, name=name: getattr(a, name)(), (p,))
    y = _values(3, 4, seed=1) + 0.03
    yield Case("neg", lambda a: -a, (x,))
    yield Case("add", lambda a, b: a + b, (x, y))
    yield Case("sub", lambda a, b: a - b, (x, y))
    yield Case("mul", lambda a, b: a * b, (x, y))
    yield Case("mul of itself", lambda a: a * a, (x,))
    yield Case("div", lambda a, b: a / b, (x, p))
    yield Case("pow", lambda a, b: a**b, (p, y))
    yield Case("pow of numbers", lambda a: a**3.0 + a**-1.0 + a**2.5, (p,))
    yield Case("max", lambda a, b: a.maximum(b), (x, y))
    yield Case("min", lambda a, b: a.minimum(b), (x, y))
    yield Case("fmod", lambda a, b: a.fmod(b), (x * 3, p))
    yield Case("where", lambda a, b: (a > b).where(a * 2.0, b), (x, y))
    yield Case("cast", lambda a: a.cast(dt.int32).cast(a.dtype) * a, (x,))
    yield Case("row and column", lambda a, b: a * b, (_values(3, 1), _values(1, 4)))


def movements() -> Iterator[Case]:
    x = _values(2, 3, 4)
    yield Case("reshape", lambda a: a.reshape((4, 6)), (x,))
    yield Case("permute", lambda a: a.permute([2, 0, 1]), (x,))
    yield Case("expand", lambda a: a.expand((5, 3, 4)), (x[:1],))
    yield Case("pad", lambda a: a.pad([(1, 0), (0, 2), (1, 1)]), (x,))
    yield Case("pad by a number", lambda a: a.pad([(1, 0), (0, 2), (1, 1)], 3.0), (x,))
    yield Case("shrink", lambda a: a.shrink([(1, 2), (0, 2), (1, 4)]), (x,))
    yield Case("flip", lambda a: a.flip([0, 2]), (x,))
    yield Case("every second", lambda a: a[:, ::2, 1:], (x,))
    for size, stride, dilation in np.ndindex(4, 3, 3):
        name = f"window {size + 1}, {stride + 1} apart, every {dilation + 1}"
        arg = (1, int(size) + 1, int(stride) + 1, int(dilation) + 1)
        yield Case(name, lambda a, arg=arg: a.window(*arg), (_values(2, 11, 2),))


def memory() -> Iterator[Case]:
    x = _values(2, 3, 4)
    positions = Tensor(np.array([[0, 2, 7], [1, 0, -1]], np.int32))
    yield Case("gather", lambda a: a.gather(1, positions), (x,))
    yield Case("gather first", lambda a: a.gather(0, Tensor(1, dt.int32)), (x,))
    yield Case("gather elements", lambda a: a.gather_elements(1, positions % 2), (_values(2, 3),))
    yield Case("concat", lambda a, b: Tensor.concat([a, b * a], 1), (x, _values(2, 3, 4, seed=1)))
    yield Case(
        "assign", lambda a, b: (a * 2.0).assign([(0, 1), (1, 3), (0, 4)], b), (x, _values(1, 2, 4))
    )
    yield Case("put", lambda a, b: a.put(Tensor(5, dt.int32), b) * 2.0 + a, (x, _values(3, 4)))
    for op in (None, ops.ADD, ops.MUL, ops.MAX, ops.MIN):
        arrays = _values(2, 3, 2), _values(2, 4, 2)
        yield Case(f"scatter {op}", _scatter(op), arrays)
    base, updates = _values(2, 3, 2), _values(2, 4, 2)
    base[0, 1, 1] = updates[1, 0, 0] = 0.0
    yield Case("scatter mul of zeros", _scatter(ops.MUL), (base, updates))
    yield Case("transform", lambda a: a.transform([[1, 0, 2], [0, 0, 1]]), (_values(3, 3, 2),))
    yield Case("in_memory", lambda a: a.in_memory() * a, (x,))


def reductions() -> Iterator[Case]:
    x = _values(3, 4)
    yield Case("sum", lambda a: a.sum(1), (x,))
    yield Case("mean", lambda a: a.mean(0, keepdims=True), (x,))
    yield Case("max along", lambda a: a.max(1), (x,))
    yield Case("min of all", lambda a: a.min(), (x,))
    yield Case("prod", lambda a: a.prod(1), (x,))
    one, two = x.copy(), x.copy()
    one[0, 1] = two[0, 1] = two[0, 2] = 0.0
    yield Case("prod of a zero", lambda a: a.prod(1), (one,))
    yield Case("prod of zeros", lambda a: a.prod(1), (two,))
    yield Case("prod of nothing", lambda a: a.prod(1), (two[:, :0],))
    yield Case("norm", lambda a: a.norm(1), (x,))
    yield Case("softmax", lambda a: a.softmax(-1), (x,))
    yield Case("log_softmax", lambda a: a.log_softmax(-1), (x,))
    yield Case("log_sum_exp", lambda a: a.log_sum_exp(1), (x,))


def layers() -> Iterator[Case]:
    yield Case("matmul", lambda a, b: a @ b, (_values(2, 3, 4), _values(4, 5)))
    image, options = _values(2, 2, 6, 7), {"strides": (2, 1), "pads": ((1, 1), (0, 2))}
    yield Case(
        "conv",
        lambda x, w, b: x.conv(w, b, dilations=(1, 2), **options),
        (image, _values(3, 2, 3, 2), _values(3)),
    )
    yield Case(
        "conv of groups",
        lambda x, w: x.conv(w, strides=(2, 2), groups=2),
        (_values(1, 4, 5, 5), _values(2, 2, 2, 2)),
    )
    yield Case(
        "conv_transpose",
        lambda x, w: x.conv_transpose(
            w, strides=(2, 2), pads=((1, 1), (1, 1)), output_padding=(1, 0)
        ),
        (_values(1, 2, 3, 3), _values(2, 3, 3, 3)),
    )
    yield Case("layer norm", _layer_norm, (_values(3, 6),))


def _layer_norm(x: Tensor) -> Tensor:
    centered = x - x.mean(-1, True)
    return centered / ((centered * centered).mean(-1, True) + 1e-5).sqrt()


def loops() -> Iterator[Case]:
    x, w = _values(2, 3), _values(3, 3) / 3
    yield Case("loop", _repeated, (x, w))
    yield Case("loop while", _while, (x, w))
    yield Case("loop in a loop", _nested, (x, w))


def _block(x: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
    return (x @ w).tanh() + x, (x * w.sum()).sin()


def _deep(x: Tensor, w: Tensor) -> Tensor:
    block = checkpoint(_block)
    for _ in range(3):
        x, more = block(x, w)
        x = x + more * 0.1
    return x


def enclosed() -> Iterator[Case]:
    """Functions that their gradients compute again."""
    x, w = _values(2, 3), _values(3, 3) / 3
    yield Case("checkpoint", checkpoint(lambda a: a.sin() * a), (x,))
    yield Case("checkpoints of several results", _deep, (x, w))
    yield Case("checkpoint of checkpoints", checkpoint(_deep), (x, w))
    yield Case("checkpoint of a loop", checkpoint(_repeated), (x, w))
    yield Case(
        "checkpoint that reads more", lambda a, b: checkpoint(lambda c: c.sin() @ b)(a * a), (x, w)
    )
    yield Case("checkpoint of an argument", lambda a: checkpoint(lambda b: b)(a.sin()), (x,))
    yield Case("checkpoint of none", lambda a: checkpoint(lambda b: a.sin())(Tensor(2.0)), (x,))


FAMILIES: Sequence[Callable[[], Iterator[Case]]] = (
    *(elementwise, movements, memory, reductions, layers, loops, enclosed),
)
CASES = {case.name: case for family in FAMILIES for case in family()}
