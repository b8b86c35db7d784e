"""Types that a target computes as others: what these cannot hold is refused."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from tests.agreement import find_target
from tinyedge.core import dtype as dt
from tinyedge.core.compiler.compile import compile_graph
from tinyedge.core.dtype import DType
from tinyedge.core.errors import InputError
from tinyedge.core.tensor.graph import Graph, Port
from tinyedge.core.tensor.tensor import Tensor
from tinyedge.model import TARGETS

WEIGHTS = np.array([1, 2**40, 3], np.int64)


@pytest.mark.parametrize(
    ("dtype", "function"),
    [
        (dt.uint64, lambda x: ~x),
        (dt.int64, lambda x: x + 2**31),
        (dt.uint64, lambda x: x + 2**32),
        (dt.int64, lambda x: x * Tensor(WEIGHTS)),
    ],
    ids=["complement", "constant", "unsigned constant", "weights"],
)
@pytest.mark.parametrize("name", TARGETS)
def test_what_a_narrower_type_cannot_hold(
    dtype: DType, function: Callable[[Tensor], Tensor], name: str
) -> None:
    x = Tensor.input("x", (3,), dtype)
    graph = Graph((Port("x", dtype, (3,)),), (Port("y", dtype, (3,), function(x).node),))
    target = find_target(name)
    if target.caps().computes(dtype.name):
        assert compile_graph(graph, target).program is not None
        return
    with pytest.raises(InputError, match=r"the target computes u?int64 as u?int32") as caught:
        compile_graph(graph, target)
    assert caught.value.id == "compile.integer.range"
