"""Attention of several heads, as a function and as torch's layer."""

from __future__ import annotations

import math

from tinyedge.core import dtype as dt
from tinyedge.core.dtype import DType
from tinyedge.core.tensor import random
from tinyedge.core.tensor.base import given
from tinyedge.core.tensor.nn import attention_weights
from tinyedge.core.tensor.tensor import Tensor
from tinyedge.nn.init import Draws
from tinyedge.nn.linear import Linear
from tinyedge.nn.module import Module, current


def attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None = None,
    *,
    dropout: float = 0.0,
    causal: bool = False,
    scale: float | None = None,
) -> Tensor:
    """softmax(query @ key' * scale + mask) @ value: [*, T, H], [*, S, H], [*, S, V] to [*, T, V].

    mask: what is added, or bools: true where a query may look. causal: no query looks beyond its
    own place. scale: None for 1 / sqrt(H). dropout: of the weights, in training.
    """
    query, key, value = (given(Tensor, t, "attention") for t in (query, key, value))
    mask = None if mask is None else given(Tensor, mask, "attention")
    weights = attention_weights(query, key, mask, causal=causal, scale=scale)
    if dropout and (run := current()) is not None:
        weights = random.dropout(weights, run.key(), dropout)
    return weights @ value


class MultiHeadAttention(Module):
    """Attention of `heads` parts of query [T, N, width], key and value [S, N, ..], projected.

    batch_first: [N, T, width]. Names and first values are those of torch's MultiheadAttention; what
    is given for masks, too: true where a query may *not* look.
    """

    def __init__(
        self,
        width: int,
        heads: int,
        dropout: float = 0.0,
        bias: bool = True,
        *,
        batch_first: bool = False,
        key: Tensor | None = None,
        dtype: DType = dt.float32,
    ) -> None:
        if heads < 1 or width % heads:
            raise ValueError(f"a width of {width} in {heads} heads")
        self.heads, self.dropout, self.batch_first = heads, dropout, batch_first
        draws = Draws(key, dtype)
        self.in_proj_weight = draws.xavier("in_proj_weight", (3 * width, width))
        self.in_proj_bias = draws.full("in_proj_bias", (3 * width,), 0) if bias else None
        self.out_proj = Linear(width, width, bias, key=random.fold_in(draws.key, 7), dtype=dtype)
        if bias:
            self.out_proj.bias = draws.full("bias", (width,), 0)

    def __call__(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        *,
        key_padding_mask: Tensor | None = None,
        attn_mask: Tensor | None = None,
        causal: bool = False,
        need_weights: bool = False,
    ) -> Tensor | tuple[Tensor, Tensor]:
        """key_padding_mask: [N, S]; attn_mask: [T, S] or [N * heads, T, S]; each bools (true: not
        to be looked at), or what is added. need_weights: a pair with the heads' mean weights,
        [N, T, S].
        """
        parts = [query, key, value]
        if not self.batch_first:
            parts = [part.permute((1, 0, 2)) for part in parts]
        q, k, v = (self._projected(part, number) for number, part in enumerate(parts))
        mask = self._mask(key_padding_mask, attn_mask, q)
        weights = attention_weights(q, k, mask, causal=causal)
        if self.dropout and (run := current()) is not None:
            weights = random.dropout(weights, run.key(), self.dropout)
        mixed = (weights @ v).permute((0, 2, 1, 3))
        result = self.out_proj(mixed.flatten(2))
        result = result if self.batch_first else result.permute((1, 0, 2))
        return (result, weights.mean(1)) if need_weights else result

    def _projected(self, x: Tensor, number: int) -> Tensor:
        """[N, T, width] as [N, heads, T, width / heads]."""
        width = self.out_proj.weight.shape[0]
        if x.ndim != 3 or x.shape[2] != width:
            raise ValueError(f"attention of {list(x.shape)}: it takes 3 axes, the last of {width}")
        assert isinstance(width, int)
        part = slice(number * width, (number + 1) * width)
        result = x @ self.in_proj_weight[part].transpose()
        if self.in_proj_bias is not None:
            result = result + self.in_proj_bias[part]
        heads = result.reshape((*x.shape[:2], self.heads, width // self.heads))
        return heads.permute((0, 2, 1, 3))

    def _mask(self, padding: Tensor | None, mask: Tensor | None, q: Tensor) -> Tensor | None:
        """What is added to scores [N, heads, T, S]."""
        added = None
        if padding is not None:
            added = _added(padding, q.dtype).unsqueeze(1).unsqueeze(1)
        if mask is not None:
            own = _added(mask, q.dtype)
            if own.ndim == 3:
                own = own.reshape((q.shape[0], self.heads, *own.shape[1:]))
            added = own if added is None else added + own
        return added


def _added(mask: Tensor, dtype: DType) -> Tensor:
    if mask.dtype is not dt.bool_:
        return mask
    return mask.where(Tensor.full((), -math.inf, dtype), 0)
