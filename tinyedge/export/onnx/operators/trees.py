"""ai.onnx.ml: ensembles of trees."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tinyedge.core import dtype as dt
from tinyedge.core.tensor.tensor import Tensor
from tinyedge.export.onnx.operators.classical import DOMAIN, feature_rows
from tinyedge.export.onnx.operators.scores import chosen, class_labels, pair, transformed
from tinyedge.export.onnx.registry import Node, operator

MODES = ("<=", "<", ">=", ">", "==", "!=")
NAMES = ("BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ")
MEMBER = 6  # of a set: a chain of nodes that compare with one element each
AGGREGATES = ("AVERAGE", "SUM", "MIN", "MAX")
TRANSFORMS = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")


@dataclass
class Forest:
    """Leaves and then nodes, in one numbering; a leaf is its own child."""

    leaves: int
    features: list[int] = field(default_factory=list)
    modes: list[int] = field(default_factory=list)
    splits: list[float] = field(default_factory=list)
    missing: list[bool] = field(default_factory=list)
    yes: list[int] = field(default_factory=list)
    no: list[int] = field(default_factory=list)
    roots: list[int] = field(default_factory=list)  # of each tree

    def __post_init__(self) -> None:
        for leaf in range(self.leaves):
            self.add(0, 0, 0.0, False, leaf, leaf)

    def add(self, feature: int, mode: int, split: float, missing: bool, yes: int, no: int) -> None:
        """One more node: `yes` follows where `feature mode split` holds; `missing`: for NaN too."""
        self.features.append(feature)
        self.modes.append(mode)
        self.splits.append(split)
        self.missing.append(missing)
        self.yes.append(yes)
        self.no.append(no)

    def depth(self, node: Node) -> int:
        """The most steps down to a leaf. Raises ModelError for a cycle."""
        parents = [0] * len(self.yes)
        for child in (*self.yes[self.leaves :], *self.no[self.leaves :]):
            parents[child] += 1
        depths = [0] * len(self.yes)
        ready = [at for at in range(self.leaves, len(parents)) if not parents[at]]
        for at in ready:
            for child in (self.yes[at], self.no[at]):
                depths[child] = max(depths[child], depths[at] + 1)
                parents[child] -= 1
                if not parents[child] and child >= self.leaves:
                    ready.append(child)
        if len(ready) < len(parents) - self.leaves:
            raise node.invalid("its trees have a cycle")
        return max(depths)


@operator("TreeEnsemble", domain=DOMAIN, limits="a fixed number of features")
def tree_ensemble(node: Node, x: Tensor) -> Tensor:
    """x [N, F] -> [N, targets]."""
    rows, width = feature_rows(node, x)
    values = node.known(node.tensor("leaf_weights"))
    targets = np.asarray(node.integer_list("leaf_targetids"), np.int32)
    count = node.integer("n_targets", 1)
    if len(values) != len(targets) or not np.all((targets >= 0) & (targets < count)):
        raise node.invalid(f"{len(values)} leaves, targets {targets.tolist()} of {count}")
    aggregate, transform = node.integer("aggregate_function", 1), node.integer("post_transform", 0)
    if not 0 <= aggregate < len(AGGREGATES) or not 0 <= transform < len(TRANSFORMS):
        raise node.invalid(f"aggregate_function is {aggregate}, post_transform {transform}")
    weights = [(leaf, target, values[leaf]) for leaf, target in enumerate(targets)]
    forest = _numbered_forest(node, len(values), width)
    result = _aggregated(node, rows, forest, weights, count, AGGREGATES[aggregate], values.dtype)
    return transformed(result, TRANSFORMS[transform], node)


@operator("TreeEnsembleRegressor", domain=DOMAIN, limits="a fixed number of features")
def tree_ensemble_regressor(node: Node, x: Tensor) -> Tensor:
    """x [N, F] -> [N, targets]."""
    rows, width = feature_rows(node, x)
    count, aggregate = node.integer("n_targets", 1), node.text("aggregate_function", "SUM")
    forest, leaf_of = _named_forest(node, width)
    weights = _weights(node, "target", leaf_of, count)
    if aggregate not in AGGREGATES:
        raise node.invalid(f"aggregate_function is {aggregate!r}")
    result = _aggregated(node, rows, forest, weights, count, aggregate, rows.dtype.numpy)
    based = _based(node, result, count).cast(dt.float32)
    return transformed(based, node.text("post_transform", "NONE"), node)


@operator(
    "TreeEnsembleClassifier",
    domain=DOMAIN,
    limits="a fixed number of features; labels that are texts as their numbers",
)
def tree_ensemble_classifier(node: Node, x: Tensor) -> list[Tensor]:
    """The label and the scores of each row. Where all weights are of the first of two classes, they
    add up to the score of the second: a probability, if none is negative.
    """
    rows, width = feature_rows(node, x)
    labels = class_labels(node, "classlabels_int64s")
    transform = node.text("post_transform", "NONE")
    forest, leaf_of = _named_forest(node, width)
    count = max(1, len(labels))
    weights = _weights(node, "class", leaf_of, count)
    scores = _aggregated(node, rows, forest, weights, count, "SUM", rows.dtype.numpy)
    classes = {target for _, target, _ in weights}
    if count != 2 or len(classes) != 1:
        scores = _based(node, scores, count)
        label = chosen(node, labels, scores.argmax(-1))
        return [label, transformed(scores.cast(dt.float32), transform, node)]
    (only,) = classes
    score = _based(node, scores[:, only : only + 1], 1)
    likely = all(weight >= 0 for *_, weight in weights)
    label = chosen(node, labels, (score > (0.5 if likely else 0.0)).squeeze(1).cast(dt.int32))
    score = score.cast(dt.float32)
    if only == 0:
        return [label, pair(score, transform, likely, node)]
    return [label, transformed(score.pad([(0, 0), (1, 0)]), transform, node)]


# From attributes to a forest.


def _list_or_tensor(node: Node, name: str) -> list[float] | None:
    """Floats of an attribute, or doubles of the one that has `_as_tensor` at its end."""
    if node.has(f"{name}_as_tensor"):
        values: list[float] = node.known(node.tensor(f"{name}_as_tensor")).reshape(-1).tolist()
        return values
    return node.number_list(name)


def _based(node: Node, scores: Tensor, count: int) -> Tensor:
    """Scores and `base_values`, of which there is one for all or one for each column."""
    base = _list_or_tensor(node, "base_values")
    if not base:
        return scores
    if len(base) not in (1, count):
        raise node.invalid(f"{len(base)} base_values for {count} columns")
    return scores + node.constant(np.asarray(base, scores.dtype.numpy))


Weight = tuple[int, int, float]  # a leaf, its target or class, and what it adds there


def _weights(
    node: Node, kind: str, leaf_of: dict[tuple[int, int], int], count: int
) -> list[Weight]:
    """What each leaf adds to each target or class, by the attributes of that kind."""
    trees, nodes, targets = (
        node.integer_list(f"{kind}_{name}") or [] for name in ("treeids", "nodeids", "ids")
    )
    values = _list_or_tensor(node, f"{kind}_weights") or []
    if not len(trees) == len(nodes) == len(targets) == len(values):
        raise node.invalid(f"its {kind}_ attributes are of different lengths")
    weights = []
    for tree, at, target, value in zip(trees, nodes, targets, values, strict=True):
        if (tree, at) not in leaf_of or not 0 <= target < count:
            raise node.invalid(f"a weight of node {at} in tree {tree}, {kind} {target} of {count}")
        weights.append((leaf_of[tree, at], target, value))
    return weights


def _named_forest(node: Node, width: int) -> tuple[Forest, dict[tuple[int, int], int]]:
    """The trees of nodes that are called by a tree and a number in it, and their leaves."""
    names = ("treeids", "nodeids", "featureids", "truenodeids", "falsenodeids")
    trees, ids, features, yes, no = (node.integer_list(f"nodes_{name}") or [] for name in names)
    modes = node.text_list("nodes_modes") or []
    splits = _list_or_tensor(node, "nodes_values") or []
    missing = node.integer_list("nodes_missing_value_tracks_true") or [0] * len(modes)
    for unused in ("nodes_hitrates", "nodes_hitrates_as_tensor"):
        node.has(unused)
    if any(
        len(column) != len(modes) for column in (trees, ids, features, yes, no, splits, missing)
    ):
        raise node.invalid("its nodes_ attributes are of different lengths")
    keys = list(zip(trees, ids, strict=True))
    if len(set(keys)) < len(keys):
        raise node.invalid("two nodes of a tree have one number")
    leaves = [key for key, mode in zip(keys, modes, strict=True) if mode == "LEAF"]
    branches = [key for key, mode in zip(keys, modes, strict=True) if mode != "LEAF"]
    number = {key: place for place, key in enumerate((*leaves, *branches))}
    forest = Forest(len(leaves))
    below: set[tuple[int, int]] = set()
    for place, key in enumerate(keys):
        if modes[place] == "LEAF":
            continue
        if modes[place] not in NAMES or not 0 <= features[place] < width:
            raise node.invalid(f"a node of feature {features[place]}, mode {modes[place]!r}")
        children = (key[0], yes[place]), (key[0], no[place])
        strange = [child for child in children if child not in number]
        if strange:
            raise node.invalid(f"a branch to node {strange[0][1]} of tree {key[0]}")
        below.update(children)
        mode, tracks = NAMES.index(modes[place]), bool(missing[place])
        forest.add(features[place], mode, splits[place], tracks, *(number[c] for c in children))
    roots = [key for key in keys if key not in below]
    if sorted(tree for tree, _ in roots) != sorted(set(trees)):
        raise node.invalid("a tree needs one root: a node to which no other leads")
    forest.roots = [number[key] for key in roots]
    return forest, {key: number[key] for key in leaves}


def _numbered_forest(node: Node, leaves: int, width: int) -> Forest:
    """The trees of nodes and leaves that are called by their places in lists of all."""
    lists = {
        name: node.integer_list(name) or []
        for name in (
            "nodes_featureids",
            "nodes_truenodeids",
            "nodes_falsenodeids",
            "nodes_trueleafs",
            "nodes_falseleafs",
            "tree_roots",
        )
    }
    features, yes, no, yes_leaf, no_leaf, roots = lists.values()
    modes = node.known(node.tensor("nodes_modes")).tolist()
    splits = node.known(node.tensor("nodes_splits")).tolist()
    node.has("nodes_hitrates")
    missing = node.integer_list("nodes_missing_value_tracks_true") or [0] * len(modes)
    members = iter(_members(node))
    lengths = map(len, (features, yes, no, yes_leaf, no_leaf, splits, missing))
    if any(length != len(modes) for length in lengths):
        raise node.invalid("its nodes_ attributes are of different lengths")
    total = len(modes)

    def child(place: int, leaf: int) -> int:
        if not 0 <= place < (leaves if leaf else total):
            raise node.invalid(f"a branch to {'leaf' if leaf else 'node'} {place}")
        return place if leaf else leaves + place

    forest = Forest(leaves)
    chains = []
    for number in range(total):
        mode = modes[number]
        if not 0 <= features[number] < width or not 0 <= mode <= MEMBER:
            raise node.invalid(f"a node of feature {features[number]}, mode {mode}")
        elements = next(members, [np.nan]) if mode == MEMBER else [splits[number]]
        forest.add(
            features[number],
            MODES.index("==") if mode == MEMBER else mode,
            elements[0],
            bool(missing[number]),
            child(yes[number], yes_leaf[number]),
            child(no[number], no_leaf[number]),
        )
        chains.append(elements[1:])
    for number, elements in enumerate(chains):
        at = leaves + number
        for element in elements:
            last = len(forest.no)
            forest.add(
                forest.features[at],
                forest.modes[at],
                element,
                forest.missing[at],
                forest.yes[at],
                forest.no[at],
            )
            forest.no[at] = at = last
    forest.roots = [child(root, 0) for root in roots]
    return forest


def _members(node: Node) -> list[list[float]]:
    """The sets, each ended by a NaN; an empty one holds what equals nothing."""
    if not node.has("membership_values"):
        return []
    sets: list[list[float]] = [[]]
    for value in node.known(node.tensor("membership_values")).tolist():
        if np.isnan(value):
            sets.append([])
        else:
            sets[-1].append(value)
    return [elements or [np.nan] for elements in sets]


# Evaluation.


def _reached(node: Node, x: Tensor, forest: Forest) -> Tensor:
    """x [N, F] -> [N, trees]: the leaves. All trees go down by one node in every step."""
    tables = [np.asarray(t, np.int32) for t in (forest.features, forest.yes, forest.no)]
    features, yes, no = (node.constant(table) for table in tables)
    splits = node.constant(np.asarray(forest.splits, x.dtype.numpy))
    missing, modes = (
        node.constant(np.asarray(forest.missing)),
        node.constant(np.asarray(forest.modes)),
    )
    rows = x.shape[0]
    first = Tensor.arange(rows).unsqueeze(1) * x.shape[1]
    roots = node.constant(np.asarray(forest.roots, np.int32))
    at = roots.broadcast_to((rows, len(forest.roots)))
    flat = x.reshape((x.size,))
    for _ in range(forest.depth(node)):
        node.spend(len(MODES))
        value = flat.gather(0, first + features.gather(0, at))
        split, mode = splits.gather(0, at), modes.gather(0, at)
        true = value.isnan() & missing.gather(0, at)
        for number in sorted(set(forest.modes)):
            true = true | (mode.eq(number) & _compared(value, split, number))
        at = true.where(yes.gather(0, at), no.gather(0, at))
    return at


def _compared(value: Tensor, split: Tensor, mode: int) -> Tensor:
    if mode in (0, 1):
        return value <= split if mode == 0 else value < split
    if mode in (2, 3):
        return value >= split if mode == 2 else value > split
    return value.eq(split) if mode == 4 else value.ne(split)


def _aggregated(
    node: Node,
    x: Tensor,
    forest: Forest,
    weights: Sequence[Weight],
    count: int,
    aggregate: str,
    kind: Any,
) -> Tensor:
    """x [N, F] -> [N, count], float32 or float64: over the leaves that each row reaches."""
    limit = float(np.finfo(kind).max)
    neutral = {"MIN": limit, "MAX": -limit}.get(aggregate, 0.0)
    node.check_table(forest.leaves * count)
    table = np.full((forest.leaves, count), neutral, kind)
    for leaf, target, weight in weights:
        if neutral:
            choose = min if aggregate == "MIN" else max
            table[leaf, target] = choose(table[leaf, target], weight)
        else:
            table[leaf, target] += kind.type(weight) if isinstance(kind, np.dtype) else kind(weight)
    reached = node.constant(table).gather(0, _reached(node, x, forest))
    if aggregate in ("MIN", "MAX"):
        return reached.min(1) if aggregate == "MIN" else reached.max(1)
    total = reached.sum(1)
    return total / float(max(1, len(forest.roots))) if aggregate == "AVERAGE" else total
