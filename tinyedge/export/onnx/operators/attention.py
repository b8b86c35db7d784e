"""Attention of com.microsoft: one node for projections, heads, masks and what came before."""

from __future__ import annotations

import math

import numpy as np

from tinyedge.core import dtype as dt
from tinyedge.core.ir.shapes import product
from tinyedge.core.ir.uop import Size
from tinyedge.core.tensor.tensor import Tensor
from tinyedge.export.onnx.equality import show
from tinyedge.export.onnx.operators.indexing import wrapped
from tinyedge.export.onnx.operators.microsoft import DOMAIN
from tinyedge.export.onnx.operators.quantized_microsoft import matmul_integer_to_float
from tinyedge.export.onnx.registry import Node, operator

SHARED = "not past and present in one buffer"


def _heads(node: Node, x: Tensor, heads: int) -> Tensor:
    """[B, S, C] as [B, heads, S, C / heads]."""
    width = x.shape[-1]
    if x.ndim != 3 or heads < 1 or not isinstance(width, int) or width % heads:
        raise node.invalid(f"{show(x)} in {heads} heads")
    return x.reshape((x.shape[0], x.shape[1], heads, width // heads)).permute((0, 2, 1, 3))


def _attend(
    node: Node,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None,
    added: Tensor | None,
) -> Tensor:
    """softmax(query @ key' * scale + masks) @ value, heads side by side: [B, S, heads * V].

    query: [B, heads, S, H]; key, value: [B, heads, T, ..]. added: to the scores.
    """
    usual = 1.0 / math.sqrt(query.shape[3]) if isinstance(query.shape[3], int) else 1.0
    scale = node.number("scale", 0.0) or usual
    scores = query.matmul(key.transpose()) * scale
    allowed = None if mask is None else _allowed(node, mask, scores)
    if allowed is not None:
        lowered = node.number("mask_filter_value", -10000.0)
        scores = scores + allowed.where(0.0, Tensor.full((), lowered, scores.dtype))
    if added is not None:
        scores = scores + added
    if node.integer("unidirectional", 0):
        lowest = float(np.finfo(scores.dtype.numpy).min)
        scores = _causal(scores).where(scores, lowest)
    mixed = scores.softmax(-1).matmul(value).permute((0, 2, 1, 3))
    return mixed.reshape((mixed.shape[0], mixed.shape[1], product(mixed.shape[2:])))


def _causal(scores: Tensor) -> Tensor:
    """Whether a place is not after the one that looks: [S, T]; the last S of T places look."""
    length, total = scores.shape[2:]
    row = Tensor.arange(length).reshape((-1, 1))
    row = row + Tensor.from_size(total - length, dt.int32)
    return Tensor.arange(total).reshape((1, -1)) <= row


def _allowed(node: Node, mask: Tensor, scores: Tensor) -> Tensor | None:
    """Which places may be looked at, broadcastable to scores [B, heads, S, T], by any form of mask.

    A mask of [B], [2 * B] or [3 * B + 2] has the ends of sequences (then their starts, or more that
    follows from the ends); [B, T], [B, S, T] and [B, 1, longest, longest] have a 0 for no.
    """
    batch, _, length, total = scores.shape
    if mask.ndim == 1:
        place = Tensor.arange(total).reshape((1, -1))
        ends = mask[:batch] if isinstance(batch, int) else mask
        inside = place < ends.cast(dt.int32).reshape((-1, 1))
        if isinstance(batch, int) and mask.shape[0] == 2 * batch:
            starts = mask[batch:].cast(dt.int32).reshape((-1, 1))
            inside = inside & (place >= starts)
        elif isinstance(batch, int) and mask.shape[0] not in (batch, 3 * batch + 2):
            raise node.invalid(f"its mask is {show(mask)} for {batch} sequences")
        return inside.unsqueeze(1).unsqueeze(1)
    if mask.ndim == 2:
        return (mask > 0).unsqueeze(1).unsqueeze(1)
    if mask.ndim == 3:
        return (mask > 0).unsqueeze(1)
    if mask.ndim == 4:
        before: Size = total - length
        return mask[:, :, before:total, :total] > 0
    raise node.invalid(f"its mask has {mask.ndim} axes")


def _continued(x: Tensor, past: Tensor | None) -> Tensor:
    """[B, heads, S, H] after what came before it."""
    return x if past is None else Tensor.concat([past, x], 2)


def _refuse_shared(node: Node, *operands: Tensor | None) -> None:
    """Raise UnsupportedOp where past and present share a buffer, or places are turned inside."""
    if any(operand is not None for operand in operands) or node.integer(
        "past_present_share_buffer", 0
    ):
        raise node.unsupported(
            "its past and present share a buffer",
            supported="a past of its own size",
            next="export the model without past_present_share_buffer",
        )
    node.has("rotary_embedding_dim")
    if node.integer("do_rotary", 0):
        raise node.unsupported("do_rotary is 1", supported="RotaryEmbedding nodes before it")


def _self_attention(
    node: Node, projected: Tensor, mask: Tensor | None, past: Tensor | None, added: Tensor | None
) -> list[Tensor]:
    """Attention of query, key and value side by side in [B, S, ..]; and what a next step needs."""
    heads, width = node.integer("num_heads", 0), projected.shape[-1]
    if not isinstance(width, int):
        raise node.invalid(f"its projection is {show(projected)}")
    sizes = node.integer_list("qkv_hidden_sizes") or [width // 3] * 3
    if len(sizes) != 3 or sum(sizes) != width or min(sizes) < 1:
        raise node.invalid(f"query, key and value of {sizes} in {width} columns")
    first, second = sizes[0], sizes[0] + sizes[1]
    query = _heads(node, projected[..., :first], heads)
    key = _heads(node, projected[..., first:second], heads)
    value = _heads(node, projected[..., second:], heads)
    if past is not None:
        key, value = _continued(key, past[0]), _continued(value, past[1])
    result = _attend(node, query, key, value, mask, added)
    if len(node.outputs) < 2:
        return [result]
    return [result, Tensor.stack([key, value])]


@operator("Attention", domain=DOMAIN, limits=SHARED)
def attention(
    node: Node,
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    mask: Tensor | None = None,
    past: Tensor | None = None,
    added: Tensor | None = None,
    past_length: Tensor | None = None,
) -> list[Tensor]:
    """weight: [C, query + key + value]. past, and the second result: [2, B, heads, T, H]."""
    _refuse_shared(node, past_length)
    projected = x.matmul(weight)
    projected = projected if bias is None else projected + bias
    return _self_attention(node, projected, mask, past, added)


@operator("QAttention", domain=DOMAIN, limits=SHARED)
def quantized_attention(
    node: Node,
    x: Tensor,
    weight: Tensor,
    bias: Tensor,
    x_scale: Tensor,
    weight_scale: Tensor,
    mask: Tensor | None = None,
    x_zero: Tensor | None = None,
    weight_zero: Tensor | None = None,
    past: Tensor | None = None,
) -> list[Tensor]:
    """As Attention; the projection is a product of integers."""
    _refuse_shared(node)
    projected = matmul_integer_to_float(
        node, x, weight, x_scale, weight_scale, x_zero, weight_zero, bias
    )
    return _self_attention(node, projected, mask, past, None)


@operator("MultiHeadAttention", domain=DOMAIN, limits=SHARED)
def multi_head_attention(
    node: Node,
    query: Tensor,
    key: Tensor | None = None,
    value: Tensor | None = None,
    bias: Tensor | None = None,
    mask: Tensor | None = None,
    added: Tensor | None = None,
    past_key: Tensor | None = None,
    past_value: Tensor | None = None,
    past_length: Tensor | None = None,
    indirection: Tensor | None = None,
) -> list[Tensor]:
    """query [B, S, C] or all three as [B, S, heads, 3, H]; key [B, T, C], key and value as
    [B, T, heads, 2, H], or both as [B, heads, T, H]. Results: rows, and all keys and values.
    """
    _refuse_shared(node, past_length, indirection)
    heads = node.integer("num_heads", 0)
    if query.ndim == 5:
        parts = [query[:, :, :, n].flatten(2) for n in range(3)]
    elif key is not None and key.ndim == 5:
        parts = [query, *(key[:, :, :, n].flatten(2) for n in range(2))]
    elif key is not None and value is not None:
        parts = [query, key, value]
    else:
        raise node.invalid("it has neither a key and a value nor all in one operand")
    if bias is not None:
        parts = _biased(node, parts, bias)
    ready = [part if part.ndim == 4 else _heads(node, part, heads) for part in parts]
    keys, values = _continued(ready[1], past_key), _continued(ready[2], past_value)
    return [_attend(node, ready[0], keys, values, mask, added), keys, values]


def _biased(node: Node, parts: list[Tensor], bias: Tensor) -> list[Tensor]:
    """Each part plus its share of the bias; keys and values in heads already have theirs."""
    result, start = [], 0
    for part in parts:
        if part.ndim == 4:
            result.append(part)
            continue
        width = part.shape[-1]
        if not isinstance(width, int):
            raise node.invalid(f"its operand is {show(part)}")
        result.append(part + bias[start : start + width])
        start += width
    return result


@operator("RotaryEmbedding", domain=DOMAIN, limits="not is_packed_batching, scale")
def rotary_embedding(
    node: Node, x: Tensor, places: Tensor, cosines: Tensor, sines: Tensor
) -> Tensor:
    """Pairs of elements turned by the angles of their places. x: [B, S, C] or [B, heads, S, H];
    places: [1], where the first row is, or [B, S]; cosines and sines: [longest, pairs].
    """
    if node.integer("is_packed_batching", 0) or node.number("scale", 1.0) != 1.0:
        raise node.unsupported("is_packed_batching or scale", supported="their usual values")
    pairs, given = cosines.shape[1], node.integer("num_heads", 0)
    node.has("rotary_embedding_dim")
    if not isinstance(pairs, int) or not isinstance(x.shape[-1], int):
        raise node.invalid(f"{show(x)} is turned by {show(cosines)}")
    heads = x
    if x.ndim == 3:
        heads = _heads(node, x, given or x.shape[-1] // (2 * pairs))
    size, turned = heads.shape[-1], 2 * pairs
    if not isinstance(size, int) or turned > size:
        raise node.invalid(f"{turned} elements of {show(size)} are turned")
    if places.ndim == 1:
        places = Tensor.arange(heads.shape[2], places.dtype).unsqueeze(0) + places
    at = wrapped(node, places, cosines.shape[0])
    cosine, sine = (table.gather(0, at).unsqueeze(1) for table in (cosines, sines))
    rows = heads[..., :turned]
    if node.integer("interleaved", 0):
        split = rows.reshape((*rows.shape[:-1], pairs, 2))
        first, second = split[..., 0], split[..., 1]
        both = Tensor.stack(
            [first * cosine - second * sine, first * sine + second * cosine], rows.ndim
        )
        result = both.reshape(rows.shape)
    else:
        first, second = rows[..., :pairs], rows[..., pairs:]
        result = Tensor.concat(
            [first * cosine - second * sine, first * sine + second * cosine], rows.ndim - 1
        )
    if turned < size:
        result = Tensor.concat([result, heads[..., turned:]], rows.ndim - 1)
    return result if x.ndim == 4 else result.permute((0, 2, 1, 3)).reshape(x.shape)
