"""A model's outputs: their names, and the types that it declares."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

import onnx
from tinyedge.core.errors import InputError, ModelError, UnsupportedOp
from tinyedge.core.ir.uop import UOp
from tinyedge.core.tensor.tensor import Tensor
from tinyedge.export.onnx import reader
from tinyedge.export.onnx.imported import element_names
from tinyedge.export.onnx.inputs import type_of
from tinyedge.export.onnx.registry import REFUSED


def named(
    names: Sequence[str],
    values: Sequence[Any],
    warn: Callable[[str], None],
    refuse: Callable[[str, InputError], None],
) -> dict[str, Tensor]:
    """The graph's outputs; of a sequence each tensor, under its name and a number."""
    outputs: dict[str, Tensor] = {}
    for name, value in zip(names, values, strict=True):
        if value is REFUSED:
            continue
        parts = value if isinstance(value, list) else [value]
        several = {name: value} if isinstance(value, Tensor) else element_names(name, parts)
        taken = [n for n in several if n in outputs or (n != name and n in names)]
        if taken or not all(isinstance(part, Tensor) for part in parts):
            error = UnsupportedOp(
                f"output {name!r}",
                f"it is a sequence, and its tensors would be called {taken}, as others are"
                if taken
                else "it is an absent optional, or a sequence of what is no tensor",
                id="model.unsupported",
                supported="tensors, and sequences of a number of them known at import",
            )
            refuse(name, error)
            continue
        if value is parts:
            listed = ", ".join(map(repr, several)) or "none"
            warn(f"output {name!r} is a sequence: its tensors are outputs: {listed}")
        outputs.update(several)
    return outputs


def check_types(
    declared: Iterable[Any], outputs: Mapping[str, Tensor], texts: Collection[UOp]
) -> None:
    """Outputs have the types that the model says, where it says any. texts: the tensors of numbers
    that stand for texts. Raises ModelError.
    """
    for value in declared:
        code = type_of(value).tensor_type.elem_type
        made = outputs.get(value.name)
        if code == onnx.TensorProto.STRING and made is not None and _is_text(made.node, texts):
            continue
        if code and made is not None and made.dtype is not reader.DTYPES.get(code):
            wanted = reader.element_type(code, f"output {value.name!r}")
            raise ModelError(
                f"output {value.name!r}",
                f"the model says it is {wanted}, its nodes make {made.dtype}",
                id="model.dtype",
                next="declare the type that the nodes make, or add a Cast",
            )


def _is_text(node: UOp, texts: Collection[UOp]) -> bool:
    """Whether a tensor is of `texts`, moved or not."""
    while node not in texts and node.op.group == "movement":
        node = node.src[0]
    return node in texts
