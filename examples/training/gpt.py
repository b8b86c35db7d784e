"""A small GPT learns Shakespeare's English, character by character.

    python gpt.py                   # 1,000 steps, some minutes of one processor; then it writes
    python gpt.py --steps 100       # to see it begin

4 blocks of 128 numbers, 64 characters of context, 826 thousand weights, 16 lines a step. The loss
is in nats a character, of text that it does not train on.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import numpy as np
from data import Array, plays
from progress import Run, command, count, files

from tinyedge import Tensor, jit, nn, optim, value_and_grad

LAYERS, WIDTH, HEADS, CONTEXT, ROWS = 4, 128, 4, 64, 16
STEPS, RATE, EVERY = 1000, 2e-3, 250
HELD_BACK = 50_000  # characters at the end


class Block(nn.Module):
    """Each character looks at those before it, then thinks for itself."""

    def __init__(self) -> None:
        self.before = nn.LayerNorm(WIDTH)
        self.joint = nn.Linear(WIDTH, 3 * WIDTH)
        self.mixed = nn.Linear(WIDTH, WIDTH)
        self.between = nn.LayerNorm(WIDTH)
        self.up = nn.Linear(WIDTH, 4 * WIDTH)
        self.down = nn.Linear(4 * WIDTH, WIDTH)

    def __call__(self, x: Tensor) -> Tensor:
        rows, tokens, width = x.shape
        parts = self.joint(self.before(x)).reshape((rows, tokens, 3, HEADS, width // HEADS))
        query, key, value = (parts[:, :, n].permute((0, 2, 1, 3)) for n in range(3))
        seen = nn.attention(query, key, value, causal=True)
        x = x + self.mixed(seen.permute((0, 2, 1, 3)).reshape(x.shape))
        return x + self.down(nn.gelu(self.up(self.between(x)), "tanh"))


class GPT(nn.Module):
    def __init__(self, characters: int) -> None:
        self.characters = nn.Embedding(characters, WIDTH)
        self.places = nn.Embedding(CONTEXT, WIDTH)
        self.blocks = [Block() for _ in range(LAYERS)]
        self.norm = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, characters)

    def __call__(self, x: Tensor) -> Tensor:
        """Characters int32 [N, CONTEXT]: the logits of the next ones, [N, CONTEXT, characters]."""
        x = self.characters(x) + self.places(Tensor.arange(CONTEXT))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def loss_of(model: Any, text: Tensor, following: Tensor) -> Tensor:
    logits = model(text)
    return nn.cross_entropy(logits.reshape((-1, logits.shape[-1])), following.reshape((-1,)))


def optimizer(steps: int) -> Any:
    """AdamW, whose rate grows first and then falls to a tenth."""
    return optim.AdamW(
        optim.warmup(min(50, steps), optim.cosine(RATE, steps, RATE / 10)), weight_decay=0.01
    )


def step_of(opt: Any) -> Any:
    @jit(donate=("model", "state"))
    def step(model: Any, state: Any, text: Tensor, following: Tensor) -> Any:
        loss, gradients = value_and_grad(loss_of)(model, text, following)
        return *opt.update(model, optim.clip_by_norm(gradients, 1.0), state), loss

    return step


measured = jit(loss_of)


@jit
def logits_of(model: Any, text: Tensor) -> Tensor:
    return model(text)


def batch(text: Array, rng: np.random.Generator) -> tuple[Array, Array]:
    """ROWS pieces of the text, and each moved on by a character."""
    begins = rng.integers(0, len(text) - CONTEXT - 1, ROWS)
    pieces = text[begins[:, None] + np.arange(CONTEXT + 1)]
    return pieces[:, :-1], pieces[:, 1:]


def held_back(model: Any, text: Array, count: int = 40) -> float:
    """The mean loss of pieces of the text, always the same ones."""
    rng = np.random.default_rng(1)
    return float(np.mean([measured(model, *batch(text, rng)).item() for _ in range(count)]))


def written(model: Any, first: Array, count: int, rng: np.random.Generator) -> list[int]:
    """So many characters after the first ones, each drawn from what the model expects."""
    found = [int(each) for each in first]
    for _ in range(count):
        seen = found[-CONTEXT:]
        text = np.zeros((1, CONTEXT), np.int32)
        text[0, : len(seen)] = seen
        logits = logits_of(model, text).numpy()[0, len(seen) - 1] / 0.8
        likely = np.exp(logits - logits.max())
        found.append(int(rng.choice(len(likely), p=likely / likely.sum())))
    return found


def train(steps: int, seed: int = 0) -> tuple[Run, str]:
    """The run and its model's characters; found: the loss of held-back text every EVERY steps."""
    nn.seed(seed)
    rng = np.random.default_rng(seed)
    text = plays()
    characters = "".join(sorted(set(text)))
    places = {character: n for n, character in enumerate(characters)}
    tokens = np.array([places[character] for character in text], np.int32)
    known, other = tokens[:-HELD_BACK], tokens[-HELD_BACK:]
    run, opt = Run(GPT(len(characters))), optimizer(steps)
    step, state = step_of(opt), opt.init(run.model)
    with run.steps("gpt", steps) as done:
        for number in range(1, steps + 1):
            run.model, state, loss = step(run.model, state, *batch(known, rng))
            done(loss.item(), f", held back {run.found[-1]:.3f}" if run.found else "")
            if number % EVERY == 0 or number == steps:
                run.found.append(held_back(run.model, other))
    return run, characters


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--steps", type=count, default=STEPS)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--write", type=int, default=400, metavar="N", help="characters at the end")
    parser.add_argument("--prompt", default="\n", help="what they follow")
    files(parser)
    options = parser.parse_args()
    begin = time.process_time()
    run, characters = train(options.steps, options.seed)
    said = ", ".join(f"{each:.3f}" for each in run.found) or "not measured yet"
    print(f"nats a character of held-back text: {said}; {time.process_time() - begin:.0f} s")
    run.write(options, "GPT: nats a character")
    unknown = set(options.prompt) - set(characters)
    if unknown:
        parser.error(f"no play has the character {min(unknown)!r}")
    first = np.array([characters.index(each) for each in options.prompt], np.int32)
    rng = np.random.default_rng(options.seed)
    print("".join(characters[n] for n in written(run.model, first, options.write, rng)))


if __name__ == "__main__":
    command(main)
