"""What the package offers: export a model or a function, load a bundle and run it.

With the command line, this is the only place that turns a target's name into a target.
"""

from __future__ import annotations

import importlib
import inspect
import logging
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

from tinyedge.core import dtype as dtypes
from tinyedge.core.caps import Caps
from tinyedge.core.compile import Compilation, Graph, Port, compile_graph
from tinyedge.core.errors import DeviceError, InputError, RunError
from tinyedge.core.options import Options
from tinyedge.core.program import Program
from tinyedge.core.replay import Replay
from tinyedge.core.target import Target
from tinyedge.core.tensor import Tensor

TARGETS = ("webgpu", "qcom", "cpu")
PRECISIONS = ("fp32", "fp16")

Progress = Callable[..., None]
Warn = Callable[[str], None]

NO_GOLDEN = (
    "no golden case, so the bundle cannot be verified: a C compiler, or the ziglang package, "
    "is needed to make one"
)

_log = logging.getLogger("tinyedge")


def find_target(name: str) -> Target:
    """The target called `name`. Raises InputError."""
    if name not in TARGETS:
        raise InputError(
            f"target {name!r}",
            "there is no such target",
            id="target.name",
            supported=", ".join(TARGETS),
        )
    target: Target = importlib.import_module(f"tinyedge.targets.{name}.target").TARGET
    return target


def open_device(program: Program, device: str | None = None) -> Any:
    """A device that can run the program. Raises DeviceError."""
    if program.target not in TARGETS:
        raise DeviceError(
            f"target {program.target!r}",
            "this version of tinyedge cannot run it",
            id="device.target",
            supported=", ".join(TARGETS),
        )
    module = importlib.import_module(f"tinyedge.targets.{program.target}.device")
    return module.open(device, requirements=program.requirements)


class Model:
    """A loaded bundle on a device. Use as a context manager, or call close()."""

    def __init__(self, program: Program, device: str | None = None) -> None:
        self.program = program
        self._closed = False
        self._device = open_device(program, device)
        self._replay = Replay(program, self._device)

    @property
    def inputs(self) -> tuple[Any, ...]:
        """The inputs: each with name, dtype and shape (sizes: ints or expressions of symbols)."""
        return self.program.inputs

    @property
    def outputs(self) -> tuple[Any, ...]:
        """The outputs, as `inputs`."""
        return self.program.outputs

    def run(self, inputs: Mapping[str, Any], entry: str | None = None) -> dict[str, Any]:
        """The outputs by name. inputs: arrays of the declared dtype and shape. Raises RunError."""
        self._check(inputs)
        return self._replay.run(inputs, entry)

    def profile(self, inputs: Mapping[str, Any], entry: str | None = None) -> Any:
        """(launch, seconds) of every launch of one run."""
        self._check(inputs)
        return self._replay.profile(inputs, entry)

    def _check(self, inputs: Any) -> None:
        if self._closed:
            raise RunError(
                "the model", "it was closed", id="run.disposed", next="load the bundle again"
            )
        if not isinstance(inputs, Mapping):
            raise RunError(
                "the inputs",
                f"they are of type {type(inputs).__name__}",
                id="run.input",
                supported="a dict of arrays by name",
                next=f"names: {', '.join(repr(port.name) for port in self.inputs) or 'none'}",
            )

    def close(self) -> None:
        """Free the device's memory; a model that is closed cannot run again."""
        self._closed = True
        self._replay.close()
        self._device.close()

    def __enter__(self) -> Model:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def load(path: str | Path, device: str | None = None) -> Model:
    """Verify a bundle and make it ready to run. Raises BundleError or DeviceError."""
    from tinyedge.export.bundle import read

    return Model(read(path).program, device)


def import_graph(
    path: str | Path, dims: Mapping[str, int | str] | None = None
) -> tuple[Graph, tuple[str, ...]]:
    """An ONNX file as a graph to compile, and what had to be assumed."""
    from tinyedge.export.onnx import import_model

    model = import_model(path, dims=dims or {})
    inputs = tuple(Port(p.name, p.dtype, p.shape) for p in model.inputs)
    outputs = tuple(Port(n, t.dtype, t.shape, t.node) for n, t in model.outputs.items())
    return Graph(inputs, outputs, model.names), model.warnings


def export_onnx(
    path: str | Path,
    *,
    target: str = "webgpu",
    out: str | Path | None = None,
    dims: Mapping[str, int | str] | None = None,
    precision: str | None = None,
    optimize: bool = True,
    profile: str = "default",
    golden: bool = True,
    golden_inputs: Mapping[str, Any] | None = None,
    force: bool = False,
    progress: Progress | None = None,
    warn: Warn | None = None,
) -> Path:
    """Compile an ONNX file into a bundle and return the bundle's path.

    out: the bundle; default: the model's name with .tinyedge in the current folder. dims: sizes of
    symbolic dimensions, see the documentation of `--dim`. precision: "fp32", or "fp16" for weights
    and activations kept as halves; default: the target's own, fp16 for qcom, fp32 for the others.
    golden_inputs: arrays or .npy files by input name for the golden case. progress: called with the
    name of each stage as it begins. warn: called with what had to be assumed; default: a warning of the logger `tinyedge`.
    Raises ModelError for the model, InputError for the options.
    """
    from tinyedge.export.package import check_place

    options = choose_options(target, precision, optimize=optimize, profile=profile)
    place = Path(out) if out is not None else Path(Path(path).name).with_suffix(".tinyedge")
    check_place(place)
    given = {name: _golden_input(name, file) for name, file in (golden_inputs or {}).items()}
    report = progress or _silent
    report("import")
    graph, assumed = import_graph(path, dims)
    _check_names(given, graph)
    for text in assumed:
        (warn or _log.warning)(text)
    record = {
        "dims": sorted(_plain(f"{name}={size}") for name, size in (dims or {}).items()),
        "assumed": [_plain(text) for text in assumed],
    }
    return export_graph(
        graph,
        target,
        place,
        options,
        golden=golden,
        given=given,
        force=force,
        progress=report,
        warn=warn,
        record={name: texts for name, texts in record.items() if texts},
    )


def export_function(
    function: Callable[..., Any],
    example_inputs: Mapping[str, Any] | Sequence[Any],
    *,
    target: str = "webgpu",
    out: str | Path = "function.tinyedge",
    precision: str | None = None,
    optimize: bool = True,
    profile: str = "default",
    golden: bool = True,
    force: bool = False,
    progress: Progress | None = None,
    warn: Warn | None = None,
) -> Path:
    """Compile a Python function over tensors into a bundle.

    function takes Tensors and returns a Tensor, a sequence or a dict of them. example_inputs:
    arrays whose dtypes and shapes the inputs get, by parameter name or in order.
    Raises InputError for the options, the arrays and what the function returns.
    """
    options = choose_options(target, precision, optimize=optimize, profile=profile)
    graph = trace(function, example_inputs)
    return export_graph(
        graph,
        target,
        Path(out),
        options,
        golden=golden,
        force=force,
        progress=progress or _silent,
        warn=warn,
    )


def trace(function: Callable[..., Any], example_inputs: Mapping[str, Any] | Sequence[Any]) -> Graph:
    """A function's graph, from one call with lazy tensors. Raises InputError."""
    if isinstance(example_inputs, Mapping):
        named = {name: np.asarray(array) for name, array in example_inputs.items()}
    else:
        named = {f"input_{i}": np.asarray(array) for i, array in enumerate(example_inputs)}
    _check_call(function, example_inputs)
    ports = [Port(n, _element_type(n, a), a.shape) for n, a in named.items()]
    tensors = {p.name: Tensor.input(p.name, p.shape, p.dtype) for p in ports}
    if isinstance(example_inputs, Mapping):
        result = function(**tensors)
    else:
        result = function(*tensors.values())
    if isinstance(result, Tensor):
        results = {"output": result}
    elif isinstance(result, Mapping):
        results = dict(result)
    else:
        several = result if isinstance(result, (tuple, list)) else (result,)
        results = {f"output_{i}": tensor for i, tensor in enumerate(several)}
    for name, tensor in results.items():
        if not isinstance(tensor, Tensor):
            raise InputError(
                f"output {name!r} of the function",
                f"it is of type {type(tensor).__name__}",
                id="function.output",
                supported="a Tensor, a tuple or list of them, a dict of them by name",
            )
    outputs = tuple(Port(n, t.dtype, t.shape, t.node) for n, t in results.items())
    return Graph(tuple(ports), outputs)


def export_graph(
    graph: Graph,
    target: str,
    out: Path,
    options: Options,
    *,
    golden: bool = True,
    given: Mapping[str, Any] | None = None,
    force: bool = False,
    progress: Progress = lambda *_: None,
    warn: Warn | None = None,
    record: Mapping[str, Any] | None = None,
) -> Path:
    """Compile a graph and write the bundle with its golden case.

    record: more of what the bundle was made with, for its manifest's `options`.
    """
    from tinyedge.export.package import check_place, write_bundle
    from tinyedge.export.ports import check_ports

    check_options(target, options)
    check_ports(graph)
    check_place(out)
    compiled = compile_graph(graph, find_target(target), options, progress=progress)
    assert compiled.program is not None
    program = compiled.program
    program = replace(program, options={**program.options, **(record or {})})
    for text in _beyond(program, compiled.caps):
        (warn or _log.warning)(text)
    goldens = []
    if golden:
        progress("golden")
        case = make_golden(graph, program, given)
        goldens = [case] if case is not None else []
        if case is None:
            (warn or _log.warning)(NO_GOLDEN)
    progress("write")
    return write_bundle(program, out, goldens=goldens, extras=runtime_files(program), force=force)


def _beyond(program: Program, caps: Caps) -> Iterator[str]:
    """What the program needs beyond what every device of its kind guarantees."""
    bytes = max((buffer.bytes for buffer in program.buffers), default=0)
    if bytes > caps.binding_bytes:
        yield (
            f"a tensor takes {bytes} bytes at most; not every device binds more than "
            f"{caps.binding_bytes}, and those that do not will refuse the bundle"
        )


def make_golden(graph: Graph, program: Program, given: Mapping[str, Any] | None = None) -> Any:
    """Expected outputs by plain C kernels in double precision; None without a C compiler."""
    from tinyedge.export import golden

    compiled = compile_graph(graph, find_target("cpu"), Options(optimize=False, wide=True))
    assert compiled.program is not None
    try:
        device = open_device(compiled.program)
    except DeviceError:
        return None
    with Replay(compiled.program, device) as replay:
        half = program.options.get("precision") == "fp16"
        tolerance = golden.FLOAT16_TOLERANCE if half else golden.FLOAT32_TOLERANCE
        small = {p.name: (0, 1) for p in program.inputs if dtypes.by_name(p.dtype).is_int}
        for ranges in ({}, small):
            case = golden.make(
                program,
                replay.run,
                made="cpu, unoptimised, double",
                tolerance=tolerance,
                ranges=ranges,
                given=given,
            )
            if all(_says_something(np.asarray(output.data)) for output in case.outputs):
                break
        return case


def _says_something(values: Any) -> bool:
    """Whether expected values are not all NaN or infinite, as masks of odd values make them."""
    return values.dtype.kind != "f" or not values.size or bool(np.isfinite(values).any())


def runtime_files(program: Program) -> Mapping[str, Path | bytes]:
    """What a target's user needs beside the bundle's own files: name -> file or content."""
    if program.target == "webgpu":
        from tinyedge.export import web

        return web.runtime_files(program)
    if program.target == "cpu":
        from tinyedge.export import c_bundle

        return c_bundle.runtime_files(program)
    return {}


def choose_options(
    target: str, precision: str | None = None, *, optimize: bool = True, profile: str = "default"
) -> Options:
    """Options for a target; without a precision, with its own. Raises InputError."""
    chosen = find_target(target).precision if precision is None else precision
    options = Options(optimize=optimize, profile=profile, precision=chosen)
    check_options(target, options)
    return options


def check_options(target: str, options: Options) -> None:
    """Raise InputError unless there is such a target and it knows these options."""
    profiles = find_target(target).profiles
    _choose("precision", options.precision, PRECISIONS)
    _choose("profile", options.profile, profiles)
    if options.precision == "fp16" and not profiles[options.profile].halves:
        raise InputError(
            "precision 'fp16'",
            f"the {target} target keeps no halves in memory",
            id="option.precision",
            supported="fp32",
            next="leave --precision out, or export for webgpu or qcom",
        )


def _choose(option: str, value: str, choices: Collection[str]) -> None:
    if value not in choices:
        raise InputError(
            f"{option} {value!r}",
            f"there is no such {option}",
            id=f"option.{option}",
            supported=", ".join(choices),
        )


def _golden_input(name: str, file: Any) -> Any:
    """An array, or one from a .npy file."""
    from tinyedge.export.arrays import read_array

    if not isinstance(file, (str, Path)):
        return np.asarray(file)
    try:
        return read_array(file)
    except ValueError as error:
        raise InputError(
            f"golden input {name!r}, file {str(file)!r}",
            str(error),
            id="golden.file",
            supported="a file written by numpy.save",
        ) from None


def _check_names(given: Mapping[str, Any], graph: Graph) -> None:
    names = [port.name for port in graph.inputs]
    for name in given:
        if name not in names:
            raise InputError(
                f"golden input {name!r}",
                "the model has no such input",
                id="golden.input",
                supported=", ".join(map(repr, names)),
            )


def _check_call(function: Callable[..., Any], examples: Mapping[str, Any] | Sequence[Any]) -> None:
    """Raise InputError unless the function takes the examples as its arguments."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return
    try:
        if isinstance(examples, Mapping):
            signature.bind(**examples)
        else:
            signature.bind(*examples)
    except TypeError as error:
        raise InputError(
            "the function's inputs",
            str(error),
            id="function.input",
            supported=", ".join(signature.parameters) or "no parameters",
            next="name the example inputs as the function's parameters, or give them in order",
        ) from None


def _element_type(name: str, array: Any) -> dtypes.DType:
    try:
        return dtypes.from_numpy(array.dtype)
    except TypeError as error:
        raise InputError(f"input {name!r}", str(error), id="function.input") from None


def compile_model(path: str | Path, target: str, options: Options, **more: Any) -> Compilation:
    """An ONNX file through the compiler's stages, without writing anything."""
    check_options(target, options)
    graph, _ = import_graph(path, more.pop("dims", None))
    return compile_graph(graph, find_target(target), options, **more)


def _plain(text: str) -> str:
    """Text of a model as the manifest may hold it: printable ASCII."""
    return ascii(text)[1:-1]


def _silent(*_: Any) -> None:
    """No progress wanted."""
