"""onnxconverter-common: float16, mixed precision, its optimizer."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import onnx
from onnxconverter_common import auto_mixed_precision, float16
from onnxconverter_common.optimizer import optimize_onnx_model

from tests.exporters.networks import NETWORKS, feeds
from tests.exporters.recipes import Array, Recipe, main

HALVES: Mapping[str, dict[str, Any]] = {
    "usual": {},
    "float_ports": {"keep_io_types": True},
    "some_floats": {"keep_io_types": True, "op_block_list": ["Softmax", "Gemm", "MatMul"]},
    "no_shapes": {"disable_shape_infer": True},
}


def halves(network: str, options: Mapping[str, Any]) -> Callable[[Path], Any]:
    def write(path: Path) -> Mapping[str, Array]:
        made = float16.convert_float_to_float16(NETWORKS[network](17), **options)
        onnx.save(made, path)
        return feeds(made)

    return write


def mixed(network: str) -> Callable[[Path], Any]:
    def write(path: Path) -> Mapping[str, Array]:
        model = NETWORKS[network](17)
        given = feeds(model)
        made = auto_mixed_precision.auto_convert_mixed_precision(
            model, given, rtol=0.02, atol=0.02, keep_io_types=True
        )
        onnx.save(made, path)
        return given

    return write


def optimized(network: str) -> Callable[[Path], Any]:
    def write(path: Path) -> Mapping[str, Array]:
        made = optimize_onnx_model(NETWORKS[network](14))
        onnx.save(made, path)
        return feeds(made)

    return write


def _recipes() -> Iterator[Recipe]:
    for network in NETWORKS:
        for name, options in HALVES.items():
            label = f"half.{network}.{name}"
            said = f"convert_float_to_float16 of {network} in opset 17: {options}"
            yield Recipe(label, said, halves(network, options), 2e-2)
    for network in ("plain", "bert"):
        said = f"auto_convert_mixed_precision of {network} in opset 17"
        yield Recipe(f"mixed.{network}", said, mixed(network), 2e-2)
    for network in ("plain", "residual", "inverted", "bert", "gpt"):
        said = f"optimize_onnx_model of {network} in opset 14"
        yield Recipe(f"optimized.{network}", said, optimized(network))


RECIPES = [*_recipes()]

if __name__ == "__main__":
    main(RECIPES, ["onnx", "onnxconverter-common"])
