"""Products of small integers in pairs: where they are computed so, and that sums are exact."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.agreement import Inputs, compiled, find_target, replay
from tinyedge.choices import find_fallback
from tinyedge.core import dtype as dt
from tinyedge.core.compiler.options import Options
from tinyedge.core.compiler.target import Target
from tinyedge.core.dtype import DType
from tinyedge.core.ir import ops
from tinyedge.core.ir.reference import evaluate
from tinyedge.core.ir.shapes import symbol
from tinyedge.core.program.device import Device
from tinyedge.core.tensor.tensor import Tensor

RNG = np.random.default_rng(6)


def codes(dtype: DType, *shape: int) -> Any:
    """All the values of a type, its ends among the first."""
    low, high = dtype.limits
    found = RNG.integers(low, high, shape, dtype.numpy, endpoint=True)
    found.flat[:4] = low, high, high, low
    return found


def numbers(x: Tensor, zero: Any = 0, scale: Any = 1.0) -> Tensor:
    """What codes stand for."""
    whole = x.cast(dt.int32) - np.asarray(zero, np.int32)
    return whole.cast(dt.float32) * np.asarray(scale, np.float32)


def target_of(profile: str) -> Target:
    """That of the fallback, or the cpu's with products in pairs."""
    if profile == "wasm":
        return find_fallback("wasm", "webgpu")
    cpu = find_target("cpu")
    return replace(cpu, profiles={profile: replace(cpu.profiles[profile], pairs=True)})


def paired(outputs: dict[str, Tensor], inputs: Inputs, profile: str = "wasm") -> tuple[Any, int]:
    """The compiled graph, and how many of its kernels compute products in pairs."""
    options = Options(profile="default" if profile == "wasm" else profile)
    state = compiled(outputs, inputs, target_of(profile), options)
    assert state.program is not None
    sources = [kernel.source for kernel in state.program.kernels]
    return state, sum("_pairs_" in source for source in sources)


def check(y: Tensor, inputs: Inputs, expected: Any, device: Device, profile: str = "wasm") -> None:
    """Exactly what is expected, by one kernel of pairs."""
    state, count = paired({"y": y}, inputs, profile)
    assert count == 1
    found = replay(state.program, device, inputs.arrays)["y"]
    np.testing.assert_array_equal(found, np.asarray(expected).astype(found.dtype))


@pytest.mark.parametrize("profile", ["wasm", "sse", "default", "avx512"])
@pytest.mark.parametrize(("steps", "columns"), [(64, 144), (37, 240)])
@pytest.mark.parametrize(
    ("data", "zero", "weights", "zeros"),
    [(dt.uint8, 113, dt.int8, 0), (dt.int8, -7, dt.uint8, 129)],
)
def test_data_by_weights(
    data: DType,
    zero: int,
    weights: DType,
    zeros: int,
    steps: int,
    columns: int,
    profile: str,
    cpu_device: Device,
) -> None:
    """An odd sum has a zero beside its last step; scales are one of the data, and one a column."""
    a, b = codes(data, 50, steps), codes(weights, steps, columns)
    scales = np.exp2(RNG.integers(-4, 4, columns)).astype(np.float32)
    apart = np.arange(columns) % zeros if zeros else np.zeros(columns, int)
    inputs = Inputs()
    y = numbers(inputs.new(a), zero, 0.5) @ numbers(Tensor.weight("w", b), apart, scales)
    whole = (a.astype(int) - zero) @ (b.astype(int) - apart)
    check(y, inputs, whole * (scales * 0.5), cpu_device, profile)


def test_weights_lie_as_they_are_read() -> None:
    """Both halves of a sum in panels as wide as a tile, from which words are made once for many
    rows: no element lies anywhere else, so another program can have the same file.
    """
    inputs = Inputs()
    w = numbers(Tensor.weight("w", codes(dt.int8, 64, 144)))
    state, _ = paired({"y": numbers(inputs.new(codes(dt.uint8, 50, 64)), 3) @ w}, inputs)
    (weight,) = (s for s in state.launches[-1].storages if s.role == "weight")
    assert (weight.shape, weight.layout.order, weight.layout.panel) == ((2, 32, 144), (0, 1, 2), 8)
    assert "int32_t shared0[256]" in state.program.kernels[-1].source


def test_two_tensors_and_what_is_rounded(cpu_device: Device) -> None:
    """What a kernel rounds lies in memory as bytes, of which another makes words."""
    x = RNG.normal(size=(3, 20, 32)).astype(np.float32)
    inputs = Inputs()
    q = (inputs.new(x) * 40).round().cast(dt.int8)
    y = numbers(q, 3) @ numbers(q, -5, 0.25).transpose(1, 2)
    whole = np.clip(np.rint(x * np.float32(40)), -128, 127).astype(int)
    state, count = paired({"y": y}, inputs)
    assert count == 1
    kept = [launch.storages[0].dtype for launch in state.launches]
    assert kept == [dt.int8, dt.int32, dt.int32, dt.float32]
    found = replay(state.program, cpu_device, inputs.arrays)["y"]
    np.testing.assert_array_equal(found, (whole - 3) @ (whole + 5).transpose(0, 2, 1) * 0.25)


def test_a_convolution_with_zeros_around(cpu_device: Device) -> None:
    """They are zeros of numbers, which are other codes."""
    a, b = codes(dt.uint8, 1, 18, 9, 9), codes(dt.int8, 64, 18, 3, 3)
    inputs = Inputs()
    scales = np.exp2(RNG.integers(-4, 4, (64, 1, 1, 1))).astype(np.float32)
    weight = numbers(Tensor.weight("w", b), 0, scales)
    pads = ((1, 1), (1, 1))
    y = numbers(inputs.new(a), 99).conv(weight, strides=(2, 2), pads=pads)
    exact = Tensor.weight("a", (a.astype(np.float64) - 99)).conv(
        Tensor.weight("b", b * scales.astype(np.float64)), strides=(2, 2), pads=pads
    )
    check(y, inputs, evaluate([exact.node], {})[0], cpu_device)


def test_sums_of_integers(cpu_device: Device) -> None:
    """As operators on quantized tensors have them, without floats."""
    a, b = codes(dt.uint8, 16, 40), codes(dt.uint8, 40, 16)
    inputs = Inputs()
    y = (inputs.new(a).cast(dt.int32) - 255) @ Tensor.weight("w", b).cast(dt.int32)
    check(y, inputs, (a.astype(int) - 255) @ b, cpu_device)


@pytest.mark.parametrize(
    ("shape", "data", "zero", "scale", "count"),
    [
        ((16, 256, 40), dt.int16, 0, 1.0, 1),  # 256 products of 2^15 and 2^7 are within 32 bits
        ((16, 512, 40), dt.int16, 0, 1.0, 0),
        ((16, 256, 40), dt.int16, 1, 1.0, 0),  # beyond 16 bits
        ((16, 256, 40), dt.uint16, 0, 1.0, 0),
        ((16, 256, 40), dt.int8, 0, np.exp2(np.arange(256) / 8), 0),  # each step has its scale
        ((15, 256, 40), dt.int8, 0, 1.0, 0),  # few rows
        ((16, 640, 15), dt.int8, 0, 1.0, 0),  # few columns
        ((16, 15, 640), dt.int8, 0, 1.0, 0),  # few steps
    ],
)
def test_what_is_proved(
    shape: Sequence[int], data: DType, zero: int, scale: Any, count: int
) -> None:
    """All else stays a product of floats."""
    rows, steps, columns = shape
    inputs = Inputs()
    w = numbers(Tensor.weight("w", codes(dt.int8, steps, columns)))
    y = numbers(inputs.new(codes(data, rows, steps)), zero, scale) @ w
    assert paired({"y": y}, inputs)[1] == count


def test_depthwise_sums_are_of_whole_numbers(cpu_device: Device) -> None:
    """Each integer has a weight of its own: codes lie in memory as bytes, the sum is scaled."""
    x = RNG.normal(size=(1, 32, 9, 9)).astype(np.float32)
    b = codes(dt.int8, 32, 1, 3, 3)
    scales = np.exp2(RNG.integers(-4, 4, (32, 1, 1, 1))).astype(np.float32)
    inputs = Inputs()
    q = (inputs.new(x) / 0.02).round().cast(dt.int8)
    weight = numbers(Tensor.weight("b", b), 0, scales)
    y = numbers(q, 3, 0.5).conv(weight, pads=((1, 1), (1, 1)), groups=32)
    state, count = paired({"y": y}, inputs)
    assert count == 0
    assert state.launches[0].storages[0].dtype is dt.int8
    assert state.launches[1].storages[1].dtype is dt.int8
    whole = np.clip(np.rint(x / np.float32(0.02)), -128, 127).astype(np.float64) - 3
    exact = Tensor.weight("a", whole).conv(
        Tensor.weight("b", b * scales.astype(np.float64)), pads=((1, 1), (1, 1)), groups=32
    )
    found = replay(state.program, cpu_device, inputs.arrays)["y"]
    np.testing.assert_array_equal(found, evaluate([exact.node], {})[0].astype(np.float32) * 0.5)


def rounded(x: Tensor, dtype: DType = dt.uint8) -> Tensor:
    """Codes of numbers, two of them apart."""
    return (x / 2.0).round().cast(dtype)


def by_four(y: Tensor, inputs: Inputs, profile: str) -> tuple[Any, int, int]:
    """The compiled graph; how many of its kernels take four products at once, and how many two."""
    target = find_target("cpu")
    caps = replace(target.profiles[profile], pairs=True, quads=True)
    chosen = replace(target, profiles={profile: caps})
    state = compiled({"y": y}, inputs, chosen, Options(profile=profile))
    assert state.program is not None
    sources = [kernel.source for kernel in state.program.kernels]
    return state, sum("_quads_" in s for s in sources), sum("_pairs_" in s for s in sources)


@pytest.mark.parametrize("profile", ["sse", "default", "avx512"])
@pytest.mark.parametrize(
    ("rows", "steps", "columns", "zero"),
    [(50, 64, 144, 0), (50, 16, 24, 126), (1, 96, 40, 255), (49, 20, 17, 3)],
)
def test_bytes_by_four(
    rows: int, steps: int, columns: int, zero: int, profile: str, cpu_device: Device
) -> None:
    """Of bytes as a kernel rounded them, whose zero point is taken away from the sum; also for one
    row. Words of four are loaded as they lie in memory.
    """
    a, b = codes(dt.uint8, rows, steps), codes(dt.int8, steps, columns)
    scales = np.exp2(RNG.integers(-4, 4, columns)).astype(np.float32)
    inputs = Inputs()
    q = rounded(inputs.new(a.astype(np.float32) * 2))
    y = numbers(q, zero, 0.5) @ numbers(Tensor.weight("w", b), 0, scales)
    state, quads, pairs = by_four(y, inputs, profile)
    assert (quads, pairs) == (1, 0)
    assert [launch.storages[0].dtype for launch in state.launches[:1]] == [dt.uint8]
    found = replay(state.program, cpu_device, inputs.arrays)["y"]
    whole = (a.astype(int) - zero) @ b.astype(int)
    np.testing.assert_array_equal(found, (whole * (scales * 0.5)).astype(np.float32))


@pytest.mark.parametrize("equation", ["bk,km->m", "bk,km->bm", "bck,km->bm"])
def test_what_is_taken_away_of_a_sum_over_repeated_weights(
    equation: str, cpu_device: Device
) -> None:
    """A zero point times all weights that were added, of each element of a summed axis that the
    weights do not have.
    """
    shape = (6, 5, 32) if "c" in equation else (24, 32)
    data, weights = codes(dt.uint8, *shape), codes(dt.int8, 32, 20)
    inputs = Inputs()
    left = numbers(rounded(inputs.new(data.astype(np.float32) * 2)), 128)
    y = Tensor.einsum(equation, left, numbers(Tensor.weight("w", weights)))
    state = compiled({"y": y}, inputs, find_target("cpu"), Options())
    assert state.program is not None
    found = replay(state.program, cpu_device, inputs.arrays)["y"]
    exact = np.einsum(equation, data.astype(np.int64) - 128, weights.astype(np.int64))
    np.testing.assert_array_equal(found, exact.astype(np.float32))


@pytest.mark.parametrize("rows", [1, 13, 64])
def test_bytes_by_four_of_open_rows(rows: int, cpu_device: Device) -> None:
    """What is taken away does not depend on how many rows there are."""
    data, weights = codes(dt.uint8, rows, 32), codes(dt.int8, 32, 20)
    inputs = Inputs()
    count = symbol("N", 1, 64)
    x = inputs.new(data.astype(np.float32) * 2, shape=(count, 32))
    y = numbers(rounded(x), 128) @ numbers(Tensor.weight("w", weights))
    state, quads, _ = by_four(y, inputs, "default")
    assert quads == 1
    found = replay(state.program, cpu_device, inputs.arrays)["y"]
    exact = (data.astype(np.int64) - 128) @ weights.astype(np.int64)
    np.testing.assert_array_equal(found, exact.astype(np.float32))


def test_what_words_of_four_mean() -> None:
    """In numpy, which is what kernels are compared with."""
    a, b = codes(dt.uint8, 4, 50), codes(dt.int8, 4, 50)
    words = [ops.WORD.numpy(*part.astype(np.int32)) for part in (a, b)]
    assert words[0].tolist() == np.ascontiguousarray(a.T).view(np.int32)[:, 0].tolist()
    found = ops.QUADS.numpy(*words)
    np.testing.assert_array_equal(found, (a.astype(int) * b.astype(int)).sum(0))


@pytest.mark.parametrize(("zero", "expected"), [(0, (1, 0)), (7, (0, 1))])
def test_zeros_around_bytes(zero: int, expected: tuple[int, int], cpu_device: Device) -> None:
    """They are bytes where the zero point is 0."""
    a, b = codes(dt.uint8, 1, 20, 9, 9), codes(dt.int8, 64, 20, 3, 3)
    inputs = Inputs()
    q = rounded(inputs.new(a.astype(np.float32) * 2))
    y = numbers(q, zero).conv(numbers(Tensor.weight("w", b)), pads=((1, 1), (1, 1)))
    state, quads, pairs = by_four(y, inputs, "default")
    assert (quads, pairs) == expected
    exact = Tensor.weight("a", a.astype(np.float64) - zero).conv(
        Tensor.weight("b", b.astype(np.float64)), pads=((1, 1), (1, 1))
    )
    found = replay(state.program, cpu_device, inputs.arrays)["y"]
    np.testing.assert_array_equal(found, evaluate([exact.node], {})[0].astype(np.float32))


@pytest.mark.parametrize(
    ("data", "weights", "steps", "fewest"),
    [
        (dt.int8, dt.int8, 64, -128),  # signed bytes by signed ones
        (dt.uint8, dt.uint8, 64, 0),
        (dt.uint8, dt.int8, 62, -128),  # no whole words
        (dt.uint8, dt.int8, 256, -8),  # stored in 4 bits
    ],
)
def test_what_is_by_two(data: DType, weights: DType, steps: int, fewest: int) -> None:
    """What four bytes of an instruction are not."""
    b = RNG.integers(fewest, 8 if fewest == -8 else weights.limits[1] + 1, (steps, 144))
    inputs = Inputs()
    q = rounded(inputs.new(np.zeros((50, steps), np.float32)), data)
    w = Tensor.weight("w", b.astype(weights.numpy))
    y = numbers(q) @ numbers(w)
    assert by_four(y, inputs, "default")[1:] == (0, 1)


def test_small_weights_stay_integers() -> None:
    """A product is of pairs, however few weights it has."""
    inputs = Inputs()
    w = numbers(Tensor.weight("w", codes(dt.int8, 16, 24)), 0, np.ones(24))
    assert paired({"y": numbers(inputs.new(codes(dt.uint8, 50, 16))) @ w}, inputs)[1] == 1
