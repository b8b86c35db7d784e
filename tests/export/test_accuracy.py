"""Functions against float64, in units in the last place, over the whole float32 line."""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable
from typing import Any

import numpy as np
from onnx import helper

from tests.agreement import find_target, replay
from tests.export.hostile.build import info, model
from tests.imported import import_model
from tinyedge.core.compiler.compile import compile_graph
from tinyedge.core.dtype import float32
from tinyedge.core.program.device import Device
from tinyedge.core.tensor.graph import Graph, Port

F, TINY, INF = np.float32, float(np.finfo(np.float32).tiny), np.inf
Array = Any
Exact = Callable[[Array], Array]

UNITS = 4.0  # in the last place, that a result may be off
MICROSOFT = "com.microsoft"


def erf(x: Array) -> Array:
    return np.vectorize(math.erf, otypes=[float])(x)


def erfc(x: Array) -> Array:
    return np.vectorize(math.erfc, otypes=[float])(x)


def sigmoid(x: Array) -> Array:
    e = np.exp(-np.abs(x))
    return np.where(x < 0, e, 1) / (1 + e)


def softplus(x: Array) -> Array:
    return np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x)))


def mish(x: Array) -> Array:
    return x * np.tanh(softplus(x))


def gelu_by_tanh(x: Array) -> Array:
    return x * sigmoid(math.sqrt(8 / math.pi) * (x + float(F(0.044715)) * x**3))


def elu(x: Array, alpha: float = 1.0) -> Array:
    return np.where(x < 0, alpha * np.expm1(np.minimum(x, 0)), x)


ALPHA, GAMMA = (float(F(v)) for v in (1.67326319217681884765625, 1.05070102214813232421875))

# The operator, its attributes, what it is in double precision.
FUNCTIONS: dict[str, tuple[str, dict[str, Any], Exact]] = {
    "Exp": ("Exp", {}, np.exp),
    "Log": ("Log", {}, np.log),
    "Sqrt": ("Sqrt", {}, np.sqrt),
    "Reciprocal": ("Reciprocal", {}, lambda x: 1 / x),
    "Sin": ("Sin", {}, np.sin),
    "Cos": ("Cos", {}, np.cos),
    "Tan": ("Tan", {}, np.tan),
    "Asin": ("Asin", {}, np.arcsin),
    "Acos": ("Acos", {}, np.arccos),
    "Atan": ("Atan", {}, np.arctan),
    "Sinh": ("Sinh", {}, np.sinh),
    "Cosh": ("Cosh", {}, np.cosh),
    "Tanh": ("Tanh", {}, np.tanh),
    "Asinh": ("Asinh", {}, np.arcsinh),
    "Acosh": ("Acosh", {}, np.arccosh),
    "Atanh": ("Atanh", {}, np.arctanh),
    "Erf": ("Erf", {}, erf),
    "Sigmoid": ("Sigmoid", {}, sigmoid),
    "Softplus": ("Softplus", {}, softplus),
    "Softsign": ("Softsign", {}, lambda x: x / (1 + np.abs(x))),
    "Mish": ("Mish", {}, mish),
    "Swish": ("Swish", {}, lambda x: x * sigmoid(x)),
    "HardSwish": ("HardSwish", {}, lambda x: x * (np.clip(x + 3, 0, 6) / 6)),
    "HardSigmoid": ("HardSigmoid", {"alpha": 0.25}, lambda x: np.clip(x * 0.25 + 0.5, 0, 1)),
    "Elu": ("Elu", {}, elu),
    "Selu": ("Selu", {}, lambda x: GAMMA * elu(x, ALPHA)),
    "Celu": ("Celu", {"alpha": 3.0}, lambda x: np.where(x < 0, 3 * np.expm1(x / 3), x)),
    "Gelu": ("Gelu", {}, lambda x: 0.5 * x * erfc(-x / math.sqrt(2))),
    "Gelu by tanh": ("Gelu", {"approximate": "tanh"}, gelu_by_tanh),
    "QuickGelu": ("QuickGelu", {}, lambda x: x * sigmoid(x * float(F(1.702)))),
    "Shrink": ("Shrink", {}, lambda x: np.where(np.abs(x) > 0.5, x, 0)),
}


def line() -> Array:
    """Numbers of every size and both signs; dense where functions bend; next to special points."""
    random = np.random.default_rng(5)
    sizes = 2.0 ** random.uniform(-126, 128, 2000)
    dense = random.uniform(-110, 110, 2000)
    small = random.uniform(-4, 4, 2000)
    points = np.array([0.25, 1 / 3, 0.5, 0.625, 1, 1.5, 2, 3, 10, 20, 88.72283, 1e5, 1e9], F)
    around = [points]
    for direction in (0, INF):
        near = points
        for _ in range(3):
            near = np.nextafter(near, F(direction))
            around.append(near)
    near = np.concatenate(around)
    turns = np.arange(1, 65536, 37) * (math.pi / 2)
    more = [0.0, -0.0, INF, -INF, np.nan, TINY, -TINY, -12.3392, -17, 1e-40, -1e-45]
    x = np.concatenate([sizes, -sizes, dense, small, near, -near, turns, more]).astype(F)
    return x[: len(x) // 8 * 8]


def computed(target: str, device: Device, x: Array) -> dict[str, Array]:
    """What one program of all functions gives."""
    nodes = [
        helper.make_node(
            op, ["x"], [name], domain=MICROSOFT if op == "QuickGelu" else "", **attributes
        )
        for name, (op, attributes, _) in FUNCTIONS.items()
    ]
    proto = model(
        nodes,
        inputs=[info("x", list(x.shape))],
        outputs=tuple(FUNCTIONS),
        opset=24,
        domains=[MICROSOFT],
    )
    return run(proto, target, device, {"x": x})


def run(proto: Any, target: str, device: Device, given: dict[str, Array]) -> dict[str, Array]:
    """A model's outputs, by the target's device."""
    found = import_model(proto.SerializeToString()).outputs
    outputs = tuple(Port(name, t.dtype, t.shape, t.node) for name, t in found.items())
    inputs = tuple(Port(name, float32, array.shape) for name, array in given.items())
    program = compile_graph(Graph(inputs, outputs), find_target(target)).program
    assert program is not None
    return replay(program, device, given)


def units(got: Array, want: Array) -> Array:
    """How far numbers are off, in units in the last place; infinite where they are no numbers."""
    with np.errstate(all="ignore"):
        rounded = want.astype(F)
        spacing = np.spacing(np.minimum(np.abs(rounded), np.finfo(F).max)).astype(np.float64)
        off = np.abs(got.astype(np.float64) - want) / spacing
    special = ~np.isfinite(rounded) | ~np.isfinite(got)
    same = (got == rounded) | (np.isnan(got) & np.isnan(rounded))
    edge = np.abs(want) > float(np.finfo(F).max) * (1 - 2.0**-22)  # one of the last floats
    same |= (
        edge & (np.abs(got) >= np.finfo(F).max * (1 - 2.0**-21)) & (np.sign(got) == np.sign(want))
    )
    return np.where(special, np.where(same, 0.0, INF), off)


# What is off by more, in units, given the arguments: where an argument that was rounded, or is a
# polynomial, reaches exp, which multiplies its error by the argument. ONNX's own formulas give 0
# there, or are further off.
LESS_EXACT: dict[str, Exact] = {
    "Gelu": lambda x: np.full(x.shape, 6.0),
    "Gelu by tanh": lambda x: 4 + 4 * np.minimum(1.6 * np.abs(x + 0.044715 * x**3), 110),
    "QuickGelu": lambda x: 4 + np.minimum(1.702 * np.abs(x), 110),
}


def test_functions(target: str, device: Device) -> None:
    """A target that flushes subnormal numbers gives 0 for those."""
    x = line()
    wide = x.astype(np.float64)
    got = computed(target, device, x)
    flushed = (np.abs(wide) < TINY) & (wide != 0) & ("subnormal" in limitations(target))
    found = []
    for name, (_, _, exact) in FUNCTIONS.items():
        with np.errstate(all="ignore"):
            want = exact(wide)
            room = LESS_EXACT.get(name, lambda x: np.full(x.shape, UNITS))(wide)
        off = units(got[name], want)
        small = (
            (np.abs(want) < TINY) & (np.abs(got[name]) == 0) & ("subnormal" in limitations(target))
        )
        off[flushed | small] = 0
        at = int(np.argmax(off - room))
        if off[at] > room[at]:
            text = f"{name}({x[at]}) is {got[name][at]}, not {want[at]}: {off[at]:.3g} units"
            found.append(f"{text}; {int((off > room).sum())} are off")
    assert not found, "\n" + "\n".join(found)


def limitations(target: str) -> Any:
    return importlib.import_module(f"tinyedge.targets.{target}.caps").LIMITATIONS


def test_powers(target: str, device: Device) -> None:
    """Of small and large bases; whole, rational and extreme exponents."""
    random = np.random.default_rng(6)
    base = np.concatenate([2.0 ** random.uniform(-126, 127, 4000), random.uniform(0.5, 2, 4000)])
    power = np.concatenate([random.uniform(-1.5, 1.5, 4000), random.uniform(-120, 120, 4000)])
    whole = random.integers(-9, 10, 8000)
    x = np.concatenate([base, np.where(random.random(8000) < 0.5, base, -base)]).astype(F)
    y = np.concatenate([power, whole]).astype(F)
    node = helper.make_node("Pow", ["x", "y"], ["z"])
    inputs = [info("x", list(x.shape)), info("y", list(y.shape))]
    got = run(model([node], inputs=inputs, outputs=("z",)), target, device, {"x": x, "y": y})["z"]
    with np.errstate(all="ignore"):
        want = x.astype(np.float64) ** y.astype(np.float64)
    off = units(got, want)
    off[(np.abs(want) < TINY) & ("subnormal" in limitations(target))] = 0
    at = int(np.argmax(off))
    assert off[at] <= UNITS, f"{x[at]}^{y[at]} is {got[at]}, not {want[at]}: {off[at]:.3g} units"


def test_reductions(target: str, device: Device) -> None:
    """What is small beside the greatest term, and squares beyond float32, are not lost."""
    x = np.array([[0, -20, -30], [5, -12, 4.9], [88, 88, -1], [-90, -90.5, -99], [0, 0, 0]], F)
    sizes = np.array([[3e20, 4e20], [3e-25, -4e-25], [0, 0], [INF, 1], [3, np.nan]], F)
    wide, lengths = x.astype(np.float64), np.hypot(*sizes.astype(np.float64).T)[:, None]
    most = wide.max(1, keepdims=True)
    rest = np.exp(np.sort(wide - most)[:, :-1]).sum(1, keepdims=True)
    total = np.log1p(rest)
    with np.errstate(all="ignore"):
        divided = np.where(lengths == 0, 0, sizes / lengths)
    pairs = sizes[:, None, :, None]
    cases: dict[str, tuple[str, Array, dict[str, Any], Array]] = {
        "log of softmax": ("LogSoftmax", x, {}, wide - most - total),
        "log of a sum": ("ReduceLogSumExp", x, {}, most + total),
        "norm": ("ReduceL2", sizes, {}, lengths),
        "normal": ("LpNormalization", sizes, {}, divided),
        "pool": ("LpPool", pairs, {"kernel_shape": [2, 1]}, lengths[:, None, None]),
        "global": ("GlobalLpPool", pairs, {}, lengths[:, None, None]),
    }
    nodes, inputs, given = [], [], {}
    for name, (op, operand, attributes, _) in cases.items():
        axes = {"axes": [1]} if op.startswith("Reduce") else {}
        nodes.append(helper.make_node(op, [f"{name} of"], [name], **attributes, **axes))
        inputs.append(info(f"{name} of", list(operand.shape)))
        given[f"{name} of"] = operand
    proto = model(nodes, inputs=inputs, outputs=tuple(cases))
    got = run(proto, target, device, given)
    found = []
    for name, (_, _, _, want) in cases.items():
        off = units(got[name], np.asarray(want))
        if off.max() > UNITS:
            found.append(f"{name}: {got[name].tolist()} for {want.tolist()}")
    assert not found, "\n" + "\n".join(found)
