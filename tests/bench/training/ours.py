"""A training step by tinyedge: a Program of which parameters and moments are states."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from tests.bench.training.models import BLOCK, HEADS, LAYERS, RATE, made
from tinyedge import Tensor, checkpoint, optim, value_and_grad
from tinyedge.choices import find_target
from tinyedge.core import dtype as dt
from tinyedge.core.compiler.compile import compile_graph
from tinyedge.core.gradient import trees
from tinyedge.core.program.program import Copy, Program, launches
from tinyedge.core.program.replay import Replay
from tinyedge.core.tensor.graph import Graph, Graphs, Port, State
from tinyedge.model import open_device

Weights = dict[str, Tensor]
MASKED = -1e9


def _normalized(x: Tensor, axes: Any, weight: Tensor, bias: Tensor) -> Tensor:
    centered = x - x.mean(axes, True)
    spread = (centered * centered).mean(axes, True)
    return centered / (spread + 1e-5).sqrt() * weight + bias


def _cross_entropy(scores: Tensor, y: Tensor) -> Tensor:
    """scores [*B, C], y [*B]: the mean over B."""
    hit = y.unsqueeze(-1).eq(Tensor.arange(scores.shape[-1])).cast(scores.dtype)
    return -(scores.log_softmax(-1) * hit).sum() / float(np.prod(y.shape))


def _pooled(x: Tensor, w: Weights, name: str) -> Tensor:
    weight, bias = (w[name + part].reshape((1, -1, 1, 1)) for part in "wb")
    normal = _normalized(x, (0, 2, 3), weight, bias)
    return normal.window(2, 2, 2).window(3, 2, 2).max((4, 5))


def cnn(w: Weights, x: Tensor, y: Tensor) -> Tensor:
    for first, second, norm in (("c1", "c2", "b1"), ("c3", "c4", "b2")):
        for name in (first, second):
            x = x.conv(w[f"{name}w"], w[f"{name}b"]).relu()
        x = _pooled(x, w, norm)
    return _cross_entropy(x.flatten(1) @ w["lw"].transpose() + w["lb"], y)


def _block(h: Tensor, w: Weights) -> Tensor:
    rows, tokens, width = h.shape
    mask = Tensor(np.triu(np.full((tokens, tokens), MASKED, np.float32), 1))
    joint = _normalized(h, -1, w["ln1w"], w["ln1b"]) @ w["qkv"] + w["qkvb"]
    parts = joint.reshape((rows, tokens, 3, HEADS, -1)).permute((2, 0, 3, 1, 4))
    q, k, v = (parts[n] for n in range(3))
    weights = (q @ k.transpose() * float((width // HEADS) ** -0.5) + mask).softmax(-1)
    h = h + (weights @ v).permute((0, 2, 1, 3)).reshape(h.shape) @ w["o"] + w["ob"]
    u = _normalized(h, -1, w["ln2w"], w["ln2b"]) @ w["up"] + w["upb"]
    return h + (u * (u * 1.702).sigmoid()) @ w["down"] + w["downb"]


def gpt(w: Weights, x: Tensor, y: Tensor, *, again: bool = False) -> Tensor:
    """again: blocks are computed again by their gradients."""
    block = checkpoint(_block) if again else _block
    h = w["tok"].gather(0, x) + w["pos"]
    for layer in range(LAYERS):
        h = block(h, {name: w[f"{layer}.{name}"] for name in BLOCK})
    return _cross_entropy(_normalized(h, -1, w["lnw"], w["lnb"]) @ w["head"], y)


def step(model: str, optimizer: str) -> Graphs:
    """A step of "cnn", "gpt" or "gpt again" by "sgd" or "adam"."""
    arrays, batch = made(model.split()[0])
    loss = {"cnn": cnn, "gpt": gpt}.get(model) or (lambda *a: gpt(*a, again=True))
    opt = {"sgd": optim.SGD, "adam": optim.Adam}[optimizer](RATE[optimizer])
    x, y = (Tensor.input(name, a.shape, dt.from_numpy(a.dtype)) for name, a in batch.items())
    first = {name: Tensor.weight(name, array) for name, array in arrays.items()}
    kept = {"model": first, "state": opt.init(first) if opt.slots else {}}
    names = [f"kept {number}" for number in range(len(trees.leaves(kept)))]
    places = [
        Tensor.input(name, t.shape, t.dtype)
        for name, t in zip(names, trees.leaves(kept), strict=True)
    ]
    now = trees.rebuilt(kept, places)
    value, gradients = value_and_grad(loss)(now["model"], x, y)
    given = now["state"] or {"step": Tensor(0, dt.int32)}
    after, state = opt.update(now["model"], gradients, given)
    news = trees.leaves({"model": after, "state": state if opt.slots else {}})
    ports = [Port(t.node.arg.source.name, t.dtype, t.shape) for t in (x, y, *places)]
    graph = Graph(
        tuple(ports),
        (Port("loss", value.dtype, (), value.node),),
        updates=tuple(
            Port(name, t.dtype, t.shape, t.node) for name, t in zip(names, news, strict=True)
        ),
    )
    states = [
        State(name, t.dtype, t.shape, initial=t.numpy())
        for name, t in zip(names, trees.leaves(kept), strict=True)
    ]
    return Graphs({"main": graph}, tuple(states))


def counted(program: Program) -> dict[str, float]:
    """What a step of a program does."""
    (entry,) = program.entries
    return {
        "launches": len(list(launches(entry.steps))),
        "copies": sum(isinstance(step, Copy) for step in entry.steps),
        "arena": sum(arena.bytes for arena in program.arenas) / 1e6,
    }


class Ours:
    """A step that is compiled for a target, on its device."""

    def __init__(self, model: str, optimizer: str, target: str = "cpu") -> None:
        start = time.process_time()
        program = compile_graph(step(model, optimizer), find_target(target)).program
        assert program is not None
        self.compiled = time.process_time() - start
        self.counts = counted(program)
        self.batch = made(model.split()[0])[1]
        self.replay = Replay(program, open_device(program))

    def __call__(self) -> float:
        return float(self.replay.run(self.batch)["loss"])

    def close(self) -> None:
        self.replay.close()
