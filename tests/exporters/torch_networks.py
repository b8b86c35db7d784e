"""Small networks of torch with random weights, for both of its exporters."""

from __future__ import annotations

from typing import Any

import torch
from onnxscript import opset18 as op
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812  as everyone calls it
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from tests.exporters.torch_cases import OPSET, Case, floats, whole


class Tagger(nn.Module):
    """A class for every word of a sentence: words [B, T] -> [B, T, 9]."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(200, 24)
        self.lstm = nn.LSTM(24, 20, num_layers=2, bidirectional=True, batch_first=True)
        self.classes = nn.Linear(40, 9)

    def forward(self, words: Tensor) -> Tensor:
        rows, _ = self.lstm(self.words(words))
        return self.classes(rows).log_softmax(-1)


class Attention(nn.Module):
    """Self-attention over rows [B, T, C]."""

    def __init__(self, width: int, heads: int, causal: bool) -> None:
        super().__init__()
        self.heads, self.causal = heads, causal
        self.both = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        parts = self.both(x).view(batch, length, 3, self.heads, width // self.heads)
        query, key, value = parts.permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(query, key, value, is_causal=self.causal)
        return self.out(mixed.transpose(1, 2).reshape(batch, length, width))


class Block(nn.Module):
    """Attention and a multi-layer perceptron, each beside its input."""

    def __init__(self, width: int, heads: int, causal: bool) -> None:
        super().__init__()
        self.before = nn.LayerNorm(width)
        self.attention = Attention(width, heads, causal)
        self.between = nn.LayerNorm(width)
        gelu = nn.GELU(approximate="tanh" if causal else "none")
        self.perceptron = nn.Sequential(
            nn.Linear(width, 4 * width), gelu, nn.Linear(4 * width, width)
        )

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.before(x))
        return x + self.perceptron(self.between(x))


class VisionTransformer(nn.Module):
    """Classes of an image: [B, 3, 48, 48] -> [B, 10]."""

    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, 64, 8, stride=8)
        self.first = nn.Parameter(torch.randn(1, 1, 64) / 8)
        self.places = nn.Parameter(torch.randn(1, 37, 64) / 8)
        self.blocks = nn.Sequential(*(Block(64, 4, causal=False) for _ in range(3)))
        self.norm = nn.LayerNorm(64)
        self.classes = nn.Linear(64, 10)

    def forward(self, image: Tensor) -> Tensor:
        rows = self.patches(image).flatten(2).transpose(1, 2)
        rows = torch.cat([self.first.expand(rows.shape[0], -1, -1), rows], 1) + self.places
        return self.classes(self.norm(self.blocks(rows))[:, 0])


class LanguageModel(nn.Module):
    """What follows each token: [B, T] -> [B, T, 120]."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens = nn.Embedding(120, 48)
        self.places = nn.Embedding(64, 48)
        self.blocks = nn.Sequential(*(Block(48, 3, causal=True) for _ in range(3)))
        self.norm = nn.LayerNorm(48)

    def forward(self, tokens: Tensor) -> Tensor:
        places = torch.arange(tokens.shape[1], device=tokens.device)
        rows = self.tokens(tokens) + self.places(places)
        return F.linear(self.norm(self.blocks(rows)), self.tokens.weight)


def _twice(inputs: int, outputs: int) -> nn.Sequential:
    layers: list[nn.Module] = []
    for channels in (inputs, outputs):
        layers += [nn.Conv2d(channels, outputs, 3, padding=1, bias=False)]
        layers += [nn.BatchNorm2d(outputs), nn.SiLU()]
    return nn.Sequential(*layers)


class UNet(nn.Module):
    """A mask of an image: [B, 3, H, W] -> [B, 1, H, W]; H and W are multiples of 4."""

    def __init__(self) -> None:
        super().__init__()
        self.down = nn.ModuleList([_twice(3, 8), _twice(8, 16)])
        self.middle = _twice(16, 32)
        self.bigger = nn.ConvTranspose2d(32, 16, 2, stride=2)
        self.up = nn.ModuleList([_twice(32, 16), _twice(24, 8)])
        self.mask = nn.Conv2d(8, 1, 1)

    def forward(self, image: Tensor) -> Tensor:
        fine = self.down[0](image)
        coarse = self.down[1](F.max_pool2d(fine, 2))
        x = self.bigger(self.middle(F.max_pool2d(coarse, 2)))
        x = self.up[0](torch.cat([coarse, x], 1))
        x = F.interpolate(x, size=fine.shape[2:], mode="bilinear", align_corners=False)
        return self.mask(self.up[1](torch.cat([fine, x], 1))).sigmoid()


class PackedGRU(nn.Module):
    """Sequences of several lengths, the longest first: [B, T, 6], [B] -> [B, T, 24], [2, B, 12]."""

    def __init__(self) -> None:
        super().__init__()
        self.gru = nn.GRU(6, 12, bidirectional=True, batch_first=True)

    def forward(self, x: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        packed = pack_padded_sequence(x, lengths, batch_first=True)
        rows, last = self.gru(packed)
        padded, _ = pad_packed_sequence(rows, batch_first=True)
        return padded, last


@torch.library.custom_op("edge::suppress", mutates_args=())
def suppress(boxes: Tensor, scores: Tensor, overlap: float, least: float) -> Tensor:
    """Non-maximum suppression: boxes [1, N, 4], scores [1, C, N] -> (batch, class, box) [K, 3]."""
    kept = []
    for label in range(scores.shape[1]):
        order = scores[0, label].argsort(descending=True)
        taken: list[int] = []
        for box in (int(n) for n in order if scores[0, label, n] > least):
            if all(_overlap(boxes[0, box], boxes[0, other]) <= overlap for other in taken):
                taken.append(box)
        kept += [[0, label, box] for box in taken]
    return torch.tensor(kept, dtype=torch.int64).reshape(-1, 3)


def _overlap(a: Tensor, b: Tensor) -> float:
    sides = (torch.minimum(a[2:], b[2:]) - torch.maximum(a[:2], b[:2])).clamp(min=0)
    shared = float(sides.prod())
    whole = float((a[2:] - a[:2]).prod() + (b[2:] - b[:2]).prod()) - shared
    return shared / whole if whole > 0 else 0.0


@suppress.register_fake
def _(boxes: Tensor, scores: Tensor, overlap: float, least: float) -> Tensor:
    count = torch.library.get_ctx().new_dynamic_size()
    return boxes.new_empty((count, 3), dtype=torch.int64)


class Detector(nn.Module):
    """Boxes, scores and classes of what is in an image: [1, 3, 64, 64] -> [K, 4], [K], [K]."""

    def __init__(self) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for inputs, outputs in ((3, 8), (8, 16), (16, 16)):
            layers += [nn.Conv2d(inputs, outputs, 3, stride=2, padding=1)]
            layers += [nn.BatchNorm2d(outputs), nn.ReLU()]
        self.trunk = nn.Sequential(*layers)
        self.head = nn.Conv2d(16, 4 + 3, 1)

    def forward(self, image: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        found = self.head(self.trunk(image)).flatten(2)
        y, x = torch.meshgrid(torch.arange(8.0), torch.arange(8.0), indexing="ij")
        center = torch.stack([x, y]).reshape(1, 2, 64) * 8 + 4 + 8 * found[:, :2].tanh()
        half = 12 * found[:, 2:4].sigmoid() + 4
        boxes = torch.cat([center - half, center + half], 1).transpose(1, 2)
        scores = found[:, 4:].sigmoid()
        kept = torch.ops.edge.suppress(boxes, scores, 0.5, 0.45)
        label, box = kept[:, 1], kept[:, 2]
        return boxes[0][box], scores[0][label, box], label


@torch.onnx.symbolic_helper.parse_args("v", "v", "f", "f")
def traced_suppress(g: Any, boxes: Any, scores: Any, overlap: float, least: float) -> Any:
    """`suppress` for the older exporter."""
    most = g.op("Constant", value_t=torch.tensor([100]))
    limits = [g.op("Constant", value_t=torch.tensor([v])) for v in (overlap, least)]
    return g.op("NonMaxSuppression", boxes, scores, most, *limits)


torch.onnx.register_custom_op_symbolic("edge::suppress", traced_suppress, OPSET)


def dynamo_suppress(boxes: Any, scores: Any, overlap: float, least: float) -> Any:
    """`suppress` for the newer exporter."""
    most = op.Constant(value_ints=[100])
    limits = [op.Constant(value_floats=[value]) for value in (overlap, least)]
    return op.NonMaxSuppression(boxes, scores, most, *limits)


BATCH, LENGTH = {0: "batch"}, {0: "batch", 1: "length"}

NETWORKS = {
    "tagger": Case(Tagger, [whole(200, 2, 7)], [LENGTH], ["words"], ["classes"]),
    "vit": Case(VisionTransformer, [floats(2, 3, 48, 48)], [BATCH], ["image"], ["classes"]),
    "gpt": Case(LanguageModel, [whole(120, 2, 11)], [LENGTH], ["tokens"], ["logits"]),
    "unet": Case(UNet, [floats(1, 3, 32, 40)], [{2: "height", 3: "width"}], ["image"], ["mask"]),
    "packed_gru": Case(
        PackedGRU,
        [floats(3, 9, 6), torch.tensor([9, 5, 2])],
        [{1: "length"}, {}],
        ["x", "lengths"],
        ["rows", "last"],
        ways=["traced"],  # torch.export cannot trace packed sequences
    ),
    "detector": Case(
        Detector,
        [floats(1, 3, 64, 64)],
        names=["image"],
        outputs=["boxes", "scores", "labels"],
        options={"custom_translation_table": {torch.ops.edge.suppress.default: dynamo_suppress}},
    ),
}
