"""The JS runtime in a real browser: every kind of program, through a bundle on disk."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.export.test_dims import PASTS, part_after_the_past
from tests.export.test_masks import compared
from tests.targets import programs
from tinyedge import export_onnx
from tinyedge.core.errors import DeviceError
from tinyedge.core.program.program import Program
from tinyedge.export.bundle import golden
from tinyedge.export.package.package import write_bundle
from tinyedge.export.verify.browser import Browser, BrowserRunError, open_browser

pytestmark = pytest.mark.browser

TARGET = "webgpu"


def write(program: Program, folder: Path, **options: Any) -> Path:
    return write_bundle(program, folder / "model.tinyedge", **options)


def ramp(*shape: int) -> np.ndarray:
    return np.arange(int(np.prod(shape)), dtype=np.float32).reshape(shape)


def test_addition(browser: Browser, tmp_path: Path) -> None:
    bundle = write(programs.addition(TARGET), tmp_path)
    a, b = ramp(4, 64), 1000 * ramp(4, 64)
    outputs, stats = browser.run_in_page(bundle, {"a": a, "b:0": b})
    expected = a + b + ramp(4, 64)
    np.testing.assert_array_equal(outputs["c"], expected)
    np.testing.assert_array_equal(outputs["half"], expected[2:])
    assert stats["launches"] == stats["pipelines"] == stats["bindGroups"] == 1
    assert stats["bytesFetched"] == sum(
        (bundle / name).stat().st_size
        for name in ("manifest.json", "kernels.wgsl", "weights-00000.bin")
    )


def test_symbolic_sizes(browser: Browser, tmp_path: Path) -> None:
    bundle = write(programs.symbolic(TARGET), tmp_path)
    shapes = [(8, 16), (1, 4), (3, 8), (3, 8), (8, 16)]
    cases = [{"x": ramp(*shape), "bias": ramp(shape[1])} for shape in shapes]
    outputs, stats = browser.run_in_page(bundle, cases)
    for case, output in zip(cases, outputs, strict=True):
        np.testing.assert_array_equal(output["y"], 2 * case["x"].reshape(-1))
    assert stats["uniformWrites"] == 4, "the sizes are written only when they change"
    assert stats["submits"] == stats["passes"] == 5


@pytest.mark.parametrize(
    ("shapes", "because"),
    [
        ({"x": (9, 4), "bias": (4,)}, "N cannot be 9"),
        ({"x": (8, 6), "bias": (6,)}, "M cannot be 6"),
        ({"x": (8, 8), "bias": (4,)}, r"its shape is \[4\]"),
        ({"x": (64,), "bias": (4,)}, "its shape is"),
    ],
)
def test_sizes_out_of_bounds(
    browser: Browser, tmp_path: Path, shapes: dict[str, tuple[int, ...]], because: str
) -> None:
    bundle = write(programs.symbolic(TARGET), tmp_path)
    with pytest.raises(BrowserRunError, match=because) as raised:
        browser.run_in_page(bundle, {name: ramp(*shape) for name, shape in shapes.items()})
    assert raised.value.id == "run.shape"


@pytest.mark.parametrize("each", [1, 2])
def test_a_size_known_by_a_sum(browser: Browser, tmp_path: Path, each: int) -> None:
    """`new` is no axis of an input, but `past + each * new` is."""
    dims = {"past": "0..20", "new": "1..4"}
    model = tmp_path / "m.onnx"
    model.write_bytes(part_after_the_past(f"past + {each} * new"))
    bundle = export_onnx(model, target="webgpu", out=tmp_path / "b", dims=dims, golden=False)
    cases = [{"past": ramp(1, past), "mask": ramp(1, past + each * new)} for past, new in PASTS]
    outputs, _ = browser.run_in_page(bundle, cases)
    for (past, _), case, output in zip(PASTS, cases, outputs, strict=True):
        np.testing.assert_array_equal(output["y"], case["mask"][:, past:])
    for length in (7, 20 + 5 * each):
        with pytest.raises(BrowserRunError, match="new cannot be") as raised:
            browser.run_in_page(bundle, {"past": ramp(1, 20), "mask": ramp(1, length)})
        assert raised.value.id == "run.shape"


@pytest.mark.parametrize(("bound", "turns"), [(100, 5), (3, 3)])
def test_loop(browser: Browser, tmp_path: Path, bound: int, turns: int) -> None:
    bundle = write(programs.repeat(TARGET, bound), tmp_path)
    outputs, _ = browser.run_in_page(bundle, {"x": ramp(64), "n": np.array([5])})
    np.testing.assert_array_equal(outputs["x_out"], ramp(64) + turns)
    assert outputs["left"].dtype == np.int64
    assert outputs["left"].tolist() == [5 - turns]


def test_state_and_entries(browser: Browser, tmp_path: Path) -> None:
    bundle = write(programs.counter(TARGET), tmp_path)
    outputs, _ = browser.run_in_page(bundle, [{"x": ramp(64)}] * 3)
    for turn, output in enumerate(outputs, 1):
        np.testing.assert_array_equal(output["total"], 10 + turn * ramp(64))
    outputs, _ = browser.run_in_page(bundle, {}, entry="peek")
    np.testing.assert_array_equal(outputs["total"], np.full(64, 10, np.float32))


def test_declared_dtypes_are_kept(browser: Browser, tmp_path: Path) -> None:
    program = programs.ports(TARGET)
    bundle = write(program, tmp_path)
    special = [1.5, -0.0, np.nan, np.inf, 65519.0]
    values = {
        "bool": [True, False, False, True, True],
        "int8": [-128, 127, 0, 1, -1],
        "uint8": [0, 255, 128, 1, 2],
        "int64": [-(2**31), 2**31 - 1, 0, -1, 7],
        "uint64": [2**32 - 1, 0, 1, 2, 3],
    }
    inputs = {
        port.name: np.array(values.get(port.dtype, special), port.dtype) for port in program.inputs
    }
    outputs, _ = browser.run_in_page(bundle, inputs)
    for name, given in inputs.items():
        result = outputs[name.replace("in_", "out_")]
        expected = given.astype(np.float16).astype(given.dtype) if "float16" in name else given
        if given.dtype == np.float64:
            expected = given.astype(np.float32).astype(np.float64)
        assert result.dtype == given.dtype, name
        np.testing.assert_array_equal(result, expected, err_msg=name)
        assert (
            np.array_equal(np.signbit(result[:2]), np.signbit(expected[:2]))
            or given.dtype.kind != "f"
        )


@pytest.mark.parametrize(
    ("name", "value"), [("in_int64_int32", 2**31), ("in_float64_float32", -1e39)]
)
def test_values_beyond_the_storage(
    name: str, value: float, browser: Browser, tmp_path: Path
) -> None:
    program = programs.ports(TARGET)
    bundle = write(program, tmp_path)
    inputs = {port.name: np.zeros(5, port.dtype) for port in program.inputs}
    inputs[name][1] = value
    with pytest.raises(BrowserRunError, match=re.escape(str(value))) as raised:
        browser.run_in_page(bundle, inputs)
    assert raised.value.id == "run.range"


def test_count_cuts_an_output(browser: Browser, tmp_path: Path) -> None:
    program = programs.selection(TARGET)
    bundle = write(program, tmp_path)
    outputs, _ = browser.run_in_page(bundle, {"x": ramp(8, 2), "n": np.array(3, np.int32)})
    np.testing.assert_array_equal(outputs["picked"], ramp(3, 2))
    np.testing.assert_array_equal(outputs["beside"], ramp(2, 3))
    with pytest.raises(BrowserRunError, match="9 elements") as raised:
        browser.run_in_page(bundle, {"x": ramp(8, 2), "n": np.array(9, np.int32)})
    assert raised.value.id == "replay.count"


def test_goldens(browser: Browser, tmp_path: Path) -> None:
    program = programs.counter(TARGET)
    memory = np.full(64, 10, np.float32)

    def reset() -> None:
        memory[:] = 10

    def run(inputs: Any, entry: str, symbols: Any) -> Any:
        memory[:] += inputs["x"]
        return {"total": memory.copy()}

    good = golden.make(program, run, made="numpy", seed=3, steps=4, reset=reset)
    bundle = write(program, tmp_path, goldens=[good])
    report = browser.verify(bundle)
    assert report["passed"] and len(report["cases"]) == 1
    assert report["cases"][0]["outputs"][0]["error"] < 1e-6

    wrong = golden.make(program, lambda i, e, s: {"total": i["x"]}, made="a mistake", seed=3)
    report = browser.verify(write(program, tmp_path / "wrong", goldens=[good, wrong]))
    assert [case["passed"] for case in report["cases"]] == [True, False]
    assert not report["passed"]
    with pytest.raises(BrowserRunError, match=r"verify\.nothing"):
        browser.verify(write(program, tmp_path / "none"))


def test_a_second_browser_in_one_thread(browser: Browser) -> None:
    """As in a notebook: playwright cannot start inside of a running event loop."""
    with pytest.raises(DeviceError) as caught:
        open_browser()
    assert caught.value.id == "browser.start" and "thread" in caught.value.next


def test_sizes_that_differ_in_a_run(browser: Browser, tmp_path: Path) -> None:
    bundle = export_onnx(
        compared(tmp_path / "m.onnx"), target="webgpu", out=tmp_path / "b", golden=False
    )
    x, v = ramp(4, 5) - 9, np.array(0.5, np.float32)
    output, _ = browser.run_in_page(bundle, {"x": x, "m": x < v, "v": v})
    np.testing.assert_array_equal(output["y"], np.where(x < v, v, x))
    with pytest.raises(BrowserRunError, match="it has -1 elements") as raised:
        browser.run_in_page(bundle, {"x": x, "m": x < v - 1, "v": v})
    assert raised.value.id == "replay.count"
