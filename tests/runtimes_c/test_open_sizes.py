"""Models over open sizes in C: at every size as onnxruntime says."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.agreement import find_target
from tests.export.test_dims import PASTS, part_after_the_past
from tests.export.test_masks import compared
from tests.export.test_open_sizes import GROUPS, Opened, check
from tests.imported import import_graph, import_model
from tests.runtimes_c.conftest import Build
from tests.runtimes_c.library import Context, RuntimeFailure
from tinyedge.core.compiler.compile import compile_graph
from tinyedge.core.tensor.graph import Graphs

FIRST = "mechanisms"
SLOW = [pytest.param(group, marks=pytest.mark.slow) for group in GROUPS if group != FIRST]


@pytest.mark.parametrize("group", [FIRST, *SLOW])
def test_open_sizes(library: Build, group: str) -> None:
    some = {name: Opened.of(name, f"{number}/") for number, name in enumerate(GROUPS[group])}
    graphs = Graphs({name: opened.imported.graph() for name, opened in some.items()})
    program = compile_graph(graphs, find_target("cpu")).program
    assert program is not None
    context = Context(library(program))
    for name, opened in some.items():
        for sizes, feeds, wanted in opened.worlds():
            found = context.run(feeds, name)
            for output, array in found.items():
                count = found.get(f"{output}.count")
                if count is not None:
                    axis = next(p.count_axis for p in program.outputs if p.name == output)
                    found[output] = array.take(range(int(count)), axis)
            check(found, wanted, f"{name} {sizes}")
    context.close()


@pytest.mark.parametrize("each", [1, 2])
def test_a_size_known_by_a_sum(library: Build, each: int) -> None:
    """`new` is no axis of an input, but `past + each * new` is."""
    data = part_after_the_past(f"past + {each} * new")
    imported = import_model(data, dims={"past": "0..20", "new": "1..4"})
    program = compile_graph(imported.graph(), find_target("cpu")).program
    assert program is not None
    context = Context(library(program))
    for past, new in PASTS:
        mask = np.arange(past + each * new, dtype=np.float32)[None]
        found = context.run({"past": np.ones((1, past), np.float32), "mask": mask})
        np.testing.assert_array_equal(found["y"], mask[:, past:])
    for length in (7, 20, 20 + 5 * each):
        shapes = {"past": (1, 20), "mask": (1, length)}
        with pytest.raises(RuntimeFailure, match=f"axis 1 of mask (cannot be|is) {length}"):
            context.run({name: np.ones(shape, np.float32) for name, shape in shapes.items()})
    context.close()


def test_sizes_that_differ_in_a_run(library: Build, tmp_path: Path) -> None:
    graph = import_graph(compared(tmp_path / "m.onnx"))[0]
    program = compile_graph(graph, find_target("cpu")).program
    assert program is not None
    context = Context(library(program))
    x, v = np.arange(20, dtype=np.float32).reshape(4, 5) - 9, np.array(0.5, np.float32)
    found = context.run({"x": x, "m": x < v, "v": v})
    np.testing.assert_array_equal(found["y"], np.where(x < v, v, x))
    with pytest.raises(
        RuntimeFailure, match=r"y has -1 entries of 4 \(-1: sizes that must be equal differ"
    ):
        context.run({"x": x, "m": x < v - 1, "v": v})
    context.close()
