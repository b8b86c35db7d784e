"""Programs survive being written and read; the manifest has one spelling; goldens are exact."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.bundles import programs
from tinyedge.core.errors import InputError, InternalError
from tinyedge.core.program.program import Launch, Program, evaluate
from tinyedge.export.bundle import golden
from tinyedge.export.bundle.bounds import SHARD_BYTES
from tinyedge.export.bundle.expressions import evaluate_tokens
from tinyedge.export.bundle.manifest import decode, encode
from tinyedge.export.bundle.reading import _expression, read
from tinyedge.export.bundle.writing import tokens, write


def comparable(program: Program) -> Any:
    """A program as plain values, weights as bytes, without what the writer adds."""
    value = dataclasses.asdict(program)
    for weight in value["weights"]:
        weight["content"] = weight["content"].tobytes()
    del value["requirements"]
    return value


@pytest.mark.parametrize("make", [programs.plain, programs.everything])
def test_round_trip(make: Callable[[], Program], tmp_path: Path) -> None:
    program = make()
    write(program, tmp_path, goldens=programs.goldens(program))
    back = read(tmp_path)
    assert comparable(back.program) == comparable(program)
    for name, value in program.requirements.items():
        assert back.program.requirements[name] == value
    for before, after in zip(programs.goldens(program), back.goldens(), strict=True):
        for field in ("entry", "seed", "steps", "symbols", "tolerance", "made"):
            assert getattr(before, field) == getattr(after, field)
        for one, two in zip(before.outputs, after.outputs, strict=True):
            assert one.stride == two.stride
            assert one.data.dtype == two.data.dtype
            np.testing.assert_array_equal(one.data, two.data)
        for given, kept in zip(before.inputs, after.inputs, strict=True):
            assert (given.minimum, given.maximum) == (kept.minimum, kept.maximum)
            assert (given.data is None) == (kept.data is None)
            if given.data is not None:
                np.testing.assert_array_equal(given.data.reshape(-1), kept.data)


def test_the_same_program_gives_the_same_bytes(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        program = programs.everything()
        write(program, tmp_path / name, goldens=programs.goldens(program))
    one, two = (sorted((tmp_path / name).iterdir()) for name in ("one", "two"))
    assert [path.name for path in one] == [path.name for path in two]
    assert [path.read_bytes() for path in one] == [path.read_bytes() for path in two]


def test_weights_span_shards_at_multiples_of_256(tmp_path: Path) -> None:
    sizes = (100, SHARD_BYTES // 4 * 2 + 3, 1, SHARD_BYTES // 4)
    program = programs.plain(tuple(programs.weight(f"w{n}", size) for n, size in enumerate(sizes)))
    seen: list[tuple[int, int]] = []
    manifest = write(program, tmp_path, progress=lambda done, total: seen.append((done, total)))
    shards = [record for record in manifest["files"] if record["name"].startswith("weights")]
    assert [record["name"] for record in shards] == [f"weights-{n:05}.bin" for n in range(4)]
    assert all(record["bytes"] <= SHARD_BYTES for record in shards)
    for record in manifest["files"]:
        content = (tmp_path / record["name"]).read_bytes()
        assert hashlib.sha256(content).hexdigest() == record["sha256"]
    assert seen[-1][0] == seen[-1][1]
    back = read(tmp_path)
    for before, after in zip(program.weights, back.program.weights, strict=True):
        assert before.data is not None and after.data is not None
        np.testing.assert_array_equal(before.data, after.data)
    mapped = back.program.weights[0].data
    assert mapped is not None and not mapped.flags.writeable


def test_kernels_are_slices_after_the_prelude(tmp_path: Path) -> None:
    program = programs.everything()
    manifest = write(program, tmp_path)
    text = (tmp_path / "kernels.wgsl").read_bytes()
    prelude = text[: manifest["prelude"]["bytes"]].decode()
    assert prelude == program.prelude
    for record, kernel in zip(manifest["kernels"], program.kernels, strict=True):
        part = text[record["offset"] : record["offset"] + record["bytes"]].decode()
        assert part == kernel.source
    assert text.decode().count("struct Sizes") == 1


def test_expressions_keep_their_value() -> None:
    expression = ("min", ("sub", ("ceildiv", ("mul", "H", -4), 64), "mul"), ("mod", -7, 4))
    flat = tokens(expression)
    assert flat == ["min", "sub", "ceildiv", "mul", "$H", -4, 64, "$mul", "mod", -7, 4]
    assert _expression(flat) == expression
    for height in (0, 1, 15, 16, 17, 1000):
        expected = evaluate(expression, {"H": height, "mul": 3})
        assert evaluate_tokens(flat, {"$H": height, "$mul": 3}) == expected


def test_the_writer_refuses_a_program_that_breaks_the_format(tmp_path: Path) -> None:
    program = programs.plain()
    entry = program.entries[0]
    launch = Launch(0, (0, 2, 0), (1, 1, 1))
    broken = dataclasses.replace(program, entries=(dataclasses.replace(entry, steps=(launch,)),))
    with pytest.raises(InternalError, match="buffers 0 and 2 overlap") as caught:
        write(broken, tmp_path)
    assert caught.value.id == "export.bundle.overlap"
    assert not list(tmp_path.iterdir())
    odd = dataclasses.replace(program, options={"rate": 0.5})
    with pytest.raises(InternalError, match="float"):
        write(odd, tmp_path)


def test_one_spelling() -> None:
    value = {"b": [{"x": 1, "a": '\u00e9"\\'}, [], {}], "a": [], "c": {"k": [True]}}
    text = encode(value)
    assert text.decode() == (
        '{\n"a":[],\n"b":[\n{"a":"\\u00e9\\"\\\\","x":1},\n[],\n{}\n],\n"c":{"k":[true]}\n}\n'
    )
    assert decode(text) == value


# --- the generator -----------------------------------------------------------------------------


def scalar_hash(seed: int, run: int, position: int, element: int) -> int:
    """The generator of bundle.md once more, in plain integers."""

    def mix(x: int) -> int:
        x = (x + 0x9E3779B9) % 2**32
        x ^= x >> 16
        x = x * 0x85EBCA6B % 2**32
        x ^= x >> 13
        x = x * 0xC2B2AE35 % 2**32
        return x ^ (x >> 16)

    return mix((mix((mix((mix(seed) + run) % 2**32) + position) % 2**32) + element) % 2**32)


GENERATED = json.loads(Path(__file__).with_name("generated.json").read_text("ascii"))


@pytest.mark.parametrize("case", GENERATED, ids=lambda case: f"{case['dtype']}-{case['seed']}")
def test_generated_inputs_are_those_of_the_shared_table(case: dict[str, Any]) -> None:
    hashes = [
        scalar_hash(case["seed"], case["run"], case["position"], element) for element in range(8)
    ]
    assert hashes == case["hashes"]
    ends = {"minimum": case["min"], "maximum": case["max"]}
    values = golden.generate(
        case["dtype"],
        (8,),
        seed=case["seed"],
        run=case["run"],
        position=case["position"],
        **ends,
    )
    assert values.dtype.name == case["dtype"]
    assert [value.tobytes().hex() for value in values] == case["elements"]


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_generated_floats_are_exact_and_fill_the_range(dtype: str) -> None:
    values = golden.generate(dtype, (100, 100), seed=3).astype(np.float64)
    scale = 2**10 if dtype == "float16" else 2**23
    assert np.all(values * scale == np.round(values * scale))
    assert -1 <= values.min() < -0.99 and 0.99 < values.max() < 1
    assert abs(values.mean()) < 0.02
    assert abs(np.corrcoef(values[:, :-1].ravel(), values[:, 1:].ravel())[0, 1]) < 0.03


def test_generated_integers_stay_in_their_range() -> None:
    values = golden.generate("int64", (5000,), seed=0, minimum=-3, maximum=7)
    assert sorted(set(values.tolist())) == list(range(-3, 8))
    wide = golden.generate("uint32", (1000,), seed=0, minimum=0, maximum=2**32 - 1)
    assert wide.max() > 2**31
    assert set(golden.generate("bool", (100,), seed=0).tolist()) == {False, True}


def test_large_outputs_are_sampled_over_every_channel() -> None:
    elements = 512 * 512 * 4
    stride = golden.sampling_stride(elements, 4)
    assert -(-elements // stride) * 4 <= golden.STORED_BYTES
    channels = np.bincount(np.arange(0, elements, stride) % 4)
    assert channels.min() > 0.9 * channels.max()
    assert golden.sampling_stride(65536, 4) == 1


# --- agreement ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("actual", "expected", "agrees"),
    [
        ([100.0, 0.009], [100.0, 0.0], True),
        ([100.0, 0.011], [100.0, 0.0], False),
        ([np.nan, 1.0], [np.nan, 1.0], True),
        ([np.nan, 1.0], [1.0, np.nan], False),
        ([np.inf, 1.0], [np.inf, 1.0], True),
        ([np.inf, 1.0], [-np.inf, 1.0], False),
        ([1e38, np.inf], [1e38, 3e38], False),
        ([0.0, 1e-30], [0.0, 0.0], False),
        ([], [], True),
    ],
)
def test_float_agreement(actual: list[float], expected: list[float], agrees: bool) -> None:
    a, b = np.array(actual, np.float32), np.array(expected, np.float32)
    assert golden.compare("y", a, b, 100).agrees is agrees


def test_integers_and_dtypes_must_be_equal() -> None:
    ones = np.ones(3, np.int64)
    assert golden.compare("y", ones, ones, 10**6).agrees
    assert not golden.compare("y", ones, ones + np.array([0, 0, 1]), 10**6).agrees
    assert "dtype" in golden.compare("y", ones.astype(np.int32), ones, 100).because


def test_a_count_limits_what_is_compared() -> None:
    program = programs.everything()
    case = golden.make(program, programs.run, made="a test")
    assert case.outputs[0].data.shape == (65 * 4,)
    outputs = programs.run(golden.case_inputs(program, case), "main", case.symbols)
    assert all(result.agrees for result in golden.compare_case(program, case, outputs))
    outputs["häuser/0"] = outputs["häuser/0"][:-1]
    assert [result.agrees for result in golden.compare_case(program, case, outputs)] == [
        False,
        True,
    ]


def test_several_runs_have_several_inputs_and_start_from_a_reset() -> None:
    program = programs.plain()
    total = np.zeros((4, 4), np.float32)

    def reset() -> None:
        total[:] = 0

    def run(inputs: Any, entry: str, symbols: Any) -> dict[str, Any]:
        total[:] += inputs["x"]
        return {"y": total.copy()}

    run({"x": np.ones((4, 4))}, "main", {})
    case = golden.make(program, run, made="a test", steps=3, seed=9, reset=reset)
    expected = sum(golden.generate("float32", (4, 4), seed=9, run=step) for step in range(3))
    np.testing.assert_array_equal(case.outputs[0].data, np.asarray(expected).reshape(-1))


def test_given_inputs_must_fit() -> None:
    with pytest.raises(InputError) as caught:
        golden.make(programs.plain(), programs.run, made="a test", given={"x": np.zeros(3)})
    assert caught.value.id == "golden.input"
    program = programs.everything()
    port = next(port for port in program.inputs if "batch size" in port.shape)
    for sizes, ending in ((None, "], of the greatest sizes"), ({"batch size": 1}, "]")):
        with pytest.raises(InputError) as caught:
            given = {port.name: np.zeros(3)}
            golden.make(program, programs.run, made="a test", given=given, symbols=sizes)
        assert caught.value.supported.endswith(ending)
