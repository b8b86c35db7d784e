"""Regions: as many zeros are read as there are, whatever loads share them."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from tests.core.profile import examples
from tinyedge.core import dtype as dt
from tinyedge.core.compiler.lower.regions import _Region
from tinyedge.core.ir import access, ops
from tinyedge.core.ir.rules import index as ix
from tinyedge.core.ir.uop import UOp, as_node

GUARD = ix.const(True, dt.bool_)


def loads_at(places: dict[int, int]) -> dict[UOp, int]:
    """Loads of so many lanes by their places."""
    param = UOp(ops.PARAM, dt.float32, (), 0)
    return {
        access.load(param, (as_node(place),), dtype=dt.float32.vector(lanes)): place
        for place, lanes in places.items()
    }


@given(
    places=st.dictionaries(st.integers(0, 60), st.sampled_from([1, 2, 4, 8]), min_size=1),
    step=st.integers(0, 9),
    iterations=st.integers(1, 9),
    zeros=st.integers(8, 40),
)
@example({0: 8, 20: 1, 25: 1}, 3, 3, 8)
@examples(200)
def test_no_window_is_longer_than_the_zeros(
    places: dict[int, int], step: int, iterations: int, zeros: int
) -> None:
    """Also where a load that is wider than the others keeps them from being near."""
    region = _Region(GUARD, step, iterations, loads_at(places))
    windows = region.windows(zeros)
    for window in windows:
        read = window.length + (window.strides if window.is_near(zeros) else 0)
        assert read <= zeros
    found = [place for window in windows for place in window.loads.values()]
    assert found == sorted(found) and (not step or len(found) == len(places))
