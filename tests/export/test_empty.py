"""Sizes of 0: inputs without elements, at run time, for every family of operators.

The models are those of test_open_sizes, each size of which may be 0 in turn where the model allows
it. onnxruntime says what is right; where it refuses or is wrong, ONNX's own evaluator or the table
below. Others are only compared with the reference evaluator.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, compose, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import tinyedge
from tests.export.test_open_sizes import (
    MODELS,
    SIZES,
    Arrays,
    Opened,
    bounds_of,
    build,
    check,
    check_one_program,
    expected,
    feeds_of,
)
from tests.imported import import_model
from tinyedge.core.errors import InputError, UnsupportedOp
from tinyedge.core.program.device import Device

# Its runtime ends the whole process (a division by zero, an exception in a thread).
CRASHES_ONNXRUNTIME = ("Unique rows", "Einsum", "LSTM", "GRU both ways")
# It leaves memory as it was, and means of nothing are 0 there; ONNX leaves them undefined.
WRONG_IN_ONNXRUNTIME = {"RoiAlign": 0.0, "ReduceMean": np.nan}
# It gives 0 for windows of padding alone, of which the maximum is -infinity.
WRONG_IN_EVALUATOR = ("MaxPool ceil with pads",)
# Index tensors of which every value must lie inside of what is empty.
NO_INPUTS = {("GatherElements", "L"), ("GatherND", "L"), ("Gather", "L")}


@dataclass
class Empty(Opened):
    """A model of which some sizes may be 0, and the name it has in MODELS."""

    name: str = ""
    may_be_empty: tuple[str, ...] = field(default=())
    dims: dict[str, str] = field(default_factory=dict)  # ranges of its sizes, by name

    @staticmethod
    def of(name: str, prefix: str = "") -> Empty:
        model = compose.add_prefix(build(MODELS[name]), prefix)
        source = model.SerializeToString()
        dims, chosen = bounds_of(model), []
        imported = import_model(source, dims=dims)
        for size in list(dims):
            low = dims[size].split("..")[0]
            lower = {**dims, size: f"0{dims[size].removeprefix(low)}"}
            try:
                imported = import_model(source, dims=lower)
            except InputError as error:
                assert error.id == "input.sizes" or isinstance(error, UnsupportedOp), name
                continue
            dims = lower
            chosen.append(size)
        return Empty(model, imported, name, tuple(chosen), dims)

    def worlds(self) -> Iterator[tuple[dict[str, int], Arrays, Arrays | None]]:
        """Sizes, one of them 0; inputs; and what they must give, if anything else can say."""
        for size in self.may_be_empty:
            if (self.name, size) in NO_INPUTS:
                continue
            sizes = {name: values[len(values) // 2] for name, values in SIZES.items()} | {size: 0}
            rng = np.random.default_rng(1)
            try:
                feeds = feeds_of(self.model, sizes, rng)
            except ValueError:  # an index into what is empty
                continue
            yield sizes, feeds, self._expected(feeds)

    def _expected(self, feeds: Arrays) -> Arrays | None:
        if self.name not in CRASHES_ONNXRUNTIME:
            try:
                wanted = expected(self.model.SerializeToString(), feeds)
            except Exception:  # of any kind: it refuses
                pass
            else:
                return {name: self._right(array) for name, array in wanted.items()}
        if self.name in WRONG_IN_EVALUATOR:
            return None
        evaluator = ReferenceEvaluator(self.model)
        try:
            results = evaluator.run(None, feeds)
        except Exception:  # of any kind: its numpy cannot do it
            return None
        return dict(zip(evaluator.output_names, results, strict=True))

    def _right(self, array: Any) -> Any:
        value = WRONG_IN_ONNXRUNTIME.get(self.name)
        return array if value is None else np.full_like(array, value)


@pytest.mark.parametrize("name", MODELS)
def test_every_family(name: str) -> None:
    """By the reference evaluator."""
    model = Empty.of(name)
    for sizes, feeds, wanted in model.worlds():
        found = model.reference(sizes, feeds)
        if wanted is not None:
            assert {n: a.shape for n, a in found.items()} == {n: a.shape for n, a in wanted.items()}
            check(found, wanted, f"{name} {sizes}")


MECHANISMS = (
    "Attention over a past",
    "Attention with a mask",
    "Resize linear to another's size",
    "Resize antialias to another's size",
    "Slice an end of either sign",
    "Pad edge by computed",
    "Concat",
    "Split into thirds",
    "Gather",
    "ScatterElements add",
    "TopK of all",
    "NonZero",
    "CumSum",
    "ReduceLogSumExp",
    "LayerNormalization over open axes",
    "Gemm",
    "ConvTranspose",
    "MaxPool ceil with pads",
    "LSTM",
    "DFT",
)
OTHERS = [name for name in MODELS if name not in MECHANISMS]
GROUPS = {
    "mechanisms": list(MECHANISMS),
    **{OTHERS[first]: OTHERS[first : first + 10] for first in range(0, len(OTHERS), 10)},
}


@pytest.mark.parametrize(
    "group",
    ["mechanisms", *(pytest.param(g, marks=pytest.mark.slow) for g in GROUPS if g != "mechanisms")],
)
def test_one_program(group: str, target: str, device: Device) -> None:
    models = [Empty.of(name, f"{number}/") for number, name in enumerate(GROUPS[group])]
    for some in _of_equal_ranges(models):
        check_one_program({model.name: model for model in some}, target, device)


def _of_equal_ranges(models: list[Empty]) -> Iterator[list[Empty]]:
    """Models that can share a program, in which a size has one range: as few lists as it takes."""
    while models:
        ranges: dict[str, str] = {}
        together, apart = [], []
        for model in models:
            if any(ranges.get(size, given) != given for size, given in model.dims.items()):
                apart.append(model)
            else:
                together.append(model)
                ranges.update(model.dims)
        yield together
        models = apart


def test_what_nothing_is_padded_to(tmp_path: Path) -> None:
    """A kernel of zeros reads no input of size 0."""
    nodes = [
        helper.make_node("Pad", ["x", "amounts"], ["padded"]),
        helper.make_node("ReduceSum", ["padded", "axis"], ["summed"], keepdims=0),
        helper.make_node("Transpose", ["summed"], ["y"], perm=[1, 0]),
    ]
    given = {"amounts": np.array([1, 0, 0, 1, 1, 1]), "axis": np.array([1])}
    weights = [numpy_helper.from_array(value, name) for name, value in given.items()]
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, (0, 4, 1))]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)]
    graph = helper.make_graph(nodes, "g", inputs, outputs, weights)
    path = tmp_path / "m.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), path)
    bundle = tinyedge.export_onnx(path, target="cpu", out=tmp_path / "b", golden=False)
    with tinyedge.load(bundle) as model:
        found = model.run({"x": np.zeros((0, 4, 1), np.float32)})["y"]
    np.testing.assert_array_equal(found, np.zeros((2, 2), np.float32))
