"""ai.onnx.ml: from the scores of classes to labels and probabilities."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tinyedge.core.tensor.tensor import Tensor
from tinyedge.export.onnx.registry import Node


def class_labels(node: Node, integers: str) -> list[int]:
    """The labels of a classifier: integers, or the number of each where they are texts.

    integers: the attribute with integers, which is not called the same everywhere.
    """
    labels, texts = node.integer_list(integers), node.text_list("classlabels_strings")
    if labels and texts:
        raise node.invalid("it has labels of both types")
    if texts:
        node.warn(
            f"its labels are texts: the label output is the number of one, from 0, of {texts}"
        )
        return list(range(len(texts)))
    return labels or []


def chosen(node: Node, labels: list[int], place: Tensor) -> Tensor:
    """The labels at places, int64: their numbers where they are texts, which the importer notes."""
    made = node.constant(np.asarray(labels, np.int64)).gather(0, place)
    if node.has("classlabels_strings"):
        node.context.texts.add(made.node)
    return made


def transformed(scores: Tensor, transform: str, node: Node) -> Tensor:
    """Scores [N, classes] after a `post_transform`."""
    if transform == "NONE":
        return scores
    if transform == "LOGISTIC":
        return scores.sigmoid()
    if transform == "SOFTMAX":
        return scores.softmax(-1)
    if transform == "SOFTMAX_ZERO":
        return _softmax_of_nonzeros(scores)
    if transform == "PROBIT":
        return _probit(scores)
    raise node.invalid(f"post_transform is {transform!r}")


def _softmax_of_nonzeros(scores: Tensor) -> Tensor:
    """Softmax in which a score of 0 keeps a weight of 0; one half each where all of them are 0."""
    most = scores.max(-1, keepdims=True)
    weights = (scores.abs() > 1e-7).where((scores - most).exp(), scores * (-most).exp())
    total = weights.sum(-1, keepdims=True)
    return total.eq(0).where(0.5, weights / total.eq(0).where(1.0, total))


WINITZKI = 0.147


def _probit(scores: Tensor) -> Tensor:
    """The quantile of the normal distribution, by Winitzki's approximation of the inverse error
    function (2008), which is what onnxruntime takes.
    """
    x = scores * 2.0 - 1.0
    log = ((1.0 - x) * (1.0 + x)).log()
    half = log * 0.5 + 2.0 / (math.pi * WINITZKI)
    root = ((half * half - log / WINITZKI).sqrt() - half).sqrt()
    return (x < 0).where(-root, root) * math.sqrt(2.0)


def pair(score: Tensor, transform: str, likely: bool, node: Node) -> Tensor:
    """Scores [N, 2] of one score [N, 1] for the second of two classes, after a `post_transform`.

    likely: the score is a probability, so that the other class has what is left of 1; else it has
    the opposite. Only LOGISTIC changes these, as in onnxruntime: ONNX does not say.
    """
    if transform == "LOGISTIC":
        return Tensor.concat([-score, score], 1).sigmoid()
    if transform == "PROBIT":
        raise node.unsupported(
            "post_transform is PROBIT, which says nothing of the second of two classes",
            supported="PROBIT for three classes or more",
        )
    if transform not in ("NONE", "SOFTMAX", "SOFTMAX_ZERO"):
        raise node.invalid(f"post_transform is {transform!r}")
    return Tensor.concat([1.0 - score if likely else -score, score], 1)


def table(node: Node, values: Any, shape: tuple[int, ...], what: str) -> Tensor:
    """A list of floats as a constant of a shape."""
    array = np.asarray(values if values is not None else [], np.float32)
    if array.size != math.prod(shape):
        raise node.invalid(f"{array.size} {what} for a table of {list(shape)}")
    return node.constant(array.reshape(shape))
