"""What the package offers: export a model or a function, load a bundle and run it.

With the command line, this is the only place that turns a target's name into a target.
"""

from __future__ import annotations

import contextlib
import importlib
import logging
import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tinyedge.core import dtype as dtypes
from tinyedge.core.compiler.caps import Caps
from tinyedge.core.compiler.compile import compile_graph
from tinyedge.core.compiler.options import Options
from tinyedge.core.compiler.state import Compilation
from tinyedge.core.compiler.target import Target
from tinyedge.core.errors import DeviceError, InputError, RunError
from tinyedge.core.ir import ops
from tinyedge.core.ir.overflow import beyond
from tinyedge.core.ir.shapes import maximum, product
from tinyedge.core.ir.uop import UOp, toposort
from tinyedge.core.program.program import Program
from tinyedge.core.program.replay import Replay
from tinyedge.core.tensor.graph import Graph, Graphs
from tinyedge.export.limits import Limits, choose_limits
from tinyedge.given import checked
from tinyedge.model import TARGETS

if TYPE_CHECKING:
    from tinyedge.export.bundle.golden import Golden
    from tinyedge.export.onnx import Inspection
    from tinyedge.export.package.package import Extra, Files, Stamp
    from tinyedge.export.slices import Specs
    from tinyedge.export.source import Entry, Number
    from tinyedge.export.states import Spec

PRECISIONS = ("fp32", "fp16")

Progress = Callable[..., None]
Warn = Callable[[str], None]

LITTLE_WORK = 1 << 21  # of a kernel in a golden case, which a C compiler need not make faster
GOLDEN_STEPS = 8  # runs of a golden case where there are states
MOST_STEPS = 1024  # that a bundle can hold
NAMES = 8  # that a warning lists

NO_GOLDEN = (
    "no golden case, so the bundle cannot be verified: a C compiler, or the ziglang package, "
    "is needed to make one"
)

NO_MEMORY = (
    "no golden case, so the bundle cannot be verified: it takes more memory than there is ({}); "
    "export where there is more, or compare with the model by verify --against"
)

NO_OUTPUTS = (
    "entry {!r} has no outputs, so no golden case checks it: keep an output that feeds a state by "
    ":keep, or compare with the model by verify --against"
)

PROVES_LITTLE = (
    "the golden case of entry {!r} proves little of a device: of generated inputs, {} everywhere; "
    "give real ones by --golden-input NAME=FILE.npy"
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


@checked
def export_onnx(
    path: str | Path,
    *,
    target: str = "webgpu",
    out: str | Path | None = None,
    dims: Mapping[str, int | str] | None = None,
    bounds: Mapping[str, int] | None = None,
    outputs: str | Sequence[str] | None = None,
    constants: Mapping[str, Number] | None = None,
    limits: Mapping[str, int] | None = None,
    precision: str | None = None,
    optimize: bool = True,
    profile: str = "default",
    arch: str | Sequence[str] | None = None,
    name: str | None = None,
    golden: bool = True,
    golden_inputs: Mapping[str, Any] | None = None,
    golden_steps: int | None = None,
    states: Mapping[str, Spec] | None = None,
    state_init: Mapping[str, Any] | None = None,
    entries: Mapping[str, Entry] | None = None,
    slices: Specs | None = None,
    force: bool = False,
    progress: Progress | None = None,
    warn: Warn | None = None,
) -> Path:
    """Compile an ONNX file into a bundle and return the bundle's path.

    Args:
        path: The ONNX file.
        target: "webgpu", "qcom", "cuda" or "cpu".
        out: The bundle; default: the model's name with .tinyedge, in the current folder.
        dims: Sizes of the dimensions that the model leaves open, as `--dim` takes them: {"H": 64}.
        bounds: By a node's name, the most iterations of a loop whose number only a run will know.
        outputs: Names of values of the model to take in place of its outputs; what these do not
            need is left out.
        constants: Inputs that are always one number, as {"sr": 16000}; these are inputs no more.
        limits: By name, what the model may ask for, {"nodes": 100_000}; docs/limits.md lists them.
        precision: "fp32", or "fp16" for weights and activations kept as fp16; default: the
            target's own, fp16 for qcom, fp32 for the others.
        optimize: Choose how each kernel computes; False makes the plain kernels of tests.
        profile: What is asked of a device, one of the target's; "default": what all of them have.
        arch: For cuda, what kernels are compiled for: "sm_87,sm_90" or a sequence; default: sm_87.
        name: What the names in the bundle's C files begin with; default: the bundle's own.
        golden: Make the golden cases, by which the bundle can be verified.
        golden_inputs: Arrays or .npy files by input name, for the golden cases.
        golden_steps: Runs of a golden case, one after the other; default: 8 where there are states,
            else 1.
        states: Inputs that are kept on the device between runs, each with the output that feeds it:
            {"hidden": "hidden_out", "features": "features_out:shift"}, or ("features_out",
            "shift"). docs/state.md says more.
        state_init: The states' first values where these are not zeros, arrays or .npy files.
        entries: More models by name that share the bundle's weights and states: ONNX files, or
            functions with their example inputs as (function, inputs).
        slices: Named parts of outputs, {"outputs": {"plan": (0, 100)}}.
        force: Replace a bundle in whose folder other files lie.
        progress: Called with the name of each stage as it begins.
        warn: Called with what had to be assumed; default: a warning of the logger `tinyedge`.

    Raises:
        ModelError: The model is damaged or inconsistent, or asks for more than the limits allow.
        UnsupportedOp: The model is valid, and has operators that cannot be imported.
        InputError: An option, a golden input or a place that cannot be written.
        DeviceError: Kernels cannot be compiled here, where the target needs that.
    """
    from tinyedge.export.package.package import check_place, usual_place
    from tinyedge.export.source import source_of

    options = choose_options(target, precision, optimize=optimize, profile=profile, arch=arch)
    allowed = choose_limits(limits)
    options = replace(options, **_folding(allowed))
    place = Path(out) if out is not None else usual_place(path)
    named = (path, *(entries or {}).values(), *(golden_inputs or {}).values())
    named = (*named, *(state_init or {}).values())
    files: dict[Path, Stamp | None] = {
        Path(each): None for each in named if isinstance(each, (str, os.PathLike))
    }
    check_place(place, files)
    given = _arrays("golden input", golden_inputs, "golden.file")
    first = _arrays("initial value of state", state_init, "state.file")
    report = progress or _silent
    report("import")
    source, assumed, record, size = source_of(
        path,
        dims=dims,
        bounds=bounds,
        outputs=outputs,
        constants=constants,
        limits=limits,
        entries=entries,
        states=states,
        state_init=first,
        slices=slices,
        files=files,
    )
    _check_names(given, source)
    for text in assumed:
        (warn or _log.warning)(text)
    return export_graph(
        source,
        target,
        place,
        options,
        name=name,
        golden=golden,
        golden_steps=golden_steps,
        given=given,
        limits=allowed,
        force=force,
        progress=report,
        warn=warn,
        record=record,
        files=files,
        model_bytes=size,
    )


@checked
def export_function(
    function: Callable[..., Any],
    example_inputs: Mapping[str, Any] | Sequence[Any],
    *,
    target: str = "webgpu",
    out: str | Path = "function.tinyedge",
    precision: str | None = None,
    optimize: bool = True,
    profile: str = "default",
    arch: str | Sequence[str] | None = None,
    name: str | None = None,
    golden: bool = True,
    golden_steps: int | None = None,
    states: Mapping[str, Spec] | None = None,
    state_init: Mapping[str, Any] | None = None,
    entries: Mapping[str, Entry] | None = None,
    slices: Specs | None = None,
    limits: Mapping[str, int] | None = None,
    force: bool = False,
    progress: Progress | None = None,
    warn: Warn | None = None,
) -> Path:
    """Compile a Python function over tensors into a bundle and return the bundle's path.

    Args:
        function: Takes Tensors and returns a Tensor (then called `output`), a sequence
            (`output_0`, ...) or a dict of them.
        example_inputs: Arrays whose element types and shapes the inputs get: by the names of the
            parameters, or in order, which calls the inputs `input_0`, `input_1`, ...
        target: As for `export_onnx`, and so are all that are not named here.
        out: The bundle.
        limits: As for `export_onnx`, of which those of models do nothing.

    Raises:
        InputError: An option, an array, or what the function returns.
        DeviceError: Kernels cannot be compiled here, where the target needs that.
    """
    from tinyedge.export.source import source_of

    options = choose_options(target, precision, optimize=optimize, profile=profile, arch=arch)
    allowed = choose_limits(limits)
    options = replace(options, **_folding(allowed))
    first = _arrays("initial value of state", state_init, "state.file")
    source, assumed, record, _ = source_of(
        (function, example_inputs), entries=entries, states=states, state_init=first, slices=slices
    )
    for text in assumed:
        (warn or _log.warning)(text)
    return export_graph(
        source,
        target,
        Path(out),
        options,
        name=name,
        golden=golden,
        golden_steps=golden_steps,
        limits=allowed,
        force=force,
        progress=progress or _silent,
        warn=warn,
        record=record,
    )


def export_graph(
    source: Graphs,
    target: str,
    out: Path,
    options: Options,
    *,
    name: str | None = None,
    golden: bool = True,
    golden_steps: int | None = None,
    given: Mapping[str, Any] | None = None,
    limits: Limits | None = None,
    force: bool = False,
    progress: Progress = lambda *_: None,
    warn: Warn | None = None,
    record: Mapping[str, Any] | None = None,
    files: Files | None = None,
    model_bytes: int | None = None,
) -> Path:
    """Compile graphs and write the bundle with its golden cases.

    name: as for `export_onnx`. limits: what the golden cases and the bundle may take. record: more
    of what the bundle was made with, for its manifest's `options`. model_bytes: of the models, to
    which the bundle's size is held; None: it may have any.
    """
    from tinyedge.export.bundle.files import kernel_file
    from tinyedge.export.package.c_bundle import check_prefix
    from tinyedge.export.package.package import check_place, write_bundle
    from tinyedge.export.verify.estimate import check_growth

    check_options(target, options)
    check_place(out, files)
    if name is not None:
        check_prefix(name)
    compiler = find_target(target).compiler
    architectures = compiler.check(options.architectures) if compiler is not None else ()
    steps = GOLDEN_STEPS if source.states else 1
    if golden_steps is not None:
        steps = golden_steps
        if not 1 <= steps <= MOST_STEPS:
            raise InputError(
                f"golden steps {steps}",
                "a golden case cannot have so many runs",
                id="golden.steps",
                supported=f"1 to {MOST_STEPS}",
            )
    compiled = compile_graph(source, find_target(target), options, progress=progress)
    assert compiled.program is not None
    program = compiled.program
    if model_bytes is not None:
        kernel_bytes = sum(len(kernel.source) for kernel in program.kernels)
        check_growth(program.weights, kernel_bytes, model_bytes, limits or Limits())
    program = replace(program, options={**program.options, **(record or {})})
    largest = max((buffer.bytes for buffer in program.buffers), default=0)
    for text in remarks(source, find_target(target), largest, compiled.caps):
        (warn or _log.warning)(text)
    if compiler is not None:
        progress("compile")
        program = replace(
            program,
            binaries=compiler.build(kernel_file(program), architectures, warn or _log.warning),
            options={**program.options, "compiled": list(compiler.versions(architectures))},
        )
    goldens = []
    if golden:
        progress("golden")
        goldens = make_goldens(source, program, steps, given, limits, warn)
    progress("write")
    extras = runtime_files(program, name or Path(os.path.realpath(out)).stem)
    return write_bundle(program, out, goldens=goldens, extras=extras, force=force)


def remarks(source: Graphs, target: Target, largest: int, caps: Caps) -> Iterator[str]:
    """What a user of graphs on a target should know. largest: bytes of the largest buffer."""
    yield from _narrowed(source, target, caps)
    yield from _beyond_bits(source, target, caps)
    if largest > caps.binding_bytes:
        yield _beyond(source, target, largest, caps)


def _roots(graph: Graph) -> list[UOp]:
    """What a graph gives and keeps."""
    return [p.node for p in (*graph.outputs, *graph.updates) if p.node is not None]


def _narrowed(source: Graphs, target: Target, caps: Caps) -> Iterator[str]:
    """What is computed in float32 because the target has no doubles, by name."""
    if caps.computed_as.get("float64") != "float32":
        return
    names: dict[str, None] = {}
    for graph in source.entries.values():
        for port in (*graph.inputs, *graph.outputs):
            if port.dtype is dtypes.float64:
                names[port.name] = None
        for node in toposort(_roots(graph)):
            if dtypes.float64 in (node.dtype, *(s.dtype for s in node.src)) and node in graph.names:
                names[graph.names[node]] = None
    if names:
        yield (
            f"{target.name} has no doubles: {_shown(names)} computed in float32; "
            "`tinyedge verify` says how far from double precision the results are"
        )


def _beyond_bits(source: Graphs, target: Target, caps: Caps) -> Iterator[str]:
    """What might need more bits than the target's integers have, by name."""
    names: dict[str, None] = {}
    for graph in source.entries.values():
        for node in beyond(_roots(graph), graph.names, caps.computed_as):
            names[graph.names[node]] = None
    if names:
        yield (
            f"{target.name} has no 64-bit integers: {_shown(names)} computed in 32 bits, beyond "
            "which values are wrong"
        )


def _beyond(source: Graphs, target: Target, largest: int, caps: Caps) -> str:
    """What buffers need beyond what every device of their kind guarantees. largest: of them all."""
    large: dict[str, None] = {}
    for graph in source.entries.values():
        for node in toposort(_roots(graph)):
            if node.op is ops.BUFFER and node.arg.source.kind == "weight":
                kept = caps.stored_type(caps.computed_type(node.dtype))
                if maximum(product(node.shape)) * kept.itemsize == largest:
                    large[node.arg.source.name] = None
    what = f"{_shown(large)}: a weight" if large else "a tensor"
    return (
        f"{what} takes {largest} bytes; not every {target.name} device binds more than "
        f"{caps.binding_bytes}, and those that do not will refuse the bundle"
    )


def _shown(names: Collection[str]) -> str:
    """Names for a warning, of many only some."""
    shown = ", ".join(repr(name) for name in list(names)[:NAMES])
    return shown + (f" and {len(names) - NAMES} more" if len(names) > NAMES else "")


def make_goldens(
    source: Graphs,
    program: Program,
    steps: int = 1,
    given: Mapping[str, Any] | None = None,
    limits: Limits | None = None,
    warn: Warn | None = None,
) -> list[Golden]:
    """A case for each entry that has outputs: what plain C kernels in double precision give after
    `steps` runs from the initial states, rounded to fp16 between kernels as in the bundle.

    Warns of an entry that has none: without outputs, or where the case takes more than the limits
    or this machine's memory allow, and of all of them without a C compiler. Warns of cases that
    prove little, and where fp16 makes a difference that is notable.
    """
    from tinyedge.export.verify import fp16
    from tinyedge.export.verify.estimate import beyond

    say, allowed = warn or _log.warning, limits or Limits()
    precision = program.options["precision"]
    options = Options(False, precision=precision, fp64_reference=True, **_folding(allowed))
    cpu = find_target("cpu")
    if precision == "fp16":
        cpu = fp16.reference(cpu, find_target(program.target).caps(program.options["profile"]))
    compiled = compile_graph(source, cpu, options)
    assert compiled.program is not None
    names = []
    for entry in program.entries:
        reason = beyond(compiled, entry.name, steps, allowed)
        if not entry.outputs or reason:
            say(reason if entry.outputs else NO_OUTPUTS.format(entry.name))
        else:
            names.append(entry.name)
    if not names:
        return []
    try:
        device = _golden_device(compiled.program, steps)
    except DeviceError:
        say(NO_GOLDEN)
        return []
    try:
        with Replay(compiled.program, device) as replay:
            cases = [_golden(program, replay, name, steps, given, say) for name in names]
            if precision == "fp16":
                for number, case in enumerate(cases):
                    with _counted(case.entry):
                        cases[number] = fp16.expecting(program, compiled, replay, case, say)
            return cases
    except (DeviceError, MemoryError) as error:
        if isinstance(error, DeviceError) and error.id != "device.memory":
            raise
        say(NO_MEMORY.format(error.because if isinstance(error, DeviceError) else error))
        return []


def _golden_device(program: Program, steps: int) -> Any:
    """The processor, for kernels that run `steps` times: to make these faster would take a C
    compiler longer than they run.
    """
    module = importlib.import_module("tinyedge.targets.cpu.device")
    return module.open(
        requirements=program.requirements,
        optimization=("-O1", "-march=native"),
        little_work=LITTLE_WORK // steps,
    )


def _golden(
    program: Program,
    replay: Replay,
    entry: str,
    steps: int,
    given: Mapping[str, Any] | None,
    say: Warn,
) -> Golden:
    """One entry's case, with generated integers that are small where others say nothing."""
    from tinyedge.export.bundle import golden

    half = program.options.get("precision") == "fp16" or golden.has_fp16(program)
    ports = program.inputs_of(golden.find_entry(program, entry)).values()
    small = {p.name: (0, 1) for p in ports if dtypes.by_name(p.dtype).is_int}
    for ranges in ({}, small) if small else ({},):
        with _counted(entry):
            case = golden.make(
                program,
                replay.run,
                made="cpu, unoptimized, double",
                entry=entry,
                steps=steps,
                tolerance=golden.FLOAT16_TOLERANCE if half else golden.FLOAT32_TOLERANCE,
                ranges=ranges,
                given=given,
                reset=replay.reset,
            )
        if all(_is_finite(np.asarray(output.data)) for output in case.outputs):
            break
    found = zip(golden.find_entry(program, entry).outputs, case.outputs, strict=True)
    constant = [f"{name!r} is {c}" for name, o in found if (c := _constant(o.data)) is not None]
    if constant and any(record.data is None for record in case.inputs):
        say(PROVES_LITTLE.format(entry, ", ".join(constant)))
    return case


@contextlib.contextmanager
def _counted(entry: str) -> Iterator[None]:
    """Counts that do not fit, in a case's run, are the fault of its inputs."""
    try:
        yield
    except RunError as error:
        if error.id != "replay.count":
            raise
        raise InputError(
            f"the golden case of entry {entry!r}",
            f"of its inputs, {error.subject}: {error.because}",
            id="golden.count",
            next="give real inputs with --golden-input NAME=FILE.npy, or a greater --bound",
        ) from error


def _is_finite(values: Any) -> bool:
    """Whether expected values are not all NaN or infinite, as masks of odd values make them."""
    return values.dtype.kind != "f" or not values.size or bool(np.isfinite(values).any())


def _constant(values: Any) -> str | None:
    """What expected floats all are, if one value: a single one is only told where it is 0, NaN or
    infinite.
    """
    if values.dtype.kind != "f" or not values.size:
        return None
    first = values.reshape(-1)[0]
    same = np.array_equal(values, np.full_like(values, first), equal_nan=True)
    telling = values.size == 1 and np.isfinite(first) and first != 0
    return str(first) if same and not telling else None


def runtime_files(program: Program, name: str = "model") -> Mapping[str, Extra]:
    """What a target's user needs beside the bundle's own files: name -> file or content.

    name: of the bundle, which names in C begin with.
    """
    if program.target == "webgpu":
        from tinyedge.export.package import web

        return web.runtime_files(program)
    from tinyedge.export.package import c_bundle

    return c_bundle.runtime_files(program, name) if program.target in c_bundle.BACKENDS else {}


def choose_options(
    target: str,
    precision: str | None = None,
    *,
    optimize: bool = True,
    profile: str = "default",
    arch: str | Sequence[str] | None = None,
) -> Options:
    """Options for a target; without a precision, with its own. Raises InputError."""
    chosen = find_target(target).precision if precision is None else precision
    names = arch.split(",") if isinstance(arch, str) else arch or ()
    options = Options(optimize, profile, chosen, architectures=tuple(n.strip() for n in names))
    check_options(target, options)
    return options


def _folding(limits: Limits) -> dict[str, Any]:
    """The options of the compiler that say what constants it computes."""
    return {"folded_work": limits.folded_work, "folded_growth": limits.folded_growth}


def check_options(target: str, options: Options) -> None:
    """Raise InputError unless there is such a target and it knows these options."""
    profiles = find_target(target).profiles
    _choose("precision", options.precision, PRECISIONS)
    _choose("profile", options.profile, profiles)
    if options.precision == "fp16" and not profiles[options.profile].fp16_storage:
        raise InputError(
            "precision 'fp16'",
            f"the {target} target keeps no fp16 values in memory",
            id="option.precision",
            supported="fp32",
            next="leave --precision out, or export for webgpu, qcom or cuda",
        )
    compiler = find_target(target).compiler
    if compiler is not None and options.architectures:
        compiler.check(options.architectures)
    elif options.architectures:
        raise InputError(
            f"architectures {', '.join(options.architectures)}",
            f"kernels for {target} are compiled on the device",
            id="option.arch",
            next="leave --arch out, or export for cuda",
        )


def _choose(option: str, value: str, choices: Collection[str]) -> None:
    if value not in choices:
        raise InputError(
            f"{option} {value!r}",
            f"there is no such {option}",
            id=f"option.{option}",
            supported=", ".join(choices),
        )


def _arrays(subject: str, files: Mapping[str, Any] | None, id: str) -> dict[str, Any]:
    """Arrays by name, from arrays or .npy files. Raises InputError."""
    from tinyedge.export.arrays import read_array

    arrays: dict[str, Any] = {}
    for name, file in (files or {}).items():
        try:
            is_file = isinstance(file, (str, Path))
            arrays[name] = read_array(file) if is_file else np.asarray(file)
        except ValueError as error:
            raise InputError(
                f"{subject} {name!r}, file {str(file)!r}",
                str(error),
                id=id,
                supported="a file written by numpy.save",
            ) from None
    return arrays


def _check_names(given: Mapping[str, Any], source: Graphs) -> None:
    states = {state.name for state in source.states}
    ports = [port for graph in source.entries.values() for port in graph.inputs]
    names = [name for name in dict.fromkeys(port.name for port in ports) if name not in states]
    for name in given:
        if name not in names:
            raise InputError(
                f"golden input {name!r}",
                "it is a state" if name in states else "the model has no such input",
                id="golden.input",
                supported=", ".join(map(repr, names)),
                next="give a state its first value by --state-init" if name in states else "",
            )


def compile_model(
    path: str | Path,
    target: str,
    options: Options,
    *,
    dims: Mapping[str, int | str] | None = None,
    bounds: Mapping[str, int] | None = None,
    outputs: str | Sequence[str] | None = None,
    constants: Mapping[str, Number] | None = None,
    limits: Mapping[str, int] | None = None,
    **more: Any,
) -> Compilation:
    """An ONNX file through the compiler's stages, without writing anything."""
    from tinyedge.export.source import import_graph

    check_options(target, options)
    graph, _ = import_graph(path, dims, bounds, outputs, constants, limits)
    options = replace(options, **_folding(choose_limits(limits)))
    return compile_graph(graph, find_target(target), options, **more)


def inspect_model(
    path: str | Path,
    target: str,
    options: Options,
    *,
    dims: Mapping[str, int | str] | None = None,
    bounds: Mapping[str, int] | None = None,
    outputs: str | Sequence[str] | None = None,
    constants: Mapping[str, Number] | None = None,
    limits: Mapping[str, int] | None = None,
) -> tuple[Inspection, Compilation | InputError | None]:
    """What the importer makes of an ONNX file, and the compiler of what could be imported.

    The compiler goes as far as the choice of moves; only to "fold" if something is refused or a
    size is open. None where no output is left; what the target cannot compile is an error.
    """
    from tinyedge.export.onnx import inspect_model

    check_options(target, options)
    allowed = choose_limits(limits)
    options = replace(options, **_folding(allowed))
    found = inspect_model(
        path,
        dims=dims,
        bounds=bounds,
        outputs=outputs,
        constants=constants,
        limits=allowed,
    )
    if not found.remaining.outputs:
        return found, None
    stage = "fold" if found.refused or found.open else "optimize"
    graph = found.remaining.graph()
    try:
        return found, compile_graph(graph, find_target(target), options, stop_after=stage)
    except InputError as error:
        return found, error


def _silent(*_: Any) -> None:
    """No progress wanted."""
