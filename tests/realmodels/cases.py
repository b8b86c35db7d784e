"""What is exported of each model, and what it is given: fixed, symbolic sizes, half storage."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from tests import models
from tests.bench.cases import error, session
from tests.realmodels import inputs as draw
from tests.realmodels.inputs import Array, Arrays

TOLERANCE = 1e-4
HALF_TOLERANCE = 2e-2

# Exported with precision="fp16" as well, and how far their outputs may be off.
HALF = {"opennsfw": HALF_TOLERANCE, "minilm": HALF_TOLERANCE, "ocr_det": HALF_TOLERANCE}

_FILE = models.CACHE.parents[1] / "tinyedge" / "core" / "ir" / "uop.py"


@dataclass(frozen=True)
class Symbolic:
    """One bundle for many sizes."""

    dims: Mapping[str, int | str]  # as of `--dim`
    sizes: tuple[tuple[int, ...], ...]  # arguments of the case's `make`


@dataclass(frozen=True)
class Case:
    """A model at fixed sizes, and its inputs for sizes."""

    model: str
    make: Callable[..., Arrays]
    size: tuple[int, ...] = ()
    dims: Mapping[str, int | str] = field(default_factory=dict)
    spare: int = 12  # launches beyond the contractions
    symbolic: Symbolic | None = None


def _pitch(samples: int) -> Arrays:
    lowest, highest = np.array(46.875, np.float32), np.array(2093.75, np.float32)
    return {"audio": draw.sweep(samples), "fmin": lowest, "fmax": highest}


CASES = {
    case.model: case
    for case in (
        Case(
            "pnet",
            lambda height, width: {"input_1": draw.face(height, width)},
            (48, 40),
            {"input_1[1]": 48, "input_1[2]": 40},
            symbolic=Symbolic(
                {"input_1[1]": "12..96", "input_1[2]": "12..96"},
                ((12, 12), (41, 36), (13, 95), (96, 96), (12, 12)),
            ),
        ),
        Case("rnet", lambda: {"input_2": draw.face(24, 24)}),
        Case("onet", lambda: {"input_3": draw.face(48, 48)}),
        Case("opennsfw", lambda: {"input:0": draw.classified()}),
        Case("common_det", lambda: {"images": draw.captcha()}),
        Case(
            "ocr_det",
            lambda height, width: {"x": draw.detected(height, width)},
            (160, 160),
            {"x[2]": 160, "x[3]": 160},
            symbolic=Symbolic(
                {"x[2]": "32..640:32", "x[3]": "32..640:32"},
                ((32, 32), (96, 224), (640, 640), (32, 32)),
            ),
        ),
        Case(
            "ocr_rec",
            lambda width: {"x": draw.recognized(width)},
            (320,),
            {"x[2]": 48, "x[3]": 320},
            spare=25,
            symbolic=Symbolic({"x[2]": 48, "x[3]": "32..640:8"}, ((32,), (200,), (640,), (32,))),
        ),
        Case(
            "minilm",
            draw.sentence,
            (1, 64),
            {"input_ids[1]": 64, "attention_mask[1]": 64},
            spare=25,
            symbolic=Symbolic(
                {"batch_size": "1..4", "sequence_length": "1..128"},
                ((1, 1), (2, 19), (4, 128), (1, 64), (1, 1)),
            ),
        ),
        Case("magika", lambda: {"bytes": draw.file_bytes(_FILE)}),
        Case("swift_f0", _pitch, (16000,), {"audio[1]": 16000}),
    )
}
SYMBOLIC = {name: case.symbolic for name, case in CASES.items() if case.symbolic is not None}


def feeds(model: str, size: tuple[int, ...] | None = None) -> Arrays:
    """A model's inputs: of the fixed sizes, or of `size`."""
    case = CASES[model]
    return case.make(*(case.size if size is None else size))


@cache
def _session(model: str) -> Any:
    return session(models.path(model))


@cache
def expected(model: str, size: tuple[int, ...] | None = None) -> Mapping[str, Array]:
    """What onnxruntime computes for `feeds(model, size)`."""
    runner = _session(model)
    names = [port.name for port in runner.get_outputs()]
    return dict(zip(names, runner.run(None, feeds(model, size)), strict=True))


def errors(actual: Mapping[str, Array], right: Mapping[str, Array]) -> dict[str, float]:
    """max|a-b| / max|b| of each output; infinity for another set, type, shape or integer."""
    if set(actual) != set(right):
        return {"outputs": float("inf")}
    return {
        name: error(actual[name], array) if actual[name].dtype == array.dtype else float("inf")
        for name, array in right.items()
    }


@cache
def contractions(model: str) -> tuple[str, ...]:
    """The nodes that multiply and add (Conv, ConvTranspose, MatMul, Gemm), as bundles name them."""
    import onnx

    graph = onnx.load(models.path(model), load_external_data=False).graph
    return tuple(
        node.name or f"{node.op_type}_{number}"
        for number, node in enumerate(graph.node)
        if node.op_type in ("Conv", "ConvTranspose", "MatMul", "Gemm")
    )


def export(
    model: str,
    out: Path,
    *,
    target: str = "webgpu",
    symbolic: bool = False,
    precision: str | None = "fp32",
    profile: str = "default",
    winograd: bool = True,
    golden: bool = False,
    progress: Callable[..., None] | None = None,
) -> Path:
    """A model's bundle. Raises TinyedgeError."""
    import tinyedge

    return tinyedge.export_onnx(
        models.path(model),
        target=target,
        out=out,
        dims=dict(SYMBOLIC[model].dims if symbolic else CASES[model].dims),
        precision=precision,
        profile=profile,
        winograd=winograd,
        golden=golden,
        progress=progress,
    )
