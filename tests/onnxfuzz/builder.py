"""What operator makers build with: values to choose from, new leaves, and nodes on them."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from onnx import NodeProto, defs, helper

from tests.onnxfuzz.case import Array, Case, Step, Value, free_names
from tests.onnxfuzz.oracle import Invalid, Jumps, Oracle

Shape = tuple[int, ...]
Fill = Callable[[np.random.Generator, Shape], Array]

FLOATS = ("float32", "float64", "float16")
SIGNED = ("int8", "int16", "int32", "int64")
UNSIGNED = ("uint8", "uint16", "uint32", "uint64")
INTEGERS = (*SIGNED, *UNSIGNED)
NUMBERS = (*FLOATS, *INTEGERS)
ALL = (*NUMBERS, "bool")
WEIGHTS = {"float32": 30, "float64": 3, "float16": 4, "int64": 4, "int32": 4, "bool": 3}
INDEX = ("int64", "int32")

SIZES = (1, 1, 2, 2, 3, 3, 4, 5, 6, 8, 9, 11)
LARGE = (17, 32, 61, 130)
OPEN = (7, 13)  # sizes that only symbols have
ELEMENTS = 3000  # of a value


@dataclass
class Leaf:
    """How the arrays of a leaf are made, for any shape."""

    shapes: list[Shape]
    fill: Fill
    seed: int

    def values(self) -> list[Value]:
        made = []
        for shape in self.shapes:
            with np.errstate(all="ignore"):
                array = np.asarray(self.fill(np.random.default_rng(self.seed), shape))
            made.append(Value(array.reshape(shape)))
        return made


class Unsuitable(Exception):
    """The maker cannot make a node of what there is."""


class Builder:
    """One case in the making."""

    def __init__(self, seed: int, oracle: Oracle, doubles: bool = True) -> None:
        self.doubles = doubles
        self.random = random.Random(seed)
        self.oracle = oracle
        self.opset = self.random.choice((13, 17, 18, 19, 21, 21, 22, 23, 24, 26))
        self.name = f"g{seed}"
        self.special = self.random.random() < 0.2
        self.open = self.random.choice(OPEN) if self.random.random() < 0.35 else 0
        other = self.random.choice((0, 1, 2, self.open - 1, self.open + 1, 2 * self.open + 1))
        self.sizes = (self.open, other) if self.open else ()
        self.values: dict[str, list[Value]] = {}
        self.constants: set[str] = set()
        self.steps: list[Step] = []
        self.bounds: dict[str, int] = {}
        self.new: list[str] = []
        self._names = 0
        self._pending: dict[str, int] = {}
        self._wide = False

    # Choice.

    def chance(self, share: float) -> bool:
        return self.random.random() < share

    def choice(self, options: Sequence[Any]) -> Any:
        return self.random.choice(list(options))

    def integer(self, low: int, high: int) -> int:
        return self.random.randint(low, high)

    def kind(self, kinds: Sequence[str] = NUMBERS) -> str:
        """One of the element types, float32 first of all."""
        if not self.doubles:
            kinds = [kind for kind in kinds if kind != "float64"] or ["float32"]
        return self.random.choices(kinds, [WEIGHTS.get(kind, 1) for kind in kinds])[0]

    def shape(self, low: int = 0, high: int = 4, least: int = 0) -> Shape:
        """A random shape of so many axes. least: of every size."""
        rank = min(high, max(low, self.random.choice((0, 1, 1, 2, 2, 2, 3, 3, 4, 5))))
        sizes = [self.size(least) for _ in range(rank)]
        while math.prod(sizes) > ELEMENTS // 4:
            sizes[sizes.index(max(sizes))] = max(least, 2)
        return tuple(sizes)

    def size(self, least: int = 0) -> int:
        if self.open and self.chance(0.3) and min(self.sizes) >= least:
            return self.open
        if self.chance(0.02) and least == 0:
            return 0
        return max(least, self.random.choice(LARGE if self.chance(0.04) else SIZES))

    # Leaves.

    def fresh(self, word: str = "v") -> str:
        self._names += 1
        return f"{self.name}{word}{self._names}"

    def leaf(self, kind: str, shape: Shape, style: str = "", constant: bool | None = None) -> str:
        """A new leaf. style: plain, unit, positive, small, normal; by default any, also special."""
        chosen = style or self.any_style()
        return self.filled(shape, lambda rng, s: contents(rng, s, kind, chosen), constant)

    def any_style(self) -> str:
        if self.special and self.chance(0.4):
            return "special"
        return "normal" if self.chance(0.3) else "plain"

    def filled(self, shape: Shape, fill: Fill, constant: bool | None = None) -> str:
        """A new leaf of a shape with what `fill` makes; open sizes are those of the world."""
        if constant is None:
            constant = self.chance(0.35)
        shapes = [tuple(shape)]
        if len(self.sizes) == 2:
            other = tuple(self.sizes[1] if size == self.open else size for size in shape)
            shapes.append(other)
            constant = constant and other == shape
        name = self.fresh("c" if constant else "x")
        self.values[name] = Leaf(shapes, fill, self.random.randrange(2**32)).values()
        self.new.append(name)
        if constant:
            self.constants.add(name)
        return name

    def constant(self, array: Any, kind: str = "int64") -> str:
        """A leaf that is an initializer and the same everywhere."""
        name = self.fresh("c")
        value = Value(np.asarray(array).astype(kind))
        self.values[name] = [value] * (len(self.sizes) or 1)
        self.new.append(name)
        self.constants.add(name)
        return name

    def given(self, array: Any, kind: str = "int64") -> str:
        """Like `constant`, but now and then an input."""
        name = self.constant(array, kind)
        if self.chance(0.15):
            self.constants.discard(name)
        return name

    # Values.

    def array(self, name: str) -> Array:
        return self.values[name][0].array

    def shape_of(self, name: str) -> Shape:
        return tuple(self.array(name).shape)

    def kind_of(self, name: str) -> str:
        return str(self.array(name).dtype.name)

    def least(self, name: str, axis: int) -> int:
        """The size of an axis in the world where it is least."""
        return min(value.array.shape[axis] for value in self.values[name])

    def known(self, name: str, axis: int) -> int:
        """The size of an axis that every world agrees about. Raises Unsuitable."""
        sizes = {value.array.shape[axis] for value in self.values[name]}
        if len(sizes) > 1:
            raise Unsuitable
        return int(sizes.pop())

    def pick(
        self,
        kinds: Sequence[str] = NUMBERS,
        low: int = 0,
        high: int = 6,
        *,
        when: Callable[[Array], bool] | None = None,
        fresh: float = 0.2,
        style: str = "",
        least: int = 0,
    ) -> str:
        """A value of one of the types with so many axes: one that there is, or a new leaf."""
        if not self.chance(fresh):
            made = [
                name
                for name, values in self.values.items()
                if name not in self.new
                and all(
                    value.array.dtype.name in kinds
                    and low <= value.array.ndim <= high
                    and min(value.array.shape, default=1) >= least
                    and (when is None or when(value.array))
                    for value in values
                )
            ]
            if made:
                recent = made[-6:]
                return str(self.choice(recent if self.chance(0.7) else made))
        name = self.leaf(self.kind(kinds), self.shape(low, min(high, 4), least), style, False)
        if when is not None and not all(when(value.array) for value in self.values[name]):
            raise Unsuitable
        return name

    def partner(self, name: str, kind: str = "", style: str = "") -> str:
        """A value that broadcasts with another."""
        kind = kind or self.kind_of(name)
        shape = self.shape_of(name)
        if self.chance(0.4):
            made = [
                other
                for other, values in self.values.items()
                if values[0].array.dtype.name == kind and _fits(shape, self.shape_of(other))
            ]
            if made:
                return str(self.choice(made))
        sizes = [1 if self.chance(0.25) else size for size in shape]
        if self.chance(0.3):
            sizes = sizes[self.integer(0, len(sizes)) :]
        elif self.chance(0.1) and len(sizes) < 4:
            sizes = [self.choice((1, 2, 3)), *sizes]
        sizes = [self.choice((2, 3)) if s == 1 and self.chance(0.2) else s for s in sizes]
        return self.leaf(kind, tuple(sizes), style)

    def axis(self, name: str, *, negative: bool = True, extra: int = 0) -> int:
        rank = self.array(name).ndim + extra
        if rank == 0:
            raise Unsuitable
        axis = self.integer(0, rank - 1)
        return axis - rank if negative and self.chance(0.3) else axis

    def axes(self, name: str, low: int = 1) -> list[int]:
        """Distinct axes, in any order, some from the end."""
        rank = self.array(name).ndim
        if rank < low:
            raise Unsuitable
        chosen = self.random.sample(range(rank), self.integer(low, rank))
        return [axis - rank if self.chance(0.3) else axis for axis in chosen]

    # Nodes.

    def node(
        self,
        op: str,
        inputs: Sequence[str],
        outputs: int = 1,
        *,
        domain: str = "",
        **attributes: Any,
    ) -> NodeProto:
        """A node with new names for its outputs. Raises Unsuitable where the opset lacks it."""
        if not domain and not _exists(op, self.opset):
            raise Unsuitable
        given = {key: value for key, value in attributes.items() if value is not None}
        names = [self.fresh() for _ in range(outputs)]
        trimmed = list(inputs)
        while trimmed and not trimmed[-1]:
            trimmed.pop()
        return helper.make_node(op, trimmed, names, self.fresh("n"), domain=domain, **given)

    def add(self, nodes: NodeProto | Sequence[NodeProto], outputs: Sequence[str] = ()) -> bool:
        """Take nodes as a step, if it can be run and compared in every world."""
        several = (nodes,) if isinstance(nodes, NodeProto) else tuple(nodes)
        results = tuple(outputs) or tuple(name for name in several[-1].output if name)
        step = Step(several, tuple(free_names(several)), results, self._wide)
        found: list[dict[str, Value]] = []
        try:
            for world in range(len(self.sizes) or 1):
                values = {name: self.values[name][world] for name in step.inputs}
                seed = len(self.steps) * 2 + world
                found.append(self.oracle.answer(step, self.opset, values, seed))
        except (Invalid, Jumps):
            self.drop()
            return False
        for name in results:
            worlds = [values[name] for values in found]
            if any(not self._takes(v.array) for v in worlds):
                self.drop()
                return False
            self.values[name] = worlds
        used = set(step.inputs)
        for name in self.new:
            if name not in used:
                self._forget(name)
        self.new.clear()
        self.steps.append(step)
        self.bounds.update(self._pending)
        self._pending, self._wide = {}, False
        return True

    def _takes(self, array: Array) -> bool:
        """Few elements; for targets without doubles, 64-bit integers that 32 bits hold too."""
        if array.size > ELEMENTS or array.ndim > 7:
            return False
        if self.doubles or array.dtype.name not in ("int64", "uint64"):
            return True
        limits = np.iinfo(array.dtype.name.replace("64", "32"))
        return bool(((array >= limits.min) & (array <= limits.max)).all())

    def drop(self) -> None:
        """Forget the leaves that were made for a step that is not taken."""
        for name in self.new:
            self._forget(name)
        self.new.clear()
        self._pending, self._wide = {}, False

    def _forget(self, name: str) -> None:
        self.values.pop(name, None)
        self.constants.discard(name)

    def bound(self, node: NodeProto, most: int) -> None:
        """The most iterations or elements of a node of this step."""
        self._pending[node.name] = most

    def widen(self) -> None:
        """Between the nodes of this step, halves are float32."""
        self._wide = True

    def case(self) -> Case:
        """What has been made, with the results that are outputs."""
        used = {name for step in self.steps for name in step.inputs}
        outputs = [
            name
            for step in self.steps
            for name in step.outputs
            if name not in used or self.chance(0.2)
        ]
        return Case(
            self.name, self.opset, self.steps, self.values, self.constants, outputs, self.bounds
        )


def _fits(shape: Shape, other: Shape) -> bool:
    try:
        np.broadcast_shapes(shape, other)
    except ValueError:
        return False
    return True


def _exists(op: str, opset: int) -> bool:
    try:
        return not defs.get_schema(op, opset, "").deprecated
    except defs.SchemaError:
        return False


def contents(rng: np.random.Generator, shape: Shape, kind: str, style: str) -> Array:
    """Numbers of a style. plain: few digits. unit: within 0 and 1. small: whole, down from 3."""
    if kind == "bool":
        return rng.integers(0, 2, shape).astype(bool)
    dtype = np.dtype(kind)
    if dtype.kind in "iu":
        low, high = (0, 10) if dtype.kind == "u" or style in ("positive", "unit") else (-9, 10)
        made = rng.integers(low + (style == "positive"), high, shape).astype(dtype)
        if style == "special":
            info = np.iinfo(dtype)
            extremes = np.array([info.min, info.max, info.max - 1, info.min + 1, 0], dtype)
            made = np.where(rng.random(shape) < 0.4, rng.choice(extremes, shape), made)
        return np.asarray(made).astype(dtype)
    if style == "normal":
        return rng.standard_normal(shape).astype(dtype)
    if style == "unit":
        return (rng.integers(0, 17, shape) / 16).astype(dtype)
    if style == "positive":
        return (rng.integers(1, 33, shape) / 8).astype(dtype)
    if style == "small":
        return rng.integers(-3, 4, shape).astype(dtype)
    made = (rng.integers(-32, 33, shape) / 8).astype(dtype)
    if style == "special":
        info = np.finfo(dtype)
        values = [np.nan, np.inf, -np.inf, -0.0, 0.0, info.max, -info.max, info.tiny, 2.5, -2.5]
        values += [0.5, float(info.tiny) / 4, 1e-3, 100.0]
        made = np.where(rng.random(shape) < 0.3, rng.choice(np.array(values), shape), made)
    return np.asarray(made).astype(dtype)
