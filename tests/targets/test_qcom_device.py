"""What only the qcom device has: platforms, limits, build options, sub-buffers, images."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from tests.targets import programs
from tinyedge.core.errors import DeviceError, InternalError
from tinyedge.core.program.device import Range
from tinyedge.core.program.program import (
    Binding,
    Buffer,
    Entry,
    Image,
    Kernel,
    Launch,
    Port,
    Program,
)
from tinyedge.core.program.replay import Replay
from tinyedge.targets.qcom import device as qcom

ONES = np.ones((4, 64), np.float32)


def test_without_the_pyopencl_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyopencl", None)
    with pytest.raises(DeviceError, match=r"pip install '\.\[qcom\]'") as caught:
        qcom.open()
    assert caught.value.id == "device.qcom"


def test_without_a_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    """The loader's answer where no driver is installed."""
    import pyopencl as cl

    def none() -> list[Any]:
        raise cl.LogicError("clGetPlatformIDs failed: PLATFORM_NOT_FOUND_KHR")

    monkeypatch.setattr(cl, "get_platforms", none)
    with pytest.raises(DeviceError, match="apt-get install pocl-opencl-icd") as caught:
        qcom.open()
    assert caught.value.id == "device.adapter"
    assert qcom.devices() == []


def test_a_device_by_name_or_index() -> None:
    first = qcom.devices()[0]
    assert first.target == "qcom" and first.kind in ("GPU", "CPU")
    for wanted in (0, first.name[:5].upper()):
        device = qcom.open(wanted)
        assert first.name in device.name
        device.close()
    for wanted in (99, -1, "no such device"):
        with pytest.raises(DeviceError, match="no device called") as caught:
            qcom.open(wanted)
        assert caught.value.id == "device.adapter"


@pytest.mark.parametrize(
    ("requirements", "because"),
    [
        ({"bindings": 100000}, "kernels take"),
        ({"binding_bytes": 2**60}, "max_mem_alloc_size"),
        ({"buffer_bytes": 2**60}, "max_mem_alloc_size"),
        ({"invocations": 2**20}, "max_work_group_size"),
        ({"workgroup_bytes": 2**40}, "local_mem_size"),
        ({"image_width": 2**20}, "image2d_max_width"),
        ({"image_height": 2**20}, "image2d_max_height"),
    ],
)
def test_a_device_that_is_too_small(requirements: dict[str, int], because: str) -> None:
    with pytest.raises(DeviceError, match=because) as caught:
        qcom.open(requirements=requirements)
    assert caught.value.id == "device.limits"


def test_a_refused_kernel_carries_the_message(qcom_device: qcom.OpenclDevice) -> None:
    program = programs.addition("qcom")
    kernel = dataclasses.replace(program.kernels[0], source="__kernel void add() { no_such = 1; }")
    with pytest.raises(DeviceError, match="no_such") as caught:
        Replay(dataclasses.replace(program, kernels=(kernel,)), qcom_device)
    assert caught.value.id == "device.compile"


def test_only_known_build_options(qcom_device: qcom.OpenclDevice) -> None:
    program = programs.addition("qcom")
    known = dataclasses.replace(program, options={"build": "-cl-std=CL1.2 -cl-fast-relaxed-math"})
    with Replay(known, qcom_device) as replay:
        assert replay.run({"a": ONES, "b:0": ONES})["c"][0, 0] == 2
    hostile = dataclasses.replace(program, options={"build": "-I /etc -cl-std=CL1.2"})
    with pytest.raises(DeviceError, match="-I /etc") as caught:
        Replay(hostile, qcom_device)
    assert caught.value.id == "device.compile"


def test_a_buffer_above_the_limit(qcom_device: qcom.OpenclDevice) -> None:
    with pytest.raises(DeviceError, match="above its limit") as caught:
        qcom_device.alloc(2**60)
    assert caught.value.id == "device.memory"


def test_too_many_threads(qcom_device: qcom.OpenclDevice) -> None:
    program = programs.addition("qcom")
    entry = dataclasses.replace(program.entries[0], steps=(Launch(0, (0, 1, 3, 2), (2**26, 1, 1)),))
    with (
        Replay(dataclasses.replace(program, entries=(entry,)), qcom_device) as replay,
        pytest.raises(InternalError, match="67108864"),
    ):
        replay.run({"a": ONES, "b:0": ONES})


def test_nothing_is_made_in_a_run(
    qcom_device: qcom.OpenclDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No buffer, sub-buffer, kernel or argument after the first run."""
    import pyopencl as cl

    with Replay(programs.addition("qcom"), qcom_device) as replay:
        replay.run({"a": ONES, "b:0": ONES})
        for name in ("Buffer", "Kernel", "Program", "Image", "CommandQueue"):
            monkeypatch.setattr(cl, name, None)
        assert replay.run({"a": ONES, "b:0": ONES})["c"][0, 0] == 2


def test_ranges_of_a_buffer_are_made_once(qcom_device: qcom.OpenclDevice) -> None:
    memory = qcom_device.alloc(4096)
    part, same = (qcom_device._part(Range(memory, 512, 256)) for _ in range(2))
    assert part is same and part.size == 256
    assert qcom_device._part(Range(memory, 0, 4096)) is memory.buffer
    qcom_device.free(memory)


@pytest.fixture(params=["view", "copy"])
def image_device(
    request: pytest.FixtureRequest, qcom_device: qcom.OpenclDevice
) -> Iterator[qcom.OpenclDevice]:
    """The device with images over buffers, where it has them, and without."""
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "copy":
            patch.setattr(qcom_device, "_image_alignments", (0, 0))
        yield qcom_device


def images(dtype: str) -> Program:
    """y = the pixels of a weight, read one to the right, written to an image and read back."""
    width, height, pitch = 5, 3, 64 * 4 * np.dtype(dtype).itemsize
    rows = np.arange(height * pitch // np.dtype(dtype).itemsize).astype(dtype)
    weight = dataclasses.replace(
        programs.constant("w", []),
        dtype=dtype,
        storage=dtype,
        shape=rows.shape,
        content=rows.view(np.uint8),
        bytes=rows.nbytes,
    )
    sampler = "CLK_NORMALIZED_COORDS_FALSE | CLK_ADDRESS_CLAMP | CLK_FILTER_NEAREST"
    copy, back = (
        f"__kernel __attribute__((reqd_work_group_size({width}, 1, 1))) void {name}"
        f"({arguments}) {{ int x = get_local_id(0), y = get_group_id(1); {statement} }}"
        for name, arguments, statement in (
            (
                "shift",
                "__read_only image2d_t a, __write_only image2d_t b",
                "write_imagef(b, (int2)(x, y), read_imagef(a, s, (int2)(x + 1, y)) * 0.5f);",
            ),
            (
                "back",
                "__read_only image2d_t b, __global float4 *c",
                f"c[y * {width} + x] = read_imagef(b, s, (int2)(x, y));",
            ),
        )
    )
    read, write = Binding("read", dtype), Binding("read_write", dtype)
    size = width * height * 16
    return dataclasses.replace(
        programs.program(
            "qcom",
            inputs=(),
            outputs=(Port("y", "float32", (height, width, 4), "float32", 2),),
            buffers=(
                Buffer(weight=0, bytes=rows.nbytes),
                Buffer(0, 1280, height * pitch),
                Buffer(0, 0, size),
            ),
            weights=(weight,),
            kernels=(
                Kernel("shift", copy, (width, 1, 1), (read, write)),
                Kernel("back", back, (width, 1, 1), (read, Binding("read_write", "float32"))),
            ),
            entries=(
                Entry(
                    "main",
                    (),
                    ("y",),
                    (Launch(0, (0, 1), (1, height, 1)), Launch(1, (1, 2), (1, height, 1))),
                ),
            ),
        ),
        images=tuple(Image(buffer, dtype, width, height, pitch) for buffer in (0, 1)),
        prelude=f"__constant sampler_t s = {sampler};\n",
    )


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_images(image_device: qcom.OpenclDevice, dtype: str) -> None:
    """Pixels come from the weight's bytes, row by row; outside of an image is zero."""
    pixels = np.arange(3 * 64 * 4).reshape(3, 64, 4)[:, :5].astype(np.float32) / 2
    expected = np.concatenate([pixels[:, 1:], np.zeros((3, 1, 4), np.float32)], 1)
    with Replay(images(dtype), image_device) as replay:
        for _ in range(2):
            np.testing.assert_array_equal(replay.run({})["y"], expected)


class OtherRows:
    """An image of which the rows are not as far apart as was asked."""

    def __init__(self, *_: object, **more: object) -> None:
        pass

    def get_image_info(self, _: object) -> int:
        return 128

    def release(self) -> None:
        pass


def test_an_image_with_other_rows_is_refused(
    qcom_device: qcom.OpenclDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    import pyopencl as cl

    monkeypatch.setattr(qcom_device, "_image_alignments", (64, 1))
    monkeypatch.setattr(cl, "Image", OtherRows)
    with pytest.raises(DeviceError, match="rows of 128 bytes") as caught:
        Replay(images("float32"), qcom_device)
    assert caught.value.id == "device.image"


@pytest.mark.parametrize("listed", [0, 1])
def test_a_buffer_where_a_kernel_takes_an_image(
    listed: int, image_device: qcom.OpenclDevice
) -> None:
    """PoCL does not refuse it, but crashes."""
    program = images("float32")
    with pytest.raises(DeviceError, match="buffer for an image") as caught:
        Replay(dataclasses.replace(program, images=program.images[:listed]), image_device)
    assert caught.value.id == "device.image"
