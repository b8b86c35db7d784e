"""Random graphs as recipes: lists of steps that can be built, shrunk and printed.

A recipe is data: each step names an operation, earlier steps and parameters. Values stay moderate
and every operation is continuous where floats are inexact, so that rounding never changes a result
by much: comparisons, indices and integer conversions only see numbers that are exact in float32.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from tests.agreement import Arrays, Inputs, Tolerance, disagreement
from tinyedge.core import dtype as dt
from tinyedge.core.compiler.decompose import retype
from tinyedge.core.ir.reference import evaluate
from tinyedge.core.ir.uop import toposort
from tinyedge.core.tensor.tensor import Tensor

MAXIMUM = 6000  # elements of a tensor
SIZES = (1, 1, 2, 3, 4, 5, 7, 8, 12, 16, 17)
KINDS = {"f": dt.float32, "i": dt.int32, "b": dt.bool_}


@dataclass(frozen=True)
class Step:
    """One tensor: an operation on earlier ones (by number)."""

    op: str
    args: tuple[int, ...] = ()
    params: Any = None


Recipe = list[Step]
Build = Callable[[list[Tensor], Any], Tensor]


def _array(kind: str, shape: tuple[int, ...], seed: int) -> np.ndarray[Any, Any]:
    """Multiples of 1/4 up to 8, small integers, or flags."""
    generator = np.random.default_rng(seed)
    if kind == "f":
        return (generator.integers(-32, 33, shape) / 4).astype(np.float32)
    if kind == "i":
        return generator.integers(-9, 10, shape).astype(np.int32)
    return generator.integers(0, 2, shape).astype(bool)


def _layer_norm(x: Tensor) -> Tensor:
    centered = x - x.mean(-1, keepdims=True)
    return centered / ((centered * centered).mean(-1, keepdims=True) + 1.0).sqrt()


def _pool(t: list[Tensor], p: Any) -> Tensor:
    size, stride, how = p
    windows = t[0].window(2, size, stride).window(3, size, stride)
    return windows.max((4, 5)) if how == "max" else windows.mean((4, 5))


BUILD: dict[str, Build] = {
    "neg": lambda t, p: -t[0],
    "abs": lambda t, p: t[0].abs(),
    "relu": lambda t, p: t[0].relu(),
    "clip": lambda t, p: t[0].clip(-3, 3) if t[0].dtype.is_int else t[0].clip(-3.0, 3.0),
    "tanh": lambda t, p: t[0].tanh(),
    "sigmoid": lambda t, p: t[0].sigmoid(),
    "exp": lambda t, p: t[0].clip(-4.0, 2.0).exp(),
    "root": lambda t, p: (t[0].abs() + 1.0).sqrt(),
    "scale": lambda t, p: t[0] * p,
    "shift": lambda t, p: t[0] + p,
    "add": lambda t, p: t[0] + t[1],
    "sub": lambda t, p: t[0] - t[1],
    "mul": lambda t, p: t[0] * t[1],
    "ratio": lambda t, p: t[0] / (t[1].abs() + 1.0),
    "max": lambda t, p: t[0].maximum(t[1]),
    "min": lambda t, p: t[0].minimum(t[1]),
    "less": lambda t, p: t[0] < t[1],
    "equal": lambda t, p: t[0].eq(t[1]),
    "not": lambda t, p: ~t[0],
    "and": lambda t, p: t[0] & t[1],
    "or": lambda t, p: t[0] | t[1],
    "where": lambda t, p: t[0].where(t[1], t[2]),
    "cast": lambda t, p: t[0].cast(KINDS[p]),
    "mod": lambda t, p: t[0] % p,
    "floordiv": lambda t, p: t[0] // p,
    "reshape": lambda t, p: t[0].reshape(p),
    "permute": lambda t, p: t[0].permute(p),
    "expand": lambda t, p: t[0].broadcast_to(p),
    "pad": lambda t, p: t[0].pad(p[0], p[1]),
    "shrink": lambda t, p: t[0].shrink(p),
    "flip": lambda t, p: t[0].flip(p),
    "stride": lambda t, p: t[0].stride(*p),
    "window": lambda t, p: t[0].window(*p),
    "sum": lambda t, p: t[0].sum(*p),
    "mean": lambda t, p: t[0].mean(*p),
    "max_of": lambda t, p: t[0].max(*p),
    "min_of": lambda t, p: t[0].min(*p),
    "argmax": lambda t, p: t[0].argmax(p),
    "softmax": lambda t, p: t[0].softmax(p),
    "norm": lambda t, p: _layer_norm(t[0]),
    "matmul": lambda t, p: t[0] @ t[1],
    "conv": lambda t, p: t[0].conv(t[1], strides=p[0], pads=p[1], groups=p[2]),
    "pool": _pool,
    "gather": lambda t, p: t[0].gather(p, t[1]),
    "concat": lambda t, p: Tensor.concat(t, p),
    "assign": lambda t, p: t[0].assign(p, t[1]),
    "transform": lambda t, p: t[0].transform(p),
    "realize": lambda t, p: t[0].in_memory(),
}


def build(recipe: Recipe, inputs: Inputs, prefix: str = "") -> list[Tensor]:
    """The tensors of all steps; the arrays of its inputs are added to `inputs`."""
    tensors: list[Tensor] = []
    for number, step in enumerate(recipe):
        if step.op == "input":
            tensors.append(inputs.new(_array(*step.params), f"{prefix}x{number}"))
        elif step.op == "weight":
            tensors.append(Tensor.weight(f"{prefix}w{number}", _array(*step.params)))
        else:
            tensors.append(BUILD[step.op]([tensors[a] for a in step.args], step.params))
    return tensors


def leaves(recipe: Recipe) -> list[int]:
    """Steps that no other uses: the outputs."""
    used = {a for step in recipe for a in step.args}
    return [n for n in range(len(recipe)) if n not in used]


def outputs(recipe: Recipe, inputs: Inputs, prefix: str = "") -> dict[str, Tensor]:
    """What is compiled: the leaves, and every fifth tensor in between."""
    tensors = build(recipe, inputs, prefix)
    chosen = set(leaves(recipe)) | {n for n in range(len(recipe)) if n % 5 == 4}
    return {f"{prefix}y{n}": tensors[n] for n in sorted(chosen)}


def expectations(tensors: dict[str, Tensor], inputs: Inputs) -> tuple[Arrays, dict[str, float]]:
    """Values of the outputs in double precision, and the greatest value on the way to each."""
    nodes = [t.node for t in tensors.values()]
    done = retype(tuple(nodes), {"float32": "float64"})
    arrays = {
        name: array.astype(np.float64) if array.dtype == np.float32 else array
        for name, array in inputs.arrays.items()
    }
    order = toposort(nodes)
    wanted = [done[node] for node in order]
    values = dict(zip(order, evaluate(wanted, arrays), strict=True))
    greatest: dict[Any, float] = {}
    for node in order:
        value = values[node]
        here = 0.0
        if value.size and value.dtype.kind in "fi":
            with np.errstate(all="ignore"):
                here = float(np.max(np.abs(np.where(np.isfinite(value), value, 0))))
        greatest[node] = max([here, *(greatest[s] for s in node.src)])
    expected = {n: np.asarray(values[t.node]).astype(t.dtype.numpy) for n, t in tensors.items()}
    return expected, {n: greatest[t.node] for n, t in tensors.items()}


def disagreements(actual: Arrays, expected: Arrays, scales: dict[str, float]) -> list[str]:
    found = []
    for name, array in expected.items():
        room = Tolerance(greatest=0, absolute=3e-5 * max(1.0, scales[name]))
        why = disagreement(actual[name], array, room)
        if why:
            found.append(f"{name}: {why}")
    return found


class Generator:
    """Grows one recipe."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.seed = seed
        self.recipe: Recipe = []
        self.tensors: list[Tensor] = []
        self.exact: list[bool] = []
        self.bound: list[float] = []
        self.inputs = Inputs()

    def generate(self, steps: int) -> Recipe:
        self.new("f", self.shape())
        while len(self.recipe) < steps:
            choice = self.random.choices(list(CHOICES), list(CHOICES.values()))[0]
            getattr(self, f"_{choice}")()
        return self.recipe

    # Steps.

    def add(self, op: str, args: tuple[int, ...], params: Any, exact: bool, bound: float) -> int:
        """Append a step; -1 if it is too large or not allowed."""
        try:
            tensor = BUILD[op]([self.tensors[a] for a in args], params)
        except (ValueError, TypeError, ZeroDivisionError):
            return -1
        if math.prod(int(s) for s in tensor.shape) > MAXIMUM or bound > 1e4 or tensor.ndim > 6:
            return -1
        self.recipe.append(Step(op, args, params))
        self.tensors.append(tensor)
        self.exact.append(exact)
        self.bound.append(bound)
        return len(self.recipe) - 1

    def new(self, kind: str, shape: tuple[int, ...], op: str = "input") -> int:
        seed = self.seed * 1000 + len(self.recipe)
        self.recipe.append(Step(op, (), (kind, shape, seed)))
        array = _array(kind, shape, seed)
        tensor = self.inputs.new(array) if op == "input" else Tensor.weight("", array)
        self.tensors.append(tensor)
        self.exact.append(True)
        self.bound.append(9.0)
        return len(self.recipe) - 1

    def shape(self) -> tuple[int, ...]:
        rank = self.random.choice((0, 1, 2, 2, 3, 3, 4))
        sizes = [self.random.choice(SIZES) for _ in range(rank)]
        if self.random.random() < 0.03 and rank:
            sizes[self.random.randrange(rank)] = 0
        while math.prod(sizes) > MAXIMUM // 4:
            sizes[sizes.index(max(sizes))] //= 2
        return tuple(sizes)

    def pick(self, kinds: str = "fib", rank: int = 0, exact: bool = False) -> int:
        """A tensor of one of the kinds, mostly a recent one; a new one if there is none."""
        found = [
            n
            for n, t in enumerate(self.tensors)
            if t.dtype.kind in kinds and t.ndim >= rank and (self.exact[n] or not exact)
        ]
        if not found:
            shape = self.shape()
            return self.new(kinds[0], shape + (3,) * (rank - len(shape)))
        return found[-1 - min(int(self.random.expovariate(0.4)), len(found) - 1)]

    def dims(self, n: int) -> tuple[int, ...]:
        return tuple(int(s) for s in self.tensors[n].shape)

    def partner(self, n: int, kind: str, exact: bool = False) -> int:
        """A tensor that broadcasts with n."""
        shape = self.dims(n)
        for m in reversed(range(len(self.tensors))):
            other = self.tensors[m]
            fits = other.dtype.kind == kind and (self.exact[m] or not exact)
            same = all(
                a == b or 1 in (a, b)
                for a, b in zip(reversed(shape), reversed(self.dims(m)), strict=False)
            )
            if fits and same and self.random.random() < 0.4:
                return m
        cut = self.random.randrange(len(shape) + 1) if self.random.random() < 0.3 else 0
        sizes = tuple(s if self.random.random() < 0.7 else 1 for s in shape[cut:])
        return self.new(kind, sizes, self.random.choice(("input", "weight")))

    # Families of operations.

    def _unary(self) -> None:
        n = self.pick("f")
        exact, bound = self.exact[n], self.bound[n]
        op, kept, limit = self.random.choice(
            [
                *(("neg", True, bound), ("abs", True, bound), ("relu", True, bound)),
                *(("clip", True, 3.0), ("tanh", False, 1.0), ("sigmoid", False, 1.0)),
                *(("exp", False, 8.0), ("root", False, bound)),
            ]
        )
        self.add(op, (n,), None, exact and kept, limit)

    def _scalar(self) -> None:
        n = self.pick("f")
        if self.random.random() < 0.5:
            self.add(
                "scale",
                (n,),
                self.random.choice((0.5, -1.0, 2.0, 0.0, 1.0)),
                False,
                2 * self.bound[n],
            )
        else:
            by = self.random.choice((1.0, -0.25, 0.0))
            self.add("shift", (n,), by, self.exact[n], self.bound[n] + 1)

    def _binary(self) -> None:
        n = self.pick("fi")
        kind = self.tensors[n].dtype.kind
        m = self.partner(n, kind)
        if self.random.random() < 0.3:
            n, m = m, n
        a, b = self.bound[n], self.bound[m]
        exact = self.exact[n] and self.exact[m]
        choices = [
            *(("add", exact, a + b), ("sub", exact, a + b), ("max", exact, max(a, b))),
            *(("min", exact, max(a, b)), ("mul", kind == "i", a * b)),
        ]
        if kind == "f":
            choices.append(("ratio", False, a))
        op, kept, bound = self.random.choice(choices)
        self.add(op, (n, m), None, kept, bound)

    def _compare(self) -> None:
        n = self.pick("fi", exact=True)
        m = self.partner(n, self.tensors[n].dtype.kind, exact=True)
        self.add(self.random.choice(("less", "equal")), (n, m), None, True, 1.0)

    def _logic(self) -> None:
        n = self.pick("b")
        op = self.random.choice(("not", "and", "or"))
        args = (n,) if op == "not" else (n, self.partner(n, "b"))
        self.add(op, args, None, True, 1.0)

    def _where(self) -> None:
        n = self.pick("fi")
        m = self.partner(n, self.tensors[n].dtype.kind)
        condition = self.partner(n, "b")
        exact = self.exact[n] and self.exact[m]
        self.add("where", (condition, n, m), None, exact, max(self.bound[n], self.bound[m]))

    def _cast(self) -> None:
        n = self.pick("fib", exact=True)
        kind = self.random.choice([k for k in KINDS if k != self.tensors[n].dtype.kind])
        self.add("cast", (n,), kind, True, self.bound[n])

    def _integer(self) -> None:
        n = self.pick("i")
        by = self.random.choice((2, 3, 5, 8))
        op = self.random.choice(("mod", "floordiv"))
        self.add(op, (n,), by, True, max(by, self.bound[n]))

    def _movement(self) -> None:
        n = self.pick("fib")
        shape = self.dims(n)
        exact, bound = self.exact[n], self.bound[n]
        choose = self.random.choice
        kind = choose(("reshape", "permute", "pad", "shrink", "flip", "stride", "window", "expand"))
        params: Any = None
        if kind == "reshape":
            params = self._factors(math.prod(shape))
        elif kind == "permute":
            order = list(range(len(shape)))
            self.random.shuffle(order)
            params = tuple(order)
        elif kind == "pad":
            pads = tuple((choose((0, 0, 1, 2)), choose((0, 0, 1, 3))) for _ in shape)
            value = choose((0, 0, 1)) if self.tensors[n].dtype is not dt.bool_ else 0
            params = (pads, value)
        elif kind == "shrink":
            starts = [self.random.randrange(max(1, s)) for s in shape]
            params = tuple(
                (a, self.random.randint(min(a + 1, s), s))
                for a, s in zip(starts, shape, strict=True)
            )
        elif kind == "expand":
            params = (choose((1, 2, 3)), *(choose((2, 3, 5)) if s == 1 else s for s in shape))
        elif not shape:
            return
        else:
            axis = self.random.randrange(len(shape))
            if kind == "flip":
                params = (axis,)
            elif kind == "stride":
                params = (axis, choose((2, 3)))
            else:
                params = (axis, choose((1, 2, 3)), choose((1, 1, 2)), choose((1, 1, 2)))
                span = (params[1] - 1) * params[3] + 1
                if shape[axis] < span:
                    return
        self.add(kind, (n,), params, exact, bound)

    def _factors(self, count: int) -> tuple[int, ...]:
        if count == 0:
            return (0,)
        sizes = []
        while count > 1 and len(sizes) < 4:
            divisors = [d for d in range(2, min(count, 40) + 1) if count % d == 0] or [count]
            size = self.random.choice(divisors)
            sizes.append(size)
            count //= size
        if count > 1:
            sizes.append(count)
        if self.random.random() < 0.3:
            sizes.insert(self.random.randrange(len(sizes) + 1), 1)
        return tuple(sizes)

    def _reduce(self) -> None:
        n = self.pick("fi", rank=1)
        shape = self.dims(n)
        axes = tuple(a for a in range(len(shape)) if self.random.random() < 0.5) or (
            len(shape) - 1,
        )
        count = math.prod(shape[a] for a in axes)
        integer = self.tensors[n].dtype.is_int
        ops = ["sum"] if integer or count == 0 else ["sum", "mean"]
        op = self.random.choice([*ops, *(("max_of", "min_of") if count else ())])
        bound = self.bound[n] * (max(1, count) if op == "sum" else 1)
        exact = self.exact[n] and op != "mean"
        self.add(op, (n,), (axes, self.random.random() < 0.5), exact, bound)

    def _argmax(self) -> None:
        n = self.pick("fi", rank=1, exact=True)
        axis = self.random.randrange(len(self.dims(n)))
        if self.dims(n)[axis]:
            self.add("argmax", (n,), axis, True, 20.0)

    def _rows(self) -> None:
        n = self.pick("f", rank=1)
        shape = self.dims(n)
        if 0 in shape:
            return
        if self.random.random() < 0.6:
            self.add("softmax", (n,), self.random.randrange(len(shape)), False, 1.0)
        else:
            self.add("norm", (n,), None, False, 20.0)

    def _matmul(self) -> None:
        n = self.pick("f", rank=1)
        inner = self.dims(n)[-1]
        bound = self.bound[n] * 9 * max(1, inner)
        if bound > 1e4:
            n = self.add("tanh", (n,), None, False, 1.0)
            bound = 9.0 * max(1, inner)
        if n >= 0:
            op = self.random.choice(("input", "weight"))
            m = self.new("f", (inner, self.random.choice(SIZES)), op)
            self.add("matmul", (n, m), None, False, bound)

    def _conv(self) -> None:
        choose = self.random.choice
        channels, filters = choose((1, 2, 3, 4, 8)), choose((1, 2, 4, 6, 8))
        found = [n for n, t in enumerate(self.tensors) if t.ndim == 4 and t.dtype is dt.float32]
        found = [n for n in found if self.bound[n] < 20 and 0 not in self.dims(n)]
        if found and self.random.random() < 0.7:
            n = choose(found)
            channels = self.dims(n)[1]
        else:
            n = self.new("f", (choose((1, 2)), channels, choose((3, 5, 8)), choose((3, 6, 9))))
        groups = 1
        if self.random.random() < 0.3:
            groups, filters = channels, channels * choose((1, 2))
        height, width = choose((1, 1, 2, 3)), choose((1, 1, 2, 3))
        weight = self.new("f", (filters, channels // groups, height, width), "weight")
        pads = tuple((choose((0, 1)), choose((0, 1))) for _ in range(2))
        strides = (choose((1, 1, 2)), choose((1, 1, 2)))
        bound = self.bound[n] * 9 * (channels // groups) * height * width
        self.add("conv", (n, weight), (strides, pads, groups), False, bound)

    def _pool(self) -> None:
        found = [n for n, t in enumerate(self.tensors) if t.ndim == 4 and t.dtype is dt.float32]
        if found:
            n = self.random.choice(found)
            size = self.random.choice((2, 3))
            if min(self.dims(n)[2:]) >= size and 0 not in self.dims(n):
                params = (size, self.random.choice((1, 2)), self.random.choice(("max", "mean")))
                exact = self.exact[n] and params[2] == "max"
                self.add("pool", (n,), params, exact, self.bound[n])

    def _gather(self) -> None:
        n = self.pick("fi", rank=1)
        axis = self.random.randrange(len(self.dims(n)))
        if self.random.random() < 0.6:
            index = self.new("i", (self.random.choice((1, 2, 5)),))
        else:
            index = self.pick("i")
        self.add("gather", (n, index), axis, self.exact[n], self.bound[n])

    def _concat(self) -> None:
        n = self.pick("fib", rank=1)
        shape = self.dims(n)
        axis = self.random.randrange(len(shape))
        parts = [n]
        for _ in range(self.random.choice((1, 1, 2))):
            same = [
                m
                for m, t in enumerate(self.tensors)
                if t.dtype is self.tensors[n].dtype
                and t.ndim == len(shape)
                and all(
                    a == axis or x == y
                    for a, (x, y) in enumerate(zip(shape, self.dims(m), strict=True))
                )
            ]
            if self.random.random() < 0.6:
                parts.append(self.random.choice(same))
            else:
                size = self.random.choice((1, 2, 5))
                other = tuple(size if a == axis else s for a, s in enumerate(shape))
                parts.append(self.new(self.tensors[n].dtype.kind, other))
        exact = all(self.exact[p] for p in parts)
        self.add("concat", tuple(parts), axis, exact, max(self.bound[p] for p in parts))

    def _assign(self) -> None:
        n = self.pick("fi", rank=1)
        shape = self.dims(n)
        if 0 in shape:
            return
        starts = [self.random.randrange(s) for s in shape]
        region = tuple(
            (a, self.random.randint(a + 1, s)) for a, s in zip(starts, shape, strict=True)
        )
        kind = self.tensors[n].dtype.kind
        value = self.new(kind, tuple(end - start for start, end in region))
        self.add("assign", (n, value), region, self.exact[n], max(9.0, self.bound[n]))

    def _transform(self) -> None:
        rows, columns = self.random.randint(1, 4), self.random.randint(1, 4)
        rest = self.shape()[:2]
        n = self.new("f", (columns, columns, *rest))
        row = (1.0, *(float(self.random.randint(-2, 2)) for _ in range(columns - 1)))
        matrix = tuple(row[i % columns :] + row[: i % columns] for i in range(rows))
        size = sum(map(abs, row))
        self.add("transform", (n,), matrix, self.exact[n], self.bound[n] * size * size)

    def _realize(self) -> None:
        n = self.pick("fi")
        self.add("realize", (n,), None, self.exact[n], self.bound[n])

    def _input(self) -> None:
        self.new(self.random.choice("ffib"), self.shape())


CHOICES = {
    **{"unary": 10, "scalar": 4, "binary": 14, "compare": 3, "logic": 1, "where": 4, "cast": 3},
    **{"integer": 3, "movement": 22, "reduce": 8, "argmax": 1, "rows": 3, "matmul": 4, "conv": 4},
    **{"pool": 2, "gather": 4, "concat": 6, "assign": 2, "transform": 1, "realize": 1, "input": 2},
}


def generate(seed: int) -> Recipe:
    """The recipe of a seed."""
    generator = Generator(seed)
    return generator.generate(generator.random.randint(4, 22))


def text(recipe: Recipe) -> str:
    """A recipe as Python that rebuilds it."""
    lines = ["from tests.fuzz.recipes import Step", "recipe = ["]
    lines += [f"    {step!r}," for step in recipe]
    return "\n".join([*lines, "]"])
