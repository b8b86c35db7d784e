"""One set of weights for two programs: those that differ in order alone are stored as one of them
reads them, and what the other reads is made of that when it is loaded.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np

from tinyedge.core.program.ports import pad, padded
from tinyedge.core.program.program import Order, Program, Weight
from tinyedge.export.bundle.weights import weight_bytes

Array = np.ndarray[Any, Any]
Axes = Sequence[tuple[int, int, int]]
Key = tuple[int, bytes]  # bytes of an element, hash

# Elements that are only moved, by their bytes.
WORDS: Mapping[int, Any] = {1: np.uint8, 2: np.uint16, 4: np.uint32}


def repacked(data: Array, axes: Axes) -> Array:
    """The bytes that kernels read, made of the bundle's, which are `data`; as many as these."""
    source = _used(data.view(np.uint32), axes)
    result = np.zeros(len(data) // 4, np.uint32)
    strides = [4 * stride for _, _, stride in axes]
    np.lib.stride_tricks.as_strided(result, source.shape, strides)[...] = source
    return result.view(np.uint8)


def _used(data: Array, axes: Axes) -> Array:
    """A row-major array of (places, used, ..) axes, without what is not used."""
    places = [places for places, _, _ in axes]
    array: Array = data[: prod(places)].reshape(places)
    return array[tuple(slice(used) for _, used, _ in axes)]


def share_weights(program: Program, other: Program) -> tuple[Program, Program]:
    """Both programs with one set of weights, wherever these are of the same elements in another
    order: `other` has them as `program` reads them. The results of both are the same as before.

    A weight of `program` is as long as what is made of it, and is taken once, as a bundle's weights
    have places of their own.
    """
    weights, others = list(program.weights), list(other.weights)
    digests = [_digest(weight_bytes(weight)) for weight in weights]
    wanted = [_digest(weight_bytes(weight)) for weight in others]
    left: dict[Key, list[int]] = {}
    for number, weight in enumerate(weights):
        if digests[number] not in wanted and weight.order is not None:
            left.setdefault(_content(weight, weight.order), []).append(number)
    for number, weight in enumerate(others):
        if wanted[number] in digests or weight.order is None:
            continue
        sources = left.get(_content(weight, weight.order), [])
        for source in sources:
            longer = _at_least(weights[source], padded(weight.bytes))
            found = _repack_of(longer, weight)
            if found is not None:
                weights[source], others[number] = longer, found
                sources.remove(source)
                break
    return _with_weights(program, weights), _with_weights(other, others)


def _with_weights(program: Program, weights: Sequence[Weight]) -> Program:
    """A program with others of the same numbers, and buffers as long as these."""
    buffers = tuple(
        each if each.weight < 0 else replace(each, bytes=padded(weights[each.weight].bytes))
        for each in program.buffers
    )
    return replace(program, weights=tuple(weights), buffers=buffers)


def _at_least(weight: Weight, size: int) -> Weight:
    """A weight of so many bytes, with zeros at its end."""
    if padded(weight.bytes) >= size:
        return weight
    return replace(weight, content=lambda: pad(weight_bytes(weight), size), bytes=size)


def _digest(data: Array) -> bytes:
    return hashlib.sha256(data.data).digest()


def _content(weight: Weight, order: Order) -> Key:
    """What is equal for weights that have the same elements, in whatever order."""
    axes = order.dimensions
    words = _used(weight_bytes(weight).view(WORDS[order.element]), axes)
    rows = sorted(range(len(axes)), key=lambda axis: (-axes[axis][2], -axes[axis][1]))
    return order.element, _digest(np.ascontiguousarray(words.transpose(rows)).reshape(-1))


def _repack_of(source: Weight, weight: Weight) -> Weight | None:
    """A weight as one whose bytes in the bundle are those of `source`; None where these do not
    give the same.
    """
    assert source.order is not None and weight.order is not None
    axes = axes_between(source.order, weight.order)
    if axes is None:
        return None
    data, wanted = weight_bytes(source), weight_bytes(weight)
    made = repacked(data, axes)
    if made[len(wanted) :].any() or not np.array_equal(made[: len(wanted)], wanted):
        return None
    return replace(weight, content=source.content, bytes=source.bytes, order=None, repack=axes)


def axes_between(source: Order, other: Order) -> tuple[tuple[int, int, int], ...] | None:
    """The repack from one order to another of the same elements; None where it would take more than
    one, or move parts of words.
    """
    pieces: list[tuple[int, int, int]] = []  # of the source's dimensions
    steps = {step for _, used, step in other.dimensions if used > 1}
    for places, used, step in source.dimensions:
        inner = sorted(cut for cut in steps if step < cut < step * used)
        below, found = step, []
        for cut in inner:
            if cut % below or used * step % cut or places * step % cut:
                return None
            found.append((cut // below, cut // below, below))
            below = cut
        found.append((places * step // below, used * step // below, below))
        pieces += reversed(found)
    element = other.element
    pieces.append((element, element, 0))  # its bytes
    strides = _strides(other)
    axes: list[tuple[int, int, int]] = []
    for places, used, step in pieces:
        if places == 1:
            continue
        stride = element if step else 1
        if step and used > 1:
            place = next((p for p in strides if p[0] <= step < p[0] * p[1]), None)
            if place is None or step % place[0] or step * used > place[0] * place[1]:
                return None
            stride = step // place[0] * place[2] * element
        if axes and axes[-1][2] == stride * used == stride * places:
            before = axes.pop()
            places, used = before[0] * places, before[1] * used
        axes.append((places, used, stride))
    return _words(axes)


def _words(axes: Axes) -> tuple[tuple[int, int, int], ...] | None:
    """Axes of bytes as those of whole words, if they are."""
    if not axes:
        return None
    *outer, (places, used, stride) = axes
    parts = [places, used, *(step for _, _, step in outer)]
    if stride != 1 or any(part % 4 for part in parts):
        return None
    return (*((p, u, step // 4) for p, u, step in outer), (places // 4, used // 4, 1))


def _strides(order: Order) -> list[tuple[int, int, int]]:
    """Of each dimension that has several elements, how far these are apart in the tensor, how many
    there are, and how far they are apart in memory.
    """
    found, stride = [], 1
    for places, used, step in reversed(order.dimensions):
        if used > 1:
            found.append((step, used, stride))
        stride *= places
    return found
