"""Weights of 2, 4 and 8 bits in blocks, several in a byte: operators of com.microsoft."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tinyedge.core import dtype as dt
from tinyedge.core.tensor.tensor import Tensor
from tinyedge.export.onnx.equality import show
from tinyedge.export.onnx.operators.indexing import wrapped
from tinyedge.export.onnx.operators.microsoft import DOMAIN
from tinyedge.export.onnx.operators.movement import cut
from tinyedge.export.onnx.registry import Node, operator


def _unpacked(codes: Any, bits: int, length: int) -> Any:
    """Numbers of `bits` in bytes, the first in the lowest bits: `length` along the last axis."""
    shifts = np.arange(0, 8, bits, dtype=np.uint8)
    numbers = (codes[..., None] >> shifts) & np.uint8((1 << bits) - 1)
    return numbers.reshape(*codes.shape[:-1], -1)[..., :length]


def _numbers(node: Node, stored: Tensor, bits: int, rows: int, length: int) -> Tensor:
    """uint8 [rows, length]: the numbers that known bytes hold, row after row.

    They are made once for all nodes that use the bytes, so that they are at most 4 times the
    bytes of the model.
    """

    def made() -> Tensor:
        codes = node.known(stored)
        return node.constant(_unpacked(codes.reshape(rows, -1), bits, length))

    return node.context.once((stored.node, bits, rows, length), made)


def _checked_bits(node: Node) -> int:
    bits = node.integer("bits", 4)
    if bits not in (2, 4, 8):
        raise node.unsupported(f"bits is {bits}", supported="2, 4 and 8")
    return bits


@operator("MatMulNBits", domain=DOMAIN, limits="constant weights, 2, 4 or 8 bits, not prepacked")
def matmul_n_bits(
    node: Node,
    a: Tensor,
    b: Tensor,
    scales: Tensor,
    zeros: Tensor | None = None,
    group: Tensor | None = None,
    bias: Tensor | None = None,
) -> Tensor:
    """a @ weight' of numbers in blocks along their rows. b: [N, blocks, bytes of a block]; scales
    [N, blocks]; zeros the same, or packed as b is. accuracy_level lets onnxruntime round `a` to
    fewer bits; here products are of floats at any level.
    """
    bits, block = _checked_bits(node), node.integer("block_size", 0)
    rows, length = node.integer("N", 0), node.integer("K", 0)
    node.has("accuracy_level")
    if node.integer("weight_prepacked", 0) or group is not None:
        raise node.unsupported("weight_prepacked or g_idx", supported="weights as ONNX orders them")
    if block < 1 or rows < 1 or length < 1 or block * bits % 8:
        raise node.invalid(f"{rows} rows of {length} in blocks of {block}")
    blocks = -(-length // block)
    if node.constant_input(b, "B").size != rows * blocks * (block * bits // 8):
        raise node.invalid(f"B is {show(b)} for {rows} rows of {blocks} blocks")
    numbers = _numbers(node, b, bits, rows, blocks * block)
    whole = numbers.reshape((rows, blocks, block)).cast(dt.int32)
    center: Any = 1 << (bits - 1)
    if zeros is not None:
        center = _zero_points(node, zeros, bits, rows, blocks)
    kind = a.dtype
    wide = whole if isinstance(center, int) or not center.dtype.is_float else whole.cast(kind)
    weight = (wide - center).cast(kind) * scales.reshape((rows, blocks, 1)).cast(kind)
    weight = cut(weight.reshape((rows, blocks * block)), 1, 0, length)
    result = a.matmul(weight.transpose())
    return result if bias is None else result + bias


def _zero_points(node: Node, zeros: Tensor, bits: int, rows: int, blocks: int) -> Tensor:
    """[N, blocks, 1]: packed bytes, or floats one by one."""
    if zeros.dtype.is_float:
        return zeros.reshape((rows, blocks, 1))
    codes = node.constant_input(zeros, "zero_points")
    numbers = _unpacked(codes.reshape(rows, -1), bits, blocks)
    if numbers.shape != (rows, blocks):
        raise node.invalid(f"zero_points is {show(zeros)} for {rows} rows of {blocks} blocks")
    return node.constant(numbers[..., None]).cast(dt.int32)


@operator("GatherBlockQuantized", domain=DOMAIN, limits="constant data in bytes, 2, 4 or 8 bits")
def gather_block_quantized(
    node: Node, data: Tensor, indices: Tensor, scales: Tensor, zeros: Tensor | None = None
) -> Tensor:
    """Rows of numbers in blocks along `quantize_axis`; an index out of range gives zeros."""
    block = node.integer("block_size", 128)
    packed = data.dtype is dt.uint8
    bits = _checked_bits(node) if packed else node.integer("bits", 4) and 8
    codes = data
    if packed and bits < 8:
        raw = node.constant_input(data, "data")
        shape = (*raw.shape[:-1], raw.shape[-1] * 8 // bits)
        rows = math.prod(shape[:-1])
        codes = _numbers(node, data, bits, rows, shape[-1]).reshape(shape)
    axis = node.axis(1, codes.ndim, name="quantize_axis")
    along = node.axis(0, codes.ndim, name="gather_axis")
    length, blocks = codes.shape[axis], scales.shape[axis]
    if not isinstance(length, int) or not isinstance(blocks, int):
        raise node.invalid(f"its data is {show(data)}")
    if data.dtype.is_float and not block:
        block = length
    if block < 1 or blocks != -(-length // block):
        raise node.invalid(f"{blocks} scales for {length} numbers in blocks of {block}")

    def spread(parameter: Tensor) -> Tensor:
        wide = parameter.unsqueeze(axis + 1)
        wide = wide.expand([block if a == axis + 1 else s for a, s in enumerate(wide.shape)])
        return cut(wide.flatten(axis, axis + 2), axis, 0, length)

    whole = codes.cast(scales.dtype if data.dtype.is_float else dt.int32)
    if zeros is not None:
        points = zeros
        if packed and bits < 8:
            raw = node.constant_input(zeros, "zero_points")
            last = blocks if axis == codes.ndim - 1 else codes.shape[-1]
            assert isinstance(last, int)
            points = node.constant(_unpacked(raw, bits, last))
        whole = whole - spread(points.cast(dt.int32))
    elif packed:
        whole = whole - (1 << (bits - 1))
    return _gathered(node, whole.cast(scales.dtype) * spread(scales), along, indices)


def _gathered(node: Node, table: Tensor, axis: int, indices: Tensor) -> Tensor:
    return table.gather(axis, wrapped(node, indices, table.shape[axis]))


# What the codes of 4 bits of bitsandbytes stand for, before the scale of their block: FP4 are small
# floats of three bits and a sign, NF4 quantiles of the normal distribution.
FP4 = [0.0, 0.005208333, 0.66666667, 1.0, 0.33333333, 0.5, 0.16666667, 0.25]
NF4 = [
    *(-1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453),
    *(-0.28444138169288635, -0.18477343022823334, -0.09105003625154495, 0.0),
    *(0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224),
    *(0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0),
]
TABLES = ([*FP4, *(-value for value in FP4)], NF4)


@operator("MatMulBnb4", domain=DOMAIN, limits="constant weights")
def matmul_bnb4(node: Node, a: Tensor, b: Tensor, scales: Tensor) -> Tensor:
    """a @ weight' of [N, K] numbers of 4 bits in blocks along all of them, the first of a byte in
    its high bits; scales: of the blocks.
    """
    rows, length = node.integer("N", 0), node.integer("K", 0)
    block, kind = node.integer("block_size", 0), node.integer("quant_type", 0)
    node.has("training_mode")
    if min(rows, length, block) < 1 or kind not in (0, 1):
        raise node.invalid(f"{rows} rows of {length} in blocks of {block}, quant_type {kind}")
    codes = node.constant_input(b, "B").reshape(-1)
    count = rows * length
    blocks = -(-count // block)
    if codes.size != (count + 1) // 2 or scales.size != blocks:
        raise node.invalid(f"B is {show(b)} and absmax {show(scales)} for {count} numbers")
    node.check_table(blocks * block)
    numbers = np.stack([codes >> 4, codes & 15], 1).reshape(-1)[:count]
    padded = np.pad(numbers, (0, blocks * block - count)).astype(np.uint8)
    table = node.constant(np.array(TABLES[kind], np.float32)).cast(scales.dtype)
    values = table.gather(0, node.constant(padded.reshape(blocks, block)))
    flat = (values * scales.reshape((-1, 1))).reshape((blocks * block,))
    weight = flat[:count].reshape((rows, length)).cast(a.dtype)
    return a.matmul(weight.transpose() if node.integer("transB", 1) else weight)
