"""Trees of tensors: what functions take and give whose derivatives are wanted.

A tree is a tensor, or a tuple, list, dict, dataclass or `Structure` of trees. Its leaves are its
tensors, in the order of its parts, of a dict's in that of its keys; anything else in it stays as it
is.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from typing import Any

import numpy as np

from tinyedge.core import dtype as dt
from tinyedge.core.tensor.tensor import Tensor

Path = tuple[Hashable, ...]  # the names, keys and numbers of the parts that lead to a leaf


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


def tensors(tree: Any, *, variables: bool = False) -> Any:
    """The tree with tensors in place of arrays of numpy: an array at two places is one tensor.

    variables: of what is differentiated or updated; in place of floats, too (float32), and numpy's,
    but for those that are attributes of objects, which are options of these. Raises TypeError for
    an object that holds tensors and is no tree: they would be constants.
    """
    known: dict[int, Tensor] = {}

    def other(part: Any, within_object: bool) -> Any:
        if isinstance(part, np.ndarray) and dt.has_type(part.dtype):
            return known.setdefault(id(part), Tensor(part))
        if variables and isinstance(part, (float, np.generic)):
            if within_object:
                return part
            if not isinstance(part, np.generic):
                return Tensor(part, dt.float32)
            is_float = dt.has_type(part.dtype) and dt.from_numpy(part.dtype).is_float
            return Tensor(part) if is_float else part
        if variables:
            _refuse_object(part)
        return part

    return mapped(lambda leaf: leaf, tree, other=other)


def _refuse_object(part: Any) -> None:
    if isinstance(part, type) or not hasattr(part, "__dict__"):
        return
    for name, value in vars(part).items():
        if leaves(value):
            kind = type(part).__name__
            raise TypeError(
                f"{kind} has tensors in {name!r}, and is no tree, so they are no variables: make "
                f"{kind} an nn.Module or a dataclass (an nn.Buffer in it stays as it is)"
            )


def leaves(tree: Any) -> list[Tensor]:
    """The tensors of a tree."""
    found: list[Tensor] = []

    def take(leaf: Tensor) -> Tensor:
        found.append(leaf)
        return leaf

    mapped(take, tree)
    return found


def mapped(
    function: Callable[[Tensor], Any],
    tree: Any,
    buffer: Callable[[Buffer], Any] | None = None,
    *,
    other: Callable[[Any, bool], Any] = lambda part, within_object: part,
) -> Any:
    """The tree with each leaf replaced by what the function gives for it.

    buffer: what takes the place of a `Buffer`; None: buffers are parts like others. other: what
    takes the place of anything else, given it and whether it is within an object.
    """

    def inner(part: Any, within: bool) -> Any:
        def below(part: Any) -> Any:
            return inner(part, within)

        def attribute(part: Any) -> Any:
            return inner(part, True)

        if isinstance(part, Tensor):
            return function(part)
        if isinstance(part, Buffer) and buffer is not None:
            return buffer(part)
        if isinstance(part, Structure):
            return part.copied({name: attribute(value) for name, value in vars(part).items()})
        if isinstance(part, tuple) and hasattr(part, "_fields"):  # a named tuple
            return type(part)(*map(below, part))
        if isinstance(part, (tuple, list)):
            return type(part)(map(below, part))
        if isinstance(part, dict):
            return {key: below(part[key]) for key in part}
        if is_dataclass(part) and not isinstance(part, type):
            values = {f.name: getattr(part, f.name) for f in fields(part) if f.init}
            return replace(part, **{name: attribute(value) for name, value in values.items()})
        return other(part, within)

    return inner(tree, False)


def variables(tree: Any) -> list[Tensor]:
    """The leaves that are no buffers."""
    found: list[Tensor] = []
    mapped(found.append, tree, lambda buffer: buffer)
    return found


def by_path(tree: Any, *, buffers: bool = True) -> dict[Path, Tensor]:
    """The leaves by their paths, in their order; buffers: with those of `Buffer`s."""
    found: dict[Path, Tensor] = {}

    def take(part: Any, path: Path) -> None:
        if isinstance(part, Tensor):
            found[path] = part
        elif isinstance(part, Buffer):
            if buffers:
                found[path] = part.value
        else:
            for name, inner in _parts(part):
                take(inner, (*path, name))

    take(tree, ())
    return found


def named(tree: Any, prefix: str = "") -> Iterator[tuple[str, Tensor]]:
    """The leaves, each with the names and numbers of the parts that lead to it, joined by dots."""
    if isinstance(tree, Tensor):
        yield prefix, tree
    elif isinstance(tree, Buffer):
        yield prefix, tree.value
    else:
        for name, part in _parts(tree):
            yield from named(part, f"{prefix}.{name}" if prefix else str(name))


def _parts(tree: Any) -> list[tuple[Hashable, Any]]:
    """What a tree is made of, in the order of `mapped`."""
    if isinstance(tree, Structure):
        return list(vars(tree).items())
    if isinstance(tree, tuple) and hasattr(tree, "_fields"):
        return list(zip(tree._fields, tree, strict=True))
    if isinstance(tree, (tuple, list)):
        return list(enumerate(tree))
    if isinstance(tree, dict):
        return list(tree.items())
    if is_dataclass(tree) and not isinstance(tree, type):
        return [(f.name, getattr(tree, f.name)) for f in fields(tree) if f.init]
    return []


def shown(path: Path) -> str:
    """A path as errors and states name it."""
    return ".".join(map(str, path)) or "the tensor itself"


def rebuilt(tree: Any, values: Sequence[Any]) -> Any:
    """The tree with other leaves, in their order."""
    remaining = iter(values)
    result = mapped(lambda leaf: next(remaining), tree)
    if next(remaining, None) is not None:
        raise ValueError("more leaves than the tree has")
    return result


def matched(
    expected: Mapping[Path, Tensor], found: Mapping[Path, Tensor], what: str
) -> list[Tensor]:
    """The tensors that are found at the paths that are expected, in the order of these.

    Raises ValueError, which says what the found ones are, for other paths or shapes.
    """
    missing = [shown(path) for path in expected if path not in found]
    extra = [shown(path) for path in found if path not in expected]
    if missing or extra:
        raise ValueError(f"{what}: {differing(missing, extra)}")
    for path, a in expected.items():
        if (b := found[path]).shape != a.shape:
            raise _unlike(what, path, a, b)
    return [found[path] for path in expected]


def differing(missing: Sequence[str], extra: Sequence[str]) -> str:
    """What names a thing lacks, and has besides those that are wanted."""
    said = [("missing: ", missing), ("not wanted: ", extra)]
    return "; ".join(start + _some(names) for start, names in said if names)


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")


def _unlike(what: str, path: Path, a: Tensor, b: Tensor) -> ValueError:
    return ValueError(
        f"{what}: {b.dtype} {list(b.shape)} for {a.dtype} {list(a.shape)} at {shown(path)!r}"
    )


def same_leaves(tree: Any, other: Any, what: str) -> list[Tensor]:
    """The leaves of `other`, which has the tree's structure, shapes and types, in the tree's order.

    Arrays and numbers of `other` are leaves, too. Raises ValueError, which says what `other` is.
    """
    expected = by_path(tree)
    found = matched(expected, by_path(tensors(other, variables=True)), what)
    for (path, a), b in zip(expected.items(), found, strict=True):
        if b.dtype is not a.dtype:
            raise _unlike(what, path, a, b)
    return found
