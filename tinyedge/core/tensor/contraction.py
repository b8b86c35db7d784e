"""Contractions by labels, as Einstein wrote sums."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from tinyedge.core.ir.uop import Size
from tinyedge.core.tensor.base import UnequalSizes
from tinyedge.core.tensor.movement import broadcast
from tinyedge.core.tensor.reductions import Reductions

T = TypeVar("T", bound=Reductions)


def einsum(equation: str, operands: Sequence[T]) -> T:
    """One product of all operands over the union of their labels, then a sum; `...` stands for
    axes that broadcast. Without an arrow the result has the labels that occur once, in their order.

    Raises ValueError for an equation that does not fit.
    """
    equation = equation.replace(" ", "")
    terms, arrow, target = equation.partition("->")
    parts = terms.split(",")
    if len(parts) != len(operands):
        raise ValueError(f"equation {equation!r} for {len(operands)} operands")
    most = max(_ellipsis(p, t.ndim) for p, t in zip(parts, operands, strict=True))
    dots = [f"<{i}>" for i in range(most)]
    labeled = [_labels(p, t.ndim, dots) for p, t in zip(parts, operands, strict=True)]
    if arrow:
        out = _labels(target, len(target.replace("...", "")) + most, dots)
    else:
        used = [label for labels in labeled for label in labels]
        out = dots + sorted(
            {label for label in used if used.count(label) == 1 and label not in dots}
        )
    return contract(operands, labeled, out)


def contract(
    operands: Sequence[T],
    labeled: Sequence[Sequence[str]],
    out: Sequence[str],
) -> T:
    """sum over the labels that `out` lacks of the product of the operands."""
    every = list(dict.fromkeys([*out, *(label for labels in labeled for label in labels)]))
    sizes: dict[str, Size] = {}
    aligned = []
    for tensor, labels in zip(operands, labeled, strict=True):
        tensor, names = _diagonals(tensor, list(labels))
        for name, size in zip(names, tensor.shape, strict=True):
            if sizes.get(name, 1) == 1:
                sizes[name] = size
            elif size != 1 and size != sizes[name]:
                message = f"label {name!r} has sizes {sizes[name]} and {size}"
                raise UnequalSizes(message, (sizes[name], size))
        order = sorted(range(len(names)), key=lambda axis: every.index(names[axis]))
        moved = tensor.permute(order)
        present = iter(moved.shape)
        aligned.append(moved.reshape([next(present) if name in names else 1 for name in every]))
    if any(name not in sizes for name in out) or len(set(out)) != len(out):
        raise ValueError("the output has a label that no operand has, or one twice")
    result = aligned[0]
    for tensor in aligned[1:]:
        result = result * tensor
    result = broadcast(result, result.full([sizes[n] for n in every], 0, result.dtype))[0]
    summed = [axis for axis, name in enumerate(every) if name not in out]
    return result.sum(summed) if summed else result


def _ellipsis(part: str, ndim: int) -> int:
    letters = part.replace("...", "")
    if part.count("...") > 1 or not all(c.isalpha() for c in letters) or len(letters) > ndim:
        raise ValueError(f"term {part!r} for {ndim} axes")
    if "..." not in part and len(letters) != ndim:
        raise ValueError(f"term {part!r} for {ndim} axes")
    return ndim - len(letters)


def _labels(part: str, ndim: int, dots: list[str]) -> list[str]:
    if "..." not in part:
        return list(part)
    before, _, after = part.partition("...")
    count = ndim - len(before) - len(after)
    return [*before, *(dots[len(dots) - count :] if count else []), *after]


def _diagonals(x: T, labels: list[str]) -> tuple[T, list[str]]:
    """Axes that share a label are reduced to their diagonal."""
    while len(set(labels)) < len(labels):
        repeated = next(label for label in labels if labels.count(label) > 1)
        first = labels.index(repeated)
        second = labels.index(repeated, first + 1)
        size = x.shape[first]
        rows = x.arange(size).reshape([-1 if a == first else 1 for a in range(x.ndim)])
        columns = x.arange(size).reshape([-1 if a == second else 1 for a in range(x.ndim)])
        x = rows.eq(columns).where(x, 0).sum(second)
        del labels[second]
    return x, labels
