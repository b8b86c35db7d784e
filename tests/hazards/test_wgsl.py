"""What WGSL engines get wrong, on both engines: wgpu (naga) and Chromium (Tint).

Compilers of WGSL may assume that no NaN and no infinity occurs, functions are inaccurate or wrong
for large values, and small types do not exist. Each hazard is a test; each elementwise row is tried
with the special values of the conformance suite as well.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.agreement import (
    Arrays,
    Inputs,
    Tolerance,
    compiled,
    disagreement,
    find_target,
    reference,
    replay,
)
from tests.conformance.cases import CLOSE, EXACT, FAMILIES
from tinyedge.core import dtype as dt
from tinyedge.core.compiler.options import Options
from tinyedge.core.ir import ops
from tinyedge.core.ir.uop import elementwise
from tinyedge.core.tensor.tensor import Tensor
from tinyedge.export.package.package import write_bundle
from tinyedge.targets.webgpu.caps import LIMITATIONS

Run = Callable[[dict[str, Tensor], Inputs], Arrays]
NAN, INF = np.nan, np.inf
LARGEST = np.finfo(np.float32).max


@pytest.fixture(params=["wgpu", pytest.param("chromium", marks=pytest.mark.browser)])
def run(request: pytest.FixtureRequest, tmp_path: Path) -> Run:
    """Compile for webgpu and run on each engine in turn."""
    # Fetched here: a fixture that is asked for later would start the browser for both.
    name = {"wgpu": "webgpu_device", "chromium": "browser"}[request.param]
    engine: Any = request.getfixturevalue(name)

    def on_engine(outputs: dict[str, Tensor], inputs: Inputs) -> Arrays:
        program = compiled(outputs, inputs, find_target("webgpu"), Options()).program
        assert program is not None
        if request.param == "wgpu":
            return replay(program, engine, inputs.arrays)
        bundle = write_bundle(program, tmp_path / "hazard.tinyedge")
        found: Arrays = engine.run_in_page(bundle, inputs.arrays)[0]
        return found

    return on_engine


def check(
    run: Run,
    inputs: Inputs,
    outputs: dict[str, Tensor],
    expected: dict[str, Any],
    tolerance: Tolerance = EXACT,
) -> None:
    actual = run(outputs, inputs)
    found = []
    for name, values in expected.items():
        why = disagreement(actual[name], np.asarray(values, actual[name].dtype), tolerance)
        if why:
            found.append(f"{name}: {why}; all of it: {actual[name]}")
    assert not found, "\n" + "\n".join(found)


def floats(*values: float) -> np.ndarray[Any, Any]:
    return np.array(values, np.float32)


def test_nan_is_seen(run: Run) -> None:
    """`x != x` folds to false: NaN is found by its bits, and compares as it should."""
    inputs = Inputs()
    x = inputs.new(floats(1, NAN, INF, -INF, 0, -NAN))
    y = inputs.new(floats(1, NAN, INF, INF, NAN, 2))
    outputs = {
        "isnan": x.isnan(),
        "not_equal_to_itself": x.ne(x),
        "equal_to_itself": x.eq(x),
        "minus_itself": (x - x).isnan(),
        "times_zero": (x * 0.0).isnan(),
        "over_itself": (x / x).isnan(),
        "not_less": ~(x < y),
        "equal": x.eq(y),
        "at_most": x <= y,
        "not_at_most": ~(x <= y),
        "isinf": x.isinf(),
        "chosen": x.isnan().where(Tensor.full((6,), 7.0, dt.float32), x),
    }
    expected = {
        "isnan": [0, 1, 0, 0, 0, 1],
        "not_equal_to_itself": [0, 1, 0, 0, 0, 1],
        "equal_to_itself": [1, 0, 1, 1, 1, 0],
        "minus_itself": [0, 1, 1, 1, 0, 1],
        "times_zero": [0, 1, 1, 1, 0, 1],
        "over_itself": [0, 1, 1, 1, 1, 1],
        "not_less": [1, 1, 1, 0, 1, 1],
        "equal": [1, 0, 1, 0, 0, 0],
        "at_most": [1, 0, 1, 1, 0, 0],
        "not_at_most": [0, 1, 0, 0, 1, 1],
        "isinf": [0, 0, 1, 1, 0, 0],
        "chosen": [1, 7, INF, -INF, 0, 7],
    }
    check(run, inputs, outputs, expected)


def test_nan_survives_maxima_and_clamps(run: Run) -> None:
    """`max(NaN, 0)` and `clamp(NaN, ..)` drop the NaN."""
    inputs = Inputs()
    x = inputs.new(floats(NAN, 1, -1, INF, -INF, NAN, 8))
    zeros = inputs.new(floats(0, 0, 0, 0, 0, NAN, NAN))
    outputs = {
        "max": x.maximum(0.0),
        "max_of_two": x.maximum(zeros),
        "min_of_two": zeros.minimum(x),
        "relu": x.relu(),
        "clip": x.clip(-2.0, 6.0),
        "relu6": x.relu().minimum(6.0),
        "max_reduce": inputs.new(floats(1, NAN, 3, 2, 5, 4).reshape(2, 3)).max(1),
        "sum": x.reshape((7, 1)).sum(1),
    }
    expected = {
        "max": [NAN, 1, 0, INF, 0, NAN, 8],
        "max_of_two": [NAN, 1, 0, INF, 0, NAN, NAN],
        "min_of_two": [NAN, 0, -1, 0, -INF, NAN, NAN],
        "relu": [NAN, 1, 0, INF, 0, NAN, 8],
        "clip": [NAN, 1, -1, 6, -2, NAN, 6],
        "relu6": [NAN, 1, 0, 6, 0, NAN, 6],
        "max_reduce": [NAN, 5],
        "sum": [NAN, 1, -1, INF, -INF, NAN, 8],
    }
    check(run, inputs, outputs, expected)


def test_functions_at_their_ends(run: Run) -> None:
    """`tanh(88.8)` is NaN and `exp(NaN)` infinite on one engine; overflow and underflow."""
    inputs = Inputs()
    x = inputs.new(floats(88.8, 1e30, INF, -88.8, -INF, NAN, 0, 20, -104, 88.72, 89))
    values = np.asarray(inputs.arrays["x0"], np.float64)
    with np.errstate(all="ignore"):
        exp = np.exp(values).astype(np.float32)
    outputs = {
        "tanh": x.tanh(),
        "exp": x.exp(),
        "sigmoid": x.sigmoid(),
        "softplus": x.softplus(),
        "erf": x.erf(),
        "log": inputs.new(floats(0, -0.0, -1, INF, NAN, 1, LARGEST, -INF)).log(),
        "sqrt": inputs.new(floats(0, -1, INF, NAN, 4, LARGEST, -INF)).sqrt(),
        "reciprocal": 1.0 / inputs.new(floats(0, -0.0, INF, -INF, NAN, 2)),
    }
    nan, one = NAN, 1.0
    expected = {
        "tanh": [one, one, one, -1, -1, nan, 0, one, -1, one, one],
        "exp": exp,
        "sigmoid": [one, one, one, 0, 0, nan, 0.5, one, 0, one, one],
        "softplus": [88.8, 1e30, INF, 0, 0, nan, np.log(2), 20, 0, 88.72, 89],
        "erf": [one, one, one, -1, -1, nan, 0, one, -1, one, one],
        "log": [-INF, -INF, nan, INF, nan, 0, np.log(float(LARGEST)), nan],
        "sqrt": [0, nan, INF, nan, 2, np.sqrt(float(LARGEST)), nan],
        "reciprocal": [INF, -INF, 0, 0, nan, 0.5],
    }
    check(run, inputs, outputs, expected, Tolerance(each=3e-5, greatest=0, absolute=1e-6))


def test_angles(run: Run) -> None:
    """`sin(1e5)` is off by 1e-3 without a reduction of the argument."""
    inputs = Inputs()
    angles = np.concatenate([np.linspace(-1e5, 1e5, 2001), np.linspace(-10, 10, 999), [1e5, 0.0]])
    angles = angles.astype(np.float32)
    x = inputs.new(np.concatenate([angles, floats(INF, -INF, NAN)]))
    wide = np.concatenate([angles, [NAN] * 3]).astype(np.float64)
    check(
        run,
        inputs,
        {"sin": x.sin(), "cos": x.cos()},
        {"sin": np.sin(wide), "cos": np.cos(wide)},
        Tolerance(greatest=0, absolute=5e-7),
    )


def test_infinity_as_a_constant(run: Run) -> None:
    """A constant that is not finite does not compile in WGSL."""
    inputs = Inputs()
    x = inputs.new(floats(1, -1, INF, NAN))
    outputs = {
        "infinite": (x > 0).where(x, -INF),
        "nan": (x > 0).where(x, NAN),
        "padded": x.pad(((1, 1),), -INF),
        "largest": x.minimum(float(LARGEST)),
        "maximum": x.max(),
        "filled": Tensor.full((2,), INF, dt.float32),
    }
    expected = {
        "infinite": [1, -INF, INF, -INF],
        "nan": [1, NAN, INF, NAN],
        "padded": [-INF, 1, -1, INF, NAN, -INF],
        "largest": [1, -1, LARGEST, NAN],
        "maximum": NAN,
        "filled": [INF, INF],
    }
    check(run, inputs, outputs, expected)


def test_small_outputs(run: Run) -> None:
    """Stores of less than 32 bits do not exist: odd counts, neighbors, wrapping."""
    inputs = Inputs()
    for dtype in (np.uint8, np.int8, np.uint16, np.int16):
        info = np.iinfo(dtype)
        inputs.new(np.array([info.min, info.max, 0, 1, 7], dtype), f"in_{np.dtype(dtype).name}")
    outputs: dict[str, Tensor] = {}
    expected: dict[str, Any] = {}
    for name, array in inputs.arrays.items():
        x = Tensor.input(name, array.shape, dt.from_numpy(array.dtype))
        outputs[f"{name}_more"] = x + 1
        outputs[f"{name}_flags"] = x > 0
        with np.errstate(over="ignore"):
            expected[f"{name}_more"] = array + array.dtype.type(1)
        expected[f"{name}_flags"] = array > 0
    mask = inputs.new(np.array([True, False, True]))
    outputs |= {"not": ~mask, "both": mask & ~mask, "either": mask | ~mask, "xor": mask ^ mask}
    expected |= {"not": [0, 1, 0], "both": [0] * 3, "either": [1] * 3, "xor": [0] * 3}
    check(run, inputs, outputs, expected)


def test_integers(run: Run) -> None:
    """Division by zero and of the least integer, shifts by the width, wrapping."""
    least, most = -(2**31), 2**31 - 1
    inputs = Inputs()
    a = inputs.new(np.array([least, least, 7, -7, 7, -7, 5, most, 0], np.int32))
    b = inputs.new(np.array([-1, 0, 2, 2, -2, -2, 0, 1, 5], np.int32))
    u = inputs.new(np.array([0, 5, 2**32 - 1, 2**31], np.uint32))
    w = inputs.new(np.array([0, 0, 7, 2**31], np.uint32))
    shifted = inputs.new(np.array([1, -1, -8, 3, 1], np.int32))
    amount = inputs.new(np.array([31, 32, 2, 100, 0], np.int32))
    names = {ops.FLOORDIV: "floordiv", ops.MOD: "mod", ops.TRUNCDIV: "truncdiv"}
    outputs = {n: Tensor(elementwise(op, a.node, b.node)) for op, n in names.items()}
    outputs |= {f"u_{n}": Tensor(elementwise(op, u.node, w.node)) for op, n in names.items()}
    outputs |= {
        "abs": a.abs(),
        "neg": -a,
        "u_neg": -u,
        "wrapped": a + a,
        "u_wrapped": u - w,
        "left": shifted << amount,
        "right": shifted >> amount,
        "u_right": u >> inputs.new(np.array([0, 32, 31, 1], np.uint32)),
    }
    expected = {
        "floordiv": [least, least, 3, -4, -4, 3, 5, most, 0],
        "mod": [0, 0, 1, 1, -1, -1, 0, 0, 0],
        "truncdiv": [least, least, 3, -3, -3, 3, 5, most, 0],
        "u_floordiv": [0, 5, (2**32 - 1) // 7, 1],
        "u_mod": [0, 0, (2**32 - 1) % 7, 0],
        "u_truncdiv": [0, 5, (2**32 - 1) // 7, 1],
        "abs": [least, least, 7, 7, 7, 7, 5, most, 0],
        "neg": [least, least, -7, 7, -7, 7, -5, -most, 0],
        "u_neg": [0, 2**32 - 5, 1, 2**31],
        "wrapped": [0, 0, 14, -14, 14, -14, 10, -2, 0],
        "u_wrapped": [0, 5, 2**32 - 8, 0],
        "left": [least, 0, -32, 0, 1],
        "right": [0, -1, -2, 0, 1],
        "u_right": [0, 0, 1, 2**30],
    }
    check(run, inputs, outputs, expected)


def test_rounding_and_conversions(run: Run) -> None:
    """Halves round to even; floats to integers truncate and saturate; NaN gives 0."""
    inputs = Inputs()
    halves = floats(-2.5, -1.5, -0.5, 0.5, 1.5, 2.5, 8388608.5, -3.7, INF, NAN)
    x = inputs.new(halves)
    y = inputs.new(floats(NAN, INF, -INF, 3e9, -3e9, 2147483520, 300.7, -1.9, 4.9e9, 0.9))
    outputs = {
        "round": x.round(),
        "floor": x.floor(),
        "trunc": x.trunc(),
        "ceil": x.ceil(),
        "int32": y.cast(dt.int32),
        "uint32": y.cast(dt.uint32),
        "int8": y.cast(dt.int8),
        "uint8": y.cast(dt.uint8),
        "bool": y.cast(dt.bool_),
    }
    expected = {
        "round": np.rint(halves),
        "floor": np.floor(halves),
        "trunc": np.trunc(halves),
        "ceil": np.ceil(halves),
        "int32": [0, 2**31 - 1, -(2**31), 2**31 - 1, -(2**31), 2147483520, 300, -1, 2**31 - 1, 0],
        "uint32": [0, 2**32 - 1, 0, 3000000000, 0, 2147483520, 300, 0, 2**32 - 1, 0],
        "int8": [0, 127, -128, 127, -128, 127, 127, -1, 127, 0],
        "uint8": [0, 255, 0, 255, 0, 255, 255, 0, 255, 0],
        "bool": [1, 1, 1, 1, 1, 1, 1, 1, 1, 1],
    }
    check(run, inputs, outputs, expected)


def test_powers(run: Run) -> None:
    """pow is undefined for negative bases, and at its corners."""
    inputs = Inputs()
    bases = [-2, -2, -2, 0, 0, -0.0, -0.0, 1, NAN, NAN, INF, -INF, -INF, 0.5, 2, -8, 1e20, -1]
    powers = [3, 2, 0.5, 0, -1, -1, -2, NAN, 0, 1, -1, 3, 2, INF, -INF, 1 / 3, 2, INF]
    with np.errstate(all="ignore"):
        expected = np.power(floats(*bases).astype(float), floats(*powers).astype(float))
        expected = expected.astype(np.float32)
    result = inputs.new(floats(*bases)) ** inputs.new(floats(*powers))
    check(run, inputs, {"pow": result}, {"pow": expected}, Tolerance(each=1e-5, greatest=0))


@pytest.mark.parametrize("family", ["unary", "binary", "ternary", "conversions"])
def test_every_row(run: Run, family: str) -> None:
    """The rows of the table with special values, as the conformance suite tries them."""
    inputs = Inputs()
    cases = list(FAMILIES[family](inputs, LIMITATIONS))
    narrow = ("int8", "uint16", "int16", "float16", "float64", "int64", "uint64")
    cases = [c for c in cases if not any(name in c[0].split("_") for name in narrow)]
    tensors = {label: tensor for label, tensor, _ in cases}
    expected = reference(tensors, inputs, fp64_reference=True)
    actual = run(tensors, inputs)
    found = []
    for label, _, tolerance in cases:
        why = disagreement(actual[label], expected[label], tolerance)
        if why:
            found.append(f"{label}: {why}")
    assert not found, "\n" + "\n".join(found)


def test_functions_on_vectors(run: Run) -> None:
    """Kernels of four lanes use other helpers than scalar ones: both agree, bit by bit."""
    generator = np.random.default_rng(2)
    special = np.tile(floats(NAN, INF, -INF, 0, -0.0, 1, -1, 88.8), 4)
    both = np.concatenate([special, generator.normal(0, 20, 32).astype(np.float32)])
    inputs = Inputs()
    x = inputs.new(both)  # 64 elements: vectors
    y = inputs.new(np.concatenate([both, floats(1, 2, 3)]))  # 67: scalars
    functions = ("exp", "log", "sqrt", "sin", "cos", "tanh", "abs", "isnan", "floor", "round")
    outputs = {f"{n}_4": getattr(x, n)() for n in functions}
    outputs |= {f"{n}_1": getattr(y, n)() for n in functions}
    outputs |= {"max_4": x.maximum(-x), "max_1": y.maximum(-y)}
    outputs |= {"pow_4": x**x, "pow_1": y**y, "int_4": x.cast(dt.int32), "int_1": y.cast(dt.int32)}
    outputs |= {"eq_4": x.eq(x.abs()), "eq_1": y.eq(y.abs())}
    actual = run(outputs, inputs)
    for name in sorted({n[:-2] for n in outputs}):
        why = disagreement(actual[f"{name}_4"], actual[f"{name}_1"][:64], CLOSE)
        assert not why, f"{name}: {why}"
