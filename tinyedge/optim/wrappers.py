"""Optimizers around optimizers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tinyedge.core import dtype as dt
from tinyedge.core.gradient import trees
from tinyedge.core.tensor.tensor import Tensor
from tinyedge.optim.optimizer import Optimizer, wide


class Accumulate:
    """One update of an optimizer for the mean gradients of every `count` calls.

    Its state is {"count": int32, the calls since the last update, "sums": a tree, "state": that of
    the optimizer}. In between the model stays as it is.
    """

    def __init__(self, optimizer: Optimizer, count: int) -> None:
        if count < 1:
            raise ValueError(f"an update for every {count} gradients")
        self.optimizer = optimizer
        self.count = count

    def init(self, model: Any) -> dict[str, Any]:
        """The state for a model before its first update."""
        sums = trees.mapped(
            lambda leaf: (
                Tensor.full(leaf.shape, 0, wide(leaf.dtype)) if leaf.dtype.is_float else None
            ),
            model,
        )
        return {"count": Tensor(0, dt.int32), "sums": sums, "state": self.optimizer.init(model)}

    def update(self, model: Any, gradients: Any, state: Mapping[str, Any]) -> tuple[Any, Any]:
        """The model and the state after one call. Raises ValueError as the optimizer does."""
        given = [leaf for leaf in trees.leaves(gradients) if leaf.dtype.is_float]
        sums = [
            total + gradient.cast(total.dtype)
            for total, gradient in zip(trees.leaves(state["sums"]), given, strict=True)
        ]
        due = (state["count"] + 1).eq(self.count)
        means = [
            (total * (1.0 / self.count)).cast(gradient.dtype)
            for total, gradient in zip(sums, given, strict=True)
        ]
        new_model, new_state = self.optimizer.update(
            model, _floats(gradients, means), state["state"]
        )
        rest = [due.where(0.0, total) for total in sums]
        after = {
            "count": due.where(0, state["count"] + 1),
            "sums": trees.rebuilt(state["sums"], rest),
            "state": _chosen(due, new_state, state["state"]),
        }
        return _chosen(due, new_model, model), after


def _floats(tree: Any, values: list[Tensor]) -> Any:
    remaining = iter(values)
    return trees.mapped(lambda leaf: next(remaining) if leaf.dtype.is_float else leaf, tree)


def _chosen(due: Tensor, new: Any, old: Any) -> Any:
    pairs = zip(trees.leaves(new), trees.leaves(old), strict=True)
    return trees.rebuilt(new, [a if a is b else due.where(a, b) for a, b in pairs])
