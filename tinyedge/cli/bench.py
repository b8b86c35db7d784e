"""`tinyedge bench`."""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping
from pathlib import Path

import click

from tinyedge.cli.arguments import (
    INPUTS,
    find_entry,
    free_sizes,
    generated_inputs,
    ranges_of,
    read_inputs,
    sizes,
)
from tinyedge.cli.device import (
    check_trust,
    device_option,
    opened,
    read_bundle,
    trust_option,
    variant_option,
)
from tinyedge.cli.output import bytes_of, say, say_json, seconds_of, several, stages, table
from tinyedge.core.program.ports import Array
from tinyedge.core.program.program import Entry, Launch, Program, evaluate
from tinyedge.core.program.replay import Replay
from tinyedge.pictures import usual_sizes


@click.command("bench")
@click.argument("bundle", type=click.Path(path_type=Path))
@INPUTS
@click.option("--dim", "dims", multiple=True, metavar="NAME=SIZE", help="A symbolic size.")
@click.option("--entry", help="Which entry to run. Default: the first.")
@click.option("--runs", type=click.IntRange(1), default=20, show_default=True)
@click.option("--top", type=click.IntRange(1), default=20, show_default=True, help="Rows shown.")
@device_option
@variant_option
@trust_option
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(
    bundle: Path,
    inputs: tuple[str, ...],
    dims: tuple[str, ...],
    entry: str | None,
    runs: int,
    top: int,
    device: str | None,
    variant: str | None,
    trust: bool,
    as_json: bool,
) -> int:
    """Measure BUNDLE: latency, and time per kernel by the model's nodes.

    Inputs that are not given are generated, of numbers such as the golden case has: a training step
    takes its own rate. Pictures are as large as the model makes them, other open sizes the
    greatest; --dim says others. Latency is from inputs that were handed to the device to arrays on
    the host; the kernels' times are the device's own where it has a clock.
    """
    found = read_bundle(bundle, variant)
    check_trust(found, trust)
    program = found.program
    chosen = find_entry(program, entry)
    symbols = sizes(dims)
    arrays = read_inputs(program, chosen, inputs)
    open_sizes = {
        size
        for port in program.inputs_of(chosen).values()
        for size in port.shape
        if port.name not in arrays and size not in symbols
    }
    assumed = [name for name in usual_sizes(program, chosen) if name in open_sizes]
    ranges = ranges_of(found, chosen, arrays)
    arrays = generated_inputs(program, chosen, symbols, ranges, 1) | arrays
    free = free_sizes(program, chosen, symbols)
    varying, greatest = _varying(program, chosen, arrays, free)
    with stages() as progress:
        progress.report("compiling kernels")
        begin = time.perf_counter()
        with opened(program, device) as running, Replay(program, running) as replay:
            program = replay.program  # without the weights, which are on the device
            ready = time.perf_counter() - begin
            first = replay.time(arrays, chosen.name, free)
            times = []
            for index in range(runs):
                progress.report("running", index, runs)
                times.append(replay.time(arrays, chosen.name, free))
            profiles = []
            for index in range(min(runs, 5)):
                progress.report("timing kernels", index, min(runs, 5))
                profiles.append(replay.profile(arrays, chosen.name, free))
            name = running.name
    launches = []
    for column in zip(*profiles, strict=True):
        step = column[0][0]
        if isinstance(step, Launch):
            seconds = statistics.median(each for _, each in column)
            launches.append((step, program.kernels[step.kernel].name, seconds))
    total = sum(seconds for _, _, seconds in launches)
    if as_json:
        say_json(
            {
                "device": name,
                "variant": found.variant,
                "inputs": varying,
                "ready_seconds": ready,
                "first_seconds": first,
                "run_seconds": times,
                "kernels": [
                    {"kernel": kernel, "nodes": step.nodes, "flops": step.flops, "seconds": seconds}
                    for step, kernel, seconds in launches
                ],
            }
        )
        return 0
    launches.sort(key=lambda item: -item[2])
    rows = [
        (
            seconds_of(seconds),
            f"{100 * seconds / total:.1f}%" if total else "-",
            _rate(program, step, seconds, greatest),
            kernel,
            ", ".join(step.nodes[:3]) + (" ..." if len(step.nodes) > 3 else ""),
        )
        for step, kernel, seconds in launches[:top]
    ]
    table((">time", ">share", ">GFLOP/s", "kernel", "nodes"), rows)
    if len(launches) > top:
        say(f"and {len(launches) - top} more launches (--top)")
    say(f"device       {name}")
    if varying:
        shapes = ", ".join(f"{name} {shape}" for name, shape in varying.items())
        rates = "" if greatest else "; no GFLOP/s where a kernel's size is this input's"
        say(f"inputs       {shapes}{rates}")
    if assumed:
        others = " ".join(f"--dim {name}=N" for name in assumed)
        say(f"pictures     as large as the model makes them; of another size by {others}")
    if found.variant:
        say(f"variant      {found.variant}")
    say(f"ready        {seconds_of(ready)} (open, compile, upload)")
    say(f"first run    {seconds_of(first)}")
    median, least = statistics.median(times), min(times)
    say(f"median run   {seconds_of(median)} of {runs}, least {seconds_of(least)}")
    say(f"kernels      {seconds_of(total)} in {several(len(launches), 'launch')}")
    say(f"memory       {bytes_of(sum(arena.bytes for arena in program.arenas))} and weights")
    return 0


def _rate(program: Program, step: Launch, seconds: float, greatest: bool) -> str:
    """A launch's rate; "-" where its work is not known, as sizes are that it depends on."""
    fixed = all(isinstance(count, int) for count in step.grid)
    known = greatest or (fixed and not program.kernels[step.kernel].symbols)
    return f"{step.flops / seconds * 1e-9:.2f}" if seconds and step.flops and known else "-"


def _varying(
    program: Program, entry: Entry, arrays: Mapping[str, Array], free: Mapping[str, int]
) -> tuple[dict[str, list[int]], bool]:
    """Shapes of the inputs whose sizes vary, and whether all sizes are the greatest, for which a
    launch's operations are counted.
    """
    most = {symbol.name: symbol.max for symbol in program.symbols}
    shapes = {
        port.name: [evaluate(size, most) for size in port.shape]
        for port in program.inputs_of(entry).values()
        if not all(isinstance(size, int) for size in port.shape)
    }
    given = {name: list(arrays[name].shape) for name in shapes}
    return given, given == shapes and all(most.get(name) == size for name, size in free.items())
