"""The process of one side: `python -m tests.study.child`, driven by sides.Side.

The first request of a task says what to run and is answered by its outputs; the others warm it up,
or ask what runs take. It needs numpy, and what its side needs, nothing of tinyedge: torch has an
environment of its own.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tests.bench.worker import measure, serve

Array = np.ndarray[Any, Any]
Arrays = dict[str, Array]


@dataclass(frozen=True)
class Task:
    """What a side is to run. Files, because other processes read them too."""

    model: Path  # .onnx
    bundle: Path  # what tinyedge made of it, built
    inputs: Mapping[str, Path]  # .npy
    threads: int
    kind: str = ""  # of an operation
    numbers: Mapping[str, int] | None = None
    kernels: Path = Path()  # where hand-written kernels are kept
    outputs: tuple[str, ...] = ()  # in the model's order
    converted: Path = Path()  # what this side reads in place of the model
    target: str = "cpu"  # whose device runs it

    def arrays(self) -> Arrays:
        """Each begins at a cache line, as a library's own memory does."""
        return {name: aligned(np.load(file)) for name, file in self.inputs.items()}


def aligned(array: Array) -> Array:
    """The same numbers, from a cache line on."""
    whole = np.zeros(array.nbytes + 64, np.uint8)
    start = -whole.ctypes.data % 64
    copy = whole[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    copy[...] = array
    return copy


class Tinyedge:
    """The C runtime over the generated kernels; inputs and outputs are bound once."""

    def __init__(self, task: Task) -> None:
        import ctypes

        from tests.runtimes_c.library import OUTPUTS, Context, Library, tensor

        self._context = context = Context(Library(task.bundle), threads=task.threads)
        context.bind(task.arrays())
        self._outputs: Arrays = {}
        for position in range(1024):
            index = context.library.c.te_entry_port(context.model, 0, OUTPUTS, position)
            if index < 0:
                break
            array = aligned(context.new(OUTPUTS, index))
            context.check(
                context.library.c.te_bind_output(
                    context.context, index, ctypes.byref(tensor(array))
                )
            )
            self._outputs[context.info(OUTPUTS, index).name.decode()] = array
        self._run = context.library.c.te_run

    def run(self) -> None:
        status = self._run(self._context.context, 0)
        if status:
            self._context.check(status)

    def outputs(self) -> Arrays:
        return self._outputs

    @staticmethod
    def version() -> str:
        return "of this checkout by its C runtime"


class Hand:
    """The hand-written kernel of an operation."""

    def __init__(self, task: Task) -> None:
        import onnx
        from onnx import numpy_helper

        from tests.study import hand

        graph = onnx.load(task.model).graph
        weights = [numpy_helper.to_array(tensor) for tensor in graph.initializer]
        self._name = graph.output[0].name
        arrays = list(task.arrays().values())
        self._made = hand.Hand(task.kernels, task.kind, arrays, weights, task.numbers or {})
        self.run = self._made.run

    def outputs(self) -> Arrays:
        return {self._name: self._made.result()}

    @staticmethod
    def version() -> str:
        from tinyedge.targets.cpu.compiler import find

        return find().version


def _softmax(a: Array, out: Array) -> None:
    np.subtract(a, a.max(-1, keepdims=True), out)
    np.exp(out, out)
    np.divide(out, out.sum(-1, keepdims=True), out)


def _layer_norm(a: Array, scale: Array, shift: Array, out: Array) -> None:
    np.subtract(a, a.mean(-1, keepdims=True), out)
    variance = np.square(out).mean(-1, keepdims=True)
    np.multiply(out, scale / np.sqrt(variance + np.float32(1e-12)), out)
    np.add(out, shift, out)


def _attention(q: Array, k: Array, v: Array, out: Array) -> None:
    scores = q @ k.swapaxes(-1, -2)
    np.multiply(scores, np.float32(q.shape[-1] ** -0.5), scores)
    _softmax(scores, scores)
    np.matmul(scores, v, out)


def _multiply_add(a: Array, b: Array, c: Array, out: Array) -> None:
    np.multiply(a, b, out)
    np.add(out, c, out)


NUMPY: Mapping[str, Callable[..., Any]] = {
    "copy": lambda a, out: np.copyto(out, a),
    "multiply-add": _multiply_add,
    "sum": lambda a, out: np.sum(a, keepdims=True, out=out),
    "softmax": _softmax,
    "softmax of rows": _softmax,
    "layer norm": _layer_norm,
    "matmul": lambda a, w, out: np.matmul(a, w, out),
    "attention": _attention,
}


class Numpy:
    """numpy's functions, into arrays that were allocated before."""

    def __init__(self, task: Task) -> None:
        import onnx
        from onnx import numpy_helper

        graph = onnx.load(task.model).graph
        given = [*task.arrays().values(), *map(numpy_helper.to_array, graph.initializer)]
        port = graph.output[0]
        self._out = np.empty([d.dim_value for d in port.type.tensor_type.shape.dim], np.float32)
        self._name, self._given, self._function = port.name, given, NUMPY[task.kind]

    def run(self) -> None:
        self._function(*self._given, self._out)

    def outputs(self) -> Arrays:
        return {self._name: self._out}

    @staticmethod
    def version() -> str:
        return np.__version__


class Onnxruntime:
    """Its CPU provider, inputs and outputs bound once."""

    def __init__(self, task: Task) -> None:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.log_severity_level = 3
        options.intra_op_num_threads = task.threads
        options.inter_op_num_threads = 1
        self._session = onnxruntime.InferenceSession(
            str(task.model), options, providers=["CPUExecutionProvider"]
        )
        arrays = task.arrays()
        names = [port.name for port in self._session.get_outputs()]
        first = dict(zip(names, self._session.run(names, arrays), strict=True))
        self._binding = self._session.io_binding()
        for name, array in arrays.items():
            value = onnxruntime.OrtValue.ortvalue_from_numpy(array)
            self._binding.bind_ortvalue_input(name, value)
        self._names, self._loose = names, []
        for port in self._session.get_outputs():
            array = first[port.name]
            if len(port.shape) == array.ndim:
                value = onnxruntime.OrtValue.ortvalue_from_numpy(array)
                self._binding.bind_ortvalue_output(port.name, value)
            else:
                self._loose.append(port.name)

    def run(self) -> None:
        for name in self._loose:
            # declared with another rank than it has: the array of a run before would be refused
            self._binding.bind_output(name)
        self._session.run_with_iobinding(self._binding)

    def outputs(self) -> Arrays:
        return dict(zip(self._names, self._binding.copy_outputs_to_cpu(), strict=True))

    @staticmethod
    def version() -> str:
        import onnxruntime

        return str(onnxruntime.__version__)


class Torch:
    """The graph in eager torch."""

    def __init__(self, task: Task) -> None:
        import torch

        from tests.study.torch_graph import TorchGraph

        torch.set_num_threads(task.threads)
        self._graph = TorchGraph(task.model)
        self._given = {name: torch.from_numpy(array) for name, array in task.arrays().items()}
        self._results: dict[str, Any] = {}

    def run(self) -> None:
        self._results = self._graph.run(self._given)

    def outputs(self) -> Arrays:
        return {name: value.numpy() for name, value in self._results.items()}

    @staticmethod
    def version() -> str:
        import torch

        return str(torch.__version__)


class Tinygrad:
    """Its ONNX reader and TinyJit on the device that DEV names; what is measured is the replay."""

    def __init__(self, task: Task) -> None:
        from tests.bench.opencl.child import Tinygrad as Runner

        self._runner, self._arrays = Runner(task.model), task.arrays()
        for _ in range(3):  # TinyJit runs, captures, replays
            self._results = self._runner.run(self._arrays)
        self.run = self._runner.replay

    def outputs(self) -> Arrays:
        return self._results

    @staticmethod
    def version() -> str:
        from importlib.metadata import version

        return version("tinygrad")


class Ncnn:
    """A model that pnnx converted, in single precision; what is measured has no copies out."""

    def __init__(self, task: Task) -> None:
        import ncnn

        self._net = net = ncnn.Net()
        net.opt.num_threads = task.threads
        for small in ("use_fp16_packed", "use_fp16_storage", "use_fp16_arithmetic"):
            setattr(net.opt, small, False)
        param = task.converted
        for load, file in ((net.load_param, param), (net.load_model, param.with_suffix(".bin"))):
            if load(str(file)):
                raise RuntimeError(f"ncnn does not read {file.name}")
        script = (param.parent / "model_ncnn.py").read_text("utf-8")
        batches = {name: _batch(script, name) for name in _blobs(script)}
        self._given = [
            (f"in{number}", _mat(ncnn, array, batches[f"in{number}"]))
            for number, array in enumerate(task.arrays().values())
        ]
        self._outputs = {
            name: (f"out{number}", batches[f"out{number}"])
            for number, name in enumerate(task.outputs)
        }
        self._results: dict[str, Any] = {}

    def run(self) -> None:
        run = self._net.create_extractor()
        for name, mat in self._given:
            run.input(name, mat)
        for name, (blob, _) in self._outputs.items():
            failed, self._results[name] = run.extract(blob)
            if failed:
                raise RuntimeError(f"ncnn gives no {blob}: {failed}")

    def outputs(self) -> Arrays:
        found = {}
        for name, mat in self._results.items():
            _, batch = self._outputs[name]
            found[name] = np.array(mat.numpy() if batch is None else mat.numpy(batch_index=batch))
        return found

    @staticmethod
    def version() -> str:
        import ncnn

        return str(ncnn.__version__)


def _blobs(script: str) -> set[str]:
    """The names of inputs and outputs in what pnnx writes beside a model, an example of its use."""
    return set(re.findall(r'ex\.(?:input|extract)\("(\w+)"', script))


def _batch(script: str, name: str) -> int | None:
    """The axis of an input or output that is a batch, which ncnn's arrays do not have."""
    found = re.search(rf"\b{name}\.numpy\([^\n]*?batch_index=(\d+)", script)
    return int(found[1]) if found else None


def _mat(ncnn: Any, array: Array, batch: int | None) -> Any:
    given = array.astype(np.int32) if array.dtype == np.int64 else array
    mat = ncnn.Mat(given) if batch is None else ncnn.Mat(given, batch_index=batch)
    return mat.clone()


class Litert:
    """A model that onnx2tf converted, by LiteRT's interpreter with its XNNPACK kernels.

    It has images' channels last: they are turned before and after what is measured.
    """

    def __init__(self, task: Task) -> None:
        from ai_edge_litert.interpreter import Interpreter

        model = Interpreter(str(task.converted), num_threads=task.threads)
        model.allocate_tensors()
        signature = model.get_signature_runner()
        places = signature.get_input_details()
        for name, array in task.arrays().items():
            port = places[name]
            model.set_tensor(port["index"], _like(array, port["shape"]).astype(port["dtype"]))
        self._ports = signature.get_output_details()
        self._model, self._names = model, task.outputs
        self.run = model.invoke

    def outputs(self) -> Arrays:
        return {
            name: self._model.get_tensor(self._ports[name]["index"])
            for name in self._names
            if name in self._ports
        }

    @staticmethod
    def version() -> str:
        from importlib.metadata import version

        return version("ai-edge-litert")


def _like(array: Array, shape: Any) -> Array:
    """An array as it is, or with its channels last, whichever has this shape."""
    if tuple(array.shape) == tuple(shape):
        return array
    return np.ascontiguousarray(np.moveaxis(array, 1, -1))


SIDES: Mapping[str, Callable[[Task], Any]] = {
    **{
        side.__name__.lower(): side
        for side in (Tinyedge, Hand, Numpy, Onnxruntime, Torch, Tinygrad, Ncnn, Litert)
    },
    "avx512": Tinyedge,  # by the bundle of that profile
}


class DeviceTinyedge:
    """A bundle for a device, replayed: its inputs are there, its outputs stay there."""

    def __init__(self, task: Task) -> None:
        from tests.study.device import replayed

        self._device, _ = replayed.opened(task.target)
        program = replayed.built(replayed.bundle_program(task.bundle), self._device)
        self._replayed = replayed.Replayed(self._device, program, task.arrays())
        self.run, self.repeat = self._replayed.run, self._replayed.repeat
        self.outputs = self._replayed.outputs
        self.device_seconds, self.close = self._replayed.device_seconds, self._replayed.close

    @staticmethod
    def version() -> str:
        return "of this checkout by Python's replay"


class DeviceHand:
    """The kernels by hand of an operation, in the fastest variant."""

    def __init__(self, task: Task) -> None:
        import onnx
        from onnx import numpy_helper

        from tests.study.device import replayed

        graph = onnx.load(task.model).graph
        weights = [numpy_helper.to_array(tensor) for tensor in graph.initializer]
        self._name = graph.output[0].name
        device, clock = replayed.opened(task.target)
        given = (list(task.arrays().values()), weights, task.numbers or {})
        made = replayed.Fastest(device, clock, task.target, task.kind, *given)
        self._result = made.result
        self.run, self.repeat = made.replayed.run, made.replayed.repeat
        self.device_seconds, self.close = made.replayed.device_seconds, made.replayed.close

    def outputs(self) -> Arrays:
        return {self._name: self._result}

    @staticmethod
    def version() -> str:
        return "kernels of tests/study/device"


DEVICE_SIDES: Mapping[str, Callable[[Task], Any]] = {
    "tinyedge": DeviceTinyedge,
    "hand": DeviceHand,
}


class _Answers:
    """Of a side that is named. task: starts it, gives its outputs; warm: seconds of warm-ups; run:
    what runs take; limit: of a device, what multiplies and adds reach, its name and the clock that
    tells; overhead: of a device, where the time of a small run goes.
    """

    def __init__(self) -> None:
        self._sides: dict[str, Any] = {}

    def __call__(self, request: Any) -> dict[str, Any]:
        name, word, content = request
        if word == "task":
            before = self._sides.pop(name, None)
            if hasattr(before, "close"):
                before.close()
            del before  # its memory
            known = SIDES if content.target == "cpu" else {**SIDES, **DEVICE_SIDES}
            self._sides[name] = side = known[name](content)
            side.run()
            return {"outputs": side.outputs(), "version": side.version()}
        if word == "warm":
            return _warm(self._sides[name], *content)
        if word == "limit":
            return _limit(content)
        if word == "overhead":
            from tests.study.device import steps

            return steps.measured(*content)
        return _spent(self._sides[name], content)


def _limit(target: str) -> dict[str, Any]:
    from tests.study.device import replayed

    device, clock = replayed.opened(target)
    fma = replayed.fma_limit(device, target, clock)
    return {"fma": fma, "clock": clock, "device": device.name}


def _spent(side: Any, times: int) -> dict[str, float]:
    """What so many runs take; on a device they follow each other, and its own clock tells too."""
    if not hasattr(side, "repeat"):
        return measure(side.run, times)
    found = measure(lambda: side.repeat(times), 1)
    return {**found, "device": side.device_seconds() * times}


def _warm(side: Any, seconds: float, most: int) -> dict[str, float]:
    """Runs until either is reached, at least one; what a run took, in CPU seconds. On a device more
    and more follow each other, as they do where they are measured: waiting for each takes longer
    than a small one, so that blocks would be short.
    """
    start, count, spent, times = time.perf_counter(), 0, 0.0, 1
    queued = hasattr(side, "repeat")
    while count < most and (count == 0 or time.perf_counter() - start < seconds):
        found = measure((lambda n=times: side.repeat(n)) if queued else side.run, 1)["cpu"]
        spent = found if queued else spent + found
        count = times if queued else count + 1
        times = 2 * times if queued else 1
    return {"cpu": spent / count}


if __name__ == "__main__":
    serve(_Answers())
