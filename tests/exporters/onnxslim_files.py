"""onnxslim: graphs with constants folded, nodes merged, shapes inferred."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import onnx
from onnxslim import slim

from tests.exporters import onnxruntime_quantizer as quantizer
from tests.exporters.networks import NETWORKS, feeds
from tests.exporters.recipes import Array, Recipe, main

VARIANTS: Mapping[str, dict[str, Any]] = {
    "usual": {},
    "no_fusion": {"skip_fusion_patterns": ["FusionGelu", "FusionGemm", "FusionPadConv"]},
    "no_shapes": {"no_shape_infer": True},
}


def slimmed(network: str, opset: int, options: Mapping[str, Any]) -> Callable[[Path], Any]:
    def write(path: Path) -> Mapping[str, Array]:
        made = slim(NETWORKS[network](opset), **options)
        onnx.save(made, path)
        return feeds(made)

    return write


def _quantized() -> Iterator[Recipe]:
    for recipe in quantizer.RECIPES:
        if recipe.name.endswith(("13.qdq.u8s8", "13.qoperator.u8s8", "bert.s8")):

            def write(path: Path, recipe: Recipe = recipe) -> Mapping[str, Array]:
                given = recipe.write(path)
                onnx.save(slim(onnx.load(path)), path)
                return given

            yield Recipe(
                f"slim.{recipe.name}", f"slim of: {recipe.options}", write, quantizer.TOLERANCE
            )


RECIPES = [
    *(
        Recipe(
            f"slim.{network}.{opset}.{name}",
            f"slim of {network} in opset {opset}: {options}",
            slimmed(network, opset, options),
            1e-4,
        )
        for network in NETWORKS
        for opset in ((17,) if network == "llama" else (14,))
        for name, options in VARIANTS.items()
    ),
    *_quantized(),
]

if __name__ == "__main__":
    main(RECIPES, ["onnx", "onnxruntime", "onnxslim"])
