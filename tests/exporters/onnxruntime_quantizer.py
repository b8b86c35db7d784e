"""onnxruntime's quantizers, static (QDQ and QOperator) and dynamic, their options one by one."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import onnx
from onnxruntime.quantization import (
    CalibrationDataReader,
    CalibrationMethod,
    QuantFormat,
    QuantType,
    quantize_dynamic,
    quantize_static,
)
from onnxruntime.quantization.shape_inference import quant_pre_process

from tests.exporters.networks import NETWORKS, feeds
from tests.exporters.recipes import Array, Recipe, main

S8, U8, S16, U16 = QuantType.QInt8, QuantType.QUInt8, QuantType.QInt16, QuantType.QUInt16
S4, U4, F8 = QuantType.QInt4, QuantType.QUInt4, QuantType.QFLOAT8E4M3FN
QDQ, QOPERATOR = QuantFormat.QDQ, QuantFormat.QOperator
# A number beside the middle of a step goes to either side, and layers add that up: by operators
# alone, on the same inputs, one element of some 50,000 is one step beside.
TOLERANCE = 0.1


class Samples(CalibrationDataReader):
    """Four inputs, by which ranges are found."""

    def __init__(self, model: Any) -> None:
        self.left = iter([feeds(model, seed) for seed in range(1, 5)])

    def get_next(self) -> Any:
        return next(self.left, None)


def static(network: str, opset: int, folded: bool, **options: Any) -> Callable[[Path], Any]:
    """A writer. folded: whether onnxruntime's preparation, which folds batch norms, comes first."""

    def write(path: Path) -> Mapping[str, Array]:
        model = NETWORKS[network](opset)
        given = feeds(model)
        if folded:
            with tempfile.TemporaryDirectory() as folder:
                before, after = Path(folder) / "before.onnx", Path(folder) / "after.onnx"
                onnx.save(model, before)
                quant_pre_process(before, after, skip_symbolic_shape=True)
                quantize_static(after, path, Samples(model), **options)
        else:
            quantize_static(model, path, Samples(model), **options)
        return given

    return write


# Options for both formats, for QDQ in newer operator sets, and beside types of 8 bits.
BOTH: Mapping[str, dict[str, Any]] = {
    "s8s8": {},
    "u8s8": {"activation_type": U8},
    "u8u8": {"activation_type": U8, "weight_type": U8},
    "per_channel": {"activation_type": U8, "per_channel": True},
    "reduce_range": {"activation_type": U8, "reduce_range": True},
    "per_channel_reduced": {"activation_type": U8, "per_channel": True, "reduce_range": True},
    "symmetric": {"extra_options": {"ActivationSymmetric": True}},
    "weights_asymmetric": {"extra_options": {"WeightSymmetric": False}},
    "forced": {"extra_options": {"ForceQuantizeNoInputCheck": True}},
    "constant_b": {"extra_options": {"MatMulConstBOnly": True}},
}
WIDE: Mapping[str, dict[str, Any]] = {
    "s16s8": {"activation_type": S16},
    "u16u8": {"activation_type": U16, "weight_type": U8},
    "u16u16": {"activation_type": U16, "weight_type": U16},
    "s16s16": {"activation_type": S16, "weight_type": S16},
    "s8s4": {"weight_type": S4},
    "u8u4": {"activation_type": U8, "weight_type": U4},
}
EXTRA: Mapping[str, dict[str, Any]] = {
    "weight_pairs": {"AddQDQPairToWeight": True},
    "float_bias": {"QuantizeBias": False},
    "own_pairs": {"DedicatedQDQPair": True},
    "contrib": {"UseQDQContribOps": True},
    "keep_activations": {"QDQKeepRemovableActivations": True},
    "restricted": {"ActivationRestrictedAsymmetric": True},
    "range_symmetric": {"CalibTensorRangeSymmetric": True},
    "least_range": {"MinimumRealRange": 0.001},
    "no_output": {"OpTypesToExcludeOutputQuantization": ["Conv", "Gemm", "MatMul"]},
    "axis": {"QDQOpTypePerChannelSupportToAxis": {"MatMul": 1, "Gemm": 0}},
}
# Networks that are given every option; the others get what changes their operators.
THOROUGH = ("inverted", "bert")
FEW = ("s8s8", "u8s8", "per_channel", "forced", "s16s8", "u8u4", "weight_pairs", "own_pairs")


def _static() -> Iterator[Recipe]:
    for network in ("plain", "residual", "inverted", "bert", "gpt"):

        def chosen(options: Mapping[str, Any], network: str = network) -> Iterator[tuple[str, Any]]:
            for name, value in options.items():
                if network in THOROUGH or name in FEW:
                    yield name, value

        for name, options in chosen(BOTH):
            for kind in (QDQ, QOPERATOR):
                quick = network in ("plain", "inverted") and name == "u8s8"
                yield _recipe(network, 13, kind, name, options, quick=quick and kind is QOPERATOR)
        for name, options in chosen(WIDE):
            yield _recipe(network, 21, QDQ, name, options)
            if "4" not in name:
                contrib = {**options, "extra_options": {"UseQDQContribOps": True}}
                yield _recipe(network, 13, QDQ, f"{name}_contrib", contrib)
        for name, options in chosen(EXTRA):
            more: dict[str, Any] = {"activation_type": U8, "extra_options": options}
            if name == "axis":
                more["per_channel"] = True
            yield _recipe(network, 13, QDQ, name, more)
        for opset, kind in ((11, QDQ), (11, QOPERATOR), (17, QOPERATOR), (20, QDQ)):
            yield _recipe(network, opset, kind, "u8s8", BOTH["u8s8"])
    for method in (CalibrationMethod.Entropy, CalibrationMethod.Percentile):
        yield _recipe("plain", 13, QDQ, method.name.lower(), {"calibrate_method": method})
    eight: dict[str, Any] = {"activation_type": F8, "weight_type": F8}
    eight["calibrate_method"] = CalibrationMethod.Distribution
    yield _recipe("inverted", 20, QDQ, "f8f8", eight)


def _recipe(
    network: str,
    opset: int,
    kind: QuantFormat,
    name: str,
    options: Mapping[str, Any],
    quick: bool = False,
) -> Recipe:
    label = f"static.{network}.{opset}.{kind.name.lower()}.{name}"
    folded = network in ("residual", "inverted")
    said = ", ".join(f"{key}={value}" for key, value in options.items()) or "as they are"
    return Recipe(
        label,
        f"quantize_static of {network} in opset {opset}, {kind.name}: {said}",
        static(network, opset, folded, quant_format=kind, **options),
        TOLERANCE if "16" not in name else 2e-3,
        quick=quick,
    )


def dynamic(network: str, opset: int, **options: Any) -> Callable[[Path], Any]:
    def write(path: Path) -> Mapping[str, Array]:
        model = NETWORKS[network](opset)
        quantize_dynamic(model, path, **options)
        return feeds(model)

    return write


def _dynamic() -> Iterator[Recipe]:
    variants: Mapping[str, dict[str, Any]] = {
        "s8": {},
        "u8": {"weight_type": U8},
        "per_channel": {"per_channel": True},
        "reduce_range": {"reduce_range": True},
        "products": {"op_types_to_quantize": ["MatMul", "Gemm", "LSTM", "Gather"]},
        "any_b": {"extra_options": {"MatMulConstBOnly": False}},
        "asymmetric": {"extra_options": {"WeightSymmetric": False, "ActivationSymmetric": True}},
        "subgraphs": {"extra_options": {"EnableSubgraph": True}},
    }
    for network in ("plain", "residual", "inverted", "bert", "gpt", "llama", "recurrent"):
        for name, options in variants.items():
            if network in ("plain", "residual", "gpt") and name not in ("s8", "per_channel"):
                continue
            said = ", ".join(f"{key}={value}" for key, value in options.items()) or "as they are"
            opset = 17 if network == "llama" else 14
            yield Recipe(
                f"dynamic.{network}.{name}",
                f"quantize_dynamic of {network} in opset {opset}: {said}",
                dynamic(network, opset, **options),
                TOLERANCE,
                quick=(network, name) in (("inverted", "s8"), ("recurrent", "s8")),
            )


RECIPES = [*_static(), *_dynamic()]

if __name__ == "__main__":
    main(RECIPES, ["onnx", "onnxruntime"])
