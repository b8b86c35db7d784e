"""Models over open sizes in C: at every size as onnxruntime says."""

from __future__ import annotations

import pytest

from tests.agreement import find_target
from tests.export.test_open_sizes import GROUPS, Opened, check
from tests.runtimes_c.conftest import Build
from tests.runtimes_c.library import Context
from tinyedge.core.compile import Graphs, compile_graph

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
