"""Functions of tensors that are compiled once and replayed.

A function is called with tensors that stand for its arguments; what it gives is compiled, and later
calls with arguments of the same types and shapes replay it. What it reads from around it is part of
what is known of a call, so that another value is another program, or another argument of it.
"""

from __future__ import annotations

import functools
import logging
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from tinyedge.core import dtype as dt
from tinyedge.core.ir import ops
from tinyedge.core.ir.uop import UOp
from tinyedge.core.tensor.tensor import Tensor
from tinyedge.eager.call import Call, Function
from tinyedge.eager.held import host_leaf
from tinyedge.eager.places import Place, current
from tinyedge.eager.realize import check_known, place_of, realize
from tinyedge.eager.sizes import Dim, Sizes
from tinyedge.eager.variant import Variant

KEPT = 64  # programs of one function; then that which was used longest ago is dropped
MANY = 8  # programs of one function that differ by more than shapes: a warning says so

_log = logging.getLogger("tinyedge")


class Jit:
    """A function that is compiled for each kind of arguments when it is first called with them."""

    def __init__(
        self,
        function: Callable[..., Any],
        donate: Sequence[str] = (),
        device: Place | None = None,
        sizes: Mapping[str, Sequence[Dim | int | None]] | None = None,
    ) -> None:
        functools.update_wrapper(self, function)
        self.__wrapped__ = function
        self.function = Function(function, tuple(donate))
        self.function.check((*donate, *(sizes or {})))
        self.variants: OrderedDict[Any, Variant] = OrderedDict()
        self._device = device
        self._sizes = Sizes(sizes or {})
        self._lock = threading.RLock()

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        """A method: its object is an argument, with the tensors in it."""
        return self if instance is None else functools.partial(self, instance)

    def __call__(self, *args: Any, **named: Any) -> Any:
        with self._lock:
            call = self.call(self.function.bind(args, named))
            if call.inside():
                return self.__wrapped__(*args, **named)
            return self._run(call)

    def call(self, arguments: tuple[Any, ...]) -> Call:
        """A call with arguments in the order of the parameters."""
        return Call(self.function, arguments, self._sizes.of(self.function.parameters, arguments))

    def leaves(self, call: Call) -> list[UOp]:
        """The leaves of a call's tensors, which are computed if they are not."""
        if call.lazy:
            realize(call.lazy, self._device)
        leaves = [_leaf_of(value) for value in call.tensors]
        check_known(node for node in leaves if node.op is ops.BUFFER)
        return leaves

    def _run(self, call: Call) -> Any:
        leaves = self.leaves(call)
        place = self._device or place_of(leaves) or current()
        return self._variant(call, place).run(call, leaves)

    def _variant(self, call: Call, place: Place) -> Variant:
        key = (place, call.given_key, call.reads)
        found = self.variants.get(key)
        if found is not None:
            self.variants.move_to_end(key)
            return found
        found = self.variants[key] = Variant(call, place)
        if len(self.variants) > KEPT:
            self.variants.popitem(last=False)
        if len(self.variants) == MANY:
            _log.warning(
                "%s has been compiled for %d kinds of arguments: a Python number among these, or "
                "among what it reads, is a part of the program; give what changes as a Tensor, and "
                "sizes that change by sizes=",
                self.function.name,
                MANY,
            )
        return found


def _leaf_of(value: Any) -> UOp:
    """The leaf of a tensor that is computed, or of an array, which is copied."""
    if isinstance(value, Tensor):
        return value.node
    return host_leaf(dt.codes(np.array(value)), dt.from_numpy(value.dtype))
