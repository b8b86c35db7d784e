"""Operators that onnxruntime's optimizer makes of several: com.microsoft, and two of ai.onnx."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from tinyedge.core import dtype as dt
from tinyedge.core.ir.uop import UOp
from tinyedge.core.tensor import activations, mathematics, normalization
from tinyedge.core.tensor.tensor import Tensor
from tinyedge.export.onnx.equality import show
from tinyedge.export.onnx.operators.convolution import (
    channels_first,
    channels_last,
    conv,
    conv_options,
)
from tinyedge.export.onnx.operators.indexing import wrapped
from tinyedge.export.onnx.operators.linear import gemm
from tinyedge.export.onnx.operators.randomness import IN_LOOP, dropped
from tinyedge.export.onnx.registry import Node, operator

DOMAIN = "com.microsoft"


# Activations that follow something else.

# Of each, what it does and its parameters where a node gives none, in the order of a list of them.
FOLLOWING: Mapping[str, tuple[Callable[..., Any], tuple[float, ...]]] = {
    "": (lambda x: x, ()),
    "Clip": (lambda x, low, high: x.clip(low, high), (-math.inf, math.inf)),
    "Elu": (activations.elu, (1.0,)),
    "HardSigmoid": (activations.hard_sigmoid, (0.2, 0.5)),
    "HardSwish": (activations.hard_swish, ()),
    "LeakyRelu": (activations.leaky_relu, (0.01,)),
    "ParametricSoftplus": (lambda x, alpha, beta: (x * beta).softplus() * alpha, (1.0, 1.0)),
    "Relu": (lambda x: x.relu(), ()),
    "ScaledTanh": (lambda x, alpha, beta: (x * beta).tanh() * alpha, (1.0, 1.0)),
    "Selu": (activations.selu, activations.SELU),
    "Sigmoid": (lambda x: x.sigmoid(), ()),
    "Softplus": (lambda x: x.softplus(), ()),
    "Softsign": (activations.softsign, ()),
    "Tanh": (lambda x: x.tanh(), ()),
    "ThresholdedRelu": (lambda x, alpha: (x > alpha).where(x, 0), (1.0,)),
}
ACTIVATIONS = f"activations {', '.join(sorted(FOLLOWING)[1:])}"


def activated(node: Node, x: Tensor) -> Tensor:
    """x after the activation that the attribute `activation` names, if it names one."""
    name = node.text("activation", "")
    if name not in FOLLOWING:
        raise node.unsupported(f"activation {name!r}", supported=ACTIVATIONS)
    function, usual = FOLLOWING[name]
    given = node.number_list("activation_params")
    if not given:
        letters = ("alpha", "gamma") if name == "Selu" else ("alpha", "beta")
        pairs = zip(letters, usual, strict=False)
        given = [node.number(f"activation_{letter}", value) for letter, value in pairs]
    if len(given) != len(usual):
        raise node.invalid(f"activation {name!r} with {len(given)} parameters")
    result: Tensor = function(x, *given)
    return result


# Products.


def _fused_product(node: Node, a: Tensor, b: Tensor) -> Tensor:
    alpha = node.number("alpha", 1.0)
    result = _turned(node, a, "A").matmul(_turned(node, b, "B"))
    return result if alpha == 1.0 else result * alpha


def _turned(node: Node, x: Tensor, which: str) -> Tensor:
    """An operand with its first axis moved before the last, then the last two exchanged, if the
    attributes say so.
    """
    if node.integer(f"transBatch{which}", 0) and x.ndim > 2:
        x = x.permute((*range(1, x.ndim - 1), 0, x.ndim - 1))
    return x.transpose() if node.integer(f"trans{which}", 0) and x.ndim > 1 else x


@operator("FusedMatMul", domain=DOMAIN)
@operator("TransposeMatMul", domain=DOMAIN)
def fused_matmul(node: Node, a: Tensor, b: Tensor) -> Tensor:
    return _fused_product(node, a, b)


@operator("FusedMatMulActivation", domain=DOMAIN, limits=ACTIVATIONS)
def fused_matmul_activation(node: Node, a: Tensor, b: Tensor) -> Tensor:
    result = _fused_product(node, a, b)
    return activated(node, result)


@operator("FusedGemm", domain=DOMAIN, limits=ACTIVATIONS)
def fused_gemm(node: Node, a: Tensor, b: Tensor, c: Tensor | None = None) -> Tensor:
    result = gemm(node, a, b, c)
    return activated(node, result)


# Convolutions.


@operator("FusedConv", domain=DOMAIN, limits=ACTIVATIONS)
def fused_conv(
    node: Node, x: Tensor, weight: Tensor, bias: Tensor | None = None, added: Tensor | None = None
) -> Tensor:
    result = x.conv(weight, bias, **conv_options(node, x, weight))
    result = result if added is None else result + added
    return activated(node, result)


@operator("NhwcConv", domain=DOMAIN)
def nhwc_conv(node: Node, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    return channels_last(conv(node, channels_first(x), weight, bias))


@operator("NhwcFusedConv", domain=DOMAIN, limits=ACTIVATIONS)
def nhwc_fused_conv(
    node: Node, x: Tensor, weight: Tensor, bias: Tensor | None = None, added: Tensor | None = None
) -> Tensor:
    moved = None if added is None else channels_first(added)
    return channels_last(fused_conv(node, channels_first(x), weight, bias, moved))


# Activations.


@operator("Gelu", domain=DOMAIN)
def gelu(node: Node, x: Tensor) -> Tensor:
    return mathematics.gelu(x)


@operator("BiasGelu", domain=DOMAIN)
def bias_gelu(node: Node, x: Tensor, bias: Tensor) -> Tensor:
    return gelu(node, x + bias)


@operator("FastGelu", domain=DOMAIN)
def fast_gelu(node: Node, x: Tensor, bias: Tensor | None = None) -> Tensor:
    return mathematics.gelu_by_tanh(x if bias is None else x + bias)


@operator("QuickGelu", domain=DOMAIN)
def quick_gelu(node: Node, x: Tensor) -> Tensor:
    return x * (x * node.number("alpha", 1.702)).sigmoid()


@operator("BiasSplitGelu", domain=DOMAIN)
def bias_split_gelu(node: Node, x: Tensor, bias: Tensor) -> Tensor:
    """The left half times the gelu of the right one."""
    total = x + bias
    width = total.shape[-1]
    if not isinstance(width, int) or width % 2:
        raise node.invalid(f"its last axis has {show(width)} elements")
    return total[..., : width // 2] * mathematics.gelu(total[..., width // 2 :])


@operator("BiasAdd", domain=DOMAIN)
def bias_add(node: Node, x: Tensor, bias: Tensor, skip: Tensor) -> Tensor:
    return x + bias + skip


@operator("BiasDropout", domain=DOMAIN, limits=f"training: {IN_LOOP}")
def bias_dropout(
    node: Node,
    x: Tensor,
    bias: Tensor,
    residual: Tensor | None = None,
    ratio: Tensor | None = None,
    training: Tensor | None = None,
) -> list[Tensor]:
    y, kept = dropped(node, x + bias, ratio, training)
    return [y if residual is None else y + residual, kept]


@operator("BiasSoftmax", domain=DOMAIN)
def bias_softmax(node: Node, x: Tensor, bias: Tensor) -> Tensor:
    """Softmax over all axes from `axis` on; the bias has axes of 1 where it is broadcast."""
    axis = node.axis(1, x.ndim)
    node.has("is_inner_broadcast")
    return (x + bias).softmax(tuple(range(axis, x.ndim)))


# Normalization.


def _floats(*values: Tensor | None) -> list[Any]:
    """Operands of float16 and float32 as float32, and results that are float32 beside float16."""
    return [x.cast(dt.float32) if x is not None and x.dtype is dt.float16 else x for x in values]


@operator("SkipLayerNormalization", domain=DOMAIN)
def skip_layer_normalization(
    node: Node,
    x: Tensor,
    skip: Tensor,
    scale: Tensor,
    shift: Tensor | None = None,
    bias: Tensor | None = None,
) -> list[Tensor]:
    """Results: the normalized sum, its mean, 1 / deviation, and the sum itself."""
    total = x + skip if bias is None else x + skip + bias
    epsilon = node.number("epsilon", 1e-12)
    result, mean, inverse = normalization.layer_norm(
        total, (total.ndim - 1,), scale, shift, epsilon
    )
    return [result, *_floats(mean, inverse), total]


@operator("SkipSimplifiedLayerNormalization", domain=DOMAIN)
def skip_rms_normalization(
    node: Node, x: Tensor, skip: Tensor, scale: Tensor, bias: Tensor | None = None
) -> list[Tensor]:
    total = x + skip if bias is None else x + skip + bias
    mean = (total * total).mean(-1, keepdims=True)
    inverse = 1.0 / (mean + node.number("epsilon", 1e-12)).sqrt()
    return [total * inverse * scale, *_floats(mean, inverse), total]


@operator("LayerNormalization", foreign=True)
def early_layer_normalization(
    node: Node, x: Tensor, scale: Tensor, shift: Tensor | None = None
) -> list[Tensor]:
    """As onnxruntime writes it in operator sets older than 17, which do not have it: x may be of
    another type than scale and result.
    """
    kind, stash = scale.dtype, node.dtype("stash_type", dt.float32)
    axis = node.axis(-1, x.ndim)
    x, scale, shift = _floats(x, scale, shift)
    epsilon = node.number("epsilon", 1e-5)
    result, mean, inverse = normalization.layer_norm(x, range(axis, x.ndim), scale, shift, epsilon)
    return [result.cast(kind), mean.cast(stash), inverse.cast(stash)]


@operator("SimplifiedLayerNormalization", foreign=True, limits="as onnxruntime writes it")
def simplified_layer_normalization(node: Node, x: Tensor, scale: Tensor) -> list[Tensor]:
    """x / sqrt(mean of squares), which RMSNormalization became; and 1 / that root."""
    kind, stash = scale.dtype, node.dtype("stash_type", dt.float32)
    axis = node.axis(-1, x.ndim)
    x, scale = _floats(x, scale)
    mean = (x * x).mean(tuple(range(axis, x.ndim)), keepdims=True)
    inverse = 1.0 / (mean + node.number("epsilon", 1e-5)).sqrt()
    return [(x * inverse * scale).cast(kind), inverse.cast(stash)]


@operator("GroupNorm", domain=DOMAIN)
def group_norm(node: Node, x: Tensor, scale: Tensor, shift: Tensor) -> Tensor:
    last = bool(node.integer("channels_last", 1))
    first = channels_first(x) if last else x
    result = _grouped(node, first, scale, shift)
    return channels_last(result) if last else result


def _grouped(node: Node, x: Tensor, scale: Tensor, shift: Tensor) -> Tensor:
    """Group normalization of channels first, then SiLU if `activation` says so."""
    groups, channels = node.integer("groups", 0), x.shape[1]
    if isinstance(channels, UOp) or groups < 1 or channels % groups:
        raise node.invalid(f"{show(channels)} channels in {groups} groups")
    kind = x.dtype
    x, scale, shift = _floats(x, scale, shift)
    result = normalization.group_norm(x, groups, scale, shift, node.number("epsilon", 1e-5))
    activation = node.integer("activation", 0)
    if activation not in (0, 1):
        raise node.unsupported(f"activation {activation}", supported="0 (none) and 1 (SiLU)")
    return (result.silu() if activation else result).cast(kind)


@operator("SkipGroupNorm", domain=DOMAIN)
def skip_group_norm(
    node: Node,
    x: Tensor,
    scale: Tensor,
    shift: Tensor,
    skip: Tensor,
    bias: Tensor | None = None,
) -> list[Tensor]:
    """Results: the normalized sum, and the sum itself."""
    last = bool(node.integer("channels_last", 1))
    ones = (1,) * (x.ndim - 2)
    if skip.ndim == 2:
        skip = skip.reshape((skip.shape[0], *ones, -1) if last else (*skip.shape, *ones))
    total = x + skip
    if bias is not None:
        total = total + (bias if last else bias.reshape((-1, *ones)))
    result = _grouped(node, channels_first(total) if last else total, scale, shift)
    return [channels_last(result) if last else result, total]


# Embeddings.


@operator("EmbedLayerNormalization", domain=DOMAIN)
def embed_layer_normalization(
    node: Node,
    words: Tensor,
    segments: Tensor | None,
    word_table: Tensor,
    place_table: Tensor,
    segment_table: Tensor | None,
    scale: Tensor,
    shift: Tensor,
    mask: Tensor | None = None,
    places: Tensor | None = None,
) -> list[Tensor]:
    """Results: the normalized sum of rows, the length of each sequence, and the sum itself."""
    node.has("mask_index_type")
    total = _rows(node, word_table, words)
    if places is None:
        length = words.shape[1]
        total = total + _rows(node, place_table, Tensor.arange(length))
    else:
        total = total + _rows(node, place_table, places)
    if segments is not None and segment_table is not None:
        total = total + _rows(node, segment_table, segments)
    wide, scale, shift = _floats(total, scale, shift)
    epsilon = node.number("epsilon", 1e-12)
    result, _, _ = normalization.layer_norm(wide, (wide.ndim - 1,), scale, shift, epsilon)
    return [result.cast(word_table.dtype), _lengths(words, mask), total]


def _rows(node: Node, table: Tensor, indices: Tensor) -> Tensor:
    return table.gather(0, wrapped(node, indices, table.shape[0]))


def _lengths(words: Tensor, mask: Tensor | None) -> Tensor:
    """The place of the first 0 of each row of a mask, or how many there are; 0 without a mask."""
    if mask is None:
        return Tensor.full(words.shape[:1], 0, dt.int32)
    place = Tensor.arange(mask.shape[1]).reshape((1, -1))
    end = Tensor.from_size(mask.shape[1], dt.int32)
    return mask.eq(0).where(place, end).min(1)


@operator("QEmbedLayerNormalization", domain=DOMAIN)
def quantized_embed_layer_normalization(
    node: Node,
    words: Tensor,
    segments: Tensor | None,
    word_table: Tensor,
    place_table: Tensor,
    segment_table: Tensor | None,
    scale: Tensor,
    shift: Tensor,
    mask: Tensor | None,
    *steps: Tensor | None,
) -> list[Tensor]:
    """As EmbedLayerNormalization of integers. steps: five scales, then five zero points, of the
    tables of words, places and segments, and of scale and shift.
    """
    if len(steps) != 10:
        raise node.invalid(f"it has {len(steps)} scales and zero points, not 10")

    def real(table: Tensor | None, number: int) -> Any:
        step, zero = steps[number], steps[number + 5]
        if table is None or step is None:
            return None
        whole = table.cast(dt.int32)
        whole = whole if zero is None else whole - zero.reshape(()).cast(dt.int32)
        return whole.cast(dt.float32) * step.reshape(())

    tables = [real(t, n) for n, t in enumerate((word_table, place_table, segment_table))]
    results = embed_layer_normalization(
        node, words, segments, tables[0], tables[1], tables[2], real(scale, 3), real(shift, 4), mask
    )
    return results[:2]
