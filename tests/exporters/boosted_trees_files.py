"""onnxmltools: models of LightGBM and XGBoost."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import lightgbm
import numpy as np
import onnxmltools
import xgboost
from onnxmltools.convert.common.data_types import FloatTensorType

from tests.exporters.recipes import Array, Recipe, main
from tests.exporters.sklearn_files import GAPS, XR, YR, X, Y

BINARY = np.minimum(Y, 1)
INPUTS = [("input", FloatTensorType([None, X.shape[1]]))]


def converted(
    convert: Callable[..., Any], model: Any, x: Array, y: Array, **options: Any
) -> Callable[[Path], Any]:
    def write(path: Path) -> Mapping[str, Array]:
        fitted = model.fit(x, y)
        made = convert(fitted, initial_types=INPUTS, target_opset=15, **options)
        path.write_bytes(made.SerializeToString())
        return {"input": x[:40]}

    return write


def light(name: str, model: Any, x: Array, y: Array, **options: Any) -> Recipe:
    write = converted(onnxmltools.convert_lightgbm, model, x, y, **options)
    return Recipe(f"lightgbm.{name}", f"convert_lightgbm {options} of {model}", write)


def extreme(name: str, model: Any, x: Array, y: Array) -> Recipe:
    write = converted(onnxmltools.convert_xgboost, model, x, y)
    return Recipe(f"xgboost.{name}", f"convert_xgboost of {type(model).__name__}, {name}", write)


LIGHT = {"n_estimators": 8, "max_depth": 4, "verbose": -1}
EXTREME = {"n_estimators": 8, "max_depth": 4}
RECIPES = [
    light("three", lightgbm.LGBMClassifier(**LIGHT), X, Y),
    light("two", lightgbm.LGBMClassifier(**LIGHT), GAPS, BINARY, zipmap=False),
    light("value", lightgbm.LGBMRegressor(**LIGHT), XR, YR),
    light("poisson", lightgbm.LGBMRegressor(objective="poisson", **LIGHT), XR, np.abs(YR)),
    extreme("three", xgboost.XGBClassifier(**EXTREME), X, Y),
    extreme("two", xgboost.XGBClassifier(**EXTREME), GAPS, BINARY),
    extreme("value", xgboost.XGBRegressor(**EXTREME), XR, YR),
    extreme("poisson", xgboost.XGBRegressor(objective="count:poisson", **EXTREME), XR, np.abs(YR)),
    extreme("forest", xgboost.XGBRFClassifier(**EXTREME), X, Y),
]

if __name__ == "__main__":
    main(RECIPES, ["lightgbm", "onnx", "onnxmltools", "xgboost"])
