"""Kernels by hand on devices compute what onnxruntime does, in every variant, at odd sizes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import onnx
import pytest

from tests.bench import cases as bench
from tests.study import __main__, operate, operations, overhead, report, sides
from tests.study.device import programs, replayed
from tests.study.sides import Effort
from tinyedge.export.bundle.writing import kernel_file
from tinyedge.targets.cuda import compiler

# Rows, columns and pixels that are left over beside whole vectors, tiles and workgroups.
SMALL = {
    case.name: case
    for case in (
        operations.elementwise("copy", 1003),
        operations.elementwise("multiply-add", 1003),
        operations.elementwise("sum", 10_003),
        operations.elementwise("softmax", 1003),
        operations.elementwise("softmax", 9_001),
        operations.softmax_rows(7_000),
        operations.layer_norm(3, 96),
        operations.layer_norm(2, 1028),
        operations.matmul(70),
        operations.convolution("conv 3x3", 6, 8, 24, 3),
        operations.convolution("conv 1x1", 5, 12, 36, 1),
        operations.convolution("first layer 7x7/2", 32, 3, 64, 7, 2),
        operations.convolution("depthwise 3x3", 9, 32, 32, 3, depthwise=True),
        operations.convolution("depthwise 3x3/2", 10, 48, 48, 3, 2, depthwise=True),
        operations.attention(2, 37, 64),
        operations.attention(1, 130, 32),
    )
}


def _variants(target: str, name: str) -> tuple[list[programs.Hand], Any]:
    """All of them, and the right result."""
    case = SMALL[name]
    model = case.make()
    weights = [onnx.numpy_helper.to_array(tensor) for tensor in model.graph.initializer]
    arrays = case.arrays()
    (right,) = bench.expected(bench.session(model.SerializeToString()), arrays).values()
    given = list(arrays.values())
    return list(programs.variants(target, case.kind, given, weights, case.numbers)), right


@pytest.mark.parametrize("name", SMALL)
@pytest.mark.parametrize("target", programs.TARGETS)
def test_every_variant_computes_the_same(
    target: str, name: str, request: pytest.FixtureRequest
) -> None:
    device = request.getfixturevalue(f"{target}_device")
    hands, right = _variants(target, name)
    for hand in hands:
        done, result = replayed.by_hand(device, target, hand)
        assert bench.error(result, right) < 2e-5, hand.name
        assert done.launches == len(hand.steps)
        done.close()


@pytest.mark.parametrize("name", SMALL)
def test_cuda_compiles_for_orin_and_hopper(name: str) -> None:
    for hand in _variants("cuda", name)[0]:
        files = compiler.build(kernel_file(hand.program("cuda")), ["sm_87", "sm_90"], pytest.fail)
        assert len(files) == 4


@pytest.mark.parametrize("target", ["webgpu", "qcom"])
def test_both_sides_are_measured(
    target: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In processes of their own: they agree, by the processor's clock and by the device's."""
    monkeypatch.setattr(sides, "CACHE", tmp_path)
    monkeypatch.setattr(overhead, "LENGTHS", (1, 3))
    monkeypatch.setattr(overhead, "TRIES", 1)
    chosen = {name: SMALL[name] for name in ("copy 1.003K", "matmul 70", "sum 10.003K")}
    effort = Effort(rounds=1, block=0.0, warm=0.0, most_warm=1)
    result = operate.measure(
        chosen, operations.DEVICE_SIDES, effort, lambda _: None, split=True, target=target
    )
    assert result["fma"] > 0 and result["clock"] in ("cpu", "device")
    words = ("open", "lookup", "create", "bind", "launch", "wait", "run of one launch")
    for word, (name, spent) in zip(words, result["overhead"]["steps"].items(), strict=True):
        assert name.startswith(word) and spent["least"] > 0
    for row in result["rows"]:
        for side in operations.DEVICE_SIDES:
            assert row["sides"][side]["off"] < 2e-5
            assert set(row["sides"][side]) == {"off", "cpu", "wall", "device"}
    text = report.markdown(result)
    assert result["device"] in text and "| matmul 70 |" in text
    assert "| run: each launch, " in text and "second thread" not in text
    for table in text.split("\n\n"):
        assert len({line.count("|") for line in table.splitlines()}) == 1


def test_where_the_device_is_another_its_clock_tells() -> None:
    """Its seconds stand in the place of the processor's; a side without them keeps its own."""
    facts = {"cpu": {"median": 3.0}, "device": {"median": 1.0}}
    row = {"sides": {"tinyedge": facts, "onnxruntime": {"cpu": {"median": 2.0}}}}
    told = report._clocked({"clock": "device", "rows": [row]})["rows"][0]["sides"]
    assert (told["tinyedge"]["cpu"]["median"], told["onnxruntime"]["cpu"]["median"]) == (1.0, 2.0)
    assert report._clocked({"clock": "cpu", "rows": [row]})["rows"][0] is row


def test_without_a_gpu(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """It says so, and asks for nothing else."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert __main__.main(["copy", "--target", "cuda"]) == 1
    first, second, *_ = capsys.readouterr().err.splitlines()
    assert first == "DeviceError: the cuda device [device.missing]"
    assert second.startswith("  because    ")


def test_a_gpu_is_lent_for_both_studies(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """One that fails does not keep the other."""
    asked: list[list[str]] = []

    def fail(words: list[str]) -> int:
        asked.append(words)
        return 1

    monkeypatch.setattr(__main__, "main", fail)
    assert __main__.gpu(["--json", str(tmp_path / "found")]) == 1
    assert [words[0] for words in asked] == ["--target", "models"]
    assert all("cuda" in words for words in asked)
