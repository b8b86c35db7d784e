"""What only the webgpu device has: adapters, limits, WGSL errors."""

from __future__ import annotations

import dataclasses
import sys

import numpy as np
import pytest

from tests.agreement import Inputs, compiled, find_target
from tests.targets import programs
from tinyedge.core.errors import DeviceError, InternalError
from tinyedge.core.program.device import Range
from tinyedge.core.program.program import Launch
from tinyedge.core.program.replay import Replay
from tinyedge.targets.webgpu import device as webgpu
from tinyedge.targets.webgpu.render import stores

ONES = np.ones((4, 64), np.float32)


def test_without_the_wgpu_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "wgpu", None)
    with pytest.raises(DeviceError, match=r"pip install '\.\[webgpu\]'") as caught:
        webgpu.open()
    assert caught.value.id == "device.webgpu"


def test_without_an_adapter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(webgpu, "_adapters", lambda wgpu: [])
    with pytest.raises(DeviceError, match="mesa-vulkan-drivers") as caught:
        webgpu.open()
    assert caught.value.id == "device.adapter"
    assert webgpu.devices() == []


def test_an_adapter_by_name_or_index() -> None:
    first = webgpu.devices()[0]
    assert first.target == "webgpu"
    for wanted in (0, first.name[:4].upper()):
        device = webgpu.open(wanted)
        assert first.name in device.name
        device.close()
    for wanted in (99, -1, "no such adapter"):
        with pytest.raises(DeviceError, match="there is no device called"):
            webgpu.open(wanted)


def test_limits_are_the_defaults_unless_required(webgpu_device: webgpu.WebgpuDevice) -> None:
    limits = webgpu_device._device.limits
    assert limits["max-storage-buffers-per-shader-stage"] == 8
    assert limits["max-storage-buffer-binding-size"] == 128 * 2**20
    device = webgpu.open(requirements={"bindings": 9, "peak": 5})
    assert device._device.limits["max-storage-buffers-per-shader-stage"] == 9
    device.close()
    device = webgpu.open()  # for programs to come
    for _, limit, least in webgpu.LIMITS:
        assert device._device.limits[limit] == device._device.adapter.limits[limit] >= least
    device.close()
    with pytest.raises(DeviceError, match="the program needs 100000") as caught:
        webgpu.open(requirements={"bindings": 100000})
    assert caught.value.id == "device.limits"
    with pytest.raises(DeviceError, match="does not have teleportation"):
        webgpu.open(features=["teleportation"])


def test_a_refused_kernel_carries_the_message(webgpu_device: webgpu.WebgpuDevice) -> None:
    program = programs.addition("webgpu")
    kernel = dataclasses.replace(program.kernels[0], source="fn add() { no_such = 1; }")
    with pytest.raises(DeviceError, match="no_such") as caught:
        Replay(dataclasses.replace(program, kernels=(kernel,)), webgpu_device)
    assert caught.value.id == "device.compile"


def test_a_buffer_above_the_limit(webgpu_device: webgpu.WebgpuDevice) -> None:
    with pytest.raises(DeviceError, match="above its limit") as caught:
        webgpu_device.alloc(2**29)
    assert caught.value.id == "device.memory"


def test_a_tensor_that_is_too_large_to_bind(webgpu_device: webgpu.WebgpuDevice) -> None:
    (kernel, *_) = webgpu_device.compile(programs.addition("webgpu"))
    with pytest.raises(DeviceError, match="134217744 bytes bound") as caught:
        webgpu_device.bind(kernel, [Range(None, 0, 2**27 + 16)] * 3, None)
    assert caught.value.id == "device.limits"


def test_more_results_than_a_buffer_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    device = webgpu.open()
    monkeypatch.setattr(device, "_most", 8192)
    values = [np.full(n, n % 251, np.uint8) for n in (4096, 3840, 4, 8192, 8)]
    ranges = [Range(device.alloc(each.nbytes), 0, each.nbytes) for each in values]
    for place, value in zip(ranges, values, strict=True):
        device.upload(place, value)
    for value, found in zip(values, device.read(ranges), strict=True):
        np.testing.assert_array_equal(found, value)
    assert device._staging.size == 8192
    device.close()


def test_too_many_workgroups(webgpu_device: webgpu.WebgpuDevice) -> None:
    program = programs.addition("webgpu")
    launch = Launch(0, (0, 1, 3, 2), (65536, 1, 1))
    entry = dataclasses.replace(program.entries[0], steps=(launch,))
    with (
        Replay(dataclasses.replace(program, entries=(entry,)), webgpu_device) as replay,
        pytest.raises(InternalError, match="65536"),
    ):
        replay.run({"a": ONES, "b:0": ONES})


def test_a_buffer_bound_twice_is_our_bug(webgpu_device: webgpu.WebgpuDevice) -> None:
    """WebGPU refuses one buffer as read and read_write in one launch; the device reports it."""
    program = programs.addition("webgpu")
    kernel = programs.kernel("webgpu", "add", "rwrw", "b3[i] = b0[i] + b1[i] + b2[i];")
    program = dataclasses.replace(program, kernels=(kernel,))
    with Replay(program, webgpu_device) as replay:
        with pytest.raises(InternalError) as caught:
            replay.run({"a": ONES, "b:0": ONES})
        assert caught.value.id == "device.validation"


def test_timing_without_timestamps(webgpu_device: webgpu.WebgpuDevice) -> None:
    with Replay(programs.addition("webgpu"), webgpu_device) as replay:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(webgpu_device, "_timed", False)
            timings = replay.profile({"a": ONES, "b:0": ONES})
        assert len(timings) == 2
        assert all(seconds > 0 for _, seconds in timings)
        assert replay.run({"a": ONES, "b:0": ONES})["c"][0, 0] == 2


def test_what_a_kernel_stores_to() -> None:
    """Also under a condition: of a row of 25 vectors 32 threads write some."""
    inputs = Inputs()
    x = inputs.new(np.ones((5, 100), np.float32))
    program = compiled({"y": x.softmax(-1)}, inputs, find_target("webgpu")).program
    assert program is not None
    (kernel,) = program.kernels
    assert "if (" in kernel.source and stores(kernel.source) == [0]
