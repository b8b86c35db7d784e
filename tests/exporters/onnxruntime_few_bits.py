"""onnxruntime's quantizer of weights to 2, 4 and 8 bits; it needs the package onnx_ir."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from onnxruntime.quantization import QuantFormat
from onnxruntime.quantization.matmul_bnb4_quantizer import MatMulBnb4Quantizer
from onnxruntime.quantization.matmul_nbits_quantizer import (
    DefaultWeightOnlyQuantConfig,
    HQQWeightOnlyQuantConfig,
    MatMulNBitsQuantizer,
    RTNWeightOnlyQuantConfig,
)

from tests.exporters.networks import NETWORKS, feeds
from tests.exporters.recipes import Array, Recipe, main

QDQ = QuantFormat.QDQ


def few_bits(network: str, opset: int, bits: int, config: Any) -> Callable[[Path], Any]:
    def write(path: Path) -> Mapping[str, Array]:
        model = NETWORKS[network](opset)
        quantizer = MatMulNBitsQuantizer(model, bits=bits, algo_config=config)
        quantizer.process()
        quantizer.model.save_model_to_file(str(path))
        return feeds(model)

    return write


def _few_bits() -> Iterator[Recipe]:
    def default(**options: Any) -> Any:
        return DefaultWeightOnlyQuantConfig(**{"block_size": 32, **options})

    both: Sequence[str] = ("MatMul", "Gather")
    variants: Mapping[str, tuple[int, Any]] = {
        "symmetric": (4, default(is_symmetric=True)),
        "asymmetric": (4, default(is_symmetric=False)),
        "block16": (4, default(block_size=16)),
        "block128": (4, default(block_size=128)),
        "level4": (4, default(is_symmetric=True, accuracy_level=4)),
        "rows": (4, default(op_types_to_quantize=both, quant_axes=(("MatMul", 0), ("Gather", 1)))),
        "rows_symmetric": (
            4,
            default(
                is_symmetric=True,
                op_types_to_quantize=both,
                quant_axes=(("MatMul", 0), ("Gather", 1)),
            ),
        ),
        "qdq": (4, default(is_symmetric=True, quant_format=QDQ)),
        "qdq_asymmetric": (4, default(is_symmetric=False, quant_format=QDQ)),
        "bits8": (8, default(bits=8)),
        "bits8_symmetric": (8, default(bits=8, is_symmetric=True)),
        "bits2": (2, default(bits=2)),
        "channels": (4, default(channel_wised_quantize=True, quant_format=QDQ)),
        "rtn": (4, RTNWeightOnlyQuantConfig()),
        "hqq": (4, HQQWeightOnlyQuantConfig(block_size=32)),
    }
    for network, opset in (("bert", 21), ("llama", 21), ("plain", 21)):
        for name, (bits, config) in variants.items():
            yield Recipe(
                f"few_bits.{network}.{name}",
                f"MatMulNBitsQuantizer of {network} in opset {opset}, {bits} bits: {name}",
                few_bits(network, opset, bits, config),
                # from accuracy level 4 on onnxruntime rounds what comes in to 8 bits
                0.05 if name == "level4" else 2e-4,
                quick=network == "llama" and name in ("rows", "qdq"),
            )


def normal_quantiles(network: str, kind: int) -> Callable[[Path], Any]:
    def write(path: Path) -> Mapping[str, Array]:
        model = NETWORKS[network](21)
        given = feeds(model)
        quantizer = MatMulBnb4Quantizer(model, kind, 64)
        quantizer.process()
        quantizer.model.save_model_to_file(str(path))
        return given

    return write


def _bnb4() -> Iterator[Recipe]:
    for network in ("bert", "llama"):
        for kind, name in enumerate(("fp4", "nf4")):
            said = f"MatMulBnb4Quantizer of {network} in opset 21, {name}, blocks of 64"
            yield Recipe(f"bnb4.{network}.{name}", said, normal_quantiles(network, kind), 2e-4)


RECIPES = [*_few_bits(), *_bnb4()]

if __name__ == "__main__":
    main(RECIPES, ["onnx", "onnx-ir", "onnxruntime"])
