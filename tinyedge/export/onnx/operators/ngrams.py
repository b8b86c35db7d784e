"""TfIdfVectorizer: how often each n-gram of a pool occurs in a sequence of integers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from tinyedge.core import dtype as dt
from tinyedge.core.ir import ops
from tinyedge.core.tensor.tensor import Tensor
from tinyedge.export.onnx.equality import show
from tinyedge.export.onnx.operators.search import place_in, row_in
from tinyedge.export.onnx.registry import Node, operator


@dataclass(frozen=True)
class Pool:
    """The n-grams of one length."""

    grams: Any  # int64 [P, length]
    columns: Any  # where each is counted
    weights: Any  # of each


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
    rows = x if x.ndim == 2 else x.unsqueeze(0)
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
    length = grams.shape[1]
    size = rows.shape[1]
    assert isinstance(size, int)
    different, which = np.unique(grams, axis=0, return_inverse=True)
    total = Tensor.full((rows.shape[0], len(different)), 0, dt.int32)
    words = np.unique(different)
    word = _words(node, words, rows)
    ranks = np.searchsorted(words, different)
    for step in range(1, 2 + (skips if length > 1 else 0)):
        starts = size - (length - 1) * step
        if starts < 1:
            break
        parts = [word[:, k * step : k * step + starts] for k in range(length)]
        found = _prefixes(node, ranks, parts)
        total = total.scatter(1, found, Tensor.full(found.shape, 1, dt.int32), ops.ADD)
    return total.gather(1, node.constant(which.reshape(-1).astype(np.int32)))


def _words(node: Node, words: Any, rows: Tensor) -> Tensor:
    """int32 [B, L]: the place of each number in ascending words, -1 for none. Words that the type
    of the rows cannot hold are none of theirs.
    """
    low, high = rows.dtype.limits
    held = (words >= low) & (words <= high)
    place = place_in(node, words[held].astype(rows.dtype.numpy), rows)
    return (place >= 0).where(place + int((words < low).sum()), -1)


def _prefixes(node: Node, ranks: Any, parts: list[Tensor]) -> Tensor:
    """The number of the n-gram that parts [B, S], the n places of each, are: -1 for none.

    ranks [P, n]: the n-grams, in order; both are numbers of words. Word after word, the number of
    what was found so far is looked up together with the next word.
    """
    known, before = np.unique(ranks[:, 0], return_inverse=True)
    found = place_in(node, known.astype(np.int32), parts[0])
    for position, part in enumerate(parts[1:], start=1):
        pairs = np.stack([before.reshape(-1), ranks[:, position]], 1).astype(np.int32)
        known, before = np.unique(pairs, axis=0, return_inverse=True)
        row = row_in(node, [known[:, 0], known[:, 1]], [found, part])
        found = ((found >= 0) & (part >= 0)).where(row, -1)
    return found


def _spread(node: Node, values: Tensor, columns: list[int], width: int) -> Tensor:
    """values [B, P], each added to its column of [B, width]: one gather for every value that the
    fullest column gets.
    """
    sources: list[list[int]] = [[] for _ in range(width)]
    for number, column in enumerate(columns):
        sources[column].append(number)
    result: Tensor | None = None
    for step in range(max(len(s) for s in sources)):
        at = np.array([s[step] if step < len(s) else -1 for s in sources], np.int32)
        part = values.gather(1, node.constant(at))
        result = part if result is None else result + part
    assert result is not None
    return result
