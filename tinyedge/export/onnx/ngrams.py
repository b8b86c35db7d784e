"""TfIdfVectorizer: how often each n-gram of a pool occurs in a sequence of integers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from tinyedge.core import dtype as dt
from tinyedge.core.tensor import Tensor
from tinyedge.export.onnx.equality import show
from tinyedge.export.onnx.registry import Node, operator


@dataclass(frozen=True)
class Pool:
    """The n-grams of one length. grams: int64 [P, length]; columns: where each is counted;
    weights: of each.
    """

    grams: Any
    columns: Any
    weights: Any


@operator("TfIdfVectorizer", limits="pool_int64s, inputs of fixed length")
def tf_idf_vectorizer(node: Node, x: Tensor) -> Tensor:
    """x [L] or [B, L] -> float32 [B, columns]. The elements of an n-gram may lie 1 to
    max_skip_count + 1 places apart; one of a single element is counted once.
    """
    mode = node.text("mode", "")
    if mode not in ("TF", "IDF", "TFIDF"):
        raise node.invalid(f"mode is {mode!r}")
    if node.has("pool_strings"):
        raise node.unsupported("its n-grams are strings", supported="pool_int64s")
    if x.ndim not in (1, 2) or not isinstance(x.shape[-1], int):
        raise node.unsupported(f"its input is {show(x)}", supported="[L] or [B, L], L fixed")
    rows = x.reshape((-1, x.shape[-1]))
    columns = node.integer_list("ngram_indexes") or []
    if not columns or min(columns) < 0:
        raise node.invalid(f"ngram_indexes is {columns}")
    node.check_table(max(columns) + 1)
    skips = node.integer("max_skip_count", 0)
    shortest, longest = node.integer("min_gram_length", 1), node.integer("max_gram_length", 1)
    result: Tensor | None = None
    for pool in _pools(node, columns, shortest, longest):
        found = _counted(node, rows, pool.grams, skips)
        if mode == "IDF":
            found = found.minimum(1)
        scaled = found.cast(dt.float32)
        if mode != "TF":
            scaled = scaled * node.constant(pool.weights)
        part = _spread(node, scaled, pool.columns, max(columns) + 1)
        result = part if result is None else result + part
    if result is None:
        result = Tensor.full((rows.shape[0], max(columns) + 1), 0.0, dt.float32)
    return result if x.ndim == 2 else result.squeeze(0)


def _pools(node: Node, columns: list[int], shortest: int, longest: int) -> list[Pool]:
    """The n-grams of the wanted lengths, by length. Raises ModelError where lists do not match."""
    pool = np.asarray(node.integer_list("pool_int64s") or [], np.int64)
    starts = node.integer_list("ngram_counts") or []
    weights = np.asarray(node.number_list("weights") or [1.0] * len(columns), np.float32)
    ends = [*starts[1:], len(pool)]
    if any(not 0 <= start <= end <= len(pool) for start, end in zip(starts, ends, strict=False)):
        raise node.invalid(f"ngram_counts is {starts} for a pool of {len(pool)}")
    pools, number = [], 0
    for length, (start, end) in enumerate(zip(starts, ends, strict=False), start=1):
        count, rest = divmod(end - start, length)
        if rest:
            raise node.invalid(f"{end - start} elements are no {length}-grams")
        chosen = slice(number, number + count)
        number += count
        if count and shortest <= length <= longest:
            grams = pool[start:end].reshape(count, length)
            pools.append(Pool(grams, columns[chosen], weights[chosen]))
    if number != len(columns) or len(weights) != number:
        raise node.invalid(f"{number} n-grams, {len(columns)} indexes, {len(weights)} weights")
    return pools


def _counted(node: Node, rows: Tensor, grams: Any, skips: int) -> Tensor:
    """int32 [B, P]: how often each row of grams [P, n] is found in rows [B, L]."""
    count, length = grams.shape
    size = rows.shape[1]
    assert isinstance(size, int)
    total = Tensor.full((rows.shape[0], count), 0, dt.int32)
    for step in range(1, 2 + (skips if length > 1 else 0)):
        starts = size - (length - 1) * step
        if starts < 1:
            break
        hit: Tensor | None = None
        for position in range(length):
            begin = position * step
            part = rows[:, begin : begin + starts].unsqueeze(1)
            wanted = node.constant(grams[:, position, None]).cast(rows.dtype)
            equal = part.eq(wanted)
            hit = equal if hit is None else hit & equal
        assert hit is not None
        total = total + hit.cast(dt.int32).sum(-1)
    return total


def _spread(node: Node, values: Tensor, columns: list[int], width: int) -> Tensor:
    """values [B, P], each added to its column of [B, width]: one gather for every value that the
    fullest column gets.
    """
    sources: list[list[int]] = [[] for _ in range(width)]
    for number, column in enumerate(columns):
        sources[column].append(number)
    result: Tensor | None = None
    for turn in range(max(len(s) for s in sources)):
        at = np.array([s[turn] if turn < len(s) else -1 for s in sources], np.int32)
        part = values.gather(1, node.constant(at))
        result = part if result is None else result + part
    assert result is not None
    return result
