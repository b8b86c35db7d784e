"""Sizes that are counts of one mask, computed in different ways, as exporters write x[mask] = v."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import parser

from tests.imported import import_graph
from tinyedge.choices import find_target
from tinyedge.core.compiler.compile import compile_graph
from tinyedge.core.errors import InputError, RunError, UnsupportedOp
from tinyedge.core.program.device import Device
from tinyedge.core.program.program import Program
from tinyedge.core.program.replay import Replay

Array = np.ndarray[Any, Any]
SHAPE = (4, 5)

# How many elements of the bool tensor m [4, 5] are true, as a list of one size `n`.
COUNTS = {
    "the sum of all": "c = Cast<to = 7>(m); n = Reshape(ReduceSum<keepdims = 0>(c), one)",
    "the sum of the flat": """f = Reshape(m, one); c = Cast<to = 7>(f);
        n = ReduceSum<keepdims = 1>(c)""",
    "the sum of the transposed": """t = Transpose(m); c = Cast<to = 6>(t);
        n = Cast<to = 7>(Reshape(ReduceSum<keepdims = 0>(c), one))""",
    "axis after axis": """c = Cast<to = 6>(m); s = ReduceSum<keepdims = 0>(c, zero);
        n = Cast<to = 7>(ReduceSum<keepdims = 1>(s, zero))""",
    "the sum of floats": """c = Cast<to = 1>(m);
        n = Reshape(Cast<to = 7>(ReduceSum<keepdims = 0>(c)), one)""",
    "casts there and back": """c = Cast<to = 7>(Cast<to = 9>(Cast<to = 6>(m)));
        n = Reshape(ReduceSum<keepdims = 0>(c), one)""",
    "not of not": """c = Cast<to = 7>(Not(Not(m)));
        n = Reshape(ReduceSum<keepdims = 0>(c), one)""",
    "without the others": """c = Cast<to = 7>(Not(m)); all = Constant<value_int = 20>();
        n = Reshape(Sub(all, ReduceSum<keepdims = 0>(c)), one)""",
    "ones where": """w = Where(m, i1, i0); n = Reshape(ReduceSum<keepdims = 0>(w), one)""",
    "the first norm": "n = Reshape(Cast<to = 7>(ReduceL1<keepdims = 0>(Cast<to = 1>(m))), one)",
    "the sum of squares": """c = Cast<to = 7>(m);
        n = Reshape(ReduceSumSquare<keepdims = 0>(c), one)""",
    "a row by itself": """f = Cast<to = 1>(Reshape(m, one));
        n = Reshape(Cast<to = 7>(MatMul(f, f)), one)""",
    "a row by the column": """f = Cast<to = 1>(Reshape(m, row));
        n = Reshape(Cast<to = 7>(MatMul(f, Transpose(f))), one)""",
    "a sum of products": """f = Cast<to = 1>(m);
        n = Reshape(Cast<to = 7>(Einsum<equation = "ij,ij">(f, f)), one)""",
    "a shape": "n = Slice(Shape(i), zero, first)",
    "an element of a shape": "n = Reshape(Gather(Shape(nz), i1), one)",
    "half of a size": "n = Reshape(Div(Size(nz), two), one)",
    "another NonZero": "n = Slice(Shape(Compress(x2, Reshape(m, one))), zero, first)",
}
CONSTANTS = """one = Constant<value_ints = [-1]>(); zero = Constant<value_ints = [0]>();
    first = Constant<value_ints = [1]>(); two = Constant<value_int = 2>();
    row = Constant<value_ints = [1, -1]>();
    i0 = Constant<value_int = 0>(); i1 = Constant<value_int = 1>();
    x2 = Reshape(x, one); nz = NonZero(m); i = Transpose(nz)"""

# What is done with it. The right values are numpy's.
USES: dict[str, tuple[str, Callable[[Array, Array, Array], Array]]] = {
    "x[m] = v": (
        "y = ScatterND(x, i, Expand(v, n))",
        lambda x, m, v: np.where(m, v, x),
    ),
    "masked_scatter": (
        "y = ScatterND(x, i, Slice(x2, zero, n))",
        lambda x, m, v: _scattered(x, m, x.reshape(-1)),
    ),
    "x[m] + v": (
        "y = Add(GatherND(x, i), Expand(v, n))",
        lambda x, m, v: x[m] + v,
    ),
    "selected by Compress": (
        "y = Mul(Compress(x2, Reshape(m, one)), Expand(v, n))",
        lambda x, m, v: x[m] * v,
    ),
}


def _scattered(x: Array, m: Array, source: Array) -> Array:
    result = x.copy()
    result[m] = source[: m.sum()]
    return result


CALL = re.compile(r"\w+(?:<[^<>]*>)?\([^()]*\)")


def _save(path: Path, body: str) -> Path:
    """A model of statements, in which a call may be an operand of another."""
    lines: list[str] = []
    for statement in f"{CONSTANTS}; {body}".split(";"):
        name, call = (part.strip() for part in statement.split("=", 1))
        while (inner := CALL.search(call)) is not None and inner.group() != call:
            made = f"made{len(lines)}"
            lines.append(f"{made} = {inner.group()}")
            call = call.replace(inner.group(), made, 1)
        lines.append(f"{name} = {call}")
    head = '<ir_version: 9, opset_import: ["" : 18]> g (float[4,5] x, bool[4,5] m, float v)'
    model = parser.parse_model(f"{head} => (float y) {{ {' '.join(lines)} }}")
    model.graph.output[0].type.tensor_type.ClearField("shape")
    onnx.save(model, path)
    return path


def _check(
    path: Path, body: str, wanted: Callable[..., Array], target: str, device: Device
) -> None:
    program = compile_graph(import_graph(_save(path, body))[0], find_target(target)).program
    assert program is not None
    random = np.random.default_rng(3)
    with Replay(program, device, poison=True) as replay:
        for share in (0.0, 0.4, 1.0):
            x = random.normal(size=SHAPE).astype(np.float32)
            m, v = random.random(SHAPE) < share, np.float32(7)
            y = replay.run({"x": x, "m": m, "v": np.array(v)})["y"]
            np.testing.assert_allclose(y, wanted(x, m, v), rtol=1e-6)


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("count", COUNTS)
def test_counts_of_one_mask_are_one_size(
    count: str, use: str, cpu_device: Device, tmp_path: Path
) -> None:
    done, wanted = USES[use]
    _check(tmp_path / "m.onnx", f"{COUNTS[count]}; {done}", wanted, "cpu", cpu_device)


@pytest.mark.parametrize("use", USES)
def test_on_every_target(use: str, target: str, device: Device, tmp_path: Path) -> None:
    done, wanted = USES[use]
    _check(tmp_path / "m.onnx", f"{COUNTS['the sum of all']}; {done}", wanted, target, device)


@pytest.mark.parametrize("kind", [1, 6, 7, 10])
def test_what_is_not_zero(kind: int, cpu_device: Device, tmp_path: Path) -> None:
    """NonZero of numbers that are a mask's, and the sum of which is not 0."""
    body = f"""k = Cast<to = {kind}>(m); at = Transpose(NonZero(k));
        c = Cast<to = 7>(Cast<to = 9>(k));
        n = Reshape(ReduceSum<keepdims = 0>(c), one); y = ScatterND(x, at, Expand(v, n))"""
    _check(tmp_path / "m.onnx", body, lambda x, m, v: np.where(m, v, x), "cpu", cpu_device)


def test_rows(cpu_device: Device, tmp_path: Path) -> None:
    """A mask over the first axis alone, computed twice from numbers."""
    body = """z = Constant<value_float = 0.0>(); a = ReduceMax<keepdims = 0>(x, first);
        k = Greater(a, z); b = Cast<to = 7>(Greater(a, z)); five = Constant<value_ints = [5]>();
        s = Concat<axis = 0>(Reshape(ReduceSum<keepdims = 0>(b), one), five);
        y = ScatterND(x, Transpose(NonZero(k)), Expand(v, s))"""
    keep = lambda x, m, v: np.where(x.max(1, keepdims=True) > 0, v, x)  # noqa: E731
    _check(tmp_path / "m.onnx", body, keep, "cpu", cpu_device)


# Counts of which it is not seen that they are those of m.
OTHERS = {
    "the last of running sums": """f = Cast<to = 7>(Reshape(m, one));
        n = Slice(CumSum(f, i0), last, end)""",
    "the first of those sorted": """f = Cast<to = 6>(Reshape(m, one));
        all = Constant<value_ints = [20]>(); top, at = TopK(f, all);
        n = Cast<to = 7>(ReduceSum(top))""",
    "another mask": "c = Cast<to = 7>(Less(x, v)); n = Reshape(ReduceSum<keepdims = 0>(c), one)",
    "seven times as many": """c = Cast<to = 7>(Tile(m, seven));
        n = Reshape(ReduceSum<keepdims = 0>(c), one)""",
    "rows by rows": """f = Cast<to = 1>(m); t = Transpose(f);
        n = Reshape(Cast<to = 7>(ReduceSum<keepdims = 0>(MatMul(f, t))), one)""",
    "the square of the sum": """c = Cast<to = 7>(m); s = ReduceSum<keepdims = 0>(c);
        n = Reshape(Mul(s, s), one)""",
    "the squares of sums": """c = Cast<to = 7>(m); s = ReduceSum<keepdims = 0>(c, first);
        n = Reshape(ReduceSumSquare<keepdims = 0>(s), one)""",
    "times the reversed": """c = Cast<to = 7>(Reshape(m, one));
        far = Constant<value_ints = [-99]>(); r = Slice(c, one, far, zero, one); p = Mul(c, r);
        n = Reshape(ReduceSum<keepdims = 0>(p), one)""",
}
MORE = """seven = Constant<value_ints = [1, 7]>(); last = Constant<value_ints = [-1]>();
    end = Constant<value_ints = [2147483647]>()"""


def compared(path: Path) -> Path:
    """A model of x[m] = v in which the elements of v are counted by the mask x < v."""
    return _save(path, f"{OTHERS['another mask']}; {USES['x[m] = v'][0]}")


def _program(path: Path, body: str, target: str) -> Program:
    """With the bound that an error asks for, where one does."""
    _save(path, f"{MORE}; {body}")
    bounds: dict[str, int] = {}
    try:
        graph = import_graph(path)[0]
    except UnsupportedOp as error:
        asked = re.search(r"--bound (\S+)=1000", error.next)
        assert asked is not None, error
        bounds = {asked[1]: 20}
        graph = import_graph(path, bounds=bounds)[0]
    program = compile_graph(graph, find_target(target)).program
    assert program is not None
    return program


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("count", OTHERS)
def test_counts_that_a_run_compares(
    count: str, use: str, cpu_device: Device, tmp_path: Path
) -> None:
    _compares(tmp_path / "m.onnx", count, use, "cpu", cpu_device)


@pytest.mark.parametrize("count", ["the last of running sums", "another mask"])
@pytest.mark.parametrize("use", ["x[m] = v", "x[m] + v"])
def test_compared_on_every_target(
    count: str, use: str, target: str, device: Device, tmp_path: Path
) -> None:
    _compares(tmp_path / "m.onnx", count, use, target, device)


def _compares(path: Path, count: str, use: str, target: str, device: Device) -> None:
    """Where the counts are equal, the values are right; else the run says that they differ."""
    done, wanted = USES[use]
    program = _program(path, f"{OTHERS[count]}; {done}", target)
    random = np.random.default_rng(3)
    x = random.normal(size=SHAPE).astype(np.float32)
    v = np.array(0.5, np.float32)
    some, none, every = random.random(SHAPE) < 0.4, np.zeros(SHAPE, bool), np.ones(SHAPE, bool)
    with Replay(program, device, poison=True) as replay:
        for m in (some, none, every, x < v, x >= v):
            number = m.sum()
            found = {
                "another mask": (x < v).sum(),
                "seven times as many": 7 * number,
                "rows by rows": (m.astype(int) @ m.T).sum(),
                "the square of the sum": number * number,
                "the squares of sums": (m.sum(1) ** 2).sum(),
                "times the reversed": (m.reshape(-1) & m.reshape(-1)[::-1]).sum(),
            }
            size = found.get(count, number)
            if use == "masked_scatter":  # a slice ends where what it is of ends
                size = min(size, x.size)
            if size == number:
                y = replay.run({"x": x, "m": m, "v": v})["y"]
                np.testing.assert_allclose(y, wanted(x, m, v), rtol=1e-6)
            else:
                with pytest.raises(RunError, match="sizes that must be equal differ") as raised:
                    replay.run({"x": x, "m": m, "v": v})
                assert raised.value.id == "replay.count"


PAIRED = {  # of o and p, the same number of rows of x by two masks
    "Einsum": ('y = Einsum<equation = "ij,ik->jk">(o, p)', lambda o, p: o.T @ p),
    "Scan": (
        """z = Constant<value = float[4] {0, 0, 0, 0}>()
        last, y = Scan<num_scan_inputs = 2, body = b (float[4] s, float[4] e, float[4] f)
            => (float[4] t, float[4] r) { t = Add(s, e) r = Add(t, f) }>(z, o, p)""",
        lambda o, p: np.cumsum(o, 0) + p,
    ),
}


@pytest.mark.parametrize("use", PAIRED)
def test_operators_of_two_counts(use: str, cpu_device: Device, tmp_path: Path) -> None:
    done, wanted = PAIRED[use]
    text = f"""<ir_version: 9, opset_import: ["" : 18]>
        g (float[6, 4] x, bool[6] m, bool[6] w) => (float[a, 4] y) {{
            o = Compress<axis = 0>(x, m) p = Compress<axis = 0>(x, w) {done} }}"""
    onnx.save(parser.parse_model(text), tmp_path / "m.onnx")
    program = compile_graph(import_graph(tmp_path / "m.onnx")[0], find_target("cpu")).program
    assert program is not None
    x = np.random.default_rng(5).normal(size=(6, 4)).astype(np.float32)
    m = np.arange(6) % 2 == 0
    with Replay(program, cpu_device, poison=True) as replay:
        for w in (~m, m, np.arange(6) > 2):
            y = replay.run({"x": x, "m": m, "w": w})["y"]
            np.testing.assert_allclose(y, wanted(x[m], x[w]), rtol=1e-5)
        with pytest.raises(RunError, match="sizes that must be equal differ"):
            replay.run({"x": x, "m": m, "w": np.arange(6) > 1})


def test_no_output_tells_whether_counts_are_equal(tmp_path: Path) -> None:
    """A scalar has no axis of which a run could say that it is -1 long."""
    body = f"""{OTHERS["another mask"]};
        y = ReduceSum<keepdims = 0>(Add(GatherND(x, i), Expand(v, n)))"""
    with pytest.raises(UnsupportedOp, match="no output tells"):
        import_graph(_save(tmp_path / "m.onnx", body))


@pytest.mark.parametrize("kept", [4, 5])
def test_a_reshape_of_an_odd_number(kept: int, cpu_device: Device, tmp_path: Path) -> None:
    """Whether two rows have all that is kept depends on how much that is."""
    text = """<ir_version: 9, opset_import: ["" : 18]> g (float[9] x, bool[9] m) => (float[2, n] y)
        { two = Constant<value_ints = [2, -1]>() c = Compress(x, m) y = Reshape(c, two) }"""
    onnx.save(parser.parse_model(text), tmp_path / "m.onnx")
    program = compile_graph(import_graph(tmp_path / "m.onnx")[0], find_target("cpu")).program
    assert program is not None
    x, m = np.arange(9, dtype=np.float32), np.arange(9) < kept
    with Replay(program, cpu_device) as replay:
        if kept % 2 == 0:
            np.testing.assert_array_equal(replay.run({"x": x, "m": m})["y"], [[0, 1], [2, 3]])
        else:
            with pytest.raises(RunError, match="sizes that must be equal differ"):
                replay.run({"x": x, "m": m})


def test_every_output_tells(cpu_device: Device, tmp_path: Path) -> None:
    """Outputs of fixed size have a count too, which is the size of their first axis."""
    path = compared(tmp_path / "m.onnx")
    program = compile_graph(import_graph(path)[0], find_target("cpu")).program
    assert program is not None
    assert [(p.name, p.count) for p in program.outputs] == [("y", "y.count"), ("y.count", "")]
    x, v = np.zeros(SHAPE, np.float32), np.array(1, np.float32)
    with Replay(program, cpu_device) as replay:
        assert replay.run({"x": x, "m": x < v, "v": v})["y.count"] == 4


def test_a_branch_that_a_run_may_leave_out_compares_nothing(tmp_path: Path) -> None:
    """Where it is not taken, sizes in it may differ, and the model is right."""
    text = """<ir_version: 9, opset_import: ["" : 18]>
        g (float[9] x, bool[9] m, bool c) => (float[9] y) { y = If (c) <
            then_branch = yes () => (float[9] a) { a = Identity(x) },
            else_branch = no () => (float[9] b) {
                k = Not(m) o = Compress(x, m) p = Compress(x, k) q = Add(o, p)
                s = ReduceSum<keepdims = 1>(q) b = Add(x, s) }> }"""
    onnx.save(parser.parse_model(text), tmp_path / "m.onnx")
    with pytest.raises(InputError, match="must be equal") as refused:
        import_graph(tmp_path / "m.onnx")
    assert refused.value.id == "input.sizes"


def test_masks_of_many_as_bytes(cpu_device: Device, tmp_path: Path) -> None:
    """Only what is summed has to count so far: 400 ones as int8, added up as int64."""
    parts = """<ir_version: 9, opset_import: ["" : 18]> g (bool[400] m, float v) => (float[n] y) {
        b = Cast<to = 3>(m) w = Cast<to = 7>(b) n = ReduceSum<keepdims = 1>(w)
        i = NonZero(m) z = Constant<value = float[400] {ZEROS}>() u = Expand(v, n)
        t = Transpose(i) y = ScatterND(z, t, u) }"""
    parts = parts.replace("ZEROS", ", ".join(["0"] * 400))
    path = tmp_path / "m.onnx"
    onnx.save(parser.parse_model(parts.replace("float[n] y", "float[400] y")), path)
    program = compile_graph(import_graph(path)[0], find_target("cpu")).program
    assert program is not None
    assert [port.count for port in program.outputs] == [""]  # it is proved, so nothing is compared
    m = np.arange(400) % 3 > 0
    with Replay(program, cpu_device) as replay:
        y = replay.run({"m": m, "v": np.array(2, np.float32)})["y"]
    np.testing.assert_array_equal(y, np.where(m, 2, 0))


def test_the_rest_of_a_mask_of_open_length(cpu_device: Device, tmp_path: Path) -> None:
    """x[m] and x[~m]: how many are false is a count of its own."""
    head = '<ir_version: 9, opset_import: ["" : 18]> g (float[L] x, bool[L] m)'
    body = "y = Compress<axis = 0>(x, m) n = Not(m) z = Compress<axis = 0>(x, n)"
    text = f"{head} => (float[a] y, float[b] z) {{ {body} }}"
    onnx.save(parser.parse_model(text), tmp_path / "m.onnx")
    graph = import_graph(tmp_path / "m.onnx", dims={"L": "1..20"})[0]
    program = compile_graph(graph, find_target("cpu")).program
    assert program is not None
    with Replay(program, cpu_device, poison=True) as replay:
        for length in (1, 7, 20):
            x, m = np.arange(length, dtype=np.float32), np.arange(length) % 3 == 0
            found = replay.run({"x": x, "m": m})
            np.testing.assert_array_equal(found["y"], x[m])
            np.testing.assert_array_equal(found["z"], x[~m])
