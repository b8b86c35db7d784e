"""Every target's device replays the same hand-written programs."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from tests.targets import programs
from tinyedge.core.errors import RunError
from tinyedge.core.program.device import Device
from tinyedge.core.program.program import Launch
from tinyedge.core.program.replay import Replay


def test_addition_copy_and_slices(device: Device, target: str) -> None:
    a = np.random.default_rng(0).standard_normal((4, 64), np.float32)
    b = np.ones((4, 64), np.float32)
    with Replay(programs.addition(target), device, poison=True) as replay:
        for scale in (1, 2):
            result = replay.run({"a": a * np.float32(scale), "b:0": b})
            expected = a * np.float32(scale) + b + np.arange(256, dtype=np.float32).reshape(4, 64)
            np.testing.assert_array_equal(result["c"], expected)
            np.testing.assert_array_equal(result["tail"], expected[3:])
            np.testing.assert_array_equal(
                result["half"], expected.reshape(8, 32)[4:].reshape(2, 64)
            )


def test_symbols(device: Device, target: str) -> None:
    with Replay(programs.symbolic(target), device) as replay:
        for rows, columns in ((1, 4), (8, 16), (3, 8), (1, 4)):
            x = np.arange(rows * columns, dtype=np.float32).reshape(rows, columns)
            result = replay.run({"x": x, "bias": np.zeros(columns, np.float32)})
            np.testing.assert_array_equal(result["y"], 2 * x.reshape(-1))


@pytest.mark.parametrize(("start", "iterations"), [(0, 0), (7, 7), (500, 100)])
def test_loop_ends_by_condition_or_bound(
    device: Device, target: str, start: int, iterations: int
) -> None:
    with Replay(programs.repeat(target), device) as replay:
        result = replay.run({"x": np.zeros(64, np.float32), "n": [start]})
        np.testing.assert_array_equal(result["x_out"], np.full(64, iterations, np.float32))
        assert result["left"].dtype == np.int64
        assert result["left"].tolist() == [start - iterations]


def test_state_survives_runs(device: Device, target: str) -> None:
    x = np.ones(64, np.float32)
    with Replay(programs.counter(target), device) as replay:
        assert replay.run({}, "peek")["total"][0] == 10
        assert replay.run({"x": x})["total"][63] == 11
        assert replay.run({"x": x}, "main")["total"][63] == 12
        assert replay.get_state("memory")[5] == 12
        replay.set_state("memory", np.zeros(64, np.float32))
        assert replay.run({}, "peek")["total"][0] == 0
        replay.reset()
        assert replay.run({}, "peek")["total"][0] == 10


def test_ports_of_every_storage(device: Device, target: str) -> None:
    program = programs.ports(target)
    values = {"f": [0.5, -2.25, np.inf, np.nan, 65504], "u": [0, 1, 2, 200, 255]}
    values |= {"i": [-128, -1, 0, 1, 127], "b": [True, False, True, True, False]}
    inputs = {
        port.name: np.array(values[np.dtype(port.dtype).kind], port.dtype)
        for port in program.inputs
    }
    with Replay(program, device) as replay:
        result = replay.run(inputs)
    for port in program.inputs:
        output = result[port.name.replace("in_", "out_")]
        assert output.dtype == port.dtype
        np.testing.assert_array_equal(output, inputs[port.name])


def test_output_with_a_count(device: Device, target: str) -> None:
    x = np.arange(16, dtype=np.float32).reshape(8, 2)
    with Replay(programs.selection(target), device) as replay:
        for count in (0, 3, 8):
            result = replay.run({"x": x, "n": count})
            assert list(result) == ["picked", "beside", "number"]
            np.testing.assert_array_equal(result["picked"], x[:count])
            beside = x.reshape(-1)[: 2 * count].reshape(2, count)
            np.testing.assert_array_equal(result["beside"], beside)


def test_profile_names_every_launch(device: Device, target: str) -> None:
    ones = np.ones((4, 64), np.float32)
    with Replay(programs.addition(target), device) as replay:
        timings = replay.profile({"a": ones, "b:0": ones})
        assert [type(step).__name__ for step, _ in timings] == ["Launch", "Copy"]
        step, seconds = timings[0]
        assert isinstance(step, Launch) and step.nodes == ("Add_0",)
        assert 0 <= seconds < 10
        assert replay.time({"a": ones, "b:0": ones}) > 0


def test_a_wrong_input_leaves_the_state_alone(device: Device, target: str) -> None:
    with Replay(programs.counter(target), device) as replay:
        with pytest.raises(RunError):
            replay.run({"x": np.ones(63, np.float32)})
        assert replay.run({}, "peek")["total"][0] == 10


def test_two_programs_share_a_device(device: Device, target: str) -> None:
    x = np.ones(64, np.float32)
    with (
        Replay(programs.counter(target), device) as first,
        Replay(programs.counter(target), device) as second,
    ):
        first.run({"x": x})
        assert second.run({"x": x})["total"][0] == 11
        assert first.run({"x": x})["total"][0] == 12


def test_many_kernels(device: Device, target: str) -> None:
    program = programs.addition(target)
    more = tuple(
        programs.kernel(target, f"scale{index}", "ww", f"b1[i] = b0[i] * {index}.0f;")
        for index in range(20)
    )
    launches = tuple(Launch(1 + index, (0, 2), (4, 1, 1)) for index in range(20))
    entry = dataclasses.replace(program.entries[0], steps=launches)
    program = dataclasses.replace(program, kernels=(*program.kernels, *more), entries=(entry,))
    ones = np.ones((4, 64), np.float32)
    with Replay(program, device) as replay:
        assert replay.run({"a": ones, "b:0": ones})["c"][0, 0] == 19
