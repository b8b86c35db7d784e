"""Models that are entries of one bundle and give one name to inputs and outputs that differ."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import tinyedge

TABLE = (np.arange(96, dtype=np.float32) - 40).reshape(32, 3)

# Of each entry: tokens, the type of input_ids, the type of logits, and what the table is times.
ENTRIES = {
    "main": (8, "int64", "float32", 2),
    "decode": (1, "int64", "float32", 2),
    "negative": (1, "int64", "float32", -1),  # whose ports are those of decode
    "small": (1, "int32", "int32", 3),
}


def write_model(path: Path, tokens: int, taken: str, given: str, times: int) -> Path:
    """A model that looks tokens up in a table."""
    types = {"int64": TensorProto.INT64, "int32": TensorProto.INT32, "float32": TensorProto.FLOAT}
    nodes = [
        helper.make_node("Gather", ["table", "input_ids"], ["found"]),
        helper.make_node("Mul", ["found", "times"], ["product"]),
        helper.make_node("Cast", ["product"], ["logits"], to=types[given]),
    ]
    graph = helper.make_graph(
        nodes,
        "lookup",
        [helper.make_tensor_value_info("input_ids", types[taken], [1, tokens])],
        [helper.make_tensor_value_info("logits", types[given], [1, tokens, 3])],
        [
            numpy_helper.from_array(TABLE, "table"),
            numpy_helper.from_array(np.float32(times), "times"),
        ],
    )
    opsets = [helper.make_opsetid("", 17)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), str(path))
    return path


def write_models(folder: Path) -> dict[str, Path]:
    """The model of each entry."""
    return {name: write_model(folder / f"{name}.onnx", *of) for name, of in ENTRIES.items()}


def export(folder: Path, target: str, **options: Any) -> Path:
    """All of them in one bundle."""
    main, *others = write_models(folder).items()
    out = folder / f"{target}.tinyedge"
    return tinyedge.export_onnx(main[1], target=target, entries=dict(others), out=out, **options)


def inputs_of(entry: str, seed: int = 0) -> dict[str, Any]:
    tokens, taken, _, _ = ENTRIES[entry]
    return {"input_ids": np.random.default_rng(seed).integers(0, 32, (1, tokens)).astype(taken)}


def logits_of(entry: str, inputs: dict[str, Any]) -> Any:
    """What an entry gives, without rounding."""
    _, _, given, times = ENTRIES[entry]
    return (TABLE[inputs["input_ids"]] * times).astype(given)
