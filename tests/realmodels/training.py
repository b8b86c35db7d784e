"""Fine-tuning of real files: `python -m tests.realmodels --train [MODEL ..] [--target T] [--all]`.

Each is exported with a step of gradient descent on its last weights (--all: on all of them), by the
mean squares from its first output, before a softmax or sigmoid, to that halved and moved. Its
golden case is verified, the loss' derivative along a step is compared with central differences of
the loss (the best of three distances), and 20 steps must lower the loss. What fails is told beside
the reason that is listed for it. The exit code is 1 where one fails for no listed reason, or where
one that is listed does not.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
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

# Of the golden case, where drawn weights give losses of 1e9 and 3e12: another rate than 1e-3,
# which would make weights infinite.
RATES = {"resnet50": 1e-11, "shufflenet": 1e-14}


@dataclass(frozen=True)
class Reason:
    """Why a model fails: the id of the error that says so, or the checks; and the cause."""

    failure: str
    because: str


QUANTIZED = Reason("train.pattern", "its weights are quantized")
DETECTOR = Reason("train.sizes", "how many boxes there are only a run knows")
LISTED: Mapping[str, Reason] = {  # by a model's name, or NAME on TARGET
    "common_old": QUANTIZED,
    "smart_turn": QUANTIZED,
    "detector.traced": DETECTOR,
    "detector.dynamo": DETECTOR,
    "vgg19": Reason("verify.nothing", "its step takes more than a golden case may"),
    "magika on qcom": Reason("derivative", "weights' last digits move its loss by 5e-6 of it"),
}

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


def weights_of(proto: Any, output: str, count: int | None) -> list[str]:
    """The last float weights of more than one element that a gradient by a value may reach."""
    constants = [node for node in proto.graph.node if node.op_type == "Constant"]
    tensors = [(tensor.name, tensor) for tensor in proto.graph.initializer]
    if not tensors:
        tensors = [(node.output[0], each.t) for node in constants for each in node.attribute]
    stored = {
        name
        for name, tensor in tensors
        if tensor.data_type == onnx.TensorProto.FLOAT and np.prod(tensor.dims) > 1 and tensor.dims
    }
    wanted = {output}
    nodes = []
    for node in reversed(proto.graph.node):
        if wanted.intersection(node.output) and node.op_type not in ("ArgMax", "ArgMin"):
            wanted.update(node.input)
            nodes.insert(0, node)
    computing = ("Conv", "ConvTranspose", "MatMul", "Gemm", "LSTM", "GRU", "BatchNormalization")
    read = {
        name: None
        for node in nodes
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
    while node := made.get(name):
        above = made.get(node.input[0])
        if node.op_type == "Div" and above and above.op_type == "Exp":  # a softmax in parts
            name = above.input[0]
        elif node.op_type in ("Softmax", "LogSoftmax", "Sigmoid", "Identity"):
            name = node.input[0]
        else:
            break
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
        train=weights_of(proto, output, None if everything else LAST),
        outputs=[output],
        loss=f"mse_loss:{output}",
        optimizer=f"sgd:lr={RATES.get(name, 1e-3)}",
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


def judged(name: str, target: str, failure: str) -> tuple[bool, str]:
    """Whether a model does what is listed, and what to say of it. failure: the id of an error, or
    the checks that fail; "": all pass.
    """
    reason = LISTED.get(name) or LISTED.get(f"{name} on {target}")
    if reason is None:
        return not failure, f"  WRONG: {failure}" if failure else ""
    if failure == reason.failure:
        return True, f"  as listed: {reason.because}"
    return False, f"  WRONG: listed as {reason.failure}, {reason.because}"


def report(chosen: list[str], target: str, everything: bool) -> int:
    """A line a model; 1 if one of them does not what is listed."""
    failed = 0
    for name in chosen or names():
        try:
            facts = measure(name, target, everything)
        except TinyedgeError as error:
            failure, told = error.id, f"{error.subject}: {error.because} [{error.id}]"
        else:
            passes = {
                "step": facts["step"],
                "derivative": facts["derivative"] < AGREES,
                "loss": facts["last"] < facts["first"],
            }
            failure = ", ".join(check for check, right in passes.items() if not right)
            told = (
                f"{facts['weights']:3} weights, export {facts['export s']:6.1f} s, step "
                f"{'agrees' if facts['step'] else 'DIFFERS'}, "
                f"derivative {facts['derivative']:.1e}, "
                f"loss {facts['first']:.3g} -> {facts['last']:.3g}"
            )
        as_listed, verdict = judged(name, target, failure)
        failed += not as_listed
        print(f"{name:24} {told}{verdict}", flush=True)
    return 1 if failed else 0
