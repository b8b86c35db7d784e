"""What no bundle can hold is refused before anything is compiled."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import ModelProto

from tests.export.hostile import info, ints, model, node
from tests.imported import import_model
from tinyedge import api
from tinyedge.core.errors import InputError

RELU = node("Relu", ["x"])


def _named(name: str) -> ModelProto:
    return model([node("Relu", [name])], inputs=[info(name, [2, 3])])


def _growing(levels: int) -> ModelProto:
    """Each level joins its input and half of it: its size is written twice as often."""
    nodes = []
    for i in range(levels):
        last, made = f"v{i}", f"v{i + 1}"
        nodes.append(node("MaxPool", [last], [f"p{i}"], kernel_shape=[3], strides=[2], pads=[1, 1]))
        nodes.append(node("Concat", [f"p{i}", last], [made], axis=2))
    return model(nodes, inputs=[info("v0", [1, 1, "n"])], outputs=(f"v{levels}",))


MANY = [f"x{i}" for i in range(1025)]
CASES: dict[str, tuple[ModelProto, dict[str, str]]] = {
    "nine axes": (model([RELU], inputs=[info("x", [1] * 8 + [3])]), {}),
    "nine axes out": (model([node("Reshape", ["x", "s"])], weights=[ints("s", [1] * 8 + [6])]), {}),
    "1025 inputs": (model([node("Sum", MANY)], inputs=[info(name, [2]) for name in MANY]), {}),
    "1025 outputs": (
        model([node("Split", ["x"], MANY)], inputs=[info("x", [1025, 3])], outputs=tuple(MANY)),
        {},
    ),
    "long name": (_named("x" * 1025), {}),
    "wide name": (_named("\U0001f600" * 513), {}),
    "control character": (_named("a\nb"), {}),
    "long output": (model([node("Relu", ["x"], ["y" * 1025])], outputs=("y" * 1025,)), {}),
    "long size": (model([RELU], inputs=[info("x", [2, "n" * 1025])]), {"n" * 1025: "1..8"}),
    "33 sizes": (
        model(
            [node("Concat", MANY[:33], axis=0)],
            inputs=[info(name, [f"d{name}", 2]) for name in MANY[:33]],
        ),
        {f"d{name}": "1..3" for name in MANY[:33]},
    ),
    "size written 2^40 times": (_growing(40), {"n": "1..9"}),
}


@pytest.mark.parametrize("name", CASES)
def test_refused(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def compile_graph(*_: Any, **__: Any) -> Any:
        raise AssertionError("compiled")

    monkeypatch.setattr(api, "compile_graph", compile_graph)
    source, dims = CASES[name]
    path = tmp_path / "m.onnx"
    path.write_bytes(source.SerializeToString())
    with pytest.raises(InputError) as caught:
        api.export_onnx(path, target="cpu", out=tmp_path / "m.tinyedge", dims=dims)
    assert caught.value.id == "model.limit"
    assert caught.value.supported and len(str(caught.value)) < 1000


def test_the_names_of_a_function(tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        api.export_function(
            lambda x: {"a\nb": x}, [np.zeros(2, np.float32)], target="cpu", out=tmp_path / "f"
        )
    assert caught.value.id == "model.limit"


def test_node_names_are_kept_short_and_printable() -> None:
    source = model([node("Relu", ["x"], name="a\0b" + "n" * 10_000)])
    (name,) = import_model(source.SerializeToString()).names.values()
    assert name.startswith(r"a\x00bnnn") and len(name) < 500
