"""What kernels cannot take as it would lie in memory is found once; only they are formed anew."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest

from tests.agreement import find_target
from tinyedge import Tensor
from tinyedge.core import dtype as dt
from tinyedge.core.compiler import stages
from tinyedge.core.compiler.compile import compile_graph
from tinyedge.core.compiler.options import Options
from tinyedge.core.compiler.schedule.forming import Former
from tinyedge.core.compiler.state import Compilation
from tinyedge.core.tensor.graph import Graph, Graphs, Port

VALUES = np.random.default_rng(1).normal(size=(32, 32)).astype(np.float32)
WEIGHTS = Tensor.weight("w", VALUES)
X = Tensor.input("x", (32, 32), dt.float32)


def _transposed(x: Tensor) -> Tensor:
    """An image that its second reader wants by columns."""
    return (x @ WEIGHTS).in_memory().transpose().exp() + (x @ WEIGHTS).in_memory()


def _chain(x: Tensor) -> Tensor:
    """A kernel before and after the one that refuses."""
    return ((x @ WEIGHTS).relu() @ WEIGHTS).in_memory().transpose() @ WEIGHTS


def _looped(x: Tensor) -> Tensor:
    """Inside a loop, whose iterations share their kernels."""
    (y,) = Tensor.loop([x], lambda c: [(c @ WEIGHTS).in_memory().transpose().tanh()], trips=3)
    return y @ WEIGHTS


FUNCTIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "transposed": _transposed,
    "chain": _chain,
    "looped": _looped,
}
CASES = [
    *[(name, "qcom", Options()) for name in FUNCTIONS if name != "chain"],  # takes all images
    *[(name, "qcom", Options(precision="fp16")) for name in FUNCTIONS if name != "chain"],
    *[(name, "webgpu", Options(optimize=False, precision="fp16")) for name in FUNCTIONS],
]


@cache
def _graphs(name: str) -> Graphs:
    """Two entries that share tensors; the same nodes each time."""
    port, y = Port("x", dt.float32, (32, 32)), FUNCTIONS[name](X)
    entries = {
        entry: Graph((port,), (Port(entry, dt.float32, out.shape, out.node),))
        for entry, out in {"first": y, "second": y * 2.0}.items()
    }
    return Graphs(entries)


def _compiled(name: str, target: str, options: Options) -> Compilation:
    return compile_graph(_graphs(name), find_target(target), options)


@pytest.mark.parametrize("name, target, options", CASES)
def test_schedule_runs_once_per_entry(
    name: str, target: str, options: Options, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: Counter[str] = Counter()

    def counted(where: Any, attribute: str) -> None:
        inner = getattr(where, attribute)

        def outer(*arguments: Any) -> Any:
            calls[attribute] += 1
            return inner(*arguments)

        monkeypatch.setattr(where, attribute, outer)

    counted(stages, "schedule")
    counted(Former, "add")
    counted(Former, "_form")
    state = _compiled(name, target, options)
    assert state.refusals.nodes
    assert calls["schedule"] == 2
    assert calls["add"] < calls["_form"] <= 2 * calls["add"]


@pytest.mark.parametrize("name, target, options", CASES)
def test_it_is_as_if_it_had_been_known(
    name: str, target: str, options: Options, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kernels, moves and memory are those of a schedule that knows the refusals from the start."""
    found = _compiled(name, target, options)
    make = Former.__init__

    def knowing(self: Former, *arguments: Any) -> None:
        make(self, *arguments)
        self.refusals = found.refusals

    monkeypatch.setattr(Former, "__init__", knowing)
    monkeypatch.setattr(Former, "refuse", None)  # nothing is left to refuse
    known = _compiled(name, target, options)
    assert [k.source for k in known.kernels.values()] == [k.source for k in found.kernels.values()]
    assert known.program is not None and found.program is not None
    assert known.program.entries == found.program.entries
    assert known.program.buffers == found.program.buffers
