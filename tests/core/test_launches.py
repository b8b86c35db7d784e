"""How many launches networks and their blocks take on each target."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest

from tests import models
from tests.agreement import Inputs, compiled, find_target
from tests.bench import cases
from tests.core.test_borders import check_sums
from tests.core.test_held import squeezed
from tests.imported import import_graph
from tests.study import networks
from tinyedge.core.compiler.compile import compile_graph
from tinyedge.core.compiler.options import Options

Network = Callable[[], Any]

TARGETS = ("cpu", "webgpu", "qcom", "cuda")

# A transformer's layer has seven: queries, keys and values; attention; three products; two norms.
# On cuda long sums of few results are taken in parts, which keep a GPU busy: a norm adds them where
# it reads them, and a convolution is one launch more. docs/study.md has the reasons, by target.
LAUNCHES: dict[str, tuple[Network, dict[str, int]]] = {
    "bert": (functools.partial(networks.bert, layers=2), dict.fromkeys(TARGETS, 2 * 7)),
    "bert of width 768": (
        functools.partial(networks.bert, layers=1, width=768),
        {"cpu": 7, "webgpu": 7 + 2, "qcom": 7, "cuda": 7 + 2},
    ),
    "vit": (networks.vit_tiny, dict.fromkeys(TARGETS, 12 * 7 + 4)),
    "mobilenet_v2": (networks.mobilenet_v2, {"cpu": 54, "webgpu": 53, "qcom": 54, "cuda": 53}),
    "resnet18": (networks.resnet18, {"cpu": 20, "webgpu": 20, "qcom": 20, "cuda": 27}),
}


@functools.cache
def _model(name: str) -> bytes:
    return bytes(LAUNCHES[name][0]().SerializeToString())


@pytest.mark.parametrize("on", TARGETS)
@pytest.mark.parametrize("name", LAUNCHES)
def test_of_a_network(name: str, on: str) -> None:
    graph, _ = import_graph(_model(name))
    state = compile_graph(graph, find_target(on), Options(winograd=0, precision="fp32"))
    assert len(state.launches) == LAUNCHES[name][1][on]
    if on == "webgpu" and name in ("mobilenet_v2", "resnet18", "vit"):
        check_sums(state, least=7)
    if on == "webgpu" and name == "mobilenet_v2":
        assert state.program is not None
        assert len(state.program.kernels) <= 16  # pipelines, which a page compiles


def test_pipelines_of_a_language_model() -> None:
    """Of MiniLM's three layers, after embeddings and before a mean."""
    graph, _ = import_graph(models.path("minilm"), dims=dict(cases.CASES["minilm"].dims))
    program = compile_graph(graph, find_target("webgpu"), Options()).program
    assert program is not None
    assert len(program.kernels) <= 20


@pytest.mark.parametrize(
    ("on", "launches"),
    [("cpu", 2), ("webgpu", 2), ("cuda", 2), ("qcom", 3), ("qcom local", 2)],
)
def test_of_squeeze_and_excite(on: str, launches: int) -> None:
    """Means and two layers, which one workgroup computes where it has memory for what is between;
    what is scaled by them is one launch more.
    """
    target, _, profile = on.partition(" ")
    inputs = Inputs()
    options = Options(profile=profile or "default", precision="fp32")
    state = compiled(squeezed(inputs), inputs, find_target(target), options)
    assert len(state.launches) == launches + 1
