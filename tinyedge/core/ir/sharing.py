"""Who has loaded and stored the elements of workgroup memory since the last barrier.

Between two barriers the threads of a workgroup run in any order. What a thread loads must then not
have been stored by another thread since the last barrier, and what it stores neither loaded nor
stored by another one.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

Array = Any

NOBODY, SEVERAL = -1, -2
_strangers = itertools.count(-3, -1)


def stranger() -> int:
    """Some thread, which may be another one each time."""
    return next(_strangers)


class Accesses:
    """The threads that have loaded and stored each of `count` elements: NOBODY, one or SEVERAL.

    loads and stores return what is wrong, "" if nothing is.
    """

    def __init__(self, count: int) -> None:
        self.loaded = np.full(count, NOBODY)
        self.stored = np.full(count, NOBODY)

    def barrier(self) -> None:
        """What comes after it meets nothing of what came before."""
        self.loaded[:] = NOBODY
        self.stored[:] = NOBODY

    def load(self, threads: Array, places: Array) -> str:
        """Each thread loads the element at its place."""
        if _others(self.stored[places], threads):
            return "a load of what another thread has stored needs a barrier between"
        self._note(self.loaded, threads, places)
        return ""

    def store(self, threads: Array, places: Array) -> str:
        """Each thread stores to the element at its place."""
        if _others(self.loaded[places], threads):
            return "a store to what another thread may still load needs a barrier between"
        if _others(self.stored[places], threads) or len(np.unique(places)) < len(places):
            return "two threads store to one place without a barrier between"
        self._note(self.stored, threads, places)
        return ""

    def load_any(self) -> str:
        """Threads load elements that are not known."""
        if (self.stored != NOBODY).any():
            return "a load at a place that is not known needs a barrier after all stores"
        self.loaded[:] = SEVERAL
        return ""

    @staticmethod
    def _note(owners: Array, threads: Array, places: Array) -> None:
        owners[places] = np.where(owners[places] == NOBODY, threads, owners[places])
        owners[places[_not(owners[places], threads)]] = SEVERAL

    def copy(self) -> Accesses:
        """The same, to go on from."""
        other = Accesses(0)
        other.loaded, other.stored = self.loaded.copy(), self.stored.copy()
        return other

    def join(self, other: Accesses) -> None:
        """What may have happened where either may."""
        self.loaded = _joined(self.loaded, other.loaded)
        self.stored = _joined(self.stored, other.stored)


def _not(owners: Array, threads: Array) -> Array:
    return (owners != NOBODY) & (owners != threads)


def _others(owners: Array, threads: Array) -> bool:
    return bool(_not(owners, threads).any())


def _joined(a: Array, b: Array) -> Array:
    return np.where(a == NOBODY, b, np.where((b == NOBODY) | (a == b), a, SEVERAL))
