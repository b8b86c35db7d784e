"""Scatters: right where places repeat, in work that grows with updates and places only."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import parser

from tests.imported import import_graph
from tinyedge.choices import find_target
from tinyedge.core import dtype as dt
from tinyedge.core.compiler.compile import compile_graph
from tinyedge.core.ir import ops
from tinyedge.core.program.device import Device
from tinyedge.core.program.program import Program
from tinyedge.core.program.replay import Replay
from tinyedge.core.tensor.graph import Graph, Port
from tinyedge.core.tensor.tensor import Tensor
from tinyedge.model import TARGETS

Array = np.ndarray[Any, Any]
COMBINED = {
    "none": lambda old, new: new,
    "add": np.add,
    "mul": np.multiply,
    "max": np.maximum,
    "min": np.minimum,
}
ROWS = {"none": None, "add": ops.ADD, "mul": ops.MUL, "max": ops.MAX, "min": ops.MIN}


def _one_by_one(x: Array, places: Array, updates: Array, reduction: str) -> Array:
    """ONNX's text: for each update, in order, output[place] = f(output[place], update)."""
    result = x.copy()
    for place, update in zip(places, updates, strict=True):
        result[place] = COMBINED[reduction](result[place], update)
    return result


def _model(path: Path, text: str) -> Path:
    text = f'<ir_version: 9, opset_import: ["" : 18]> scatters ({text}'
    onnx.save(parser.parse_model(text), path)
    return path


def _program(path: Path, target: str, dims: dict[str, str] | None = None) -> Program:
    program = compile_graph(import_graph(path, dims=dims or {})[0], find_target(target)).program
    assert program is not None
    return program


@pytest.mark.parametrize("reduction", COMBINED)
def test_rows_of_which_only_the_run_knows_the_number(
    reduction: str, target: str, device: Device, tmp_path: Path
) -> None:
    """Places repeat, up to all of them being one; more updates than one launch takes."""
    path = _model(
        tmp_path / "m.onnx",
        f"""float[R,3] x, int64[K,1] i, float[K,3] u) => (float[R,3] y)
        {{ y = ScatterND<reduction = "{reduction}">(x, i, u) }}""",
    )
    program = _program(path, target, {"R": "1..900", "K": "1..40000"})
    random = np.random.default_rng(5)
    with Replay(program, device, poison=True) as model:
        for rows, count, reached in ((1, 1, 1), (7, 100, 7), (900, 40000, 900), (300, 33000, 1)):
            x = random.normal(size=(rows, 3)).astype(np.float32)
            places = random.integers(-reached, reached, (count, 1))
            updates = random.normal(size=(count, 3)).astype(np.float32)
            if reduction == "mul":  # the product of many stays a number
                updates = np.where(updates < 0, -1, 1).astype(np.float32)
            given = {"x": x, "i": places, "u": updates}
            y = model.run(given)["y"]
            wanted = _one_by_one(x.astype(np.float64), places[:, 0], updates, reduction)
            np.testing.assert_allclose(y, wanted, rtol=1e-4, atol=1e-4)
            assert np.array_equal(y, model.run(given)["y"])


@pytest.mark.parametrize("reduction", COMBINED)
def test_elements_in_lines(reduction: str, target: str, device: Device, tmp_path: Path) -> None:
    """Fewer lines than the data has, along an axis in the middle; negative places."""
    path = _model(
        tmp_path / "m.onnx",
        f"""float[3,5,4] x, int64[2,9,4] i, float[2,9,4] u) => (float[3,5,4] y)
        {{ y = ScatterElements<axis = 1, reduction = "{reduction}">(x, i, u) }}""",
    )
    program = _program(path, target)
    random = np.random.default_rng(6)
    x = random.normal(size=(3, 5, 4)).astype(np.float32)
    places = random.integers(-5, 5, (2, 9, 4))
    updates = random.normal(size=(2, 9, 4)).astype(np.float32)
    wanted = x.copy()
    for a, b in np.ndindex(2, 4):
        line = wanted[a, :, b]
        line[:] = _one_by_one(line, places[a, :, b], updates[a, :, b], reduction)
    with Replay(program, device) as model:
        y = model.run({"x": x, "i": places, "u": updates})["y"]
    np.testing.assert_allclose(y, wanted, rtol=1e-5, atol=1e-6)


def test_sums_of_halves_are_rounded_once(target: str, device: Device, tmp_path: Path) -> None:
    """2048 + 1 is 2048 as a half: a sum of 64 ones must not get lost one by one."""
    path = _model(
        tmp_path / "m.onnx",
        """float16[2] x, int64[64,1] i, float16[64] u) => (float16[2] y)
        { y = ScatterND<reduction = "add">(x, i, u) }""",
    )
    program = _program(path, target)
    given = {
        "x": np.array([2048, 1], np.float16),
        "i": np.zeros((64, 1), np.int64),
        "u": np.ones(64, np.float16),
    }
    with Replay(program, device) as model:
        y = model.run(given)["y"]
    assert y.tolist() == [2112, 1]


@pytest.mark.parametrize("name", TARGETS)
@pytest.mark.parametrize("reduction", ROWS)
@pytest.mark.parametrize("lines", [False, True], ids=["rows", "lines"])
def test_work_grows_with_updates_and_places(name: str, reduction: str, lines: bool) -> None:
    """Twice as many of both: at most twice the operations, and the bytes that launches take."""

    def work(places: int, updates: int) -> tuple[int, int]:
        shape = (3, places) if lines else (places, 3)
        given = (3, updates) if lines else (updates, 3)
        x, u = Tensor.input("x", shape, dt.float32), Tensor.input("u", given, dt.float32)
        i = Tensor.input("i", given if lines else given[:1], dt.int32)
        y = x.scatter(int(lines), i, u, ROWS[reduction])
        inputs = (
            Port("x", dt.float32, shape),
            Port("i", dt.int32, i.shape),
            Port("u", dt.float32, given),
        )
        state = compile_graph(
            Graph(inputs, (Port("y", dt.float32, shape, y.node),)), find_target(name)
        )
        program = state.program
        assert program is not None
        operations = sum(state.kernels[launch.sink].flops for launch in state.launches)
        return operations, sum(buffer.bytes for buffer in program.buffers)

    for places, updates in ((1000, 500), (10000, 5000), (100000, 50000)):
        once, twice = work(places, updates), work(2 * places, 2 * updates)
        assert once[0] <= 3 * updates and once[1] <= 40 * (places + updates)
        assert all(b <= 2.2 * a + 4096 for a, b in zip(once, twice, strict=True))
