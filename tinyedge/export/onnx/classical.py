"""ai.onnx.ml: trees, label encoders and other operators on features that are numbers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from tinyedge.core import dtype as dt
from tinyedge.core.tensor import Tensor
from tinyedge.export.onnx.equality import show
from tinyedge.export.onnx.indexing import wrapped
from tinyedge.export.onnx.registry import Node, operator

DOMAIN = "ai.onnx.ml"


@operator("ArrayFeatureExtractor", domain=DOMAIN)
def array_feature_extractor(node: Node, x: Tensor, places: Tensor) -> Tensor:
    """x [.., F] at places of its last axis; one axis becomes a row."""
    rows = x.unsqueeze(0) if x.ndim == 1 else x
    at = wrapped(node, places.reshape((places.size,)), rows.shape[-1])
    return rows.gather(rows.ndim - 1, at)


@operator("Binarizer", domain=DOMAIN)
def binarizer(node: Node, x: Tensor) -> Tensor:
    return (x.cast(dt.float64) > node.number("threshold", 0.0)).cast(x.dtype)


@operator("LabelEncoder", domain=DOMAIN, limits="numbers")
def label_encoder(node: Node, x: Tensor) -> Tensor:
    """Keys to values, both numbers. A NaN matches any NaN; of equal keys the last one counts."""
    keys = _listed(node, "keys", x.dtype.numpy)
    values = _listed(node, "values", None)
    if keys is None or values is None or len(keys) != len(values):
        raise node.unsupported("its keys and values are no numbers", supported="as many numbers")
    rest = node.number("default_float", -0.0) if values.dtype.kind == "f" else None
    default: Any = node.integer("default_int64", -1) if rest is None else rest
    if node.has("default_tensor"):
        default = node.constant_input(node.tensor("default_tensor"), "default_tensor").reshape(-1)[
            0
        ]
    result: Tensor = node.constant(values.dtype.type(default)).broadcast_to(x.shape)
    equal = x.unsqueeze(x.ndim).eq(node.constant(keys))
    if x.dtype.is_float:
        equal = equal | (x.isnan().unsqueeze(x.ndim) & node.constant(np.isnan(keys)))
    place = equal.where(Tensor.arange(len(keys)), -1).max(-1)
    return (place >= 0).where(node.constant(values).gather(0, place), result)


def _listed(node: Node, name: str, kind: Any) -> Any:
    """Numbers given in one of the attributes that start with a name, or None."""
    found: Any = None
    if node.has(f"{name}_tensor"):
        found = node.known(node.tensor(f"{name}_tensor"))
    elif node.has(f"{name}_floats"):
        found = np.asarray(node.number_list(f"{name}_floats"), np.float32)
    elif node.has(f"{name}_int64s"):
        found = np.asarray(node.integer_list(f"{name}_int64s"), np.int64)
    return found if found is None or kind is None else found.astype(kind)


# Trees.

MODES = ("<=", "<", ">=", ">", "==", "!=")
MEMBER = 6  # of a set: a chain of nodes that compare with one element each


@dataclass
class Forest:
    """Nodes and then leaves, in one numbering; a leaf is its own child."""

    features: list[int]
    modes: list[int]
    splits: list[float]
    missing: list[bool]
    yes: list[int]
    no: list[int]

    def columns(self) -> tuple[list[Any], ...]:
        """All but the splits."""
        return self.features, self.modes, self.missing, self.yes, self.no

    def depth(self, node: Node, leaves: int) -> int:
        """The most steps down to a leaf. Raises ModelError for a cycle."""
        parents = [0] * len(self.yes)
        for child in (*self.yes[leaves:], *self.no[leaves:]):
            parents[child] += 1
        depths = [0] * len(self.yes)
        ready = [at for at in range(leaves, len(parents)) if not parents[at]]
        for at in ready:
            for child in (self.yes[at], self.no[at]):
                depths[child] = max(depths[child], depths[at] + 1)
                parents[child] -= 1
                if not parents[child] and child >= leaves:
                    ready.append(child)
        if len(ready) < len(parents) - leaves:
            raise node.invalid("its trees have a cycle")
        return max(depths)


@operator("TreeEnsemble", domain=DOMAIN, limits="a fixed number of features")
def tree_ensemble(node: Node, x: Tensor) -> Tensor:
    """x [N, F] -> [N, targets]: all trees go down by one node in every step."""
    if x.ndim != 2 or not isinstance(x.shape[1], int):
        raise node.unsupported(f"its input is {show(x)}", supported="[N, F] with F fixed")
    weights = node.known(node.tensor("leaf_weights"))
    targets = np.asarray(node.integer_list("leaf_targetids"), np.int32)
    count = node.integer("n_targets", 1)
    if len(weights) != len(targets) or not np.all((targets >= 0) & (targets < count)):
        raise node.invalid(f"{len(weights)} leaves, targets {targets.tolist()} of {count}")
    forest, roots = _forest(node, len(weights), x.shape[1])
    tables = [np.asarray(t, np.int32) for t in (forest.features, forest.yes, forest.no)]
    features, yes, no = (node.constant(table) for table in tables)
    splits = node.constant(np.asarray(forest.splits, x.dtype.numpy))
    missing, modes = (
        node.constant(np.asarray(forest.missing)),
        node.constant(np.asarray(forest.modes)),
    )
    rows = x.shape[0]
    first = Tensor.arange(rows).unsqueeze(1) * x.shape[1]
    at = node.constant(np.asarray(roots, np.int32)).broadcast_to((rows, len(roots)))
    flat = x.reshape((x.size,))
    for _ in range(forest.depth(node, len(weights))):
        node.spend(len(MODES))
        value = flat.gather(0, first + features.gather(0, at))
        split, mode = splits.gather(0, at), modes.gather(0, at)
        true = value.isnan() & missing.gather(0, at)
        for number in sorted(set(forest.modes)):
            true = true | (mode.eq(number) & _compared(value, split, number))
        at = true.where(yes.gather(0, at), no.gather(0, at))
    return _aggregated(node, node.constant(weights).gather(0, at), targets, at, count)


def _compared(value: Tensor, split: Tensor, mode: int) -> Tensor:
    if mode in (0, 1):
        return value <= split if mode == 0 else value < split
    if mode in (2, 3):
        return value >= split if mode == 2 else value > split
    return value.eq(split) if mode == 4 else value.ne(split)


def _forest(node: Node, leaves: int, width: int) -> tuple[Forest, list[int]]:
    """The trees, with leaf n as n and node n as leaves + n; and their roots."""
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

    own = list(range(leaves))
    forest = Forest([0] * leaves, [0] * leaves, [0.0] * leaves, [False] * leaves, own, own[:])
    chains = []
    for number in range(total):
        mode = modes[number]
        if not 0 <= features[number] < width or not 0 <= mode <= MEMBER:
            raise node.invalid(f"a node of feature {features[number]}, mode {mode}")
        forest.features.append(features[number])
        forest.modes.append(MODES.index("==") if mode == MEMBER else mode)
        forest.missing.append(bool(missing[number]))
        forest.yes.append(child(yes[number], yes_leaf[number]))
        forest.no.append(child(no[number], no_leaf[number]))
        elements = next(members, [np.nan]) if mode == MEMBER else [splits[number]]
        forest.splits.append(elements[0])
        chains.append(elements[1:])
    for number, elements in enumerate(chains):
        at = leaves + number
        for element in elements:
            for column in forest.columns():
                column.append(column[at])
            forest.splits.append(element)
            forest.no[at] = at = len(forest.no) - 1
    return forest, [child(root, 0) for root in roots]


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


def _aggregated(node: Node, leaves: Tensor, targets: Any, at: Tensor, count: int) -> Tensor:
    """leaves [N, trees], of the leaves `at`: [N, count] over the leaves of each target."""
    mode, transform = node.integer("aggregate_function", 1), node.integer("post_transform", 0)
    target = node.constant(targets).gather(0, at).unsqueeze(1)
    hit = target.eq(Tensor.arange(count).unsqueeze(1))  # [N, count, trees]
    values = leaves.unsqueeze(1)
    if mode in (0, 1):
        result = hit.where(values, 0).sum(-1)
        result = result / float(leaves.shape[1]) if mode == 0 else result  # type: ignore[arg-type]
    elif mode in (2, 3):
        limit = float(np.finfo(leaves.dtype.numpy).max)
        result = (
            hit.where(values, limit).min(-1) if mode == 2 else hit.where(values, -limit).max(-1)
        )
    else:
        raise node.invalid(f"aggregate_function is {mode}")
    if transform == 1:
        return result.softmax(-1)
    if transform == 2:
        return result.sigmoid()
    if transform:
        raise node.unsupported(f"post_transform is {transform}", supported="0, 1 and 2")
    return result
