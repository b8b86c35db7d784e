"""The cpu's kernels work in the memory that is bound where they can; copies are made elsewhere."""

from __future__ import annotations

import ctypes as c
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from tests.runtimes_c.conftest import Build
from tests.runtimes_c.library import INPUTS, OUTPUTS, Context, tensor
from tests.runtimes_c.test_runtime import floats, refused
from tests.shifted import shifted
from tests.targets import programs

Array = Any


@pytest.fixture
def context(library: Build) -> Iterator[Context]:
    """c = a + b + 0..255, and half = the second half of c."""
    opened = Context(library(programs.addition("cpu")))
    yield opened
    opened.close()


def bind(context: Context, group: int, index: int, array: Array | None) -> None:
    call = context.library.c.te_bind_output if group == OUTPUTS else context.library.c.te_bind_input
    binding = None if array is None else c.byref(tensor(array))
    context.check(call(context.context, index, binding))


def submit(context: Context) -> None:
    context.check(context.library.c.te_submit(context.context, 0))


def wait(context: Context) -> None:
    context.check(context.library.c.te_wait(context.context, c.c_int64(-1)))


def read(context: Context, output: int) -> Array:
    array = context.new(OUTPUTS, output)
    binding = tensor(array)
    call = context.library.c.te_read_output
    context.check(call(context.context, output, c.byref(binding)))
    return array


def total(a: Array, b: Array) -> Array:
    return a + b + np.arange(256, dtype=np.float32).reshape(4, 64)


@pytest.mark.parametrize(
    ("shift", "in_place"), [(0, True), (4, True), (60, True), (1, False), (2, False)]
)
def test_outputs_are_written_where_they_are_bound(
    context: Context, shift: int, in_place: bool
) -> None:
    a, b, out = floats(4, 64), shifted(floats(4, 64, seed=1), shift), shifted(floats(4, 64), shift)
    bind(context, INPUTS, 0, a)
    bind(context, INPUTS, 1, b)
    bind(context, OUTPUTS, 0, out)
    submit(context)
    assert (out == total(a, b)).all() == in_place
    wait(context)
    assert (out == total(a, b)).all()
    assert (read(context, 1) == out[2:]).all()
    # what te_read_output finds is the caller's, or the context's own
    out[0, 0] = 7
    assert (read(context, 0)[0, 0] == 7) == in_place
    assert (b == floats(4, 64, seed=1)).all()


def test_memory_that_changes_between_runs(context: Context) -> None:
    outs = [np.zeros((4, 64), np.float32) for _ in range(2)]
    b = floats(4, 64, seed=1)
    bind(context, INPUTS, 1, b)
    for turn in range(4):
        a = floats(4, 64, seed=turn)
        bind(context, INPUTS, 0, a)
        bind(context, OUTPUTS, 0, outs[turn % 2])
        submit(context)
        wait(context)
        assert (outs[turn % 2] == total(a, b)).all()
    a[:] = 3  # its content is not remembered
    submit(context)
    wait(context)
    assert (outs[1] == total(a, b)).all()


def test_a_content_that_was_let_go(context: Context) -> None:
    out = np.zeros((4, 64), np.float32)
    inputs = {"a": floats(4, 64), "b:0": floats(4, 64, seed=1)}
    bind(context, OUTPUTS, 0, out)
    context.run(inputs)
    for other in (None, np.zeros((4, 64), np.float32)):
        bind(context, OUTPUTS, 0, other)
        with pytest.raises(Exception, match="c is not bound"):
            read(context, 0)
        refused("run.output", lambda: context.read_slice(0, 0, (1, 64)))
        assert (read(context, 1) == out[2:]).all()
    submit(context)
    wait(context)
    assert (read(context, 0) == out).all()


@pytest.mark.parametrize("offset", [0, 1, -3])
def test_an_output_over_an_input(context: Context, offset: int) -> None:
    """Elements that a kernel has not read yet are not written over."""
    memory = np.zeros(600, np.float32)
    a, out = memory[100:356].reshape(4, 64), memory[100 + offset :][:256].reshape(4, 64)
    b = floats(4, 64, seed=1)
    a[:] = floats(4, 64)
    expected = total(a, b)
    bind(context, INPUTS, 0, a)
    bind(context, INPUTS, 1, b)
    bind(context, OUTPUTS, 0, out)
    submit(context)
    wait(context)
    assert (out == expected).all()


def test_two_inputs_in_one_memory(context: Context) -> None:
    a = floats(4, 64)
    bind(context, INPUTS, 0, a)
    bind(context, INPUTS, 1, a)
    submit(context)
    wait(context)
    assert (read(context, 0) == total(a, a)).all()


def test_wrong_shapes_are_refused_as_elsewhere(context: Context) -> None:
    """The memory is large enough, its shape is not the port's."""
    inputs = {"a": floats(4, 64), "b:0": floats(4, 64, seed=1)}
    bind(context, OUTPUTS, 0, np.zeros((5, 64), np.float32))
    refused("run.shape", lambda: context.run(inputs))
    bind(context, OUTPUTS, 0, None)
    context.run(inputs)
    refused("run.shape", lambda: context.run({"a": floats(5, 64)}))


@pytest.mark.parametrize("room", [8 * 16, 256])
def test_open_sizes(library: Build, room: int) -> None:
    """The kernels of `symbolic` may touch 1024 bytes, whatever the sizes of a run are: so may they
    read behind what is given, but not write there.
    """
    context = Context(library(programs.symbolic("cpu")))
    memory, out = np.zeros(room, np.float32), np.zeros(room, np.float32)
    bias = floats(16)
    for n, m in ((8, 16), (1, 4), (3, 8), (8, 16)):
        x = memory[: n * m].reshape(n, m)
        x[:] = floats(n, m)
        out[:] = 5
        given, to = tensor(x), tensor(out[: n * m])
        given.bytes = to.bytes = out.nbytes
        call = context.library.c
        context.check(call.te_bind_input(context.context, 0, c.byref(given)))
        bind(context, INPUTS, 1, bias[:m])
        context.check(call.te_bind_output(context.context, 0, c.byref(to)))
        submit(context)
        assert (out == 5).all()
        wait(context)
        assert (out[: n * m].reshape(n, m) == 2 * x).all()
        assert (out[n * m :] == 5).all()
    context.close()


def test_an_input_that_kernels_write_is_copied(library: Build) -> None:
    context = Context(library(programs.repeat("cpu")))
    x, out = np.zeros(256, np.float32), np.zeros(256, np.float32)
    outputs = []
    for _ in range(2):
        bind(context, INPUTS, 0, x[:64])
        bind(context, INPUTS, 1, np.array([5], np.int64))
        bind(context, OUTPUTS, 0, out[:64])
        submit(context)
        wait(context)
        outputs.append(out[:64].copy())
    assert (x == 0).all()
    assert (outputs[0] == 5).all()
    assert (outputs[1] == 5).all()
    context.close()


def test_states_and_the_outputs_of_other_entries(library: Build) -> None:
    context = Context(library(programs.counter("cpu")))
    x, out = np.ones(64, np.float32), np.zeros(64, np.float32)
    bind(context, INPUTS, 0, x)
    bind(context, OUTPUTS, 0, out)
    for turn in range(3):
        submit(context)
        wait(context)
        assert (out == 11 + turn).all()
        assert (context.get_state(0) == 11 + turn).all()
    context.set_state(0, floats(64))
    assert (out == 13).all()  # an output is no state
    context.check(context.library.c.te_run(context.context, 1))
    assert (out == floats(64)).all()
    context.close()
