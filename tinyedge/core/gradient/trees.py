"""Trees of tensors: what functions take and give whose derivatives are wanted.

A tree is a tensor, or a tuple, list, dict or dataclass of trees. Its leaves are its tensors, in the
order of its parts, of a dict's in that of its keys; anything else in it stays as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields, is_dataclass, replace
from typing import Any

from tinyedge.core.tensor.tensor import Tensor


def leaves(tree: Any) -> list[Tensor]:
    """The tensors of a tree."""
    found: list[Tensor] = []

    def take(leaf: Tensor) -> Tensor:
        found.append(leaf)
        return leaf

    mapped(take, tree)
    return found


def mapped(function: Callable[[Tensor], Any], tree: Any) -> Any:
    """The tree with each leaf replaced by what the function gives for it."""
    if isinstance(tree, Tensor):
        return function(tree)
    if isinstance(tree, tuple) and hasattr(tree, "_fields"):  # a named tuple
        return type(tree)(*(mapped(function, part) for part in tree))
    if isinstance(tree, (tuple, list)):
        return type(tree)(mapped(function, part) for part in tree)
    if isinstance(tree, dict):
        return {key: mapped(function, tree[key]) for key in tree}
    if is_dataclass(tree) and not isinstance(tree, type):
        parts = {f.name: getattr(tree, f.name) for f in fields(tree) if f.init}
        return replace(tree, **{name: mapped(function, part) for name, part in parts.items()})
    return tree


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
