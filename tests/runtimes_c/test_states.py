"""States and entries of compiled models by the C runtime: to the bit what Python's replay gives."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests import entries
from tests.agreement import assert_agreement, find_target
from tests.imported import source_of
from tests.runtimes_c.conftest import Build
from tests.runtimes_c.library import OUTPUTS, STATES, Context
from tests.stateful import CASES, Case, Machine, X, runs, single
from tinyedge.core.compiler.compile import compile_graph
from tinyedge.core.program.device import Device
from tinyedge.core.program.program import Program
from tinyedge.core.program.replay import Replay
from tinyedge.export.bundle.reading import read
from tinyedge.export.package.c_bundle import header
from tinyedge.goldens import make_goldens

RUNS = 9


def compiled(case: Case) -> Program:
    program = compile_graph(case.source(), find_target("cpu")).program
    assert program is not None
    return program


@pytest.mark.parametrize("name", CASES)
def test_runs(library: Build, cpu_device: Device, name: str) -> None:
    case = CASES[name]()
    program = compiled(case)
    context = Context(library(program))
    names = [state.name for state in program.states]
    assert [context.info(STATES, i).name.decode() for i in range(len(names))] == names
    first = []
    with Replay(program, cpu_device) as replay:
        for iteration in range(2):
            machine = Machine(case.source())
            for number, (entry, inputs) in enumerate(runs(case, RUNS)):
                got = context.run(inputs, entry)
                theirs = replay.run(inputs, entry)
                got |= {f"state {s}": context.get_state(i) for i, s in enumerate(names)}
                theirs |= {f"state {s}": replay.get_state(s) for s in names}
                bits = {key: value.tobytes() for key, value in got.items()}
                assert bits == {key: np.asarray(value).tobytes() for key, value in theirs.items()}
                if iteration:
                    assert bits == first[number], "after a reset the same bits"
                else:
                    first.append(bits)
                expected = machine.run(entry, inputs)
                assert_agreement({key: got[key] for key in expected}, expected)
            context.check(context.library.c.te_reset(context.context))
            replay.reset()
    context.close()


def test_a_state_is_taken_and_given_back(library: Build) -> None:
    context = Context(library(compiled(CASES["accumulator"]())))
    context.run({"x": X + 1})
    saved = context.get_state(0)
    after = context.run({"x": X + 2})["y"]
    context.set_state(0, saved)
    np.testing.assert_array_equal(context.run({"x": X + 2})["y"], after)
    context.close()


def test_the_self_test_runs_sequences(library: Build) -> None:
    """Golden cases of states and entries, by the runtime's own comparison."""
    case = CASES["frames"]()
    case.states["frames"] = "frames_out:shift:keep"
    program = compiled(case)
    goldens = make_goldens(case.source(), program, steps=8)
    assert [(golden.entry, golden.steps) for golden in goldens] == [("main", 8), ("frame", 8)]
    loaded = library(program, tuple(goldens))
    report = loaded.self_test(loaded.open())
    outputs = 1 + 1 + 2 * len(program.states)  # each entry updates states
    assert (report.cases, report.outputs, report.wrong, report.distinct) == (2, outputs, 0, 0)


def test_the_header_names_states_entries_and_slices() -> None:
    case = single(lambda x, h: {"out": h + x, "h_out": x * 2.0}, {"h": "h_out"}, x=X, h=X)
    (main,) = case.entries.values()
    source, *_ = source_of(
        main,
        states=case.states,
        entries={"look": (lambda h: {"sum": h.sum()}, {"h": X})},
        slices={"out[0]": {"first row": (0, 1)}},
    )
    program = compile_graph(source, find_target("cpu")).program
    assert program is not None
    text = header(program, "MODEL", {"manifest.json": "0" * 64})
    for line in (
        "#define MODEL_STATE_COUNT 1",
        "    MODEL_STATE_H = 0,",
        "#define MODEL_STATE_H_SHAPE {2, 6}",
        "#define MODEL_STATE_H_DTYPE TE_FLOAT32",
        "    MODEL_ENTRY_MAIN = 0,",
        "    MODEL_ENTRY_LOOK = 1,",
        "#define MODEL_OUTPUT_OUT_SLICE_FIRST_ROW_SIZE 1",
        "#define MODEL_OUTPUT_OUT_SLICE_FIRST_ROW_OFFSET 0",
    ):
        assert line in text.split("\n")


def test_slices_are_read(library: Build) -> None:
    case = single(lambda x: {"out": x * 2.0}, {}, x=X)
    (main,) = case.entries.values()
    source, *_ = source_of(main, slices={"out": {"a": (0, 2), "b": (2, 6)}})
    program = compile_graph(source, find_target("cpu")).program
    assert program is not None
    context = Context(library(program))
    x = np.arange(12, dtype=np.float32).reshape(2, 6)
    context.run({"x": x})
    assert context.find(OUTPUTS, "out") == 0
    np.testing.assert_array_equal(context.read_slice(0, 0, (2, 2)), 2 * x[:, :2])
    np.testing.assert_array_equal(context.read_slice(0, 1, (2, 4)), 2 * x[:, 2:])
    context.close()


def test_one_name_of_many_shapes_and_types(library: Build, tmp_path: Path) -> None:
    """Ports are found in the entry that takes and gives them, by their place."""
    bundle = read(entries.export(tmp_path, "cpu"))
    loaded = library(bundle.program, tuple(bundle.goldens()))
    report = loaded.self_test(loaded.open())
    assert (report.cases, report.outputs, report.wrong) == (4, 4, 0)
    context = Context(loaded)
    for seed in range(2):
        for name in entries.ENTRIES:
            inputs = entries.inputs_of(name, seed)
            got = context.run(inputs, name)["logits"]
            assert got.dtype == entries.logits_of(name, inputs).dtype
            np.testing.assert_array_equal(got, entries.logits_of(name, inputs))
    context.close()
