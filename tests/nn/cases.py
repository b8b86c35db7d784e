"""Layers and losses as Python writes them here and in torch, with the shapes of their inputs.

What has no torch form of its own is written as here. `i:` before a shape: integers below 5.
"""

from __future__ import annotations

from typing import Any

import numpy as np

# Name -> ours, torch's (None: the same), shapes of inputs.
LAYERS: dict[str, tuple[str, str | None, tuple[str, ...]]] = {
    "linear": ("nn.Linear(5, 3)", None, ("4,5",)),
    "linear without bias, 3 axes": ("nn.Linear(5, 3, bias=False)", None, ("2,4,5",)),
    "conv1d": ("nn.Conv1d(4, 6, 3, stride=2, padding=1)", None, ("2,4,9",)),
    "conv2d": ("nn.Conv2d(4, 6, (3, 2), padding=(1, 0), groups=2)", None, ("2,4,7,6",)),
    "conv2d same": ("nn.Conv2d(3, 2, (4, 3), padding='same', dilation=2)", None, ("1,3,9,8",)),
    "conv3d": ("nn.Conv3d(2, 3, 2, dilation=(1, 2, 1), bias=False)", None, ("2,2,4,5,3",)),
    "transposed 1d": (
        "nn.ConvTranspose1d(4, 6, 3, stride=2, padding=1, output_padding=1)",
        None,
        ("2,4,5",),
    ),
    "transposed 2d": (
        "nn.ConvTranspose2d(4, 6, (3, 2), stride=(1, 2), groups=2, dilation=2)",
        None,
        ("2,4,5,3",),
    ),
    "transposed 3d": ("nn.ConvTranspose3d(2, 3, 2, stride=2)", None, ("1,2,3,2,2",)),
    "batch norm": ("nn.BatchNorm(4)", "nn.BatchNorm2d(4)", ("3,4,5,2",)),
    "batch norm of 2 axes": ("nn.BatchNorm(4)", "nn.BatchNorm1d(4)", ("6,4",)),
    "batch norm untracked": (
        "nn.BatchNorm(4, affine=False, track=False)",
        "nn.BatchNorm1d(4, affine=False, track_running_stats=False)",
        ("3,4,5",),
    ),
    "layer norm": ("nn.LayerNorm((3, 5))", None, ("2,4,3,5",)),
    "layer norm plain": (
        "nn.LayerNorm(5, affine=False)",
        "nn.LayerNorm(5, elementwise_affine=False)",
        ("2,5",),
    ),
    "rms norm": ("nn.RMSNorm(6)", None, ("2,3,6",)),
    "group norm": ("nn.GroupNorm(2, 6)", None, ("2,6,5",)),
    "group norm plain": ("nn.GroupNorm(3, 6, affine=False)", None, ("2,6,2,3",)),
    "instance norm": ("nn.InstanceNorm(3)", "nn.InstanceNorm2d(3)", ("2,3,4,5",)),
    "instance norm affine": (
        "nn.InstanceNorm(3, affine=True)",
        "nn.InstanceNorm1d(3, affine=True)",
        ("2,3,7",),
    ),
    "embedding": ("nn.Embedding(5, 3, 2)", None, ("i:4,6",)),
    "rnn": ("nn.RNN(3, 4)", None, ("5,2,3",)),
    "rnn of relu": ("nn.RNN(3, 4, 2, 'relu', bias=False)", None, ("3,2,3",)),
    "gru": ("nn.GRU(3, 4, 2, bidirectional=True)", None, ("6,2,3",)),
    "gru with a state": ("nn.GRU(3, 4, batch_first=True)", None, ("2,3,3", "1,2,4")),
    "lstm": ("nn.LSTM(3, 4, 2, batch_first=True, bidirectional=True)", None, ("2,6,3",)),
    "lstm with a state": (
        "Call(nn.LSTM(3, 4), lambda m, x, h, c: m(x, (h, c)))",
        None,
        ("3,2,3", "1,2,4", "1,2,4"),
    ),
    "attention": (
        "nn.MultiHeadAttention(6, 2)",
        "Call(nn.MultiheadAttention(6, 2), lambda m, *x: m(*x)[0])",
        ("4,2,6", "5,2,6", "5,2,6"),
    ),
    "attention masked": (
        "Call(nn.MultiHeadAttention(6, 3, batch_first=True),"
        " lambda m, x: m(x, x, x, attn_mask=above(4), key_padding_mask=last(2, 4),"
        " need_weights=True))",
        "Call(nn.MultiheadAttention(6, 3, batch_first=True),"
        " lambda m, x: m(x, x, x, attn_mask=above(4), key_padding_mask=last(2, 4)))",
        ("2,4,6",),
    ),
    "attention of functions": (
        "Call(None, lambda m, q, k, v: nn.attention(q, k, v, causal=True))",
        "Call(None, lambda m, q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True))",
        ("2,3,5,4", "2,3,5,4", "2,3,5,4"),
    ),
    "max pool": (
        "nn.max_pool(3, 2, 1, ceil=True)",
        "nn.MaxPool2d(3, 2, 1, ceil_mode=True)",
        ("2,3,7,6",),
    ),
    "max pool dilated": ("nn.max_pool(2, 1, 0, 2)", "nn.MaxPool1d(2, 1, 0, 2)", ("2,3,7",)),
    "average pool": (
        "nn.average_pool(3, 2, 1, ceil=True)",
        "nn.AvgPool2d(3, 2, 1, ceil_mode=True)",
        ("2,3,8,6",),
    ),
    "average pool of what is there": (
        "nn.average_pool(3, padding=1, include_pad=False)",
        "nn.AvgPool3d(3, padding=1, count_include_pad=False)",
        ("1,2,5,6,7",),
    ),
    "sequence": (
        "nn.Sequential(nn.Conv2d(1, 2, 3), nn.relu, nn.max_pool(2), nn.flatten, nn.Linear(8, 3))",
        "nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),"
        " nn.Linear(8, 3))",
        ("2,1,6,6",),
    ),
    **{
        name: (
            f"Call(None, lambda m, x: nn.{name}(x))",
            f"Call(None, lambda m, x: F.{other}(x))",
            ("4,6",),
        )
        for name, other in {
            **{n: n for n in ("celu", "elu", "gelu", "leaky_relu", "mish", "relu", "selu")},
            **{n: n for n in ("sigmoid", "silu", "softplus", "softsign", "tanh")},
            "hard_sigmoid": "hardsigmoid",
            "hard_swish": "hardswish",
        }.items()
    },
}

# Ours, torch's (None: the same), shapes of inputs: the first is the one gradients are by.
LOSSES: dict[str, tuple[str, str | None, tuple[str, ...]]] = {
    "cross entropy": ("cross_entropy(x, y)", None, ("4,5", "i:4")),
    "of one": ("cross_entropy(x, y)", None, ("5", "i:")),
    "of places": ("cross_entropy(x, y, reduction='none')", None, ("2,5,3,4", "i:2,3,4")),
    "weighted": ("cross_entropy(x, y, w)", None, ("6,5", "i:6", "5")),
    "weighted and smooth": (
        "cross_entropy(x, y, w, label_smoothing=0.2, ignore_index=3)",
        None,
        ("9,5", "i:9", "5"),
    ),
    "smooth sum": (
        "cross_entropy(x, y, label_smoothing=0.1, reduction='sum')",
        None,
        ("6,5", "i:6"),
    ),
    "of chances": ("cross_entropy(x, y, w, label_smoothing=0.1)", None, ("3,5,2", "3,5,2", "5")),
    "nll": ("nll_loss(x, y, w, ignore_index=1)", None, ("7,5", "i:7", "5")),
    "mse": ("mse_loss(x, y)", None, ("3,4", "3,4")),
    "l1": ("l1_loss(x, y, reduction='sum')", None, ("3,4", "3,4")),
    "huber": ("huber_loss(x, y, delta=0.7)", None, ("5,4", "5,4")),
    "smooth l1": ("smooth_l1_loss(x, y, beta=0.5)", None, ("5,4", "5,4")),
    "bce": (
        "binary_cross_entropy(x.sigmoid(), y, w)",
        None,
        ("3,4", "3,4", "4"),
    ),
    "bce of logits": (
        "binary_cross_entropy_with_logits(x * 50.0, y, w, pos_weight=w)",
        None,
        ("3,4", "3,4", "4"),
    ),
    "kl": ("kl_div(x, y, reduction='batchmean')", None, ("3,4", "3,4")),
    "kl of logarithms": ("kl_div(x, y, log_target=True)", None, ("3,4", "3,4")),
}


class Call:
    """A module that is called in its own way."""

    def __init__(self, module: Any, function: Any) -> None:
        self.module, self.function = module, function

    def __call__(self, *inputs: Any) -> Any:
        return self.function(self.module, *inputs)


def arrays(name: str, shapes: tuple[str, ...], seed: int = 0) -> list[Any]:
    """Inputs; of losses those after the first are between 0 and 1."""
    rng = np.random.default_rng([seed, *map(ord, name)])
    found: list[Any] = []
    for place, text in enumerate(shapes):
        shape = tuple(int(size) for size in text.removeprefix("i:").split(",") if size)
        if text.startswith("i:"):
            found.append(np.asarray(rng.integers(0, 5, shape)))
        elif name in LOSSES and place:
            found.append(np.asarray(rng.uniform(0.05, 0.95, shape).astype(np.float32)))
        else:
            found.append(rng.normal(size=shape).astype(np.float32))
    return found


def cotangents(shapes: list[tuple[int, ...]]) -> list[Any]:
    """What results are weighted by, so that their sum has a gradient by all."""
    rng = np.random.default_rng(11)
    return [np.asarray(rng.normal(size=shape).astype(np.float32)) for shape in shapes]


def above(size: int) -> Any:
    """True above the diagonal."""
    return np.triu(np.ones((size, size), bool), 1)


def last(rows: int, size: int) -> Any:
    """True at the last place of each row but the first."""
    mask = np.zeros((rows, size), bool)
    mask[1:, -1] = True
    return mask
