"""A result that is linear in constant weights, so that what scales it can be folded into them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from tinyedge.core.tensor.tensor import Tensor


@dataclass(frozen=True)
class Affine:
    """How a result was made: make(weight, bias), linear in both, with one weight slice
    per channel.
    """

    make: Callable[[Any, Any], Tensor]
    weight: Any
    bias: Any
    filters: int  # the channel axis of the weight
    channel: int  # the channel axis of the result (nonnegative)
    # scale, shift: applied to the original weight and bias, per channel, in double precision
    scale: Any
    shift: Any

    def tensor(self) -> Tensor:
        """The result with scale and shift in its weights, rounded once."""
        kind = self.weight.dtype
        shape = [1] * self.weight.ndim
        shape[self.filters] = -1
        weight = (self.weight.astype(np.float64) * self.scale.reshape(shape)).astype(kind)
        bias = self.bias * self.scale + self.shift
        return self.make(weight, bias.astype(kind))
