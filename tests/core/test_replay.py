"""The replay loop: what it checks, converts and keeps, on a device of numpy arrays."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.core.fake_device import FakeDevice
from tests.targets import programs
from tinyedge.core.errors import InternalError, RunError
from tinyedge.core.program.device import Device
from tinyedge.core.program.ports import decode, encode, say
from tinyedge.core.program.program import Copy, Expression, Port, Program, Symbol
from tinyedge.core.program.replay import RECORDED_SIZES, Replay


def double(counts: tuple[int, int, int], x: Any, y: Any, table: Any) -> None:
    size = min(counts[0] * programs.WORKGROUP, x.size)
    y[:size] = 2 * x[:size]


def symbolic() -> tuple[Replay, FakeDevice]:
    device = FakeDevice({"double_it": double})
    return Replay(programs.symbolic("fake"), device), device


def inputs(rows: int, columns: int) -> dict[str, np.ndarray]:
    return {
        "x": np.ones((rows, columns), np.float32),
        "bias": np.zeros(columns, np.float32),
    }


def test_the_devices_satisfy_the_protocol() -> None:
    device: Device = FakeDevice()
    assert device.name == "fake"


def test_a_run_creates_nothing() -> None:
    replay, device = symbolic()
    replay.run(inputs(2, 8))
    before = device.calls.copy()
    replay.run(inputs(2, 8))
    assert device.calls - before == {"upload": 2, "replay": 1, "read": 1}


def test_the_symbol_table_is_written_only_when_sizes_change() -> None:
    replay, device = symbolic()
    uploads = []
    for rows in (2, 2, 3, 3, 2):
        before = device.calls["upload"]
        replay.run(inputs(rows, 8))
        uploads.append(device.calls["upload"] - before)
    assert uploads == [3, 2, 3, 2, 3]
    assert device.calls["record"] == 2


def test_recordings_are_bounded() -> None:
    program = dataclasses.replace(
        programs.symbolic("fake"), symbols=(Symbol("N", 1, 8), Symbol("M", 1, 30))
    )
    replay = Replay(program, FakeDevice({"double_it": double}))
    for rows in range(1, 9):
        for columns in range(1, 31):
            replay.run(inputs(rows, columns))
    assert len(replay._recordings) == RECORDED_SIZES


def test_closing_frees_everything() -> None:
    replay, device = symbolic()
    assert device.live == 2
    replay.close()
    replay.close()
    assert device.live == 0


def test_a_failed_preparation_frees_everything() -> None:
    program = programs.addition("fake")
    weight = dataclasses.replace(program.weights[0], content=None)
    device = FakeDevice()
    with pytest.raises(InternalError, match="was not read"):
        Replay(dataclasses.replace(program, weights=(weight,)), device)
    assert device.live == 0


class Elsewhere:
    """A tensor of another package, which numpy cannot read."""

    def __array__(self, *_: Any, **__: Any) -> Any:
        raise RuntimeError("use detach")


@pytest.mark.parametrize(
    ("wrong", "id", "message"),
    [
        ({"x": None}, "run.input", r"input 'x' .*\n.*missing\n.*x float32 \[N, M\]; bias"),
        ({"y": np.ones(3)}, "run.input", "input 'y' .*\n.*'main' has no such input"),
        ({"x": np.ones((2, 8))}, "run.dtype", "float64\n.*float32\n.*astype"),
        ({"x": np.ones((2, 8), ">f8")}, "run.dtype", "float64"),
        ({"x": np.ones(8, np.float32)}, "run.shape", "it has 1 axes"),
        ({"x": np.ones((9, 8), np.float32)}, "run.shape", r"axis 0 is 9, but N is 1\.\.8"),
        ({"x": np.ones((0, 8), np.float32)}, "run.shape", r"axis 0 is 0"),
        ({"x": np.ones((2, 6), np.float32)}, "run.shape", r"4\.\.16 in steps of 4"),
        ({"bias": np.ones(4, np.float32)}, "run.shape", "axis 0 is 4, but M is 8 by axis 1 of 'x'"),
        ({"x": [[1, 2], [3]]}, "run.shape", "a regular array"),
        ({"x": [["a", "b"]]}, "run.dtype", "float32"),
        ({"x": {"a": 1}}, "run.dtype", "object"),
        ({"x": Elsewhere()}, "run.input", "gives no array: use detach"),
    ],
)
def test_wrong_inputs(wrong: dict[str, Any], id: str, message: str) -> None:
    replay, device = symbolic()
    before = device.calls.copy()
    given = inputs(2, 8) | wrong
    if given["x"] is None:
        del given["x"]
    with pytest.raises(RunError, match=message) as caught:
        replay.run(given)
    assert caught.value.id == id
    assert device.calls == before, "nothing was sent to the device"


def test_unknown_entry_and_state() -> None:
    replay = Replay(programs.counter("fake"), FakeDevice())
    with pytest.raises(RunError, match="'main', 'peek'"):
        replay.run({}, "other")
    with pytest.raises(RunError, match="'memory'"):
        replay.get_state("other")
    with pytest.raises(RunError, match=r"its shape is \(64,\), not \(3,\)"):
        replay.set_state("memory", [1, 2, 3])


def test_symbols_that_no_input_shows() -> None:
    program = programs.symbolic("fake")
    program = dataclasses.replace(program, symbols=(*program.symbols, Symbol("T", 2, 6, 2)))
    seen = []

    def look(counts: Any, x: Any, y: Any, table: Any) -> None:
        seen.append(table[:3].tolist())

    replay = Replay(program, FakeDevice({"double_it": look}))
    replay.run(inputs(2, 8))
    replay.run(inputs(2, 8), symbols={"T": 4})
    replay.run(inputs(2, 8), symbols={"T": 4, "N": 2})
    assert seen == [[2, 8, 6], [2, 8, 4], [2, 8, 4]]
    for wrong in ({"T": 3}, {"T": 8}, {"Z": 1}, {"N": 3}):
        with pytest.raises(RunError) as caught:
            replay.run(inputs(2, 8), symbols=wrong)
        assert caught.value.id == "run.shape"


def test_shapes_that_are_expressions() -> None:
    program = programs.symbolic("fake")
    bias = Port("bias", "float32", (("add", ("mul", "M", 2), 1),), "float32", 2)
    program = dataclasses.replace(program, inputs=(program.inputs[0], bias))
    replay = Replay(program, FakeDevice({"double_it": double}))
    x = np.ones((2, 8), np.float32)
    assert replay.run({"x": x, "bias": np.zeros(17, np.float32)})["y"].shape == (16,)
    with pytest.raises(RunError, match=r"axis 0 is 16, not 17\n.*2 \* M \+ 1"):
        replay.run({"x": x, "bias": np.zeros(16, np.float32)})


def test_empty_launches_and_copies_are_left_out() -> None:
    program = programs.counter("fake")
    entry = dataclasses.replace(program.entries[1], steps=(Copy(2, 1, 0), Copy(2, 1, 256)))
    replay = Replay(dataclasses.replace(program, entries=(entry,)), FakeDevice())
    assert [step.bytes for step, _ in replay.profile({})] == [256]


@pytest.mark.parametrize(
    ("count", "because"), [(-1, "-1 entries: sizes that must be equal differ"), (9, "room for 8")]
)
def test_a_count_beyond_its_output(count: int, because: str) -> None:
    replay = Replay(programs.selection("fake"), FakeDevice())
    with pytest.raises(RunError, match=because):
        replay.run({"x": np.zeros((8, 2), np.float32), "n": count})


def only(dtype: str, storage: str) -> Replay:
    program = Program(
        target="fake",
        symbols=(),
        inputs=(Port("x", dtype, (2,), storage, 0),),
        outputs=(Port("x", dtype, (2,), storage, 0),),
        states=(),
        arenas=programs.addition("fake").arenas,
        buffers=(programs.place(0),),
        weights=(),
        kernels=(),
        entries=(programs.Entry("main", ("x",), ("x",), ()),),
    )
    return Replay(program, FakeDevice())


@pytest.mark.parametrize(
    ("dtype", "storage", "value"),
    [
        ("int64", "int32", [2**31 - 1, -(2**31)]),
        ("float64", "float32", [1, True]),
        ("float32", "float32", (1.5, 2)),
        ("bool", "int32", [True, False]),
        ("uint8", "uint8", [0, 255]),
        ("int32", "int32", [True, -5]),
    ],
)
def test_python_values_are_converted(dtype: str, storage: str, value: Any) -> None:
    result = only(dtype, storage).run({"x": value})["x"]
    assert result.dtype == dtype
    assert result.tolist() == list(value)


@pytest.mark.parametrize(
    ("dtype", "storage", "value", "id"),
    [
        ("int64", "int32", np.array([0, 2**31]), "run.range"),
        ("int64", "int32", [0, -(2**31) - 1], "run.range"),
        ("uint64", "uint32", np.array([0, 2**32], np.uint64), "run.range"),
        ("uint8", "uint8", [0, 256], "run.range"),
        ("float64", "float32", np.array([0, 3.5e38]), "run.range"),
        ("float32", "float16", np.array([0, -65520], np.float32), "run.range"),
        ("float32", "float32", [0, 1e39], "run.range"),
        ("int32", "int32", [0, 2**70], "run.dtype"),
        ("int64", "int32", [1.0, 2.0], "run.dtype"),
        ("bool", "int32", [0, 1], "run.dtype"),
        ("float32", "float32", [1j, 0], "run.dtype"),
        ("int64", "int32", np.array([1, 2], np.int32), "run.dtype"),
    ],
)
def test_values_that_do_not_fit(dtype: str, storage: str, value: Any, id: str) -> None:
    with pytest.raises(RunError) as caught:
        only(dtype, storage).run({"x": value})
    assert caught.value.id == id


def test_byte_order_and_strides_do_not_matter() -> None:
    replay = only("float32", "float32")
    assert replay.run({"x": np.array([1, 2], ">f4")})["x"].tolist() == [1, 2]
    assert replay.run({"x": np.arange(6, dtype=np.float32)[::3]})["x"].tolist() == [0, 3]


def test_a_result_is_not_changed_by_the_next_run() -> None:
    replay = only("float32", "float32")
    first = replay.run({"x": [1, 2]})["x"]
    replay.run({"x": [3, 4]})
    assert first.tolist() == [1, 2]
    first[0] = 7
    assert replay.run({"x": [3, 4]})["x"].tolist() == [3, 4]


STORAGES = {
    "bool": ("bool", "uint8", "int32", "uint32"),
    "int8": ("int8", "int16", "int32"),
    "int16": ("int16", "int32"),
    "int32": ("int32",),
    "int64": ("int64", "int32"),
    "uint8": ("uint8", "uint16", "uint32", "int32"),
    "uint16": ("uint16", "uint32", "int32"),
    "uint32": ("uint32",),
    "uint64": ("uint64", "uint32"),
    "float16": ("float16", "float32"),
    "float32": ("float32",),
    "float64": ("float64",),
}
PAIRS = [(dtype, storage) for dtype, storages in STORAGES.items() for storage in storages]


@given(st.sampled_from(PAIRS), st.lists(st.integers(0, 2**32 - 1), max_size=9))
def test_encode_then_decode_is_the_identity(pair: tuple[str, str], seeds: list[int]) -> None:
    dtype, storage = pair
    kind = np.dtype(dtype)
    if kind.kind in "iu":
        limits = [np.iinfo(dtype), np.iinfo(storage)]
        low, high = max(int(x.min) for x in limits), min(int(x.max) for x in limits)
        values = np.array([low + seed % (high - low + 1) for seed in seeds], dtype)
    else:
        values = np.array(seeds, np.uint32).view(np.float32)
        with np.errstate(all="ignore"):
            values = values.astype(dtype)
    content = encode(values, storage, "a test")
    assert content.nbytes % 4 == 0
    port = Port("x", dtype, (len(seeds),), storage, 0)
    np.testing.assert_array_equal(decode(content, port, values.shape), values)


@pytest.mark.parametrize(
    ("expression", "text"),
    [
        (("ceildiv", ("mul", "H", 4), 64), "ceildiv(4 * H, 64)"),
        (("sub", ("floordiv", "W", 2), 1), "W // 2 - 1"),
        (("add", ("floordiv", ("sub", "H", 1), 2), 1), "(H - 1) // 2 + 1"),
        (("mul", ("add", "b", "a"), ("floordiv", "c", 2)), "(a + b) * (c // 2)"),
        (("sub", "a", ("sub", "b", ("mul", 3, "c"))), "3 * c + a - b"),
        (("add", 3, ("mul", "H", -1)), "3 - H"),
        (("mul", ("mul", "W", -2), "H"), "-2 * H * W"),
        (("mod", "a", ("add", 1, "b")), "a % (b + 1)"),
        (("sub", "a", "a"), "a - a"),
        (("sub", 2, 2), "0"),
    ],
)
def test_say(expression: Expression, text: str) -> None:
    """One spelling for an expression, however it is nested."""
    assert say(expression) == text
