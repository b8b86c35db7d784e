"""Files of states by the C runtime: the ones that Python writes and reads, and no other."""

from __future__ import annotations

import ctypes as c
import json
import random
import struct
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper, save

import tinyedge
from tests.runtimes_c import build
from tests.runtimes_c.conftest import Build, write
from tests.runtimes_c.library import Context
from tests.runtimes_c.test_states import compiled
from tests.stateful import CASES, Case, X, runs
from tinyedge.core import dtype as dt
from tinyedge.core.errors import InputError
from tinyedge.core.program.device import Device
from tinyedge.core.program.replay import Replay
from tinyedge.nn import safetensors
from tinyedge.targets.cpu.compiler import FLAGS as KERNEL_FLAGS

ODD = 'é"\\ 日'  # a name that JSON and UTF-8 write in several ways
HALF = np.array([1.5, -2.25, 3.0], np.float16)
Arrays = dict[str, tuple[Any, Any]]


def save_states(context: Context) -> bytes:
    bytes = c.c_size_t()
    function = context.library.c.te_save_states
    context.check(function(context.context, None, c.c_size_t(0), c.byref(bytes)))
    into = c.create_string_buffer(bytes.value)
    context.check(function(context.context, into, c.c_size_t(bytes.value), c.byref(bytes)))
    assert bytes.value == len(into)
    return into.raw


def load_states(context: Context, file: bytes) -> None:
    memory = c.create_string_buffer(file, len(file))
    function = context.library.c.te_load_states
    context.check(function(context.context, memory, c.c_size_t(len(file))))


@pytest.mark.parametrize("name", CASES)
def test_python_reads_and_writes_the_same(
    library: Build, cpu_device: Device, tmp_path: Path, name: str
) -> None:
    """What C has saved after some runs is what Python has; what Python writes, C goes on from."""
    case = CASES[name]()
    program = compiled(case)
    context = Context(library(program))
    file = tmp_path / "states.safetensors"
    with Replay(program, cpu_device) as replay:
        for entry, inputs in runs(case, 5):
            context.run(inputs, entry)
            replay.run(inputs, entry)
        theirs = {s.name: replay.get_state(s.name) for s in program.states}
    first = save_states(context)
    file.write_bytes(first)
    found = safetensors.read(file)
    assert set(found) == set(theirs)
    for state in program.states:
        kind, array = found[state.name]
        assert kind.name == state.dtype
        np.testing.assert_array_equal(array, theirs[state.name])
    safetensors.write(file, found)
    context.check(context.library.c.te_reset(context.context))
    load_states(context, file.read_bytes())
    assert save_states(context) == first
    context.close()


def several() -> Case:
    """States of several types, of which the first ends at an odd place."""
    return Case(
        {
            "main": (
                lambda x, **s: {"y": x + s["h"], **{f"{n}_out": v for n, v in s.items()}},
                {"x": X, "bits": np.zeros(3, np.bool_), "h": X, ODD: HALF, "n": np.int64(0)},
            )
        },
        {name: f"{name}_out" for name in ("bits", "h", ODD, "n")},
        {"n": np.array(-7, np.int64), ODD: HALF},
    )


def values() -> Arrays:
    return {
        "bits": (dt.bool_, np.array([True, False, True])),
        "h": (dt.float32, X + 3),
        ODD: (dt.float16, HALF * 2),
        "n": (dt.int64, np.array(1 << 40)),
    }


def made(tmp_path: Path, arrays: Arrays) -> bytes:
    file = tmp_path / "made.safetensors"
    safetensors.write(file, arrays)
    return file.read_bytes()


def packed(header: Any, elements: bytes, spaces: str = "") -> bytes:
    text = header if isinstance(header, bytes) else (json.dumps(header) + spaces).encode()
    return struct.pack("<Q", len(text)) + text + elements


def parts(file: bytes) -> tuple[dict[str, Any], bytes]:
    (size,) = struct.unpack("<Q", file[:8])
    return json.loads(file[8 : 8 + size]), file[8 + size :]


@pytest.fixture(scope="module")
def tool(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """states.c with the kernels of `several`, under sanitizers, and its bundle."""
    folder = tmp_path_factory.mktemp("states")
    bundle = write(compiled(several()), folder / "bundle")
    compiler, sanitize = build.sanitized()
    include = (f"-I{bundle}", f"-I{build.c_bundle.FOLDER}")
    kernels = folder / "model.o"
    flags = ("-O1", "-march=native", *KERNEL_FLAGS, *include)
    build.run(build.CC, *flags, "-c", "-o", kernels, bundle / "model.c")
    out = folder / "states"
    flags = (*sanitize, include[0])
    return build.program(out, "states.c", flags, kernels, compiler=compiler), bundle


def said(tool: tuple[Path, Path], tmp_path: Path, files: Sequence[bytes]) -> list[list[str]]:
    """For each file what te_load_states said, and the states then."""
    listed = tmp_path / "files"
    listed.write_bytes(b"".join(struct.pack("<I", len(file)) + file for file in files))
    lines = build.run(*tool, listed).splitlines()
    assert len(lines) == len(files)
    return [line.split() for line in lines]


def test_what_else_is_there_does_not_matter(tool: tuple[Path, Path], tmp_path: Path) -> None:
    """Other tensors, metadata, another order, other spellings."""
    more = values() | {"other": (dt.uint8, np.arange(5, dtype=np.uint8))}
    header, elements = parts(made(tmp_path, more))
    turned = dict(reversed(header.items()))
    spelled = json.dumps(header, ensure_ascii=False).encode()
    escaped = json.dumps(header).replace("\\u00e9", "\\u00E9").replace('"h"', '"\\u0068"')
    files = [
        packed(header, elements),
        packed({"__metadata__": {"a": "b", "c": "d"}, **turned}, elements, " \n\t"),
        packed(spelled, elements),
        packed(escaped.encode(), elements),
        packed(
            {**header, "empty": {"dtype": "F64", "shape": [0, 9], "data_offsets": [0, 0]}}, elements
        ),
    ]
    answers = said(tool, tmp_path, files)
    assert [answer[0] for answer in answers] == ["ok"] * len(files)
    assert len({answer[1] for answer in answers}) == 1
    file = tmp_path / "after.safetensors"
    file.write_bytes(bytes.fromhex(answers[0][1]))
    found = safetensors.read(file)
    for name, (kind, array) in values().items():
        assert found[name][0] is kind
        np.testing.assert_array_equal(found[name][1], array)


def hostile(tmp_path: Path) -> Iterator[tuple[str, bytes]]:
    """Files that nobody may load, by what is wrong with them."""
    whole = made(tmp_path, values())
    header, elements = parts(whole)

    def changed(name: str, **facts: Any) -> bytes:
        return packed({**header, name: {**header[name], **facts}}, elements)

    yield from ((f"of {length} bytes", whole[:length]) for length in (0, 7, 8, 9, 40))
    yield "cut", whole[:-1]
    yield "too long", whole + b"\0"
    for size in (0, 1, len(whole) - 7, 2**31, 2**63, 2**64 - 8, 2**64 - 1):
        yield f"header of {size}", struct.pack("<Q", size) + whole[8:]
    yield "lacks one", packed({n: e for n, e in header.items() if n != "h"}, elements)
    yield "no object", packed([header], elements)
    yield "not UTF-8", packed(json.dumps(header).encode() + b"\xff", elements)
    yield "NUL behind it", packed(json.dumps(header).encode() + b"\0", elements)
    yield (
        "twice",
        packed(json.dumps(header)[:-1].encode() + b"," + json.dumps(header)[1:].encode(), elements),
    )
    start, end = header["h"]["data_offsets"]
    for place in ([end, start], [start + 4, end + 4], [start - 4, end - 4], [start, end - 4]):
        yield f"at {place}", changed("h", data_offsets=place)
    for place in ([2**53, 2**53 + 48], [2**63, 2**63 + 48], [-48, 0], [start], [start, end, end]):
        yield f"at {place}", changed("h", data_offsets=place)
    for place in (["0", "48"], {}, None, [0.0, 48.0], [True, 48], [[0], 48], "0,48"):
        yield f"at {place}", changed("h", data_offsets=place)
    for kind in ("I32", "F16", "F64", "f32", "", "F32 ", 7, None, ["F32"], "F33"):
        yield f"of {kind}", changed("h", dtype=kind)
    for shape in ([6, 2], [12], [2, 6, 1], [2, -6], [2**32, 2**32], [2.0, 6], [2**62, 0], [1] * 33):
        yield f"shape {shape}", changed("h", shape=shape)
    yield "a fact more", changed("h", more=1)
    yield (
        "no shape",
        packed({**header, "h": {"dtype": "F32", "data_offsets": [start, end]}}, elements),
    )
    yield "an overlap", changed("n", data_offsets=[start, start + 8])
    for text in (
        b"{",
        b"{]",
        b"[" * 100_000,
        b'{"h":' * 50_000,
        b'{"\\ud83',
        b'{"\\',
        b'{"h":{"shape":[01',
    ):
        yield f"{text[:20]!r}", packed(text, elements)


def test_hostile_files_are_refused(tool: tuple[Path, Path], tmp_path: Path) -> None:
    """Each with the same id, and no state changes; Python refuses what is no sound file."""
    names, files = zip(*hostile(tmp_path), strict=True)
    answers = said(tool, tmp_path, files)
    assert {n: a[0] for n, a in zip(names, answers, strict=True)} == dict.fromkeys(
        names, "run.states"
    )


def mutated(file: bytes, rng: random.Random) -> bytes:
    """A file with some bytes of its header changed, as JSON's own letters mostly."""
    (size,) = struct.unpack("<Q", file[:8])
    text = bytearray(file[8 : 8 + size])
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        at = rng.randrange(len(text))
        kind = rng.randrange(4)
        if kind == 0:
            text[at] = rng.choice(b'0123456789{}[],:"\\ -.e')
        elif kind == 1:
            text[at] = rng.randrange(256)
        elif kind == 2:
            del text[at : at + rng.choice((1, 1, 8))]
        else:
            other = rng.randrange(len(text))
            text[at:at] = text[other : other + rng.choice((1, 3, 20))]
    length = size if rng.random() < 0.05 else len(text)
    return struct.pack("<Q", length) + bytes(text) + file[8 + size :]


def test_changed_files(tool: tuple[Path, Path], tmp_path: Path) -> None:
    """What C takes, Python takes, with the same values; nothing outside of a file is touched."""
    rng = random.Random(5)
    whole = made(tmp_path, values() | {"other": (dt.uint8, np.arange(5, dtype=np.uint8))})
    files = [mutated(whole, rng) for _ in range(4000)]
    file = tmp_path / "changed.safetensors"
    taken = 0
    for answer, text in zip(said(tool, tmp_path, files), files, strict=True):
        assert answer[0] in ("ok", "run.states")
        if answer[0] != "ok":
            continue
        taken += 1
        file.write_bytes(text)
        given = safetensors.read(file)
        file.write_bytes(bytes.fromhex(answer[1]))
        for name, (kind, array) in safetensors.read(file).items():
            assert given[name][0] is kind
            np.testing.assert_array_equal(given[name][1], array)
    assert 10 < taken < 2000


def test_refused_by_both(tool: tuple[Path, Path], tmp_path: Path) -> None:
    """Of files that differ in a letter, Python and C refuse the same, but for numbers as -0."""
    whole = made(tmp_path, values())
    (size,) = struct.unpack("<Q", whole[:8])
    files = []
    for at in range(8, 8 + size):
        for letter in b'7"} x':
            files.append(whole[:at] + bytes([letter]) + whole[at + 1 :])
    file = tmp_path / "changed.safetensors"
    for answer, text in zip(said(tool, tmp_path, files), files, strict=True):
        file.write_bytes(text)
        assert (answer[0] == "ok") == loads(file)


def loads(file: Path) -> bool:
    try:
        found = safetensors.read(file)
    except InputError:
        return False
    shapes = {name: (kind, array.shape) for name, (kind, array) in values().items()}
    return all(
        name in found and (found[name][0], found[name][1].shape) == shape
        for name, shape in shapes.items()
    )


def test_a_buffer_that_is_too_small(library: Build) -> None:
    context = Context(library(compiled(CASES["accumulator"]())))
    bytes, into = c.c_size_t(), c.create_string_buffer(4096)
    function = context.library.c.te_save_states
    context.check(function(context.context, None, c.c_size_t(0), c.byref(bytes)))
    status = function(context.context, into, c.c_size_t(bytes.value - 1), c.byref(bytes))
    assert context.library.c.te_status_id(status) == b"run.state"
    assert into.raw == 4096 * b"\0"
    context.close()


# --- training ------------------------------------------------------------------------------------

BATCH = 6


def classifier(folder: Path) -> Path:
    """A convolution and a product, trained by Adam."""
    rng = np.random.default_rng(2)

    def weight(name: str, *shape: int) -> Any:
        return numpy_helper.from_array(rng.normal(size=shape).astype(np.float32) * 0.4, name)

    nodes = [
        helper.make_node("Conv", ["x", "body.weight", "body.bias"], ["c"], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c"], ["r"]),
        helper.make_node("GlobalAveragePool", ["r"], ["p"]),
        helper.make_node("Flatten", ["p"], ["f"]),
        helper.make_node("Gemm", ["f", "head.weight", "head.bias"], ["scores"]),
    ]
    weights = [
        *(weight("body.weight", 4, 2, 3, 3), weight("body.bias", 4)),
        *(weight("head.weight", 4, 3), weight("head.bias", 3)),
    ]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [BATCH, 2, 5, 5])
    y = helper.make_tensor_value_info("scores", TensorProto.FLOAT, [BATCH, 3])
    graph = helper.make_graph(nodes, "classifier", [x], [y], weights)
    opsets = [helper.make_opsetid("", 17)]
    save(helper.make_model(graph, opset_imports=opsets, ir_version=8), folder / "m.onnx")
    return tinyedge.export_onnx(
        folder / "m.onnx",
        target="cpu",
        out=folder / "trains.tinyedge",
        train="*",
        loss="cross_entropy:scores",
        optimizer="adam:lr=0.01",
    )


@pytest.mark.parametrize("sanitize", [False, True], ids=["plain", "sanitized"])
def test_training_goes_on(tmp_path: Path, sanitize: bool) -> None:
    """Steps of the bundle's program, then of Python, then of the program: as Python's alone."""
    bundle = classifier(tmp_path)
    compiler, flags = build.sanitized() if sanitize else (build.CC, ("-O2",))
    text = " ".join(flags)
    build.run("make", "-s", "-C", bundle, f"CC={compiler}", f"CFLAGS={text}", f"LDFLAGS={text}")
    program = bundle / "build" / "run"
    assert "2 cases" in build.run(program, bundle, "--self-test")
    rng = np.random.default_rng(4)
    inputs: dict[str, Any] = {
        "x": rng.normal(size=(BATCH, 2, 5, 5)).astype(np.float32),
        "target": np.array([0, 2, 1, 2, 0, 1], np.int32),
        "lr": np.array(0.01, np.float32),
    }
    for name, array in inputs.items():
        np.save(tmp_path / f"{name}.npy", array)
    given = [w for n in inputs for w in ("--input", f"{n}={tmp_path / f'{n}.npy'}")]
    first, then, last = (tmp_path / f"{name}.safetensors" for name in ("first", "then", "last"))

    def steps(count: int, *more: object) -> str:
        options = ("--entry", "train", *given, *(("--loop", count - 1) if count > 1 else ()))
        return build.run(program, bundle, *options, *more)

    steps(4, "--save-states", first)
    with tinyedge.load(bundle) as model:
        expected = [model.run(inputs, "train")["loss"].item() for _ in range(9)]
        model.save_states(last)
        alone = safetensors.read(last)
        model.reset()
        model.load_states(first)
        assert [model.run(inputs, "train")["loss"].item() for _ in range(3)] == expected[4:7]
        model.save_states(then)
    steps(2, "--load-states", then, "--save-states", last)
    assert not last.with_name(last.name + ".part").exists()
    found = safetensors.read(last)
    assert found["adam.step"][1] == 9
    for name, (kind, array) in alone.items():
        assert found[name][0] is kind
        assert found[name][1].tobytes() == array.tobytes(), name
    cut = tmp_path / "cut.safetensors"
    cut.write_bytes(last.read_bytes()[:-1])
    command = [program, bundle, "--entry", "train", *given, "--load-states", cut]
    refused = subprocess.run(command, capture_output=True, text=True, check=False)
    assert refused.returncode == 2
    assert refused.stderr.startswith(f"{cut}: run.states: ")
    command = [program, bundle, "--entry", "train", *given[:-2], "--save-states", last]
    told = subprocess.run(command, capture_output=True, text=True, check=True)
    assert told.stderr == "note: input lr is generated\n"
