"""Inputs that the models were made for: drawn text, a face, a picture, a sweep, a sentence, a file.

Noise is a poor test of a detector: nothing is found, and what is compared are the last digits of
numbers near zero. `test_inputs.py` checks that each model answers to its input.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
Arrays = dict[str, Array]

# Five columns of seven rows; a row is a number of five bits.
_FONT = {
    "A": (14, 17, 17, 31, 17, 17, 17),
    "D": (30, 17, 17, 17, 17, 17, 30),
    "E": (31, 16, 16, 30, 16, 16, 31),
    "G": (14, 17, 16, 23, 17, 17, 14),
    "I": (14, 4, 4, 4, 4, 4, 14),
    "L": (16, 16, 16, 16, 16, 16, 31),
    "N": (17, 25, 25, 21, 19, 19, 17),
    "O": (14, 17, 17, 17, 17, 17, 14),
    "R": (30, 17, 17, 30, 20, 18, 17),
    "T": (31, 4, 4, 4, 4, 4, 4),
    "X": (17, 17, 10, 4, 10, 17, 17),
    "Y": (17, 17, 10, 4, 4, 4, 4),
    " ": (0, 0, 0, 0, 0, 0, 0),
}
TEXT = "TINYEDGE "


def word(text: str, scale: int) -> Array:
    """Text as ones on zeros, a dot of the font as `scale` by `scale` pixels: 7 * scale high."""
    columns = []
    for letter in text:
        rows = [[(row >> (4 - column)) & 1 for column in range(5)] for row in _FONT[letter]]
        columns.append(np.pad(np.array(rows, np.float32), ((0, 0), (0, 1))))
    return np.kron(np.concatenate(columns, axis=1), np.ones((scale, scale), np.float32))


def line(height: int, width: int, scale: int) -> Array:
    """One line of dark text on light ground, in the middle of height and repeated along width."""
    ink = np.zeros((height, width), np.float32)
    drawn = np.tile(word(TEXT, scale), (1, width // (6 * scale * len(TEXT)) + 1))
    top, left = (height - 7 * scale) // 2, min(scale, width)
    ink[top : top + 7 * scale, left:] = drawn[:, : width - left]
    return 0.95 - 0.85 * ink


def page(height: int, width: int) -> Array:
    """Lines of text between blank ones."""
    scale = 2 if height < 96 or width < 96 else 3
    pitch = 16 * scale
    rows = [line(pitch, width, scale) for _ in range(height // pitch)]
    rows.append(np.full((height - pitch * len(rows), width), 0.95, np.float32))
    return np.concatenate(rows)


def picture(height: int, width: int) -> Array:
    """A head before a graded ground, with grain: [height, width, 3] in 0..255, red green blue."""
    y, x = np.mgrid[0:height, 0:width].astype(np.float32)
    y, x = y / height - 0.5, x / width - 0.5
    image = np.stack([0.35 + 0.3 * y, 0.45 - 0.2 * x, 0.6 + 0.2 * x * y], axis=-1)

    def ellipse(cy: float, cx: float, h: float, w: float, color: tuple[float, ...]) -> None:
        inside = ((y - cy) / h) ** 2 + ((x - cx) / w) ** 2 < 1
        image[inside] = color

    ellipse(-0.08, 0.0, 0.44, 0.36, (0.25, 0.16, 0.1))  # hair
    ellipse(0.02, 0.0, 0.4, 0.29, (0.87, 0.68, 0.56))  # face
    for side in (-1, 1):
        ellipse(-0.15, 0.13 * side, 0.015, 0.07, (0.25, 0.16, 0.1))  # brow
        ellipse(-0.08, 0.13 * side, 0.03, 0.06, (0.96, 0.95, 0.93))  # eye
        ellipse(-0.08, 0.13 * side, 0.028, 0.028, (0.15, 0.2, 0.3))
        ellipse(0.1, 0.03 * side, 0.015, 0.015, (0.5, 0.3, 0.25))  # nostril
    ellipse(0.05, 0.0, 0.06, 0.02, (0.93, 0.76, 0.65))  # nose
    ellipse(0.22, 0.0, 0.03, 0.11, (0.7, 0.3, 0.3))  # mouth
    grain = np.random.default_rng(0).normal(0, 0.015, image.shape).astype(np.float32)
    return np.clip(image + grain, 0, 1) * 255


def channels_first(image: Array) -> Array:
    """[height, width] or [height, width, 3] -> [1, 3, height, width]."""
    if image.ndim == 2:
        image = np.repeat(image[:, :, None], 3, axis=2)
    return np.ascontiguousarray(image.transpose(2, 0, 1)[None], np.float32)


def face(height: int, width: int) -> Array:
    """What the three networks of MTCNN get: [1, height, width, 3] in -1..1."""
    return np.ascontiguousarray((picture(height, width)[None] - 127.5) / 128, np.float32)


def classified() -> Array:
    """What opennsfw gets: blue green red, the mean color taken away."""
    mean = np.array([104, 117, 123], np.float32)
    return np.ascontiguousarray((picture(224, 224)[:, :, ::-1] - mean)[None], np.float32)


def captcha() -> Array:
    """What common_det gets: letters on a picture, 416 x 416 in 0..255, gray below it."""
    image = np.full((416, 416, 3), 114, np.float32)
    image[:208] = picture(208, 416)
    for row, column, letter, scale in ((30, 40, "A", 8), (90, 150, "E", 9), (40, 280, "R", 10)):
        ink = word(letter, scale)
        place = image[row : row + ink.shape[0], column : column + ink.shape[1]]
        place[ink > 0] = (200, 30, 40)
    return channels_first(image)


def detected(height: int, width: int) -> Array:
    """What the text detector gets: a page with the mean and deviation of its training data."""
    mean = np.array([0.485, 0.456, 0.406], np.float32).reshape(1, 3, 1, 1)
    deviation = np.array([0.229, 0.224, 0.225], np.float32).reshape(1, 3, 1, 1)
    return np.asarray((channels_first(page(height, width)) - mean) / deviation, np.float32)


def recognized(width: int) -> Array:
    """What the text recognizer gets: a line of 48 pixels in -1..1."""
    return 2 * channels_first(line(48, width, 4)) - 1


# "[CLS] the quick brown fox jumps over the lazy dog . [SEP]" in the vocabulary of BERT.
_SENTENCE = (101, 1996, 4248, 2829, 4419, 14523, 2058, 1996, 13971, 3899, 1012, 102)


def sentence(batch: int, length: int) -> Arrays:
    """Token ids and the mask of those that count. Rows differ in length, padded with zeros."""
    ids = np.resize(np.array(_SENTENCE, np.int64), (batch, length))
    mask = np.ones((batch, length), np.int64)
    for row in range(batch):
        end = max(1, length - row - length // 8)
        ids[row] = np.roll(ids[row], row)
        ids[row, 0], ids[row, end:], mask[row, end:] = _SENTENCE[0], 0, 0
    return {"input_ids": ids, "attention_mask": mask}


def file_bytes(file: Path) -> Array:
    """What magika gets: the first and the last 1024 bytes of a file without its outer blanks."""
    data = file.read_bytes().strip()
    head = np.frombuffer(data[:1024], np.uint8).astype(np.int32)
    tail = np.frombuffer(data[-1024:], np.uint8).astype(np.int32)
    padding = 256
    head = np.pad(head, (0, 1024 - len(head)), constant_values=padding)
    tail = np.pad(tail, (1024 - len(tail), 0), constant_values=padding)
    return np.concatenate([head, tail])[None]


def sweep(samples: int, low: float = 100.0, high: float = 800.0, rate: int = 16000) -> Array:
    """A tone that rises from `low` to `high` Hz, with two harmonics and a little noise."""
    seconds = np.arange(samples) / rate
    length = samples / rate
    growth = np.log(high / low) / length
    phase = 2 * np.pi * low * (np.exp(growth * seconds) - 1) / growth
    tone = np.sin(phase) + 0.4 * np.sin(2 * phase) + 0.2 * np.sin(3 * phase)
    noise = np.random.default_rng(5).normal(0, 0.003, samples)
    return (0.3 * tone + noise)[None].astype(np.float32)
