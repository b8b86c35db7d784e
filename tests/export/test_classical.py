"""Operators of ai.onnx.ml and n-grams, beside ONNX's reference evaluator and the specification."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from tests.agreement import find_target
from tests.export.hostile import model
from tests.imported import import_model
from tinyedge.core.compiler.compile import compile_graph
from tinyedge.core.compiler.stages import operations
from tinyedge.core.errors import InputError
from tinyedge.core.ir.reference import evaluate


def imported(node: Any, feeds: dict[str, Any], version: int) -> Any:
    inputs = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(x.dtype), x.shape)
        for name, x in feeds.items()
    ]
    proto = model([node], inputs=inputs, opset=22)
    if node.domain:
        proto.opset_import.append(helper.make_opsetid(node.domain, version))
    return proto


def compare(op: str, version: int, *operands: Any, **attributes: Any) -> Any:
    feeds = {f"x{number}": value for number, value in enumerate(operands)}
    node = helper.make_node(op, list(feeds), ["y"], domain="ai.onnx.ml", **attributes)
    proto = imported(node, feeds, version)
    got = evaluate([import_model(proto.SerializeToString()).outputs["y"].node], feeds)[0]
    want = ReferenceEvaluator(proto).run(None, feeds)[0]
    assert got.shape == want.shape and got.dtype == want.dtype
    np.testing.assert_allclose(got, want, rtol=1e-6)
    return got


def forest(rng: random.Random, features: int, targets: int) -> dict[str, Any]:
    """Random trees; nodes that look for a member of a set among them.

    A node comes before those below it, the true branch first: the evaluator gives out the sets in
    that order, the specification in the order of the nodes.
    """
    nodes: list[list[Any]] = []
    leaves: list[tuple[float, int]] = []
    sets: list[float] = []

    def branch(depth: int) -> tuple[int, int]:
        if depth and rng.random() < 0.7:
            return grown(depth - 1), 0
        leaves.append((rng.uniform(-1, 1), rng.randrange(targets)))
        return len(leaves) - 1, 1

    def grown(depth: int) -> int:
        row = [rng.randrange(features), rng.randrange(7), rng.randint(-2, 2), rng.randint(0, 1)]
        nodes.append(row)
        at = len(nodes) - 1
        row += branch(depth)
        row += branch(depth)
        return at

    roots = [grown(4) for _ in range(4)]
    for row in nodes:
        if row[1] == 6:
            sets += [*rng.sample([-2.0, -1.0, 1.0, 2.0], rng.randint(1, 3)), np.nan]
    columns = list(zip(*nodes, strict=True))
    return {
        "nodes_featureids": columns[0],
        "nodes_modes": numpy_helper.from_array(np.array(columns[1], np.uint8)),
        "nodes_splits": numpy_helper.from_array(np.array(columns[2], np.float32)),
        "nodes_missing_value_tracks_true": columns[3],
        "nodes_truenodeids": columns[4],
        "nodes_trueleafs": columns[5],
        "nodes_falsenodeids": columns[6],
        "nodes_falseleafs": columns[7],
        "leaf_weights": numpy_helper.from_array(np.array([w for w, _ in leaves], np.float32)),
        "leaf_targetids": [t for _, t in leaves],
        "membership_values": numpy_helper.from_array(np.array(sets, np.float32)),
        "tree_roots": roots,
        "n_targets": targets,
    }


@pytest.mark.parametrize("aggregate", range(4))
@pytest.mark.parametrize("seed", range(4))
def test_trees(seed: int, aggregate: int) -> None:
    rng = random.Random(seed)
    x = np.random.default_rng(seed).integers(-2, 3, (20, 3)).astype(np.float32)
    x[::5, 1] = np.nan
    compare("TreeEnsemble", 5, x, aggregate_function=aggregate, **forest(rng, 3, 2))


def test_trees_that_are_damaged() -> None:
    whole = forest(random.Random(0), 3, 2)
    first = len(whole["nodes_featureids"])
    for damage, because in (
        ({"nodes_truenodeids": [0] * first, "nodes_trueleafs": [0] * first}, "cycle"),
        ({"nodes_falsenodeids": [10**6] * first}, "a branch to"),
        ({"nodes_featureids": [3] * first}, "a node of feature 3"),
        ({"leaf_targetids": [2] * len(whole["leaf_targetids"])}, "targets"),
    ):
        with pytest.raises(InputError, match=because):
            compare("TreeEnsemble", 5, np.zeros((1, 3), np.float32), **{**whole, **damage})


def test_features_and_thresholds() -> None:
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    compare("ArrayFeatureExtractor", 1, x, np.array([3, 0, 3]))
    compare("ArrayFeatureExtractor", 1, x[0], np.array([1, 2]))
    compare("Binarizer", 1, x, threshold=4.5)


def test_labels() -> None:
    """NaN matches NaN, the last of equal keys counts; what has no key gets the default."""
    keys = [1.5, np.nan, 2.0, 1.5]
    x = np.array([[1.5, np.nan], [2.0, 7.0]], np.float32)
    node = helper.make_node(
        "LabelEncoder",
        ["x"],
        ["y"],
        domain="ai.onnx.ml",
        keys_floats=keys,
        values_int64s=[4, 5, 6, 7],
        default_int64=-3,
    )
    proto = imported(node, {"x": x}, 4)
    got = evaluate([import_model(proto.SerializeToString()).outputs["y"].node], {"x": x})[0]
    assert got.dtype == np.int64 and got.tolist() == [[7, 5], [6, -3]]
    compare("LabelEncoder", 4, np.array([3, 4, 9]), keys_int64s=[3, 4], values_floats=[0.5, 2.5])


# n-grams.

GRAMS = {
    "min_gram_length": 1,
    "max_gram_length": 2,
    "ngram_counts": [0, 4],
    "pool_int64s": [2, 3, 5, 4, 5, 6, 7, 8, 6, 7],
}


def vectorized(x: Any, **attributes: Any) -> Any:
    node = helper.make_node("TfIdfVectorizer", ["x"], ["y"], **{**GRAMS, **attributes})
    proto = imported(node, {"x": x}, 0)
    return evaluate([import_model(proto.SerializeToString()).outputs["y"].node], {"x": x})[0]


@pytest.mark.parametrize("skips", [0, 1, 5, 40])
@pytest.mark.parametrize("mode", ["TF", "IDF", "TFIDF"])
@pytest.mark.parametrize("kind", [np.int32, np.int64])
def test_ngrams(kind: Any, mode: str, skips: int) -> None:
    x = np.random.default_rng(skips).integers(2, 9, (3, 12)).astype(kind)
    columns = list(range(7))
    weights = [0.5, 1.5, 2.0, 3.0, -1.0, 4.0, 0.25]
    attributes = {"mode": mode, "max_skip_count": skips, "ngram_indexes": columns}
    node = helper.make_node("TfIdfVectorizer", ["x"], ["y"], weights=weights, **GRAMS, **attributes)
    want = ReferenceEvaluator(imported(node, {"x": x}, 0)).run(None, {"x": x})[0]
    np.testing.assert_array_equal(vectorized(x, weights=weights, **attributes), want)
    first = vectorized(x[0], weights=weights, **attributes)
    np.testing.assert_array_equal(first, want[0])


def test_words_that_the_input_cannot_hold() -> None:
    """They are not found, and change no place of the others."""
    x = np.array([2, 3, 2, -5], np.int32)
    pool = [-(2**40), 2**32 + 2, 2, 2**33, -5]
    attributes = {"ngram_counts": [0], "max_gram_length": 1, "max_skip_count": 0}
    found = vectorized(x, **attributes, mode="TF", pool_int64s=pool, ngram_indexes=[0, 1, 2, 3, 4])
    assert found.tolist() == [0, 0, 2, 0, 1]


def test_no_words() -> None:
    attributes = {"ngram_indexes": list(range(7)), "max_skip_count": 0}
    found = vectorized(np.zeros((2, 0), np.int64), mode="TF", **attributes)
    assert found.shape == (2, 7) and not found.any()


def test_pairs_of_many_words() -> None:
    """More pairs than 32 bits number: they are looked up word by word."""
    words = np.random.default_rng(0).permutation(120_000)
    attributes = {"ngram_counts": [0, 0], "min_gram_length": 2, "max_skip_count": 0}
    pairs = words.reshape(-1, 2)
    x = np.concatenate([pairs[7], pairs[59_999], [0], pairs[7][::-1], pairs[7]])
    found = vectorized(
        x, **attributes, mode="TF", pool_int64s=words, ngram_indexes=list(range(60_000))
    )
    assert found[7] == 2 and found[59_999] == 1 and found.sum() == 3
    assert found.dtype == np.float32


def _work_of(tokens: int) -> int:
    """Operations on elements of a vectorizer of so many tokens and half as many n-grams."""
    random = np.random.default_rng(0)
    pool = random.integers(0, 1000, tokens)
    attributes = {
        "mode": "TF",
        "max_skip_count": 0,
        "ngram_counts": [0, tokens // 2],
        "pool_int64s": [*range(tokens // 2), *pool[: tokens // 2]],
        "ngram_indexes": list(range(tokens // 2 + tokens // 4)),
        "min_gram_length": 1,
        "max_gram_length": 2,
    }
    x = random.integers(0, 1000, tokens)
    node = helper.make_node("TfIdfVectorizer", ["x"], ["y"], **attributes)
    source = imported(node, {"x": x}, 0).SerializeToString()
    compiled = compile_graph(import_model(source).graph(), find_target("cpu"))
    return sum(operations(launch.sink) for launch in compiled.launches)


def test_ngrams_are_looked_up() -> None:
    """Twice the tokens and n-grams are twice the work, and a little for a deeper search."""
    assert _work_of(8000) <= 2.4 * _work_of(4000)


def test_ngrams_in_other_columns() -> None:
    """The specification: weight i is that of n-gram i, wherever it is counted; two may share one
    column.
    """
    x = np.array([2, 5, 6, 5, 6, 7], np.int64)
    attributes = {"ngram_indexes": [6, 0, 1, 2, 4, 4, 3], "max_skip_count": 0}
    counts = vectorized(x, mode="TF", **attributes)
    assert counts.tolist() == [0, 2, 0, 1, 2, 0, 1]
    weights = [10.0, 1.0, 2.0, 3.0, 5.0, 7.0, 100.0]
    scaled = vectorized(x, mode="TFIDF", weights=weights, **attributes)
    assert scaled.tolist() == [0, 4, 0, 100, 10, 0, 10]
