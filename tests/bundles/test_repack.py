"""Weights in one order, made into another."""

from __future__ import annotations

import random

import numpy as np

from tinyedge.core import dtype as dt
from tinyedge.core.compiler.assemble import _memory_bytes, _order
from tinyedge.core.ir.buffers import Layout, TensorBuffer
from tinyedge.core.program.ports import pad
from tinyedge.core.program.program import Order
from tinyedge.export.bundle.repack import axes_between, repacked

SIZES = (1, 2, 3, 4, 8, 12, 24)
DTYPES = (dt.float32, dt.float16, dt.int8, dt.float64)


def layout(choose: random.Random, shape: tuple[int, ...], *, panels: bool) -> Layout:
    """As kernels want weights: axes in any order, the last ones rounded up or in panels."""
    order = list(range(len(shape)))
    choose.shuffle(order)
    pads = [1] * len(shape)
    for place in (-1, -2)[: len(shape)]:
        pads[place] = choose.choice((1, 4))
    fit = [n for n in (4, 8, 12) if shape[order[-1]] % n == 0 and shape[order[-1]] > n]
    panel = choose.choice((0, *fit)) if panels else 0
    return Layout(tuple(order), tuple(pads), panel=panel)


def test_any_order_from_any_other() -> None:
    """Where only the wanted one has panels there is a way; where both have, there may be none, nor
    for elements that are parts of words.
    """
    choose, ways = random.Random(1), 0
    for number in range(300):
        shape = tuple(choose.choice(SIZES) for _ in range(choose.randint(1, 4)))
        dtype = choose.choice(DTYPES)
        data = (np.arange(np.prod(shape)) % 100 + 1).astype(dtype.numpy).reshape(shape)
        both = number % 2 == 1
        one, two = (
            TensorBuffer("weight", "w", dtype, shape, layout(choose, shape, panels=each), data=data)
            for each in (both, True)
        )
        source, order = _order(one), _order(two)
        assert source is not None and order is not None
        axes = axes_between(source, order)
        if data.size == 1:
            continue
        assert axes is not None or both or dtype.itemsize < 4, (one.layout, two.layout, shape)
        if axes is None:
            continue
        ways += both or dtype.itemsize < 4
        had, wanted = _memory_bytes(one), _memory_bytes(two)
        size = max(len(had), len(wanted))
        made = repacked(pad(had, size), axes)
        assert np.array_equal(made, pad(wanted, size)), (one.layout, two.layout, shape)
    assert ways > 100


def test_panels_that_do_not_nest_have_no_axes() -> None:
    table = [Order(4, ((24 // n, 24 // n, n), (5, 5, 24), (n, n, 1))) for n in (8, 12)]
    assert axes_between(*table) is None
