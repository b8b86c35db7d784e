"""`tinyedge inspect`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tinyedge.api import inspect_model
from tinyedge.choices import choose_options
from tinyedge.cli.arguments import (
    ALLOW_LINKS,
    BOUNDS,
    CONSTANTS,
    DIMS,
    KEEP_GOING,
    LIMITS,
    OUTPUTS,
    PRECISION,
    numbers,
    split_constants,
    split_dims,
    split_limits,
)
from tinyedge.cli.output import (
    bytes_of,
    print_fallback,
    print_variants,
    say,
    say_json,
    say_text,
    several,
    table,
)
from tinyedge.core.compiler.state import Compilation
from tinyedge.core.errors import InputError, UnsupportedOp
from tinyedge.core.program.ports import describe_values
from tinyedge.core.program.ports import say as say_size
from tinyedge.core.program.program import (
    Copy,
    Entry,
    Kernel,
    Launch,
    Port,
    Program,
    State,
    launches,
)
from tinyedge.core.tensor.expressions import expression
from tinyedge.export.options import choose_import
from tinyedge.model import TARGETS
from tinyedge.remarks import remarks

if TYPE_CHECKING:
    from tinyedge.export.onnx import Inspection


@click.command("inspect")
@click.argument("path", type=click.Path(path_type=Path))
@click.option(
    "-t",
    "--target",
    type=click.Choice(TARGETS),
    default="webgpu",
    show_default=True,
    help="What to estimate a model for.",
)
@DIMS
@BOUNDS
@CONSTANTS
@LIMITS
@ALLOW_LINKS
@OUTPUTS
@KEEP_GOING
@PRECISION
@click.option(
    "--variant",
    metavar="NAME",
    help="Of a bundle with programs for several profiles, which. Default: that of manifest.json.",
)
@click.option("--kernel", type=int, metavar="N", help="Print the source of kernel N of a bundle.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(
    path: Path,
    target: str,
    dims: tuple[str, ...],
    bounds: tuple[str, ...],
    constants: tuple[str, ...],
    limits: tuple[str, ...],
    allow_links: bool,
    outputs: tuple[str, ...],
    keep_going: bool,
    precision: str | None,
    variant: str | None,
    kernel: int | None,
    as_json: bool,
) -> int:
    """Show what PATH holds: a model (an ONNX file) or a bundle (a folder).

    A model: inputs, outputs, symbolic sizes, operators and whether each can be exported, what is
    computed at export, and what the bundle will take: kernels, memory, operations.
    A bundle: inputs, outputs, kernels, launches, weights, peak memory; its files are verified.

    \b
    Exit codes:
      0    nothing stands against an export, but perhaps sizes that are open
      1    something of the model is refused, or the file cannot be read
      2    wrong usage of the command line
    """
    if path.is_dir():
        return _bundle(path, variant, kernel, as_json)
    if not path.exists():
        raise InputError(str(path), "there is no such file or folder", id="inspect.missing")
    options: dict[str, Any] = {
        "target": target,
        "dims": split_dims(dims),
        "bounds": numbers(bounds, "--bound", "NODE=N"),
        "constants": split_constants(constants),
        "limits": split_limits(limits, allow_links),
        "outputs": outputs or None,
        "precision": precision,
    }
    return _model(path, options, keep_going, as_json)


# A bundle.


def _bundle(path: Path, variant: str | None, kernel: int | None, as_json: bool) -> int:
    from tinyedge.export.bundle.reading import fallback_of, read, variants_of

    choose = (lambda *_: variant) if variant is not None else None
    bundle = read(path, weights=False, choose=choose)
    program = bundle.program
    if kernel is not None:
        return _kernel(program, kernel)
    uses = Counter(step["kernel"] for step in bundle.manifest["steps"] if step["op"] == "launch")
    facts = {
        "target": program.target,
        "tool": bundle.manifest["tool"],
        "inputs": [_port(port) for port in program.inputs],
        "outputs": [_port(port) for port in program.outputs],
        "symbols": [vars(symbol) for symbol in program.symbols],
        "states": [_state(state) for state in program.states],
        "entries": [_entry(entry, program) for entry in program.entries],
        "kernels": [
            {"name": kernel.name, "launches": uses[index], "workgroup": kernel.workgroup}
            for index, kernel in enumerate(program.kernels)
        ],
        "launches": sum(uses.values()),
        "weights": len(program.weights),
        "weight_bytes": sum(weight.bytes for weight in program.weights),
        "arena_bytes": sum(arena.bytes for arena in program.arenas),
        "peak_bytes": bundle.manifest["peak_bytes"],
        "goldens": len(bundle.manifest["golden"]),
        "compiled_bytes": sum(map(len, program.binaries.values())),
        "requirements": dict(program.requirements),
        "options": dict(program.options),
        "variant": bundle.variant,
        "variants": variants_of(path),
        "fallback": fallback_of(path),
    }
    if as_json:
        say_json(facts)
        return 0
    say(f"{path}: bundle for {program.target}, made by {facts['tool']}")
    say()
    _print_ports(program)
    for state in program.states:
        moves = f", a queue along axis {state.axis}" if state.update == "shift" else ""
        first = "" if state.initial < 0 else ", with initial values"
        say(f"state    {state.name} {state.dtype} [{_sizes(state.shape)}]{moves}{first}")
    if len(program.entries) > 1:
        say()
        columns = ("inputs", "outputs", "updates")
        entries = [
            (facts["name"], facts["launches"], *(", ".join(facts[c]) or "-" for c in columns))
            for facts in (_entry(entry, program) for entry in program.entries)
        ]
        table(("entry", ">launches", *columns), entries)
    say()
    flops = _flops(bundle.manifest["steps"])
    rows = [
        (
            index,
            kernel.name,
            uses[index],
            "x".join(map(str, kernel.workgroup)),
            len(kernel.bindings),
            f"{flops[index] / 1e6:.2f}",
        )
        for index, kernel in enumerate(program.kernels)
    ]
    table((">", "kernel", ">launches", "workgroup", ">buffers", ">MFLOP"), rows)
    say()
    say(f"launches {facts['launches']} of {several(len(program.kernels), 'kernel')}")
    if program.binaries:
        compiled = program.options.get("compiled")
        sizes = f"{several(len(program.binaries), 'file')}, {bytes_of(facts['compiled_bytes'])}"
        say(f"compiled {', '.join(compiled) if isinstance(compiled, list) else '-'}: {sizes}")
    _print_counters(program.options.get("counters"))
    say(f"weights  {bytes_of(facts['weight_bytes'])} in {len(program.weights)}")
    say(f"memory   {bytes_of(facts['peak_bytes'])} at most, weights included")
    say(f"goldens  {facts['goldens']}")
    print_fallback(facts["fallback"])
    if bundle.choices:
        say()
        say(f"variant  {bundle.variant}, of these, the best first:")
        print_variants(facts["variants"])
    return 0


def _print_counters(counters: Any) -> None:
    """What the launches read and move, as it was counted when they were compiled."""
    if not isinstance(counters, Mapping):
        return
    images, buffers, guarded, barriers, moved = (
        counters.get(name, 0)
        for name in ("image_reads", "buffer_reads", "guarded_reads", "barriers", "bytes")
    )
    say(
        f"reads    {images} of images, {buffers} of buffers in the kernels' text, "
        f"{guarded} of them guarded; {several(barriers, 'barrier')}"
    )
    say(f"moved    {bytes_of(moved)} a run at most: each launch's buffers once")


def _kernel(program: Program, index: int) -> int:
    if not 0 <= index < len(program.kernels):
        raise click.BadParameter(
            f"there are kernels 0..{len(program.kernels) - 1}", param_hint="--kernel"
        )
    kernel = program.kernels[index]
    for move in kernel.moves:
        say(f"// {_move(move)}")
    say_text(kernel.source)
    return 0


def _move(move: Mapping[str, Any]) -> str:
    """A move as `tinyedge explain` prints it."""
    facts = ", ".join(f"{name}={value!r}" for name, value in move.items() if name != "move")
    return f"{move.get('move')}({facts})"


def _flops(steps: Iterable[dict[str, Any]]) -> Counter[int]:
    flops: Counter[int] = Counter()
    for step in steps:
        if step["op"] == "launch":
            flops[step["kernel"]] += step["flops"]
    return flops


def _port(port: Port | State) -> dict[str, Any]:
    shape = [say_size(size) if isinstance(size, tuple) else size for size in port.shape]
    facts: dict[str, Any] = {"name": port.name, "dtype": port.dtype, "shape": shape}
    if isinstance(port, Port) and port.count:
        facts |= {"count": port.count, "axis": port.count_axis}
    return facts


def _state(state: State) -> dict[str, Any]:
    facts = {"update": state.update, "axis": state.axis, "initial": state.initial >= 0}
    return {**_port(state), **facts}


def _entry(entry: Entry, program: Program) -> dict[str, Any]:
    return {
        "name": entry.name,
        "inputs": entry.inputs,
        "outputs": entry.outputs,
        "input_numbers": [*program.inputs_of(entry)],
        "output_numbers": [*program.outputs_of(entry)],
        "updates": _updated(entry, program),
        "launches": sum(1 for _ in launches(entry.steps)),
    }


def _updated(entry: Entry, program: Program) -> list[str]:
    """The states that an entry's steps write."""
    written: set[int] = set()
    pending = list(entry.steps)
    while pending:
        step = pending.pop()
        if isinstance(step, Launch):
            stores = _stores(program, program.kernels[step.kernel])
            written.update(step.buffers[number] for number in stores)
        elif isinstance(step, Copy):
            written.add(step.destination)
        else:
            pending += step.body
    return [state.name for state in program.states if state.buffer in written]


def _stores(program: Program, kernel: Kernel) -> Iterable[int]:
    """The numbers of the arguments that a kernel writes. WGSL has to bind for writing what is only
    read, too, where both lie in one arena: there the text tells.
    """
    if program.target != "webgpu":
        return kernel.written
    from tinyedge.targets.webgpu.render import stores

    return stores(kernel.source)


def _sizes(shape: Iterable[Any]) -> str:
    return ", ".join(say_size(size) for size in shape)


def _print_ports(program: Program) -> None:
    for kind, ports in (("input", program.inputs), ("output", program.outputs)):
        names = Counter(port.name for port in ports)
        for number, port in enumerate(ports):
            sizes = [say_size(size) for size in port.shape]
            if port.count:
                sizes[port.count_axis] = f"up to {sizes[port.count_axis]}"
            where = f" of {_takers(program, kind, number)}" if names[port.name] > 1 else ""
            say(f"{kind:<8} {port.name} {port.dtype} [{', '.join(sizes)}]{where}")
            for part in port.slices:
                last = part.start + part.size
                say(f"{'':<8}   {part.name}: {part.start}..{last} of axis {part.axis}")
    for symbol in program.symbols:
        say(f"size     {symbol.name}: {describe_values(symbol)}")


def _takers(program: Program, kind: str, number: int) -> str:
    """The entries that have an input, or an output."""
    of = program.inputs_of if kind == "input" else program.outputs_of
    return ", ".join(entry.name for entry in program.entries if number in of(entry)) or "no entry"


# A model.


def _model(path: Path, options: dict[str, Any], keep_going: bool, as_json: bool) -> int:
    from tinyedge.cli.remaining import print_remaining, remaining
    from tinyedge.export.verify.estimate import estimate, folded

    given = {name: options[name] for name in ("dims", "bounds", "outputs", "constants", "limits")}
    importing = choose_import(**given)
    chosen = choose_options(options["target"], options["precision"], limits=importing.limits)
    found, state = inspect_model(path, options["target"], chosen, importing)
    refused = dict(found.refused)
    figures = None
    if isinstance(state, Compilation) and not refused and not found.open:
        try:
            figures = estimate(state, found.model.bytes, found.model.limits)
        except InputError as error:
            state = error
    if isinstance(state, InputError):
        refused[state.subject] = state
    facts: dict[str, Any] = {
        "opsets": found.model.opsets,
        "inputs": [_value(value) for value in found.inputs],
        "outputs": [_output(value, found) for value in found.model.proto.graph.output],
        "symbols": sorted(found.imported.sizes),
        "sizes": {n: str(b) for n, b in found.imported.sizes.items() if n not in found.open},
        "open": list(found.open),
        "operators": {report.name: report.count for report in found.operators},
        "unsupported": {subject: error.because for subject, error in refused.items()},
        "exportable": not refused,
        "target": options["target"],
        "precision": chosen.precision,
        "folded": None,
        "estimate": None,
        "notes": list(found.imported.warnings),
    }
    if isinstance(state, Compilation):
        facts["folded"] = vars(folded(found, state))
        if figures is not None:
            facts["estimate"] = {**vars(figures), "peak_bytes": figures.peak_bytes}
            facts["notes"] += remarks(state.source, state.target, figures.largest, state.caps)
    if keep_going and refused:
        facts["remaining"] = remaining(found, path, options)
    if as_json:
        say_json(facts)
        return 1 if refused else 0
    _print_model(path, found, facts)
    _print_refused(refused)
    if "remaining" in facts:
        say()
        print_remaining(facts["remaining"])
    _print_figures(facts)
    return 1 if refused else 0


def _print_model(path: Path, found: Inspection, facts: Mapping[str, Any]) -> None:
    from tinyedge.export.onnx.dims import ASSUMED

    opsets = ", ".join(f"{domain or 'ai.onnx'} {v}" for domain, v in found.model.opsets.items())
    proto = found.model.proto
    producer = f"{proto.producer_name} {proto.producer_version}".strip()
    made = f", made by {producer}" if producer else ""
    say(f"{path}: ONNX model, operator set {opsets}{made}")
    say()
    for kind in ("input", "output"):
        for value in facts[f"{kind}s"]:
            sizes = "any shape"
            if value["shape"] is not None:
                sizes = f"[{', '.join(map(str, value['shape']))}]"
            say(f"{kind:<8} {value['name']} {value['dtype']} {sizes}")
    if facts["symbols"]:
        sizes = ", ".join(f"{name} {facts['sizes'].get(name, 'open')}" for name in facts["symbols"])
        say(f"symbolic {sizes}")
    if found.open:
        say(f"open     taken as {ASSUMED} here: fix or bound each by --dim NAME=V")
    say()
    rows = [
        (report.name, report.count, "yes" if report.supported else "NO")
        for report in sorted(found.operators, key=lambda report: (-report.count, report.name))
    ]
    table(("operator", ">nodes", "supported"), rows)


def _print_refused(refused: Mapping[str, InputError]) -> None:
    if not refused:
        return
    say()
    say("cannot be exported:")
    for subject, error in refused.items():
        say(f"  {subject}: {error.because}")
    for step in dict.fromkeys(error.next for error in refused.values() if error.next):
        say(f"  next: {step}")


def _print_figures(facts: Mapping[str, Any]) -> None:
    say()
    folded, figures = facts["folded"], facts["estimate"]
    if folded is not None:
        say(
            f"folded   {folded['nodes']} of {several(folded['of'], 'node')}, "
            f"{folded['merged']} more into the weights of a node before them: "
            f"{bytes_of(folded['bytes'])} in {several(folded['weights'], 'new constant')}"
        )
    if figures is not None:
        say(f"for {facts['target']}, {facts['precision']}, at the greatest sizes:")
        kernels = several(figures["kernels"], "kernel")
        say(f"launches {figures['launches']} of at most {kernels}")
        say(f"weights  {bytes_of(figures['weight_bytes'])}")
        say(f"memory   {bytes_of(figures['peak_bytes'])} at most, weights included")
        say(f"compute  {figures['flops'] / 1e6:.2f} MFLOP a run")
    elif facts["unsupported"]:
        say("estimate none: something is refused")
    else:
        say(f"estimate none: {', '.join(facts['open'])} {_are(facts['open'])} open")
    for text in facts["notes"]:
        say(f"note: {text}")


def _are(things: Sequence[str]) -> str:
    return "is" if len(things) == 1 else "are"


def _output(value: Any, found: Inspection) -> dict[str, Any]:
    """An output as the model declares it; one that it does not declare, as it was imported."""
    tensor = found.imported.outputs.get(value.name)
    if value.HasField("type") or tensor is None:
        return _value(value)
    shape = [size if isinstance(size, int) else say_size(expression(size)) for size in tensor.shape]
    return {"name": value.name, "dtype": tensor.dtype.name, "shape": shape}


def _value(value: Any) -> dict[str, Any]:
    from tinyedge.export.onnx.reader import element_type

    kind = (value.type.WhichOneof("value") or "tensor_type").removesuffix("_type")
    if kind != "tensor":
        return {"name": value.name, "dtype": kind, "shape": None}
    tensor = value.type.tensor_type
    try:
        dtype = element_type(tensor.elem_type, value.name).name
    except UnsupportedOp:
        dtype = "unsupported"
    if not tensor.HasField("shape"):
        return {"name": value.name, "dtype": dtype, "shape": None}
    shape: list[int | str] = []
    for dim in tensor.shape.dim:
        if dim.HasField("dim_value") and dim.dim_value >= 0:
            shape.append(dim.dim_value)
        else:
            shape.append(dim.dim_param or "?")
    return {"name": value.name, "dtype": dtype, "shape": shape}
