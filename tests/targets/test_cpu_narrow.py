"""Narrow integers in vectors of the cpu target: loaded, stored, and made of floats on the way."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.agreement import Inputs, compiled, replay
from tinyedge.choices import find_target
from tinyedge.core import dtype as dt
from tinyedge.core.compiler.options import Options
from tinyedge.core.dtype import DType
from tinyedge.core.program.device import Device
from tinyedge.core.tensor.tensor import Tensor

KINDS = (dt.int8, dt.uint8, dt.int16, dt.uint16)
WIDE = (dt.float32, dt.int32, dt.uint32)
EDGES = np.array(
    [0, -0.0, np.nan, np.inf, -np.inf, -1e-45, 0.99, -0.99, 1e30, -1e30, 2**31, -(2**31)]
    + [sign * (limit + d) for limit in (127, 255, 32767, 65535) for sign in (1, -1)
       for d in (-1, -0.5, 0, 0.5, 1, 2)],
    np.float32,
)  # fmt: skip


def _ran(make: Any, x: Any, device: Device, profile: str) -> tuple[Any, str]:
    inputs = Inputs()
    y = make(inputs.new(x))
    program = compiled({"y": y}, inputs, find_target("cpu"), Options(profile=profile)).program
    assert program is not None
    return replay(program, device, inputs.arrays)["y"], program.kernels[0].source


def _clipped(x: Any, kind: DType) -> Any:
    """What a float becomes: truncated, at most the type's limits, NaN 0."""
    low, high = kind.limits
    number = np.where(np.isnan(x), 0, x).astype(np.float64)
    return np.trunc(np.clip(number, low, high)).astype(kind.numpy)


@pytest.mark.parametrize("profile", ["sse", "default", "avx512"])
@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.parametrize("wide", WIDE, ids=str)
def test_floats_made_narrow_and_wide_again(
    kind: DType, wide: DType, profile: str, cpu_device: Device
) -> None:
    """As quantizing does, in one step: without vectors of narrow integers between."""
    x = np.resize(EDGES, -(-len(EDGES) // 16) * 16)
    y, source = _ran(lambda t: t.cast(kind).cast(wide), x, cpu_device, profile)
    np.testing.assert_array_equal(y, _clipped(x, kind).astype(wide.numpy))
    assert "_clip_" in source


@pytest.mark.parametrize("profile", ["sse", "default", "avx512"])
@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_a_narrow_value_that_is_used_twice(kind: DType, profile: str, cpu_device: Device) -> None:
    """It has a name, so it is made once."""
    x = np.resize(EDGES, -(-len(EDGES) // 16) * 16)

    def twice(t: Tensor) -> Tensor:
        narrow = t.cast(kind)
        return narrow.cast(dt.int32) * 3 + (narrow + narrow).cast(dt.int32)

    y, _ = _ran(twice, x, cpu_device, profile)
    narrow = _clipped(x, kind)
    np.testing.assert_array_equal(y, narrow.astype(np.int32) * 3 + (narrow + narrow).astype(int))


@pytest.mark.parametrize("profile", ["sse", "default", "avx512"])
@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.parametrize("wide", WIDE, ids=str)
def test_loads_and_stores(kind: DType, wide: DType, profile: str, cpu_device: Device) -> None:
    low, high = kind.limits
    x = np.linspace(low, high, 512).astype(kind.numpy)
    y, _ = _ran(lambda t: t.cast(wide), x, cpu_device, profile)
    np.testing.assert_array_equal(y, x.astype(wide.numpy))
    z, _ = _ran(lambda t: (t + 1).cast(kind), x.astype(wide.numpy), cpu_device, profile)
    wanted = _clipped(x + 1.0, kind) if wide is dt.float32 else x + kind.numpy.type(1)
    np.testing.assert_array_equal(z, wanted)
