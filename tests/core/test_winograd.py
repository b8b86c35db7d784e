"""Convolutions by Winograd's method: where it applies, and how exact it is."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.agreement import (
    Inputs,
    Tolerance,
    assert_agreement,
    compiled,
    find_target,
    reference,
    run,
)
from tinyedge.core import dtype as dt
from tinyedge.core.compiler.options import Options
from tinyedge.core.compiler.winograd import MOST_ERROR, TRANSFORMS, Transform, difference
from tinyedge.core.ir import ops
from tinyedge.core.ir.uop import toposort
from tinyedge.core.program.device import Device
from tinyedge.core.tensor.tensor import Tensor

RNG = np.random.default_rng(7)
PADS = ((1, 1), (1, 1))


def filters(count: int, channels: int, taps: int = 3) -> Any:
    shape = (count, channels, taps, taps)
    return (RNG.normal(size=shape) / np.sqrt(9 * channels)).astype(np.float32)


def network(height: int, width: int, **options: Any) -> tuple[dict[str, Tensor], Inputs]:
    """Two convolutions of 48 channels with what a network has between them."""
    inputs = Inputs()
    x = inputs.new(RNG.normal(size=(2, 48, height, width)).astype(np.float32))
    given = {"pads": PADS, **options}
    channels = 48 // given.get("groups", 1)
    bias = Tensor.weight("b", RNG.normal(size=48).astype(np.float32))
    y = x.conv(Tensor.weight("v", filters(48, channels)), bias, **given).relu() + x[:, :, :1, :1]
    return {"y": y.conv(Tensor.weight("w", filters(32, 48)), pads=PADS)}, inputs


def transformed(outputs: dict[str, Tensor], inputs: Inputs, options: Options | None = None) -> int:
    """How many convolutions are."""
    state = compiled(outputs, inputs, find_target("cpu"), options)
    found = [node for node in toposort(state.roots) if node.op is ops.TRANSFORM]
    assert len(found) == 2 * len(state.winograd)
    return len(found) // 2


def test_where_it_applies() -> None:
    assert transformed(*network(24, 28)) == 2
    assert transformed(*network(6, 10)) == 2  # tiles of 2 x 2
    assert transformed(*network(7, 7)) == 0  # no tiles divide it
    assert transformed(*network(24, 28, strides=(2, 2))) == 1  # 12 x 14 is left for the second
    assert transformed(*network(24, 28, groups=2)) == 1
    assert transformed(*network(24, 28, dilations=(2, 2), pads=((2, 2), (2, 2)))) == 1
    assert transformed(*network(24, 28), Options(winograd=0)) == 0
    assert transformed(*network(24, 28), Options(optimize=False)) == 0
    assert transformed(*network(24, 28), Options(fp64_reference=True)) == 0


def test_filters_grow_by_so_much() -> None:
    """Tiles of 4 x 4 outputs add 3 times the filters' bytes, tiles of 2 x 2 add 0.78 times."""
    model = network(24, 28)
    assert transformed(*model, Options(winograd=0.1)) == 0
    sizes = {}
    for growth in (0.5, 1.0, 3.1):
        state = compiled(*model, find_target("cpu"), Options(winograd=growth))
        nodes = [n for n in toposort(state.roots) if n.op is ops.TRANSFORM]
        sizes[growth] = sorted(
            n.shape[0] for n in nodes if n.shape[0] in (4, 6) and n.src[0].shape[0] == n.shape[0]
        )
    assert sizes == {0.5: [4], 1.0: [4, 4], 3.1: [6, 6]}


def test_few_channels_are_plain_sums() -> None:
    """Then the transforms cost more than the products that they save."""
    inputs = Inputs()
    x = inputs.new(RNG.normal(size=(1, 3, 24, 24)).astype(np.float32))
    assert transformed({"y": x.conv(Tensor.weight("w", filters(8, 3)), pads=PADS)}, inputs) == 0


def test_computed_filters_are_plain_sums() -> None:
    inputs = Inputs()
    x = inputs.new(RNG.normal(size=(1, 32, 24, 24)).astype(np.float32))
    w = inputs.new(filters(32, 32))
    assert transformed({"y": x.conv(w, pads=PADS)}, inputs) == 0


@pytest.mark.parametrize("transform", TRANSFORMS, ids=lambda t: f"{t.side}x{t.side}")
def test_tiles_are_what_sums_are(transform: Transform) -> None:
    """In double precision, to its last digits; in single precision nearly so."""
    data = RNG.normal(size=(transform.elements,) * 2)
    taps = RNG.normal(size=(3, 3))
    matrices = map(np.asarray, (transform.data, transform.filter, transform.products))
    before, weights, after = matrices
    got = after @ ((weights @ taps @ weights.T) * (before @ data @ before.T)) @ after.T
    side = transform.side
    right = np.array(
        [[(data[i : i + 3, j : j + 3] * taps).sum() for j in range(side)] for i in range(side)]
    )
    np.testing.assert_allclose(got, right, rtol=1e-12, atol=1e-12)
    error = difference(filters(40, 64), transform)
    assert 1e-8 < error < MOST_ERROR


@pytest.mark.parametrize("largest", [3e38, np.inf, np.nan])
def test_filters_that_overflow_are_plain_sums(largest: float) -> None:
    """The sums of a transform are beyond what float32 holds where the plain products are not."""
    weights = filters(32, 32)
    weights[3, 5] = largest
    assert not difference(weights, TRANSFORMS[0]) <= MOST_ERROR
    inputs = Inputs()
    x = inputs.new(RNG.normal(size=(1, 32, 24, 24)).astype(np.float32))
    assert transformed({"y": x.conv(Tensor.weight("w", weights), pads=PADS)}, inputs) == 0


@pytest.mark.parametrize("size", [(24, 28), (6, 10), (8, 4)])
def test_every_target_agrees(size: tuple[int, int], target: str, device: Device) -> None:
    outputs, inputs = network(*size)
    got = run(outputs, inputs, target, device)
    near = Tolerance(greatest=2 * MOST_ERROR)
    assert_agreement(got, reference(outputs, inputs), {"y": near})


def test_a_convolution_read_twice() -> None:
    """Its tiles are computed once: three launches for each convolution, and one for the sum."""
    inputs = Inputs()
    x = inputs.new(RNG.normal(size=(1, 32, 24, 24)).astype(np.float32))
    first = x.conv(Tensor.weight("v", filters(32, 32)), pads=PADS).relu()
    second = first.conv(Tensor.weight("w", filters(32, 32)), pads=PADS)
    state = compiled({"y": second + first}, inputs, find_target("cpu"))
    assert len(state.winograd) == 2 and len(state.launches) == 6


def test_a_transform_is_of_floats_and_square() -> None:
    tiles = Tensor.input("x", (3, 3, 5), dt.float32)
    assert tiles.transform([[1, 0, 2], [0, 1, 0]]).shape == (2, 2, 5)
    for wrong in ([[1, 0], [0, 1]], [[1, 2, 3], [0, 0, 0]], [[1, 2, 3], [1, 2]]):
        with pytest.raises(ValueError, match="matrix"):
            tiles.transform(wrong)
    with pytest.raises(ValueError, match="int32"):
        Tensor.input("x", (2, 2), dt.int32).transform([[1, 0], [0, 1]])


def test_products_are_transformed_in_vectors_of_channels() -> None:
    """On a processor the channels are innermost in the products; pixels of the output are stored
    lane by lane. Vectors along these would load each product by itself.
    """
    inputs = Inputs()
    x = inputs.new(RNG.normal(size=(1, 32, 16, 16)).astype(np.float32))
    y = x.conv(Tensor.weight("w", filters(32, 32)), pads=PADS)
    state = compiled({"y": y}, inputs, find_target("cpu"), Options(winograd=1e9))
    last = list(state.kernels.values())[-1]
    assert last.text is not None
    loads = [n for n in toposort(last.text.linear.statements) if n.op is ops.LOAD]
    assert len(loads) == 36 and {n.dtype.lanes for n in loads} == {8}


@pytest.mark.parametrize("on", ["cpu", "webgpu"])
def test_tiles_are_transformed_by_kernels_of_their_own(on: str) -> None:
    """What is added to a convolution, or made of it, is no reason to transform a tile for each of
    its pixels: a sum and a transform are two kernels.
    """
    inputs = Inputs()
    x = inputs.new(RNG.normal(size=(1, 32, 24, 24)).astype(np.float32))
    wide = inputs.new(RNG.normal(size=(1, 32, 48, 48)).astype(np.float32))
    y = x.conv(Tensor.weight("v", filters(32, 32)), pads=PADS)
    beside = (y + wide.conv(Tensor.weight("s", filters(32, 32, 1)), strides=(2, 2))).relu()
    above = y.relu().conv(Tensor.weight("s", filters(2, 32, 1)))
    for output in (beside, above):
        state = compiled({"y": output}, inputs, find_target(on))
        assert len(state.winograd) == 1 and len(state.launches) == 4
