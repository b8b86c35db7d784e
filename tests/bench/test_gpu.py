"""The benchmark of GPUs: both of its sides compile and agree; without a GPU it says so."""

from __future__ import annotations

import pytest

from tests.bench import gpu
from tests.cuda.device import CompilingDevice
from tinyedge.export.bundle.writing import kernel_file
from tinyedge.targets.cuda import compiler


@pytest.mark.parametrize("case", gpu.cases(1), ids=lambda case: case.name)
def test_both_sides_compile(case: gpu.Case) -> None:
    """At full size, for Orin and for a GPU of a data center."""
    for program in (gpu.ours(case), gpu.by_hand(case)):
        files = compiler.build(kernel_file(program), ["sm_87", "sm_90"], pytest.fail)
        assert len(files) == 4


def test_both_sides_agree(cuda_device: CompilingDevice) -> None:
    """At small sizes, on whatever runs CUDA kernels here."""
    for case in gpu.cases(256, 256):
        found = gpu.measure(cuda_device, case, lambda program: program, rounds=1)
        assert found["error"] <= gpu.AGREEMENT and found["launches"] == 1
        assert case.name in gpu.line(found)


def test_without_a_gpu(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    from cuda.bindings import driver

    status = driver.CUresult.CUDA_ERROR_NO_DEVICE
    monkeypatch.setattr(driver, "cuInit", lambda flags: (status,))
    assert gpu.main([]) == 3
    assert "CUDA_ERROR_NO_DEVICE" in capsys.readouterr().err
