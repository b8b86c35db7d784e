"""Products with weights: Linear, Embedding, convolutions. Names and first values are torch's."""

from __future__ import annotations

import math
from collections.abc import Sequence

from tinyedge.core import dtype as dt
from tinyedge.core.dtype import DType
from tinyedge.core.gradient.transforms import stop_gradient
from tinyedge.core.tensor.base import Sizes, each, fixed
from tinyedge.core.tensor.tensor import Tensor
from tinyedge.nn.init import Draws
from tinyedge.nn.module import Module


class Linear(Module):
    """x @ weight' + bias: [*, inputs] to [*, outputs]; weight is [outputs, inputs]."""

    def __init__(
        self,
        inputs: int,
        outputs: int,
        bias: bool = True,
        *,
        key: Tensor | None = None,
        dtype: DType = dt.float32,
    ) -> None:
        draws, bound = Draws(key, dtype), 1 / math.sqrt(inputs) if inputs else 0.0
        self.weight = draws.uniform("weight", (outputs, inputs), bound)
        self.bias = draws.uniform("bias", (outputs,), bound) if bias else None

    def __call__(self, x: Tensor) -> Tensor:
        result = x @ self.weight.transpose()
        return result if self.bias is None else result + self.bias


class Embedding(Module):
    """A row of the weight [count, width] for each integer from 0 to count - 1; 0 beyond.

    padding: the row that starts as 0 and has no gradient.
    """

    def __init__(
        self,
        count: int,
        width: int,
        padding: int | None = None,
        *,
        key: Tensor | None = None,
        dtype: DType = dt.float32,
    ) -> None:
        if padding is not None and not -count <= padding < count:
            raise ValueError(f"padding row {padding} of {count}")
        self.padding = None if padding is None else padding % count
        draws = Draws(key, dtype)
        self.weight = draws.normal("weight", (count, width))
        if self.padding is not None:
            zero = Tensor.arange(count).eq(self.padding).unsqueeze(1)
            self.weight = draws.held("weight", zero.where(0, self.weight))

    def __call__(self, indices: Tensor) -> Tensor:
        rows = self.weight.gather(0, indices)
        if self.padding is None:
            return rows
        return indices.eq(self.padding).unsqueeze(-1).where(stop_gradient(rows), rows)


class _Conv(Module):
    """x [N, inputs, *S] to [N, outputs, *O], by a weight [outputs, inputs / groups, *K].

    padding: zeros at both ends of each axis, or "same" or "valid".
    """

    axes = 0

    def __init__(
        self,
        inputs: int,
        outputs: int,
        kernel: Sizes,
        stride: Sizes = 1,
        padding: Sizes | str = 0,
        dilation: Sizes = 1,
        groups: int = 1,
        bias: bool = True,
        *,
        key: Tensor | None = None,
        dtype: DType = dt.float32,
    ) -> None:
        if groups < 1 or inputs % groups or outputs % groups:
            raise ValueError(f"{inputs} and {outputs} channels in {groups} groups")
        taps = each(kernel, self.axes, "kernel")
        self.stride = each(stride, self.axes, "stride")
        self.dilation = each(dilation, self.axes, "dilation")
        self.groups = groups
        self.padding = self._pads(padding, taps)
        self._parameters(inputs, outputs, taps, bias, Draws(key, dtype))

    def _parameters(
        self, inputs: int, outputs: int, taps: tuple[int, ...], bias: bool, draws: Draws
    ) -> None:
        shape = (*self._channels(inputs, outputs), *taps)
        bound = 1 / math.sqrt(math.prod(shape[1:]))
        self.weight = draws.uniform("weight", shape, bound)
        self.bias = draws.uniform("bias", (outputs,), bound) if bias else None

    def _channels(self, inputs: int, outputs: int) -> tuple[int, int]:
        """The first two sizes of the weight."""
        return outputs, inputs // self.groups

    def _pads(self, padding: Sizes | str, taps: Sequence[int]) -> tuple[tuple[int, int], ...]:
        if padding == "same":
            if any(step != 1 for step in self.stride):
                raise ValueError("padding 'same' needs a stride of 1")
            totals = [d * (k - 1) for d, k in zip(self.dilation, taps, strict=True)]
            return tuple((total // 2, total - total // 2) for total in totals)
        if isinstance(padding, str) and padding != "valid":
            raise ValueError(f"padding {padding!r}: numbers, 'same' or 'valid'")
        sizes = 0 if isinstance(padding, str) else padding
        return tuple((pad, pad) for pad in each(sizes, self.axes, "padding"))

    def _check(self, x: Tensor) -> None:
        if x.ndim != self.axes + 2:
            raise ValueError(
                f"{type(self).__name__} of {list(x.shape)}: it takes {self.axes + 2} axes"
            )

    def __call__(self, x: Tensor) -> Tensor:
        self._check(x)
        return x.conv(
            self.weight,
            self.bias,
            strides=self.stride,
            pads=self.padding,
            dilations=self.dilation,
            groups=self.groups,
        )


class Conv1d(_Conv):
    __doc__, axes = _Conv.__doc__, 1


class Conv2d(_Conv):
    __doc__, axes = _Conv.__doc__, 2


class Conv3d(_Conv):
    __doc__, axes = _Conv.__doc__, 3


class _ConvTranspose(_Conv):
    """The transpose of a convolution: x [N, inputs, *S] to [N, outputs, *O], by a weight [inputs,
    outputs / groups, *K]; O = (S - 1) * stride - 2 * padding + dilation * (K - 1) + output_padding
    + 1.
    """

    def __init__(
        self,
        inputs: int,
        outputs: int,
        kernel: Sizes,
        stride: Sizes = 1,
        padding: Sizes = 0,
        output_padding: Sizes = 0,
        groups: int = 1,
        bias: bool = True,
        dilation: Sizes = 1,
        *,
        key: Tensor | None = None,
        dtype: DType = dt.float32,
    ) -> None:
        self.output_padding = each(output_padding, self.axes, "output_padding")
        super().__init__(
            inputs, outputs, kernel, stride, padding, dilation, groups, bias, key=key, dtype=dtype
        )

    def _channels(self, inputs: int, outputs: int) -> tuple[int, int]:
        return inputs, outputs // self.groups

    def __call__(self, x: Tensor) -> Tensor:
        self._check(x)
        return x.conv_transpose(
            self.weight,
            self.bias,
            strides=self.stride,
            pads=self.padding,
            dilations=self.dilation,
            output_padding=self.output_padding,
            groups=self.groups,
        )


class ConvTranspose1d(_ConvTranspose):
    __doc__, axes = _ConvTranspose.__doc__, 1


class ConvTranspose2d(_ConvTranspose):
    __doc__, axes = _ConvTranspose.__doc__, 2


class ConvTranspose3d(_ConvTranspose):
    __doc__, axes = _ConvTranspose.__doc__, 3


def channels_of(x: Tensor) -> int:
    """C of [N, C, *S]. Raises ValueError where there is none."""
    if x.ndim < 2:
        raise ValueError(f"{list(x.shape)} has no axis of channels")
    return fixed(x.shape[1])
