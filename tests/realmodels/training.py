"""Fine-tuning of real files: `python -m tests.realmodels --train [MODEL ..] [--target T] [--all]`.

Each is exported with a step of gradient descent on its last weights (--all: on all of them), by the
mean squares from its first output, before a softmax or sigmoid, to that halved and moved. Its
golden case is verified, the loss' derivative along a step is compared with central differences of
the loss (the best of three distances), and 20 steps must lower the loss.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import onnx

import tests.cuda.device
import tinyedge
from tests import models
from tests.cuda.shim import Shim
from tests.realmodels import cases, library
from tinyedge.core.errors import DeviceError, TinyedgeError
from tinyedge.core.program.program import Program
from tinyedge.core.program.replay import Replay
from tinyedge.export.bundle.reading import read
from tinyedge.export.verify.verify import verify
from tinyedge.model import open_device

LAST = 6  # weights that are trained
STEPS = 20
AGREES = 1e-3  # of a directional derivative
PART = 0.02  # of the loss that a step should take, were it straight
DISTANCES = (0.3, 0.1, 0.03)  # of a step's length

Arrays = dict[str, Any]


def names() -> list[str]:
    """Models without states of their own."""
    kept = [name for name, entry in library.ENTRIES.items() if not entry.states]
    return [*cases.CASES, *kept]


def _of(name: str) -> tuple[Any, Mapping[str, Any], Mapping[str, Any], Arrays]:
    """A model, its sizes, its constants and the inputs of a run."""
    if name in cases.CASES:
        case = cases.CASES[name]
        return models.path(name), case.dims, {}, dict(case.make(*case.size))
    entry = library.ENTRIES[name]
    feeds = library.feeds(name)[0]
    given = {n: v for n, v in feeds.items() if n not in entry.constants}
    return entry.load(), entry.dims, entry.constants, given


def weights_of(proto: Any, count: int | None) -> list[str]:
    """The float initializers of more than one element that nodes read, the last ones."""
    stored = {
        tensor.name
        for tensor in proto.graph.initializer
        if tensor.data_type == onnx.TensorProto.FLOAT and np.prod(tensor.dims) > 1 and tensor.dims
    }
    computing = ("Conv", "ConvTranspose", "MatMul", "Gemm", "LSTM", "GRU", "BatchNormalization")
    read = {
        name: None
        for node in proto.graph.node
        if node.op_type in computing
        for name in node.input[1:3]
        if name in stored
    }
    return [*read] if count is None else [*read][-count:]


def _first_output(proto: Any) -> str:
    """The first output of floats, before a softmax or sigmoid that may leave no gradient."""
    made = {name: node for node in proto.graph.node for name in node.output}
    name = next(
        value.name
        for value in proto.graph.output
        if value.type.tensor_type.elem_type == onnx.TensorProto.FLOAT
    )
    while name in made and made[name].op_type in ("Softmax", "LogSoftmax", "Sigmoid", "Identity"):
        name = made[name].input[0]
    return name


def _export(name: str, folder: Path, target: str, everything: bool) -> tuple[Path, Arrays]:
    model, dims, constants, feeds = _of(name)
    file = model if isinstance(model, Path) else folder / "model.onnx"
    if not isinstance(model, Path):
        onnx.save(model, file)
    proto = onnx.load(file)
    output = _first_output(proto)
    out = tinyedge.export_onnx(
        file,
        target=target,
        out=folder / "model.tinyedge",
        dims=dict(dims),
        constants=dict(constants),
        train=weights_of(proto, None if everything else LAST),
        outputs=[output],
        loss=f"mse_loss:{output}",
        optimizer="sgd:lr=1e-3",
        warn=lambda _: None,
    )
    return out, {"feeds": feeds, "output": output}


def measure(name: str, target: str = "cpu", everything: bool = False) -> dict[str, Any]:
    """What training a model does: errors by name. Raises TinyedgeError."""
    with tempfile.TemporaryDirectory() as scratch:
        start = time.process_time()
        out, told = _export(name, Path(scratch), target, everything)
        facts: dict[str, Any] = {"model": name, "export s": time.process_time() - start}
        program = read(out).program
        with closing(_device(program, Path(scratch))) as device:
            facts["step"] = verify(out, device).agrees
            with Replay(program, device) as model:
                facts["weights"] = len(program.states) - 1
                facts.update(_trained(model, told["feeds"], told["output"]))
    return facts


def _device(program: Program, scratch: Path) -> Any:
    """A device of the program's target; of cuda, where there is no GPU, the processor."""
    try:
        return open_device(program, None)
    except DeviceError:
        if program.target != "cuda":
            raise
        return tests.cuda.device.open(Shim(scratch))


def _trained(model: Replay, feeds: Arrays, output: str) -> dict[str, Any]:
    answer = model.run({n: feeds[n] for n in _inputs(model.program, "main")}, "main")[output]
    given = {n: v for n, v in feeds.items() if n in _inputs(model.program, "train")}
    given["target"] = np.asarray(answer * 0.5 + np.float32(0.1), np.float32)
    own = [s.name for s in model.program.states if s.name != "sgd.step"]

    def step(rate: float) -> float:
        return float(model.run({**given, "lr": np.float32(rate)}, "train")["loss"])

    before = {name: model.get_state(name).astype(np.float64) for name in own}

    def put(values: Arrays) -> None:
        for name in own:
            model.set_state(name, values[name].astype(np.float32))

    rate = 1.0
    for _ in range(2):  # at a rate by which the update is about as long as the weights
        put(before)
        step(rate)
        gradient = {n: (before[n] - model.get_state(n)) / rate for n in own}
        rate = _length(before) / max(_length(gradient), 1e-30)
    squares = _length(gradient) ** 2
    put(before)
    first = step(0.0)
    along = PART * first / squares
    error = min(_off(put, step, before, gradient, along * part, squares) for part in DISTANCES)
    put(before)
    losses = [step(along) for _ in range(STEPS)]
    return {"derivative": error, "first": losses[0], "last": losses[-1]}


def _off(put: Any, step: Any, at: Arrays, by: Arrays, distance: float, squares: float) -> float:
    ends = []
    for sign in (1.0, -1.0):
        put({n: at[n] + sign * distance * by[n] for n in at})
        ends.append(step(0.0))
    return float(abs((ends[0] - ends[1]) / (2 * distance) / squares - 1))


def _inputs(program: Program, entry: str) -> list[str]:
    return next(list(each.inputs) for each in program.entries if each.name == entry)


def _length(values: Arrays) -> float:
    return float(np.sqrt(sum(float((v.astype(np.float64) ** 2).sum()) for v in values.values())))


def report(chosen: list[str], target: str, everything: bool) -> int:
    """A line a model; 1 if one of them is wrong."""
    failed = 0
    for name in chosen or names():
        try:
            facts = measure(name, target, everything)
        except TinyedgeError as error:
            print(f"{name:24} {str(error).splitlines()[0]}", flush=True)
            failed += 1
            continue
        right = facts["step"] and facts["derivative"] < AGREES and facts["last"] < facts["first"]
        failed += not right
        print(
            f"{name:24} {facts['weights']:3} weights, export {facts['export s']:6.1f} s, step "
            f"{'agrees' if facts['step'] else 'DIFFERS'}, derivative {facts['derivative']:.1e}, "
            f"loss {facts['first']:.3g} -> {facts['last']:.3g}{'' if right else '  WRONG'}",
            flush=True,
        )
    return 1 if failed else 0
