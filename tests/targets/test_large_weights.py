"""Weights above what a device can bind, which for WebGPU is 128 MiB, are several bindings."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.agreement import Inputs, assert_agreement, find_target, reference, run
from tinyedge.core import dtype as dt
from tinyedge.core.compiler.compile import compile_graph
from tinyedge.core.compiler.counters import inner_loops
from tinyedge.core.compiler.schedule.launches import ScheduleOptions
from tinyedge.core.compiler.schedule.splitting import split_weights
from tinyedge.core.ir import ops
from tinyedge.core.ir.uop import toposort
from tinyedge.core.program.device import Device
from tinyedge.core.program.replay import Replay
from tinyedge.core.tensor.graph import Graph, Graphs, Port
from tinyedge.core.tensor.tensor import Tensor
from tinyedge.export.bundle.reading import read
from tinyedge.export.bundle.writing import write
from tinyedge.remarks import remarks

RNG = np.random.default_rng(21)
LIMIT = 2**27
COLUMNS = 256


def floats(*shape: int) -> Any:
    return RNG.standard_normal(shape, np.float32)


def _uses(inputs: Inputs) -> dict[str, Tensor]:
    table = Tensor.weight("table", floats(90, 16))
    places = inputs.new(np.array([0, 29, 30, 59, 60, 89, 45], np.int32))
    filters = Tensor.weight("filters", floats(40, 4, 3, 3))
    line = Tensor.weight("line", floats(1, 1, 2001))
    codes = Tensor.weight("codes", RNG.integers(-128, 128, (96, 96)).astype(np.int8))
    halves = Tensor.weight("halves", floats(64, 24).astype(np.float16))
    image = inputs.new(floats(1, 4, 9, 9))
    return {
        "product": inputs.new(floats(2, 90)) @ table,
        "product with the transpose": inputs.new(floats(2, 16)) @ table.transpose(),
        "rows": table.gather(0, places),
        "columns": table.gather(1, inputs.new(np.array([3, 0, 15], np.int32))),
        "convolution": image.conv(filters),
        "sum": line + inputs.new(floats(1, 1, 2001)),
        "codes": codes.cast(dt.float32) @ inputs.new(floats(96, 3)),
        "halves": halves.cast(dt.float32) @ inputs.new(floats(24, 3)),
    }


def test_parts_of_weights(target: str, device: Device) -> None:
    """Split as if a device bound 2 KiB: what they give is the same."""
    inputs = Inputs()
    tensors = _uses(inputs)
    expected = reference(tensors, inputs)
    caps = replace(find_target(target).caps(), binding_bytes=2048, bindings=8)
    roots = tuple(tensor.node for tensor in tensors.values())
    done = split_weights(roots, ScheduleOptions(caps))
    split = {name: Tensor(done[tensor.node]) for name, tensor in tensors.items()}
    sources = [
        n.arg.source for n in toposort([t.node for t in split.values()]) if n.op is ops.BUFFER
    ]
    parts = [source for source in sources if source.kind == "weight"]
    assert len(parts) == 3 + 3 + 4 + 5 + 2 and all(part.data.nbytes <= 2048 for part in parts)
    for name in ("product", "product with the transpose", "convolution", "codes"):
        for node in toposort((split[name].node,)):  # a sum reads one part: none is chosen in it
            below = toposort(node.src) if node.op is ops.REDUCE else ()
            assert ops.WHERE not in {n.op for n in below}, name
    assert_agreement(run(split, inputs, target, device), expected)


def test_filters_after_flattened_pixels() -> None:
    """A filter whose rows a kernel sums by channels and pixels lies in vectors of its columns."""
    x = Tensor.input("x", (1, 8, 6, 6), dt.float32)
    image = x.conv(Tensor.weight("filters", floats(16, 8, 1, 1))).relu()
    y = image.reshape((1, 16 * 36)) @ Tensor.weight("matrix", floats(40, 16 * 36)).transpose()
    ports = Port("x", dt.float32, x.shape), Port("y", y.dtype, y.shape, y.node)
    compiled = compile_graph(Graphs({"main": Graph(ports[:1], ports[1:])}), find_target("webgpu"))
    *_, kernel = compiled.kernels.values()
    loads = inner_loops(kernel.text).loads  # of a step: 4 channels, and 4 columns of each
    assert loads == {4: 5}


def _rows(count: int) -> tuple[Any, list[str]]:
    """A program for rows of a weight; its last row holds numbers, the others zeros."""
    values = np.zeros((count, COLUMNS), np.float32)
    values[-1] = np.arange(COLUMNS)
    places = Tensor.input("places", (3,), dt.int32)
    y = Tensor.weight("table", values).gather(0, places)
    ports = Port("places", dt.int32, (3,)), Port("y", y.dtype, y.shape, y.node)
    graphs = Graphs({"main": Graph(ports[:1], ports[1:])})
    compiled = compile_graph(graphs, find_target("webgpu"))
    assert compiled.program is not None
    largest = max(buffer.bytes for buffer in compiled.program.buffers)
    return compiled.program, list(remarks(graphs, find_target("webgpu"), largest, compiled.caps))


@pytest.mark.parametrize("more", [0, 1])
def test_what_every_device_binds(more: int, webgpu_device: Device) -> None:
    """Of the limit itself it is one binding; of a row more two. The device has no more."""
    rows = LIMIT // (4 * COLUMNS) + more
    program, notes = _rows(rows)
    assert not notes
    whole = [LIMIT, 4 * COLUMNS][: 1 + more]
    assert sorted((weight.bytes for weight in program.weights), reverse=True) == whole
    with Replay(program, webgpu_device) as replay:
        y = replay.run({"places": np.array([rows - 1, 0, rows - 2], np.int32)})["y"]
    np.testing.assert_array_equal(y, np.outer([1, 0, 0], np.arange(COLUMNS)))


@pytest.mark.parametrize("more", [0, 1])
def test_outputs_that_are_read_together(more: int, tmp_path: Path) -> None:
    """A page reads all of them by way of one buffer: the bundle asks for it, the export says so."""
    x = Tensor.input("x", (LIMIT // 4,), dt.float32)
    results = {"one": -x, "two": x.exp()} | ({"three": x.sum()} if more else {})
    outputs = tuple(Port(name, y.dtype, y.shape, y.node) for name, y in results.items())
    graphs = Graphs({"main": Graph((Port("x", dt.float32, x.shape),), outputs)})
    compiled = compile_graph(graphs, find_target("webgpu"))
    assert compiled.program is not None
    write(compiled.program, tmp_path)
    needed = read(tmp_path).program.requirements
    assert needed["binding_bytes"] == LIMIT
    assert needed["buffer_bytes"] == 2 * LIMIT + 4 * more
    notes = list(remarks(graphs, find_target("webgpu"), LIMIT, compiled.caps))
    assert len(notes) == more
    assert all("'one', 'two', 'three': outputs of 'main' that take" in note for note in notes)


def test_a_weight_of_too_many_parts_is_named() -> None:
    """What a kernel has no bindings for stays whole: the bundle asks for more, the export says so.

    A device that binds no more refuses it: tests/targets/test_webgpu_device.py.
    """
    program, notes = _rows(5 * LIMIT // (4 * COLUMNS) + 1)
    bytes = 5 * LIMIT + 4 * COLUMNS
    assert [weight.bytes for weight in program.weights] == [bytes]
    (note,) = notes
    assert note.startswith(f"'table': a weight takes {bytes} bytes; not every webgpu device")
