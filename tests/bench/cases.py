"""The models that are measured: their files, the sizes they get and the inputs of a run."""

from __future__ import annotations

import argparse
import contextlib
import functools
import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from tests import models
from tests.realmodels import library, weights
from tests.study import networks, quantized

Array = np.ndarray[Any, Any]
CACHE = Path(__file__).resolve().parents[2] / ".cache" / "bench"

_INTEGERS = {np.dtype(np.int32), np.dtype(np.int64)}
_NUMPY = {
    "tensor(float)": np.float32,
    "tensor(double)": np.float64,
    "tensor(int32)": np.int32,
    "tensor(int64)": np.int64,
}


@dataclass(frozen=True)
class Case:
    """A model at fixed sizes. `dims` are keys of `--dim`, such as `x[2]`; leading axes are 1."""

    model: str
    size: str
    dims: Mapping[str, int] = field(default_factory=dict)
    high: Mapping[str, int] = field(default_factory=dict)
    """Integer inputs are drawn from [0, high); from {1} where high is 1."""
    scale: float = 1.0
    """Real inputs are normal with this deviation."""
    writing: bool = False
    """Real inputs are a picture of lines of strokes: noise makes a text detector's outputs tiny."""
    make: Callable[[], Any] | None = None
    """Gives the model, or its file, where it is not a real one; its own sizes are fixed then."""
    draw: Callable[[], Mapping[str, Array]] | None = None
    """Gives the inputs, where they are not random numbers."""

    @property
    def path(self) -> Path:
        if self.make is not None:
            return _written(self.model, self.make)
        with contextlib.redirect_stdout(io.StringIO()):
            return models.path(self.model)


CASES = {
    case.model: case
    for case in (
        Case("pnet", "48x48", {"input_1[1]": 48, "input_1[2]": 48}),
        Case("rnet", "24x24"),
        Case("onet", "48x48"),
        Case("opennsfw", "224x224", scale=60.0),
        Case("common_det", "416x416", scale=60.0),
        Case("ocr_det", "160x160", {"x[2]": 160, "x[3]": 160}, writing=True),
        Case("ocr_rec", "48x320", {"x[2]": 48, "x[3]": 320}, writing=True),
        Case(
            "minilm",
            "64 tokens",
            {"input_ids[1]": 64, "attention_mask[1]": 64},
            {"input_ids": 30522, "attention_mask": 1},
        ),
        Case("magika", "2048 bytes", {}, {"bytes": 257}),
        Case("swift_f0", "16000 samples", {"audio[1]": 16000}, scale=0.1),
    )
}


def _driving() -> Path:
    from tests.process_replay import corpus

    return corpus.driving()[0]


# of random weights, and the example
NETWORKS = {
    case.model: case
    for case in (
        *(
            Case(name, size, make=networks.NETWORKS[name])
            for name, size in {
                "mobilenet_v2": "224x224",
                "efficientnet_b0": "224x224",
                "resnet18": "224x224",
                "yolo_like": "320x320",
                "unet": "128x128",
                "vit_tiny": "224x224",
                "bert": "128 rows",
                "gpt_step": "after 128 tokens",
            }.items()
        ),
        Case("driving", "a frame", make=_driving),
    )
}


def _known(name: str, entry: str) -> Case:
    load, dims = library.ENTRIES[entry].load, library.ENTRIES[entry].dims
    sizes = {axis: size for axis, size in dims.items() if isinstance(size, int)}
    return Case(name, "", sizes, make=load, draw=lambda: library.feeds(entry)[-1])


# the study's others
MORE = {
    case.model: case
    for case in (
        Case("resnet50", "224x224", make=networks.NETWORKS["resnet50"]),
        Case("mobilenet_v2_int8", "224x224", make=lambda: quantized.int8(networks.mobilenet_v2)),
        *(_known(name, name) for name in ("common", "slider", "smart_turn")),
        *(_known(f"light_{name}", name) for name in weights.names()),
    )
}
ALL = {**CASES, **NETWORKS, **MORE}


def add_models(parser: argparse.ArgumentParser, left_out: Sequence[str] = ()) -> None:
    """The argument that names some of ALL. left_out: those that are not measured by default."""
    names, but = ", ".join(ALL), f" but {', '.join(left_out)}" if left_out else ""
    parser.add_argument(
        "models", nargs="*", metavar="MODEL", help=f"of {names}; default: the first 19{but}"
    )


def chosen(
    parser: argparse.ArgumentParser, names: Sequence[str], left_out: Sequence[str] = ()
) -> list[str]:
    """The models that were named, or the first 19; real ones are installed. Others are an error."""
    if unknown := sorted(set(names) - set(ALL)):
        parser.error(f"no model called {', '.join(unknown)}; there are {', '.join(ALL)}")
    found = list(names) or [name for name in (*CASES, *NETWORKS) if name not in left_out]
    models.paths([name for name in found if name in CASES])
    return found


@functools.cache
def _written(name: str, make: Callable[[], Any]) -> Path:
    made = make()
    if isinstance(made, Path):
        return made
    CACHE.mkdir(parents=True, exist_ok=True)
    path = CACHE / f"{name}.onnx"
    onnx.save(made, path)
    return path


def session(path: Path | bytes) -> Any:
    """The reference: onnxruntime on the CPU."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.add_session_config_entry("session.disable_quant_qdq", "1")  # rounds where the file says
    source = path if isinstance(path, bytes) else str(path)
    return onnxruntime.InferenceSession(source, options, providers=["CPUExecutionProvider"])


def inputs(case: Case, runner: Any) -> dict[str, Array]:
    """One set of inputs, the same each time. runner: the model's `session`."""
    if case.draw is not None:
        return dict(case.draw())
    if case.make is not None:
        return networks.feeds(onnx.load(case.path))
    generator = np.random.default_rng(7)
    arrays: dict[str, Array] = {}
    for port in runner.get_inputs():
        shape = [
            case.dims.get(f"{port.name}[{axis}]", size if isinstance(size, int) else 1)
            for axis, size in enumerate(port.shape)
        ]
        kind = _NUMPY[port.type]
        if np.issubdtype(kind, np.integer):
            high = case.high.get(port.name, 2)
            values = generator.integers(0, high, shape) if high > 1 else np.ones(shape)
        elif port.name in ("fmin", "fmax"):
            values = np.full(shape, {"fmin": 46.875, "fmax": 2093.75}[port.name])
        elif case.writing:
            values = _writing(shape, generator)
        else:
            values = generator.normal(0, case.scale, shape)
        arrays[port.name] = np.asarray(values).astype(kind)
    return arrays


def _writing(shape: list[int], generator: np.random.Generator) -> Array:
    """Dark strokes on white in lines of 16 pixels, between 1 and -1, with a little noise."""
    height, width = shape[2:]
    strokes = np.repeat(generator.random((height // 4, width // 2)) < 0.5, 2, axis=1)
    lines = np.arange(height) % 48 < 16
    ink = np.repeat(strokes, 4, axis=0)[:height, :width] & lines[:, None]
    return np.where(ink, -1.0, 1.0) + generator.normal(0, 0.05, shape)


def expected(runner: Any, arrays: Mapping[str, Array]) -> dict[str, Array]:
    """The right outputs by name."""
    names = [port.name for port in runner.get_outputs()]
    return dict(zip(names, runner.run(None, dict(arrays)), strict=True))


def as_said(array: Array, right: Array) -> Array:
    """An output as ONNX says it: some give images with their channels last, and integers of 32
    bits for those of 64.
    """
    if array.ndim == right.ndim > 2 and array.shape != right.shape:
        moved = np.moveaxis(array, -1, 1)
        array = moved if moved.shape == right.shape else array
    return array.astype(right.dtype) if {array.dtype, right.dtype} == _INTEGERS else array


def error(actual: Array, right: Array) -> float:
    """max|a-b| / max|b| where both are numbers; infinity where shape, NaN or integers differ."""
    actual, right = np.asarray(actual), np.asarray(right)
    if actual.shape != right.shape:
        return float("inf")
    if right.dtype.kind != "f":
        return 0.0 if np.array_equal(actual, right) else float("inf")
    finite = np.isfinite(right)
    if not np.array_equal(actual[~finite], right[~finite], equal_nan=True):
        return float("inf")
    if not np.isfinite(actual[finite]).all():
        return float("inf")
    if not finite.any():
        return 0.0
    scale = float(np.abs(right[finite]).max())
    return float(np.abs(actual[finite] - right[finite]).max()) / (scale or 1.0)


def export(case: Case, *, golden: bool = True, optimize: bool = True) -> Path:
    """The case's bundle for webgpu, freshly exported. Raises TinyedgeError."""
    import tinyedge

    CACHE.mkdir(parents=True, exist_ok=True)
    return tinyedge.export_onnx(
        case.path,
        target="webgpu",
        out=CACHE / f"{case.model}.tinyedge",
        dims=dict(case.dims),
        golden=golden,
        optimize=optimize,
        force=True,
    )
