"""ai.onnx.ml: what is done to features that are numbers, before and after a model of them."""

from __future__ import annotations

from typing import Any

import numpy as np

from tinyedge.core import dtype as dt
from tinyedge.core.ir.uop import Size
from tinyedge.core.tensor.tensor import Tensor
from tinyedge.export.onnx.equality import show
from tinyedge.export.onnx.operators.indexing import wrapped
from tinyedge.export.onnx.operators.search import place_in
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
    wanted = dict(zip(keys.tolist(), values.tolist(), strict=True))
    known = np.asarray(sorted(key for key in wanted if key == key), keys.dtype)
    found = np.asarray([wanted[key] for key in known.tolist()], values.dtype)
    result: Tensor = node.constant(values.dtype.type(default)).broadcast_to(x.shape)
    nans = values[np.isnan(keys)] if x.dtype.is_float else values[:0]
    if len(nans):
        result = x.isnan().where(node.constant(nans[-1]), result)
    place = place_in(node, known, x)
    return (place >= 0).where(node.constant(found).gather(0, place), result)


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


def feature_rows(node: Node, x: Tensor) -> tuple[Tensor, int]:
    """x [N, F], or [F] as one row, in float32 or float64; and F, which must be fixed."""
    rows = x.unsqueeze(0) if x.ndim == 1 else x
    if rows.ndim != 2 or not isinstance(rows.shape[1], int):
        raise node.unsupported(f"its input is {show(x)}", supported="[N, F] with F fixed")
    return rows if x.dtype is dt.float64 else rows.cast(dt.float32), rows.shape[1]


def _per_feature(node: Node, name: str, length: Size) -> Any:
    """A list attribute of one number for all features, or of one each; None where it is missing."""
    values = node.number_list(name)
    if values is not None and len(values) not in (1, length):
        raise node.invalid(f"{name!r} has {len(values)} values for {_features(length)}")
    return None if values is None else np.asarray(values, np.float32)


def _features(length: Size) -> str:
    return f"{show((length,))[1:-1]} features"


@operator("Scaler", domain=DOMAIN)
def scaler(node: Node, x: Tensor) -> Tensor:
    """(x - offset) * scale along the last axis."""
    result = x.cast(dt.float32)
    length = x.shape[-1] if x.ndim else 1
    offset, scale = (_per_feature(node, name, length) for name in ("offset", "scale"))
    if offset is not None:
        result = result - node.constant(offset)
    return result if scale is None else result * node.constant(scale)


@operator("Normalizer", domain=DOMAIN)
def normalizer(node: Node, x: Tensor) -> Tensor:
    """x / norm along the last axis: the largest element, the sum of magnitudes or the Euclidean
    norm. A row whose norm is 0 stays as it is.
    """
    norm, values = node.text("norm", "MAX"), x.cast(dt.float32)
    if norm == "MAX":
        size = values.max(-1, keepdims=True)
    elif norm in ("L1", "L2"):
        size = values.norm(-1, keepdims=True, exponent=float(norm[1]))
    else:
        raise node.invalid(f"norm is {norm!r}")
    return values / size.eq(0).where(1.0, size)


@operator("Imputer", domain=DOMAIN)
def imputer(node: Node, x: Tensor) -> Tensor:
    """A number in place of another one, such as NaN, in each column."""
    kind = "floats" if x.dtype.is_float else "int64s"
    name = f"imputed_value_{kind}"
    length = x.shape[-1] if x.ndim else 1
    listed = node.integer_list(name) if kind == "int64s" else node.number_list(name)
    if not listed or len(listed) not in (1, length):
        raise node.invalid(f"{name!r} does not fit {_features(length)}")
    values = node.constant(np.asarray(listed, x.dtype.numpy))
    replaced = node.number("replaced_value_float", 0.0)
    integer = node.integer("replaced_value_int64", 0)
    if kind == "int64s":
        missing = x.eq(integer)
    else:
        missing = x.isnan() if np.isnan(replaced) else x.eq(replaced)
    return missing.where(values.broadcast_to(x.shape), x)


@operator("OneHotEncoder", domain=DOMAIN, limits="numbers; what is none of them gives zeros")
def one_hot_encoder(node: Node, x: Tensor) -> Tensor:
    """x [..] -> [.., categories]: 1 where the whole part of an element is the category."""
    categories = node.integer_list("cats_int64s")
    if categories is None:
        raise node.unsupported("its categories are texts", supported="cats_int64s")
    if not node.integer("zeros", 1):
        node.warn("an element that is no category gives zeros, where onnxruntime stops")
    listed = node.constant(np.asarray(categories, np.int64))
    return x.cast(dt.int64).unsqueeze(x.ndim).eq(listed).cast(dt.float32)


@operator("FeatureVectorizer", domain=DOMAIN)
def feature_vectorizer(node: Node, *parts: Tensor) -> Tensor:
    """Inputs [N, F] side by side, each cut or filled with zeros to its own number of columns."""
    widths = node.integer_list("inputdimensions") or [None] * len(parts)  # type: ignore[list-item]
    if len(widths) != len(parts):
        raise node.invalid(f"{len(widths)} inputdimensions for {len(parts)} inputs")
    columns = []
    for part, width in zip(parts, widths, strict=True):
        rows, own = feature_rows(node, part)
        wanted = own if width is None else width
        rows = rows.cast(dt.float32)[:, : min(own, wanted)]
        columns.append(rows.pad([(0, 0), (0, max(0, wanted - own))]))
    return Tensor.concat(columns, 1)


@operator("ZipMap", domain=DOMAIN, limits="a tensor in place of the maps")
def zip_map(node: Node, x: Tensor) -> Tensor:
    """The scores as they are: [N, classes], in the order of the labels."""
    labels = node.integer_list("classlabels_int64s") or node.text_list("classlabels_strings")
    node.warn(f"in place of maps from labels its result is a tensor, a column each for {labels}")
    return x
