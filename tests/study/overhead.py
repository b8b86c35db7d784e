"""Where the time of a small run goes: the steps before a run, and what each launch adds.

A chain of products of 2x16 numbers by 16x16 weights: as many launches as products, with little in
each; products of one row so small would be computed within one another. Then a chain of larger
products, which two threads share.
"""

from __future__ import annotations

import ctypes
import time
from pathlib import Path
from typing import Any

import numpy as np
import onnx

import tinyedge
from tests.bench.side import middle
from tests.bench.worker import Clock
from tests.bench.worker import measure as spend
from tests.exporters.networks import Network
from tests.runtimes_c.library import INPUTS, OUTPUTS, Context, Library, tensor
from tests.study import fits, sides
from tests.study.sides import Say, Sides

LENGTHS = (1, 4, 16, 64)
ROWS, WIDTH = 2, 16
TRIES = 7


def chain(length: int, rows: int = ROWS, width: int = WIDTH) -> Any:
    """As many products as launches: each reads the one before it whole."""
    net = Network("chain", 17)
    x = net.input("x", (rows, width))
    for _ in range(length):
        x = net.node("MatMul", x, net.drawn(width, width))
    return net.model({x: (rows, width)})


def measure(running: Sides, patience: float, say: Say) -> dict[str, Any]:
    """Seconds by step: middles of several tries; and the lines over the chain's length. Of the cpu
    by the C runtime in this process, of a device by Python's replay in the side's process.
    """
    say("overhead")
    target = running.target
    folder = sides.CACHE / f"overhead-{target}"
    bundles: dict[int, Path] = {}
    exports: dict[int, float] = {}
    for length in LENGTHS:
        started = time.process_time()
        bundles[length] = _bundle(folder / f"{length}", chain(length), target)
        exports[length] = time.process_time() - started
    more: dict[str, Any] = {}
    if target == "cpu":
        steps = _steps(bundles[1])
        runs = {n: _run(bundle, 1)["cpu"] for n, bundle in bundles.items()}
        more = {"wake": wake(folder)}
    else:
        found = running.ask("tinyedge", "overhead", (target, bundles, TRIES), patience)
        steps, runs = found["steps"], found["runs"]
    return {
        "export": vars(fits.line(exports)),
        "steps": {name: middle(values) for name, values in steps.items()},
        "launch": vars(fits.line(runs)),
        **more,
    }


def _bundle(folder: Path, model: Any, target: str = "cpu") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    onnx.save(model, folder / "chain.onnx")
    return sides.bundle(folder / "chain.onnx", folder / "chain.tinyedge", target)


def _steps(bundle: Path) -> dict[str, list[float]]:
    """Wall seconds of the C runtime's steps, and of a whole run by Python's cpu device."""
    library = Library(bundle)
    clocked = Clock()
    x, c, many = np.ones((ROWS, WIDTH), np.float32), library.c, 2000
    for _ in range(TRIES):
        model = clocked("open: read and check the manifest, weights", library.open)
        context = clocked("create: memory, lookup of kernels", lambda m=model: library.create(m))
        y = np.zeros((ROWS, WIDTH), np.float32)
        given, made = tensor(x), tensor(y)
        clocked("bind an input", lambda k=context, g=given: _bound(c, k, g), many)
        c.te_bind_output(context, 0, ctypes.byref(made))
        clocked("run of one launch", lambda k=context: c.te_run(k, 0), many)
        for name, seconds in _halves(c, context, many).items():
            clocked.seconds.setdefault(name, []).append(seconds)
        c.te_destroy(context)
        c.te_close(model)
        loaded = clocked("Python: load, compiled before", lambda: tinyedge.load(bundle))
        loaded.run({"x": x})
        clocked("Python: run of one launch", lambda m=loaded: m.run({"x": x}), 500)
        loaded.close()
    return clocked.seconds


def _halves(c: Any, context: Any, times: int) -> dict[str, float]:
    """The two halves of a run, with what Python's clock itself takes left out."""
    submit = wait = clock = 0.0
    forever = ctypes.c_int64(-1)
    for _ in range(times):
        start = time.perf_counter()
        c.te_submit(context, 0)
        between = time.perf_counter()
        c.te_wait(context, forever)
        end = time.perf_counter()
        submit += between - start
        wait += end - between
        clock += time.perf_counter() - end
    return {"submit": (submit - clock) / times, "wait": (wait - clock) / times}


def _bound(c: Any, context: Any, given: Any) -> None:
    c.te_bind_input(context, 0, ctypes.byref(given))


def _run(bundle: Path, threads: int) -> dict[str, float]:
    """CPU and wall seconds of a run: the least of several blocks."""
    context = Context(Library(bundle), threads=threads)
    info = context.info(INPUTS, 0)
    shape = tuple(info.shape[: info.rank])
    context.bind({"x": np.ones(shape, np.float32)})
    out = context.new(OUTPUTS, 0)
    made = tensor(out)
    context.check(context.library.c.te_bind_output(context.context, 0, ctypes.byref(made)))
    run = lambda: context.library.c.te_run(context.context, 0)  # noqa: E731
    once = spend(run, 3)["wall"] / 3
    times = max(2, round(0.02 / max(once, 1e-7)))
    blocks = [spend(run, times) for _ in range(TRIES)]
    context.close()
    return {clock: min(block[clock] for block in blocks) / times for clock in ("cpu", "wall")}


def wake(folder: Path) -> float:
    """Wall seconds that a launch takes on two threads beyond half of what it takes on one.

    64 rows by 128x128: 2.1 million operations a launch, of which the runtime divides each.
    """
    bundles = {n: _bundle(folder / f"wide-{n}", chain(n, 64, 128)) for n in (2, 8, 32)}
    one, two = (
        fits.line({n: _run(bundle, threads)["wall"] for n, bundle in bundles.items()})
        for threads in (1, 2)
    )
    return two.b - one.b / 2
