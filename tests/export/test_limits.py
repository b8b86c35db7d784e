"""Limits of what an export computes: beyond them it goes on without, or says what to allow."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.export.hostile import info, ints, model, node
from tests.export.hostile.files import sparse
from tests.export.hostile.work import arithmetic, filled, spread
from tests.imported import compile_model, import_model, inspect_model
from tinyedge import export_onnx, load
from tinyedge.choices import choose_options
from tinyedge.core.errors import ModelError
from tinyedge.core.ir import ops
from tinyedge.core.ir.uop import toposort
from tinyedge.export.bundle.reading import read


def _saved(folder: Path, source: object) -> Path:
    path = folder / "model.onnx"
    path.write_bytes(source.SerializeToString())  # type: ignore[attr-defined]
    return path


def _made(path: Path, limits: dict[str, int]) -> int:
    """How many bytes of constants the compiler computes."""
    options = choose_options("cpu")
    state = compile_model(path, "cpu", options, limits=limits, stop_after="fold")
    sources = [node.arg.source for node in toposort(state.roots) if node.op is ops.BUFFER]
    return sum(source.data.nbytes for source in sources if source.data is not None)


def test_a_constant_that_takes_too_much_is_left_to_the_run(tmp_path: Path) -> None:
    path = _saved(tmp_path, spread(50_000, "CumSum", 0))
    assert _made(path, {"folded_bytes": 1}) == 4  # the sum
    assert _made(path, {"folded_bytes": 1, "folded_work": 1}) == 0
    x = np.zeros((2, 3), np.float32)
    expected = np.float32(np.arange(50_000, dtype=np.float64).cumsum().sum())
    for limits in ({}, {"folded_bytes": 1, "folded_work": 1}):
        bundle = export_onnx(path, target="cpu", out=tmp_path / f"b{len(limits)}", limits=limits)
        with load(bundle) as loaded:
            np.testing.assert_allclose(loaded.run({"x": x})["y"], x + expected, rtol=1e-5)


def test_a_negative_size_allows_nothing(tmp_path: Path) -> None:
    """What a sparse weight is short of does not count for another one."""
    nodes = [node("ReduceSum", [name], [f"{name} sum"], keepdims=0) for name in "ab"]
    source = model(nodes, outputs=["a sum", "b sum"])
    source.graph.sparse_initializer.extend([sparse(-(1 << 30), 0, "a"), sparse(1 << 25, 0, "b")])
    found = inspect_model(source.SerializeToString())
    assert sorted(error.id for error in found.refused.values()) == ["model.limit", "model.tensor"]


def test_no_golden_case_beyond_the_limit(tmp_path: Path) -> None:
    path = _saved(tmp_path, model([node("Relu", ["x"])], inputs=[info("x", [1000])]))
    for limits, number in (
        ({}, 1),
        ({"golden_work": 3000}, 0),
        ({"golden_work": 10_000}, 1),
        ({"golden_bytes": 1000}, 0),
    ):
        said: list[str] = []
        out = tmp_path / "bundle"
        export_onnx(path, target="cpu", out=out, limits=limits, warn=said.append)
        assert len(read(out).goldens()) == number, said
        (name,) = limits or ("none",)
        assert [name in text for text in said] == [True] * (not number), said


def test_a_model_that_is_too_large_to_run_here_is_exported(tmp_path: Path) -> None:
    path = _saved(tmp_path, model([node("Relu", ["x"])], inputs=[info("x", [1 << 30])]))
    said: list[str] = []
    export_onnx(path, target="cpu", out=tmp_path / "bundle", warn=said.append)
    assert any("golden_bytes" in text for text in said)


def test_arithmetic_on_sizes_has_a_limit() -> None:
    source = arithmetic(50, 16).SerializeToString()
    import_model(source, dims={"n": "1..9"})
    from tinyedge.export.limits import choose_limits

    with pytest.raises(ModelError, match="ONNX node 'Add_") as caught:
        import_model(source, dims={"n": "1..9"}, limits=choose_limits({"sizes": 500}))
    assert caught.value.id == "model.limit" and "--limit sizes=N" in caught.value.next


def test_wide_arrays_of_sizes_are_computed_by_the_run(tmp_path: Path) -> None:
    path = _saved(tmp_path, arithmetic(3, 1000))
    bundle = export_onnx(path, target="cpu", out=tmp_path / "b", dims={"n": "1..9"})
    expected = float((np.arange(1000) + 4 * 5).sum())
    with load(bundle) as loaded:
        got = loaded.run({"x": np.zeros(5, np.float32)})["y"]
    assert got.tolist() == [expected] * 5


def test_many_operands_count() -> None:
    fill, weights = filled([1])
    nodes = [fill, node("Sum", ["f"] * 11_000, ["s"]), node("Add", ["x", "s"])]
    source = model(nodes, weights=[ints(name, value) for name, value in weights.items()])
    with pytest.raises(ModelError, match="operands and results") as caught:
        import_model(source.SerializeToString())
    assert caught.value.id == "model.limit"
