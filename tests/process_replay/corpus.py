"""What is compiled: .onnx files and options, made once, for both sides.

Nothing here comes from tinyedge. The golden kernels' graphs are written with onnx's helper, as are
those of the variants; ONNX's suite, the real models and the driving example bring their own files.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

from tests import models
from tinyedge.model import TARGETS

ROOT = Path(__file__).resolve().parents[2]
FILES = ROOT / ".cache" / "process_replay" / "models"
FLOAT = TensorProto.FLOAT
Shape = Sequence[int | str]


@dataclass(frozen=True)
class Case:
    """One export."""

    model: Path
    target: str
    # further arguments of `export_onnx`, with files as paths
    options: dict[str, Any] = field(default_factory=dict)

    def record(self) -> dict[str, Any]:
        return {
            "model": str(self.model),
            "target": self.target,
            "options": {"golden": False, **self.options},
        }

    def files(self) -> Iterator[Path]:
        """The files it reads."""
        yield self.model
        for option in ("entries", "state_init"):
            yield from (Path(file) for file in self.options.get(option, {}).values())


# --- graphs of our own ----------------------------------------------------------------------------


def _model(
    nodes: Sequence[NodeProto],
    inputs: dict[str, Shape],
    outputs: dict[str, Shape],
    weights: dict[str, Any] | None = None,
) -> ModelProto:
    """Floats in, floats out; nodes are named by what they compute."""
    for node in nodes:
        node.name = node.name or f"{node.op_type}_{node.output[0]}"
    held = [numpy_helper.from_array(np.asarray(v), k) for k, v in (weights or {}).items()]
    taken, given = (
        [helper.make_tensor_value_info(name, FLOAT, shape) for name, shape in group.items()]
        for group in (inputs, outputs)
    )
    graph = helper.make_graph(list(nodes), "replay", taken, given, held)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def _random(*shape: int) -> np.ndarray[Any, Any]:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


def _op(kind: str, inputs: str, output: str, **attributes: Any) -> NodeProto:
    return helper.make_node(kind, inputs.split(), output.split(), **attributes)


def matmul() -> ModelProto:
    nodes = [_op("MatMul", "x w", "m"), _op("Add", "m b", "s"), _op("Relu", "s", "y")]
    weights = {"w": _random(64, 48), "b": _random(48)}
    return _model(nodes, {"x": (32, 64)}, {"y": (32, 48)}, weights)


def convolution() -> ModelProto:
    nodes = [_op("Conv", "x w b", "c", pads=[1, 1, 1, 1]), _op("Relu", "c", "y")]
    weights = {"w": _random(16, 8, 3, 3), "b": _random(16)}
    sizes: Shape = (1, "channels", "rows", "columns")
    return _model(nodes, {"x": (1, 8, "rows", "columns")}, {"y": sizes}, weights)


def depthwise() -> ModelProto:
    nodes = [_op("Conv", "x w", "y", strides=[2, 2], pads=[1, 1, 1, 1], group=12)]
    return _model(nodes, {"x": (1, 12, 15, 15)}, {"y": (1, 12, 8, 8)}, {"w": _random(12, 1, 3, 3)})


def softmax() -> ModelProto:
    return _model([_op("Softmax", "x", "y", axis=-1)], {"x": (12, 100)}, {"y": (12, 100)})


def layer_norm() -> ModelProto:
    nodes = [_op("LayerNormalization", "x scale", "y", axis=-1)]
    return _model(nodes, {"x": (7, 96)}, {"y": (7, 96)}, {"scale": _random(96)})


def concatenation() -> ModelProto:
    nodes = [
        *(_op("Relu", "a", "r"), _op("Mul", "a two", "m")),
        _op("Concat", "r b m", "y", axis=1),
    ]
    inputs: dict[str, Shape] = {"a": (1, 4, 6, 6), "b": (1, 3, 6, 6)}
    return _model(nodes, inputs, {"y": (1, 11, 6, 6)}, {"two": np.float32(2)})


def pooling() -> ModelProto:
    nodes = [
        _op("MaxPool", "x", "most", kernel_shape=[3, 3], strides=[2, 2]),
        _op("GlobalAveragePool", "x", "mean"),
    ]
    outputs: dict[str, Shape] = {"most": (1, 8, 5, 5), "mean": (1, 8, 1, 1)}
    return _model(nodes, {"x": (1, 8, 12, 12)}, outputs)


def step() -> ModelProto:
    """A network with memory: a hidden state and a queue of frames."""
    nodes = [
        *(_op("Concat", "frame hidden", "both", axis=1), _op("MatMul", "both w", "m")),
        *(_op("Tanh", "m", "hidden_out"), _op("ReduceMean", "frames", "mean", axes=[1])),
        _op("Add", "hidden_out mean", "y"),
    ]
    inputs: dict[str, Shape] = {"frame": (1, 8), "hidden": (1, 16), "frames": (1, 4, 16)}
    outputs: dict[str, Shape] = {"y": (1, 16), "hidden_out": (1, 16)}
    return _model(nodes, inputs, outputs, {"w": _random(24, 16)})


def newest() -> ModelProto:
    """Another entry, which fills the queue."""
    nodes = [_op("MatMul", "image v", "m"), _op("Reshape", "m shape", "frames_out")]
    weights = {"v": _random(8, 16), "shape": np.array([1, 1, 16])}
    return _model(nodes, {"image": (1, 8)}, {"frames_out": (1, 1, 16)}, weights)


def loop() -> ModelProto:
    """A Loop whose number of turns its condition decides."""
    empty = helper.make_tensor_value_info
    body = helper.make_graph(
        [
            *(_op("MatMul", "a w", "p"), _op("Tanh", "p", "next")),
            *(_op("ReduceMax", "next", "most", keepdims=0), _op("Greater", "most least", "on")),
        ],
        "body",
        [
            empty("i", TensorProto.INT64, []),
            empty("was", TensorProto.BOOL, []),
            empty("a", FLOAT, [1, 16]),
        ],
        [empty("on", TensorProto.BOOL, []), empty("next", FLOAT, [1, 16])],
    )
    nodes = [_op("Loop", "turns yes x", "y", body=body)]
    weights = {
        "turns": np.array(7),
        "yes": np.array(True),
        "w": _random(16, 16),
        "least": np.float32(0.1),
    }
    return _model(nodes, {"x": (1, 16)}, {"y": (1, 16)}, weights)


def counted() -> ModelProto:
    """Rows that only a run counts: those that NonZero finds."""
    nodes = [
        *(_op("NonZero", "x", "where"), _op("Cast", "where", "f", to=FLOAT)),
        _op("Mul", "f half", "y"),
    ]
    return _model(nodes, {"x": (6, 8)}, {"y": (2, "found")}, {"half": np.float32(0.5)})


GRAPHS = {
    make.__name__: make
    for make in (
        *(matmul, convolution, depthwise, softmax, layer_norm, concatenation, pooling),
        *(step, newest, loop, counted),
    )
}
GOLDEN = tuple(GRAPHS)[:7]

# --- what is taken from elsewhere -----------------------------------------------------------------

# Of every family of operators a few; the first 12 are the quick corpus's.
SUITE = tuple(
    """
    lstm_with_peepholes resize_upsample_scales_cubic qlinearconv attention_4d_gqa scatternd
    convtranspose_pads gridsample_bilinear top_k einsum_batch_matmul cumsum_2d_axis_1
    reduce_log_sum_exp_keepdims_random nonmaxsuppression_two_classes
    abs add_bcast add_uint8 and_bcast4v3d argmax_keepdims_random averagepool_2d_same_upper
    batchnorm_example bitshift_left_uint16 bitwise_xor_i32_2d cast_FLOAT_to_FLOAT16
    clip_default_int8_min col2im_pads compress_0 constant_pad conv_with_autopad_same cumprod_1d
    depthtospace_crd_mode_example dequantizelinear_blocked det_nd dft_irfft
    dynamicquantizelinear edge_pad expand_dim_changed flatten_axis2 gather_elements_0
    gathernd_example_float32 gelu_tanh_2 gemm_all_attributes group_normalization_example
    gru_bidirectional hardmax_axis_1 instancenorm_epsilon layer_normalization_3d_axis1_epsilon
    linear_attention_gated_delta logsoftmax_axis_1 lppool_2d_dilations lrn matmulinteger
    maxpool_2d_ceil maxunpool_export_without_output_shape mod_mixed_sign_int32 onehot_with_axis
    pow_types_float32_int32 quantizelinear_axis reflect_pad roialign_aligned_true
    slice_neg_steps where_example
    """.split()
)
# Inputs of the suite's models that must be known at export: they become constants.
CONSTANT = frozenset(
    "axes axis block_shape depth dft_length ends image_shape k new_shape pads repeats "
    "scales shape sizes starts steps".split()
)
REAL: dict[str, dict[str, Any]] = {
    "pnet": {"dims": {"input_1[1]": 48, "input_1[2]": 40}},
    "onet": {},
    "ocr_det": {"dims": {"x[2]": 160, "x[3]": 160}},
    "minilm": {"dims": {"input_ids[1]": 64, "attention_mask[1]": 64}},
    "swift_f0": {"dims": {"audio[1]": 16000}},
}
NARROW = ("--width", "0.25", "--camera", "302x482")


def _write(file: Path, model: ModelProto) -> Path:
    """A model's file, whole at any time, so that runs at the same time do not meet."""
    file.parent.mkdir(parents=True, exist_ok=True)
    part = file.with_suffix(f".{os.getpid()}")
    part.write_bytes(model.SerializeToString(deterministic=True))
    os.replace(part, file)
    return file


def _with_constants(model: ModelProto, arrays: Sequence[Any]) -> ModelProto:
    """A copy of the model with those of its inputs that must be constants as initializers.

    The loader of the suite gives every caller of the process the same models.
    """
    changed = ModelProto()
    changed.CopyFrom(model)
    for port, array in zip(list(changed.graph.input), arrays, strict=True):
        if port.name in CONSTANT:
            changed.graph.initializer.append(numpy_helper.from_array(np.asarray(array), port.name))
            changed.graph.input.remove(port)
    return changed


def suite_files(names: Sequence[str]) -> dict[str, Path]:
    """Models of ONNX's suite, which this version of onnx makes. Raises KeyError."""
    changed = hashlib.sha256(repr(sorted(CONSTANT)).encode()).hexdigest()[:8]
    folder = FILES / f"suite-{onnx.__version__}-{changed}"
    files = {name: folder / f"{name}.onnx" for name in names}
    if not all(file.is_file() for file in files.values()):
        from onnx.backend.test.loader import load_model_tests

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of numpy, about the overflows that the suite tests
            made: dict[str, Any] = {case.name: case for case in load_model_tests(kind="node")}
        for name, file in files.items():
            case = made[f"test_{name}"]
            _write(file, _with_constants(case.model, case.data_sets[0][0]))
    return files


def driving() -> tuple[Path, dict[str, Any]]:
    """The driving example with a narrow network: its model, and the options of its Makefile."""
    folder = FILES / "driving"
    script = ROOT / "examples" / "driving" / "model.py"
    subprocess.run((sys.executable, script, folder, *NARROW), check=True, stdout=subprocess.DEVNULL)
    states = {
        **{name: f"{name[:-1]}:shift:keep" for name in ("frames", "wide_frames")},
        **{name: f"{name}_out:shift" for name in ("features", "desires")},
        "last_desire": "last_desire_out",
    }
    options = {
        "entries": {name: str(folder / f"{name}.onnx") for name in ("frame", "wide_frame")},
        "states": states,
        "state_init": {name: str(folder / f"{name}.npy") for name in ("frames", "wide_frames")},
        "slices": json.loads((folder / "slices.json").read_text("ascii")),
    }
    return folder / "drive.onnx", options


# --- the corpora ----------------------------------------------------------------------------------


def _variants(files: dict[str, Path]) -> Iterator[tuple[str, Case]]:
    """What options change. qcom's usual precision is fp16, the others' fp32."""
    open_sizes = {"dims": {"rows": "8..32", "columns": "8..32:4"}}
    fixed = {"dims": {"rows": 14, "columns": 14}}
    memory = {
        "entries": {"fill": str(files["newest"])},
        "states": {"hidden": "hidden_out", "frames": "frames_out:shift"},
    }
    for target in TARGETS:
        yield f"convolution {target} open", Case(files["convolution"], target, open_sizes)
        plain = {**fixed, "optimize": False}
        yield f"convolution {target} unoptimised", Case(files["convolution"], target, plain)
        yield f"step {target}", Case(files["step"], target, memory)
        yield f"loop {target}", Case(files["loop"], target)
        yield f"counted {target}", Case(files["counted"], target)
        if target == "cpu":  # it has no halves
            continue
        other = "fp32" if target == "qcom" else "fp16"
        for name in ("matmul", "convolution", "softmax"):
            sizes = fixed if name == "convolution" else {}
            case = Case(files[name], target, {**sizes, "precision": other})
            yield f"{name} {target} {other}", case
    yield "matmul webgpu golden", Case(files["matmul"], "webgpu", {"golden": True})
    buffers = {**fixed, "profile": "buffers"}
    yield "convolution qcom buffers", Case(files["convolution"], "qcom", buffers)


def _small() -> dict[str, Case]:
    files = {name: _write(FILES / f"{name}.onnx", make()) for name, make in GRAPHS.items()}
    cases: dict[str, Case] = {}
    for name in GOLDEN:
        sizes = {"dims": {"rows": 14, "columns": 14}} if name == "convolution" else {}
        cases |= {f"{name} {target}": Case(files[name], target, sizes) for target in TARGETS}
    return cases | dict(_variants(files))


def cases(*, quick: bool) -> dict[str, Case]:
    """The corpus by the cases' names. quick: the graphs of our own, and 12 of ONNX's, each for one
    target. Else all, for every target, with five real models (downloaded once) and the example."""
    small = _small()
    if quick:
        some = suite_files(SUITE[:12]).items()
        turns = {n: (file, TARGETS[i % len(TARGETS)]) for i, (n, file) in enumerate(some)}
        return small | {f"onnx {n} {t}": Case(file, t) for n, (file, t) in turns.items()}
    real = models.paths(REAL)
    drive, options = driving()
    for target in TARGETS:
        small |= {f"onnx {n} {target}": Case(f, target) for n, f in suite_files(SUITE).items()}
        small |= {f"{n} {target}": Case(real[n], target, REAL[n]) for n in REAL}
        small[f"driving {target}"] = Case(drive, target, options)
    return small
