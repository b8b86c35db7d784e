"""What is done to all tensors of a model or of its gradients."""

from __future__ import annotations

import math
from typing import Any

from tinyedge.core import dtype as dt
from tinyedge.core.gradient import trees
from tinyedge.core.tensor.tensor import Tensor
from tinyedge.optim.optimizer import wide


def global_norm(tree: Any) -> Tensor:
    """The square root of the sum of all squares, a float32 scalar (of doubles: float64)."""
    tree = trees.tensors(tree, variables=True)
    leaves = [leaf for leaf in trees.leaves(tree) if leaf.dtype.is_float]
    if not leaves:
        raise ValueError("the norm of no tensors")
    double = any(leaf.dtype is dt.float64 for leaf in leaves)
    dtype = dt.float64 if double else dt.float32
    total = Tensor.full((), 0, dtype)
    for leaf in leaves:
        values = leaf.cast(dtype)
        total = total + (values * values).blocked_sum()
    return total.sqrt()


def clip_by_norm(gradients: Any, most: float) -> Any:
    """Gradients scaled so that their global norm is at most that; NaN stays NaN."""
    if not most > 0:
        raise ValueError(f"a norm of at most {most}: it must be above 0")
    gradients = _of_floats(gradients, lambda leaf: leaf.in_full())
    norm = global_norm(gradients)
    scale = (norm > most).where(most / norm, 1.0)
    return _of_floats(gradients, lambda leaf: leaf * scale.cast(leaf.dtype))


def clip_by_value(gradients: Any, most: float) -> Any:
    """Gradients of which no element is above `most` or below -`most`."""
    if not 0 < most < math.inf:
        raise ValueError(f"values of at most {most}: it must be above 0")
    return _of_floats(gradients, lambda leaf: leaf.in_full().clip(-most, most))


def average(averages: Any, model: Any, decay: float) -> Any:
    """An exponential moving average: of the averages `decay` is kept, the rest is the model's.

    Both have one structure. Tensors that are not of floats are the model's.
    """
    averages, model = (trees.tensors(tree, variables=True) for tree in (averages, model))
    previous = trees.same_leaves(model, averages, "averages")
    mixed = []
    for old, new in zip(previous, trees.leaves(model), strict=True):
        mixed.append(_mixed(old, new, decay) if new.dtype.is_float else new)
    return trees.rebuilt(model, mixed)


def _mixed(old: Tensor, new: Tensor, decay: float) -> Tensor:
    dtype = wide(new.dtype)
    return (old.cast(dtype) * decay + new.cast(dtype) * (1.0 - decay)).cast(new.dtype)


def _of_floats(tree: Any, function: Any) -> Any:
    tree = trees.tensors(tree, variables=True)
    return trees.mapped(lambda leaf: function(leaf) if leaf.dtype.is_float else leaf, tree)
