"""Smaller cases that fail in the same way."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np

from tests.onnxfuzz.case import Case, Value
from tests.onnxfuzz.oracle import Oracle

Fails = Callable[[Case], bool]


def shrink(case: Case, fails: Fails, oracle: Oracle, tries: int = 200) -> Case:
    """Greedy: take the first smaller case that still fails, until none does."""
    while True:
        for candidate in _candidates(case, oracle):
            tries -= 1
            if tries < 0:
                return case
            if fails(candidate):
                case = candidate
                break
        else:
            return case


def _candidates(case: Case, oracle: Oracle) -> Iterator[Case]:
    """Cases that are one change smaller, greatest changes first."""
    if len(case.outputs) > 1:
        for name in case.outputs:
            yield _pruned(replace(case, outputs=[name]))
    if case.worlds > 1:
        for world in range(case.worlds):
            kept = {name: values[world : world + 1] for name, values in case.values.items()}
            yield replace(case, values=kept)
    if len(case.steps) > 1:
        for number in range(len(case.steps)):
            yield from _without(case, number)
    if case.worlds == 1:
        for candidate in _simpler(case):
            again = _answered(candidate, oracle)
            if again is not None:
                yield again


def _pruned(case: Case) -> Case:
    """The case without steps that no output needs."""
    needed = set(case.outputs)
    kept = []
    for step in reversed(case.steps):
        if needed.intersection(step.outputs):
            needed.update(step.inputs)
            kept.append(step)
    names = {node.name for step in kept for node in step.nodes}
    bounds = {name: most for name, most in case.bounds.items() if name in names}
    return replace(case, steps=kept[::-1], bounds=bounds)


def _without(case: Case, number: int) -> Iterator[Case]:
    """Without a step: its results are inputs, as they should be."""
    step = case.steps[number]
    left = [name for name in case.outputs if name not in step.outputs]
    rest = [*case.steps[:number], *case.steps[number + 1 :]]
    if left:
        yield _pruned(replace(case, steps=rest, outputs=left))


def _simpler(case: Case) -> Iterator[Case]:
    """With shorter axes, and with plainer values, of the leaves."""
    shapes = {name: case.values[name][0].array.shape for name in case.leaves}
    for size in sorted({s for shape in shapes.values() for s in shape}, reverse=True):
        for less in dict.fromkeys((1, 2, size // 2, size - 1)):
            if 0 < less < size:
                yield _leaves(case, lambda a, size=size, less=less: _cut(a, size, less))
    for name in case.leaves:
        array = case.values[name][0].array
        for axis, size in enumerate(array.shape):
            for less in dict.fromkeys((0, 1, size // 2)):
                if less < size:
                    part = np.take(array, range(less), axis)
                    yield _with(case, name, part)
        if array.dtype.kind == "f":
            with np.errstate(all="ignore"):
                for plain in (np.zeros_like(array), np.ones_like(array), np.round(array)):
                    if not np.array_equal(plain, array, equal_nan=True):
                        yield _with(case, name, plain)


def _cut(array, size: int, less: int):
    for axis, n in enumerate(array.shape):
        if n == size:
            array = np.take(array, range(less), axis)
    return array


def _leaves(case: Case, change) -> Case:
    values = dict(case.values)
    for name in case.leaves:
        values[name] = [Value(change(case.values[name][0].array))]
    return replace(case, values=values)


def _with(case: Case, name: str, array) -> Case:
    return replace(case, values={**case.values, name: [Value(np.ascontiguousarray(array))]})


def _answered(case: Case, oracle: Oracle) -> Case | None:
    """The case with the results of its steps anew, if they can be had."""
    values = dict(case.values)
    for number, step in enumerate(case.steps):
        here = {name: values[name][0] for name in step.inputs}
        try:
            results = oracle.answer(step, case.opset, here, number)
        except Exception:  # also of our evaluator: a smaller model need not be a valid one
            return None
        values.update((name, [value]) for name, value in results.items())
    return replace(case, values=values)
