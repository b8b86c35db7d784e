"""Kernels of a few representative graphs as committed text, and the same text in every process.

After a change that is meant to change kernels: `pytest tests/golden --update-goldens`, and read the
difference before committing it.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.agreement import Inputs, compiled, find_target
from tinyedge.core.compiler.options import Options
from tinyedge.core.program.program import Program
from tinyedge.core.tensor.tensor import Tensor

HERE = Path(__file__).parent
EXTENSION = {"cpu": "c", "webgpu": "wgsl", "qcom": "cl", "cuda": "cu"}
Build = Callable[[Inputs], dict[str, Tensor]]


def zeros(*shape: int) -> np.ndarray:
    return np.zeros(shape, np.float32)


def matmul(inputs: Inputs) -> dict[str, Tensor]:
    x = inputs.new(zeros(32, 64))
    weight, bias = Tensor.weight("weight", zeros(64, 48)), Tensor.weight("bias", zeros(48))
    return {"y": (x @ weight + bias).relu()}


def convolution(inputs: Inputs) -> dict[str, Tensor]:
    x = inputs.new(zeros(1, 8, 14, 14))
    weight, bias = Tensor.weight("weight", zeros(16, 8, 3, 3)), Tensor.weight("bias", zeros(16))
    return {"y": x.conv(weight, bias, pads=((1, 1), (1, 1))).relu()}


def depthwise(inputs: Inputs) -> dict[str, Tensor]:
    x = inputs.new(zeros(1, 12, 15, 15))
    weight = Tensor.weight("weight", zeros(12, 1, 3, 3))
    return {"y": x.conv(weight, strides=(2, 2), pads=((1, 1), (1, 1)), groups=12)}


def softmax(inputs: Inputs) -> dict[str, Tensor]:
    return {"y": inputs.new(zeros(12, 100)).softmax(-1)}


def layer_norm(inputs: Inputs) -> dict[str, Tensor]:
    x = inputs.new(zeros(7, 96))
    centered = x - x.mean(-1, keepdims=True)
    variance = (centered * centered).mean(-1, keepdims=True)
    scale = Tensor.weight("scale", zeros(96))
    return {"y": centered / (variance + 1e-5).sqrt() * scale}


def concatenation(inputs: Inputs) -> dict[str, Tensor]:
    a, b = inputs.new(zeros(1, 4, 6, 6)), inputs.new(zeros(1, 3, 6, 6))
    return {"y": Tensor.concat([a.relu(), b, a * 2.0], 1)}


def pooling(inputs: Inputs) -> dict[str, Tensor]:
    x = inputs.new(zeros(1, 8, 12, 12))
    windows = x.window(2, 3, 2).window(3, 3, 2)
    return {"most": windows.max((4, 5)), "mean": x.mean((2, 3))}


def statistics(inputs: Inputs) -> dict[str, Tensor]:
    """A kernel of two outputs."""
    x = inputs.new(zeros(12, 96))
    return {"most": x.max(1), "mean": x.mean(1)}


GRAPHS: dict[str, Build] = {
    build.__name__: build
    for build in (
        matmul,
        convolution,
        depthwise,
        softmax,
        layer_norm,
        concatenation,
        pooling,
        statistics,
    )
}


def program_of(name: str, target: str) -> Program:
    inputs = Inputs()
    outputs = GRAPHS[name](inputs)
    program = compiled(outputs, inputs, find_target(target), Options()).program
    assert program is not None
    return program


def text_of(program: Program) -> str:
    """Moves and text of all kernels."""
    parts = []
    for kernel in program.kernels:
        words = []
        for move in kernel.moves:
            fields = " ".join(f"{k}={v}" for k, v in move.items() if k != "move")
            words.append(f"{move['move']} {fields}")
        parts.append(f"// {kernel.name}: {'; '.join(words)}\n{kernel.source}")
    return "\n".join(parts)


@pytest.mark.parametrize("name", GRAPHS)
def test_kernels(name: str, target: str, update_goldens: bool) -> None:
    path = HERE / f"{name}.{EXTENSION[target]}"
    text = text_of(program_of(name, target))
    if update_goldens:
        path.write_text(text, encoding="ascii")
    assert path.is_file(), "run pytest tests/golden --update-goldens"
    assert text == path.read_text(encoding="ascii"), (
        "the kernels changed; if that is meant: pytest tests/golden --update-goldens"
    )


def test_no_golden_is_left_over() -> None:
    wanted = {f"{name}.{extension}" for name in GRAPHS for extension in EXTENSION.values()}
    found = {path.name for path in HERE.iterdir() if path.suffix[1:] in EXTENSION.values()}
    assert found == wanted


def fingerprint() -> str:
    """A digest of everything that is compiled: kernels, steps, memory, weights."""
    digest = hashlib.sha256()
    for target in EXTENSION:
        for name in GRAPHS:
            program = program_of(name, target)
            digest.update(text_of(program).encode())
            digest.update(repr((program.entries, program.buffers, program.arenas)).encode())
            for weight in program.weights:
                assert weight.data is not None
                digest.update(np.ascontiguousarray(weight.data).tobytes())
    return digest.hexdigest()


def test_the_same_in_every_process() -> None:
    """Compiling twice, and with other orders of hashing, gives the same bytes."""
    here = fingerprint()
    assert fingerprint() == here
    script = "from tests.golden.test_golden import fingerprint; print(fingerprint())"
    for seed in ("1", "2"):
        result = subprocess.run(
            [sys.executable, "-c", script],
            cwd=HERE.parent.parent,
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=False,
        )
        assert result.returncode == 0, result.stderr
        assert result.stdout.strip() == here
