"""Integer weights packed into words: what is packed, and that kernels read it back."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.agreement import Inputs, assert_agreement, compiled, find_target, reference, run
from tinyedge.core import dtype as dt
from tinyedge.core.compiler.schedule.packing import pack
from tinyedge.core.ir.packed import FEWEST, WIDTHS, packed_bits
from tinyedge.core.program.device import Device
from tinyedge.core.tensor.tensor import Tensor
from tinyedge.model import TARGETS

RNG = np.random.default_rng(5)


def integers(bits: int, signed: bool, shape: Any, dtype: Any) -> Any:
    low, high = (-(1 << bits - 1), 1 << bits - 1) if signed else (0, 1 << bits)
    values = RNG.integers(low, high, shape)
    values.reshape(-1)[:2] = low, high - 1
    return values.astype(dtype)


@pytest.mark.parametrize("bits", WIDTHS)
@pytest.mark.parametrize("signed", [False, True])
def test_the_fewest_bits_that_hold_all_values(bits: int, signed: bool) -> None:
    values = integers(bits, signed, FEWEST + 1, np.int32)
    assert packed_bits(values, dt.int32) == bits
    assert packed_bits(values[:FEWEST], dt.int32) == 0  # too few to matter
    narrow = dt.by_name(f"{'' if signed else 'u'}int{max(bits, 8)}")
    assert packed_bits(values.astype(narrow.numpy), narrow) == bits
    words = pack(values, bits)
    assert words.nbytes == -(-values.size * bits // 32) * 4
    each = 32 // bits
    got = words.repeat(each) >> np.tile(np.arange(0, 32, bits), len(words)).astype(np.uint32)
    mask = np.uint32((1 << bits) - 1)
    np.testing.assert_array_equal((got & mask)[: values.size], values.astype(np.uint32) & mask)


def test_what_is_not_packed() -> None:
    wide = np.arange(FEWEST + 1, dtype=np.int64) * 1000
    assert packed_bits(wide, dt.int64) == 0
    assert packed_bits(np.zeros(FEWEST + 1, np.float32), dt.float32) == 0
    assert packed_bits(np.zeros(FEWEST + 1, bool), dt.bool_) == 0
    assert packed_bits(None, dt.int32) == 0


def weights() -> dict[str, Any]:
    """Weights of all widths, with odd sizes among them."""
    found = {}
    for bits in WIDTHS:
        for signed in (False, True):
            kind = f"{'' if signed else 'u'}int{max(bits, 8)}"
            for columns in (64, 75):
                values = integers(bits, signed, (131, columns), kind)
                found[f"{kind} of {bits} bits, {columns}"] = values
    return found


def test_kernels_unpack(target: str, device: Device) -> None:
    """In products, gathers, and copies of parts, over targets with and without small integers."""
    inputs = Inputs()
    x = inputs.new(RNG.standard_normal((5, 131)).astype(np.float32))
    rows = inputs.new(np.array([130, 0, 7, 64], np.int32))
    outputs = {}
    for name, values in weights().items():
        weight = Tensor.weight(name, values)
        outputs[f"{name} product"] = x @ weight.cast(dt.float32)
        outputs[f"{name} rows"] = weight.gather(0, rows)
        outputs[f"{name} part"] = weight.permute((1, 0))[1:9, 3:20].flip(1)
    got = run(outputs, inputs, target, device)
    assert_agreement(got, reference(outputs, inputs))


@pytest.mark.parametrize("name", TARGETS)
def test_memory_holds_few_bits(name: str) -> None:
    """Weights of 4 bits with a scale for 32 of them: half a byte each, and one kernel."""
    inputs = Inputs()
    x = inputs.new(RNG.standard_normal((8, 256)).astype(np.float32))
    codes = Tensor.weight("q", integers(4, True, (256, 512), np.int8)).bitcast(dt.int4)
    scale = Tensor.weight("s", RNG.random((8, 1, 512)).astype(np.float32))
    wide = scale.expand((8, 32, 512)).reshape((256, 512))
    product = x @ (codes.cast(dt.float32) * wide)
    program = compiled({"y": product}, inputs, find_target(name)).program
    assert program is not None and len(program.entries[0].steps) == 1
    kept = sum(weight.bytes for weight in program.weights)
    assert 256 * 512 // 2 <= kept <= 256 * 512 // 2 + 8 * 512 * 4 + 4096
    assert sum(arena.bytes for arena in program.arenas) <= 64 * 1024
