"""Trees of tensors: what functions take and give whose derivatives are wanted.

A tree is a tensor, or a tuple, list, dict, dataclass or `Structure` of trees. Its leaves are its
tensors, in the order of its parts, of a dict's in that of its keys; anything else in it stays as it
is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields, is_dataclass, replace
from typing import Any

from tinyedge.core.tensor.tensor import Tensor


class Structure:
    """An object whose attributes are the parts of a tree. A tree with other leaves has a copy."""

    def copied(self, parts: dict[str, Any]) -> Any:
        """An object of this class with other attributes."""
        copy = object.__new__(type(self))
        copy.__dict__.update(parts)
        return copy


class Buffer(Structure):
    """A tensor of a model that is no variable: what computes it is not an optimizer."""

    def __init__(self, value: Tensor) -> None:
        self.value = value


def leaves(tree: Any) -> list[Tensor]:
    """The tensors of a tree."""
    found: list[Tensor] = []

    def take(leaf: Tensor) -> Tensor:
        found.append(leaf)
        return leaf

    mapped(take, tree)
    return found


def mapped(
    function: Callable[[Tensor], Any], tree: Any, buffer: Callable[[Buffer], Any] | None = None
) -> Any:
    """The tree with each leaf replaced by what the function gives for it.

    buffer: what takes the place of a `Buffer`; None: buffers are parts like others.
    """

    def inner(part: Any) -> Any:
        return mapped(function, part, buffer)

    if isinstance(tree, Tensor):
        return function(tree)
    if isinstance(tree, Buffer) and buffer is not None:
        return buffer(tree)
    if isinstance(tree, Structure):
        return tree.copied({name: inner(part) for name, part in vars(tree).items()})
    if isinstance(tree, tuple) and hasattr(tree, "_fields"):  # a named tuple
        return type(tree)(*map(inner, tree))
    if isinstance(tree, (tuple, list)):
        return type(tree)(map(inner, tree))
    if isinstance(tree, dict):
        return {key: inner(tree[key]) for key in tree}
    if is_dataclass(tree) and not isinstance(tree, type):
        parts = {f.name: getattr(tree, f.name) for f in fields(tree) if f.init}
        return replace(tree, **{name: inner(part) for name, part in parts.items()})
    return tree


def variables(tree: Any) -> list[Tensor]:
    """The leaves that are no buffers."""
    found: list[Tensor] = []
    mapped(found.append, tree, lambda buffer: buffer)
    return found


def named(tree: Any, prefix: str = "") -> Iterator[tuple[str, Tensor]]:
    """The leaves, each with the names and numbers of the parts that lead to it, joined by dots."""
    if isinstance(tree, Tensor):
        yield prefix, tree
    elif isinstance(tree, Buffer):
        yield prefix, tree.value
    else:
        for name, part in _parts(tree):
            yield from named(part, f"{prefix}.{name}" if prefix else name)


def _parts(tree: Any) -> list[tuple[str, Any]]:
    """What a tree is made of, in the order of `mapped`."""
    if isinstance(tree, Structure):
        return list(vars(tree).items())
    if isinstance(tree, tuple) and hasattr(tree, "_fields"):
        return list(zip(tree._fields, tree, strict=True))
    if isinstance(tree, (tuple, list)):
        return [(str(number), part) for number, part in enumerate(tree)]
    if isinstance(tree, dict):
        return [(str(key), part) for key, part in tree.items()]
    if is_dataclass(tree) and not isinstance(tree, type):
        return [(f.name, getattr(tree, f.name)) for f in fields(tree) if f.init]
    return []


def rebuilt(tree: Any, values: Sequence[Any]) -> Any:
    """The tree with other leaves, in their order."""
    remaining = iter(values)
    result = mapped(lambda leaf: next(remaining), tree)
    if next(remaining, None) is not None:
        raise ValueError("more leaves than the tree has")
    return result


def same_leaves(tree: Any, other: Any, what: str) -> list[Tensor]:
    """The leaves of `other`, which has the tree's structure, shapes and types.

    Raises ValueError, which says what `other` is.
    """
    expected, found = leaves(tree), leaves(other)
    if len(expected) != len(found):
        raise ValueError(f"{what}: {len(found)} tensors for {len(expected)}")
    for number, (a, b) in enumerate(zip(expected, found, strict=True)):
        if (a.shape, a.dtype) != (b.shape, b.dtype):
            raise ValueError(
                f"{what}: {b.dtype} {list(b.shape)} for {a.dtype} {list(a.shape)} (tensor {number})"
            )
    return found
