"""Modules: trees of parameters that are called; and what differs while a model is trained."""

from __future__ import annotations

import contextvars
from collections.abc import Callable, Iterator, Mapping
from types import TracebackType
from typing import Any

from tinyedge.core.gradient import trees
from tinyedge.core.gradient.trees import Buffer, Structure
from tinyedge.core.tensor import random
from tinyedge.core.tensor.tensor import Tensor


class Module(Structure):
    """A layer, or a model of several: a tree, whose parts are its attributes.

    A class of one's own sets its parts in `__init__` and computes in `__call__`. Nothing is changed
    in place: an optimizer gives a new model.
    """

    def __call__(self, *inputs: Any, **options: Any) -> Any:
        raise NotImplementedError(f"{type(self).__name__} has no __call__")

    def __repr__(self) -> str:
        parts = (f"{name}={part!r}" for name, part in vars(self).items())
        return f"{type(self).__name__}({', '.join(parts)})"


class Sequential(Module):
    """Modules and functions of one tensor, one after the other. Its parts are "0", "1", ..."""

    def __init__(self, *layers: Callable[..., Any]) -> None:
        for number, layer in enumerate(layers):
            setattr(self, str(number), layer)

    def __call__(self, x: Any) -> Any:
        for layer in self:
            x = layer(x)
        return x

    def __iter__(self) -> Iterator[Callable[..., Any]]:
        return iter(vars(self).values())

    def __len__(self) -> int:
        return len(vars(self))

    def __getitem__(self, number: int) -> Any:
        return list(self)[number]


class training:  # noqa: N801 - it is called as a function is
    """While a model is called within it, it is trained: dropout draws, batches are normalized by
    their own means, and running means move on.

        with nn.training(key) as run:
            loss = nn.cross_entropy(model(x), y)
        model = run.updated(model)  # with the new running means

    key: what dropout draws from; a new one each time. Without `training` a model is evaluated.
    """

    def __init__(self, key: Tensor | None = None) -> None:
        self._key = key
        self._drawn = 0
        self._kept: dict[int, tuple[Buffer, Tensor]] = {}

    def __enter__(self) -> training:
        self._token = _CURRENT.set(self)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        _CURRENT.reset(self._token)

    def key(self) -> Tensor:
        """A key that was not given before. Raises ValueError where there is none."""
        if self._key is None:
            raise ValueError("a layer draws random numbers in training: nn.training(key)")
        self._drawn += 1
        return random.fold_in(self._key, self._drawn - 1)

    def value(self, buffer: Buffer) -> Tensor:
        """A buffer's value, of which an earlier layer's update is part."""
        return self._kept[id(buffer)][1] if id(buffer) in self._kept else buffer.value

    def keep(self, buffer: Buffer, value: Tensor) -> None:
        """Give a buffer a new value."""
        self._kept[id(buffer)] = buffer, value

    def updated(self, model: Any) -> Any:
        """The model that was called, with the new values of its buffers."""
        return trees.mapped(lambda leaf: leaf, model, lambda buffer: Buffer(self.value(buffer)))


_CURRENT: contextvars.ContextVar[training | None] = contextvars.ContextVar("training", default=None)


def current() -> training | None:
    """The training that a model is called in; None: it is evaluated."""
    return _CURRENT.get()


UNKEPT = "num_batches_tracked"  # which torch's batch norms hold, and need no one gives


def state_dict(model: Any) -> dict[str, Tensor]:
    """All tensors of a model by name, such as "0.weight": torch's names for the same layers."""
    return dict(trees.named(trees.tensors(model, variables=True)))


def load_state_dict(model: Any, state: Mapping[str, Any], prefix: str = "") -> Any:
    """The model with tensors or arrays by name in place of its own, cast to their types.

    prefix: what the names of the model's tensors begin with, as `model.`; others are passed over.
    Raises ValueError for names that are missing or too many, or shapes that differ.
    """
    state = {n.removeprefix(prefix): v for n, v in state.items() if n.startswith(prefix)}
    model = trees.tensors(model, variables=True)
    own = list(trees.named(model))
    given = {name for name in state if name.rpartition(".")[2] != UNKEPT}
    missing = [name for name, _ in own if name not in given]
    extra = sorted(given - {name for name, _ in own})
    if missing or extra:
        raise ValueError(f"the state of another model: {trees.differing(missing, extra)}")
    return trees.rebuilt(model, [_loaded(name, leaf, state[name]) for name, leaf in own])


def _loaded(name: str, leaf: Tensor, value: Any) -> Tensor:
    tensor = value if isinstance(value, Tensor) else Tensor.weight(name, value)
    if tensor.shape != leaf.shape:
        raise ValueError(f"{name} is {list(tensor.shape)}, the model's is {list(leaf.shape)}")
    return tensor.cast(leaf.dtype)
