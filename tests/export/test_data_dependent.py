"""Results of a size that only the run knows, beside numpy and ONNX's reference evaluator."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

from tests.agreement import Inputs, reference, run
from tinyedge.core import dtype as dt
from tinyedge.core.ir.reference import evaluate
from tinyedge.core.ir.shapes import symbol
from tinyedge.core.program.device import Device
from tinyedge.core.tensor.tensor import Tensor
from tinyedge.export.onnx.operators import dynamic

RNG = np.random.default_rng(11)


def given(array: Any, name: str) -> Tensor:
    return Tensor.input(name, array.shape, dt.from_numpy(array.dtype))


def evaluated(results: Sequence[Tensor], **feeds: Any) -> list[Any]:
    with np.errstate(all="ignore"):
        return evaluate([tensor.node for tensor in results], feeds)


def sparse(*shape: int, share: float = 0.3, kind: str = "float32") -> Any:
    """Numbers of which only a part is not 0."""
    values = RNG.integers(1, 9, shape) * RNG.choice([-1, 1], shape)
    return (values * (RNG.random(shape) < share)).astype(kind)


# NonZero and Compress.


@pytest.mark.parametrize("shape", [(), (1,), (7,), (3, 5), (2, 1, 300), (40, 3, 11), (0,), (4, 0)])
@pytest.mark.parametrize("share", [0, 0.3, 1])
def test_non_zero(shape: tuple[int, ...], share: float) -> None:
    x = sparse(*shape, share=share)
    bound = max(1, x.size)
    got, count = evaluated(dynamic.non_zero(given(x, "x"), bound), x=x)
    want = np.asarray(np.nonzero(x) if shape else np.zeros((0, int(x != 0))))
    assert got.shape == (len(shape), bound) and got.dtype == np.int64
    assert count == want.shape[1]
    np.testing.assert_array_equal(got[:, :count], want)
    assert not got[:, count:].any()


@pytest.mark.parametrize("kind", ["bool", "uint8", "int64", "float64"])
def test_non_zero_of_other_types(kind: str) -> None:
    x = sparse(5, 30, kind=kind)
    got, count = evaluated(dynamic.non_zero(given(x, "x"), 150), x=x)
    np.testing.assert_array_equal(got[:, :count], np.nonzero(x))


def test_what_is_not_a_number_is_not_zero() -> None:
    x = np.array([0.0, np.nan, -0.0, np.inf, 1e-45], np.float32)
    got, count = evaluated(dynamic.non_zero(given(x, "x"), 5), x=x)
    assert got[0, :count].tolist() == [1, 3, 4]


@pytest.mark.parametrize("length", [1, 30, 700])
def test_non_zero_of_an_open_size(length: int) -> None:
    x = sparse(length, 3)
    tensor = Tensor.input("x", (symbol("n", 1, 700), 3), dt.float32)
    results = [t.node for t in dynamic.non_zero(tensor, 2100)]
    got, count = evaluate(results, {"x": x}, {"n": length})
    np.testing.assert_array_equal(got[:, :count], np.nonzero(x))


def test_a_bound_that_is_too_small_keeps_the_first() -> None:
    x = np.ones(100, np.float32)
    got, count = evaluated(dynamic.non_zero(given(x, "x"), 12), x=x)
    assert count == 100 and got.tolist() == [list(range(12))]


@pytest.mark.parametrize(("axis", "length"), [(None, 30), (None, 7), (0, 3), (1, 5), (2, 2)])
def test_compress(axis: int | None, length: int) -> None:
    """A condition may be shorter than the axis."""
    x = RNG.standard_normal((3, 5, 2)).astype(np.float32)
    condition = RNG.random(length) < 0.5
    results = dynamic.compress(given(x, "x"), given(condition, "c"), axis, length)
    got, count = evaluated(results, x=x, c=condition)
    want = np.compress(condition, x, axis)
    assert count == want.shape[axis or 0]
    np.testing.assert_array_equal(np.take(got, range(count), axis or 0), want)
    assert not np.take(got, range(count, length), axis or 0).any()


# Unique.


def compare_unique(x: Any, axis: int | None, ascending: bool) -> None:
    length = x.size if axis is None else x.shape[axis]
    bound = max(1, length)
    found = dynamic.unique(given(x, "x"), axis, bound, ascending=ascending)
    fields = [found.values, found.first, found.inverse, found.counts, found.count]
    values, first, inverse, counts, count = evaluated(fields, x=x)
    want = np.unique(x, True, True, True, axis=axis)
    order = np.arange(len(want[1])) if ascending else np.argsort(want[1])
    assert count == len(order)
    np.testing.assert_array_equal(first[:count], want[1][order])
    np.testing.assert_array_equal(counts[:count], want[3][order])
    np.testing.assert_array_equal(inverse, np.argsort(order)[want[2].reshape(-1)])
    along = axis or 0
    np.testing.assert_array_equal(
        np.take(values, range(count), along), np.take(want[0], order, along)
    )
    assert not first[count:].any() and not counts[count:].any()
    assert not np.take(values, range(count, bound), along).any()


@pytest.mark.parametrize("ascending", [True, False])
@pytest.mark.parametrize("shape", [(1,), (9,), (4, 5), (600,)])
@pytest.mark.parametrize("kind", ["float32", "int64", "uint8", "bool"])
def test_unique_elements(kind: str, shape: tuple[int, ...], ascending: bool) -> None:
    compare_unique(RNG.integers(0, 12, shape).astype(kind), None, ascending)


@pytest.mark.parametrize("ascending", [True, False])
@pytest.mark.parametrize(
    ("shape", "axis"), [((6, 1), 0), ((30, 2), 0), ((3, 9), 1), ((2, 9, 2), 1)]
)
def test_unique_slices(shape: tuple[int, ...], axis: int, ascending: bool) -> None:
    compare_unique(RNG.integers(0, 2, shape).astype(np.float32), axis, ascending)


@pytest.mark.parametrize("ascending", [True, False])
def test_unique_of_special_values(ascending: bool) -> None:
    x = RNG.choice(np.array([np.nan, 0.0, np.inf, -np.inf, 1.0], np.float32), 40)
    compare_unique(x, None, ascending)


def test_the_example_of_the_specification() -> None:
    x = np.array([2, 1, 1, 3, 4, 3], np.float32)
    found = dynamic.unique(given(x, "x"), None, 6, ascending=False)
    fields = [found.values, found.first, found.inverse, found.counts, found.count]
    values, first, inverse, counts, count = evaluated(fields, x=x)
    assert count == 4
    assert values[:4].tolist() == [2, 1, 3, 4] and first[:4].tolist() == [0, 1, 3, 4]
    assert inverse.tolist() == [0, 1, 1, 2, 3, 2] and counts[:4].tolist() == [1, 2, 2, 1]


# NonMaxSuppression.


def onnx_reference(
    boxes: Any, scores: Any, most: int, overlap: float, least: Any, mode: int
) -> Any:
    from onnx.reference import ReferenceEvaluator

    names = ["b", "s", "m", "o", "t" if least is not None else ""]
    node = helper.make_node("NonMaxSuppression", names, ["y"], center_point_box=mode)
    kinds = [TensorProto.FLOAT] * 2 + [TensorProto.INT64] + [TensorProto.FLOAT] * 2
    inputs = [
        helper.make_tensor_value_info(name, kind, None)
        for name, kind in zip(names, kinds, strict=True)
        if name
    ]
    outputs = [helper.make_tensor_value_info("y", TensorProto.INT64, None)]
    graph = helper.make_graph([node], "g", inputs, outputs)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 11)])
    feeds = {
        "b": boxes,
        "s": scores,
        "m": np.array([most]),
        "o": np.array([overlap], np.float32),
        "t": np.array([least], np.float32),
    }
    used = {name: feeds[name] for name in names if name}
    return ReferenceEvaluator(model).run(None, used)[0].reshape(-1, 3)


def some_boxes(batches: int, count: int, centered: bool) -> Any:
    """Corners in any order; some boxes are empty, some are the same."""
    boxes = RNG.integers(0, 12, (batches, count, 4)).astype(np.float32)
    if centered:
        boxes[..., 2:] = RNG.integers(0, 6, (batches, count, 2))
    boxes[:, ::7] = boxes[:, :1]
    return boxes


@pytest.mark.parametrize("centered", [False, True])
@pytest.mark.parametrize("least", [None, 0.4])
@pytest.mark.parametrize("most", [0, 1, 3, 20, 1000])
@pytest.mark.parametrize("overlap", [0.0, 0.3, 0.5])
def test_non_max_suppression(overlap: float, most: int, least: Any, centered: bool) -> None:
    boxes = some_boxes(2, 40, centered)
    scores = (RNG.integers(0, 11, (2, 3, 40)) / 10).astype(np.float32)
    want = onnx_reference(boxes, scores, most, np.float32(overlap), least, int(centered))
    for limit in (most, Tensor.input("m", (1,), dt.int64)):
        results = dynamic.non_max_suppression(
            given(boxes, "b"),
            given(scores, "s"),
            limit,
            240,
            overlap=overlap,
            least=least,
            centered=centered,
        )
        got, count = evaluated(results, b=boxes, s=scores, m=np.array([most]))
        assert count == len(want)
        np.testing.assert_array_equal(got[:count], want)
        assert got.shape == (240, 3) and got.dtype == np.int64 and not got[count:].any()


@pytest.mark.parametrize("most", [3, 40])
@pytest.mark.parametrize("above", [0, 1, 128, 129, 384, 385, 1100])
def test_more_and_less_candidates_than_are_listed(above: int, most: int) -> None:
    """Few boxes of a class above the threshold are taken out of all; ties stay in their order."""
    boxes = some_boxes(2, 1100, False)
    scores = np.zeros((2, 3, 1100), np.float32)
    ranks = RNG.integers(6, 11, (2, 3, 1100)) / 10
    for image, kind in np.ndindex(2, 3):
        number = above if (image, kind) == (1, 1) else above // 3
        places = RNG.permutation(1100)[:number]
        scores[image, kind, places] = ranks[image, kind, places]
    want = onnx_reference(boxes, scores, most, np.float32(0.3), np.float32(0.5), 0)
    results = dynamic.non_max_suppression(
        given(boxes, "b"), given(scores, "s"), most, 240, overlap=0.3, least=0.5
    )
    got, count = evaluated(results, b=boxes, s=scores)
    assert count == len(want)
    np.testing.assert_array_equal(got[:count], want[:240])


@pytest.mark.parametrize("kind", ["any", "ties", "equal", "skewed", "infinite", "one place"])
def test_the_best_few(kind: str) -> None:
    """Of many candidates the best are enough, unless ties or overlaps leave too few of them."""
    boxes = some_boxes(1, 3000, False)
    scores = 0.5 + RNG.random((1, 2, 3000)).astype(np.float32) / 2
    if kind == "ties":
        scores = np.round(scores * 8) / 8
    elif kind == "equal":
        scores = np.full_like(scores, 0.75)
    elif kind == "skewed":
        scores = np.float32(0.5) + (scores * 2 - 1) ** 40
    elif kind == "infinite":
        scores[:, :, ::7] = np.inf
    elif kind == "one place":
        boxes = np.repeat(boxes[:, :1], 3000, 1)
        boxes[:, -9:] += 1000 * np.arange(1, 10, dtype=np.float32)[:, None]
        scores[:, :, -9:] = 0.51
    scores[:, 1, 100:] = 0  # one class of few candidates
    want = onnx_reference(boxes, scores, 40, np.float32(0.3), np.float32(0.5), 0)
    results = dynamic.non_max_suppression(
        given(boxes, "b"), given(scores, "s"), 40, 80, overlap=0.3, least=0.5
    )
    got, count = evaluated(results, b=boxes, s=scores)
    assert count == len(want)
    np.testing.assert_array_equal(got[:count], want)


@pytest.mark.parametrize("length", [1, 31, 32, 33, 64, 1000, 1025, 40000])
def test_places_in_words(length: int) -> None:
    """Elements of a mask are counted by words of bits: at the ends of words, all, none and some."""
    for mask in (np.zeros(length, bool), np.ones(length, bool), RNG.random(length) < 0.3):
        got, count = evaluated(dynamic.true_places(given(mask, "m"), length), m=mask)
        want = np.flatnonzero(mask)
        assert count == len(want)
        np.testing.assert_array_equal(
            got, np.pad(want, (0, length - len(want)), constant_values=-1)
        )


def test_scores_at_the_ends() -> None:
    """NaN is never selected; without a threshold -inf is, last."""
    boxes = np.arange(20, dtype=np.float32).reshape(1, 5, 4) * 10
    boxes[..., 2:] = boxes[..., :2] + 1
    scores = np.array([[[-np.inf, np.nan, np.inf, -np.inf, 0]]], np.float32)
    results = dynamic.non_max_suppression(given(boxes, "b"), given(scores, "s"), 5, 5)
    got, count = evaluated(results, b=boxes, s=scores)
    assert got[:count, 2].tolist() == [2, 4, 0, 3]


def test_boxes_of_an_open_number() -> None:
    boxes, scores = some_boxes(2, 25, False), RNG.random((2, 2, 25)).astype(np.float32)
    batch, number = symbol("b", 1, 3), symbol("n", 1, 60)
    results = dynamic.non_max_suppression(
        Tensor.input("b", (batch, number, 4), dt.float32),
        Tensor.input("s", (batch, 2, number), dt.float32),
        10,
        60,
        overlap=0.2,
    )
    nodes = [tensor.node for tensor in results]
    got, count = evaluate(nodes, {"b": boxes, "s": scores}, {"b": 2, "n": 25})
    want = onnx_reference(boxes, scores, 10, np.float32(0.2), None, 0)
    np.testing.assert_array_equal(got[:count], want)


# On devices.


def _detections(inputs: Inputs) -> dict[str, Tensor]:
    boxes = inputs.new(some_boxes(1, 300, False))
    scores = inputs.new(RNG.random((1, 2, 300)).astype(np.float32))
    most = inputs.new(np.array(20, np.int64))
    found, count = dynamic.non_max_suppression(boxes, scores, most, 50, overlap=0.3, least=0.5)
    return {"boxes": found, "count": count}


def _many_candidates(inputs: Inputs) -> dict[str, Tensor]:
    boxes = inputs.new(some_boxes(1, 900, False))
    scores = inputs.new(RNG.random((1, 2, 900)).astype(np.float32))
    found, count = dynamic.non_max_suppression(boxes, scores, 20, 50, overlap=0.3, least=0.2)
    return {"boxes": found, "count": count}


def _places(inputs: Inputs) -> dict[str, Tensor]:
    places, count = dynamic.non_zero(inputs.new(sparse(30, 40)), 900)
    return {"places": places, "count": count}


def _different(inputs: Inputs) -> dict[str, Tensor]:
    x = inputs.new(RNG.integers(0, 3, (50, 3)).astype(np.float32))
    found = dynamic.unique(x, 0, 30, ascending=False)
    return {"values": found.values, "inverse": found.inverse, "count": found.count}


@pytest.mark.parametrize("case", [_detections, _many_candidates, _places, _different])
def test_on_every_target(case: Any, target: str, device: Device) -> None:
    inputs = Inputs()
    outputs = case(inputs)
    got = run(outputs, inputs, target, device)
    for name, value in reference(outputs, inputs).items():
        np.testing.assert_array_equal(got[name], value)
