"""What a bundle says that its kernels share in a workgroup is what their text declares."""

from __future__ import annotations

import re

import numpy as np
import pytest

from tests.agreement import Inputs, compiled, find_target
from tinyedge.core.compiler.options import Options

DECLARED = {
    "webgpu": r"var<workgroup> \w+: array<(?:vec(?P<lanes>\d)<)?\w+>?, (?P<size>\d+)>;",
    "qcom": r"__local [a-z]+(?P<lanes>\d?) \w+\[(?P<size>\d+)\];",
    "cuda": r"__shared__ [a-z]+(?P<lanes>\d?) \w+\[(?P<size>\d+)\];",
}
BYTES = 4  # of a float


def declared(target: str, source: str) -> int:
    return sum(
        BYTES * int(found["lanes"] or 1) * int(found["size"])
        for found in re.finditer(DECLARED[target], source)
    )


@pytest.mark.parametrize(
    ("target", "profile"), [("webgpu", "default"), ("qcom", "local"), ("cuda", "default")]
)
def test_workgroup_bytes(target: str, profile: str) -> None:
    inputs = Inputs()
    x = inputs.new(np.ones((16, 2048), np.float32))
    options = Options(profile=profile)
    program = compiled({"y": x.softmax(-1), "z": x.sum(0)}, inputs, find_target(target), options)
    assert program.program is not None
    most = max(declared(target, kernel.source) for kernel in program.program.kernels)
    said = program.program.requirements["workgroup_bytes"]
    assert most > 0
    # Warps need less: they shuffle before they share.
    assert said >= most if target == "cuda" else said == most


@pytest.mark.parametrize("target", ["cpu", "qcom"])
def test_no_workgroup_memory(target: str) -> None:
    inputs = Inputs()
    x = inputs.new(np.ones((16, 2048), np.float32))
    program = compiled({"y": x.softmax(-1)}, inputs, find_target(target), Options()).program
    assert program is not None and program.requirements["workgroup_bytes"] == 0
