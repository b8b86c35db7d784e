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
        model = trees.tensors(model, variables=True)
        sums = trees.mapped(
            lambda leaf: (
                Tensor.full(leaf.shape, 0, wide(leaf.dtype)) if leaf.dtype.is_float else None
            ),
            model,
        )
        return {"count": Tensor(0, dt.int32), "sums": sums, "state": self.optimizer.init(model)}

    def update(self, model: Any, gradients: Any, state: Mapping[str, Any]) -> tuple[Any, Any]:
        """The model and the state after one call. Raises ValueError as the optimizer does."""
        model = trees.tensors(model, variables=True)
        gradients = trees.tensors(gradients, variables=True)
        found = {p: t for p, t in trees.by_path(gradients).items() if t.dtype.is_float}
        totals = trees.by_path(state["sums"])
        trees.matched(found, totals, "the state's sums are those of other gradients")
        given = [found[path].in_full() for path in totals]
        sums = [
            total + gradient.cast(total.dtype)
            for total, gradient in zip(totals.values(), given, strict=True)
        ]
        due = (state["count"] + 1).eq(self.count)
        means = {
            path: (total * (1.0 / self.count)).cast(found[path].dtype)
            for path, total in zip(totals, sums, strict=True)
        }
        mean = _floats(gradients, [means[path] for path in found])
        new_model, new_state = self.optimizer.update(model, mean, state["state"])
        rest = [due.where(0.0, total) for total in sums]
        after = {
            "count": due.where(0, state["count"] + 1),
            "sums": trees.rebuilt(state["sums"], rest),
            "state": _chosen(due, new_state, state["state"]),
        }
        return _chosen(due, new_model, model), after


LARGEST = 65504.0  # of fp16


class LossScale:
    """Updates by gradients of a loss that was multiplied by a scale, so that fp16 holds them.

    Gradients of fp16 models are soon below what fp16 can hold, 6e-8. They are divided by the scale
    in float32. Where one of them is as large as fp16 can hold (or NaN), the model stays as it is,
    and the scale is halved; after `every` updates it is doubled, up to what it was at first.

    Its state is {"scale": float32, "steps": int32, the updates since it changed, "state": that of
    the optimizer}.
    """

    def __init__(self, optimizer: Optimizer, scale: float = 1024.0, every: int = 1000) -> None:
        if not 1 <= scale <= LARGEST:
            raise ValueError(f"a loss scale of {scale}: it must be from 1 to {LARGEST:.0f}")
        if every < 1:
            raise ValueError(f"a loss scale that grows every {every} updates")
        self.optimizer = optimizer
        self.scale = float(scale)
        self.every = every

    def init(self, model: Any) -> dict[str, Any]:
        """The state for a model before its first update."""
        scale = Tensor(self.scale, dt.float32)
        return {"scale": scale, "steps": Tensor(0, dt.int32), "state": self.optimizer.init(model)}

    def scaled(self, loss: Tensor, state: Mapping[str, Any]) -> Tensor:
        """The loss times the scale: what gradients are taken of."""
        scale: Tensor = state["scale"]
        return loss * scale.cast(loss.dtype)

    def update(self, model: Any, gradients: Any, state: Mapping[str, Any]) -> tuple[Any, Any]:
        """The model and the state after one update by gradients of the scaled loss.

        Raises ValueError as the optimizer does.
        """
        model = trees.tensors(model, variables=True)
        gradients = trees.tensors(gradients, variables=True)
        scale, steps = state["scale"], state["steps"] + 1
        given = [leaf.in_full() for leaf in trees.leaves(gradients) if leaf.dtype.is_float]
        fits = _all_below(given, LARGEST)
        true = [g.cast(wide(g.dtype)) * (1.0 / scale).cast(wide(g.dtype)) for g in given]
        after, new = self.optimizer.update(model, _floats(gradients, true), state["state"])
        due = steps.eq(self.every)
        larger = due.where((scale * 2.0).minimum(self.scale), scale)
        return _chosen(fits, after, model), {
            "scale": fits.where(larger, (scale * 0.5).maximum(1.0)),
            "steps": (fits & ~due).where(steps, 0),
            "state": _chosen(fits, new, state["state"]),
        }


def _all_below(tensors: list[Tensor], limit: float) -> Tensor:
    """bool: whether all absolute values are below a limit; of NaN they are not."""
    below: Tensor = Tensor(True, dt.bool_)
    for x in tensors:
        below = below & (x.abs() < limit).all()
    return below


def _floats(tree: Any, values: list[Tensor]) -> Any:
    remaining = iter(values)
    return trees.mapped(lambda leaf: next(remaining) if leaf.dtype.is_float else leaf, tree)


def _chosen(due: Tensor, new: Any, old: Any) -> Any:
    pairs = zip(trees.leaves(new), trees.leaves(old), strict=True)
    return trees.rebuilt(new, [a if a is b else due.where(a, b) for a, b in pairs])
