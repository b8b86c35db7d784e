"""`tinyedge run`."""

from __future__ import annotations

import re
import time
from dataclasses import asdict
from pathlib import Path

import click
import numpy as np

from tinyedge.cli.arguments import (
    INPUTS,
    find_entry,
    free_sizes,
    generated_inputs,
    inputs_of_step,
    ranges_of,
    read_inputs,
    signature,
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
from tinyedge.cli.output import complain, say, say_json, seconds_of, stages, table
from tinyedge.core.dtype import codes
from tinyedge.core.errors import InputError, RunError
from tinyedge.core.files import next_place
from tinyedge.core.program.ports import Array
from tinyedge.core.program.replay import Replay
from tinyedge.labels import labels_of, top
from tinyedge.pictures import takes_pictures


@click.command("run")
@click.argument("bundle", type=click.Path(path_type=Path))
@INPUTS
@click.option(
    "--random",
    is_flag=True,
    help="Generate the inputs that are not given, of numbers such as the golden case has.",
)
@click.option("--seed", type=int, default=1, show_default=True, help="The seed of --random.")
@click.option("--dim", "dims", multiple=True, metavar="NAME=SIZE", help="A size for --random.")
@click.option("--entry", help="Which entry to run. Default: the first.")
@click.option(
    "-o",
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("outputs"),
    show_default=True,
    help="The folder for the outputs, one .npy file each.",
)
@click.option(
    "--steps",
    type=click.IntRange(1),
    default=1,
    help="Runs one after the other, which share the model's states; the last one's outputs are "
    "written. An array with one more axis, of STEPS, has an input for each; so have STEPS files of "
    "pictures, and --random.",
)
@click.option("--repeat", type=click.IntRange(1), default=1, help="Do it so many times.")
@device_option
@variant_option
@trust_option
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(
    bundle: Path,
    inputs: tuple[str, ...],
    random: bool,
    seed: int,
    dims: tuple[str, ...],
    entry: str | None,
    out: Path,
    steps: int,
    repeat: int,
    device: str | None,
    variant: str | None,
    trust: bool,
    as_json: bool,
) -> int:
    """Run BUNDLE on arrays from files, write its outputs, print their shapes and the time.

    An input is a file written by numpy.save; with a single input its name may be left out. States
    start from their initial values.
    """
    found = read_bundle(bundle, variant)
    check_trust(found, trust)
    program = found.program
    chosen = find_entry(program, entry)
    arrays = read_inputs(program, chosen, inputs, steps)
    symbols = sizes(dims)
    missing = [name for name in chosen.inputs if name not in arrays]
    if missing and not random:
        kind = "FILE.png" if takes_pictures(program, missing[0]) else "FILE.npy"
        raise RunError(
            f"input {missing[0]!r}",
            "it is missing",
            id="run.input",
            supported=signature(program, chosen),
            next=f"add --input '{missing[0]}={kind}', or --random to try without one",
        )
    with stages() as progress:
        progress.report("compiling kernels")
        with opened(program, device) as running, Replay(program, running) as replay:
            program = replay.program  # without the weights, which are on the device
            times = []
            free = free_sizes(program, chosen, symbols)
            ranges = ranges_of(found, chosen, arrays)
            for repetition in range(repeat):
                replay.reset()
                for step in range(steps):
                    progress.report("running", repetition * steps + step, repeat * steps)
                    given = inputs_of_step(program, chosen, arrays, step, steps)
                    if missing:
                        made = generated_inputs(program, chosen, symbols, ranges, seed, step)
                        given = made | given
                    start = time.perf_counter()
                    results = replay.run(given, chosen.name, free)
                    times.append(time.perf_counter() - start)
            name = running.name
    files = write_outputs(results, out)
    named = [each["output"] for each in labels_of(program) if each["output"] in results]
    best = {key: top(program, results, key) for key in named if results[key].size}
    if as_json:
        shapes = {
            key: {"dtype": value.dtype.name, "shape": value.shape, "file": str(files[key])}
            for key, value in results.items()
        }
        for key, ranks in best.items():
            shapes[key]["top"] = [asdict(each) for each in ranks]
        say_json({"device": name, "variant": found.variant, "seconds": times, "outputs": shapes})
        return 0
    rows = [
        (key, value.dtype.name, list(value.shape), preview(value), files[key])
        for key, value in results.items()
    ]
    table(("output", "dtype", "shape", "values", "file"), rows)
    for key, ranks in best.items():
        say(f"{key}: " + ", ".join(f"{each.label} {each.value:.4g}" for each in ranks))
    fastest = f", best {seconds_of(min(times))} of {len(times)}"
    # Drivers compile and page in what later runs find.
    more = fastest if len(times) > 1 else " (with what is prepared once)"
    which = f", variant {found.variant}," if found.variant else ""
    say(f"first run {seconds_of(times[0])}{more}{which} on {name}")
    if any(value.dtype.kind == "f" and np.isnan(value).any() for value in results.values()):
        complain("note: some outputs hold NaN")
    return 0


def write_outputs(results: dict[str, Array], folder: Path) -> dict[str, Path]:
    """One .npy file per output; names that cannot be file names are changed until they can."""
    try:
        return _write(results, folder)
    except OSError as error:
        raise InputError(
            f"outputs in {str(folder)!r}",
            f"they cannot be written: {error.strerror or error}",
            id="run.write",
            next=next_place(error, "choose another folder with --out"),
        ) from error


def _write(results: dict[str, Array], folder: Path) -> dict[str, Path]:
    folder.mkdir(parents=True, exist_ok=True)
    files: dict[str, Path] = {}
    taken: set[str] = set()
    for name, value in results.items():
        stem = re.sub(r"[^A-Za-z0-9_.-]", "_", name).lstrip(".")[:100] or "output"
        unique, number = stem, 1
        while unique.lower() in taken:
            number += 1
            unique = f"{stem}-{number}"
        taken.add(unique.lower())
        files[name] = folder / f"{unique}.npy"
        np.save(files[name], codes(value), allow_pickle=False)
    return files


def preview(value: Array) -> str:
    """The first values of an array."""
    first = ", ".join(f"{item:.4g}" for item in value.reshape(-1)[:4].tolist())
    return first + (", ..." if value.size > 4 else "")
