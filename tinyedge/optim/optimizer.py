"""What optimizers have in common: one rule for a parameter, applied to all of a model's."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping
from numbers import Real
from typing import Any, Union

from tinyedge.core import dtype as dt
from tinyedge.core.gradient import trees
from tinyedge.core.gradient.trees import Structure
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

    def __init__(self, lr: Rate) -> None:
        is_given = isinstance(lr, (Real, Tensor)) or callable(lr)
        if not is_given or isinstance(lr, Structure):
            kind = type(lr).__name__
            raise TypeError(
                f"a learning rate is a number, a scalar tensor or a schedule, not {kind}; "
                "a model is given to `init` and `update`"
            )
        if isinstance(lr, (int, float, Real)) and not float(lr) >= 0:
            raise ValueError(f"a learning rate of {lr}: it must not be negative")
        self.lr = lr

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
        model = trees.tensors(model, variables=True)
        for name in self.slots:
            slot = functools.partial(self._slot, name)
            state[name] = trees.mapped(slot, model, buffer=lambda buffer: None)
        return state

    def _slot(self, name: str, leaf: Tensor) -> Tensor | None:
        return self.first(leaf)[name] if leaf.dtype.is_float else None

    def update(self, model: Any, gradients: Any, state: Mapping[str, Any]) -> tuple[Any, Any]:
        """The model and the state after one update.

        gradients: of the model's structure, as `grad` gives them; those of fp16 parameters may be
        float32. A parameter and what is kept for it are found by the names and numbers of the parts
        that lead to them. Raises ValueError for gradients or the state of another model.
        """
        model = trees.tensors(model, variables=True)
        all_given = trees.by_path(trees.tensors(gradients, variables=True), buffers=False)
        own = trees.by_path(model, buffers=False)
        parameters = {path: leaf for path, leaf in own.items() if leaf.dtype.is_float}
        # Integers of a model may stand in its gradients.
        others = {path for path in own if path not in parameters}
        found = {path: leaf for path, leaf in all_given.items() if path not in others}
        given = trees.matched(parameters, found, "gradients")
        _check_types(parameters, found)
        kept = {name: self._kept(name, state, parameters) for name in self.slots}
        done = state["step"] + 1
        updated: list[Tensor] = []
        for (path, parameter), gradient in zip(parameters.items(), given, strict=True):
            dtype = wide(parameter.dtype)
            slots = {name: kept[name][path] for name in self.slots}
            rate = self.at(state["step"], dtype)
            value, after = self.rule(
                parameter.cast(dtype), gradient.in_full().cast(dtype), slots, rate, done.cast(dtype)
            )
            updated.append(value.cast(parameter.dtype))
            for name in self.slots:
                kept[name][path] = after[name]
        new = {name: trees.rebuilt(state[name], [*kept[name].values()]) for name in self.slots}
        return _with_parameters(model, updated), {"step": done, **new}

    def _kept(
        self, name: str, state: Mapping[str, Any], parameters: Mapping[trees.Path, Tensor]
    ) -> dict[trees.Path, Tensor]:
        """What a slot has for each parameter, in the state's order. Raises ValueError."""
        kept = trees.by_path(state[name])
        wanted = {path: self.first(leaf)[name] for path, leaf in parameters.items()}
        trees.matched(wanted, kept, f"the state's {name!r} is that of another model")
        return kept

    def at(self, step: Tensor, dtype: dt.DType = dt.float32) -> Tensor:
        """The learning rate after so many updates, a scalar of a type of floats."""
        rate = self.lr(step) if callable(self.lr) else self.lr
        return rate.cast(dtype) if isinstance(rate, Tensor) else Tensor(float(rate), dtype)


def wide(dtype: dt.DType) -> dt.DType:
    """The type in which a parameter is updated."""
    return dtype if dtype.bits >= 32 and not dtype.storage_type else dt.float32


def _check_types(
    parameters: Mapping[trees.Path, Tensor], gradients: Mapping[trees.Path, Tensor]
) -> None:
    """Raise ValueError for a gradient that has neither its parameter's type nor its update's."""
    for path, parameter in parameters.items():
        dtype = gradients[path].dtype
        if dtype not in (parameter.dtype, wide(parameter.dtype)):
            raise ValueError(
                f"gradients: {dtype} for {parameter.dtype} at {trees.shown(path)!r}: cast one"
            )


def _with_parameters(model: Any, values: list[Tensor]) -> Any:
    remaining = iter(values)

    def next_of(leaf: Tensor) -> Tensor:
        return next(remaining) if leaf.dtype.is_float else leaf

    return trees.mapped(next_of, model, buffer=lambda buffer: buffer)


def one_minus_power(base: float, step: Tensor) -> Tensor:
    """1 - base^step, without the loss of digits where that is near 0."""
    return -expm1(step * math.log(base)) if base else Tensor.full((), 1, step.dtype)
