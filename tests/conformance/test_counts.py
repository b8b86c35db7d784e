"""Sizes that a run computes, on every target, against the reference evaluator."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest

from tinyedge.choices import find_target
from tinyedge.core import dtype as dt
from tinyedge.core.compiler.compile import compile_graph
from tinyedge.core.compiler.options import Options
from tinyedge.core.ir.reference import evaluate
from tinyedge.core.ir.shapes import symbol
from tinyedge.core.ir.uop import Size, UOp
from tinyedge.core.program.device import Device
from tinyedge.core.program.replay import Replay
from tinyedge.core.tensor.graph import Graph, Port
from tinyedge.core.tensor.tensor import Tensor

ROWS, COLUMNS = 12, 5
Counts = dict[str, UOp]
FULL = np.abs(np.random.default_rng(8).standard_normal((ROWS, COLUMNS), dtype=np.float32)) + 1
SOME = FULL * np.where(np.arange(ROWS) % 3 == 1, 1, -1)[:, None].astype(np.float32)
WEIGHT = np.random.default_rng(9).standard_normal((COLUMNS, 8), dtype=np.float32)


def _count(mask: Tensor, counts: Counts) -> Size:
    """How many elements of a mask are true, as a size."""
    name = f"n{len(counts)}"
    counts[name] = mask.cast(dt.int32).sum().node
    return symbol(name, 0, int(mask.shape[0]))  # type: ignore[arg-type]


def _rows(x: Tensor, mask: Tensor, counts: Counts) -> tuple[Tensor, Size]:
    """The rows where a mask is true, one after the other."""
    rows = int(x.shape[0])  # type: ignore[arg-type]
    places = Tensor.arange(rows)
    before = (places.reshape((1, rows)) < places.reshape((rows, 1))) & mask.reshape((1, rows))
    rank = before.cast(dt.int32).sum(1)
    n = _count(mask, counts)
    wanted = Tensor.arange(n).cast(dt.int32).reshape((n, 1))
    found = rank.reshape((1, rows)).eq(wanted) & mask.reshape((1, rows))
    index = found.where(places.cast(dt.int32).reshape((1, rows)), Tensor(0, dt.int32)).sum(1)
    return x.gather(0, index), n


def _positive(x: Tensor, counts: Counts) -> tuple[Tensor, Size]:
    return _rows(x, x[:, 0] > 0.0, counts)


def _selected(x: Tensor, counts: Counts) -> Sequence[Tensor]:
    return (_positive(x, counts)[0],)


def _transposed(x: Tensor, counts: Counts) -> Sequence[Tensor]:
    """Rows of a dynamic length lie without gaps."""
    rows, _ = _positive(x, counts)
    return (rows.transpose(1, 0) * 2.0,)


def _reduced(x: Tensor, counts: Counts) -> Sequence[Tensor]:
    rows, _ = _positive(x, counts)
    return rows.sum(0), rows.max(0), rows.sum(), rows.max(1)


def _softmax(x: Tensor, counts: Counts) -> Sequence[Tensor]:
    """Read twice, along the dynamic axis."""
    rows, _ = _positive(x, counts)
    shifted = (rows - rows.max(0, keepdims=True)).exp()
    return (shifted / shifted.sum(0, keepdims=True),)


def _multiplied(x: Tensor, counts: Counts) -> Sequence[Tensor]:
    rows, _ = _positive(x, counts)
    product = rows @ Tensor.weight("w", WEIGHT)
    return product, rows.transpose(1, 0) @ product


def _compared(x: Tensor, counts: Counts) -> Sequence[Tensor]:
    """Every row with every row: two dynamic axes, summed."""
    rows, n = _positive(x, counts)
    difference = rows.reshape((n, 1, COLUMNS)) - rows.reshape((1, n, COLUMNS))
    return ((difference * difference).sum((1, 2)),)


def _joined(x: Tensor, counts: Counts) -> Sequence[Tensor]:
    rows, _ = _positive(x, counts)
    joined = Tensor.concat([rows, x, rows * 2.0], 0)
    return joined.sum(0), joined.max(0)


def _flat(x: Tensor, counts: Counts) -> Sequence[Tensor]:
    """Divided by the count, which may be zero."""
    rows, n = _positive(x, counts)
    flat = rows.transpose(1, 0).reshape((n * COLUMNS,))
    return (flat.reshape((COLUMNS, n)).sum(1), flat.flip(0).max(0))


def _again(x: Tensor, counts: Counts) -> Sequence[Tensor]:
    """A count of what was counted."""
    rows, _ = _positive(x, counts)
    large = (rows[:, 1] > 1.5).cast(dt.int32).sum()
    counts["m"] = large.node
    m = symbol("m", 0, ROWS)
    return (Tensor.full((m, 3), 2.0, dt.float32) + large.cast(dt.float32), rows)


def _repeated(x: Tensor, counts: Counts) -> Sequence[Tensor]:
    """Loops over whole kernels read the count from outside."""
    rows, _ = _positive(x, counts)
    iterations = Tensor.loop([rows, rows.sum(0)], lambda a, b: (a * 0.5 + b, a.max(0)), trips=3)
    go = x.max() < 1e9
    return (*iterations, *Tensor.loop([go, rows], lambda go, a: (go, a + 1.0), bound=3)[1:])


CASES = (
    *(_selected, _transposed, _reduced, _softmax, _multiplied, _compared, _joined, _flat, _again),
    _repeated,
)
VALUES = {"some": SOME, "none": -FULL, "all": FULL}
Case = Callable[[Tensor, Counts], Sequence[Tensor]]


def _counted(size: Size) -> bool:
    return isinstance(size, UOp)


def _port(name: str, tensor: Tensor) -> list[Port]:
    """A port, and the one of its count."""
    axes = [axis for axis, size in enumerate(tensor.shape) if isinstance(size, UOp)]
    if not axes:
        return [Port(name, tensor.dtype, tensor.shape, tensor.node)]
    (axis,) = axes
    size = tensor.shape[axis]
    assert isinstance(size, UOp)
    full = (*tensor.shape[:axis], ROWS, *tensor.shape[axis + 1 :])
    length = Tensor.from_size(size, dt.int32)
    return [
        Port(name, tensor.dtype, full, tensor.node, f"{name}_count", axis),
        Port(f"{name}_count", dt.int32, (), length.node),
    ]


@pytest.mark.parametrize("optimize", [True, False], ids=["optimized", "plain"])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__[1:])
def test_counts(case: Case, optimize: bool, target: str, device: Device) -> None:
    x = Tensor.input("x", (ROWS, COLUMNS), dt.float32)
    counts: Counts = {}
    outputs = case(x, counts)
    ports = [port for number, y in enumerate(outputs) for port in _port(f"y{number}", y)]
    graph = Graph((Port("x", dt.float32, x.shape),), tuple(ports), counts=counts)
    program = compile_graph(graph, find_target(target), Options(optimize=optimize)).program
    assert program is not None
    assert not program.symbols
    with Replay(program, device, poison=True) as ready:
        for name, values in VALUES.items():
            found = ready.run({"x": values})
            expected = evaluate([y.node for y in outputs], {"x": values}, counts=counts)
            for number, wanted in enumerate(expected):
                np.testing.assert_allclose(
                    found[f"y{number}"], wanted, rtol=1e-5, atol=1e-5, err_msg=f"{name} y{number}"
                )
