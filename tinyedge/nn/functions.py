"""Layers without parameters and losses: functions of tensors, and what makes such functions."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, TypeVar, cast

from tinyedge.core.tensor import activations, ctc, losses, mathematics, pooling, random
from tinyedge.core.tensor.base import Axes, Sizes, given
from tinyedge.core.tensor.pooling import Windows
from tinyedge.core.tensor.tensor import Tensor
from tinyedge.nn.module import Module, current

F = TypeVar("F", bound=Callable[..., Any])


def _of_tensors(function: F, count: int = 1) -> F:
    """A function whose first arguments, so many, may be arrays, too."""
    signature = inspect.signature(function)
    names = list(signature.parameters)[:count]

    @functools.wraps(function)
    def call(*values: Any, **options: Any) -> Any:
        name = function.__name__
        first = [given(Tensor, value, name) for value in values[:count]]
        named = {n: given(Tensor, v, name) if n in names else v for n, v in options.items()}
        return function(*first, *values[count:], **named)

    del call.__wrapped__  # a compiled function knows it by identity
    call.__signature__ = signature  # type: ignore[attr-defined]
    return cast("F", call)


relu = _of_tensors(Tensor.relu)
sigmoid = _of_tensors(Tensor.sigmoid)
silu = _of_tensors(Tensor.silu)
softplus = _of_tensors(Tensor.softplus)
tanh = _of_tensors(Tensor.tanh)
softmax = _of_tensors(Tensor.softmax)
log_softmax = _of_tensors(Tensor.log_softmax)
celu = _of_tensors(activations.celu)
elu = _of_tensors(activations.elu)
hard_sigmoid = _of_tensors(activations.hard_sigmoid)
hard_swish = _of_tensors(activations.hard_swish)
leaky_relu = _of_tensors(activations.leaky_relu)
mish = _of_tensors(mathematics.mish)
selu = _of_tensors(activations.selu)
softsign = _of_tensors(activations.softsign)
binary_cross_entropy = _of_tensors(losses.binary_cross_entropy, 2)
binary_cross_entropy_with_logits = _of_tensors(losses.binary_cross_entropy_with_logits, 2)
cross_entropy = _of_tensors(losses.cross_entropy, 2)
huber_loss = _of_tensors(losses.huber_loss, 2)
kl_div = _of_tensors(losses.kl_div, 2)
l1_loss = _of_tensors(losses.l1_loss, 2)
mse_loss = _of_tensors(losses.mse_loss, 2)
nll_loss = _of_tensors(losses.nll_loss, 2)
smooth_l1_loss = _of_tensors(losses.smooth_l1_loss, 2)
ctc_loss = _of_tensors(ctc.ctc_loss, 4)


@_of_tensors
def gelu(x: Tensor, approximate: str = "none") -> Tensor:
    """x * Phi(x); approximate: "tanh" for its approximation."""
    if approximate not in ("none", "tanh"):
        raise ValueError(f"approximate {approximate!r}: it is 'none' or 'tanh'")
    return mathematics.gelu_by_tanh(x) if approximate == "tanh" else mathematics.gelu(x)


@_of_tensors
def flatten(x: Tensor, start: int = 1) -> Tensor:
    """Axes from `start` on merged into one: all but the batch's."""
    return x.flatten(start)


@_of_tensors
def global_average_pool(x: Tensor, axes: Axes = None) -> Tensor:
    """The mean of each channel of [N, C, *S], [N, C]."""
    return x.mean(tuple(range(2, x.ndim)) if axes is None else axes)


class Dropout(Module):
    """In training each element is 0 with a chance of `rate`; others are divided by 1 - rate."""

    def __init__(self, rate: float = 0.5) -> None:
        if not 0 <= rate <= 1:
            raise ValueError(f"a dropout rate of {rate}: it must be from 0 to 1")
        self.rate = rate

    def __call__(self, x: Tensor) -> Tensor:
        run = current()
        return x if run is None or not self.rate else random.dropout(x, run.key(), self.rate)


class _Pool(Module):
    """Windows over the spatial axes of x [N, C, *S]. stride: None for the kernel's sizes; ceil:
    partial windows at the end count, too.
    """

    def __init__(
        self, kernel: Sizes, stride: Sizes | None, padding: Sizes, dilation: Sizes, ceil: bool
    ) -> None:
        self.kernel, self.stride, self.padding = kernel, stride, padding
        self.dilation, self.ceil = dilation, ceil

    def windows(self, x: Tensor) -> Windows:
        """The windows over a tensor. Raises ValueError."""
        return pooling.windows_of(
            x, self.kernel, self.stride, self.padding, self.dilation, ceil=self.ceil
        )


class _MaxPool(_Pool):
    def __call__(self, x: Tensor) -> Tensor:
        return pooling.max_pool(self.windows(x), x)


class _AveragePool(_Pool):
    def __init__(
        self, kernel: Sizes, stride: Sizes | None, padding: Sizes, ceil: bool, include_pad: bool
    ) -> None:
        super().__init__(kernel, stride, padding, 1, ceil)
        self.include_pad = include_pad

    def __call__(self, x: Tensor) -> Tensor:
        windows = self.windows(x)
        return pooling.average_pool(windows, x, pooling.counts(windows, x, pads=self.include_pad))


def max_pool(
    kernel: Sizes,
    stride: Sizes | None = None,
    padding: Sizes = 0,
    dilation: Sizes = 1,
    *,
    ceil: bool = False,
) -> Module:
    """A layer: the greatest element of each window of x [N, C, *S]."""
    return _MaxPool(kernel, stride, padding, dilation, ceil)


def average_pool(
    kernel: Sizes,
    stride: Sizes | None = None,
    padding: Sizes = 0,
    *,
    ceil: bool = False,
    include_pad: bool = True,
) -> Module:
    """A layer: the mean of each window of x [N, C, *S]; include_pad: zeros around it count."""
    return _AveragePool(kernel, stride, padding, ceil, include_pad)
