"""A rectified flow learns to draw digits: from noise, along lines that are nearly straight.

    python flow.py                    # trains for some minutes, then draws digits.svg

The network is told a picture that is part noise, and how much; it learns the way from the noise to
the picture (X. Liu, C. Gong, Q. Liu, Flow Straight and Fast, 2022). To draw, one begins with noise
and goes that way in a few steps. Which digit it shall be is told, too.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import numpy as np
from data import Array, digits
from progress import Run, command, count, files, place

from tinyedge import Tensor, jit, nn, optim, random, value_and_grad

BATCH, STEPS, RATE = 32, 1200, 2e-3
WIDTH, TOLD = 32, 64  # channels at 14 x 14; numbers that say how much is noise, and the digit
DRAWN = 20  # steps of a drawing


class Level(nn.Module):
    """Two convolutions, between which the picture hears how much is noise, and the digit."""

    def __init__(self, inputs: int, outputs: int) -> None:
        self.first = nn.Conv2d(inputs, outputs, 3, padding=1)
        self.norm = nn.GroupNorm(8, outputs)
        self.told = nn.Linear(TOLD, 2 * outputs)
        self.second = nn.Conv2d(outputs, outputs, 3, padding=1)

    def __call__(self, x: Tensor, told: Tensor) -> Tensor:
        x = self.first(x)
        factor, shift = self.told(told).reshape((x.shape[0], 2, -1, 1, 1)).permute((1, 0, 2, 3, 4))
        return x + self.second(nn.silu(self.norm(x) * (factor + 1.0) + shift))


class Flow(nn.Module):
    """A U-Net for pictures [N, 1, 28, 28], most of which happens at 14 x 14 and 7 x 7."""

    def __init__(self) -> None:
        self.digit = nn.Embedding(10, TOLD)
        self.time = nn.Linear(8, TOLD)
        self.both = nn.Linear(TOLD, TOLD)
        self.stem = nn.Conv2d(1, WIDTH, 4, stride=2, padding=1)
        self.wide = Level(WIDTH, WIDTH)
        self.down = nn.Conv2d(WIDTH, 2 * WIDTH, 3, stride=2, padding=1)
        self.deep = [Level(2 * WIDTH, 2 * WIDTH), Level(2 * WIDTH, 2 * WIDTH)]
        self.up = nn.ConvTranspose2d(2 * WIDTH, WIDTH, 2, stride=2)
        self.joined = Level(2 * WIDTH, WIDTH)
        self.last = nn.ConvTranspose2d(WIDTH, 1, 4, stride=2, padding=1)

    def __call__(self, x: Tensor, time: Tensor, digit: Tensor) -> Tensor:
        """The way at the time [N] (0: noise, 1: picture) towards the digits int32 [N]."""
        angles = time.unsqueeze(-1) * Tensor(np.pi * 2 ** np.arange(-1, 3, dtype=np.float32))
        waves = Tensor.concat([angles.sin(), angles.cos()], -1)
        told = nn.silu(self.both(nn.silu(self.time(waves) + self.digit(digit))))
        wide = self.wide(self.stem(x), told)
        deep = self.down(nn.silu(wide))
        for level in self.deep:
            deep = level(deep, told)
        joined = Tensor.concat([self.up(nn.silu(deep)), wide], 1)
        return self.last(nn.silu(self.joined(joined, told)))


OPTIMIZER = optim.Adam(optim.warmup(50, optim.cosine(RATE, STEPS)))


def loss_of(model: Any, picture: Tensor, digit: Tensor, key: Tensor) -> Tensor:
    """How far the network's way is from the straight one, at a time that is drawn."""
    for_noise, for_time = random.split(key)
    noise = random.normal(for_noise, picture.shape)
    time = random.uniform(for_time, (picture.shape[0],))
    part = time.reshape((-1, 1, 1, 1))
    way = model(noise + (picture - noise) * part, time, digit)
    return nn.mse_loss(way, picture - noise)


@jit(donate=("model", "state"))
def step(model: Any, state: Any, picture: Tensor, digit: Tensor, key: Tensor) -> Any:
    loss, gradients = value_and_grad(loss_of)(model, picture, digit, key)
    return *OPTIMIZER.update(model, gradients, state), loss


@jit
def moved(model: Any, x: Tensor, time: Tensor, digit: Tensor) -> Tensor:
    """A step of a drawing, by Euler's method."""
    return x + model(x, time, digit) * (1 / DRAWN)


def drawn(model: Any, digit: Array, seed: int = 0) -> Array:
    """Pictures of these digits: [N, 28, 28], from -1 (paper) to 1 (ink)."""
    x = np.random.default_rng(seed).normal(size=(len(digit), 1, 28, 28)).astype(np.float32)
    for number in range(DRAWN):
        x = moved(model, x, np.full(len(digit), number / DRAWN, np.float32), digit).numpy()
    return x[:, 0]


def train(steps: int = STEPS, seed: int = 0) -> Run:
    nn.seed(seed)
    rng = np.random.default_rng(seed)
    (images, labels), _ = digits()
    run = Run(Flow())
    state, key = OPTIMIZER.init(run.model), random.key(seed)
    with run.steps("flow", steps) as done:
        for number in range(steps):
            chosen = rng.integers(0, len(images), BATCH)
            picture = (images[chosen, None] / 127.5 - 1).astype(np.float32)
            now = random.fold_in(key, Tensor(np.uint32(number)))
            run.model, state, loss = step(run.model, state, picture, labels[chosen], now)
            done(loss.item())
    return run


def sheet(file: Path, pictures: Array, columns: int) -> None:
    """Pictures side by side, a square for each pixel with ink."""
    rows = -(-len(pictures) // columns)
    size = pictures.shape[-1] + 2
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {columns * size} {rows * size}" '
        'shape-rendering="crispEdges">',
        '<rect width="100%" height="100%" fill="white"/>',
    ]
    for number, picture in enumerate(pictures):
        left, top = number % columns * size + 1, number // columns * size + 1
        for y, x in np.argwhere(picture > -0.9):
            gray = round(255 - 127.5 * (min(float(picture[y, x]), 1.0) + 1))
            place = f'x="{left + x}" y="{top + y}" width="1" height="1"'
            parts.append(f'<rect {place} fill="rgb({gray},{gray},{gray})"/>')
    file.write_text("\n".join([*parts, "</svg>", ""]))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--steps", type=count, default=STEPS)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=place, default=Path("digits.svg"), help="default: digits.svg")
    files(parser)
    options = parser.parse_args()
    begin = time.process_time()
    run = train(options.steps, options.seed)
    last = float(np.mean(run.losses[-100:]))
    print(f"loss of the last 100 steps: {last:.3f}; {time.process_time() - begin:.0f} s")
    run.write(options, "flow: the loss", 0.98)
    sheet(options.out, drawn(run.model, np.tile(np.arange(10, dtype=np.int32), 5)), 10)
    print(options.out)


if __name__ == "__main__":
    command(main)
