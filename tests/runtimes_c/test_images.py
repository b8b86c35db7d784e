"""Pictures with gaps between their rows, by the C runtime: to the bit what dense ones give."""

from __future__ import annotations

import ctypes as c
from typing import Any

import numpy as np
import pytest

from tests.agreement import find_target
from tests.export.test_pictures import _graphs
from tests.runtimes_c.conftest import Build
from tests.runtimes_c.library import INPUTS, Context, RuntimeFailure
from tinyedge.core.compiler.compile import compile_graph

RNG = np.random.default_rng(6)


class Picture(c.Structure):
    _fields_ = [
        *((name, c.c_int64) for name in ("width", "height")),
        ("pixels", c.c_void_p),
        ("bytes", c.c_size_t),
        *((name, c.c_int64) for name in ("pitch", "step")),
        ("chroma", c.c_void_p),
        ("chroma_bytes", c.c_size_t),
        ("chroma_pitch", c.c_int64),
    ]


def context_of(library: Build, words: str) -> Context:
    program = compile_graph(_graphs(words, (1, 3, 8, 9)), find_target("cpu")).program
    assert program is not None
    return Context(library(program))


def bind(context: Context, memory: Any, **fields: Any) -> None:
    """memory: bytes, of which the first are the picture's."""
    size = memory.size
    picture = Picture(**{"pixels": memory.ctypes.data, "bytes": size, **fields})
    context.bound["memory"] = memory
    bound = context.library.c.te_bind_picture(
        context.context, context.find(INPUTS, "x"), c.byref(picture)
    )
    context.check(bound)


@pytest.mark.parametrize(("pitch", "step"), [(0, 0), (93, 0), (128, 0), (0, 4), (123, 4), (256, 7)])
def test_rows_and_pixels_with_gaps(library: Build, pitch: int, step: int) -> None:
    """Of 31 pixels; 123: the last pixel of a row has no byte after it."""
    context = context_of(library, "letterbox,0..1")
    height, width, pixel = 20, 31, step or 3
    picture = RNG.integers(0, 256, (height, width, 3), np.uint8)
    wanted = context.run({"x": picture})["y"]
    row = pitch or width * pixel
    memory = RNG.integers(0, 256, row * (height - 1) + (width - 1) * pixel + 3, np.uint8)
    for y in range(height):
        for x in range(width):
            start = y * row + x * pixel
            memory[start : start + 3] = picture[y, x]
    bind(context, memory, width=width, height=height, pitch=pitch, step=step)
    assert context.run({})["y"].tobytes() == wanted.tobytes()
    bind(context, memory[:-1], width=width, height=height, pitch=pitch, step=step)
    with pytest.raises(RuntimeFailure) as caught:
        context.run({})
    assert caught.value.id == "run.shape"
    context.close()


@pytest.mark.parametrize("where", ["after", "in", "elsewhere"])
def test_nv12(library: Build, where: str) -> None:
    context = context_of(library, "from:nv12,0..1")
    height, width = 15, 21
    luma = RNG.integers(0, 256, (height, width), np.uint8)
    chroma = RNG.integers(0, 256, (8, 11, 2), np.uint8)
    wanted = context.run({"x": luma, "x.uv": chroma})["y"]
    pitch, pairs = 40, 40 if where != "elsewhere" else 24
    planes = np.zeros((height + 3 + 8, pitch), np.uint8)
    planes[:height, :width] = luma
    start = height + (3 if where == "in" else 0)
    second = planes[start:].reshape(-1) if where != "elsewhere" else np.zeros(8 * pairs, np.uint8)
    second[: 8 * pairs].reshape(8, pairs)[:, :22] = chroma.reshape(8, 22)
    fields: dict[str, Any] = {"width": width, "height": height, "pitch": pitch}
    if where != "after":
        fields["chroma"] = second.ctypes.data
    if where == "elsewhere":
        fields |= {"chroma_bytes": second.size, "chroma_pitch": pairs}
        context.bound["second"] = second
    bind(context, planes.reshape(-1), **fields)
    assert context.run({})["y"].tobytes() == wanted.tobytes()
    context.close()


@pytest.mark.parametrize(
    ("words", "fields", "id"),
    [
        ("0..1", {"pitch": 29}, "run.shape"),
        ("0..1", {"step": 2}, "run.shape"),
        ("0..1", {"width": 0}, "run.shape"),
        ("0..1", {"height": -1}, "run.shape"),
        ("0..1", {"width": 2**62, "step": 8}, "run.shape"),
        ("0..1", {"pixels": 0}, "api.argument"),
        ("0..1,from:nv12", {"step": 2}, "run.shape"),
        ("0..1,from:nv12", {"chroma_pitch": 9}, "run.shape"),
        ("0..1,from:nv12", {"pitch": 2**61}, "run.shape"),
        ("0..1,from:nv12", {"pitch": 500}, "run.shape"),
        ("0..1,from:nv12", {"chroma": 16}, "run.shape"),
    ],
)
def test_refusals(library: Build, words: str, fields: dict[str, int], id: str) -> None:
    context = context_of(library, words)
    memory = np.zeros(1000, np.uint8)
    with pytest.raises(RuntimeFailure) as caught:
        bind(context, memory, **{"width": 10, "height": 10, **fields})
    assert caught.value.id == id
    context.close()


def test_an_input_that_is_no_picture(library: Build) -> None:
    context = context_of(library, "0..1,from:nv12")
    picture = Picture(width=1, height=1)
    for index in (7, -1, context.find(INPUTS, "x.uv")):
        status = context.library.c.te_bind_picture(context.context, index, c.byref(picture))
        assert context.library.id(status) == "run.input"
    context.close()
