"""Tensors with values: computed once on a device, cached by what is computed, never changed."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tinyedge
from tinyedge import Tensor, TraceError
from tinyedge.core import dtype as dt
from tinyedge.core.errors import DeviceError, InputError
from tinyedge.core.program.replay import Replay
from tinyedge.eager import executable, places
from tinyedge.eager.held import held_by
from tinyedge.eager.places import Place
from tinyedge.model import TARGETS

pytestmark = pytest.mark.eager

DEVICES = ("cpu", "webgpu", "qcom", "reference")


@pytest.fixture
def built(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What has been compiled since."""
    made: list[Any] = []
    compile_graph = executable.compile_graph

    def counted(*args: Any, **options: Any) -> Any:
        made.append(args)
        return compile_graph(*args, **options)

    monkeypatch.setattr(executable, "compile_graph", counted)
    return made


def numbers(*shape: int) -> Any:
    return np.arange(np.prod(shape), dtype=np.float32).reshape(shape) - 2


@pytest.mark.parametrize("name", DEVICES)
def test_values_are_computed_on_the_device(name: str) -> None:
    with tinyedge.device(name):
        x, w = Tensor(numbers(3, 4)), Tensor(numbers(4, 2))
        y = (x @ w).relu() + 1.0
        z = (y.realize() * 2.0).realize()
    np.testing.assert_allclose(z.numpy(), (np.maximum(numbers(3, 4) @ numbers(4, 2), 0) + 1) * 2)
    assert z.device == ("" if name == "reference" else name)


@pytest.mark.parametrize(
    "dtype", ["bool", "uint8", "int16", "int32", "int64", "float16", "float32"]
)
@pytest.mark.parametrize("name", DEVICES)
def test_element_types_survive_a_device(name: str, dtype: str) -> None:
    array = (numbers(5) > 0) if dtype == "bool" else np.array([0, 1, 2, 3, 100]).astype(dtype)
    tensor = Tensor(array).realize(device=tinyedge.device(name))
    found = tensor.flip((0,)).numpy()
    assert found.dtype == array.dtype
    np.testing.assert_array_equal(found, array[::-1])


def test_other_values_are_the_same_program(built: list[Any]) -> None:
    a, b = (Tensor(numbers(7) + k).realize() for k in range(2))
    (a * b + 3.5).realize()
    before = len(built)
    again = (b * a + 3.5).realize()  # the arguments are others
    assert len(built) == before
    np.testing.assert_array_equal(again.numpy(), (numbers(7) + 1) * numbers(7) + 3.5)
    (a * b + 4.5).realize()
    assert len(built) == before + 1


def test_a_tensor_is_computed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    runs = []
    advance = Replay.advance
    monkeypatch.setattr(Replay, "advance", lambda *a, **k: runs.append(1) or advance(*a, **k))
    y = (Tensor(numbers(5)) * 3.25).realize()
    count = len(runs)
    assert [y.numpy()[0], y.tolist()[1], float(y.sum())] == [-6.5, -3.25, 0.0]
    assert len(runs) == count + 1  # the sum


def test_results_own_their_memory() -> None:
    one, two = (Tensor(numbers(4) + k).realize() for k in range(2))
    kept = (one * 5.0).realize()
    (two * 5.0).realize()
    np.testing.assert_array_equal(kept.numpy(), numbers(4) * 5)


def test_what_was_given_may_change_after_it() -> None:
    array = numbers(4)
    tensor = Tensor(array)
    array[:] = 9
    np.testing.assert_array_equal(tensor.numpy(), numbers(4))
    found = tensor.realize().numpy()
    found[:] = 9
    np.testing.assert_array_equal(tensor.numpy(), numbers(4))
    np.from_dlpack(tensor)[:] = 9
    np.testing.assert_array_equal(tensor.numpy(), numbers(4))


def test_a_number_in_python() -> None:
    x = Tensor(numbers(4)).realize()
    assert (x.sum().item(), float(x.max()), int(x.min()), bool(x.sum() > 1)) == (-2, 1, -2, False)
    assert x.tolist() == [-2, -1, 0, 1]
    assert Tensor(2.5).tolist() == 2.5
    with pytest.raises(ValueError, match="4 elements"):
        x.item()
    with pytest.raises(TypeError, match="no truth value"):
        bool(x)
    np.testing.assert_array_equal(np.asarray(x), numbers(4))
    assert np.asarray(x, np.float64).dtype == np.float64
    np.testing.assert_array_equal((np.ones(4, np.float32) + x).numpy(), numbers(4) + 1)


def test_a_text_shows_what_is_known() -> None:
    x = Tensor(numbers(3))
    assert repr(x) == "Tensor([-2., -1.,  0.], float32)"
    y = x + 1.0
    assert repr(y) == "Tensor(float32, [3])"
    assert repr(y.realize()) == "Tensor([-1.,  0.,  1.], float32)"
    assert len(repr(Tensor(numbers(100_000)).realize())) < 200


def test_arguments_of_functions_have_no_values() -> None:
    x = Tensor.input("x", (3,), dt.float32)
    for use in (x.numpy, (x + 1.0).tolist, x.sum().item, lambda: bool(x.sum() > 0), x.__array__):
        with pytest.raises(TraceError, match=r"(?s)x, at .*test_eager.py:\d+"):
            use()


def test_a_loop_is_found_again(built: list[Any]) -> None:
    def looped(x: Tensor) -> Tensor:
        return Tensor.loop([x], lambda c: [c * 2.0 + 1.0], trips=3)[0]

    x = Tensor(numbers(3)).realize()
    np.testing.assert_array_equal(looped(x).numpy(), numbers(3) * 8 + 7)
    before = len(built)
    np.testing.assert_array_equal(looped(x).numpy(), numbers(3) * 8 + 7)
    assert len(built) == before


def test_one_computation_is_on_one_device() -> None:
    here = Tensor(numbers(3)).realize()
    there = Tensor(numbers(3)).realize(device=tinyedge.device("webgpu"))
    with pytest.raises(InputError, match="cpu, webgpu") as error:
        (here + there).numpy()
    assert error.value.id == "tensor.devices"
    moved = there.realize(device="cpu")
    np.testing.assert_array_equal((here + moved).numpy(), numbers(3) * 2)


def test_devices_are_those_of_targets() -> None:
    assert set(places.names()) == {*TARGETS, "reference"}
    with pytest.raises(InputError, match="there is no such target"):
        tinyedge.device("tpu")
    with pytest.raises(InputError, match="there is no such target"):
        Tensor(numbers(3)).realize(device="tpu")


def test_without_a_compiler_the_error_names_the_reference(monkeypatch: pytest.MonkeyPatch) -> None:
    from tinyedge.targets.cpu import compiler

    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(compiler.importlib.util, "find_spec", lambda name: None)
    x = Tensor(numbers(3))
    with Place("cpu"), pytest.raises(DeviceError, match=r"tinyedge.device\('reference'\)") as error:
        (x + 1.0).realize()
    assert error.value.id == "device.compiler"
    with tinyedge.device("reference"):
        np.testing.assert_array_equal((x + 1.0).numpy(), numbers(3) + 1)


def test_memory_comes_back() -> None:
    place = tinyedge.device("cpu")
    x = Tensor(numbers(1000)).realize()
    for _ in range(3):
        x = (x * 0.5).realize()
    gc.collect()
    before = len(place.device._memory)
    for _ in range(100):
        x = (x * 0.5).realize()
    assert len(place.device._memory) <= before + 2


@pytest.mark.parametrize("asked", [False, True])
def test_nothing_is_kept_on_the_disk_unless_asked(asked: bool, tmp_path: Path) -> None:
    kernels, user = tmp_path / "kernels", tmp_path / "user"
    options = f", cache={str(kernels)!r}" if asked else ""
    script = (
        f"import numpy, tinyedge\nwith tinyedge.device('cpu'{options}):\n"
        "    print((tinyedge.Tensor(numpy.ones(4, 'f4')) + 1.0).numpy().tolist())\n"
    )
    environment = {**os.environ, "XDG_CACHE_HOME": str(user)}
    found = subprocess.run(
        [sys.executable, "-c", script], check=True, capture_output=True, text=True, env=environment
    )
    assert found.stdout.strip() == "[2.0, 2.0, 2.0, 2.0]"
    assert (user.exists(), kernels.exists()) == (asked, asked)


def test_tensors_without_elements() -> None:
    empty = Tensor(np.zeros((0, 3), np.float32)).realize()
    assert (empty + 1.0).realize().shape == (0, 3)
    assert (empty + 1.0).numpy().shape == (0, 3)
    np.testing.assert_array_equal(empty.sum(0).numpy(), np.zeros(3))


def test_a_tensor_of_a_device_is_exported_as_a_weight(tmp_path: Path) -> None:
    w = (Tensor(numbers(4)) * 2.0).realize()
    assert held_by(w.node) is not None
    bundle = tinyedge.export_function(
        lambda x: x + w, {"x": numbers(4)}, target="cpu", out=tmp_path / "f.tinyedge"
    )
    with tinyedge.load(bundle) as model:
        np.testing.assert_array_equal(model.run({"x": w})["output"], numbers(4) * 4)
