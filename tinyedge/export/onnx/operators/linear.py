"""Matrix products."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from tinyedge.core import dtype as dt
from tinyedge.core.tensor import contraction
from tinyedge.core.tensor.tensor import Tensor
from tinyedge.export.onnx.equality import show
from tinyedge.export.onnx.operators.folding import remember
from tinyedge.export.onnx.registry import Node, operator


@operator("MatMul")
def matmul(node: Node, a: Tensor, b: Tensor) -> Tensor:
    return a.matmul(b)


@operator("Gemm")
def gemm(node: Node, a: Tensor, b: Tensor, c: Tensor | None = None) -> Tensor:
    """alpha * A' @ B' + beta * C."""
    alpha, beta = node.number("alpha", 1.0), node.number("beta", 1.0)
    if a.ndim != 2 or b.ndim != 2:
        raise node.invalid(f"its operands have {a.ndim} and {b.ndim} axes, not 2")
    left = a.transpose() if node.integer("transA", 0) else a
    right = b.transpose() if node.integer("transB", 0) else b
    weight = node.known(b)
    if weight is not None and weight.dtype.kind == "f":
        filters = 0 if node.integer("transB", 0) else 1
        channels = weight.shape[filters]
        bias = None if c is None else node.known(c)
        if c is None or (bias is not None and bias.size in (1, channels) and bias.ndim <= 1):
            return _constant_gemm(node, left, b, weight, c, bias, filters, alpha, beta)
    result = left.matmul(right)
    if alpha != 1.0:
        result = result * _scalar(result, alpha)
    if c is None or beta == 0.0:
        return result
    return result + (c if beta == 1.0 else c * _scalar(c, beta)).broadcast_to(result.shape)


def _scalar(x: Tensor, value: float) -> float | int:
    return value if x.dtype.is_float else int(value)


def _constant_gemm(
    node: Node,
    left: Tensor,
    b: Tensor,
    weight: Any,
    c: Tensor | None,
    bias: Any,
    filters: int,
    alpha: float,
    beta: float,
) -> Tensor:
    """A product with known weights: alpha and beta go into them, and so may what follows."""
    if alpha != 1.0:
        weight = (weight.astype(np.float64) * alpha).astype(weight.dtype)
        b = node.constant(weight)
    if c is not None and beta != 1.0:
        bias = (bias.astype(np.float64) * beta).astype(weight.dtype)
        c = node.constant(bias)

    def product(matrix: Tensor, shift: Tensor | None) -> Tensor:
        result = left.matmul(matrix.transpose() if filters == 0 else matrix)
        return result if shift is None else result + shift

    def make(matrix: Any, shift: Any) -> Tensor:
        return product(node.constant(matrix), node.constant(shift))

    start = None if c is None else np.broadcast_to(bias.reshape(-1), weight.shape[filters])
    return remember(node, product(b, c), make, weight, start, filters=filters, channel=1)


@operator("Einsum")
def einsum(node: Node, *operands: Tensor) -> Tensor:
    return contraction.einsum(node.text("equation", ""), operands)


@operator("MatMulInteger")
def matmul_integer(
    node: Node,
    a: Tensor,
    b: Tensor,
    a_zero: Tensor | None = None,
    b_zero: Tensor | None = None,
) -> Tensor:
    left, right = a.cast(dt.int32), b.cast(dt.int32)
    if a_zero is not None:
        zero = a_zero.cast(dt.int32)
        left = left - (zero.unsqueeze(1) if zero.ndim == 1 and zero.shape[0] != 1 else zero)
    if b_zero is not None:
        right = right - b_zero.cast(dt.int32)
    return left.matmul(right)


@operator("Det", limits="matrices of up to 5 rows")
def determinant(node: Node, x: Tensor) -> Tensor:
    """By minors along the first row."""
    size = x.shape[-1]
    if x.ndim < 2 or size != x.shape[-2] or not isinstance(size, int):
        raise node.invalid(f"the determinant of {show(x)}")
    if not 1 <= size <= 5:
        raise node.unsupported(f"a matrix of {size} rows", supported="1 to 5 rows")
    minors: dict[tuple[int, ...], Tensor] = {}
    for row in range(size - 1, -1, -1):
        fresh: dict[tuple[int, ...], Tensor] = {}
        for columns in itertools.combinations(range(size), size - row):
            total: Tensor | None = None
            for position, column in enumerate(columns):
                rest = columns[:position] + columns[position + 1 :]
                term = x[..., row, column]
                term = term * minors[rest] if rest else term
                term = -term if position % 2 else term
                total = term if total is None else total + term
            assert total is not None
            fresh[columns] = total
        minors = fresh
    return minors[tuple(range(size))]
