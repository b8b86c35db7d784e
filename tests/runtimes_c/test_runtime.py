"""The C runtime replays what Python's replay does, and refuses the same calls."""

from __future__ import annotations

import ctypes as c
import hashlib
import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.runtimes_c.conftest import Build
from tests.runtimes_c.library import (
    INPUTS,
    LOG,
    OUTPUTS,
    READ,
    SIZE,
    Context,
    File,
    Library,
    Logger,
    ProfileInfo,
    Reader,
    RuntimeFailure,
    tensor,
)
from tests.targets import programs
from tinyedge.core.program.device import Device
from tinyedge.core.program.program import Entry, Program
from tinyedge.core.program.replay import Replay
from tinyedge.export.bundle import golden
from tinyedge.export.bundle.manifest import encode

Arrays = dict[str, Any]


def floats(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def same(ours: Arrays, theirs: Arrays) -> None:
    for name, array in ours.items():
        assert array.dtype == theirs[name].dtype
        assert array.shape == theirs[name].shape
        assert array.tobytes() == np.ascontiguousarray(theirs[name]).tobytes(), name


def refused(id: str, call: Callable[[], Any]) -> None:
    with pytest.raises(RuntimeFailure) as caught:
        call()
    assert caught.value.id == id
    assert str(caught.value).startswith(f"{id}: ")


def heavy(program: Program) -> Program:
    """The same, with launches large enough to be divided among threads."""
    (entry,) = program.entries
    steps = tuple(
        replace(step, flops=5_000_000) if hasattr(step, "flops") else step for step in entry.steps
    )
    return replace(program, entries=(replace(entry, steps=steps),))


@pytest.mark.parametrize("threads", [1, 3])
def test_two_outputs_and_a_slice(library: Build, cpu_device: Device, threads: int) -> None:
    program = heavy(programs.addition("cpu"))
    inputs = {"a": floats(4, 64), "b:0": floats(4, 64, seed=1)}
    context = Context(library(program), threads=threads)
    with Replay(program, cpu_device) as replay:
        expected = replay.run(inputs)
    same(context.run(inputs), expected)
    same({"tail": context.read_slice(0, 0, (1, 64))}, expected)
    context.close()


def test_sizes_from_shapes(library: Build, cpu_device: Device) -> None:
    program = programs.symbolic("cpu")
    context = Context(library(program))
    with Replay(program, cpu_device) as replay:
        for n, m in ((8, 16), (1, 4), (3, 8), (8, 16)):
            inputs = {"x": floats(n, m), "bias": floats(m)}
            same(context.run(inputs), replay.run(inputs))
    refused("run.shape", lambda: context.run({"x": floats(9, 16), "bias": floats(16)}))
    refused("run.shape", lambda: context.run({"x": floats(8, 6), "bias": floats(6)}))
    refused("run.shape", lambda: context.run({"x": floats(8, 16), "bias": floats(8)}))
    refused("run.shape", lambda: context.bind({"x": floats(8)}))
    context.close()


def test_sizes_by_name(library: Build) -> None:
    context = Context(library(programs.symbolic("cpu")))
    call = context.library.c
    x, bias = floats(2, 8), floats(8)
    for name, array in (("x", x), ("bias", bias)):
        binding = tensor(array)
        binding.shape = None
        binding.strides = None
        index = context.find(INPUTS, name)
        context.check(call.te_bind_input(context.context, index, c.byref(binding)))
    # The greatest sizes are in force, and x has less.
    refused("run.shape", lambda: context.check(call.te_run(context.context, 0)))
    refused(
        "run.shape", lambda: context.check(call.te_set_symbol(context.context, 1, c.c_int64(6)))
    )
    context.check(call.te_set_symbol(context.context, 0, c.c_int64(2)))
    context.check(call.te_set_symbol(context.context, 1, c.c_int64(8)))
    context.check(call.te_run(context.context, 0))
    assert context.shape(OUTPUTS, 0) == (16,)
    refused("run.shape", lambda: context.run({"x": floats(3, 8), "bias": bias}))
    context.close()


@pytest.mark.parametrize("bound", [100, 3])
def test_loop(library: Build, cpu_device: Device, bound: int) -> None:
    program = programs.repeat("cpu", bound)
    context = Context(library(program))
    inputs = {"x": floats(64), "n": np.array([7], np.int64)}
    with Replay(program, cpu_device) as replay:
        same(context.run(inputs), replay.run(inputs))
    beyond = {"x": floats(64), "n": np.array([2**40], np.int64)}
    refused("run.range", lambda: context.run(beyond))
    context.close()


def test_state_and_entries(library: Build, cpu_device: Device) -> None:
    program = programs.counter("cpu")
    context = Context(library(program))
    with Replay(program, cpu_device) as replay:
        for step in range(3):
            inputs = {"x": floats(64, seed=step)}
            same(context.run(inputs), replay.run(inputs))
        same(context.run({}, "peek"), replay.run({}, "peek"))
        same({"memory": context.get_state(0)}, {"memory": replay.get_state("memory")})
        context.set_state(0, floats(64, seed=9))
        replay.set_state("memory", floats(64, seed=9))
        same(context.run({}, "peek"), replay.run({}, "peek"))
        context.check(context.library.c.te_reset(context.context))
        assert (context.run({}, "peek")["total"] == 10).all()
    refused("run.state", lambda: context.set_state(1, floats(64)))
    refused("run.shape", lambda: context.set_state(0, floats(63)))
    refused("run.dtype", lambda: context.set_state(0, floats(64).astype(np.float64)))
    refused("run.entry", lambda: context.check(context.library.c.te_run(context.context, 2)))
    context.close()


def test_every_dtype_and_storage(library: Build, cpu_device: Device) -> None:
    program = programs.ports("cpu")
    context = Context(library(program))
    generator = np.random.default_rng(3)
    inputs: Arrays = {}
    for port in program.inputs:
        values = generator.integers(0, 100, 5)
        inputs[port.name] = values.astype(port.dtype) if port.dtype != "bool" else values > 50
    inputs["in_float32_float16"] = np.array([1e-8, 6e-8, 65519, np.inf, -0.1], np.float32)
    inputs["in_float64_float32"] = np.array([np.nan, np.inf, -0.0, 1e-45, 1 / 3])
    inputs["in_float16_float16"] = np.array([np.nan, -np.inf, 6e-8, 65504, 1], np.float16)
    with Replay(program, cpu_device) as replay:
        same(context.run(inputs), replay.run(inputs))
    context.close()


@pytest.mark.parametrize(
    ("kind", "value"), [("float64_float32", 1e39), ("float32_float16", -65520)]
)
def test_floats_beyond_the_storage(kind: str, value: float, library: Build) -> None:
    program = programs.ports("cpu")
    only = Entry("main", (f"in_{kind}",), (f"out_{kind}",), ())
    context = Context(library(replace(program, entries=(only,))))
    values = np.array([0, 1, value, 2, 3], kind.split("_")[0])
    refused("run.range", lambda: context.run({f"in_{kind}": values}))
    context.close()


def test_conversion_to_halves_is_that_of_numpy(library: Build) -> None:
    """All halves, and the floats just beside the points where rounding changes."""
    bits = np.arange(0x7C00, dtype=np.uint16)
    middle = (bits.view(np.float16).astype(np.float32)[:-1] + bits[1:].view(np.float16)) / 2
    edges = np.concatenate([np.nextafter(middle, x, dtype=np.float32) for x in (-1, middle, 1e9)])
    values = np.concatenate([edges, -edges, np.array([np.inf, 65519.996], np.float32)])
    values = np.resize(values, -(-values.size // 5) * 5).reshape(-1, 5)
    program = programs.ports("cpu")
    only = Entry("main", ("in_float32_float16",), ("out_float32_float16",), ())
    context = Context(library(replace(program, entries=(only,))))
    with np.errstate(over="ignore"):
        expected = values.astype(np.float16).astype(np.float32)
    for row, wanted in zip(values[::37], expected[::37], strict=True):
        same(context.run({"in_float32_float16": row}), {"out_float32_float16": wanted})
    context.close()


def test_count(library: Build, cpu_device: Device) -> None:
    context = Context(library(programs.selection("cpu")))
    with Replay(programs.selection("cpu"), cpu_device) as replay:
        for n in (0, 3, 8):
            inputs = {"x": floats(8, 2), "n": np.array(n, np.int32)}
            same(context.run(inputs), replay.run(inputs))
    for n in (-1, 9):
        refused(
            "replay.count", lambda n=n: context.run({"x": floats(8, 2), "n": np.array(n, np.int32)})
        )
    context.close()


def test_strides_of_inputs_and_outputs(library: Build, cpu_device: Device) -> None:
    program = programs.addition("cpu")
    context = Context(library(program))
    wide = floats(8, 200)
    rows, columns = wide[::2, 10:74], np.asfortranarray(floats(4, 64, seed=1))
    with Replay(program, cpu_device) as replay:
        expected = replay.run({"a": rows, "b:0": columns})
    frame = np.full((4, 100), 7, np.float32)
    binding = tensor(frame[:, 5:69])
    context.check(context.library.c.te_bind_output(context.context, 0, c.byref(binding)))
    same(context.run({"a": rows, "b:0": columns}), expected)
    assert (frame[:, 5:69] == expected["c"]).all()
    frame[:, 5:69] = 7
    assert (frame == 7).all()
    binding.bytes -= 1
    context.check(context.library.c.te_bind_output(context.context, 0, c.byref(binding)))
    refused("run.output", lambda: context.check(context.library.c.te_run(context.context, 0)))
    assert (frame == 7).all()
    context.close()


def test_wrong_calls(library: Build) -> None:
    built = library(programs.addition("cpu"))
    context = Context(built)
    call, inside = built.c, context.context
    refused("run.input", lambda: context.check(call.te_run(inside, 0)))
    refused("run.input", lambda: context.check(call.te_bind_input(inside, 2, None)))
    refused("run.output", lambda: context.check(call.te_bind_output(inside, -1, None)))
    refused("run.dtype", lambda: context.bind({"a": floats(4, 64).astype(np.float64)}))
    refused("run.shape", lambda: context.run({"a": floats(4, 63), "b:0": floats(4, 64)}))
    short = tensor(floats(4, 64))
    short.bytes = 1023
    context.check(call.te_bind_input(inside, 0, c.byref(short)))
    refused("run.shape", lambda: context.check(call.te_run(inside, 0)))
    short.size = 8
    refused("api.size", lambda: context.check(call.te_bind_input(inside, 0, c.byref(short))))
    refused("api.argument", lambda: context.check(call.te_wait(inside, c.c_int64(-1))))
    refused("run.output", lambda: context.read_slice(0, 1, (1, 64)))
    for wrong in (-1, -2, -(2**31)):
        with pytest.raises(RuntimeFailure, match=f"there is no slice {wrong} of "):
            context.read_slice(0, wrong, (1, 64))
    moved = tensor(floats(4, 64))
    moved.offset = 4
    with pytest.raises(RuntimeFailure, match="a: offset is for memory of a device") as caught:
        context.check(call.te_bind_input(inside, 0, c.byref(moved)))
    assert caught.value.id == "api.argument"
    options = built.create_options(backend=None)
    refused("api.argument", lambda: built.create(context.model, options))
    refused("api.argument", lambda: built.create(context.model, built.create_options(kernels=None)))
    refused("api.size", lambda: built.create(context.model, built.create_options(size=1)))
    refused("api.argument", lambda: built.open(built.open_options(files=1)))
    same(context.run({"a": floats(4, 64), "b:0": floats(4, 64)}), context.run({}))
    context.close()


def test_failures_are_logged(library: Build) -> None:
    built = library(programs.addition("cpu"))
    said: list[tuple[str, str]] = []

    def log(_: int, status: int, text: bytes) -> None:
        said.append((built.id(status), text.decode()))

    options = built.open_options(logger=Logger(LOG(log), None))
    model = built.open(options)
    context = built.create(model)
    built.c.te_run(context, 5)
    assert [id for id, _ in said] == ["", "", "run.entry"]
    assert said[-1][1] == "run.entry: there is no entry 5"
    built.c.te_destroy(context)
    built.c.te_close(model)


def test_kernels_of_another_bundle(library: Build) -> None:
    first, second = library(programs.addition("cpu")), library(programs.repeat("cpu"))
    model = first.open()
    options = first.create_options(kernels=second.kernels)
    refused("bundle.plan", lambda: first.create(model, options))
    first.c.te_close(model)


def test_a_plan_that_was_changed(library: Build) -> None:
    """The hash of the manifest is compared before anything of it is read."""
    built = library(programs.addition("cpu"))
    path = built.bundle / "manifest.json"
    plan = hashlib.sha256(path.read_bytes()).hexdigest().encode()
    built.c.te_close(built.open(built.open_options(plan=plan)))
    path.write_bytes(path.read_bytes() + b" ")
    refused("bundle.plan", lambda: built.open(built.open_options(plan=plan)))
    refused("bundle.manifest.syntax", built.open)


def test_a_buffer_that_is_smaller_than_its_kernel_needs(library: Build) -> None:
    """Of a plan that claims to be the kernels' own."""
    built = library(programs.addition("cpu"))
    path = built.bundle / "manifest.json"
    manifest = json.loads(path.read_text("ascii"))
    manifest["buffers"][manifest["inputs"][0]["buffer"]]["bytes"] -= 4
    manifest["inputs"][0]["shape"] = [1]
    path.write_bytes(encode(manifest))
    plan = hashlib.sha256(path.read_bytes()).hexdigest().encode()
    kernels = (c.c_void_p * 7).from_address(built.kernels)  # plan, table, count...
    claim = c.create_string_buffer(plan)
    claimed = (c.c_void_p * 7)(c.addressof(claim), *kernels[1:])
    model = built.open()
    options = built.create_options(kernels=c.addressof(claimed))
    refused("device.kernel", lambda: built.create(model, options))
    built.c.te_close(model)


def test_bundle_of_another_target(library: Build) -> None:
    built = library(programs.addition("cpu"))
    path = built.bundle / "manifest.json"
    text = path.read_text()
    path.write_text(text.replace('"target":"cpu"', '"target":"webgpu"'))
    refused("bundle.target", built.open)
    for target, options in (("webgpu", {"any_target": True}), ("qcom", {}), ("cuda", {})):
        path.write_text(text.replace('"target":"cpu"', f'"target":"{target}"'))
        model = built.open(built.open_options(**options))
        refused("device.target", lambda model=model: built.create(model))
        built.c.te_close(model)


def test_profile_names_the_models_nodes(library: Build) -> None:
    context = Context(library(programs.addition("cpu")), profile=True)
    for _ in range(3):
        context.run({"a": floats(4, 64), "b:0": floats(4, 64)})
    assert context.library.c.te_profile_count(context.context) == 2
    rows = []
    for index in range(2):
        info = ProfileInfo()
        assert context.library.c.te_profile(context.context, index, c.byref(info))
        assert info.nanoseconds > 0
        rows.append((info.kernel, info.nodes, info.runs, info.flops))
    assert rows == [(b"add", b"Add_0", 3, 512), (b"copy", b"", 3, 0)]
    context.close()


def cases(program: Program, replay: Replay) -> tuple[golden.Golden, ...]:
    def run(inputs: Any, entry: str, symbols: Any) -> Any:
        return replay.run(inputs, entry, symbols)

    made = []
    for seed, entry in enumerate(program.entries):
        case = golden.make(
            program, run, made="a test", seed=seed, entry=entry.name, steps=3, reset=replay.reset
        )
        made.append(case)
    return tuple(made)


@pytest.mark.parametrize(
    "program",
    [
        programs.addition("cpu"),
        programs.symbolic("cpu"),
        programs.counter("cpu"),
        programs.ports("cpu"),
        programs.repeat("cpu"),
        programs.selection("cpu"),
    ],
    ids=["addition", "symbolic", "counter", "ports", "repeat", "count"],
)
def test_self_test(library: Build, cpu_device: Device, program: Program) -> None:
    """Inputs generated in C are those generated in Python, so the outputs agree to the bit."""
    with Replay(program, cpu_device) as replay:
        made = cases(program, replay)
    built = library(program, made)
    model = built.open()
    report = built.self_test(model)
    assert (report.cases, report.wrong, report.distinct) == (len(made), 0, 0)
    assert report.outputs == sum(len(entry.outputs) for entry in program.entries)
    assert report.error == 0
    built.c.te_close(model)


def check_from_anywhere(opened: Library) -> None:
    """The bundle out of memory, and by functions that read it."""
    found = {p.name.encode(): p.read_bytes() for p in opened.bundle.iterdir() if p.is_file()}
    files = (File * len(found))(*(File(name, text, len(text)) for name, text in found.items()))
    failing: set[bytes] = set()

    def read(_: int, name: bytes, offset: int, into: int, count: int) -> int:
        c.memmove(into, found[name][offset : offset + count], count)
        return int(name in failing)

    functions = SIZE(lambda _, name: len(found[name]) if name in found else -1), READ(read)
    reader = Reader(*(c.cast(function, c.c_void_p) for function in functions), None)
    given = {"files": c.cast(files, c.c_void_p), "file_count": len(found)}, {"reader": reader}
    for fields in given:
        options = opened.open_options(**fields)
        options.folder = None
        model = opened.open(options)
        report = opened.self_test(model)
        assert report.cases > 0 and (report.wrong, report.distinct) == (0, 0)
        opened.c.te_close(model)

    def whole() -> None:
        model = opened.open(options)
        try:
            opened.self_test(model)
        finally:
            opened.c.te_close(model)

    for name, id in ((b"weights-00000.bin", "bundle.file"), (b"golden-00000.bin", "bundle.file")):
        failing = {name}
        refused(f"{id}.missing", whole)
        kept, failing = found.pop(name), set()
        refused(f"{id}.missing", whole)
        found[name] = kept[:-1]
        refused(f"{id}.size", whole)
        found[name] = kept
    whole()


def test_a_bundle_from_anywhere(library: Build, cpu_device: Device) -> None:
    program = programs.counter("cpu")
    with Replay(program, cpu_device) as replay:
        check_from_anywhere(library(program, cases(program, replay)))


def test_self_test_finds_a_wrong_output(library: Build, cpu_device: Device) -> None:
    program = programs.addition("cpu")
    with Replay(program, cpu_device) as replay:
        (made,) = cases(program, replay)
    made.outputs[1].data[5] += 1
    built = library(program, (made,))
    model = built.open()
    refused("verify.differs", lambda: built.self_test(model))
    path = next(built.bundle.glob("golden*"))
    whole = path.read_bytes()
    for position, bit in ((0, 0), (len(whole) // 2, 7), (len(whole) - 1, 3)):
        changed = bytearray(whole)
        changed[position] ^= 1 << bit
        path.write_bytes(changed)
        refused("bundle.file.hash", lambda: built.self_test(model))
        path.write_bytes(whole[:position])
        refused("bundle.file.size", lambda: built.self_test(model))
    built.c.te_close(model)
