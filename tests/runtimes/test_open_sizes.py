"""Models over open sizes in a page: at every size as onnxruntime says."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.agreement import find_target
from tests.export.test_open_sizes import GROUPS, Opened, check
from tinyedge.core.compiler.compile import compile_graph
from tinyedge.core.tensor.graph import Graphs
from tinyedge.export.package.package import write_bundle
from tinyedge.export.verify.browser import Browser

pytestmark = pytest.mark.browser
FIRST = "mechanisms"
SLOW = [pytest.param(group, marks=pytest.mark.slow) for group in GROUPS if group != FIRST]


@pytest.mark.parametrize("group", [FIRST, *SLOW])
def test_open_sizes(browser: Browser, tmp_path: Path, group: str) -> None:
    some = {name: Opened.of(name, f"{number}/") for number, name in enumerate(GROUPS[group])}
    graphs = Graphs({name: opened.imported.graph() for name, opened in some.items()})
    program = compile_graph(graphs, find_target("webgpu")).program
    assert program is not None
    bundle = write_bundle(program, tmp_path / "model.tinyedge")
    for name, opened in some.items():
        worlds = list(opened.worlds())
        found, _ = browser.run_in_page(bundle, [feeds for _, feeds, _ in worlds], entry=name)
        for outputs, (sizes, _, wanted) in zip(found, worlds, strict=True):
            check(outputs, wanted, f"{name} {sizes}")
