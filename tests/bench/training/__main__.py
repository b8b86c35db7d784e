"""Training steps beside tinygrad's JIT and torch, one thread each, on one batch.

    python -m tests.bench.training                        # all steps, all sides
    python -m tests.bench.training cnn:sgd --sides torch
    python -m tests.bench.training --page                 # a page's step beside TensorFlow.js

Steps: cnn:sgd, cnn:adam (tinygrad's beautiful_mnist, 64 images), gpt:adam (4 layers of 128, 16 rows
of 64 characters) and "gpt again:adam", of which the blocks are checkpoints. Sides take turns, in
processes of their own; times are medians of CPU seconds. The losses of two steps are compared.
The page is that of examples/training, in Chromium: a LeNet, by Adam on batches of 100 digits.
Prints Markdown.
"""

from __future__ import annotations

import argparse
import functools
import sys
import time
from typing import Any

import numpy as np

from tests.bench.training import page
from tests.bench.training.ours import Ours
from tests.bench.worker import SideError, Worker
from tests.study import sides

STEPS = ("cnn:sgd", "cnn:adam", "gpt:adam", "gpt again:adam")
PEERS = ("tinygrad", "torch")
FIRST = 4  # steps before any is measured
# The losses of the first two are compared: the second depends on all gradients and on the update.
# Later ones differ by rounding alone, which grows: of the CNN by SGD, torch's and tinygrad's fourth
# by 1.7 %, where in doubles all of torch's and ours are equal to 14 digits.
COMPARED = 2
CLOSE = 1e-3  # relative


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.bench.training",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("steps", nargs="*", default=STEPS, help=f"of {', '.join(STEPS)}")
    parser.add_argument("--sides", nargs="*", default=PEERS, choices=PEERS, help="beside tinyedge")
    parser.add_argument("--rounds", type=int, default=5, help="measurements of each; default: 5")
    parser.add_argument("--page", action="store_true", help="the page beside TensorFlow.js")
    options = parser.parse_args()
    if options.page:
        say = functools.partial(print, file=sys.stderr, flush=True)
        result = page.measured(options.rounds, say)
        print(page.table(result))
        return int(page.wrong(result))
    if set(options.steps) - set(STEPS):
        parser.error(f"steps are {', '.join(STEPS)}")
    refused = sides.install(options.sides, lambda text: print(text, file=sys.stderr))
    for side, reason in refused.items():
        print(f"{side} is left out: {reason}", file=sys.stderr)
    peers = [side for side in options.sides if side not in refused]
    rows = []
    for step in options.steps:
        rows.append(measured(step, peers, options.rounds))
        print(f"{step}: {rows[-1]['times']}", file=sys.stderr, flush=True)
    print(table(rows, peers))
    return int(any(row["wrong"] for row in rows))


def measured(step: str, peers: list[str], rounds: int) -> dict[str, Any]:
    """A step's counts, and CPU seconds by side."""
    model, optimizer = step.split(":")
    begin = time.process_time()
    ours = Ours(model, optimizer)
    losses = [ours() for _ in range(2)]
    row: dict[str, Any] = {"step": step, **ours.counts, "cold": {"tinyedge": _since(begin)}}
    losses += [ours() for _ in range(FIRST - 2)]
    row |= {"times": {"tinyedge": []}, "wrong": [], "versions": {}}
    workers = {side: _worker(side) for side in peers}
    for side, worker in list(workers.items()):
        key = side, model.split()[0], optimizer
        try:
            found = worker.ask({"make": key, "first": FIRST})
        except SideError as error:
            print(f"{step}, {side}: {error}", file=sys.stderr)
            workers.pop(side).close()
            continue
        row["versions"][side], row["cold"][side] = found["version"], found["cold"]
        if not np.allclose(found["losses"][:COMPARED], losses[:COMPARED], rtol=CLOSE, atol=0):
            row["wrong"].append(f"{side}: losses {found['losses']}, here {losses}")
    for _ in range(rounds):
        begin = time.process_time()
        ours()
        row["times"]["tinyedge"].append(_since(begin))
        for side, worker in workers.items():
            found = worker.ask({"run": (side, model.split()[0], optimizer), "times": 1})
            row["times"].setdefault(side, []).append(found["cpu"])
    for worker in workers.values():
        worker.close()
    ours.close()
    return row


def _since(begin: float) -> float:
    return time.process_time() - begin


def _worker(side: str) -> Worker:
    command = [sides.python(side), "-m", "tests.bench.training.peers"]
    return Worker(command, sides.environment(side, 1))


def table(rows: list[dict[str, Any]], peers: list[str]) -> str:
    """The rows as Markdown: CPU ms, ratios over each peer, what a step does."""
    of = [f"of {side}" for side in peers]
    head = ["step", "CPU ms", *peers, *of, *(f"cold {each}" for each in of)]
    head += ["launches", "copies", "arena, MB"]
    lines = [" | ".join(head), " | ".join("---" for _ in head)]
    for row in rows:
        times = {side: float(np.median(found)) for side, found in row["times"].items()}
        mine, cold = times["tinyedge"], row["cold"]
        cells = [row["step"], f"{mine * 1e3:.0f}"]
        cells += [f"{times[p] * 1e3:.0f}" if p in times else "-" for p in peers]
        cells += [f"{mine / times[p]:.2f}x" if p in times else "-" for p in peers]
        cells += [f"{cold['tinyedge'] / cold[p]:.2f}x" if p in cold else "-" for p in peers]
        cells += [f"{row['launches']}", f"{row['copies']}", f"{row['arena']:.1f}"]
        lines.append(" | ".join(cells))
    versions = {side: v for row in rows for side, v in row["versions"].items()}
    said = ", ".join(f"{side} {version}" for side, version in versions.items())
    wrong = [f"{row['step']}, {text}" for row in rows for text in row["wrong"]]
    return "\n".join([*(f"| {line} |" for line in lines), "", f"Peers: {said or 'none'}.", *wrong])


if __name__ == "__main__":
    sys.exit(main())
