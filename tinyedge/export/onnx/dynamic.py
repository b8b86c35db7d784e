"""Sizes that only a run knows: what computes them, and how an output's port tells its own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tinyedge.core import dtype as dt
from tinyedge.core.errors import UnsupportedOp
from tinyedge.core.ir import ops
from tinyedge.core.ir.dynamic_sizes import is_dynamic, most
from tinyedge.core.ir.shapes import maximum, minimum, symbol
from tinyedge.core.ir.uop import Size, UOp, as_node, as_size, toposort
from tinyedge.core.tensor.graph import Port
from tinyedge.core.tensor.tensor import Tensor
from tinyedge.export.onnx.equality import show
from tinyedge.export.onnx.masks import Mask


@dataclass
class DynamicSizes:
    """The dynamic sizes of a model."""

    # the tensors that compute them, as they are and below the most there is room for
    made: dict[str, tuple[Tensor, Tensor]] = field(default_factory=dict)
    taken: set[str] = field(default_factory=set)  # names of other sizes
    # the nodes of those that may be above the most, because the caller said what that is
    bounded: dict[str, str] = field(default_factory=dict)
    labels: dict[str, str] = field(default_factory=dict)  # the nodes that they are of
    seen: set[str] = field(default_factory=set)  # those that an output tells
    masks: dict[Mask, Size] = field(default_factory=dict)  # the numbers of true elements, by mask
    # pairs of sizes that a run has to find equal, with the first node that needs it
    equal: dict[tuple[Size, Size], str] = field(default_factory=dict)

    def of_mask(self, mask: Mask) -> Size | None:
        """How many elements of a mask are true, where that has a name."""
        if mask in self.masks or mask.complement not in self.masks:
            return self.masks.get(mask)
        return mask.size - self.masks[mask.complement]

    def add(
        self,
        label: str,
        count: Tensor,
        greatest: int,
        *,
        bounded: bool = False,
        mask: Mask | None = None,
    ) -> Size:
        """The size that a scalar says, as a symbol named after a node. bounded: by the caller.

        mask: the scalar is how many of its elements are true.
        """
        known = self.of_mask(mask) if mask is not None else None
        # Of a mask of open size, what the others leave may be below 0 as far as bounds tell.
        if known is not None and maximum(known) == greatest and minimum(known) >= 0:
            return known
        size = self._added(label, count, greatest, bounded)
        if mask is not None:
            self.masks.setdefault(mask, size)
        return size

    def _added(self, label: str, count: Tensor, greatest: int, bounded: bool) -> Size:
        exact = count.reshape(()).cast(dt.int64)
        kept = exact.maximum(0).minimum(greatest).cast(dt.int32).in_memory()
        for name, (_, other) in self.made.items():
            if other.node is kept.node:
                return symbol(name, 0, greatest)
        name = f"count of {label}"
        while name in self.made or name in self.taken:
            name += "'"
        self.made[name] = (exact, kept)
        self.labels[name] = label
        if bounded:
            self.bounded[name] = label
        return symbol(name, 0, greatest)

    @property
    def nodes(self) -> dict[str, UOp]:
        """What computes each count, in an order in which they can be computed."""
        return {name: kept.node for name, (_, kept) in self.made.items()}

    def all_ports(self, outputs: Mapping[str, Tensor]) -> list[Port]:
        """The ports of a model's outputs. Raises UnsupportedOp for an output that no port can be,
        and where none tells what a run finds amiss.
        """
        taken = {*outputs}
        telling = {n for n, tensor in outputs.items() if tensor.ndim} if self.equal else set()
        ports = [p for n, t in outputs.items() for p in self.ports(n, t, taken, n in telling)]
        self._check(bool(telling))
        return ports

    def ports(
        self, name: str, tensor: Tensor, taken: set[str], telling: bool = False
    ) -> list[Port]:
        """An output's port, and the one of its count, of a name that is not taken.

        telling: the count is -1 where sizes differ that a run has to find equal.
        Raises UnsupportedOp where two of its sizes are counted.
        """
        axes = [axis for axis, size in enumerate(tensor.shape) if is_dynamic(size, self.made)]
        if not axes and telling:
            axes = [0]
        if not axes:
            return [Port(name, tensor.dtype, tensor.shape, tensor.node)]
        if len(axes) > 1:
            raise UnsupportedOp(
                f"output {name!r}",
                f"only a run knows the sizes of {len(axes)} of its axes: {show(tensor.shape)}",
                id="model.unsupported",
                supported="outputs with one such axis",
                next="flatten it in the model, or make it two outputs",
            )
        (axis,) = axes
        size = as_node(tensor.shape[axis])
        shape = list(tensor.shape)
        if is_dynamic(size, self.made):
            shape[axis] = as_size(most(size, self.made))
        count = f"{name}.count"
        while count in taken:
            count += "_"
        taken.add(count)
        length = self._length(size)
        if telling:
            length = self._all_equal().where(length, -1)
        return [
            Port(name, tensor.dtype, tuple(shape), tensor.node, count, axis),
            Port(count, dt.int64, (), length.node),
        ]

    def _all_equal(self) -> Tensor:
        """Whether each pair of sizes is equal, and there is room for them, as a bool scalar."""
        right = Tensor(True, dt.bool_)
        for pair in self.equal:
            one, other = map(as_node, pair)
            right = right & self._length(one).eq(self._length(other))
            for node in toposort((one, other)):
                if node.op is ops.SYMBOL and node.arg.name in self.made:
                    exact, kept = self.made[node.arg.name]
                    right = right & exact.eq(kept.cast(dt.int64))
        return right

    def _check(self, telling: bool) -> None:
        """Raise UnsupportedOp where a run could find too many elements, or sizes that differ, and
        no output would tell. telling: one tells whether sizes do.
        """
        for (a, b), label in self.equal.items() if not telling else ():
            raise UnsupportedOp(
                label,
                f"only a run can show that {show(a)} and {show(b)} are equal, and no output tells",
                id="model.unsupported",
                supported="a check of it beside an output that has an axis",
                next="give an output of the model an axis, or make another one with --outputs",
            )
        for name, label in self.bounded.items():
            if name not in self.seen:
                raise UnsupportedOp(
                    f"ONNX node {label!r}",
                    "it has a bound, and no output tells when a run finds more elements",
                    id="model.unsupported",
                    supported="bounds of what an output has as many elements as",
                    next="make its result an output too, with --outputs",
                )

    def _length(self, size: UOp) -> Tensor:
        """A size as a tensor, from the counts as they are: above the most if there is no room."""
        done: dict[UOp, Tensor] = {}
        for node in toposort((size,)):
            if node.op is ops.SYMBOL and node.arg.name in self.made:
                self.seen.add(node.arg.name)
                done[node] = self.made[node.arg.name][0]
            elif node.src:
                operands = tuple(done[source].node for source in node.src)
                done[node] = Tensor(UOp(node.op, dt.int64, operands))
            else:
                done[node] = Tensor.from_size(as_size(node))
        return done[size]
