"""ai.onnx.ml: linear models and support vector machines."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from functools import reduce
from operator import add

import numpy as np

from tinyedge.core import dtype as dt
from tinyedge.core.tensor.tensor import Tensor
from tinyedge.export.onnx.operators.classical import DOMAIN, feature_rows
from tinyedge.export.onnx.operators.scores import chosen, class_labels, pair, table, transformed
from tinyedge.export.onnx.registry import Node, operator


def _linear(node: Node, x: Tensor, count: int) -> Tensor:
    """x [N, F] times coefficients [count, F], and intercepts: [N, count]."""
    rows, width = feature_rows(node, x)
    weights = table(node, node.number_list("coefficients"), (count, width), "coefficients")
    scores = rows.cast(dt.float32) @ weights.transpose()
    intercepts = node.number_list("intercepts")
    return scores if not intercepts else scores + table(node, intercepts, (count,), "intercepts")


@operator("LinearRegressor", domain=DOMAIN)
def linear_regressor(node: Node, x: Tensor) -> Tensor:
    scores = _linear(node, x, node.integer("targets", 1))
    return transformed(scores, node.text("post_transform", "NONE"), node)


@operator("LinearClassifier", domain=DOMAIN, limits="labels that are texts as their numbers")
def linear_classifier(node: Node, x: Tensor) -> list[Tensor]:
    """The label and the scores of each row."""
    node.has("multi_class")  # which changes nothing
    labels, transform = class_labels(node, "classlabels_ints"), node.text("post_transform", "NONE")
    _, width = feature_rows(node, x)
    count = len(node.number_list("coefficients") or []) // max(1, width)
    scores = _linear(node, x, count)
    if count > 1:
        if labels and len(labels) != count:
            raise node.invalid(f"{len(labels)} labels for {count} classes")
        place = scores.argmax(-1)
        return [
            chosen(node, labels or list(range(count)), place),
            transformed(scores, transform, node),
        ]
    positive = (scores > 0).squeeze(1)
    if len(labels) == 2:
        label = chosen(node, labels, positive.cast(dt.int32))
        return [label, pair(scores, transform, True, node)]
    label = chosen(node, [0, labels[0] if labels else 1], positive.cast(dt.int32))
    return [label, transformed(scores, transform, node)]


# Support vector machines.


def _kernel(node: Node, x: Tensor, vectors: Tensor) -> Tensor:
    """x [N, F] and vectors [V, F] -> [N, V]."""
    kind = node.text("kernel_type", "LINEAR").upper()
    gamma, shift, degree = (node.number_list("kernel_params") or [0.0, 0.0, 3.0])[:3]
    if kind == "RBF":
        apart = x.unsqueeze(1) - vectors
        return ((apart * apart).sum(-1) * -gamma).exp()
    product = x @ vectors.transpose()
    if kind == "LINEAR":
        return product
    scaled = product * gamma + shift
    if kind == "SIGMOID":
        return scaled.tanh()
    if kind == "POLY":
        return scaled ** float(int(degree))
    raise node.invalid(f"kernel_type is {kind!r}")


@operator("SVMRegressor", domain=DOMAIN)
def svm_regressor(node: Node, x: Tensor) -> Tensor:
    rows, width = feature_rows(node, x)
    rows = rows.cast(dt.float32)
    count = node.integer("n_supports", 0)
    coefficients = node.number_list("coefficients")
    if count > 0:
        vectors = table(node, node.number_list("support_vectors"), (count, width), "numbers")
        rows = _kernel(node, rows, vectors)
    else:
        for unused in ("kernel_type", "kernel_params", "support_vectors"):
            node.has(unused)
    scores = rows @ table(node, coefficients, (count or width, 1), "coefficients")
    scores = scores + table(node, (node.number_list("rho") or [0.0])[:1], (1,), "rho")
    if node.integer("one_class", 0):
        return (scores > 0).where(1.0, Tensor(-1.0, dt.float32))
    return transformed(scores, node.text("post_transform", "NONE"), node)


@dataclass(frozen=True)
class Machine:
    """Classes with their support vectors: [first, end) of each in one list of all."""

    labels: list[int]
    ends: list[tuple[int, int]]

    @property
    def pairs(self) -> list[tuple[int, int]]:
        return list(itertools.combinations(range(len(self.ends)), 2))


@operator("SVMClassifier", domain=DOMAIN, limits="labels that are texts as their numbers")
def svm_classifier(node: Node, x: Tensor) -> list[Tensor]:
    """The label and the scores of each row: one score for every pair of classes, probabilities
    where the model has them, or one score for each class of a linear machine.
    """
    rows, width = feature_rows(node, x)
    rows = rows.cast(dt.float32)
    labels = class_labels(node, "classlabels_ints")
    counts = node.integer_list("vectors_per_class") or []
    if not sum(counts):
        return _linear_machine(node, rows, labels, width)
    ends = list(itertools.accumulate(counts))
    machine = Machine(labels, list(zip([0, *ends[:-1]], ends, strict=True)))
    if len(labels) != len(counts) or min(counts) < 0:
        raise node.invalid(f"{len(labels)} labels, vectors_per_class {counts}")
    scores = _pairwise(node, rows, machine, width)
    label = chosen(node, labels, _votes(node, scores, machine).argmax(-1))
    transform = node.text("post_transform", "NONE")
    if node.has("prob_a"):
        return [label, transformed(_probabilities(node, scores, machine), transform, node)]
    node.has("prob_b")
    if len(labels) == 2:
        return [label, pair(scores, transform, False, node)]
    return [label, transformed(scores, transform, node)]


def _linear_machine(node: Node, rows: Tensor, labels: list[int], width: int) -> list[Tensor]:
    count = max(1, len(labels))
    for unused in ("kernel_type", "kernel_params", "support_vectors", "prob_a", "prob_b"):
        node.has(unused)
    weights = table(node, node.number_list("coefficients"), (count, width), "coefficients")
    rho = table(node, (node.number_list("rho") or [0.0])[:1], (1,), "rho")
    scores = rows @ weights.transpose() + rho
    label = chosen(node, labels or [0], scores.argmax(-1))
    return [label, transformed(scores, node.text("post_transform", "NONE"), node)]


def _pairwise(node: Node, rows: Tensor, machine: Machine, width: int) -> Tensor:
    """[N, pairs]: above 0 for the first class of a pair. The coefficients of the vectors of class a
    against class b lie in row b - 1 where a < b, else in row b.
    """
    total = machine.ends[-1][1]
    vectors = table(node, node.number_list("support_vectors"), (total, width), "numbers")
    count = len(machine.ends)
    given = np.asarray(node.number_list("coefficients") or [], np.float32)
    if given.size != (count - 1) * total:
        raise node.invalid(f"{given.size} coefficients for {total} vectors of {count} classes")
    own = given.reshape(count - 1, total)
    weights = np.zeros((total, len(machine.pairs)), np.float32)
    for number, (a, b) in enumerate(machine.pairs):
        (first, end), (start, stop) = machine.ends[a], machine.ends[b]
        weights[first:end, number] = own[b - 1, first:end]
        weights[start:stop, number] = own[a, start:stop]
    rho = table(node, node.number_list("rho"), (len(machine.pairs),), "rho")
    return _kernel(node, rows, vectors) @ node.constant(weights) + rho


def _votes(node: Node, scores: Tensor, machine: Machine) -> Tensor:
    """[N, classes]: of how many pairs each class is the better one."""
    count = len(machine.ends)
    first, second = np.zeros((2, len(machine.pairs), count), np.float32)
    for number, (a, b) in enumerate(machine.pairs):
        first[number, a] = second[number, b] = 1
    won = (scores > 0).cast(dt.float32)
    return won @ node.constant(first) + (1.0 - won) @ node.constant(second)


LEAST = 1e-7  # probability of one of a pair
MOST_ITERATIONS = 100


def _probabilities(node: Node, scores: Tensor, machine: Machine) -> Tensor:
    """[N, classes] from the scores of pairs: a sigmoid for each pair (Platt), coupled as by Wu, Lin
    and Weng, "Probability estimates for multi-class classification by pairwise coupling", 2004,
    in the iteration of their second method, as libsvm and onnxruntime do it.
    """
    pairs, count = machine.pairs, len(machine.ends)
    slope = table(node, node.number_list("prob_a"), (len(pairs),), "prob_a")
    shift = table(node, node.number_list("prob_b"), (len(pairs),), "prob_b")
    likely = (-(scores * slope + shift)).sigmoid().clip(LEAST, 1 - LEAST)
    chance: dict[tuple[int, int], Tensor] = {}
    for number, (a, b) in enumerate(pairs):
        chance[a, b] = likely[:, number]
        chance[b, a] = 1.0 - likely[:, number]
    matrix = [
        [
            reduce(add, (chance[c, a] * chance[c, a] for c in range(count) if c != a))
            if a == b
            else -chance[b, a] * chance[a, b]
            for b in range(count)
        ]
        for a in range(count)
    ]
    node.spend(count * count)
    q = Tensor.stack([Tensor.stack(row, -1) for row in matrix], -2)  # [N, classes, classes]
    first = Tensor.full((scores.shape[0], count), 1.0 / count, dt.float32)
    (result,) = Tensor.loop(
        [first], lambda p: [_coupled(p, q, count)], trips=max(MOST_ITERATIONS, count)
    )
    return result


def _coupled(p: Tensor, q: Tensor, count: int) -> Tensor:
    """One iteration for all rows; a row whose error is small enough stays as it is."""
    before = p
    qp = (q * p.unsqueeze(1)).sum(-1)
    whole = (p * qp).sum(-1, keepdims=True)
    done = (qp - whole).abs().max(-1, keepdims=True) < 0.005 / count
    places = Tensor.arange(count)
    for t in range(count):
        diagonal = q[:, t : t + 1, t]
        step = (whole - qp[:, t : t + 1]) / diagonal
        scale = step + 1.0
        p = (places.eq(t).where(p + step, p)) / scale
        whole = (whole + step * (step * diagonal + qp[:, t : t + 1] * 2.0)) / (scale * scale)
        qp = (qp + step * q[:, t]) / scale
    return done.where(before, p)
