"""skl2onnx: classifiers, regressors and transformers of scikit-learn, and pipelines of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from skl2onnx import to_onnx
from sklearn import (
    cluster,
    decomposition,
    discriminant_analysis,
    ensemble,
    feature_selection,
    impute,
    linear_model,
    naive_bayes,
    neighbors,
    neural_network,
    preprocessing,
    svm,
    tree,
)
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import ColumnTransformer
from sklearn.datasets import make_classification, make_regression
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.multiclass import OneVsRestClassifier
from sklearn.pipeline import make_pipeline

from tests.exporters.recipes import Array, Recipe, main

ROWS = 200
CLASSES = make_classification(ROWS, 6, n_informative=4, n_classes=3, random_state=0)
X, Y = CLASSES[0].astype(np.float32), CLASSES[1]
TARGETS = make_regression(ROWS, 6, random_state=0)
XR, YR = (part.astype(np.float32) for part in TARGETS)
GAPS = np.where(np.random.default_rng(0).random(X.shape) < 0.1, np.nan, X).astype(np.float32)
CODES = np.random.default_rng(1).integers(0, 4, (ROWS, 3))
TEXTS = np.array(["ant", "bee", "cat"])[Y]

CLASSIFIERS: Mapping[str, Any] = {
    "logistic": linear_model.LogisticRegression(),
    "scaled_logistic": make_pipeline(
        preprocessing.StandardScaler(), linear_model.LogisticRegression()
    ),
    "sgd": linear_model.SGDClassifier(loss="log_loss", random_state=0),
    "ridge": linear_model.RidgeClassifier(),
    "perceptron": linear_model.Perceptron(random_state=0),
    "tree": tree.DecisionTreeClassifier(max_depth=5, random_state=0),
    "forest": ensemble.RandomForestClassifier(10, max_depth=5, random_state=0),
    "extra_trees": ensemble.ExtraTreesClassifier(10, max_depth=4, random_state=0),
    "boosting": ensemble.GradientBoostingClassifier(n_estimators=10, random_state=0),
    "ada": ensemble.AdaBoostClassifier(n_estimators=5, random_state=0),
    "bagging": ensemble.BaggingClassifier(n_estimators=3, random_state=0),
    "stacking": ensemble.StackingClassifier(
        [
            ("logistic", linear_model.LogisticRegression()),
            ("tree", tree.DecisionTreeClassifier(max_depth=3, random_state=0)),
        ]
    ),
    "svc": svm.SVC(),
    "svc_probability": svm.SVC(probability=True, random_state=0),
    "svc_linear": svm.SVC(kernel="linear"),
    "svc_poly": svm.SVC(kernel="poly", degree=2, probability=True, random_state=0),
    "svc_sigmoid": svm.SVC(kernel="sigmoid"),
    "nu_svc": svm.NuSVC(nu=0.2, probability=True, random_state=0),
    "perceptrons": neural_network.MLPClassifier((8,), max_iter=50, random_state=0),
    "gaussian_bayes": naive_bayes.GaussianNB(),
    "bernoulli_bayes": naive_bayes.BernoulliNB(),
    "neighbors": neighbors.KNeighborsClassifier(3),
    "discriminant": discriminant_analysis.LinearDiscriminantAnalysis(),
    "one_against_rest": OneVsRestClassifier(linear_model.LogisticRegression()),
    "calibrated": CalibratedClassifierCV(linear_model.LogisticRegression(), cv=3),
    "columns": make_pipeline(
        ColumnTransformer(
            [
                ("standard", preprocessing.StandardScaler(), [0, 1, 2]),
                ("range", preprocessing.MinMaxScaler(), [3, 4]),
            ],
            remainder="passthrough",
        ),
        linear_model.LogisticRegression(),
    ),
}
REGRESSORS: Mapping[str, Any] = {
    "linear": linear_model.LinearRegression(),
    "lasso": linear_model.Lasso(),
    "tweedie": linear_model.TweedieRegressor(),
    "svr": svm.SVR(),
    "svr_poly": svm.SVR(kernel="poly", degree=2),
    "nu_svr": svm.NuSVR(),
    "tree": tree.DecisionTreeRegressor(max_depth=5, random_state=0),
    "forest": ensemble.RandomForestRegressor(10, max_depth=5, random_state=0),
    "boosting": ensemble.GradientBoostingRegressor(n_estimators=10, random_state=0),
    "ada": ensemble.AdaBoostRegressor(n_estimators=5, random_state=0),
    "perceptrons": neural_network.MLPRegressor(
        hidden_layer_sizes=(8,), max_iter=50, random_state=0
    ),
    "neighbors": neighbors.KNeighborsRegressor(3),
    "gaussian_process": GaussianProcessRegressor(),
}
TRANSFORMERS: Mapping[str, tuple[Any, Array]] = {
    "standard": (preprocessing.StandardScaler(), X),
    "range": (preprocessing.MinMaxScaler(), X),
    "magnitude": (preprocessing.MaxAbsScaler(), X),
    "robust": (preprocessing.RobustScaler(), X),
    "normal_l1": (preprocessing.Normalizer("l1"), X),
    "normal_l2": (preprocessing.Normalizer("l2"), X),
    "normal_max": (preprocessing.Normalizer("max"), X),
    "binary": (preprocessing.Binarizer(threshold=0.2), X),
    "polynomial": (preprocessing.PolynomialFeatures(2), X),
    "power": (preprocessing.PowerTransformer(), X),
    "quantile": (preprocessing.QuantileTransformer(n_quantiles=20), X),
    "bins": (preprocessing.KBinsDiscretizer(4, encode="onehot-dense"), X),
    "bin_numbers": (preprocessing.KBinsDiscretizer(4, encode="ordinal"), X),
    "one_hot": (
        preprocessing.OneHotEncoder(sparse_output=False, handle_unknown="ignore"),
        CODES,
    ),
    "ordinal": (preprocessing.OrdinalEncoder(), CODES),
    "components": (decomposition.PCA(3), X),
    "singular_values": (decomposition.TruncatedSVD(3, random_state=0), X),
    "kernel_components": (decomposition.KernelPCA(3), X),
    "clusters": (cluster.KMeans(3, n_init=3, random_state=0), X),
    "best": (feature_selection.SelectKBest(k=3), X),
    "mean_of_gaps": (impute.SimpleImputer(), GAPS),
    "constant_of_gaps": (impute.SimpleImputer(strategy="constant", fill_value=3.0), GAPS),
}


def converted(model: Any, x: Array, y: Array, **options: Any) -> Callable[[Path], Any]:
    def write(path: Path) -> Mapping[str, Array]:
        fitted = model.fit(x, y)
        chosen = {id(fitted): options} if options else None
        made = to_onnx(fitted, x[:1], options=chosen)
        path.write_bytes(made.SerializeToString())
        return {made.graph.input[0].name: x[:40]}

    return write


def _recipes() -> Iterator[Recipe]:
    for name, model in CLASSIFIERS.items():
        for kind, labels in (("three", Y), ("two", np.minimum(Y, 1))):
            text = f"to_onnx of a classifier of {kind} classes: {model}"
            yield Recipe(f"class.{name}.{kind}", text, converted(model, X, labels))
    forest = CLASSIFIERS["forest"]
    for option in (False, "columns"):
        text = f"to_onnx with zipmap={option!r}: {forest}"
        yield Recipe(f"class.zipmap.{option}", text, converted(forest, X, Y, zipmap=option))
    for name in ("logistic", "forest"):
        text = f"to_onnx, labels that are texts: {CLASSIFIERS[name]}"
        yield Recipe(f"class.{name}.texts", text, converted(CLASSIFIERS[name], X, TEXTS))
    gaps = make_pipeline(impute.SimpleImputer(), preprocessing.StandardScaler(), forest)
    yield Recipe("class.gaps", f"to_onnx: {gaps}", converted(gaps, GAPS, Y))
    for name, model in REGRESSORS.items():
        yield Recipe(f"value.{name}", f"to_onnx: {model}", converted(model, XR, YR))
    for name in ("linear", "forest"):
        text = f"to_onnx, two targets: {REGRESSORS[name]}"
        two = np.stack([YR, YR * 2], 1)
        yield Recipe(f"value.{name}.two", text, converted(REGRESSORS[name], XR, two))
    for name, (model, x) in TRANSFORMERS.items():
        text = f"to_onnx: {model}".replace("\n", " ")
        yield Recipe(f"feature.{name}", text, converted(model, x, Y))


RECIPES = list(_recipes())

if __name__ == "__main__":
    main(RECIPES, ["onnx", "scikit-learn", "skl2onnx"])
