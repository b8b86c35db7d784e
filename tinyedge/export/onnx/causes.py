"""Why something is not known at export, and what a user can change about that."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from tinyedge.core.ir import ops
from tinyedge.core.ir.uop import Size, UOp, toposort


@dataclass(frozen=True)
class Cause:
    """What a value depends on: the first input whose values it takes, the first number that only a
    run counts, and whether it changes from iteration to iteration of a loop.
    """

    input: str = ""
    count: str = ""
    iteration: bool = False

    def __or__(self, other: Cause) -> Cause:
        return Cause(
            self.input or other.input, self.count or other.count, self.iteration or other.iteration
        )


NOTHING = Cause()


class Causes:
    """Finds causes; what was found is kept. labels: the sizes that only a run knows, by name, with
    the nodes that they are of; the importer adds to them.
    """

    def __init__(self, labels: Mapping[str, str]) -> None:
        self._labels = labels
        self._found: dict[UOp, Cause] = {}

    def of(self, nodes: Iterable[UOp]) -> Cause:
        """What values, or sizes, depend on."""
        result = NOTHING
        for root in nodes:
            for node in toposort((root,), stop=lambda each: each in self._found):
                if node not in self._found:
                    cause = self._own(node)
                    for source in node.src:
                        cause |= self._found[source]
                    self._found[node] = cause
            result |= self._found[root]
        return result

    def smaller(self, sizes: Iterable[Size]) -> str:
        """How to make sizes smaller where only a run knows them; nothing where it does not."""
        count = self.of(size for size in sizes if isinstance(size, UOp)).count
        if not count:
            return ""
        bound = shlex.quote(f"{self._labels[count]}=N")
        return f"give {count!r} a smaller bound: --bound {bound}"

    def _own(self, node: UOp) -> Cause:
        if node.op is ops.SYMBOL and node.arg.name in self._labels:
            return Cause(count=node.arg.name)
        if node.op is ops.BUFFER and node.arg.source.data is None:
            kind = node.arg.source.kind
            return Cause(input=node.arg.source.name) if kind == "input" else Cause(iteration=True)
        return NOTHING


def next_step(cause: Cause, otherwise: str) -> str:
    """What to do about it. otherwise: where only open sizes matter, which --dim changes."""
    before = "export what comes before this node: --outputs NAME"
    if cause.count:
        return f"only a run knows {cause.count!r}, which no --dim changes: {before}"
    if cause.input:
        fixed = f"--constant {shlex.quote(f'{cause.input}=NUMBER')}"
        return f"it is computed from input {cause.input!r}: fix that by {fixed}, or {before}"
    if cause.iteration:
        return "it changes from iteration to iteration of a loop: compute it before the loop"
    return otherwise
