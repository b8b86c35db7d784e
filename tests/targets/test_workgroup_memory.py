"""What a bundle says that its kernels share in a workgroup is what their text declares."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np
import pytest

from tests.agreement import Inputs, compiled, find_target
from tinyedge.core import dtype as dt
from tinyedge.core.compiler.options import Options
from tinyedge.core.program.program import Program, launches
from tinyedge.core.tensor.tensor import Tensor

# How each language declares workgroup memory, and how it spells a barrier.
DECLARED = {
    "webgpu": r"var<workgroup> \w+: array<(?:vec(?P<lanes>\d)<)?(?P<type>\w+)>?, (?P<size>\d+)>;",
    "qcom": r"__local (?P<type>[a-z]+)(?P<lanes>\d?) \w+\[(?P<size>\d+)\];",
    "cuda": r"__shared__ (?P<type>[a-z ]+?)(?P<lanes>\d?) \w+\[(?P<size>\d+)\];",
}
BARRIERS = {
    "webgpu": "workgroupBarrier();",
    "qcom": "barrier(CLK_LOCAL_MEM_FENCE);",
    "cuda": "__syncthreads();",
}
BYTES = {
    **{"f32": 4, "i32": 4, "u32": 4},
    **{"float": 4, "int": 4, "uint": 4, "unsigned int": 4, "long": 8, "long long": 8, "double": 8},
    **{"short": 2, "ushort": 2, "char": 1, "uchar": 1, "signed char": 1, "unsigned char": 1},
}

Build = Callable[[Tensor], dict[str, Tensor]]


def _floats(x: Tensor) -> dict[str, Tensor]:
    return {"y": x.softmax(-1), "z": x.sum(0)}


def _integers(x: Tensor) -> dict[str, Tensor]:
    return {"y": (x * 100).cast(dt.int32).sum(-1), "z": (x * 9).cast(dt.int8).max(-1)}


def _truths(x: Tensor) -> dict[str, Tensor]:
    return {"y": (x > 3).max(-1)}


def declared(target: str, source: str) -> int:
    return sum(
        BYTES[found["type"]] * int(found["lanes"] or 1) * int(found["size"])
        for found in re.finditer(DECLARED[target], source)
    )


def program(target: str, profile: str, build: Build) -> Program:
    inputs = Inputs()
    x = inputs.new(np.ones((16, 2048), np.float32))
    made = compiled(build(x), inputs, find_target(target), Options(profile=profile)).program
    assert made is not None
    return made


@pytest.mark.parametrize("build", [_floats, _integers, _truths])
@pytest.mark.parametrize(
    ("target", "profile"), [("webgpu", "default"), ("qcom", "local"), ("cuda", "default")]
)
def test_workgroup_bytes(target: str, profile: str, build: Build) -> None:
    made = program(target, profile, build)
    most = max(declared(target, kernel.source) for kernel in made.kernels)
    assert made.requirements["workgroup_bytes"] == most
    if build is _floats:
        assert most > 0
    barriers = [kernel.source.count(BARRIERS[target]) for kernel in made.kernels]
    steps = launches(made.entries[0].steps)
    assert made.options["counters"]["barriers"] == sum(barriers[step.kernel] for step in steps)


@pytest.mark.parametrize("target", ["cpu", "qcom"])
def test_no_workgroup_memory(target: str) -> None:
    made = program(target, "default", lambda x: {"y": x.softmax(-1)})
    assert made.requirements["workgroup_bytes"] == 0
    assert made.options["counters"]["barriers"] == 0
