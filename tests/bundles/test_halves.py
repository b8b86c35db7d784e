"""Golden cases of bundles that keep halves: what fp16 gives, and what a user is told of it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

from tests.export.hostile.build import floats, info, model, node
from tinyedge import export_onnx, load
from tinyedge.export.bundle import golden
from tinyedge.export.bundle.reading import read

SHAPE = (3, 16)
RANDOM = np.random.default_rng(7)
FIRST = RANDOM.uniform(-1, 1, (16, 32)).astype(np.float32)
SECOND = RANDOM.uniform(-1, 1, (32, 8)).astype(np.float32)
SECOND -= SECOND.mean(0)  # what is added before it cancels out


def exported(folder: Path, scale: float, offset: float, precision: str) -> tuple[Path, list[str]]:
    """(x @ FIRST * scale + offset) @ SECOND, a bundle, and what its export said."""
    nodes = [
        node("MatMul", ["x", "first"], ["product"], name="product"),
        node("Mul", ["product", "scale"], ["scaled"], name="scaled"),
        node("Add", ["scaled", "offset"], ["moved"], name="moved"),
        node("MatMul", ["moved", "second"], ["y"], name="last"),
    ]
    arrays = {"first": FIRST, "second": SECOND, "scale": scale, "offset": offset}
    weights = [floats(name, array) for name, array in arrays.items()]
    file = folder / "model.onnx"
    onnx.save(model(nodes, inputs=[info("x", list(SHAPE))], weights=weights), file)
    said: list[str] = []
    out = folder / f"{precision}.tinyedge"
    export_onnx(file, target="qcom", out=out, precision=precision, warn=said.append)
    return out, said


def full(x: np.ndarray, scale: float, offset: float, halves: bool) -> np.ndarray:
    """What the model gives in double precision, with or without halves between its kernels."""
    moved = x.astype(np.float64) @ FIRST.astype(np.float64) * np.float32(scale) + offset
    if halves:
        moved = np.clip(moved, -65504, 65504).astype(np.float16).astype(np.float64)
    return np.asarray(moved @ SECOND.astype(np.float64))


@pytest.mark.parametrize(
    ("scale", "offset", "least", "most"),
    [(1.0, 0.0, 0, 0.002), (1.0, 300.0, 0.01, 0.1), (1e5, 0.0, 0.3, 1.0)],
    ids=["tame", "canceling", "overflowing"],
)
def test_the_case_has_what_halves_give(
    scale: float, offset: float, least: float, most: float, tmp_path: Path
) -> None:
    """A device that computes as it should agrees, however far halves are off; zeros never do."""
    out, said = exported(tmp_path, scale, offset, "fp16")
    bundle = read(out)
    program, (case,) = bundle.program, bundle.goldens()
    inputs = golden.case_inputs(program, case)
    expected = full(inputs["x"], scale, offset, halves=True)
    right = full(inputs["x"], scale, offset, halves=False)
    (stored,) = case.outputs
    np.testing.assert_allclose(stored.data.reshape(3, 8), expected, rtol=2e-5, atol=1e-6)

    error = float(np.abs(expected - right).max() / np.abs(right).max())
    assert least <= error <= most
    wanted = min(max(20_000, 3e6 * error), 500_000)
    assert abs(case.tolerance - wanted) <= wanted / 1000
    with load(out) as device:
        (result,) = golden.compare_case(program, case, device.run(inputs))
    assert result.agrees and result.error < 0.02
    zeros = {"y": np.zeros((3, 8), np.float32)}
    assert not golden.compare_case(program, case, zeros)[0].agrees

    told = [text for text in said if "fp16" in text]
    assert len(told) == (error > 0.01)
    if told:
        assert f"'y' by {100 * error:.2g} % of its greatest value" in told[0]
        assert "--golden-input NAME=FILE.npy" in told[0] and "--precision fp32" in told[0]
        assert ("cut at 65504: 'moved' (" in told[0]) == (scale > 1)


def test_floats_are_left_alone(tmp_path: Path) -> None:
    out, said = exported(tmp_path, 1e5, 0.0, "fp32")
    bundle = read(out)
    (case,) = bundle.goldens()
    right = full(golden.case_inputs(bundle.program, case)["x"], 1e5, 0.0, halves=False)
    np.testing.assert_allclose(case.outputs[0].data.reshape(3, 8), right, rtol=2e-5, atol=1e-2)
    assert not said and case.tolerance == 100


def test_weights_too_large_for_halves_are_named(tmp_path: Path) -> None:
    """Large weights are fp16; small ones are not, and are not cut."""
    weight = np.full((128, 128), 0.5, np.float32)
    weight[3, 4] = 1e6
    nodes = [node("MatMul", ["x", "w"], ["h"], name="product"), node("Mul", ["h", "small"])]
    weights = [floats("w", weight), floats("small", [1e-6])]
    file = tmp_path / "model.onnx"
    onnx.save(model(nodes, inputs=[info("x", [1, 128])], weights=weights), file)
    said: list[str] = []
    export_onnx(file, target="qcom", out=tmp_path / "out", warn=said.append)
    assert len(said) == 1 and "cut at 65504: 'w' (1e+06)" in said[0]


@pytest.mark.parametrize(
    ("second", "what"), [("Log", "'y' is nan everywhere"), ("Relu", "'y' is 0.0 everywhere")]
)
def test_a_case_that_proves_little_says_so(second: str, what: str, tmp_path: Path) -> None:
    """The square's negative has no logarithm, and nothing above zero."""
    nodes = [
        node("Mul", ["x", "x"], ["square"]),
        node("Neg", ["square"], ["negative"]),
        node(second, ["negative"]),
    ]
    file = tmp_path / "model.onnx"
    onnx.save(model(nodes), file)
    said: list[str] = []
    export_onnx(file, target="cpu", out=tmp_path / "generated", warn=said.append)
    assert len(said) == 1 and what in said[0] and "--golden-input NAME=FILE.npy" in said[0]
