"""Vectors of single loads: lanes of whole vectors, within what the kernel reads anyway."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.agreement import Inputs, assert_agreement, find_target, graph, reference, run
from tests.core.profile import examples
from tinyedge.core.compiler.assemble import stored_array
from tinyedge.core.compiler.compile import compile_graph
from tinyedge.core.compiler.options import Options
from tinyedge.core.ir import ops
from tinyedge.core.ir.polynomial import terms
from tinyedge.core.ir.reference_lowered import run_lowered
from tinyedge.core.ir.uop import UOp, toposort
from tinyedge.core.program.device import Device
from tinyedge.core.tensor.tensor import Tensor
from tinyedge.export.bundle.writing import kernel_file

RNG = np.random.default_rng(5)
PROFILES = tuple(find_target("cpu").profiles)


def depthwise(channels: int, side: int, kernel: int, step: int) -> tuple[dict[str, Tensor], Inputs]:
    """Of a picture as a model gets it: its width lies along the vectors."""
    inputs = Inputs()
    x = inputs.new(RNG.normal(size=(1, channels, side, side)).astype(np.float32))
    weight = RNG.normal(size=(channels, 1, kernel, kernel)).astype(np.float32)
    pads = ((kernel // 2, kernel // 2),) * 2
    y = x.conv(Tensor.weight("w", weight), strides=(step, step), pads=pads, groups=channels)
    return {"y": y}, inputs


def lowered(profile: str, model: Any) -> Any:
    """The only kernel's text."""
    options = Options(profile=profile)
    state = compile_graph(graph(*model), find_target("cpu"), options, stop_after="lower")
    (kernel,) = state.kernels.values()
    return kernel.text


def nodes_of(text: Any) -> list[UOp]:
    return list(toposort(text.linear.statements))


def single_loads(nodes: list[UOp]) -> list[UOp]:
    """Vectors of which some lane is a load of its own."""
    vectors = [n for n in nodes if n.op is ops.VECTOR and len(n.src) > 1]
    return [n for n in vectors if any(lane.op is ops.LOAD for lane in n.src)]


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("step", [1, 2])
def test_windows_are_of_whole_vectors(step: int, profile: str) -> None:
    """Of a row that one tile holds; the vectors of several tiles differ in what is beside it."""
    lanes = find_target("cpu").profiles[profile].vector
    nodes = nodes_of(lowered(profile, depthwise(8, 2 * lanes * step, 3, step)))
    assert not single_loads(nodes)
    permuted = [n for n in nodes if n.op is ops.VECTOR and len(n.src) > 1]
    for node in permuted:
        sources = {lane.src[0] for lane in node.src if lane.op is ops.LANE}
        zeros = any(lane.op is ops.CONST for lane in node.src)
        assert 1 <= len(sources) <= 2 - zeros
    assert permuted


@pytest.mark.parametrize("profile", PROFILES)
def test_lanes_too_far_apart_stay_single_loads(profile: str) -> None:
    """Every fifth element: more than two vectors would be read for one."""
    assert single_loads(nodes_of(lowered(profile, depthwise(4, 160, 1, 5))))


def test_nothing_is_read_beyond_the_row() -> None:
    """A row of 9 by steps of 2 ends within what would be its second vector."""
    text = lowered("sse", depthwise(4, 9, 3, 2))
    regions = [n for n in nodes_of(text) if n.op is ops.LOAD and n.src[0].op is ops.REGION]
    assert regions
    for load in regions:
        first = dict(terms(load.src[1])).get((), 0)
        assert 0 <= first and first + load.dtype.lanes <= load.src[0].arg.length


sizes = st.tuples(
    st.integers(1, 4), st.integers(2, 40), st.sampled_from((1, 2, 3, 5)), st.integers(1, 3)
)


@given(sizes, st.sampled_from(PROFILES))
@examples(40)
def test_statements_mean_what_the_graph_means(size: Any, profile: str) -> None:
    """Run over buffers of just their size."""
    channels, side, kernel, step = size
    outputs, inputs = depthwise(channels, side, min(kernel, side), step)
    options = Options(profile=profile)
    state = compile_graph(graph(outputs, inputs), find_target("cpu"), options)
    (launch,) = state.launches
    (y,) = reference(outputs, inputs).values()
    ((name, x),) = inputs.arrays.items()
    given_arrays = {name: x, "w": stored(state)}
    buffers = [np.zeros(y.size, np.float32)]
    buffers += [given_arrays[s.name].reshape(-1).copy() for s in launch.storages[1:]]
    text = state.kernels[launch.sink].text
    assert text is not None
    run_lowered(text.linear, text.geometry, buffers)
    np.testing.assert_allclose(buffers[0], y.reshape(-1), rtol=1e-4, atol=1e-4)


def stored(state: Any) -> Any:
    """The weight, as it lies in memory."""
    return next(stored_array(s) for s in state.launches[0].storages if s.role == "weight")


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("step", [1, 2, 3])
@pytest.mark.parametrize("side", [7, 14, 33, 64])
def test_agreement(side: int, step: int, profile: str, cpu_device: Device) -> None:
    outputs, inputs = depthwise(6, side, 3, step)
    got = run(outputs, inputs, "cpu", cpu_device, Options(profile=profile))
    assert_agreement(got, reference(outputs, inputs))


@pytest.mark.parametrize("profile", ["default", "avx512"])
def test_a_permutation_names_every_lane(profile: str, cpu_device: Device) -> None:
    """One lane in all places is none: a long attention multiplies weights so."""
    inputs = Inputs()
    q, k, v = (inputs.new(RNG.normal(size=(1, 1300, n)).astype(np.float32)) for n in (8, 8, 16))
    outputs = {"y": (q @ k.permute((0, 2, 1))).softmax(-1) @ v}
    options = Options(profile=profile)
    state = compile_graph(graph(outputs, inputs), find_target("cpu"), options)
    assert state.program is not None
    source = kernel_file(state.program)
    found = re.findall(r"= te_permute\(i32x(\d+), \w+, (?:\(\w+\)\{0\}|\w+), ([\d, ]+)\)", source)
    assert all(len(order.split(",")) == int(lanes) for lanes, order in found)
    got = run(outputs, inputs, "cpu", cpu_device, options)
    assert_agreement(got, reference(outputs, inputs, fp64_reference=True))
