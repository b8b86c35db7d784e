"""exp, log, tanh, sin, cos, erf, pow, rounding in vectors of the cpu: to 2 ulps, at edges as C."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tinyedge.choices import find_target
from tinyedge.core import dtype as dt
from tinyedge.core.compiler.compile import compile_graph
from tinyedge.core.ir.uop import decay
from tinyedge.core.program.device import Device
from tinyedge.core.program.replay import Replay
from tinyedge.core.tensor.graph import Graph, Port
from tinyedge.core.tensor.tensor import Tensor
from tinyedge.targets.cpu.compiler import DEFAULT_OPTIMIZATION
from tinyedge.targets.cpu.device import open

ULPS = 2
EDGES = np.array(
    [0, -0.0, np.inf, -np.inf, np.nan, 1e-45, -1e-45, 1e-39, 88.72283, 88.8, -103.9, -104, -150, 1,
     -1, 3.4e38, -3.4e38, 0.625, -0.625, 2**20, 2**20 + 0.5, 1e30],
    np.float32,
)  # fmt: skip


def _values() -> Any:
    """Edges, numbers of every exponent, and many of the size that networks have."""
    bits = np.arange(0, 2**32, 104729, np.uint64).astype(np.uint32)
    near = np.random.default_rng(0).normal(0, 4, 16384).astype(np.float32)
    values = np.concatenate([EDGES, bits.view(np.float32), near])
    return values[: len(values) // 8 * 8]


def _ran(make: Callable[..., Tensor], device: Device, *inputs: Any) -> Any:
    names = [f"x{number}" for number in range(len(inputs))]
    shape = inputs[0].shape
    y = make(*(Tensor.input(name, shape, dt.float32) for name in names))
    ports = tuple(Port(name, dt.float32, shape) for name in names)
    graph = Graph(ports, (Port("y", dt.float32, shape, y.node),))
    program = compile_graph(graph, find_target("cpu")).program
    assert program is not None
    assert any("te_" in kernel.source and "f32x8" in kernel.source for kernel in program.kernels)
    with Replay(program, device) as replay:
        return replay.run(dict(zip(names, inputs, strict=True)))["y"]


def _assert_near(found: Any, wanted: Any) -> None:
    """Within some units in the last place of the float64 results; the same NaN, infinity, zero."""
    with np.errstate(over="ignore"):
        rounded = wanted.astype(np.float32)
    np.testing.assert_array_equal(np.isnan(found), np.isnan(rounded))
    real = np.isfinite(rounded)
    unit = np.spacing(np.abs(rounded[real])).astype(np.float64)
    off = np.abs(found[real].astype(np.float64) - wanted[real]) / unit
    assert off.max() <= ULPS, (off.max(), found[real][off.argmax()], wanted[real][off.argmax()])
    infinite = np.isinf(rounded)
    np.testing.assert_array_equal(found[infinite], rounded[infinite])
    zero = rounded == 0
    np.testing.assert_array_equal(np.signbit(found[zero]), np.signbit(rounded[zero]))


def _falls(x: Tensor) -> Tensor:
    return (-x.abs()).exp()


def _decay(x: Tensor) -> Tensor:
    return Tensor(decay((-x.abs()).node))


def _decayed(x: Any) -> Any:
    """As of a softmax's exponentials: nothing below the normal numbers."""
    return np.where(abs(x) > 87.33654, 0, np.exp(-abs(x)))


FUNCTIONS: dict[str, tuple[Callable[[Tensor], Tensor], Callable[[Any], Any]]] = {
    "exp": (Tensor.exp, np.exp),
    "falls": (_falls, lambda x: np.exp(-abs(x))),
    "decay": (_decay, _decayed),
    "log": (Tensor.log, np.log),
    "tanh": (Tensor.tanh, np.tanh),
    "sin": (Tensor.sin, np.sin),
    "cos": (Tensor.cos, np.cos),
    "erf": (Tensor.erf, np.vectorize(math.erf)),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_of_one_number(name: str, cpu_device: Device) -> None:
    make, exact = FUNCTIONS[name]
    x = _values()
    with np.errstate(all="ignore"):
        _assert_near(_ran(make, cpu_device, x), exact(x.astype(np.float64)))


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_by_the_instructions_of_every_processor(name: str, kernel_cache: Path) -> None:
    """What fused products and scaling by a power of two become where there are none."""
    make, exact = FUNCTIONS[name]
    x = _values()
    device = open(cache=kernel_cache, optimization=("-O2",))
    with np.errstate(all="ignore"):
        _assert_near(_ran(make, device, x), exact(x.astype(np.float64)))
    device.close()


WHOLE = np.array(
    [0.5, 1.5, 2.5, 0.7, 1, 0.49999997, 3, 1e-3, 2**22 + 0.5, 2**23 - 0.5, 2**23 + 1, 2**24 + 2],
    np.float32,
)


@pytest.mark.parametrize("name", ["floor", "trunc", "round"])
def test_rounding_is_exact(name: str, cpu_device: Device) -> None:
    """The same bits, but for those of NaN: of zeros the sign, too."""
    x = np.concatenate([_values(), WHOLE, -WHOLE])
    with np.errstate(invalid="ignore"):
        found, wanted = _ran(getattr(Tensor, name), cpu_device, x), getattr(np, name)(x)
    number = ~np.isnan(x)
    np.testing.assert_array_equal(found[number].view(np.int32), wanted[number].view(np.int32))
    assert np.isnan(found[~number]).all()


@pytest.mark.parametrize(
    ("size", "past"), [(1 << 22, False), ((1 << 23) + 3, False), (1 << 23, True)]
)
def test_what_no_cache_holds_is_written_past_them(
    size: int, past: bool, cpu_device: Device
) -> None:
    """If it is whole vectors: the last of others overlaps the one before, which is on its way."""
    x = Tensor.input("x", (size,), dt.float32)
    port = Port("x", dt.float32, (size,))
    graph = Graph((port,), (Port("y", dt.float32, (size,), (x + 1.0).node),))
    program = compile_graph(graph, find_target("cpu")).program
    assert program is not None
    assert ("te_stream_f32x8(" in program.kernels[0].source) == past
    given = np.arange(size, dtype=np.float32)
    with Replay(program, cpu_device) as replay:
        np.testing.assert_array_equal(replay.run({"x": given})["y"], given + 1)


@pytest.mark.parametrize("optimization", [DEFAULT_OPTIMIZATION, ("-O2",)], ids=["native", "O2"])
def test_powers(optimization: tuple[str, ...], kernel_cache: Path) -> None:
    """Of every pair of edges, and of positive numbers whose power is a number; by the instructions
    of this processor and of every one.
    """
    random = np.random.default_rng(1)
    base = np.exp(random.normal(0, 3, 8192)).astype(np.float32)
    power = random.normal(0, 8, 8192).astype(np.float32)
    pairs = np.array(np.meshgrid(EDGES, EDGES)).reshape(2, -1)
    x, y = (np.concatenate([a, b]) for a, b in zip((base, power), pairs, strict=True))
    whole = len(x) // 8 * 8
    x, y = x[:whole], y[:whole]
    device = open(cache=kernel_cache, optimization=optimization)
    with np.errstate(all="ignore"):
        wanted = np.power(x.astype(np.float64), y.astype(np.float64))
        _assert_near(_ran(Tensor.__pow__, device, x, y), wanted)
    device.close()
