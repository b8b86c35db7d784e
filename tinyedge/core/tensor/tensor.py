"""Tensor: a lazy array. Operations build a graph of primitives; nothing is computed yet.

Its operations on primitives lie in one class a file: base, movement, elementwise, memory and
reductions, each on top of the one before. What is composed of them are functions, in mathematics
and nn, of which those that are used most are methods here.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import FunctionType
from typing import Any

from tinyedge.core.ir.uop import Size
from tinyedge.core.tensor import mathematics, matrices, nn, pooling, resizing
from tinyedge.core.tensor.base import Axes, Sizes, computed, each, fixed, given, sizes_of
from tinyedge.core.tensor.drawn import Drawn


class Tensor(Drawn):
    """A lazy array over `node`, a graph of primitives. It never changes; `realize`, `numpy` and
    what else needs values compute it.

    Sizes in `shape` are ints, or index expressions where a size is symbolic. Elementwise operations
    broadcast as in numpy; both operands must have one dtype, except that Python scalars take the
    tensor's.
    """

    __slots__ = ()

    # Functions.

    @computed
    def sigmoid(self) -> Tensor:
        """1 / (1 + exp(-x)), without overflow at either end."""
        return mathematics.sigmoid(self)

    @computed
    def silu(self) -> Tensor:
        """x * sigmoid(x)."""
        return mathematics.silu(self)

    @computed
    def softplus(self) -> Tensor:
        """log(1 + exp(x)), without overflow; small values keep their digits."""
        return mathematics.softplus(self)

    @computed
    def erf(self) -> Tensor:
        """The error function."""
        return mathematics.erf(self)

    # Layers.

    @computed
    def softmax(self, axis: Axes = -1) -> Tensor:
        """exp(x - max) / sum(exp(x - max)) along an axis, or over several together."""
        return nn.softmax(self, axis)

    @computed
    def log_softmax(self, axis: Axes = -1) -> Tensor:
        """x - log(sum(exp(x))) along an axis, or over several together."""
        return nn.log_softmax(self, axis)

    @computed
    def log_sum_exp(self, axis: Axes = None, keepdims: bool = False) -> Tensor:
        """log(sum(exp(x)))."""
        return nn.log_sum_exp(self, axis, keepdims)

    logsumexp = log_sum_exp

    @computed
    def softmin(self, axis: Axes = -1) -> Tensor:
        """softmax(-x)."""
        return nn.softmax(-self, axis)

    @computed
    def matmul(self, other: Any) -> Tensor:
        """numpy's matmul: self's last axis with other's last but one; the rest broadcasts."""
        return nn.matmul(self, self._operand(other))

    __matmul__ = matmul
    dot = matmul

    def linear(self, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        """x @ weight + bias: the weight is [inputs, outputs], as in tinygrad."""
        result = self @ weight
        return result if bias is None else result + bias

    def __rmatmul__(self, other: Any) -> Tensor:
        left = self._operand(other)
        return left.matmul(self)

    @computed
    def conv(
        self,
        weight: Tensor,
        bias: Tensor | None = None,
        *,
        strides: Sequence[int] = (),
        pads: Sequence[tuple[int, int]] = (),
        dilations: Sequence[int] = (),
        groups: int = 1,
    ) -> Tensor:
        """Convolution (cross-correlation) of self [N, C, *S] with weight [M, C/groups, *K]."""
        return nn.conv(
            self,
            given(Tensor, weight, "conv"),
            None if bias is None else given(Tensor, bias, "conv"),
            strides=strides,
            pads=pads,
            dilations=dilations,
            groups=groups,
        )

    @computed
    def conv_transpose(
        self,
        weight: Tensor,
        bias: Tensor | None = None,
        *,
        strides: Sequence[int] = (),
        pads: Sequence[tuple[int, int]] = (),
        dilations: Sequence[int] = (),
        output_padding: Sequence[int] = (),
        groups: int = 1,
    ) -> Tensor:
        """The transpose of a convolution: self [N, C, *S], weight [C, M/groups, *K] -> [N, M, *O].

        O = (S-1)*stride + (K-1)*dilation + 1 + output_padding - pad_before - pad_after. The output
        is computed by stride phase: position q*stride + p takes taps p, p + stride, ... Phases that
        lack the last one of these multiply a zero by a zero, so that infinities reach no further.
        """
        return nn.conv_transpose(
            self,
            given(Tensor, weight, "conv_transpose"),
            None if bias is None else given(Tensor, bias, "conv_transpose"),
            strides=strides,
            pads=pads,
            dilations=dilations,
            output_padding=output_padding,
            groups=groups,
        )

    def conv2d(
        self,
        weight: Tensor,
        bias: Tensor | None = None,
        groups: int = 1,
        stride: Sizes = 1,
        dilation: Sizes = 1,
        padding: Sizes = 0,
    ) -> Tensor:
        """See `conv`: of any number of axes. padding: one number, or one or two for each axis, of
        which two begin with the last axis.
        """
        weight = given(Tensor, weight, "conv2d")
        axes = _spatial(self, weight, "conv2d")
        return self.conv(
            weight,
            bias,
            strides=each(stride, axes, "stride"),
            pads=nn.margins(padding, axes),
            dilations=each(dilation, axes, "dilation"),
            groups=groups,
        )

    def conv_transpose2d(
        self,
        weight: Tensor,
        bias: Tensor | None = None,
        groups: int = 1,
        stride: Sizes = 1,
        dilation: Sizes = 1,
        padding: Sizes = 0,
        output_padding: Sizes = 0,
    ) -> Tensor:
        """See `conv_transpose` and `conv2d`."""
        weight = given(Tensor, weight, "conv_transpose2d")
        axes = _spatial(self, weight, "conv_transpose2d")
        return self.conv_transpose(
            weight,
            bias,
            strides=each(stride, axes, "stride"),
            pads=nn.margins(padding, axes),
            dilations=each(dilation, axes, "dilation"),
            output_padding=each(output_padding, axes, "output_padding"),
            groups=groups,
        )

    def max_pool2d(
        self,
        kernel_size: Sizes = 2,
        stride: Sizes | None = None,
        dilation: Sizes = 1,
        padding: Sizes = 0,
        ceil_mode: bool = False,
    ) -> Tensor:
        """The greatest element of each window of [N, C, *S]; see `nn.max_pool`."""
        windows = pooling.windows_of(self, kernel_size, stride, padding, dilation, ceil=ceil_mode)
        return pooling.max_pool(windows, self)

    @computed
    def avg_pool2d(
        self,
        kernel_size: Sizes = 2,
        stride: Sizes | None = None,
        dilation: Sizes = 1,
        padding: Sizes = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
    ) -> Tensor:
        """The mean of each window of [N, C, *S]; see `nn.average_pool`."""
        windows = pooling.windows_of(self, kernel_size, stride, padding, dilation, ceil=ceil_mode)
        count = pooling.counts(windows, self, pads=count_include_pad)
        return pooling.average_pool(windows, self, count)

    def scaled_dot_product_attention(
        self,
        key: Tensor,
        value: Tensor,
        attn_mask: Tensor | None = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        enable_gqa: bool = False,
        *,
        dropout_key: Tensor | None = None,
    ) -> Tensor:
        """softmax(self @ key' / sqrt(H) + mask) @ value, as torch's: self [*, T, H], key [*, S, H],
        value [*, S, V] to [*, T, V].

        attn_mask: what is added, or bools: true where a query may look. dropout_p: of the weights,
        by `dropout_key`. enable_gqa: key and value have fewer heads, each for several of self's.
        `nn.attention` drops in training alone.
        """
        key, value = (given(Tensor, t, "scaled_dot_product_attention") for t in (key, value))
        if attn_mask is not None:
            attn_mask = given(Tensor, attn_mask, "scaled_dot_product_attention")
        if enable_gqa and self.ndim > 2:
            heads = fixed(self.shape[-3])
            key, value = (
                t.repeat_interleave(heads // fixed(t.shape[-3]), -3) for t in (key, value)
            )
        weights = nn.attention_weights(self, key, attn_mask, causal=is_causal)
        if dropout_p:
            weights = weights.dropout(dropout_p, key=dropout_key)
        return weights @ value

    def interpolate(
        self,
        size: Size | Sequence[Size],
        mode: str = "linear",
        align_corners: bool = False,
        *,
        antialias: bool = False,
    ) -> Tensor:
        """Its last axes resized, one for each of `size`, as torch's interpolate does it.

        mode: "nearest" (rounded down), "nearest-exact", "linear" (of any number of axes; also
        "bilinear", "trilinear") or "cubic" ("bicubic"). align_corners: the first and the last
        elements stay what they are. antialias: what shrinks is filtered, by a kernel as much wider.
        Raises ValueError.
        """
        return resizing.interpolate(self, sizes_of(size), mode, align_corners, antialias)

    # Factors of matrices.

    def qr(self, mode: str = "reduced") -> tuple[Tensor, Tensor]:
        """[*, M, N] as Q @ R, with orthonormal columns and an upper triangle; see `matrices.qr`."""
        return matrices.qr(self, mode)

    def svd(self, full_matrices: bool = True) -> tuple[Tensor, Tensor, Tensor]:
        """[*, M, N] as U * S @ V, as numpy's linalg.svd gives it; see `matrices.svd`."""
        return matrices.svd(self, full_matrices)

    @computed
    def newton_schulz(self, steps: int, params: Sequence[float], eps: float = 1e-7) -> Tensor:
        """An odd polynomial of the singular values, so many times; see `matrices.newton_schulz`."""
        return matrices.newton_schulz(self, steps, params, eps)


def _spatial(x: Tensor, weight: Tensor, what: str) -> int:
    """How many spatial axes a convolution has. Raises ValueError where it has none."""
    if weight.ndim < 3 or x.ndim != weight.ndim:
        raise ValueError(
            f"{what} of {list(x.shape)} with {list(weight.shape)}: it takes x [N, C, *S] and a "
            "weight of as many axes, at least 3"
        )
    return weight.ndim - 2


def _name_methods() -> None:
    """Python's errors name methods by the class that users know, not by the one of their file."""
    for kind in Tensor.__mro__:
        for method in vars(kind).values() if kind is not object else ():
            function = getattr(method, "__func__", method)
            while isinstance(function, FunctionType):
                function.__qualname__ = f"Tensor.{function.__name__}"
                function = getattr(function, "__wrapped__", None)


_name_methods()
