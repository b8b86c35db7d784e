"""Reductions that look alike but run over other axes are not taken for one another; what gets a
buffer of its own.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import tinyedge
from tinyedge import Tensor
from tinyedge.choices import find_target
from tinyedge.core import dtype as dt
from tinyedge.core.compiler.compile import compile_graph
from tinyedge.core.compiler.options import Options
from tinyedge.core.tensor.graph import Graph, Port


def _constant(*shape: int) -> np.ndarray:  # type: ignore[type-arg]
    return np.random.default_rng(len(shape)).normal(size=shape).astype(np.float32) / 8


def _attention(x: Tensor) -> Tensor:
    w = _constant(32, 32)
    return ((x @ w) @ (x @ w).transpose()).softmax(-1) @ (x @ w) @ w


# All sizes are equal, so that shapes say nothing.
FUNCTIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "two products": lambda x: (x @ _constant(32, 32)).relu() @ _constant(32, 32),
    "product with itself": lambda x: x.transpose() @ x @ x.transpose(),
    "attention": _attention,
    "softmax of softmax": lambda x: x.softmax(0).softmax(1),
    "softmax twice": lambda x: x.softmax(1).softmax(1),
    "sum of softmax": lambda x: x.softmax(0).sum(1),
    "other axes": lambda x: x.max(0, keepdims=True) - x.sum(1, keepdims=True),
}


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("optimize", [True, False])
def test_against_the_reference(tmp_path: Path, name: str, optimize: bool) -> None:
    x = _constant(32, 32) * 8
    out = tinyedge.export_function(
        FUNCTIONS[name], [x], target="cpu", out=tmp_path / "f", golden=False, optimize=optimize
    )
    with tinyedge.load(out) as loaded:
        result = loaded.run({"input_0": x})["output"]
    expected = FUNCTIONS[name](Tensor(x)).numpy()
    assert np.abs(result - expected).max() <= 1e-4 * np.abs(expected).max()


def test_cheap_sums_are_computed_where_they_are_repeated(target: str) -> None:
    """What is added to a sum costs less than a launch, though 16 elements are made of each."""
    x, w = Tensor.input("x", (8, 12, 12), dt.float32), Tensor.weight("w", _constant(8, 8))
    sums = (x.permute((1, 2, 0)) @ w).permute((2, 0, 1)).in_memory()
    gate = (sums.mean((1, 2)) @ w).reshape((8, 1, 1))
    large = (sums * gate + sums).reshape((8, 12, 1, 12, 1))
    large = large.expand((8, 12, 4, 12, 4)).reshape((8, 48, 48))
    graph = Graph(
        (Port("x", dt.float32, x.shape),), (Port("y", dt.float32, large.shape, large.node),)
    )
    compiled = compile_graph(graph, find_target(target))
    shapes = [launch.storages[0].shape for launch in compiled.launches]
    assert [shape[-1] for shape in shapes] == [12, 8, 8, 48]


def test_cheap_sums_are_computed_by_each_sum_of_them(target: str) -> None:
    """An index that two kernels need, one of them within a sum of few elements."""
    x = Tensor.input("x", (62, 95), dt.float32)
    near = x.argmax(1).reshape((62, 1)) + Tensor.weight("w", np.arange(3, dtype=np.int32))
    picked = (near.cast(dt.float32) * 2).sum(1)
    graph = Graph(
        (Port("x", dt.float32, x.shape),),
        tuple(
            Port(name, y.dtype, y.shape, y.node) for name, y in {"y": picked, "z": near * 3}.items()
        ),
    )
    assert len(compile_graph(graph, find_target(target)).launches) == 3


def test_what_transforms_leave_is_no_reason_to_store(target: str) -> None:
    """A scaled image is made larger by the kernel that scales it, by Winograd's transforms, too."""
    x, w = (
        Tensor.input("x", (1, 96, 20, 20), dt.float32),
        Tensor.weight("w", _constant(24, 96, 3, 3)),
    )
    image = x.conv(w, pads=((1, 1), (1, 1)))
    scaled = image * image.mean((2, 3), keepdims=True).sigmoid() + image
    large = scaled.reshape((1, 24, 20, 1, 20, 1)).expand((1, 24, 20, 2, 20, 2))
    large = large.reshape((1, 24, 40, 40))
    graph = Graph(
        (Port("x", dt.float32, x.shape),), (Port("y", dt.float32, large.shape, large.node),)
    )
    counts = [
        len(compile_graph(graph, find_target(target), options).launches)
        for options in (Options(winograd=0), Options())
    ]
    assert counts == [3, 5]


@pytest.mark.parametrize("width", [384, 8192])
def test_a_row_that_threads_share_is_computed_within_its_norm(target: str, width: int) -> None:
    """Each thread loads its part of all four tensors once; of longer rows it would do so twice."""
    names = ("a", "b", "c", "d")
    a, b, c, d = (Tensor.input(name, (128, width), dt.float32) for name in names)
    row = a + b + c + d
    centered = row - row.mean(-1, keepdims=True)
    y = centered / (centered * centered).mean(-1, keepdims=True).sqrt()
    inputs = tuple(Port(name, dt.float32, a.shape) for name in names)
    compiled = compile_graph(
        Graph(inputs, (Port("y", dt.float32, y.shape, y.node),)), find_target(target)
    )
    together = compiled.caps.shared > 0 and width == 384
    assert len(compiled.launches) == (1 if together else 2)
    if together:
        (kernel,) = compiled.kernels.values()
        loads = re.findall(r"b[1-4]\[[^]]*\]", kernel.source)
        assert len(loads) == len(set(loads)) > 0
        assert "for (" not in kernel.source.split("k0")[-1]


def test_ragged_parts_are_written_in_vectors() -> None:
    """A packed row of odd parts: each product has a buffer of its own, one kernel packs them; all
    three store whole vectors, the last of which overlaps the one before.
    """
    x, weights = Tensor.input("x", (1, 64), dt.float32), _constant(64, 55)
    heads = [x @ weights[:, :31], (x @ weights[:, 31:]).relu()]
    row = Tensor.concat([head.reshape((1, head.shape[1])) for head in heads], 1)
    graph = Graph((Port("x", dt.float32, (1, 64)),), (Port("row", dt.float32, (1, 55), row.node),))
    compiled = compile_graph(graph, find_target("cpu"))
    texts = [kernel.source for kernel in compiled.kernels.values()]
    assert len(compiled.launches) == 3
    assert sum("te_store_f32x8" in text for text in texts) == 3


def test_places_are_not_kept_as_halves() -> None:
    """Halves have every whole number to 2048 only: a pixel's place in an image is beyond that."""
    image, corner = Tensor.input("image", (4096,), dt.float32), Tensor.input("at", (1,), dt.float32)
    row = (corner * 16 + Tensor.weight("steps", np.arange(0, 4096, 64, dtype=np.float32))) / 3
    places = (row.reshape((64, 1)) + Tensor.arange(16).cast(dt.float32)).cast(dt.int32)
    values = image.gather(0, places) @ _constant(16, 16)
    node = (values @ _constant(16, 16)).node
    ports = Port("image", dt.float32, (4096,)), Port("at", dt.float32, (1,))
    graph = Graph(ports, (Port("values", dt.float32, (64, 16), node),))
    compiled = compile_graph(graph, find_target("webgpu"), Options(precision="fp16"))
    written = [launch.storages[0] for launch in compiled.launches]
    kept = {storage.dtype for storage in written if storage.shape == (64,)}
    assert kept == {dt.float32}
    assert dt.float16 in {storage.dtype for storage in written}
