"""What optimizers have in common: one rule for a parameter, applied to all of a model's."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping
from typing import Any, Union

from tinyedge.core import dtype as dt
from tinyedge.core.gradient import trees
from tinyedge.core.tensor.mathematics import expm1
from tinyedge.core.tensor.tensor import Tensor

# A learning rate: a number, a scalar tensor, or what gives one for the number of updates done.
Rate = Union[float, Tensor, Callable[[Tensor], Tensor]]
Slots = dict[str, Tensor]


class Optimizer:
    """An optimizer of what is a variable of a model; `Buffer`s of it stay as they are.

    Its state is {"step": int32, the updates done, and a tree for each slot}.

    A slot is a tensor that is kept for each parameter, of the parameter's shape, in float32 (of
    doubles in float64). Parameters of fp16 are updated in float32 and rounded once.
    """

    slots: tuple[str, ...] = ()

    def __init__(self, rate: Rate) -> None:
        if isinstance(rate, (int, float)) and not rate >= 0:
            raise ValueError(f"a learning rate of {rate}: it must not be negative")
        self.rate = rate

    def first(self, parameter: Tensor) -> Slots:
        """A parameter's slots before the first update."""
        return {name: Tensor.full(parameter.shape, 0, wide(parameter.dtype)) for name in self.slots}

    def rule(
        self, parameter: Tensor, gradient: Tensor, slots: Slots, rate: Tensor, step: Tensor
    ) -> tuple[Tensor, Slots]:
        """A parameter and its slots after an update, the `step`-th, counted from 1.

        All tensors have one type of floats, rate and step are scalars of it.
        """
        raise NotImplementedError

    def init(self, model: Any) -> dict[str, Any]:
        """The state for a model before its first update."""
        state: dict[str, Any] = {"step": Tensor(0, dt.int32)}
        for name in self.slots:
            slot = functools.partial(self._slot, name)
            state[name] = trees.mapped(slot, model, buffer=lambda buffer: None)
        return state

    def _slot(self, name: str, leaf: Tensor) -> Tensor | None:
        return self.first(leaf)[name] if leaf.dtype.is_float else None

    def update(self, model: Any, gradients: Any, state: Mapping[str, Any]) -> tuple[Any, Any]:
        """The model and the state after one update.

        gradients: of the model's structure, as `grad` gives them; those of fp16 parameters may be
        float32. Raises ValueError for others, or
        for the state of another model.
        """
        parameters = [leaf for leaf in trees.variables(model) if leaf.dtype.is_float]
        given = trees.variables(gradients)
        if len(given) != len(parameters):  # integers of a model may stand in its gradients
            given = [leaf for leaf in given if leaf.dtype.is_float]
        trees.same_leaves(_alike(parameters, given), given, "gradients")
        kept = {name: trees.leaves(state[name]) for name in self.slots}
        for name, leaves in kept.items():
            shapes = [self.first(leaf)[name].shape for leaf in parameters]
            if [leaf.shape for leaf in leaves] != shapes:
                raise ValueError(f"the state's {name!r} is that of another model")
        done = state["step"] + 1
        updated: list[Tensor] = []
        slots: dict[str, list[Tensor]] = {name: [] for name in self.slots}
        for number, (parameter, gradient) in enumerate(zip(parameters, given, strict=True)):
            dtype = wide(parameter.dtype)
            own = {name: kept[name][number] for name in self.slots}
            rate = self.at(state["step"], dtype)
            value, after = self.rule(
                parameter.cast(dtype), gradient.in_full().cast(dtype), own, rate, done.cast(dtype)
            )
            updated.append(value.cast(parameter.dtype))
            for name in self.slots:
                slots[name].append(after[name])
        new = {name: trees.rebuilt(state[name], slots[name]) for name in self.slots}
        return _with_parameters(model, updated), {"step": done, **new}

    def at(self, step: Tensor, dtype: dt.DType = dt.float32) -> Tensor:
        """The learning rate after so many updates, a scalar of a type of floats."""
        rate = self.rate(step) if callable(self.rate) else self.rate
        return rate.cast(dtype) if isinstance(rate, Tensor) else Tensor(float(rate), dtype)


def wide(dtype: dt.DType) -> dt.DType:
    """The type in which a parameter is updated."""
    return dtype if dtype.bits >= 32 and not dtype.storage_type else dt.float32


def _alike(parameters: list[Tensor], gradients: list[Tensor]) -> list[Tensor]:
    """The parameters, in the type of their update where the gradient has that."""
    if len(parameters) != len(gradients):
        return parameters
    pairs = zip(parameters, gradients, strict=True)
    return [p.cast(wide(p.dtype)) if g.dtype is wide(p.dtype) else p for p, g in pairs]


def _with_parameters(model: Any, values: list[Tensor]) -> Any:
    remaining = iter(values)

    def next_of(leaf: Tensor) -> Tensor:
        return next(remaining) if leaf.dtype.is_float else leaf

    return trees.mapped(next_of, model, buffer=lambda buffer: buffer)


def one_minus_power(base: float, step: Tensor) -> Tensor:
    """1 - base^step, without the loss of digits where that is near 0."""
    return -expm1(step * math.log(base)) if base else Tensor.full((), 1, step.dtype)
