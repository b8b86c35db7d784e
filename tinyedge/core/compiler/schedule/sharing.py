"""Entries share ports and states: which of their storages are one buffer, and what must be copied.

Entries run one at a time, so inputs, or outputs, that are one port of several entries are one
buffer. A state's new value is written in the state's own buffer where nothing needs the old value
any more.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from tinyedge.core.compiler.schedule.launches import ScheduledLaunch
from tinyedge.core.ir.buffers import TensorBuffer


@dataclass(frozen=True)
class Signature:
    """An entry's launches, and its storages: of inputs and outputs by a key, which those of other
    entries have that are the same port; of states that it reads, among the inputs, and of those
    that it updates by name.
    """

    launches: Sequence[ScheduledLaunch]
    inputs: Mapping[Hashable, TensorBuffer]
    outputs: Mapping[Hashable, TensorBuffer]
    updates: Mapping[str, TensorBuffer]


@dataclass
class Sharing:
    """inputs, outputs: the storage of each port by its key. homes: storages that lie in another
    one. copies: for each entry (from, to), to be done in this order after its launches.
    """

    inputs: dict[Hashable, TensorBuffer] = field(default_factory=dict)
    outputs: dict[Hashable, TensorBuffer] = field(default_factory=dict)
    homes: dict[TensorBuffer, TensorBuffer] = field(default_factory=dict)
    copies: list[list[tuple[TensorBuffer, TensorBuffer]]] = field(default_factory=list)

    def home(self, storage: TensorBuffer) -> TensorBuffer:
        """Where a storage lies: in itself, or in that of a port or state."""
        return self.homes.get(storage, storage)


def share(entries: Sequence[Signature], states: Mapping[str, TensorBuffer]) -> Sharing:
    """Give inputs, outputs and states of several entries their storages. states: by name."""
    sharing = Sharing()
    known: dict[Hashable, TensorBuffer] = dict(states.items())
    uses = Counter(key for entry in entries for key in entry.outputs)
    for entry in entries:
        for key, storage in entry.inputs.items():
            port = known.get(key) or sharing.inputs.setdefault(key, storage)
            if port is not storage:
                sharing.homes[storage] = port
        copies = _outputs(sharing, entry, {key for key in entry.outputs if uses[key] > 1})
        for name, storage in entry.updates.items():
            assert storage.dtype is states[name].dtype and storage.layout == states[name].layout
            if storage not in sharing.homes and _in_place(entry, name, storage):
                sharing.homes[storage] = states[name]
            else:
                copies.append((storage, states[name]))
        sharing.copies.append(copies)
    return sharing


def _outputs(
    sharing: Sharing, entry: Signature, shared: set[Hashable]
) -> list[tuple[TensorBuffer, TensorBuffer]]:
    """Outputs that are one value are one buffer, except where other entries tell them apart."""
    copies = []
    taken: set[TensorBuffer] = set()
    for key in sorted(entry.outputs, key=lambda key: key not in shared):
        storage = entry.outputs[key]
        if key not in shared:
            sharing.outputs[key] = sharing.home(storage)
        elif storage in taken:
            port = sharing.outputs.setdefault(key, replace(storage))
            copies.append((storage, port))
        else:
            taken.add(storage)
            port = sharing.outputs.setdefault(key, storage)
            if port is not storage:
                sharing.homes[storage] = port
    return copies


def _in_place(entry: Signature, state: str, new: TensorBuffer) -> bool:
    """Whether a state's new value may be written over the old one: the caller does not get it, and
    no launch reads the old value once its writing has begun.
    """
    if new in entry.outputs.values():
        return False
    old = entry.inputs.get(state)
    begun = False
    for launch in entry.launches:
        begun = begun or new in launch.written
        if begun and old in launch.storages:
            return False
    return True
