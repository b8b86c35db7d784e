"""In Python, too, the cpu reads whole inputs where they lie, and writes results that are new."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from tests.agreement import find_target
from tests.shifted import shifted
from tinyedge.core import dtype as dt
from tinyedge.core.compiler.compile import compile_graph
from tinyedge.core.program.placing import LEAST_BYTES
from tinyedge.core.program.replay import Replay
from tinyedge.core.tensor.graph import Graph, Port
from tinyedge.core.tensor.tensor import Tensor
from tinyedge.targets.cpu.device import CpuDevice, open

Array = Any
SHAPE = (8, LEAST_BYTES // 4)
X = np.random.default_rng(1).normal(size=SHAPE).astype(np.float32)


class Watched:
    """A device's uploads and reads, in bytes."""

    def __init__(self, device: CpuDevice, monkeypatch: pytest.MonkeyPatch) -> None:
        self.device = device
        self.uploaded: list[int] = []
        self.read: list[int] = []
        upload, read = device.upload, device.read
        monkeypatch.setattr(
            device, "upload", lambda to, data: (self.uploaded.append(data.nbytes), upload(to, data))
        )
        monkeypatch.setattr(
            device, "read", lambda of: (self.read.extend(r.bytes for r in of), read(of))[1]
        )


@pytest.fixture
def watched(monkeypatch: pytest.MonkeyPatch) -> Iterator[Watched]:
    device = open()
    yield Watched(device, monkeypatch)
    device.close()


def replay(watched: Watched, outputs: dict[str, Tensor], shape: Any = SHAPE) -> Replay:
    ports = tuple(Port(name, y.dtype, y.shape, y.node) for name, y in outputs.items())
    graph = Graph((Port("x", dt.float32, shape),), ports)
    program = compile_graph(graph, find_target("cpu")).program
    assert program is not None
    made = Replay(program, watched.device, poison=True)
    watched.uploaded.clear()
    return made


x = Tensor.input("x", SHAPE, dt.float32)


@pytest.mark.parametrize(("shift", "copied"), [(0, 0), (4, 0), (60, 0), (1, 1), (2, 1)])
def test_what_is_aligned_to_its_elements_is_not_copied(
    watched: Watched, shift: int, copied: int
) -> None:
    with replay(watched, {"y": x * 2.0}) as made:
        given = shifted(X, shift)
        given.flags.writeable = False
        results = [made.run({"x": given})["y"] for _ in range(2)]
    assert watched.uploaded == [X.nbytes] * 2 * copied and not watched.read
    assert not np.shares_memory(*results)
    results[0][:] = 0
    np.testing.assert_array_equal(results[1], X * 2)
    np.testing.assert_array_equal(given, X)


def test_what_has_gaps_is_copied(watched: Watched) -> None:
    wide = np.repeat(X, 2, axis=1)
    with replay(watched, {"y": x * 2.0}) as made:
        np.testing.assert_array_equal(made.run({"x": wide[:, ::2]})["y"], X * 2)
        np.testing.assert_array_equal(made.run({"x": X})["y"], X * 2)
        np.testing.assert_array_equal(made.run({"x": wide[:, 1::2] + 1})["y"], (X + 1) * 2)


def test_memory_that_changes_between_runs(watched: Watched) -> None:
    """Nothing is left of where a run's arrays were."""
    y = (x @ Tensor.weight("w", np.eye(SHAPE[1], dtype=np.float32)[:, ::-1].copy())).relu() + x
    with replay(watched, {"y": y}) as made:
        for number in range(3):
            given = np.random.default_rng(number).normal(size=SHAPE).astype(np.float32)
            expected = np.maximum(given[:, ::-1], 0) + given
            np.testing.assert_allclose(made.run({"x": given})["y"], expected, atol=1e-6)
            made.profile({"x": X})
            del given


def test_one_value_as_two_ports(watched: Watched) -> None:
    """An input that is an output, and a result with two names: no two arrays share memory."""
    outputs = {"same": x, "y": x + 1.0, "z": x + 1.0}
    with replay(watched, outputs) as made:
        given = X.copy()
        results = made.run({"x": given})
        for name, array in results.items():
            np.testing.assert_array_equal(array, X if name == "same" else X + 1, name)
            assert not np.shares_memory(array, given)
        results["same"][:] = 5
        np.testing.assert_array_equal(given, X)
        np.testing.assert_array_equal(made.run({"x": given})["same"], X)


def test_memory_with_guards_is_the_devices_own(monkeypatch: pytest.MonkeyPatch) -> None:
    device = open(guard=True)
    watched = Watched(device, monkeypatch)
    with replay(watched, {"y": x * 2.0}) as made:
        np.testing.assert_array_equal(made.run({"x": X})["y"], X * 2)
    assert watched.uploaded == [X.nbytes] and watched.read == [X.nbytes]
    device.close()
