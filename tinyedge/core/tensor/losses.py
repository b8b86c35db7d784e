"""Losses: scalars that training makes small, with torch's meanings of their options.

reduction: "mean", "sum" or "none". Classes of logits [N, C, *S] are along axis 1, of [C] along 0.
"""

from __future__ import annotations

import math
from typing import TypeVar

from tinyedge.core import dtype as dt
from tinyedge.core.tensor.base import given
from tinyedge.core.tensor.mathematics import softplus
from tinyedge.core.tensor.nn import log_softmax
from tinyedge.core.tensor.reductions import Reductions

T = TypeVar("T", bound=Reductions)


def reduced(losses: T, reduction: str) -> T:
    """Losses as one number. Raises ValueError for an unknown reduction."""
    if reduction == "mean":
        return losses.mean()
    if reduction == "sum":
        return losses.blocked_sum()
    if reduction == "none":
        return losses
    raise ValueError(f"reduction {reduction!r}: it is 'mean', 'sum' or 'none'")


def cross_entropy(
    logits: T,
    target: T,
    weight: T | None = None,
    *,
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
    reduction: str = "mean",
) -> T:
    """-log of the softmax of logits at the target: integers [N, *S], or chances [N, C, *S].

    weight: [C], what a class counts; a mean is by the weights of the targets. label_smoothing: the
    part of a target that goes to all classes alike. ignore_index: a target that counts nothing.
    The loss of another integer that is no class is NaN, and no gradient comes of it.
    """
    target = given(type(logits), target, "cross_entropy")
    axis = min(1, logits.ndim - 1)
    logs = log_softmax(logits, axis)
    if target.dtype.is_int:
        return _of_classes(logs, target, weight, axis, ignore_index, label_smoothing, reduction)
    if target.shape != logits.shape:
        raise ValueError(f"targets {list(target.shape)} for logits {list(logits.shape)}")
    chances = target.cast(logs.dtype)
    if label_smoothing:
        even = label_smoothing / logs.from_size(logs.shape[axis], logs.dtype)
        chances = chances * (1.0 - label_smoothing) + even
    if weight is not None:
        chances = chances * _along(weight, axis, logs.ndim)
    losses = -(chances * logs).sum(axis)
    if reduction == "mean" and losses.ndim:  # over the batch and places, not over classes
        return losses.mean()
    return reduced(losses, reduction)


def nll_loss(
    logs: T,
    target: T,
    weight: T | None = None,
    *,
    ignore_index: int = -100,
    reduction: str = "mean",
) -> T:
    """As `cross_entropy` for integer targets, of logarithms of chances."""
    target = given(type(logs), target, "nll_loss")
    axis = min(1, logs.ndim - 1)
    return _of_classes(logs, target, weight, axis, ignore_index, 0.0, reduction)


def _of_classes(
    logs: T,
    target: T,
    weight: T | None,
    axis: int,
    ignore_index: int,
    smoothing: float,
    reduction: str,
) -> T:
    if target.shape != logs.shape[:axis] + logs.shape[axis + 1 :]:
        raise ValueError(f"targets {list(target.shape)} for logits {list(logs.shape)}")
    if not target.dtype.is_int:
        raise TypeError(f"targets of {target.dtype}: classes are integers")
    classes = _along(logs.arange(logs.shape[axis]), axis, logs.ndim)
    target = target.cast(dt.int32)
    hit = classes.eq(target.unsqueeze(axis))
    counted = target.ne(ignore_index)
    factor = counted.cast(logs.dtype)
    weights = None if weight is None else _along(weight, axis, logs.ndim)
    if weights is not None:
        factor = factor * hit.where(weights.broadcast_to(logs.shape), 0).sum(axis)
    losses = -(hit.where(logs, 0).sum(axis))
    if weights is not None or ignore_index >= 0:  # below 0 it is no class, of which nothing is hit
        losses = losses * factor
    is_class = target.bitcast(dt.uint32) < logs.from_size(logs.shape[axis], dt.uint32)
    losses = (is_class | ~counted).where(losses, math.nan)
    if smoothing:
        whole = logs if weights is None else logs * weights
        even = -whole.sum(axis) / logs.from_size(logs.shape[axis], logs.dtype)
        losses = losses * (1.0 - smoothing) + counted.where(even, 0) * smoothing
    if reduction == "mean":
        return losses.blocked_sum() / factor.blocked_sum()
    return reduced(losses, reduction)


def _along(x: T, axis: int, ndim: int) -> T:
    return x.reshape([-1 if a == axis else 1 for a in range(ndim)])


def mse_loss(x: T, target: T, *, reduction: str = "mean") -> T:
    """The square of the difference."""
    error = x - target
    return reduced(error * error, reduction)


def l1_loss(x: T, target: T, *, reduction: str = "mean") -> T:
    """The absolute difference."""
    return reduced((x - target).abs(), reduction)


def huber_loss(x: T, target: T, *, delta: float = 1.0, reduction: str = "mean") -> T:
    """Half the square of differences of up to delta, beyond delta * (|difference| - delta / 2)."""
    size = (x - target).abs()
    near = size.minimum(delta)
    return reduced(near * (size - near * 0.5), reduction)


def smooth_l1_loss(x: T, target: T, *, beta: float = 1.0, reduction: str = "mean") -> T:
    """`huber_loss` divided by its delta, beta; `l1_loss` for beta 0."""
    if beta == 0:
        return l1_loss(x, target, reduction=reduction)
    return huber_loss(x, target, delta=beta, reduction=reduction) / beta


def binary_cross_entropy(
    chances: T, target: T, weight: T | None = None, *, reduction: str = "mean"
) -> T:
    """-(t log p + (1 - t) log(1 - p)); as in torch no logarithm is below -100."""
    hit, miss = chances.log().maximum(-100.0), (1.0 - chances).log().maximum(-100.0)
    losses = -(target * hit + (1.0 - target) * miss)
    return reduced(losses if weight is None else losses * weight, reduction)


def binary_cross_entropy_with_logits(
    logits: T,
    target: T,
    weight: T | None = None,
    *,
    pos_weight: T | None = None,
    reduction: str = "mean",
) -> T:
    """`binary_cross_entropy` of sigmoid(logits), without overflow. pos_weight: what a 1 counts."""
    away = softplus(-logits)
    factor = 1.0 if pos_weight is None else 1.0 + (pos_weight - 1.0) * target
    losses = (1.0 - target) * logits + away * factor
    return reduced(losses if weight is None else losses * weight, reduction)


def kl_div(logs: T, target: T, *, log_target: bool = False, reduction: str = "mean") -> T:
    """target * (log(target) - logs), 0 where the target is; "batchmean": the sum by batch size."""
    if log_target:
        losses = target.exp() * (target - logs)
    else:
        none = target.eq(0)
        losses = none.where(0.0, target * (none.where(1.0, target).log() - logs))
    if reduction == "batchmean":
        return losses.blocked_sum() / logs.from_size(logs.shape[0], logs.dtype)
    return reduced(losses, reduction)
