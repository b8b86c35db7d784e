"""What a call costs beside what it computes: `python -m tests.bench.overhead`.

CPU microseconds of `a * b + c` of 1,000 floats, eager and compiled, of a replayed launch, and CPU
seconds of a process that trains LeNet until its second step is done, beside tinygrad.
Each side runs in processes of its own, in turn, with nothing cached on the disk; medians of the
rounds. tinygrad is installed as for tests.bench.opencl.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

SIZE, BATCH = 1000, 64
BARS = {"eager": 0.15, "jit": 0.3, "cold": 0.25}  # parts of tinygrad's
LAUNCH_BAR = 1.0  # microseconds
WORDS = {
    "eager": "a * b + c, eager, us",
    "jit": "a * b + c, compiled, us",
    "launch": "a replayed launch, us",
    "cold": "to the second step, s",
}


def middle(call: Callable[[], Any], count: int) -> float:
    """The median CPU microseconds of a call."""
    for _ in range(20):
        call()
    taken = []
    for _ in range(count):
        start = time.process_time_ns()
        call()
        taken.append(time.process_time_ns() - start)
    return statistics.median(taken) / 1e3


def arrays() -> list[Any]:
    random = np.random.default_rng(0)
    return [random.normal(size=SIZE).astype(np.float32) for _ in range(3)]


def chain(a: Any, b: Any, c: Any) -> Any:
    """32 launches, each of what the one before made."""
    for _ in range(32):
        a = (a * b + c).in_memory()
    return a


def lenet() -> tuple[list[Any], Any, Any]:
    """Weights, inputs and labels."""
    random = np.random.default_rng(1)
    shapes = ((6, 1, 5, 5), (16, 6, 5, 5), (256, 32), (32, 10))
    weights = [random.normal(0, 0.05, shape).astype(np.float32) for shape in shapes]
    x = random.normal(size=(BATCH, 1, 28, 28)).astype(np.float32)
    return weights, x, random.integers(0, 10, BATCH)


def tinyedge_calls() -> dict[str, float]:
    import tinyedge
    from tinyedge.targets.cpu.device import CpuDevice

    a, b, c = (tinyedge.Tensor(each).realize() for each in arrays())
    compiled = tinyedge.jit(lambda a, b, c: a * b + c)
    seen: list[Any] = []
    replay = CpuDevice.replay
    CpuDevice.replay = lambda self, made: seen.append((self, made)) or replay(self, made)
    tinyedge.jit(chain)(a, b, c)
    CpuDevice.replay = replay
    device, recording = seen[-1]
    return {
        "eager": middle(lambda: (a * b + c).realize(), 1000),
        "jit": middle(lambda: compiled(a, b, c), 1000),
        "launch": middle(lambda: device.replay(recording), 2000) / len(recording.commands),
    }


def tinygrad_calls() -> dict[str, float]:
    from tinygrad import Tensor, TinyJit

    a, b, c = (Tensor(each).realize() for each in arrays())
    compiled = TinyJit(lambda a, b, c: (a * b + c).realize())
    return {
        "eager": middle(lambda: (a * b + c).realize(), 100),
        "jit": middle(lambda: compiled(a, b, c), 1000),
    }


def tinyedge_steps() -> None:
    import tinyedge
    from tinyedge import optim

    optimizer = optim.SGD(0.1)
    first, x, labels = lenet()
    targets = np.eye(10, dtype=np.float32)[labels]

    def pooled(x: Any) -> Any:
        batch, channels, height, width = x.shape
        return x.reshape((batch, channels, height // 2, 2, width // 2, 2)).max((3, 5))

    def loss(model: Any, x: Any, targets: Any) -> Any:
        x = pooled(x.conv(model[0]).relu())
        x = pooled(x.conv(model[1]).relu()).reshape((BATCH, 256))
        scores = (x @ model[2]).relu() @ model[3]
        return -(scores.log_softmax(-1) * targets).sum(-1).mean()

    @tinyedge.jit(donate=("model", "state"))
    def step(model: Any, state: Any, x: Any, targets: Any) -> Any:
        value, gradients = tinyedge.value_and_grad(loss)(model, x, targets)
        return *optimizer.update(model, gradients, state), value

    model = [tinyedge.Tensor(each) for each in first]
    state = optimizer.init(model)
    for _ in range(2):
        model, state, value = step(model, state, x, targets)
        value.item()


def tinygrad_steps() -> None:
    from tinygrad import Context, Tensor, TinyJit, nn

    first, x, labels = lenet()
    model = [Tensor(each) for each in first]
    optimizer = nn.optim.SGD(model, lr=0.1)
    images, targets = Tensor(x).realize(), Tensor(labels.astype(np.int32)).realize()

    @TinyJit
    def step(images: Any, targets: Any) -> Any:
        optimizer.zero_grad()
        x = images.conv2d(model[0]).relu().max_pool2d()
        x = x.conv2d(model[1]).relu().max_pool2d().reshape(BATCH, 256)
        scores = (x @ model[2]).relu() @ model[3]
        value = scores.sparse_categorical_crossentropy(targets)
        value.backward()
        return value.realize(*optimizer.schedule_step())

    with Context(TRAINING=1):
        for _ in range(2):
            step(images, targets).item()


def child(side: str, what: str) -> None:
    """Measure in this process, and print it."""
    if what == "calls":
        found = {"tinyedge": tinyedge_calls, "tinygrad": tinygrad_calls}[side]()
    else:
        {"tinyedge": tinyedge_steps, "tinygrad": tinygrad_steps}[side]()
        used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
        found = {"cold": sum(each.ru_utime + each.ru_stime for each in used)}
    print(json.dumps(found))


def measured(side: str, what: str) -> dict[str, float]:
    """A side, in a process of its own."""
    from tests.study.sides import environment

    with tempfile.TemporaryDirectory() as folder:
        chosen = {
            **os.environ,
            **environment(side, 1),
            "XDG_CACHE_HOME": folder,
            "CACHEDB": str(Path(folder) / "cache.db"),
        }
        command = [sys.executable, "-m", "tests.bench.overhead", "--child", side, what]
        done = subprocess.run(command, check=True, capture_output=True, text=True, env=chosen)
    return dict(json.loads(done.stdout.splitlines()[-1]))


def report(found: dict[str, dict[str, list[float]]]) -> list[str]:
    """The table's lines."""
    lines = ["| | tinyedge | tinygrad | ratio | bar |", "|---|---|---|---|---|"]
    for name, words in WORDS.items():
        ours = statistics.median(found["tinyedge"][name])
        if name in BARS:
            theirs = statistics.median(found["tinygrad"][name])
            rest = f"{theirs:.4g} | {ours / theirs:.3f}x | {BARS[name]}x"
        else:
            rest = f"- | - | {LAUNCH_BAR} us"
        lines.append(f"| {words} | {ours:.4g} | {rest} |")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=5, help="processes a side (default: 5)")
    parser.add_argument("--child", nargs=2, metavar=("SIDE", "WHAT"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        child(*options.child)
        return
    from tests.study import sides

    refused = sides.install(["tinygrad"], print)
    if refused:
        sys.exit(f"tinygrad: {refused['tinygrad']}")
    found: dict[str, dict[str, list[float]]] = {"tinyedge": {}, "tinygrad": {}}
    for _ in range(options.rounds):
        for side, values in found.items():
            for what in ("calls", "cold"):
                for name, value in measured(side, what).items():
                    values.setdefault(name, []).append(value)
    print(*report(found), sep="\n")


if __name__ == "__main__":
    main()
