"""States of golden cases, by the C runtime's own comparison."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.runtimes_c.conftest import Build
from tests.runtimes_c.library import RuntimeFailure
from tests.runtimes_c.test_states import compiled
from tests.stateful import CASES
from tinyedge.export.bundle.golden import Golden, GoldenOutput
from tinyedge.goldens import make_goldens

CASE = "accumulator"


def _with(golden: Golden, state: GoldenOutput) -> Golden:
    return replace(golden, states=(state, *golden.states[1:]))


def test_they_are_compared(library: Build) -> None:
    """As they are, with a wrong number, and not told."""
    case = CASES[CASE]()
    program = compiled(case)
    (golden,) = make_goldens(case.source(), program, steps=4)
    outputs = len(golden.outputs)
    assert [state.data.size > 0 for state in golden.states] == [True] * len(program.states)
    loaded = library(program, (golden,))
    report = loaded.self_test(loaded.open())
    assert (report.outputs, report.wrong) == (outputs + len(program.states), 0)

    first = golden.states[0]
    wrong = GoldenOutput(first.stride, first.data + np.ones(1, first.data.dtype))
    loaded = library(program, (_with(golden, wrong),))
    with pytest.raises(RuntimeFailure, match=f"1 of {outputs + len(program.states)} outputs are"):
        loaded.self_test(loaded.open())

    untold = GoldenOutput(first.stride, first.data[:0])
    loaded = library(program, (_with(golden, untold),))
    assert loaded.self_test(loaded.open()).outputs == outputs + len(program.states) - 1
