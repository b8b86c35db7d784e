"""`tinyedge explain`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tinyedge.api import compile_model
from tinyedge.choices import choose_options
from tinyedge.cli.arguments import (
    ALLOW_LINKS,
    BOUNDS,
    CONSTANTS,
    DIMS,
    LIMITS,
    NO_WINOGRAD,
    OUTPUTS,
    PRECISION,
    PROFILE,
    check_profiles,
    numbers,
    split_constants,
    split_dims,
    split_limits,
)
from tinyedge.cli.output import say, say_text, several, stages, table
from tinyedge.core.compiler.compile import STAGES
from tinyedge.core.compiler.counters import inner_loops
from tinyedge.core.compiler.state import Compilation, CompiledKernel
from tinyedge.core.ir.text import graph_text, kernel_text, statements_text
from tinyedge.core.ir.text import say as say_node
from tinyedge.core.program.ports import say as say_size
from tinyedge.core.program.program import Launch, launches
from tinyedge.export.options import choose_import
from tinyedge.model import TARGETS

if TYPE_CHECKING:
    from tinyedge.core.ir.uop import UOp

NAMES = tuple(name for name, _ in STAGES)


@click.command("explain")
@click.argument("model", type=click.Path(path_type=Path))
@click.option("-t", "--target", type=click.Choice(TARGETS), default="webgpu", show_default=True)
@click.option("--stop-after", type=click.Choice(NAMES), default=NAMES[-1], show_default=True)
@click.option("--kernel", type=int, metavar="N", help="Only kernel N, as the stage leaves it.")
@click.option("--counters", is_flag=True, help="A table of what each kernel does and moves.")
@DIMS
@BOUNDS
@CONSTANTS
@LIMITS
@ALLOW_LINKS
@OUTPUTS
@PRECISION
@click.option("--no-optimize", is_flag=True, help="Plain kernels.")
@NO_WINOGRAD
@PROFILE
def command(
    model: Path,
    target: str,
    stop_after: str,
    kernel: int | None,
    counters: bool,
    dims: tuple[str, ...],
    bounds: tuple[str, ...],
    constants: tuple[str, ...],
    limits: tuple[str, ...],
    allow_links: bool,
    outputs: tuple[str, ...],
    precision: str | None,
    no_optimize: bool,
    no_winograd: bool,
    profile: str | None,
) -> int:
    """Print what MODEL, an ONNX file, has become after any stage of the compiler.

    retype, fold: the graph of primitives. fuse: the kernels and what they compute. optimize: their
    moves. lower: their statements. render: their text. assemble: the steps of the program.
    """
    if kernel is not None and stop_after in ("retype", "fold"):
        raise click.UsageError(f"there are no kernels yet after {stop_after}: leave --kernel out")
    given = {"--stop-after": stop_after != NAMES[-1], "--kernel": kernel is not None}
    if counters and any(given.values()):
        without = " and ".join(option for option, there in given.items() if there)
        raise click.UsageError(
            f"--counters is a table of all kernels, when they are made: leave {without} out"
        )
    if profile is not None and "," in profile:
        raise click.BadParameter(
            f"{profile!r}: one program is shown, so give one profile", param_hint="--profile"
        )
    if profile is not None:
        check_profiles([profile], target)
    importing = choose_import(
        split_dims(dims),
        numbers(bounds, "--bound", "NODE=N"),
        outputs or None,
        split_constants(constants),
        split_limits(limits, allow_links),
    )
    options = choose_options(
        target,
        precision,
        optimize=not no_optimize,
        winograd=not no_winograd,
        profile=profile or "default",
        limits=importing.limits,
    )
    with stages() as progress:
        progress.report("compiling")
        state = compile_model(model, target, options, importing, stop_after=stop_after)
    if counters:
        _print_counters(state)
    elif stop_after in ("retype", "fold"):
        _print_graph(state)
    elif kernel is not None:
        _print_kernel(state, kernel, stop_after)
    elif stop_after == "assemble":
        _print_steps(state)
    else:
        _print_kernels(state, stop_after)
    return 0


def _print_graph(state: Compilation) -> None:
    names = {node: name for entry in state.entries for node, name in entry.names.items()}
    _say_all(graph_text(state.roots, names))
    for entry in state.entries:
        say(f"outputs: {', '.join(entry.outputs)}")


def _say_all(lines: Iterable[str]) -> None:
    for line in lines:
        say(line)


def _sinks(state: Compilation) -> list[UOp]:
    """Distinct kernels, in the order of their numbers."""
    return list(dict.fromkeys(launch.sink for launch in state.launches))


def _print_kernels(state: Compilation, stage: str) -> None:
    sinks = _sinks(state)
    for index, sink in enumerate(sinks):
        uses = [launch for launch in state.launches if launch.sink is sink]
        nodes = ", ".join(uses[0].nodes) or "-"
        say(f"kernel {index}: {several(len(uses), 'launch')}, first for {nodes}")
        _print_kernel(state, index, stage)
        say()


def _print_kernel(state: Compilation, index: int, stage: str) -> None:
    sinks = _sinks(state)
    if not 0 <= index < len(sinks):
        raise click.BadParameter(f"there are kernels 0..{len(sinks) - 1}", param_hint="--kernel")
    if stage == "fuse":
        _say_all(kernel_text(sinks[index]))
        return
    kernel: CompiledKernel = state.kernels[sinks[index]]
    for move in kernel.moves:
        say(f"move {move}")
    if stage == "optimize":
        _say_all(kernel_text(kernel.moved))
    elif stage == "lower":
        assert kernel.text is not None
        linear = kernel.text.linear
        _say_all(statements_text(linear.statements, linear.values))
        shape = kernel.text.geometry
        say(f"workgroup {shape.workgroup}, grid {say_node(shape.grid)}")
    else:
        say_text(kernel.source)


def _print_counters(state: Compilation) -> None:
    """The innermost loops of each kernel, and its arithmetic against the bytes that it takes: a row
    for what it takes, as launches of one kernel may take buffers of several sizes.
    """
    rows = []
    for (sink, size), count in _sized_launches(state).items():
        kernel = state.kernels[sink]
        assert kernel.text is not None
        inner = inner_loops(kernel.text)
        loads = ", ".join(f"{count} x {lanes}" for lanes, count in inner.loads.items())
        rows.append(
            (
                *(kernel.name, count, kernel.flops, size, f"{kernel.flops / max(1, size):.1f}"),
                *(loads or "-", inner.guards, inner.fused, inner.flops, inner.integers),
                inner.registers,
            )
        )
    table(
        (
            *("kernel", ">launches", ">FLOP", ">bytes", ">FLOP a byte", "loads", ">guards"),
            *(">fused", ">other", ">integer", ">registers"),
        ),
        rows,
    )


def _sized_launches(state: Compilation) -> Counter[tuple[UOp, int]]:
    """How often each kernel is launched with buffers of so many bytes, each buffer once, by the
    kernel's number. Kernels of one text are apart: their launches differ in arithmetic.
    """
    program = state.program
    assert program is not None
    steps = (step for entry in program.entries for step in launches(entry.steps))
    found: Counter[tuple[UOp, int]] = Counter()
    for launch, step in zip(state.launches, steps, strict=True):
        size = sum(program.buffers[number].bytes for number in set(step.buffers))
        found[launch.sink, size] += 1
    order = {sink: number for number, sink in enumerate(state.kernels)}
    return Counter(dict(sorted(found.items(), key=lambda each: order[each[0][0]])))


def _print_steps(state: Compilation) -> None:
    program = state.program
    assert program is not None
    rows = []
    for entry in program.entries:
        for number, step in enumerate(entry.steps):
            if isinstance(step, Launch):
                grid = " x ".join(say_size(count) for count in step.grid)
                name = program.kernels[step.kernel].name
                buffers = ", ".join(map(str, step.buffers))
                rows.append((number, name, grid, buffers, ", ".join(step.nodes)))
            else:
                rows.append((number, type(step).__name__.lower(), "-", "-", "-"))
    table((">", "kernel", "workgroups", "buffers", "nodes"), rows)
    arenas = ", ".join(str(arena.bytes) for arena in program.arenas)
    say(f"arenas: {arenas} bytes, of which {state.alive} are needed at once")
