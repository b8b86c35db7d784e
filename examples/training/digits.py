"""LeNet learns to read digits, in less than a minute of one processor; and becomes a bundle that
learns where it runs.

    python digits.py                                # 8 epochs; the accuracy after each
    python digits.py --export digits.tinyedge       # a bundle with the entries main and train
    python digits.py --page site                    # a page with a button that trains

8,000 digits, each moved by up to two pixels whenever it is seen; 2,000 others tell how good it is.
"""

from __future__ import annotations

import argparse
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from data import TRAINED, Array, digits
from progress import Run, command, count, files, folder

from tinyedge import Dim, Tensor, jit, nn, optim, value_and_grad

BATCH, EPOCHS, RATE = 100, 8, 3e-3
MOST = 500  # digits that are read at once
SHIFT = 2  # pixels

OPTIMIZER = optim.Adam(optim.warmup(40, optim.cosine(RATE, EPOCHS * TRAINED // BATCH)))


def lenet(norms: bool = True) -> nn.Sequential:
    """Two convolutions and two products, for digits of 28 x 28 pixels with values from 0 to 1.

    norms: of batches. They make it better and, in a page, half as large again to download.
    """
    first, second = ([nn.BatchNorm(channels)] if norms else [] for channels in (8, 16))
    return nn.Sequential(
        *(nn.Conv2d(1, 8, 5, padding=2), *first, nn.max_pool(2), nn.relu),
        *(nn.Conv2d(8, 16, 5), *second, nn.max_pool(2), nn.relu),
        *(nn.flatten, nn.Linear(400, 120), nn.relu, nn.Linear(120, 10)),
    )


def loss_of(model: Any, image: Tensor, target: Tensor) -> tuple[Tensor, Any]:
    """The loss of a batch, and the model with new running means in its norms."""
    with nn.training() as run:
        loss = nn.cross_entropy(model(image), target)
    return loss, run.updated(model)


@jit(donate=("model", "state"))
def step(model: Any, state: Any, image: Tensor, target: Tensor) -> Any:
    """One step by a batch [N, 1, 28, 28] and its labels [N]."""
    (loss, model), gradients = value_and_grad(loss_of, has_aux=True)(model, image, target)
    return *OPTIMIZER.update(model, gradients, state), loss


@jit(sizes={"image": (Dim("count", 1, MOST), None, None, None)})
def predict(model: Any, image: Tensor) -> Tensor:
    """How likely each digit is, [N, 10]."""
    return model(image).softmax(-1)


def batches(
    images: Array, labels: Array, rng: np.random.Generator
) -> Iterator[tuple[Array, Array]]:
    """Each picture once, in any order, moved by up to SHIFT pixels."""
    size = images.shape[-1]
    framed = np.pad(images, ((0, 0), (SHIFT, SHIFT), (SHIFT, SHIFT)))
    order = rng.permutation(len(images))
    for begin in range(0, len(order) - BATCH + 1, BATCH):
        chosen = order[begin : begin + BATCH]
        down, right = rng.integers(0, 2 * SHIFT + 1, (2, BATCH))
        rows = down[:, None] + np.arange(size)
        columns = right[:, None] + np.arange(size)
        moved = framed[chosen[:, None, None], rows[:, :, None], columns[:, None, :]]
        yield scaled(moved), labels[chosen]


def scaled(images: Array) -> Array:
    """uint8 [N, 28, 28] as the model wants them: float32 [N, 1, 28, 28] from 0 to 1."""
    return (images[:, None] / np.float32(255)).astype(np.float32)


def accuracy(model: Any, images: Array, labels: Array) -> float:
    """Which part of the pictures is read rightly."""
    right = 0
    for begin in range(0, len(images), MOST):
        found = predict(model, scaled(images[begin : begin + MOST])).numpy().argmax(-1)
        right += int((found == labels[begin : begin + MOST]).sum())
    return right / len(images)


def train(seed: int, epochs: int = EPOCHS, norms: bool = True) -> Run:
    """Its model; found: the accuracy after each epoch."""
    nn.seed(seed)
    rng = np.random.default_rng(seed)
    (images, labels), test = digits()
    run = Run(lenet(norms))
    state = OPTIMIZER.init(run.model)
    with run.steps("digits", epochs * (len(images) // BATCH)) as done:
        for _ in range(epochs):
            for image, target in batches(images, labels, rng):
                run.model, state, loss = step(run.model, state, image, target)
                done(loss.item(), f", {run.found[-1]:.2%} right" if run.found else "")
            run.found.append(accuracy(run.model, *test))
    return run


def untrained() -> tuple[Any, Array, Array]:
    """The LeNet of a bundle, and a batch."""
    nn.seed(0)
    (images, labels), _ = digits()
    return lenet(norms=False), scaled(images[:BATCH]), labels[:BATCH]


def export(out: Path, target: str) -> Path:
    """A bundle with an untrained LeNet: `train` is a step by a batch, `main` reads digits."""
    model, image, label = untrained()
    return step.export(
        out,
        target=target,
        example=(model, OPTIMIZER.init(model), image, label),
        outputs=["loss"],
        entry="train",
        entries={"main": (predict, (model, image[:10]))},
        force=True,
    )


def page(out: Path) -> None:
    """A folder to serve: the page of `page/`, the bundle, and the digits as bytes."""
    out.mkdir(parents=True, exist_ok=True)
    for file in (Path(__file__).parent / "page").iterdir():
        shutil.copy(file, out)
    export(out / "digits.tinyedge", "webgpu")
    for name, (images, labels) in zip(("train", "test"), digits(), strict=True):
        (out / f"{name}-images.bin").write_bytes(images.tobytes())
        (out / f"{name}-labels.bin").write_bytes(labels.astype(np.uint8).tobytes())


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seed", type=int, default=0, help="of weights, order and shifts")
    parser.add_argument("--epochs", type=count, default=EPOCHS)
    files(parser)
    parser.add_argument(
        "--export", type=folder, metavar="FOLDER", help="write a bundle, train nothing"
    )
    parser.add_argument("--page", type=folder, metavar="FOLDER", help="write a page that trains")
    parser.add_argument("--target", default="webgpu", help="of the bundle; default: webgpu")
    options = parser.parse_args()
    if options.export:
        print(export(options.export, options.target))
    if options.page:
        page(options.page)
        print(f"python -m http.server --directory {options.page}, then open localhost:8000")
    if options.export or options.page:
        return
    begin = time.process_time()
    run = train(options.seed, options.epochs)
    said = ", ".join(f"{each:.2%}" for each in run.found) or "none is whole"
    print(f"right after each epoch: {said}; {time.process_time() - begin:.0f} s of processor time")
    run.write(options, "digits: the loss")


if __name__ == "__main__":
    command(main)
