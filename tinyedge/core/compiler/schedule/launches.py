"""What a schedule is made of: launches of kernels, loops over them, and what it was asked for."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from tinyedge.core.compiler.caps import Caps
from tinyedge.core.ir.buffers import TensorBuffer
from tinyedge.core.ir.uop import UOp


@dataclass(frozen=True)
class ScheduleOptions:
    """What a schedule depends on beside its graph."""

    caps: Caps
    fp16_storage: bool = False  # keep float32 tensors and weights as fp16
    joined: bool = False  # kernels that read the same tensors may become one
    recompute: bool = False  # rather than keep until late what is cheap to compute
    fp64_reference: bool = False  # for reference values: fp16 is only marked as `rounded`


@dataclass(frozen=True)
class Refusals:
    """Tensors that some kernel cannot take as they would lie in memory."""

    fp16: frozenset[UOp] = frozenset()  # they are kept in full: one does not write whole vectors
    images: frozenset[UOp] = frozenset()  # they stay buffers: one does not take whole pixels

    def __or__(self, other: Refusals) -> Refusals:
        return Refusals(self.fp16 | other.fp16, self.images | other.images)

    @property
    def nodes(self) -> frozenset[UOp]:
        """All of them."""
        return self.fp16 | self.images


@dataclass(eq=False)
class ScheduledLaunch:
    """One kernel with its buffers in slot order (those that are written first) and the model's
    nodes it computes.
    """

    sink: UOp
    storages: tuple[TensorBuffer, ...]
    nodes: tuple[str, ...] = ()
    # numbers of the ranges that are batch, rows, columns, summed and window positions
    contraction: Mapping[str, tuple[int, ...]] | None = None

    @property
    def written(self) -> tuple[TensorBuffer, ...]:
        """The buffers that it writes."""
        return self.storages[: len({store.src[0] for store in self.sink.src})]


@dataclass(eq=False)
class ScheduledLoop:
    """Launches that are repeated while the bool in `condition` is true, at most `bound` times."""

    condition: TensorBuffer
    bound: int
    launches: list[ScheduledStep]


ScheduledStep = ScheduledLaunch | ScheduledLoop


def all_launches(
    launches: Iterable[ScheduledStep],
) -> Iterator[ScheduledLaunch]:
    """The launches in order, those of a loop once."""
    for item in launches:
        if isinstance(item, ScheduledLaunch):
            yield item
        else:
            yield from all_launches(item.launches)
