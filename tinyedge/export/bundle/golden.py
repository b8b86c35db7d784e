"""Goldens: generated inputs, expected outputs, and when two outputs agree (see bundle.md).

The generator is an integer hash, bit-identical in every runtime, so no input needs to be stored.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tinyedge.core.dtype import by_name, codes
from tinyedge.core.errors import InputError
from tinyedge.core.program.program import Entry, Port, Program, evaluate

Array = np.ndarray[Any, Any]
Words = np.ndarray[Any, np.dtype[np.uint32]]

# Inputs, entry, sizes of the symbols -> outputs; `Replay.run` is one.
Run = Callable[[Mapping[str, Array], str, Mapping[str, int]], Mapping[str, Array]]

STORED_BYTES = 256 * 1024
STATE_BYTES = 4 * 1024  # of a state, of which there may be hundreds
MILLION = 1_000_000
FLOAT32_TOLERANCE = 100
FLOAT16_TOLERANCE = 20_000

# Codes of numbers of 1/4 to 1 (E8M0: 1/128 to 8), for types of which not every code is a number.
CODES = {
    "bfloat16": (0x3E80, 0x3F80),
    "float8_e4m3fn": (0x28, 0x38),
    "float8_e4m3fnuz": (0x30, 0x40),
    "float8_e5m2": (0x34, 0x3C),
    "float8_e5m2fnuz": (0x38, 0x40),
    "float8_e8m0fnu": (120, 130),
}


@dataclass(frozen=True, eq=False)
class GoldenInput:
    """One input of a case: generated in [minimum, maximum], or `data` of the declared dtype."""

    minimum: int
    maximum: int
    data: Array | None = None


@dataclass(frozen=True, eq=False)
class GoldenOutput:
    """The elements 0, stride, 2 * stride .. of a flat output, in the declared dtype.

    Of a state there may be none: what it holds is not compared.
    """

    stride: int
    data: Array


@dataclass(frozen=True, eq=False)
class Golden:
    """A case: run `entry` `steps` times from reset states, then compare the last outputs.

    inputs and outputs are in the entry's order; states, where an entry updates some, are all of the
    program's, in its order. tolerance is in millionths. made says what
    computed the outputs.
    """

    entry: str
    seed: int
    steps: int
    symbols: Mapping[str, int]
    tolerance: int
    made: str
    inputs: tuple[GoldenInput, ...]
    outputs: tuple[GoldenOutput, ...]
    states: tuple[GoldenOutput, ...] = ()


@dataclass(frozen=True)
class Comparison:
    """How one output compares: `error` is max|a - b| / max|b| of its finite elements."""

    output: str
    agrees: bool
    error: float
    because: str = ""


# --- the generator -----------------------------------------------------------------------------


def mix(words: Words) -> Words:
    """A 32-bit finalizer of MurmurHash3 (Austin Appleby), after adding 2^32 / golden ratio."""
    words = words + np.uint32(0x9E3779B9)
    words ^= words >> np.uint32(16)
    words *= np.uint32(0x85EBCA6B)
    words ^= words >> np.uint32(13)
    words *= np.uint32(0xC2B2AE35)
    words ^= words >> np.uint32(16)
    return words


def words(seed: int, run: int, position: int, elements: int) -> Words:
    """One hash an element of input number `position` in run `run`."""
    start: Words = np.array([seed], np.uint32)
    for part in (run, position):
        start = mix(start)
        start += np.uint32(part)
    hashes: Words = np.arange(elements, dtype=np.uint32)
    hashes += mix(start)
    return mix(hashes)


def generate(
    dtype: str,
    shape: Sequence[int],
    *,
    seed: int,
    run: int = 0,
    position: int = 0,
    minimum: float | None = None,
    maximum: float | None = None,
) -> Array:
    """An input of a declared dtype; integers in [minimum, maximum], floats in [minimum, maximum).

    Of a stored type, its codes, in a range of codes. The ends default to `default_range(dtype)`.
    """
    ends: tuple[float, float] = default_range(dtype)
    least = ends[0] if minimum is None else minimum
    most = ends[1] if maximum is None else maximum
    kind = by_name(dtype)
    hashes = words(seed, run, position, math.prod(shape))
    values: Array
    if kind.is_float and not kind.storage_type:
        bits = 11 if dtype == "float16" else 24
        scaled = (hashes >> np.uint32(32 - bits)).astype(np.float64) * (most - least)
        values = least + scaled / 2**bits
    else:
        values = least + (hashes.astype(np.int64) % (most - least + 1))
    return values.astype(kind.numpy).reshape(tuple(shape))


def default_range(dtype: str) -> tuple[int, int]:
    """Where generated values of a dtype lie unless said otherwise."""
    kind = by_name(dtype)
    if kind.storage_type:
        return CODES.get(dtype, kind.code_limits)
    if kind.is_float:
        return -1, 1
    return kind.limits if kind.bits == 8 else (0, 7)


# --- making cases ------------------------------------------------------------------------------


def make(
    program: Program,
    run: Run,
    *,
    made: str,
    seed: int = 1,
    entry: str = "",
    steps: int = 1,
    symbols: Mapping[str, int] | None = None,
    tolerance: int = FLOAT32_TOLERANCE,
    ranges: Mapping[str, tuple[int, int]] | None = None,
    given: Mapping[str, Array] | None = None,
    reset: Callable[[], None] | None = None,
) -> Golden:
    """A case with the outputs that `run` gives.

    entry defaults to the program's first, symbols to their maxima. ranges: least and greatest
    value of generated inputs, by name. given: real inputs, by name, of the declared dtype and
    shape; one that fits another entry's input of its name is for that alone. reset is called before
    the first of several runs. Raises InputError for a given input that does not fit.
    """
    chosen = find_entry(program, entry)
    sizes = {symbol.name: symbol.max for symbol in program.symbols} | dict(symbols or {})
    inputs = []
    for port in program.inputs_of(chosen).values():
        data = (given or {}).get(port.name)
        if data is not None and _is_for(program, port, data, sizes):
            inputs.append(GoldenInput(0, 0, codes(np.array(data))))
        else:
            inputs.append(GoldenInput(*(ranges or {}).get(port.name, default_range(port.dtype))))
    case = Golden(chosen.name, seed, steps, sizes, tolerance, made, tuple(inputs), ())
    return expecting(program, case, run, reset)


def expecting(
    program: Program, case: Golden, run: Run, reset: Callable[[], None] | None = None
) -> Golden:
    """The case with the outputs that `run` gives."""
    outputs = play(program, case, run, reset)
    expected = []
    for port in program.outputs_of(find_entry(program, case.entry)).values():
        whole = _whole(port, codes(outputs[port.name]), case.symbols)
        stride = sampling_stride(whole.size, whole.dtype.itemsize)
        expected.append(GoldenOutput(stride, whole.reshape(-1)[::stride].copy()))
    return replace(case, outputs=tuple(expected))


def play(
    program: Program, case: Golden, run: Run, reset: Callable[[], None] | None = None
) -> Mapping[str, Array]:
    """The outputs of a case's last run."""
    if reset:
        reset()
    outputs: Mapping[str, Array] = {}
    for step in range(case.steps):
        outputs = run(case_inputs(program, case, step), case.entry, case.symbols)
    return outputs


def case_inputs(program: Program, case: Golden, step: int = 0) -> dict[str, Array]:
    """The inputs of a case's run number `step`, by name."""
    inputs: dict[str, Array] = {}
    ports = program.inputs_of(find_entry(program, case.entry)).values()
    for position, (port, record) in enumerate(zip(ports, case.inputs, strict=True)):
        shape = _shape(port, case.symbols)
        if record.data is not None:
            inputs[port.name] = record.data.reshape(shape)
        else:
            inputs[port.name] = generate(
                port.dtype,
                shape,
                seed=case.seed,
                run=step,
                position=position,
                minimum=record.minimum,
                maximum=record.maximum,
            )
    return inputs


def sampling_stride(elements: int, itemsize: int, most: int = STORED_BYTES) -> int:
    """The least stride whose sample is at most so many bytes and that has no factor in common with
    `elements`, so that every channel of an image is sampled; 1 stores everything.
    """
    stride = max(1, -(-elements * itemsize // most))
    while stride > 1 and math.gcd(stride, elements) != 1:
        stride += 1
    return stride


def state_samples(
    program: Program, get_state: Callable[[str], Array], told: Callable[[str], bool]
) -> tuple[GoldenOutput, ...]:
    """What states hold now; nothing of those of which nothing shall be told."""
    found = []
    for state in program.states:
        flat = codes(get_state(state.name)).reshape(-1)
        stride = sampling_stride(flat.size, flat.dtype.itemsize, STATE_BYTES)
        found.append(GoldenOutput(stride, flat[::stride].copy() if told(state.name) else flat[:0]))
    return tuple(found)


# --- comparing ---------------------------------------------------------------------------------


def compare_case(
    program: Program, case: Golden, outputs: Mapping[str, Array]
) -> tuple[Comparison, ...]:
    """Compare outputs with a case's, in the entry's order."""
    entry = find_entry(program, case.entry)
    expected = dict(zip(entry.outputs, case.outputs, strict=True))
    results = []
    for port in program.outputs_of(entry).values():
        name = port.name
        if name not in outputs:
            results.append(Comparison(name, False, math.inf, "the output is missing"))
            continue
        actual = codes(outputs[name])
        shape = _shape(port, case.symbols)
        if port.count:
            length = int(expected[port.count].data.reshape(-1)[0])
            shape = (*shape[: port.count_axis], length, *shape[port.count_axis + 1 :])
        if actual.shape != shape:
            because = f"its shape is {list(actual.shape)}, not {list(shape)}"
            results.append(Comparison(name, False, math.inf, because))
            continue
        stride = expected[name].stride
        actual = actual.reshape(-1)[::stride]
        data = expected[name].data[: actual.size]
        results.append(compare(name, actual, data, case.tolerance, port.dtype))
    return tuple(results)


def compare_states(
    program: Program, case: Golden, get_state: Callable[[str], Array]
) -> tuple[Comparison, ...]:
    """Compare states, after a case's last run, with those that it tells."""
    results = []
    for state, expected in zip(program.states, case.states, strict=False):
        if not expected.data.size:
            continue
        actual = codes(get_state(state.name)).reshape(-1)[:: expected.stride]
        name = f"state {state.name}"
        results.append(compare(name, actual, expected.data, case.tolerance, state.dtype))
    return tuple(results)


def compare(
    output: str, actual: Array, expected: Array, tolerance: int, dtype: str = ""
) -> Comparison:
    """Compare two arrays of one shape; tolerance in millionths of the greatest |expected|.

    dtype: the declared one, where it is a stored type. Its codes are compared as integers, but
    those of bfloat16 as numbers.
    """
    actual, expected = codes(actual), codes(expected)
    if actual.shape != expected.shape:
        because = f"its shape is {list(actual.shape)}, not {list(expected.shape)}"
        return Comparison(output, False, math.inf, because)
    if actual.dtype != expected.dtype:
        because = f"its dtype is {actual.dtype}, not {expected.dtype}"
        return Comparison(output, False, math.inf, because)
    if dtype == "bfloat16":
        actual, expected = _numbers(actual), _numbers(expected)
    if expected.dtype.kind != "f":
        wrong = np.count_nonzero(actual != expected)
        because = f"{wrong} of {expected.size} elements differ" if wrong else ""
        return Comparison(output, not wrong, math.inf if wrong else 0.0, because)
    if not np.array_equal(np.isnan(actual), np.isnan(expected)):
        wrong = np.count_nonzero(np.isnan(actual) != np.isnan(expected))
        return Comparison(output, False, math.inf, f"NaN differs at {wrong} elements")
    infinite = np.isinf(expected)
    infinite_now = np.isinf(actual)
    if not (
        np.array_equal(infinite, infinite_now)
        and np.array_equal(actual[infinite], expected[infinite])
    ):
        return Comparison(output, False, math.inf, "infinities differ")
    finite = np.isfinite(expected)
    a, b = actual[finite].astype(np.float64), expected[finite].astype(np.float64)
    difference = float(np.max(np.abs(a - b), initial=0.0))
    scale = float(np.max(np.abs(b), initial=0.0))
    error = difference / scale if scale else (math.inf if difference else 0.0)
    if difference <= tolerance / MILLION * scale:
        return Comparison(output, True, error)
    because = f"max|a-b| is {error:.3g} of max|b|, more than {tolerance / MILLION:g}"
    return Comparison(output, False, error, because)


def _numbers(codes: Array) -> Array:
    """The numbers of bfloat16's codes, the upper halves of float32."""
    numbers: Array = (codes.astype(np.uint32) << np.uint32(16)).view(np.float32)
    return numbers


def has_fp16(program: Program) -> bool:
    """Whether numbers of a program's outputs may differ by as much as fp16: they are fp16, or
    its model is one of fp16, which may round to them on the way.
    """
    return any(port.dtype in ("bfloat16", "float16") for port in program.outputs) or any(
        weight.dtype == "float16" for weight in program.weights
    )


def find_entry(program: Program, name: str = "") -> Entry:
    """The entry called `name`, by default the first. Raises InputError."""
    for entry in program.entries:
        if not name or entry.name == name:
            return entry
    names = ", ".join(entry.name for entry in program.entries)
    raise InputError(f"entry {name!r}", "there is no such entry", id="run.entry", supported=names)


def _shape(port: Port, symbols: Mapping[str, int]) -> tuple[int, ...]:
    return tuple(evaluate(size, symbols) for size in port.shape)


def _whole(port: Port, output: Array, symbols: Mapping[str, int]) -> Array:
    """An output in its port's dtype and as many elements as its shape says; behind those of one
    with a count are zeros.
    """
    shape = _shape(port, symbols)
    dtype = by_name(port.dtype).numpy
    wanted = list(shape)
    if port.count and output.ndim == len(shape):
        wanted[port.count_axis] = min(output.shape[port.count_axis], wanted[port.count_axis])
    if output.dtype != dtype or output.shape != tuple(wanted):
        raise InputError(
            f"output {port.name!r}",
            f"it has {output.dtype} {list(output.shape)} in place of {dtype} {list(shape)}",
            id="golden.output",
            next="the program that makes goldens must have the ports of the exported one",
        )
    whole = np.zeros(shape, dtype)
    whole.reshape(-1)[: output.size] = output.reshape(-1)
    return whole


def _is_for(program: Program, port: Port, data: Array, symbols: Mapping[str, int]) -> bool:
    """Whether a given input is for this port, not for another of its name. Raises InputError where
    it is for none of them.
    """
    alike = [other for other in program.inputs if other.name == port.name]
    wanted = [(by_name(other.dtype).numpy, _shape(other, symbols)) for other in alike]
    is_open = any(not isinstance(size, int) for other in alike for size in other.shape)
    greatest = all(symbols[symbol.name] == symbol.max for symbol in program.symbols)
    kind = codes(data).dtype, data.shape
    if kind not in wanted:
        raise InputError(
            f"golden input {port.name!r}",
            f"it is {data.dtype} {list(data.shape)}",
            id="golden.input",
            supported=" or ".join(f"{dtype} {list(shape)}" for dtype, shape in wanted)
            + ", of the greatest sizes" * (is_open and greatest),
        )
    return kind == (by_name(port.dtype).numpy, _shape(port, symbols))
