"""Models as ncnn and LiteRT read them, each converted by a program of its own environment.

pnnx converts for ncnn, onnx2tf for LiteRT. Both are given the model with its inputs' sizes written
into it. What came out is kept, a refusal too: converting takes up to minutes.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tests.bench.worker import SideError

ROOT = Path(__file__).resolve().parents[2]
ENVIRONMENTS = ROOT / ".cache" / "study" / "environments"
PATIENCE = 600.0  # seconds of a conversion

Array = np.ndarray[Any, Any]

# onnx2tf fetches pictures to compare by, unless they lie in its folder; it is not asked to compare.
PICTURES = "calibration_image_sample_data_20x128x128x3_float32.npy"
SHORT = {"float32": "f32", "float64": "f64", "int32": "i32", "int64": "i64", "uint8": "u8"}


def python(side: str) -> Path:
    """The interpreter of a side's environment, made by `scripts/setup study`."""
    return ENVIRONMENTS / side / "bin" / "python"


def installed(side: str) -> bool:
    return (ENVIRONMENTS / side / "requirements.txt").exists()


def install(side: str) -> None:
    """The environment of a side, once. Raises RuntimeError with what pip said last."""
    if installed(side):
        return
    command = [str(ROOT / "scripts" / "setup"), "study", side]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{side} is not installed: {_last(done.stderr)}")


def _last(text: str) -> str:
    """The last line that speaks of an error, else the last that says something."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [line for line in lines if "error" in line.lower()]
    return (errors or lines or ["no reason was given"])[-1][-300:]


def fixed(model: Path, arrays: Mapping[str, Array]) -> bytes:
    """The model with the sizes of its inputs; what it says of other sizes is left out."""
    import onnx

    proto = onnx.load(model)
    for port in proto.graph.input:
        if port.name in arrays:
            sizes = port.type.tensor_type.shape
            del sizes.dim[:]
            for length in arrays[port.name].shape:
                sizes.dim.add().dim_value = length
    del proto.graph.value_info[:]
    inferred = onnx.shape_inference.infer_shapes(proto, data_prop=True)
    text: bytes = inferred.SerializeToString()
    return text


@dataclass(frozen=True)
class Converter:
    """The file it makes of `model.onnx` in a folder, by which commands' output."""

    file: str
    convert: Callable[[Path, Mapping[str, Array]], subprocess.CompletedProcess[str]]

    def __call__(self, side: str, model: Path, arrays: Mapping[str, Array], kept: Path) -> Path:
        """The converted file, in a folder of `kept`. Raises SideError with the reason."""
        text = fixed(model, arrays)
        shapes = repr([(name, a.dtype.name, a.shape) for name, a in arrays.items()])
        requirements = (ENVIRONMENTS / side / "requirements.txt").read_bytes()
        key = hashlib.sha256(text + shapes.encode() + requirements).hexdigest()[:16]
        folder = kept / f"{side}-{key}"
        made, refusal = folder / self.file, folder / "refused.txt"
        if not made.exists() and not refusal.exists():
            self._make(folder, text, arrays)
        if refusal.exists():
            raise SideError(refusal.read_text("utf-8"))
        return made

    def _make(self, folder: Path, text: bytes, arrays: Mapping[str, Array]) -> None:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        (folder / "model.onnx").write_bytes(text)
        try:
            done = self.convert(folder, arrays)
        except subprocess.TimeoutExpired as error:  # not kept: the machine may have been busy
            raise SideError(f"not converted after {PATIENCE:.0f} s") from error
        said = f"its converter ended with {done.returncode}: {_last(done.stdout)}"
        (folder / "model.onnx").unlink()
        if not (folder / self.file).exists():
            (folder / "refused.txt").write_text(said, "utf-8")


def _run(command: Sequence[str | Path], folder: Path) -> subprocess.CompletedProcess[str]:
    environment = {
        **os.environ,
        "TF_CPP_MIN_LOG_LEVEL": "3",
        "TF_ENABLE_ONEDNN_OPTS": "0",  # it only folds constants, and oneDNN fails on some machines
        "CUDA_VISIBLE_DEVICES": "",
        "NO_COLOR": "1",
    }
    return subprocess.run(
        [str(word) for word in command],
        cwd=folder,
        env=environment,
        check=False,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        timeout=PATIENCE,
    )


def _pnnx(folder: Path, arrays: Mapping[str, Array]) -> subprocess.CompletedProcess[str]:
    """model.ncnn.param, model.ncnn.bin, and model_ncnn.py, which says what has a batch axis."""
    (program,) = (ENVIRONMENTS / "ncnn").glob("lib/python*/site-packages/pnnx/pnnx")
    shapes = ",".join(
        f"[{','.join(map(str, array.shape))}]{SHORT.get(array.dtype.name, array.dtype.name)}"
        for array in arrays.values()
    )
    done = _run([program, "model.onnx", f"inputshape={shapes}", "fp16=0", "optlevel=2"], folder)
    for file in folder.glob("model.pnnx*"):
        file.unlink()
    return done


def _onnx2tf(folder: Path, arrays: Mapping[str, Array]) -> subprocess.CompletedProcess[str]:
    """model_float32.tflite: images lie in it with their channels last."""
    np.save(folder / PICTURES, np.zeros((20, 128, 128, 3), np.float32))
    program = ENVIRONMENTS / "litert" / "bin" / "onnx2tf"
    done = _run([program, "-i", "model.onnx", "-o", "out", "-n", "-nuo", "-osd"], folder)
    (folder / PICTURES).unlink()
    made = folder / "out" / "model_float32.tflite"
    if made.exists():
        made.rename(folder / made.name)
    shutil.rmtree(folder / "out", ignore_errors=True)
    return done


CONVERTERS = {
    "ncnn": Converter("model.ncnn.param", _pnnx),
    "litert": Converter("model_float32.tflite", _onnx2tf),
}
