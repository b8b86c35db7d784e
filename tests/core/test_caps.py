"""What a profile says of an element type, kernels do."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.agreement import find_target
from tinyedge import Tensor
from tinyedge.core import dtype as dt
from tinyedge.core.compiler.caps import Caps, TypeCaps
from tinyedge.core.compiler.compile import compile_graph
from tinyedge.core.compiler.options import Options
from tinyedge.core.ir import ops
from tinyedge.core.ir.uop import toposort
from tinyedge.core.tensor.graph import Graph, Port
from tinyedge.model import TARGETS

PROFILES = [(t, p) for t in TARGETS for p in find_target(t).profiles]


@pytest.mark.parametrize("target, profile", PROFILES)
def test_every_type_has_a_row(target: str, profile: str) -> None:
    caps = find_target(target).caps(profile)
    assert set(caps.types) == {dtype.name for dtype in dt.ALL}
    for dtype in dt.ALL:
        computed = caps.computed_type(dtype)
        assert caps.computes(computed.name), f"{dtype} is computed as {computed}, that as another"
        assert computed.kind == dtype.kind
        stored = caps.stored_type(computed)
        if stored.bits == 32:
            assert caps.vectors(stored) == "all"


def _multiplied(caps: Caps) -> list[tuple[str, int]]:
    """The type and the lanes in which a kernel computes a float16 model."""
    x = Tensor.input("x", (8, 64), dt.float16)
    port = Port("x", dt.float16, (8, 64))
    graph = Graph((port,), (replace(port, name="y", node=(x * x).node),))
    target = replace(find_target("cuda"), profiles={"default": caps})
    (kernel,) = compile_graph(graph, target, Options(), stop_after="lower").kernels.values()
    assert kernel.expanded is not None
    products = [n for n in toposort((kernel.expanded,)) if n.op is ops.MUL]
    return [
        (n.dtype.scalar.name, n.dtype.lanes) for n in products if n.dtype.scalar is not dt.index
    ]


def test_a_profile_can_compute_fp16() -> None:
    caps = find_target("cuda").caps()
    assert _multiplied(caps) == [("float32", 4)]
    assert _multiplied(caps.with_type("float16", computed="", vectors="all")) == [("float16", 4)]
    assert _multiplied(caps.with_type("float16", computed="", vectors="none")) == [("float16", 1)]


def test_what_reference_values_are_computed_in() -> None:
    caps = find_target("cpu").caps().in_fp64()
    for dtype in (dt.float16, dt.float32, dt.float64):
        assert caps.computed_type(dtype) is dt.float64
    assert caps.stored_type(dt.float64) is dt.float32
    assert caps.types["int8"] == TypeCaps(vectors="memory")
