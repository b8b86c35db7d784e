"""onnxruntime's optimizer at each level, its transformers optimizer, its float16 converter."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import onnx
import onnxruntime
from onnxruntime.transformers import float16, optimizer
from onnxruntime.transformers.fusion_options import AttentionMaskFormat, FusionOptions

from tests.exporters import onnxruntime_quantizer as quantizer
from tests.exporters.networks import HEADS, NETWORKS, WIDTH, feeds
from tests.exporters.recipes import Array, Recipe, main

_LEVELS = onnxruntime.GraphOptimizationLevel
LEVELS = {
    "basic": _LEVELS.ORT_ENABLE_BASIC,
    "extended": _LEVELS.ORT_ENABLE_EXTENDED,
    "layout": _LEVELS.ORT_ENABLE_LAYOUT,
    "all": _LEVELS.ORT_ENABLE_ALL,
}


def session(source: Any, level: str, path: Path, **entries: str) -> None:
    """What a session of this level runs, written before it runs it."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = LEVELS[level]
    options.optimized_model_filepath = str(path)
    for key, value in entries.items():
        options.add_session_config_entry(key, value)
    given = source if isinstance(source, str) else source.SerializeToString()
    onnxruntime.InferenceSession(given, options, providers=["CPUExecutionProvider"])


def optimized(network: str, opset: int, level: str, **entries: str) -> Callable[[Path], Any]:
    def write(path: Path) -> Mapping[str, Array]:
        model = NETWORKS[network](opset)
        session(model, level, path, **entries)
        return feeds(model)

    return write


QUICK = (("inverted", 13, "all"), ("bert", 13, "extended"), ("llama", 17, "extended"))


def _levels() -> Iterator[Recipe]:
    for network in NETWORKS:
        opsets = {"llama": (17, 20), "recurrent": (14, 21)}.get(network, (11, 13, 20))
        for opset in opsets:
            for level in LEVELS if opset != 11 else ("all",):
                yield Recipe(
                    f"session.{network}.{opset}.{level}",
                    f"a session of {network} in opset {opset}, level {level}",
                    optimized(network, opset, level),
                    quick=(network, opset, level) in QUICK,
                )
    for network in ("bert", "gpt"):
        approximate = {"optimization.enable_gelu_approximation": "1"}
        yield Recipe(
            f"session.{network}.13.approximate",
            f"a session of {network}, level all, optimization.enable_gelu_approximation",
            optimized(network, 13, "all", **approximate),
        )


def _halves() -> Iterator[Recipe]:
    for network in NETWORKS:
        for level in ("basic", "extended", "all"):

            def write(path: Path, network: str = network, level: str = level) -> Any:
                model = float16.convert_float_to_float16(NETWORKS[network](17))
                session(model, level, path)
                return feeds(model)

            yield Recipe(
                f"session.{network}.17.half.{level}",
                f"a session of {network} in halves, level {level}",
                write,
                2e-2,
            )


REOPTIMIZED = ("u8s8", "per_channel", "s16s8", "contrib", "s8")


def _quantized() -> Iterator[Recipe]:
    """What the optimizer makes of the quantizer's files."""
    for recipe in quantizer.RECIPES:
        _, network, *middle, name = recipe.name.split(".")
        if name not in REOPTIMIZED or middle[:1] not in (["13"], ["21"], []):
            continue
        for level in ("extended", "all") if network in quantizer.THOROUGH else ("all",):

            def write(path: Path, recipe: Recipe = recipe, level: str = level) -> Any:
                with tempfile.TemporaryDirectory() as folder:
                    before = Path(folder) / "before.onnx"
                    given = recipe.write(before)
                    session(str(before), level, path)
                return given

            yield Recipe(
                f"session.{recipe.name}.{level}",
                f"a session of level {level}, of: {recipe.options}",
                write,
                quantizer.TOLERANCE,
                quick=(network, name, level, middle[1:]) == ("inverted", "u8s8", "all", ["qdq"]),
            )


def fused(
    network: str, opset: int, kind: str, halves: bool, **options: Any
) -> Callable[[Path], Any]:
    """By the transformers optimizer. halves: then converted to float16."""

    def write(path: Path) -> Mapping[str, Array]:
        model = NETWORKS[network](opset)
        chosen = FusionOptions(kind)
        level = options.get("opt_level", 0)
        for name, value in options.items():
            if name == "mask":
                chosen.attention_mask_format = value
            elif name != "opt_level":
                setattr(chosen, name, value)
        with tempfile.TemporaryDirectory() as folder:
            before = Path(folder) / "before.onnx"
            onnx.save(model, before)
            made = optimizer.optimize_model(
                str(before),
                kind,
                num_heads=HEADS,
                hidden_size=WIDTH,
                optimization_options=chosen,
                opt_level=level,
                only_onnxruntime=False,
            )
        if halves:
            made.convert_float_to_float16(keep_io_types=True)
        made.save_model_to_file(str(path))
        return feeds(model)

    return write


def _transformers() -> Iterator[Recipe]:
    variants: Mapping[str, dict[str, Any]] = {
        "plain": {},
        "level1": {"opt_level": 1},
        "level2": {"opt_level": 2},
        "level99": {"opt_level": 99},
        "raw_mask": {"mask": AttentionMaskFormat.AttentionMask},
        "mask_ends": {"mask": AttentionMaskFormat.MaskIndexEnd},
        "no_mask": {"mask": AttentionMaskFormat.NoMask},
        "several_heads": {"use_multi_head_attention": True},
        "approximate": {"enable_gelu_approximation": True},
        "no_embedding": {"enable_embed_layer_norm": False},
        "no_skip": {"enable_skip_layer_norm": False, "enable_embed_layer_norm": False},
        "no_attention": {"enable_attention": False},
    }
    for network, kind in (("bert", "bert"), ("gpt", "gpt2"), ("llama", "gpt2")):
        for opset in (13, 17):
            if network == "llama" and opset != 17:
                continue
            for name, options in variants.items():
                for halves in (False, True) if name in ("plain", "several_heads") else (False,):
                    suffix = ".half" if halves else ""
                    said = ", ".join(f"{k}={v}" for k, v in options.items()) or "as they are"
                    yield Recipe(
                        f"transformers.{network}.{opset}.{name}{suffix}",
                        f"onnxruntime.transformers.optimizer of {network} in opset {opset}"
                        f"{', float16' if halves else ''}: {said}",
                        fused(network, opset, kind, halves, **options),
                        2e-2 if halves else 1e-4,
                    )


def _dynamically_fused() -> Iterator[Recipe]:
    """The transformers optimizer, then the dynamic quantizer."""
    for network, kind in (("bert", "bert"), ("gpt", "gpt2")):
        for name, options in (
            ("s8", {}),
            ("u8", {"weight_type": quantizer.U8}),
            ("per_channel", {"per_channel": True}),
        ):

            def write(
                path: Path, network: str = network, kind: str = kind, options: Any = options
            ) -> Any:
                with tempfile.TemporaryDirectory() as folder:
                    before = Path(folder) / "before.onnx"
                    given = fused(network, 13, kind, False)(before)
                    # of what ONNX does not know the type of; nothing else is there
                    kind_of = {"DefaultTensorType": onnx.TensorProto.FLOAT}
                    quantizer.quantize_dynamic(before, path, extra_options=kind_of, **options)
                return given

            yield Recipe(
                f"transformers.{network}.dynamic.{name}",
                f"onnxruntime.transformers.optimizer, then quantize_dynamic ({name}), of {network}",
                write,
                quantizer.TOLERANCE,
            )


RECIPES = [*_levels(), *_halves(), *_quantized(), *_transformers(), *_dynamically_fused()]

if __name__ == "__main__":
    main(RECIPES, ["onnx", "onnxruntime"])
