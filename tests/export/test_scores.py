"""Classifiers and regressors of ai.onnx.ml, beside onnxruntime, which is what their models are
trained against: ONNX's evaluator does otherwise with a single score.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper

from tests.export.hostile import model
from tests.imported import import_model
from tinyedge.core.errors import InputError, UnsupportedOp
from tinyedge.core.ir.reference import evaluate

TRANSFORMS = ("NONE", "LOGISTIC", "SOFTMAX", "SOFTMAX_ZERO", "PROBIT")
X = np.random.default_rng(0).normal(size=(30, 3)).astype(np.float32)


def build(op: str, x: Any, outputs: int, **attributes: Any) -> Any:
    names = ["y", "z"][:outputs]
    node = helper.make_node(op, ["x"], names, domain="ai.onnx.ml", **attributes)
    kind = helper.np_dtype_to_tensor_dtype(x.dtype)
    proto = model([node], inputs=[helper.make_tensor_value_info("x", kind, x.shape)], opset=17)
    proto.opset_import.append(helper.make_opsetid("ai.onnx.ml", 3))
    proto.ir_version = 8
    proto.graph.ClearField("output")
    label = TensorProto.STRING if "classlabels_strings" in attributes else TensorProto.INT64
    kinds = [label, TensorProto.FLOAT] if outputs == 2 else [TensorProto.FLOAT]
    for name, each in zip(names, kinds, strict=True):
        proto.graph.output.append(helper.make_tensor_value_info(name, each, None))
    return proto


def compare(op: str, x: Any, outputs: int = 1, **attributes: Any) -> list[Any]:
    proto = build(op, x, outputs, **attributes)
    imported = import_model(proto.SerializeToString())
    got = evaluate([t.node for t in imported.outputs.values()], {"x": x})
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(proto.SerializeToString(), options)
    for found, wanted in zip(got, session.run(None, {"x": x}), strict=True):
        if wanted.dtype == object:
            texts = [text.decode() for text in attributes["classlabels_strings"]]
            wanted = np.array([texts.index(label) for label in wanted], np.int64)
        assert found.shape == wanted.shape and found.dtype == wanted.dtype
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)
    return got


@pytest.mark.parametrize("transform", TRANSFORMS)
@pytest.mark.parametrize("classes", [1, 2, 3])
def test_linear(classes: int, transform: str) -> None:
    rng = np.random.default_rng(classes)
    coefficients = (rng.normal(size=classes * 3) / 4).tolist()
    own = {"coefficients": coefficients, "intercepts": rng.uniform(0.3, 0.6, classes).tolist()}
    compare("LinearRegressor", X, targets=classes, **own)
    labels = {"classlabels_ints": list(range(5, 5 + max(2, classes)))}
    probit = {"post_transform": transform}
    if transform == "PROBIT" and classes == 1:  # onnxruntime leaves the second score as it was
        with pytest.raises(UnsupportedOp, match="second of two classes"):
            compare("LinearClassifier", X, 2, **own, **labels, **probit)
        return
    compare("LinearClassifier", X, 2, **own, **labels, **probit)


def test_labels_that_are_texts() -> None:
    own = {"coefficients": [1.0, 0, 0, 0, 1, 0], "intercepts": [0.0, 0.0]}
    labels, _ = compare("LinearClassifier", X, 2, classlabels_strings=[b"no", b"yes"], **own)
    assert set(labels) == {0, 1}


def declared_a_text(labels: dict[str, Any], *after: Any) -> Any:
    """A classifier, nodes after its label "y", and an output "t" that is declared as texts."""
    own = {"coefficients": [1.0, 0, 0, 0, 1, 0], "intercepts": [0.0, 0.0]}
    proto = build("LinearClassifier", X, 2, **labels, **own)
    proto.graph.node.extend(after)
    proto.graph.ClearField("output")
    proto.graph.output.append(helper.make_tensor_value_info("t", TensorProto.STRING, None))
    return proto.SerializeToString()


def test_a_text_may_be_moved() -> None:
    labels = {"classlabels_strings": [b"no", b"yes"]}
    shape = helper.make_node("Constant", [], ["s"], value_ints=[30, 1])
    moved = helper.make_node("Reshape", ["y", "s"], ["m"])
    imported = import_model(
        declared_a_text(labels, shape, moved, helper.make_node("Identity", ["m"], ["t"]))
    )
    (found,) = evaluate([imported.outputs["t"].node], {"x": X})
    wanted = (X[:, 1] > X[:, 0]).astype(np.int64)
    np.testing.assert_array_equal(found, wanted[:, None])


@pytest.mark.parametrize(
    ("labels", "op", "inputs"),
    [
        ({"classlabels_ints": [0, 1]}, "Identity", ["y"]),
        ({"classlabels_strings": [b"no", b"yes"]}, "Identity", ["z"]),
        ({"classlabels_strings": [b"no", b"yes"]}, "Add", ["y", "y"]),
    ],
)
def test_only_labels_are_texts(labels: Any, op: str, inputs: list[str]) -> None:
    node = helper.make_node(op, inputs, ["t"])
    with pytest.raises(UnsupportedOp, match="its element type is string"):
        import_model(declared_a_text(labels, node))


def forest(kind: str, weights: list[float], classes: list[int], rows: int) -> dict[str, Any]:
    """Stumps: tree t compares feature t % rows with 0.1 * t, and has two leaves."""
    count = len(weights) // 2
    modes = ["BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ"]
    return {
        "nodes_treeids": [t for t in range(count) for _ in range(3)],
        "nodes_nodeids": [0, 1, 2] * count,
        "nodes_featureids": [f for t in range(count) for f in (t % rows, 0, 0)],
        "nodes_values": [v for t in range(count) for v in (0.1 * t, 0.0, 0.0)],
        "nodes_modes": [m for t in range(count) for m in (modes[t % 4], "LEAF", "LEAF")],
        "nodes_truenodeids": [1, 0, 0] * count,
        "nodes_falsenodeids": [2, 0, 0] * count,
        "nodes_missing_value_tracks_true": [n for t in range(count) for n in (t % 2, 0, 0)],
        f"{kind}_treeids": [t for t in range(count) for _ in range(2)],
        f"{kind}_nodeids": [1, 2] * count,
        f"{kind}_ids": classes,
        f"{kind}_weights": weights,
    }


MISSING = np.where(np.random.default_rng(1).random(X.shape) < 0.2, np.nan, X).astype(np.float32)


@pytest.mark.parametrize("transform", TRANSFORMS)
@pytest.mark.parametrize("signs", ["positive", "mixed"])
@pytest.mark.parametrize("classes", [[0] * 12, [1] * 12, [0, 1] * 6, [0, 1, 2] * 4])
def test_classifying_trees(classes: list[int], signs: str, transform: str) -> None:
    """A class without a leaf that a row reaches has the score 0; onnxruntime never chooses it, and
    calls two classes 0 and 1 whatever their labels are.
    """
    rng = np.random.default_rng(len(set(classes)))
    weights = rng.uniform(0.0 if signs == "positive" else -0.2, 0.2, 12).tolist()
    own = forest("class", weights, classes, 3)
    labels = {"classlabels_int64s": [7, 8, 9][: max(2, len(set(classes)))]}
    own |= {**labels, "post_transform": transform}
    if transform == "PROBIT" and set(classes) == {0}:
        with pytest.raises(UnsupportedOp, match="second of two classes"):
            compare("TreeEnsembleClassifier", MISSING, 2, **own)
        return
    if len(set(classes)) == 1:
        compare("TreeEnsembleClassifier", MISSING, 2, **own)
        return
    proto = build("TreeEnsembleClassifier", MISSING, 2, **own)
    outputs = import_model(proto.SerializeToString()).outputs
    label, scores = evaluate([tensor.node for tensor in outputs.values()], {"x": MISSING})
    session = onnxruntime.InferenceSession(proto.SerializeToString())
    np.testing.assert_allclose(scores, session.run(["z"], {"x": MISSING})[0], rtol=1e-4, atol=1e-5)
    plain = build("TreeEnsembleClassifier", MISSING, 2, **{**own, "post_transform": "NONE"})
    summed = onnxruntime.InferenceSession(plain.SerializeToString()).run(["z"], {"x": MISSING})[0]
    np.testing.assert_array_equal(label, 7 + np.argmax(summed, 1))


@pytest.mark.parametrize("aggregate", ["SUM", "AVERAGE", "MIN", "MAX"])
@pytest.mark.parametrize("base", [[], [0.5]])
def test_regressing_trees(aggregate: str, base: list[float]) -> None:
    weights = np.random.default_rng(3).normal(size=12).tolist()
    own = forest("target", weights, [0] * 12, 3)
    extra = {"base_values": base} if base else {}
    own = {**own, **extra, "aggregate_function": aggregate}
    compare("TreeEnsembleRegressor", MISSING, n_targets=1, **own)
    own["target_ids"] = [0, 1] * 6
    if not base and aggregate in ("SUM", "AVERAGE"):
        compare("TreeEnsembleRegressor", MISSING, n_targets=2, **own)


def test_trees_of_doubles() -> None:
    """The features are doubles, the results floats: 0.1 and the float next to it differ."""
    x = np.array([[0.1, 0, 0], [np.float32(0.1), 0, 0], [0.3, 0, 0]])
    own = forest("target", [1.5, -2.0, 0.25, 4.0], [0] * 4, 3)
    own["nodes_values"] = [0.1, 0.0, 0.0] * 2
    for base in ([], [0.5]):
        extra = {"base_values": base} if base else {}
        compare("TreeEnsembleRegressor", x, n_targets=1, **own, **extra)


KERNELS = ("LINEAR", "RBF", "POLY", "SIGMOID")


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("classes", [2, 3, 4])
@pytest.mark.parametrize("likely", [False, True])
def test_support_vectors(classes: int, kernel: str, likely: bool) -> None:
    rng = np.random.default_rng(classes)
    counts = list(range(2, 2 + classes))
    total, pairs = sum(counts), classes * (classes - 1) // 2
    own = {
        "classlabels_ints": list(range(classes)),
        "vectors_per_class": counts,
        "support_vectors": rng.normal(size=total * 3).tolist(),
        "coefficients": rng.normal(size=(classes - 1) * total).tolist(),
        "rho": rng.normal(size=pairs).tolist(),
        "kernel_type": kernel,
        "kernel_params": [0.3, 0.2, 2.0],
    }
    if likely:
        own |= {"prob_a": (-rng.uniform(0.5, 1.5, pairs)).tolist(), "prob_b": [0.1] * pairs}
    compare("SVMClassifier", X, 2, **own)
    regressor = {name: own[name] for name in ("kernel_type", "kernel_params", "support_vectors")}
    regressor |= {"coefficients": own["coefficients"][:total], "rho": [0.25]}
    compare("SVMRegressor", X, n_supports=total, **regressor)
    compare("SVMRegressor", X, n_supports=total, one_class=1, **regressor)


@pytest.mark.parametrize("kind", ["float32", "float64", "int32", "int64"])
def test_features(kind: str) -> None:
    x = (X * 4).astype(kind)
    compare("Scaler", x, offset=[1.0, 2.0, 3.0], scale=[0.5, 2.0, 4.0])
    compare("Scaler", x[0], offset=[1.0], scale=[2.0])
    for norm in ("L1", "L2", "MAX"):
        rows = np.concatenate([np.abs(x) + 1, np.zeros((1, 3), kind)]) if norm == "MAX" else x
        compare("Normalizer", rows.astype(kind), norm=norm)
    if kind != "int32":  # which onnxruntime does not take
        compare("OneHotEncoder", x, cats_int64s=[-2, 0, 3], zeros=1)
    if kind in ("float32", "int64"):
        name = "float" if kind == "float32" else "int64"
        values = {f"imputed_value_{name}s": [7, 8, 9] if name == "int64" else [7.0, 8.0, 9.0]}
        proto = build("Imputer", x, 1, **values, **{f"replaced_value_{name}": x[0, 0].item()})
        proto.graph.output[0].type.Clear()
        got = evaluate([import_model(proto.SerializeToString()).outputs["y"].node], {"x": x})[0]
        wanted = np.where(x == x[0, 0], np.array([7, 8, 9], kind), x)
        np.testing.assert_array_equal(got, wanted)


def test_what_is_damaged_is_refused() -> None:
    own = forest("class", [0.1] * 4, [0] * 4, 3)
    labels = {"classlabels_int64s": [0, 1]}
    for damage, because in (
        ({"nodes_truenodeids": [0] * 6}, "root|cycle"),
        ({"nodes_falsenodeids": [9] * 6}, "a branch to node 9"),
        ({"nodes_featureids": [3] * 6}, "feature 3"),
        ({"class_ids": [2] * 4}, "class 2 of 2"),
        ({"class_nodeids": [0] * 4}, "a weight of node 0"),
        ({"nodes_nodeids": [0] * 6}, "one number"),
        ({"nodes_values": [0.0]}, "different lengths"),
        ({"post_transform": "CUBE"}, "'CUBE'"),
    ):
        proto = build("TreeEnsembleClassifier", X, 2, **{**own, **labels, **damage})
        with pytest.raises(InputError, match=because):
            import_model(proto.SerializeToString())
    for op, attributes, because in (
        ("Scaler", {"offset": [1.0, 2.0]}, "2 values for 3 features"),
        ("Normalizer", {"norm": "L3"}, "'L3'"),
        ("LinearRegressor", {"coefficients": [1.0]}, "1 coefficients"),
        ("Imputer", {"imputed_value_floats": [1.0, 2.0]}, "3 features"),
        ("OneHotEncoder", {"cats_strings": [b"a"]}, "texts"),
        ("SVMRegressor", {"n_supports": 2, "support_vectors": [1.0]}, "1 numbers"),
    ):
        with pytest.raises(InputError, match=because):
            import_model(build(op, X, 1, **attributes).SerializeToString())
