"""Quotients rounded to 8 bits: exactly the codes that a division, a rounding and a cast give."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.agreement import Inputs, compiled, find_target, replay
from tinyedge.core import dtype as dt
from tinyedge.core.compiler.levels import is_proved
from tinyedge.core.compiler.options import Options
from tinyedge.core.dtype import DType
from tinyedge.core.program.device import Device
from tinyedge.core.tensor.tensor import Tensor

RNG = np.random.default_rng(7)
INFINITE = (np.nan, -np.inf, np.inf, -3e38, 3e38, -0.0, 0.0, 1e-40)


def quantized(x: Tensor, step: float, zero: int, dtype: DType) -> Tensor:
    """As QuantizeLinear says."""
    whole = (x / step).round()
    return (whole + float(zero) if zero else whole).cast(dtype)


def near_ends(step: float, zero: int, dtype: DType) -> Any:
    """The floats around the ends of all levels, in vectors and a rest, and what is no number."""
    low, high = dtype.limits
    ends = ((np.arange(low - 3, high + 3) - zero + 0.5) * step).astype(np.float32)
    beside = [ends, np.nextafter(ends, np.float32(np.inf)), np.nextafter(ends, np.float32(-np.inf))]
    drawn = RNG.uniform(ends[0], ends[-1], 1000).astype(np.float32)
    return np.concatenate([*beside, drawn, np.array(INFINITE, np.float32)])


def expected(x: Any, step: float, zero: int, dtype: DType) -> Any:
    with np.errstate(all="ignore"):
        levels = np.rint(x / np.float32(step)) + np.float32(zero)
    return np.where(np.isnan(x), 0, np.clip(levels, *dtype.limits)).astype(dtype.numpy)


@pytest.mark.parametrize("profile", ["sse", "default", "avx512"])
@pytest.mark.parametrize(
    ("dtype", "zero", "step"),
    [
        (dt.uint8, 0, 0.015848102),
        (dt.uint8, 116, 0.034300372),
        (dt.int8, 0, 0.75),
        (dt.int8, -128, 3.1e-7),
        (dt.int8, 5, 1.1754944e6),
    ],
)
def test_exact(dtype: DType, zero: int, step: float, profile: str, cpu_device: Device) -> None:
    """Also of infinities, and of NaN, which gives 0."""
    step = float(np.float32(step))
    x = near_ends(step, zero, dtype)
    inputs = Inputs()
    codes = quantized(inputs.new(x), step, zero, dtype)
    options = Options(profile=profile)
    state = compiled({"y": codes}, inputs, find_target("cpu"), options)
    assert state.program is not None
    (kernel,) = state.program.kernels
    assert "te_level_f32" in kernel.source
    assert "rint" not in kernel.source
    found = replay(state.program, cpu_device, inputs.arrays)["y"]
    np.testing.assert_array_equal(found, expected(x, step, zero, dtype))


@pytest.mark.parametrize("first", [False, True])
def test_an_addition_of_zero(first: bool, cpu_device: Device) -> None:
    """As operators of integers write it: the zero point is a number like any other."""
    step = 0.0034583425
    x = near_ends(step, 0, dt.uint8)
    inputs = Inputs()
    whole, zero = (inputs.new(x) / step).round(), Tensor.full(x.shape, 0.0, dt.float32)
    codes = (zero + whole if first else whole + zero).cast(dt.uint8)
    program = compiled({"y": codes}, inputs, find_target("cpu"), Options()).program
    assert program is not None and "te_level" in program.kernels[0].source
    found = replay(program, cpu_device, inputs.arrays)["y"]
    assert np.array_equal(found, expected(x, step, 0, dt.uint8))


def test_wide_again_without_bytes_between(cpu_device: Device) -> None:
    """What is rounded and made a number again in one kernel."""
    x = near_ends(0.5, 3, dt.uint8)
    inputs = Inputs()
    codes = quantized(inputs.new(x), 0.5, 3, dt.uint8)
    y = (codes.cast(dt.int32) - 3).cast(dt.float32) * 0.5
    state = compiled({"y": y}, inputs, find_target("cpu"))
    assert state.program is not None
    assert "u8" not in state.program.kernels[0].source
    found = replay(state.program, cpu_device, inputs.arrays)["y"]
    whole = expected(x, 0.5, 3, dt.uint8).astype(int)
    np.testing.assert_array_equal(found, (whole - 3) * np.float32(0.5))


@pytest.mark.parametrize(
    ("dtype", "step", "zero"),
    [
        (dt.uint8, 1e-33, 0),  # beyond normal numbers
        (dt.uint8, -0.5, 0),
        (dt.uint8, 0.5, 300),  # no code of the type
        (dt.uint8, 0.5, 0.25),
        (dt.uint16, 0.5, 0),  # more levels
        (dt.int32, 0.5, 0),
    ],
)
def test_what_stays(dtype: DType, step: float, zero: float) -> None:
    """Other quotients are divided and rounded as they are."""
    inputs = Inputs()
    x = inputs.new(np.zeros(64, np.float32))
    codes = ((x / step).round() + zero).cast(dtype)
    state = compiled({"y": codes}, inputs, find_target("cpu"))
    assert state.program is not None
    assert "te_level" not in state.program.kernels[0].source


def test_steps_are_proved() -> None:
    """By products as by quotients; one that a product is beside is none."""
    steps = np.exp(RNG.uniform(-20, 20, 200)).astype(np.float32)
    assert all(is_proved(float(step), -int(RNG.integers(256))) for step in steps)
    assert not is_proved(float("nan"), 0)
    assert not is_proved(0.0, 0)


def test_only_where_a_target_says_so() -> None:
    """Others have no such row."""
    inputs = Inputs()
    codes = quantized(inputs.new(np.zeros(64, np.float32)), 0.5, 0, dt.uint8)
    cpu = find_target("cpu")
    plain = replace(cpu, profiles={"default": replace(cpu.profiles["default"], levels=False)})
    state = compiled({"y": codes}, inputs, plain)
    assert state.program is not None
    assert "te_level" not in state.program.kernels[0].source
