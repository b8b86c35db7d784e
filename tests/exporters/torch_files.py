"""Both of PyTorch's exporters: networks, modules and functions as people export them, with random
weights.

Each case is written twice: `NAME.traced` by the older exporter, which traces TorchScript, and
`NAME.dynamo` by the newer one. tests/realmodels/exports holds the networks without their weights.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812  as everyone calls it

from tests.exporters.recipes import main
from tests.exporters.torch_cases import Case, Function, floats, recipes, whole
from tests.exporters.torch_networks import NETWORKS


def mask(*shape: int) -> Tensor:
    return torch.rand(*shape, generator=torch.Generator().manual_seed(2)) < 0.5


X = floats(2, 6, 8)
ROWS = floats(3, 10)
IMAGE = floats(1, 3, 16, 20)
SIGNAL = floats(2, 4, 30)
VOLUME = floats(1, 2, 6, 6, 6)
BATCH_LENGTH = ({0: "batch", 1: "length"},)
HEIGHT_WIDTH = ({2: "height", 3: "width"},)


class Last(nn.Module):
    """The first of a recurrent layer's results, and its last state."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: Tensor) -> Any:
        rows, state = self.layer(x)
        return rows, state[0] if isinstance(state, tuple) else state


class MaskedAttention(nn.Module):
    """nn.MultiheadAttention over rows of which some are padding."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)

    def forward(self, x: Tensor, padding: Tensor) -> Tensor:
        mixed, _ = self.attention(x, x, x, key_padding_mask=padding)
        return mixed


class Rotary(nn.Module):
    """Attention with rotary positions and a cache of keys and values, as language models have."""

    def __init__(self, width: int = 16, heads: int = 2) -> None:
        super().__init__()
        self.heads, self.size = heads, width // heads
        self.both = nn.Linear(width, 3 * width, bias=False)
        self.out = nn.Linear(width, width, bias=False)
        powers = torch.arange(0, self.size, 2).float() / self.size
        self.register_buffer("rates", 1.0 / 10000.0**powers)

    def turned(self, x: Tensor, start: int) -> Tensor:
        angles = torch.outer(torch.arange(start, start + x.shape[2]).float(), self.rates)
        both = torch.cat([angles, angles], -1)
        left, right = x.chunk(2, -1)
        return x * both.cos() + torch.cat([-right, left], -1) * both.sin()

    def forward(self, x: Tensor, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        batch, length, width = x.shape
        parts = self.both(x).view(batch, length, 3, self.heads, self.size).permute(2, 0, 3, 1, 4)
        past = keys.shape[2]
        query, key = self.turned(parts[0], past), self.turned(parts[1], past)
        keys, values = torch.cat([keys, key], 2), torch.cat([values, parts[2]], 2)
        scores = query @ keys.transpose(2, 3) / math.sqrt(self.size)
        allowed = torch.ones(length, past + length, dtype=torch.bool).tril(past)
        weights = scores.masked_fill(~allowed, float("-inf")).softmax(-1)
        mixed = (weights @ values).transpose(1, 2).reshape(batch, length, width)
        return self.out(mixed), keys, values


class Inverted(nn.Module):
    """An inverted residual of MobileNet with squeeze and excitation."""

    def __init__(self) -> None:
        super().__init__()
        self.wide = nn.Sequential(
            nn.Conv2d(8, 24, 1, bias=False), nn.BatchNorm2d(24), nn.Hardswish()
        )
        self.deep = nn.Sequential(
            nn.Conv2d(24, 24, 5, padding=2, groups=24, bias=False), nn.BatchNorm2d(24), nn.ReLU6()
        )
        self.gate = nn.Sequential(
            nn.AdaptiveAvgPool2d(1), nn.Conv2d(24, 6, 1), nn.ReLU(), nn.Conv2d(6, 24, 1)
        )
        self.narrow = nn.Sequential(nn.Conv2d(24, 8, 1, bias=False), nn.BatchNorm2d(8))

    def forward(self, x: Tensor) -> Tensor:
        y = self.deep(self.wide(x))
        return x + self.narrow(y * F.hardsigmoid(self.gate(y)))


class Experts(nn.Module):
    """A mixture of experts: each row goes through the two that its gate likes best."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = nn.Linear(10, 4)
        self.first = nn.Parameter(floats(4, 10, 12, seed=3) / 3)
        self.second = nn.Parameter(floats(4, 12, 10, seed=4) / 3)

    def forward(self, x: Tensor) -> Tensor:
        weights, chosen = self.gate(x).softmax(-1).topk(2)
        hidden = torch.einsum("bi,bkio->bko", x, self.first[chosen]).relu()
        mixed = torch.einsum("bki,bkio->bko", hidden, self.second[chosen])
        return (mixed * weights[..., None]).sum(1)


class Cell(nn.Module):
    """Steps of an LSTM cell in Python's loop."""

    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.LSTMCell(8, 5)

    def forward(self, x: Tensor) -> Tensor:
        h = c = x.new_zeros(x.shape[0], 5)
        for step in range(x.shape[1]):
            h, c = self.cell(x[:, step], (h, c))
        return h


class Written(nn.Module):
    """Assignments into slices and by a mask."""

    def forward(self, x: Tensor, chosen: Tensor) -> Tensor:
        y = x.clone()
        y[:, 1:3] = y[:, 1:3] * 2
        y[..., -1] = 0
        y[chosen] = -1
        return y


def layer(make: Callable[[], nn.Module], *inputs: Tensor, dynamic: Any = ()) -> Case:
    return Case(make, inputs, dynamic)


def call(function: Callable[..., Any], *inputs: Tensor, dynamic: Any = ()) -> Case:
    return Case(lambda: Function(function), inputs, dynamic)


def transformer(**options: Any) -> nn.Module:
    return nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, **options)


LAYERS = {
    "linear": layer(lambda: nn.Linear(8, 5), X, dynamic=BATCH_LENGTH),
    "bilinear": layer(lambda: nn.Bilinear(10, 10, 4), ROWS, floats(3, 10, seed=5)),
    "embedding": layer(lambda: nn.Embedding(20, 6, padding_idx=0), whole(20, 2, 5)),
    "embedding_bag": layer(lambda: nn.EmbeddingBag(20, 6, mode="sum"), whole(20, 2, 5)),
    "conv1d": layer(lambda: nn.Conv1d(4, 6, 5, stride=2, padding=2), SIGNAL),
    "conv1d_same": layer(lambda: nn.Conv1d(4, 6, 4, padding="same", dilation=2), SIGNAL),
    "conv2d": layer(lambda: nn.Conv2d(3, 8, 3, padding=1), IMAGE, dynamic=HEIGHT_WIDTH),
    "conv2d_circular": layer(lambda: nn.Conv2d(3, 4, 3, padding=1, padding_mode="circular"), IMAGE),
    "conv2d_reflect": layer(lambda: nn.Conv2d(3, 4, 3, padding=1, padding_mode="reflect"), IMAGE),
    "conv2d_groups": layer(lambda: nn.Conv2d(3, 9, 3, groups=3, dilation=2), IMAGE),
    "conv3d": layer(lambda: nn.Conv3d(2, 4, 3, stride=2, padding=1), VOLUME),
    "conv_transpose1d": layer(lambda: nn.ConvTranspose1d(4, 3, 4, stride=2, padding=1), SIGNAL),
    "conv_transpose2d": layer(
        lambda: nn.ConvTranspose2d(3, 4, 3, stride=2, padding=1, output_padding=1), IMAGE
    ),
    "batch_norm": layer(lambda: nn.BatchNorm2d(3), IMAGE),
    "batch_norm_rows": layer(lambda: nn.BatchNorm1d(10), ROWS),
    "layer_norm": layer(lambda: nn.LayerNorm(8), X, dynamic=BATCH_LENGTH),
    "layer_norm_two_axes": layer(lambda: nn.LayerNorm((6, 8), elementwise_affine=False), X),
    "group_norm": layer(lambda: nn.GroupNorm(2, 6), floats(2, 6, 5, 4)),
    "instance_norm": layer(lambda: nn.InstanceNorm2d(3, affine=True), IMAGE),
    "rms_norm": layer(lambda: nn.RMSNorm(8), X),
    "local_response_norm": layer(lambda: nn.LocalResponseNorm(3), IMAGE),
    "weight_norm": layer(lambda: nn.utils.weight_norm(nn.Linear(8, 5)), X),
    "max_pool": layer(lambda: nn.MaxPool2d(3, 2, 1), IMAGE, dynamic=HEIGHT_WIDTH),
    "max_pool_ceil": layer(lambda: nn.MaxPool2d(3, 2, ceil_mode=True), IMAGE),
    "max_pool_indices": layer(lambda: nn.MaxPool2d(2, return_indices=True), IMAGE),
    "avg_pool": layer(lambda: nn.AvgPool2d(3, 2, 1, count_include_pad=False), IMAGE),
    "avg_pool_ceil": layer(lambda: nn.AvgPool1d(4, 3, ceil_mode=True), SIGNAL),
    "adaptive_avg_pool": layer(lambda: nn.AdaptiveAvgPool2d((4, 5)), IMAGE),
    "adaptive_max_pool": layer(lambda: nn.AdaptiveMaxPool2d(4), floats(1, 3, 16, 16)),
    "lp_pool": layer(lambda: nn.LPPool2d(2, 2), IMAGE),
    "pixel_shuffle": layer(lambda: nn.PixelShuffle(2), floats(1, 8, 4, 5)),
    "pixel_unshuffle": layer(lambda: nn.PixelUnshuffle(2), IMAGE),
    "channel_shuffle": layer(lambda: nn.ChannelShuffle(2), floats(1, 8, 4, 5)),
    "upsample_nearest": layer(lambda: nn.Upsample(scale_factor=2), IMAGE, dynamic=HEIGHT_WIDTH),
    "upsample_bilinear": layer(
        lambda: nn.Upsample(size=(24, 30), mode="bilinear", align_corners=True), IMAGE
    ),
    "upsample_bicubic": layer(lambda: nn.Upsample(scale_factor=1.5, mode="bicubic"), IMAGE),
    "fold": layer(lambda: nn.Fold((6, 7), 3, padding=1), floats(1, 18, 42)),
    "unfold": layer(lambda: nn.Unfold(3, padding=1, stride=2), IMAGE),
    "reflection_pad": layer(lambda: nn.ReflectionPad2d((1, 2, 3, 0)), IMAGE),
    "replication_pad": layer(lambda: nn.ReplicationPad1d((2, 1)), SIGNAL),
    "zero_pad_negative": layer(lambda: nn.ZeroPad2d((-1, 2, 1, -2)), IMAGE),
    "lstm": layer(lambda: Last(nn.LSTM(8, 5, batch_first=True)), X, dynamic=BATCH_LENGTH),
    "lstm_both_ways": layer(lambda: Last(nn.LSTM(8, 5, 2, bidirectional=True)), X),
    "lstm_projected": layer(lambda: Last(nn.LSTM(8, 6, proj_size=4, batch_first=True)), X),
    "lstm_cell": layer(Cell, X),
    "gru": layer(lambda: Last(nn.GRU(8, 5, 2, batch_first=True)), X, dynamic=BATCH_LENGTH),
    "rnn_relu": layer(lambda: Last(nn.RNN(8, 5, nonlinearity="relu", batch_first=True)), X),
    "attention_with_padding": layer(MaskedAttention, X, torch.arange(6).expand(2, 6) > 3),
    "encoder_layer": layer(transformer, X, dynamic=BATCH_LENGTH),
    "encoder_layer_norm_first": layer(lambda: transformer(norm_first=True, activation="gelu"), X),
    "decoder_layer": layer(
        lambda: nn.TransformerDecoderLayer(8, 2, 16, batch_first=True), X, floats(2, 4, 8)
    ),
    "rotary_with_cache": layer(
        Rotary,
        floats(1, 3, 16),
        floats(1, 2, 5, 8, seed=1),
        floats(1, 2, 5, 8, seed=2),
        dynamic=({1: "length"}, {2: "past"}, {2: "past"}),
    ),
    "inverted_residual": layer(Inverted, floats(1, 8, 9, 9)),
    "mixture_of_experts": layer(Experts, ROWS),
    "assignments": layer(Written, X, mask(2, 6, 8)),
    "prelu": layer(lambda: nn.PReLU(3), IMAGE),
    "glu": layer(nn.GLU, X),
    "softmax2d": layer(nn.Softmax2d, IMAGE),
    "cosine_similarity": layer(lambda: nn.CosineSimilarity(dim=1), ROWS, floats(3, 10, seed=1)),
    "pairwise_distance": layer(nn.PairwiseDistance, ROWS, floats(3, 10, seed=1)),
    "cross_entropy": layer(nn.CrossEntropyLoss, ROWS, whole(10, 3)),
    "nll_weighted": call(
        lambda x, t: F.nll_loss(x.log_softmax(1), t, weight=torch.arange(1.0, 11)),
        ROWS,
        whole(10, 3),
    ),
    "smooth_l1": layer(nn.SmoothL1Loss, ROWS, floats(3, 10, seed=1)),
    "bce_with_logits": layer(nn.BCEWithLogitsLoss, ROWS, mask(3, 10).float()),
    "kl_div": call(
        lambda x, y: F.kl_div(x.log_softmax(1), y.softmax(1), reduction="batchmean"),
        ROWS,
        floats(3, 10, seed=1),
    ),
}

ACTIVATIONS = {
    type(made).__name__.lower(): layer(lambda made=made: made, 4 * ROWS)
    for made in (
        nn.ELU(0.7), nn.CELU(1.3), nn.SELU(), nn.GELU(), nn.SiLU(), nn.Mish(),
        nn.Softplus(2.0, 5.0),
        nn.Softsign(), nn.Tanhshrink(), nn.Softshrink(0.4), nn.Hardshrink(), nn.Hardtanh(-2, 3),
        nn.Hardsigmoid(), nn.Hardswish(), nn.LogSigmoid(), nn.Threshold(0.1, 20), nn.LeakyReLU(0.2),
        nn.Softmin(-1), nn.LogSoftmax(-1), nn.RReLU(),
    )
}  # fmt: skip

FUNCTIONS = {
    "indexed": call(lambda x: x[:, [0, 2, -1], 1::3], X),
    "indexed_by_tensors": call(lambda x, i, j: x[i, j], X, whole(2, 4), whole(6, 4)),
    "masked_select": call(lambda x, m: x[m], ROWS, mask(3, 10)),
    "masked_fill": call(lambda x, m: x.masked_fill(m, -5.0), ROWS, mask(3, 10)),
    "masked_scatter": call(lambda x, m, y: x.masked_scatter(m, y), ROWS, mask(3, 10), -ROWS),
    "where": call(lambda x, m: torch.where(m, x, 2 * x), ROWS, mask(3, 10)),
    "nonzero": call(lambda m: m.nonzero(), mask(3, 10)),
    "gather": call(lambda x, i: x.gather(1, i), ROWS, whole(10, 3, 4)),
    "take_along": call(lambda x: x.take_along_dim(x.argsort(1), 1), ROWS),
    "index_select": call(lambda x, i: x.index_select(1, i), X, whole(6, 3)),
    "index_add": call(lambda x, i, y: x.index_add(0, i, y), ROWS, whole(3, 4), floats(4, 10)),
    "index_put": call(
        lambda x, i, y: x.index_put((i,), y, accumulate=True), ROWS, whole(3, 4), floats(4, 10)
    ),
    "scatter": call(lambda x, i: x.scatter(1, i, 9.0), ROWS, torch.arange(12).reshape(3, 4) % 10),
    "scatter_add": call(
        lambda x, i, y: x.scatter_add(1, i, y), ROWS, whole(10, 3, 4), floats(3, 4)
    ),
    "scatter_reduce": call(
        lambda x, i, y: x.scatter_reduce(1, i, y, "amax"), ROWS, whole(10, 3, 4), floats(3, 4)
    ),
    "topk": call(lambda x: x.topk(4, 1), ROWS),
    "sort": call(lambda x: x.sort(1, descending=True), ROWS),
    "argmax": call(lambda x: (x.argmax(1), x.argmin(0, keepdim=True)), ROWS),
    "max_with_indices": call(lambda x: x.max(1), ROWS),
    "statistics": call(lambda x: (x.var(1), x.std(1, correction=0), x.mean((0, 1))), X),
    "norms": call(lambda x: (x.norm(dim=1), x.norm(1, dim=0), x.norm(float("inf"), dim=1)), ROWS),
    "normalize": call(lambda x: F.normalize(x, dim=-1), X),
    "cumsum": call(lambda x: x.cumsum(1), ROWS),
    "cumprod": call(lambda x: (x / 2).cumprod(1), ROWS),
    "logsumexp": call(lambda x: torch.logsumexp(x, (0, 2)), X),
    "einsum": call(lambda x, y: torch.einsum("bij,bkj->bik", x, y), X, floats(2, 3, 8)),
    "baddbmm": call(lambda x, y: torch.baddbmm(x, x, y, beta=0.5, alpha=2), X, floats(2, 8, 8)),
    "addmm": call(lambda x, y, z: torch.addmm(x, y, z), ROWS, floats(3, 4), floats(4, 10)),
    "outer": call(lambda x: torch.outer(x[0], x[1]), ROWS),
    "tensordot": call(lambda x, y: torch.tensordot(x, y, 2), X, floats(6, 8, 3)),
    "cdist": call(lambda x, y: torch.cdist(x, y), ROWS, floats(4, 10)),
    "tril_triu": call(lambda x: (x.tril(1), x.triu(-2)), X),
    "diagonal": call(lambda x: x.diagonal(dim1=1, dim2=2), X),
    "roll": call(lambda x: x.roll((1, -2), (0, 1)), X),
    "flip": call(lambda x: x.flip(0, 2), X),
    "rot90": call(lambda x: torch.rot90(x, 1, (1, 2)), X),
    "repeat": call(lambda x: x.repeat(2, 1, 3), X),
    "repeat_interleave": call(lambda x: x.repeat_interleave(3, 1), ROWS),
    "stack_chunks": call(lambda x: torch.stack(x.chunk(2, 1)), X, dynamic=({0: "batch"},)),
    "split_sizes": call(lambda x: x.split([1, 2, 3], 1), X),
    "unbind": call(lambda x: x.unbind(1)[2], X),
    "windows": call(lambda x: x.unfold(1, 4, 2), ROWS),
    "meshgrid": call(lambda x: torch.meshgrid(x[0], x[1], indexing="ij"), ROWS),
    "linspace": call(lambda x: x * torch.linspace(-1, 1, x.shape[1]), ROWS),
    "arange_of_a_size": call(
        lambda x: x + torch.arange(x.shape[1])[:, None], X, dynamic=BATCH_LENGTH
    ),
    "view_of_sizes": call(
        lambda x: x.view(x.shape[0], -1, 2, 4).transpose(1, 2).flatten(2), X, dynamic=BATCH_LENGTH
    ),
    "broadcast": call(lambda x: x.expand(2, 3, 10) * x[None, :1], ROWS),
    "one_hot": call(lambda i: F.one_hot(i, 7).float(), whole(7, 2, 3)),
    "bucketize": call(lambda x: torch.bucketize(x, torch.tensor([-1.0, 0.0, 0.5])), ROWS),
    "isin": call(lambda i: torch.isin(i, torch.tensor([1, 4])), whole(7, 2, 3)),
    "grid_sample": call(
        lambda x, g: F.grid_sample(x, g, align_corners=False), IMAGE, floats(1, 5, 6, 2)
    ),
    "affine_grid": call(
        lambda t: F.affine_grid(t, (1, 3, 5, 6), align_corners=False), floats(1, 2, 3)
    ),
    "interpolate_area": call(lambda x: F.interpolate(x, (8, 10), mode="area"), IMAGE),
    "interpolate_antialias": call(
        lambda x: F.interpolate(x, (7, 9), mode="bilinear", antialias=True), IMAGE
    ),
    "interpolate_like": call(
        lambda x, y: F.interpolate(x, y.shape[2:], mode="bilinear"), IMAGE, floats(1, 1, 9, 11)
    ),
    "attention": call(
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v),
        *(floats(2, 2, 6, 8, seed=n) for n in range(3)),
    ),
    "attention_causal": call(
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True),
        *(floats(1, 2, 6, 8, seed=n) for n in range(3)),
    ),
    "attention_masked": call(
        lambda q, k, v, m: F.scaled_dot_product_attention(q, k, v, attn_mask=m, scale=0.3),
        *(floats(1, 2, 6, 8, seed=n) for n in range(3)), floats(6, 6),
    ),
    "fmod_and_remainder": call(lambda x: (x.fmod(0.7), x.remainder(-0.7), x // 0.7), ROWS),
    "integer_division": call(
        lambda i: (i // 3, i % -3, torch.div(i, 3, rounding_mode="trunc")), whole(9, 2, 6, low=-9)
    ),
    "bits": call(lambda i: (i & 5, i | 3, i ^ 6, ~i), whole(9, 2, 6)),
    "bools": call(lambda m: (m & m[:1], m | m[:1], m ^ m[:1], ~m), mask(3, 10)),
    "rounding": call(lambda x: (x.round(), x.floor(), x.ceil(), x.frac()), 3 * ROWS),
    "truncation": call(lambda x: x.trunc(), 3 * ROWS),
    "round_decimals": call(lambda x: x.round(decimals=2), ROWS),
    "trigonometry": call(lambda x: (x.sin(), x.cos(), x.tan(), x.atan(), x.tanh().asin()), ROWS),
    "hyperbolic": call(lambda x: (x.sinh(), x.cosh(), x.asinh(), x.tanh().atanh()), ROWS),
    "atan2": call(lambda x, y: torch.atan2(x, y), ROWS, floats(3, 10, seed=1)),
    "exponentials": call(lambda x: (x.exp(), x.exp2(), x.abs().log(), x.sigmoid()), ROWS),
    "near_one": call(lambda x: (x.expm1(), x.abs().log1p()), ROWS),
    "error_function": call(lambda x: x.erf(), ROWS),
    "rest_of_error_function": call(lambda x: x.erfc(), ROWS),
    "powers": call(lambda x: (x**2, x.abs() ** 0.5, 2**x, x.abs().rsqrt()), ROWS),
    "logic": call(lambda x, y: (x > y) & ~(x == 0) | (y <= -1), ROWS, floats(3, 10, seed=1)),
    "nan_to_num": call(lambda x: torch.nan_to_num(x / x.relu()), ROWS),
    "clamp_by_tensors": call(lambda x, y: x.clamp(min=-y.abs(), max=y.abs()), ROWS, floats(3, 10)),
    "casts": call(lambda x: (x.int(), x.half().float(), x.bool(), (x > 0).double()), 3 * ROWS),
    "spectrum": call(lambda x: torch.view_as_real(torch.fft.rfft(x)), ROWS),
    "quantized_weights": call(
        lambda x: torch.fake_quantize_per_tensor_affine(x, 0.05, 3, -128, 127), ROWS
    ),
}  # fmt: skip

CASES = {**LAYERS, **ACTIVATIONS, **FUNCTIONS}

RECIPES = [
    *(recipe for name, case in NETWORKS.items() for recipe in recipes(name, case, seed=0)),
    *(
        recipe
        for name, case in CASES.items()
        for recipe in recipes(name, case, seed=sum(name.encode()))
    ),
]

if __name__ == "__main__":
    main(RECIPES, ("torch", "onnx", "onnxscript"))
