"""What all launches of a model run: counts of a thread times its threads."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tests.bench.adreno.launches import Kernel, Launch, counted
from tests.bench.adreno.listing import Listing

Compile = Callable[[Sequence[Kernel]], list[Listing]]


@dataclass(frozen=True)
class Row:
    """A kernel, launched `times` with so many threads each."""

    kernel: Kernel
    threads: int
    times: int
    listing: Listing
    nodes: tuple[str, ...] = ()

    def all(self, kind: str) -> int:
        """Of a kind, by all threads of all of these launches."""
        return self.listing.of[kind] * self.threads * self.times


@dataclass(frozen=True)
class Side:
    """A model by one compiler: its launches, those that are alike in one row."""

    name: str
    rows: tuple[Row, ...]

    @property
    def launches(self) -> int:
        return sum(row.times for row in self.rows)

    @property
    def totals(self) -> Counter[str]:
        """By kind, of all threads; under "static ...", each launch's text once."""
        found: Counter[str] = Counter()
        for row in self.rows:
            for kind in row.listing.of:
                found[kind] += row.all(kind)
                found[f"static {kind}"] += row.listing.static[kind] * row.times
        return found

    @property
    def uncounted(self) -> int:
        """Kernels with loops of which the iterations are not known."""
        return sum(not row.listing.counted for row in self.rows)


def measure(name: str, launches: Sequence[Launch], compile: Compile) -> Side:
    """Compile each kernel once."""
    groups = counted(launches)
    kernels = list(dict.fromkeys(kernel for kernel, _ in groups))
    listings = dict(zip(kernels, compile(kernels), strict=True))
    nodes = {(launch.kernel, launch.threads): launch.nodes for launch in reversed(launches)}
    return Side(
        name,
        tuple(
            Row(kernel, threads, times, listings[kernel], nodes[kernel, threads])
            for (kernel, threads), times in groups.items()
        ),
    )
