"""Keys for the nodes of a model that draw random numbers: from one state, the same on every target.

The state is a key, which each run replaces by another; a node's key in a run is the one for the
node's number. An attribute `seed` is a key of its own: what such a node draws depends on the seed
and on the state, wherever the node stands.
"""

from __future__ import annotations

import numpy as np

from tinyedge.core import dtype as dt
from tinyedge.core.tensor import random
from tinyedge.core.tensor.graph import Port
from tinyedge.core.tensor.tensor import Tensor

STATE = "random.key"


class Draws:
    """How many keys a model's nodes took."""

    def __init__(self) -> None:
        self._count = 0
        self._key = Tensor.input(STATE, (2,), dt.uint32)

    def key(self, seed: int | float | None = None) -> Tensor:
        """A key for a node: of the run, and of the node's number or of its seed."""
        self._count += 1
        if seed is None:
            return random.fold_in(self._key, self._count)
        return Tensor.stack(random.threefry(_key_of(seed), self._key[0], self._key[1]))

    @property
    def port(self) -> Port | None:
        """The state with its next value, where a node draws."""
        if not self._count:
            return None
        return Port(STATE, dt.uint32, (2,), random.fold_in(self._key, 0).node)


def _key_of(seed: int | float) -> Tensor:
    """The key of a seed; of a float the bits of its float32."""
    if isinstance(seed, float):
        seed = int(np.array(seed, np.float32).view(np.uint32))
    return random.key(seed % 2**64)
