"""What a function is given and what it reads, as a key, and the tensors in it.

Two calls with equal keys differ in the values of tensors alone. A function's key has its code, what
it reads from the functions and the module around it, and what those functions read.
"""

from __future__ import annotations

import array
import collections
import dis
import functools
import hashlib
import sys
import types
from collections.abc import Callable, Hashable, Iterator, Mapping
from copy import copy
from typing import Any

import numpy as np

from tinyedge.core.dtype import DType, from_numpy
from tinyedge.core.ir import ops
from tinyedge.core.tensor.tensor import Tensor

# Packages whose functions and objects are known by identity: what they keep is no matter of a call.
LIBRARIES = frozenset({*sys.stdlib_module_names, "numpy", "tinyedge"})

_PLAIN = (str, bytes, bool, int, type(None), type(...), DType, np.dtype, slice, range)
_WRAPPERS = (property, functools.cached_property, staticmethod, classmethod)
_OBJECTS = (types.SimpleNamespace, collections.deque, collections.UserDict, collections.UserList)


class Same:
    """A thing that is known by identity alone; it lives as long as this."""

    __slots__ = ("thing",)

    def __init__(self, thing: Any) -> None:
        self.thing = thing

    def __hash__(self) -> int:
        return id(self.thing)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Same) and other.thing is self.thing


class Description:
    """Makes keys, and collects tensors as it meets them, each once.

    given: those of arguments, with arrays of numpy; of which a key has type and shape. captured:
    those that functions read, whose keys say which have one node. sizes: by the ids of given ones,
    shapes in which sizes are open.
    aliases: whether a key says which of them are one; else `given` has each as often as it occurs.
    """

    def __init__(self, sizes: Mapping[int, Any] | None = None, *, aliases: bool = True) -> None:
        self.given: list[Any] = []
        self.captured: list[Tensor] = []
        self._numbers: dict[int, int] = {}  # of given ones
        self._within_numbers: dict[int, int] = {}
        self._nodes: dict[int, int] = {}  # of captured ones, which may share them
        self._seen: dict[int, int] = {}
        self._classes: dict[int, int] = {}
        self._inside = 0  # of functions
        self._sizes = sizes or {}
        self._aliases = aliases

    def number(self, value: Any) -> int:
        """The place of a tensor among those that are given."""
        return self._numbers[id(value)]

    def key_of_function(self, function: Callable[..., Any]) -> Hashable:
        """The key of a function that is called: its tensors are captured."""
        return self._within(function)

    def key(self, value: Any) -> Hashable:
        """The key of an argument, or of a function."""
        kind = type(value)
        if kind is Tensor:
            return self._tensor(value)
        if kind in _PLAIN:
            return kind, _hashable(value)
        if isinstance(value, (float, complex, np.generic)):
            return type(value), repr(value)
        if isinstance(value, np.ndarray):
            return self._array(value)
        if isinstance(value, (bytearray, memoryview, array.array)):
            return kind, bytes(value)
        if id(value) in self._seen:
            return "again", self._seen[id(value)]
        self._seen[id(value)] = len(self._seen)
        return self._whole(value)

    def _tensor(self, value: Tensor) -> Hashable:
        if not self._inside:
            return self._given(value)
        node = value.node
        if node.op is ops.CONST:  # interned: equal ones cannot be told apart in a graph
            return "constant", node
        if id(value) not in self._within_numbers:
            number = self._nodes.setdefault(id(node), len(self._nodes))
            self._within_numbers[id(value)] = number
            self.captured.append(value)
        return "captured", self._within_numbers[id(value)], value.dtype, value.shape

    def _array(self, value: Any) -> Hashable:
        if not self._inside:
            return self._given(value)
        if value.dtype.hasobject:
            return Same(value)
        content = hashlib.blake2b(np.ascontiguousarray(value).data, digest_size=16).digest()
        return "array", value.dtype.str, value.shape, content

    def _given(self, value: Any) -> Hashable:
        if not self._aliases or (number := self._numbers.get(id(value))) is None:
            number = self._numbers[id(value)] = len(self.given)
            self.given.append(value)
        shape = self._sizes.get(id(value)) if self._sizes else None
        if shape is None:
            shape = value.shape
        return "given", number if self._aliases else 0, _type_of(value), shape

    def _whole(self, value: Any) -> Hashable:
        kind = type(value)
        if kind is tuple or isinstance(value, (list, tuple, collections.deque)):
            return kind, tuple([self.key(part) for part in value])
        if isinstance(value, Mapping):
            return kind, tuple([(_said(name), self.key(value[name])) for name in value])
        if isinstance(value, (set, frozenset)):
            return kind, frozenset(map(self.key, value))
        if isinstance(value, types.MethodType):
            return "method", self.key(value.__func__), self._within(value.__self__)
        if isinstance(value, types.FunctionType):
            return self._reading(value)
        if isinstance(value, functools.partial):
            parts = (value.func, value.args, value.keywords)
            return "partial", tuple([self.key(part) for part in parts])
        if isinstance(value, (property, functools.cached_property)):
            return kind, tuple([self.key(part) for part in _functions(value)])
        if isinstance(value, type):
            return self._class(value)
        if hasattr(value, "__wrapped__"):
            return kind, self.key(value.__wrapped__)
        if _of_library(kind) and not isinstance(value, _OBJECTS) and not _is_ours(kind):
            return Same(value)
        attributes = tuple([(name, self.key(part)) for name, part in attributes_of(value)])
        return self._class(kind), attributes

    def _class(self, value: type) -> Hashable:
        """A class: what its functions read, and its values."""
        if _of_library(value):
            return Same(value)
        if id(value) in self._classes:
            return "class again", self._classes[id(value)]
        self._classes[id(value)] = len(self._classes)
        parts = [(name, part) for name, part in vars(value).items() if _is_read(name, part)]
        bases = tuple([self._class(base) for base in value.__bases__])
        return Same(value), bases, tuple([(name, self._within(part)) for name, part in parts])

    def _within(self, value: Any) -> Hashable:
        self._inside += 1
        try:
            return self.key(value)
        finally:
            self._inside -= 1

    def _reading(self, function: types.FunctionType) -> Hashable:
        """A function: its code, and what it reads."""
        if _of_library(function) and not hasattr(function, "__wrapped__"):
            return Same(function)
        self._inside += 1
        try:
            parts = [(name, self.key(value)) for name, value in read_by(function)]
        finally:
            self._inside -= 1
        return function.__code__, tuple(parts)


def _hashable(value: Any) -> Any:
    return (value.start, value.stop, value.step) if isinstance(value, slice) else value


def _functions(value: Any) -> tuple[Any, ...]:
    """What an attribute is computed by."""
    if isinstance(value, property):
        return value.fget, value.fset, value.fdel
    return (value.func,)


def _said(name: Any) -> Any:
    """A dict's key, as a part of a key."""
    return name if isinstance(name, str) else (type(name), name)


def _is_read(name: str, value: Any) -> bool:
    """Whether what a class holds is code or data of the user's."""
    if isinstance(value, (types.FunctionType, *_WRAPPERS)):
        return True
    return not name.startswith("__") and _is_value(value)


def _type_of(value: Any) -> DType:
    return value.dtype if isinstance(value, Tensor) else from_numpy(value.dtype)


def _is_value(value: Any) -> bool:
    return isinstance(value, (*_PLAIN, float, complex, np.generic, np.ndarray, Tensor, list, dict))


def _of_library(thing: Any) -> bool:
    return (getattr(thing, "__module__", None) or "builtins").partition(".")[0] in LIBRARIES


def _is_ours(kind: type) -> bool:
    return kind.__module__.partition(".")[0] == "tinyedge"


def attributes_of(value: Any) -> Iterator[tuple[str, Any]]:
    """An object's attributes and their values."""
    yield from list(getattr(value, "__dict__", {}).items())
    for kind in type(value).__mro__:
        slots = vars(kind).get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            if name not in ("__dict__", "__weakref__") and hasattr(value, name):
                yield name, getattr(value, name)


def read_by(function: types.FunctionType) -> Iterator[tuple[str, Any]]:
    """What a function reads from around it: by the name that its code has for it."""
    code = function.__code__
    for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
        try:
            yield name, cell.cell_contents
        except ValueError:  # nothing is assigned to it yet
            yield name, ...
    if function.__defaults__ or function.__kwdefaults__:
        yield "defaults", (function.__defaults__, function.__kwdefaults__)
    names, attributes = _names(code)
    around = function.__globals__
    for name in names:
        if name not in around:
            continue
        value = around[name]
        yield name, value
        if isinstance(value, types.ModuleType):
            for attribute in attributes:
                part = vars(value).get(attribute)
                if part is not None and _is_value(part):
                    yield f"{name}.{attribute}", part


@functools.lru_cache(maxsize=4096)
def _names(code: types.CodeType) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The globals and the attributes that code reads, with the functions in it."""
    names: dict[str, None] = {}
    attributes: dict[str, None] = {}
    for step in dis.get_instructions(code):
        if step.opname in ("LOAD_GLOBAL", "LOAD_NAME"):
            names[step.argval] = None
        elif step.opname in ("LOAD_ATTR", "LOAD_METHOD"):
            attributes[step.argval] = None
    for part in code.co_consts:
        if isinstance(part, types.CodeType):
            inner = _names(part)
            names.update(dict.fromkeys(inner[0]))
            attributes.update(dict.fromkeys(inner[1]))
    return tuple(names), tuple(attributes)


def difference(one: Any, other: Any) -> str:
    """The innermost name under which two keys differ, "" for none."""
    if one == other or type(one) is not type(other):
        return ""
    if isinstance(one, tuple) and len(one) == len(other):
        for a, b in zip(one, other, strict=True):
            if a != b and (name := difference(a, b)):
                return name
    if isinstance(one, tuple) and one and isinstance(one[0], str) and one[0] == other[0]:
        return one[0]
    return _extra(one, other)


def _extra(one: Any, other: Any) -> str:
    """A name that only one of two keys of an object or dict has."""
    if not isinstance(one, tuple) or not isinstance(other, tuple):
        return ""
    pairs = [
        {p[0] for p in k if isinstance(p, tuple) and len(p) == 2 and isinstance(p[0], str)}
        for k in (one, other)
    ]
    return min((str(name) for name in pairs[0] ^ pairs[1]), default="")


def replaced_in(value: Any, change: Callable[[Any], Any], done: dict[int, Any]) -> Any:
    """A value with what `change` gives for each tensor and array in it, None leaving it.

    Containers and objects that have any are copied; what is one object stays one. done: by the
    values' ids, what became of them.
    """
    if id(value) in done:
        return done[id(value)]
    if isinstance(value, (Tensor, np.ndarray)):
        done[id(value)] = change(value)
    elif type(value) in _PLAIN or (callable(value) and not hasattr(value, "__dict__")):
        return value
    else:
        done[id(value)] = value  # of a circle
        done[id(value)] = _copied(value, change, done)
    return done[id(value)]


def _copied(value: Any, change: Callable[[Any], Any], done: dict[int, Any]) -> Any:
    if isinstance(value, tuple):
        parts = [replaced_in(part, change, done) for part in value]
        return type(value)(*parts) if hasattr(value, "_fields") else type(value)(parts)
    if isinstance(value, (list, collections.deque)):
        made = copy(value)
        made.clear()
        done[id(value)] = made
        made.extend([replaced_in(part, change, done) for part in value])
        return made
    if isinstance(value, dict):
        table = done[id(value)] = copy(value)
        for name, part in value.items():
            table[name] = replaced_in(part, change, done)
        return table
    if isinstance(value, (types.FunctionType, types.MethodType, type, functools.partial)):
        return value
    kind = type(value)
    if _of_library(kind) and not isinstance(value, _OBJECTS) and not _is_ours(kind):
        return value
    attributes = list(attributes_of(value))
    if not attributes:
        return value
    made = done[id(value)] = copy(value)
    for name, part in attributes:
        object.__setattr__(made, name, replaced_in(part, change, done))
    return made
