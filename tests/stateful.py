"""Models with states, and what they mean: every run by the reference evaluator, states by hand."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tests.imported import source_of
from tinyedge.core import dtype as dt
from tinyedge.core.ir.reference import evaluate
from tinyedge.core.ir.uop import UOp
from tinyedge.core.tensor.graph import Graphs, State
from tinyedge.core.tensor.tensor import Tensor

Array = np.ndarray[Any, Any]
Arrays = dict[str, Array]
Function = Callable[..., Any]


@dataclass
class Case:
    """A function for each entry, zeros of the shapes and types of its inputs, and the states."""

    entries: dict[str, tuple[Function, Mapping[str, Array]]]
    states: dict[str, Any]
    initial: dict[str, Array] = field(default_factory=dict)
    order: tuple[str, ...] = ("main",)  # entries as they are run, again and again

    def source(self) -> Graphs:
        main, *others = self.entries.items()
        source, *_ = source_of(
            main[1], entries=dict(others), states=self.states, state_init=self.initial
        )
        return source


class Machine:
    """A model's runs, one after the other, without a compiler."""

    def __init__(self, source: Graphs) -> None:
        self.source = source
        self.states = {state.name: self._first(state) for state in source.states}

    def _first(self, state: State) -> Array:
        if state.initial is not None:
            return np.asarray(state.initial)
        return np.zeros(state.shape, state.dtype.numpy)  # type: ignore[arg-type]

    def run(self, entry: str, inputs: Mapping[str, Array]) -> Arrays:
        """The outputs of an entry; the states become new."""
        graph = self.source.entries[entry]
        arrays = {**inputs, **self.states}
        nodes: list[UOp] = [p.node for p in (*graph.outputs, *graph.updates) if p.node is not None]
        values = [np.asarray(value) for value in evaluate(nodes, arrays)]
        results = {p.name: v for p, v in zip(graph.outputs, values, strict=False)}
        for port, value in zip(graph.updates, values[len(results) :], strict=True):
            state = next(state for state in self.source.states if state.name == port.name)
            if state.update == "shift":
                old = self.states[port.name]
                _, left = np.split(old, [value.shape[state.axis]], state.axis)
                value = np.concatenate([left, value], state.axis)
            self.states[port.name] = value
        return results


def inputs_of(case: Case, entry: str, rng: np.random.Generator) -> Arrays:
    """Random inputs for a run of an entry, states left out."""
    made = {}
    for name, like in case.entries[entry][1].items():
        if name in case.states:
            continue
        if like.dtype.kind == "f":
            made[name] = rng.standard_normal(like.shape).astype(like.dtype)
        else:
            high = 2 if like.dtype == np.bool_ else 100
            made[name] = rng.integers(0, high, like.shape).astype(like.dtype)
    return made


def runs(case: Case, count: int, seed: int = 0) -> Iterator[tuple[str, Arrays]]:
    """Entries and inputs of `count` runs."""
    rng = np.random.default_rng(seed)
    for number in range(count):
        entry = case.order[number % len(case.order)]
        yield entry, inputs_of(case, entry, rng)


def zeros(*shape: int, dtype: Any = np.float32) -> Array:
    return np.zeros(shape, dtype)


X = zeros(2, 6)


def single(function: Function, states: Mapping[str, Any], **inputs: Array) -> Case:
    """A case of one entry."""
    return Case({"main": (function, inputs)}, dict(states))


def _cell(x: Tensor, h: Tensor, c: Tensor) -> dict[str, Tensor]:
    """An LSTM cell with random weights."""
    rng = np.random.default_rng(3)
    weight = Tensor.weight("w", rng.standard_normal((14, 32), dtype=np.float32) * 0.4)
    gates = Tensor.concat([x, h], 1) @ weight
    i, f, o, g = (gates[:, 8 * n : 8 * n + 8] for n in range(4))
    cell = f.sigmoid() * c + i.sigmoid() * g.tanh()
    hidden = o.sigmoid() * cell.tanh()
    return {"y": hidden.sum(1), "h_out": hidden, "c_out": cell}


def _queue(axis: int, size: int, count: int) -> Case:
    """A queue along an axis; what is new depends on what is in it."""
    shape = [2, 3, 4]
    shape[axis] = size
    new = [2, 3, 4]
    new[axis] = count

    def function(x: Tensor, q: Tensor) -> dict[str, Tensor]:
        oldest = q.sum((axis,), keepdims=True)
        return {"y": q.max((axis,)), "q_out": x + oldest.expand(tuple(new)) * 0.25}

    return single(function, {"q": f"q_out:shift@{axis}"}, x=zeros(*new), q=zeros(*shape))


def _typed(dtype: Any, size: int = 5) -> Case:
    """A flag or number that is replaced, and a queue of them; rows may end inside of a word."""

    def function(x: Tensor, last: Tensor, queue: Tensor) -> dict[str, Tensor]:
        if x.dtype is dt.bool_:
            new = x & ~last
        else:
            new = x + last
        return {"y": queue[:, 1:3], "new": new, "next": new.reshape((1, size))}

    shape = zeros(size, dtype=dtype)
    states = {"last": "new:keep", "queue": ("next", "shift")}
    return single(function, states, x=shape, last=shape, queue=zeros(3, size, dtype=dtype))


def _frames() -> Case:
    """One entry fills a stack of frames, another one reads it with a memory of its own."""

    def main(frames: Tensor, memory: Tensor, x: Tensor) -> dict[str, Tensor]:
        seen = frames.cast(dt.float32).mean((2, 3))
        new = (seen @ Tensor.weight("a", np.full((4, 6), 0.05, np.float32))).tanh() + memory * 0.5
        return {"y": new + x, "memory_out": new.reshape((1, 1, 6))[:, 0]}

    def frame(image: Tensor) -> dict[str, Tensor]:
        return {"frames_out": (image >> 1) + 1}

    stack, image = zeros(1, 4, 8, 8, dtype=np.uint8), zeros(1, 2, 8, 8, dtype=np.uint8)
    return Case(
        {
            "main": (main, {"frames": stack, "memory": zeros(1, 6), "x": zeros(1, 6)}),
            "frame": (frame, {"image": image}),
        },
        {"frames": "frames_out:shift", "memory": "memory_out"},
        order=("frame", "main"),
    )


def _outputs_apart() -> Case:
    """Two outputs are one value in one entry and two in another."""

    def main(x: Tensor) -> dict[str, Tensor]:
        double = x * 2.0
        return {"a": double, "b": double}

    def other(x: Tensor) -> dict[str, Tensor]:
        return {"b": x + 1.0, "a": x - 1.0}

    return Case({"main": (main, {"x": X}), "other": (other, {"x": X})}, {}, order=("main", "other"))


CASES: dict[str, Callable[[], Case]] = {
    "accumulator": lambda: single(
        lambda x, h: {"y": h.sum(1), "h_out": h * 0.5 + x}, {"h": "h_out"}, x=X, h=X
    ),
    "kept accumulator": lambda: single(
        lambda x, h: {"h_out": h * 0.5 + x}, {"h": "h_out:keep"}, x=X, h=X
    ),
    "moments": lambda: single(  # one kernel may write all, each read by the others' values
        lambda x, m, v, w: {
            "m_out": m * 0.9 + x * 0.1,
            "v_out": v * 0.99 + x * x * 0.01,
            "w_out": w - (m * 0.9 + x * 0.1) / ((v * 0.99 + x * x * 0.01).sqrt() + 1.0),
        },
        {"m": "m_out", "v": "v_out", "w": "w_out"},
        x=X,
        m=X,
        v=X,
        w=X,
    ),
    "step by a product": lambda: single(  # the old value is also a factor of what it is changed by
        lambda x, w: {"w_out": w - (w.transpose() @ w @ x.transpose()).transpose() * 0.01},
        {"w": "w_out"},
        x=X,
        w=X,
    ),
    "neighbors": lambda: single(  # each element depends on others of the old value
        lambda x, h: {"y": h.exp(), "h_out": h.flip(1) + x}, {"h": "h_out"}, x=X, h=X
    ),
    "delay": lambda: single(lambda x, h: {"y": h, "h_out": x}, {"h": "h_out"}, x=X, h=X),
    "delay line": lambda: single(
        lambda x, a, b, c: {"y": c, "a_out": x, "b_out": a, "c_out": b},
        {"a": "a_out", "b": "b_out", "c": "c_out"},
        x=X,
        a=X,
        b=X,
        c=X,
    ),
    "swap": lambda: Case(
        {"main": (lambda a, b: {"y": a - b, "a_out": b, "b_out": a}, {"a": X, "b": X})},
        {"a": "a_out", "b": "b_out"},
        {"a": np.arange(12, dtype=np.float32).reshape(2, 6)},
    ),
    "read after new": lambda: single(  # the old value is needed once the new one is known
        lambda x, h: {"y": x.softmax(1).max(0) + h, "h_out": x.softmax(1)},
        {"h": "h_out"},
        x=X,
        h=X,
    ),
    "new read by outputs": lambda: single(
        lambda x, h: {"z": h.max(1), "h_out": x.softmax(1), "y": (x.softmax(1) * 2.0).sum(0)},
        {"h": "h_out"},
        x=X,
        h=X,
    ),
    "constant": lambda: single(
        lambda x, h: {
            "y": h + x,
            "h_out": Tensor.weight("w", np.full((2, 6), 3, np.float32)) * 2.0,
        },
        {"h": "h_out"},
        x=X,
        h=X,
    ),
    "unchanged": lambda: Case(
        {"main": (lambda x, h: {"y": h + x, "h_out": h}, {"x": X, "h": X})},
        {"h": "h_out"},
        {"h": np.ones((2, 6), np.float32)},
    ),
    "one output, two states": lambda: single(
        lambda x, h, q: {"y": q.sum((0,)) + h, "out": (x + h).reshape((1, 2, 6))[0:1]},
        {"h": "out", "q": "out:shift"},
        x=X,
        h=zeros(1, 2, 6),
        q=zeros(4, 2, 6),
    ),
    "concatenated": lambda: single(  # the new value is written in parts
        lambda x, h: {
            "y": h.sum(0),
            "h_out": Tensor.concat([x[:, :2].exp(), h[:, :3], x[:, 2:3]], 1),
        },
        {"h": "h_out"},
        x=X,
        h=X,
    ),
    "cell": lambda: single(_cell, {"h": "h_out", "c": "c_out"}, x=X, h=zeros(2, 8), c=zeros(2, 8)),
    **{
        f"queue of {size} along {axis} takes {count}": (
            lambda axis=axis, size=size, count=count: _queue(axis, size, count)
        )
        for axis, size, count in (
            *((0, 5, 1), (0, 5, 3), (1, 5, 1), (1, 6, 4), (2, 7, 1), (2, 8, 3), (2, 4, 4)),
        )
    },
    **{
        name: (lambda name=name: _typed(np.dtype(name)))
        for name in ("bool", "int64", "int32", "uint8", "int8", "float16")
    },
    "frames": _frames,
    "outputs apart": _outputs_apart,
}
