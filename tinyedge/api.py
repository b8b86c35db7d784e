"""What the package offers: export a model or a function, load a bundle and run it."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tinyedge.choices import (
    check_options,
    choose_options,
    choose_profiles,
    find_fallback,
    find_target,
    for_training,
    pixels_of,
)
from tinyedge.core.compiler.compile import compile_graph
from tinyedge.core.compiler.options import Options
from tinyedge.core.compiler.state import Compilation
from tinyedge.core.errors import InputError
from tinyedge.core.program.program import Program, Variant
from tinyedge.core.tensor.graph import Graphs
from tinyedge.export.limits import Limits
from tinyedge.export.options import ImportOptions, choose_import
from tinyedge.given import checked
from tinyedge.goldens import make_goldens
from tinyedge.remarks import remarks

if TYPE_CHECKING:
    from tinyedge.core.compiler.target import Target
    from tinyedge.export.labels import Labels
    from tinyedge.export.onnx import Inspection
    from tinyedge.export.package.package import Extra
    from tinyedge.export.pictures import Words
    from tinyedge.export.slices import Specs
    from tinyedge.export.source import Entry, Number
    from tinyedge.export.stamps import Files, Stamp
    from tinyedge.export.states import Spec

Progress = Callable[..., None]
Warn = Callable[[str], None]

GOLDEN_STEPS = 8  # runs of a golden case where there are states
LOSS_SCALE = 1024.0  # where gradients are kept as fp16
TRAINING_STEPS = 2  # the second loss tells what the first step made of the states
MOST_STEPS = 1024  # that a bundle can hold

_log = logging.getLogger("tinyedge")


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
    winograd: bool = True,
    profile: str | Sequence[str] = "default",
    arch: str | Sequence[str] | None = None,
    fallback: str | None = None,
    name: str | None = None,
    golden: bool = True,
    golden_inputs: Mapping[str, Any] | None = None,
    golden_steps: int | None = None,
    states: Mapping[str, Spec] | None = None,
    state_init: Mapping[str, Any] | None = None,
    entries: Mapping[str, Entry] | None = None,
    slices: Specs | None = None,
    train: str | Sequence[str] | None = None,
    loss: str | Sequence[str] | None = None,
    optimizer: str = "adam",
    batch: int | None = None,
    loss_scale: float | None = None,
    images: Mapping[str, Words] | None = None,
    labels: Labels | None = None,
    debug_goldens: int | None = None,
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
            target's own, fp16 for qcom, fp32 for the others; with `train` fp32.
        optimize: Choose how each kernel computes; False makes the plain kernels of tests.
        winograd: Compute convolutions of 3 x 3 by Winograd's method where that is faster, which
            changes the last digits and takes more weights; False: as plain sums.
        profile: What is asked of a device, one of the target's; "default": what all of them have.
            Several, as "sse,default,avx512" or a sequence: one program for each, of which the best
            that a device can run is picked when the bundle is loaded.
        arch: For cuda, what kernels are compiled for: "sm_87,sm_90" or a sequence; default: sm_87.
        fallback: For webgpu, "wasm": the bundle also holds a program for WebAssembly, which a page
            runs where it finds no GPU. It needs the `ziglang` package.
        name: What the names in the bundle's C files begin with; default: the bundle's own.
        golden: Make the golden cases, by which the bundle can be verified.
        golden_inputs: Arrays or .npy files by input name, for the golden cases.
        golden_steps: Runs of a golden case, one after the other; default: 8 where there are states,
            else 1; with `train` 2.
        states: Inputs that are kept on the device between runs, each with the output that feeds it:
            {"hidden": "hidden_out", "features": "features_out:shift"}, or ("features_out",
            "shift"). docs/state.md says more.
        state_init: The states' first values where these are not zeros, arrays or .npy files.
        entries: More models by name that share the bundle's weights and states: ONNX files, or
            functions with their example inputs as (function, inputs).
        slices: Named parts of outputs, {"outputs": {"plan": (0, 100)}}.
        train: Patterns of the names of initializers, as "head.*": the bundle gets an entry `train`,
            of which each run is a step of training. docs/training.md says more.
        loss: With `train`, what a step makes smaller: "cross_entropy:scores", the loss of a value
            of the model; several are summed.
        optimizer: With `train`, how, with options: "adam:lr=1e-3,weight_decay=1e-4".
        batch: With `train`, the examples of a step, where the model leaves its first axes open.
        loss_scale: With `train`, what the loss is multiplied by for its gradients, so that fp16
            holds them; it is halved where one is too large. Default: 1024 with fp16, else none.
        images: Inputs that take pictures of any size, with how these become values, as
            {"x": "letterbox,rgb,imagenet"}; docs/pictures.md lists the words.
        labels: Names of an output's classes, as a file with one a line or a list; where several
            outputs or axes could be meant, by `OUTPUT` or `OUTPUT[AXIS]`: {"scores": "names.txt"}.
        debug_goldens: Bytes of the values of nodes that the bundle gives too, by entries beside the
            model's, with what they should be: `tinyedge verify --nodes` names the first node that
            differs. For finding a fault, not to be shipped.
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

    importing = choose_import(dims, bounds, outputs, constants, limits)
    *others, last = choose_profiles(target, profile)
    options = choose_options(
        target,
        precision,
        optimize=optimize,
        winograd=winograd,
        profile=last,
        arch=arch,
        limits=importing.limits,
    )
    place = Path(out) if out is not None else usual_place(path)
    named = (path, *(entries or {}).values(), *(golden_inputs or {}).values())
    named = (*named, *(state_init or {}).values(), *_files_of(labels))
    files: dict[Path, Stamp | None] = {
        Path(each): None for each in named if isinstance(each, (str, os.PathLike))
    }
    check_place(place, files)
    given = _arrays("golden input", golden_inputs, "golden.file")
    first = _arrays("initial value of state", state_init, "state.file")
    report = progress or silent
    report("import")
    step = None
    if train is not None or loss or batch is not None or loss_scale is not None:
        from tinyedge.export.train.spec import choose_training
        from tinyedge.export.train.step import Step

        if precision == "fp16" and loss_scale is None:
            loss_scale = LOSS_SCALE
        training = choose_training(train or (), loss, optimizer, batch, loss_scale)
        step = Step(path, training, importing)
        importing = replace(importing, variables=frozenset(step.names))
    source, assumed, record, size = source_of(
        path,
        importing,
        entries=entries,
        states=states,
        state_init=first,
        slices=slices,
        images=images,
        pixels=pixels_of(target),
        labels=labels,
        debug_goldens=debug_goldens,
        files=files,
    )
    if step is not None:
        source, record = step.added_to(source), {**record, "train": step.record}
        given = {**step.golden_inputs, **given}
        golden_steps = golden_steps or TRAINING_STEPS
        size = 2 * size if size is not None else None  # a step is another model from the same file
    _check_names(given, source)
    for text in (*assumed, *(step.advice if step is not None else ())):
        (warn or _log.warning)(text)
    return export_graph(
        source,
        target,
        place,
        for_training(options, precision, source),
        others=others,
        fallback=fallback,
        name=name,
        golden=golden,
        golden_steps=golden_steps,
        given=given,
        limits=importing.limits,
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
    winograd: bool = True,
    profile: str | Sequence[str] = "default",
    arch: str | Sequence[str] | None = None,
    fallback: str | None = None,
    name: str | None = None,
    golden: bool = True,
    golden_steps: int | None = None,
    states: Mapping[str, Spec] | None = None,
    state_init: Mapping[str, Any] | None = None,
    entries: Mapping[str, Entry] | None = None,
    slices: Specs | None = None,
    images: Mapping[str, Words] | None = None,
    labels: Labels | None = None,
    debug_goldens: int | None = None,
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

    importing = choose_import(limits=limits)
    *others, last = choose_profiles(target, profile)
    options = choose_options(
        target,
        precision,
        optimize=optimize,
        winograd=winograd,
        profile=last,
        arch=arch,
        limits=importing.limits,
    )
    first = _arrays("initial value of state", state_init, "state.file")
    source, assumed, record, _ = source_of(
        (function, example_inputs),
        importing,
        entries=entries,
        states=states,
        state_init=first,
        slices=slices,
        images=images,
        pixels=pixels_of(target),
        labels=labels,
        debug_goldens=debug_goldens,
    )
    for text in assumed:
        (warn or _log.warning)(text)
    return export_graph(
        source,
        target,
        Path(out),
        for_training(options, precision, source),
        others=others,
        fallback=fallback,
        name=name,
        golden=golden,
        golden_steps=golden_steps,
        limits=importing.limits,
        force=force,
        progress=progress or silent,
        warn=warn,
        record=record,
    )


def export_graph(
    source: Graphs,
    target: str,
    out: Path,
    options: Options,
    *,
    others: Sequence[str] = (),
    fallback: str | None = None,
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

    others: profiles that the bundle has programs for, too, better than that of `options`, the best
    first. fallback, name: as for `export_onnx`. limits: what the golden cases and the bundle may
    take. record: more of what the bundle was made with, for its manifest's `options`. model_bytes:
    of the models, to which the bundle's size is held; None: it may have any.
    """
    from tinyedge.export.package.c_bundle import check_prefix
    from tinyedge.export.package.package import check_place, write_bundle
    from tinyedge.export.verify.estimate import check_growth

    check_options(target, options)
    check_place(out, files)
    if name is not None:
        check_prefix(name)
    spare = find_fallback(fallback, target) if fallback is not None else None
    if spare is not None and spare.compiler is not None:
        spare.compiler.check(())
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

    def held(program: Program) -> None:
        """To the limit of what its bundle may take."""
        if model_bytes is not None:
            kernel_bytes = sum(len(kernel.source) for kernel in program.kernels)
            check_growth(program.weights, kernel_bytes, model_bytes, limits or Limits())

    programs = []
    for profile in (*others, options.profile):
        chosen = replace(options, profile=profile)
        compiled = compile_graph(source, find_target(target), chosen, progress=progress)
        program = compiled.program
        assert program is not None
        held(program)
        programs.append(replace(program, options={**program.options, **(record or {})}))
    program = programs[-1]
    largest = max((buffer.bytes for buffer in program.buffers), default=0)
    pictures = (record or {}).get("images", ())
    for text in remarks(source, find_target(target), largest, compiled.caps, pictures):
        (warn or _log.warning)(text)
    other = None
    if spare is not None:
        plain = replace(options, precision="fp32", profile="default")
        other = compile_graph(source, spare, plain, progress=progress).program
        assert other is not None
        held(other)
        other = replace(other, options={**other.options, **(record or {})})
    if compiler is not None or other is not None:
        progress("compile")
    if other is not None and spare is not None:
        other = _compiled(other, spare, (), warn or _log.warning)
    program = _compiled(program, find_target(target), architectures, warn or _log.warning)
    goldens = []
    if golden:
        progress("golden")
        goldens = make_goldens(source, program, steps, given, limits, warn)
    progress("write")
    variants = _variants(target, [*programs[:-1], program]) if others else ()
    extras = runtime_files(program, name or Path(os.path.realpath(out)).stem, variants)
    return write_bundle(
        program,
        out,
        goldens=goldens,
        extras=extras,
        force=force,
        variants=variants,
        fallback=other,
    )


def _compiled(
    program: Program, target: Target, architectures: Sequence[str], warn: Warn
) -> Program:
    """A program with its kernels compiled, where its target has them compiled at export."""
    from tinyedge.export.bundle.writing import kernel_file

    if target.compiler is None:
        return program
    return replace(
        program,
        binaries=target.compiler.build(kernel_file(program), architectures, warn),
        options={**program.options, "compiled": list(target.compiler.versions(architectures))},
    )


def _variants(target: str, programs: Sequence[Program]) -> list[Variant]:
    """Programs as those of one bundle, called by their profiles."""
    requires = find_target(target).requires
    names = [str(program.options["profile"]) for program in programs]
    return [Variant(n, requires[n], each) for n, each in zip(names, programs, strict=True)]


def runtime_files(
    program: Program, name: str = "model", variants: Sequence[Variant] = ()
) -> Mapping[str, Extra]:
    """What a target's user needs beside the bundle's own files: name -> file or content.

    name: of the bundle, which names in C begin with. variants: of a bundle of several programs.
    """
    runtime = find_target(program.target).runtime
    if runtime == "web":
        from tinyedge.export.package import web

        return web.runtime_files(program, name)
    if runtime == "c":
        from tinyedge.export.package import c_bundle

        return c_bundle.runtime_files(program, name, variants)
    return {}


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


def _files_of(labels: Labels | None) -> Sequence[Any]:
    """The files that labels are read from, among other values."""
    return list(labels.values()) if isinstance(labels, Mapping) else [labels]


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
    path: str | Path, target: str, options: Options, importing: ImportOptions, **more: Any
) -> Compilation:
    """An ONNX file through the compiler's stages, without writing anything."""
    from tinyedge.export.source import alone, import_graph

    check_options(target, options)
    graph, _ = import_graph(path, importing)
    return compile_graph(alone(graph), find_target(target), options, **more)


def inspect_model(
    path: str | Path, target: str, options: Options, importing: ImportOptions
) -> tuple[Inspection, Compilation | InputError | None]:
    """What the importer makes of an ONNX file, and the compiler of what could be imported.

    The compiler goes as far as the choice of moves; only to "fold" if something is refused or a
    size is open. None where no output is left; what the target cannot compile is an error.
    """
    from tinyedge.export.onnx import inspect_model
    from tinyedge.export.source import alone

    check_options(target, options)
    found = inspect_model(path, importing)
    if not found.remaining.outputs:
        return found, None
    stage = "fold" if found.refused or found.open else "optimize"
    source = alone(found.remaining.graph())
    try:
        return found, compile_graph(source, find_target(target), options, stop_after=stage)
    except InputError as error:
        return found, error


def silent(*_: Any) -> None:
    """No progress wanted."""
