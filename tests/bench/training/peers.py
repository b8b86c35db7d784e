"""The same steps by torch and by tinygrad's JIT, in a process that knows nothing of tinyedge."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tests.bench.training.models import BLOCK, HEADS, LAYERS, RATE, ROWS, TOKENS, WIDTH, made
from tests.bench.worker import measure, serve, spent

MASK = np.triu(np.full((TOKENS, TOKENS), -1e9, np.float32), 1)


def _torch(model: str, optimizer: str) -> tuple[Callable[[], float], str]:
    import torch
    import torch.nn.functional as functional

    torch.set_num_threads(1)
    arrays, batch = made(model)
    w = {name: torch.tensor(array, requires_grad=True) for name, array in arrays.items()}
    x, y = torch.tensor(batch["x"]), torch.tensor(batch["y"]).long()
    mask = torch.tensor(MASK)
    kind = {"sgd": torch.optim.SGD, "adam": torch.optim.Adam}[optimizer]
    opt = kind(w.values(), lr=RATE[optimizer])

    def cnn() -> Any:
        h = x
        for first, second, norm in (("c1", "c2", "b1"), ("c3", "c4", "b2")):
            for name in (first, second):
                h = functional.conv2d(h, w[f"{name}w"], w[f"{name}b"]).relu()
            scale, shift = w[f"{norm}w"], w[f"{norm}b"]
            h = functional.max_pool2d(
                functional.batch_norm(h, None, None, scale, shift, training=True), 2
            )
        return functional.cross_entropy(h.flatten(1) @ w["lw"].T + w["lb"], y)

    def gpt() -> Any:
        h = w["tok"][x.long()] + w["pos"]
        for layer in range(LAYERS):
            h = _block(
                h, {name: w[f"{layer}.{name}"] for name in BLOCK}, mask, functional.layer_norm
            )
        scores = functional.layer_norm(h, (WIDTH,), w["lnw"], w["lnb"]) @ w["head"]
        return functional.cross_entropy(scores.flatten(0, 1), y.flatten())

    def step() -> float:
        opt.zero_grad()
        loss = cnn() if model == "cnn" else gpt()
        loss.backward()
        opt.step()
        return float(loss)

    return step, str(torch.__version__)


def _block(h: Any, w: dict[str, Any], mask: Any, norm: Callable[..., Any]) -> Any:
    """A block of the GPT, of tensors of either library."""
    joint = norm(h, (WIDTH,), w["ln1w"], w["ln1b"]) @ w["qkv"] + w["qkvb"]
    parts = joint.reshape(ROWS, TOKENS, 3, HEADS, WIDTH // HEADS).permute(2, 0, 3, 1, 4)
    weights = (parts[0] @ parts[1].transpose(-1, -2) * (WIDTH // HEADS) ** -0.5 + mask).softmax(-1)
    mixed = (weights @ parts[2]).permute(0, 2, 1, 3).reshape(ROWS, TOKENS, WIDTH)
    h = h + mixed @ w["o"] + w["ob"]
    u = norm(h, (WIDTH,), w["ln2w"], w["ln2b"]) @ w["up"] + w["upb"]
    return h + (u * (u * 1.702).sigmoid()) @ w["down"] + w["downb"]


def _tinygrad(model: str, optimizer: str) -> tuple[Callable[[], float], str]:
    from importlib.metadata import version

    from tinygrad import Context, Tensor, TinyJit, nn

    arrays, batch = made(model)
    w = {name: Tensor(array).realize() for name, array in arrays.items()}
    x, y, mask = (Tensor(array).realize() for array in (*batch.values(), MASK))
    kind = {"sgd": nn.optim.SGD, "adam": nn.optim.Adam}[optimizer]
    opt = kind(list(w.values()), lr=RATE[optimizer])

    def norm(h: Any, axes: Any, weight: Any, bias: Any) -> Any:
        return h.layernorm(-1) * weight + bias

    def cnn(x: Any) -> Any:
        h = x
        for first, second, name in (("c1", "c2", "b1"), ("c3", "c4", "b2")):
            for each in (first, second):
                h = h.conv2d(w[f"{each}w"], w[f"{each}b"]).relu()
            centered = h - h.mean((0, 2, 3), keepdim=True)
            spread = (centered * centered).mean((0, 2, 3))
            inverse = (spread + 1e-5).rsqrt()
            mean = h.mean((0, 2, 3))
            h = h.batchnorm(w[f"{name}w"], w[f"{name}b"], mean, inverse).max_pool2d()
        return h.flatten(1) @ w["lw"].T + w["lb"]

    def gpt(x: Any) -> Any:
        h = w["tok"][x] + w["pos"]
        for layer in range(LAYERS):
            h = _block(h, {name: w[f"{layer}.{name}"] for name in BLOCK}, mask, norm)
        return (norm(h, None, w["lnw"], w["lnb"]) @ w["head"]).flatten(0, 1)

    @TinyJit
    @Context(TRAINING=1)
    def jitted(x: Any, y: Any) -> Any:
        opt.zero_grad()
        scores = cnn(x) if model == "cnn" else gpt(x)
        loss = scores.sparse_categorical_crossentropy(y.flatten()).backward()
        return loss.realize(*opt.schedule_step())

    return lambda: float(jitted(x, y).item()), version("tinygrad")


SIDES = {"torch": _torch, "tinygrad": _tinygrad}
_steps: dict[tuple[str, str, str], Callable[[], float]] = {}


def handle(request: dict[str, Any]) -> dict[str, Any]:
    """{"make": (side, model, optimizer), "first": n}: n steps' losses, the version, and the CPU
    seconds up to the second; {"run": .., "times": n}: CPU seconds of n more.
    """
    if "make" not in request:
        return {**measure(_steps[request["run"]], request["times"])}
    side, model, optimizer = key = request["make"]
    begin = spent()
    _steps[key], version = SIDES[side](model, optimizer)
    losses = [_steps[key]() for _ in range(2)]
    cold = spent() - begin
    losses += [_steps[key]() for _ in range(request["first"] - 2)]
    return {"losses": losses, "version": version, "cold": cold}


if __name__ == "__main__":
    serve(handle)
