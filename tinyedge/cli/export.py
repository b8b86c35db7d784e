"""`tinyedge export`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from tinyedge.api import PRECISIONS, TARGETS
from tinyedge.cli.arguments import split_dims
from tinyedge.cli.output import (
    bytes_of,
    complain,
    say,
    say_json,
    seconds_of,
    several,
    stages,
    table,
)


@click.command("export")
@click.argument("model", type=click.Path(path_type=Path))
@click.option("-t", "--target", type=click.Choice(TARGETS), default="webgpu", show_default=True)
@click.option(
    "-o",
    "--out",
    type=click.Path(path_type=Path),
    help="The bundle. Default: the model's name with .tinyedge, in the current folder.",
)
@click.option(
    "--dim",
    "dims",
    multiple=True,
    metavar="NAME=V",
    help="A symbolic size: NAME is a symbol or INPUT[AXIS]; V is n or lo..hi or lo..hi:step.",
)
@click.option(
    "--precision",
    type=click.Choice(PRECISIONS),
    help="How floats are kept in memory. Default: fp16 for qcom, else fp32.",
)
@click.option("--no-optimize", is_flag=True, help="Plain kernels, as the tests compare with.")
@click.option("--profile", metavar="NAME", help="The devices to compile for. Default: all.")
@click.option(
    "--golden-input",
    "golden_inputs",
    multiple=True,
    metavar="NAME=FILE.npy",
    help="A real input for the golden case. Default: generated ones.",
)
@click.option("--force", is_flag=True, help="Replace a bundle even if it holds other files.")
@click.option("--timing", is_flag=True, help="Print the time of every stage.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(
    model: Path,
    target: str,
    out: Path | None,
    dims: tuple[str, ...],
    precision: str | None,
    no_optimize: bool,
    profile: str | None,
    golden_inputs: tuple[str, ...],
    force: bool,
    timing: bool,
    as_json: bool,
) -> int:
    """Compile MODEL, an ONNX file, into a bundle: a folder with kernels, weights and a plan.

    Nothing is needed of the device it will run on. The old bundle stays until the new one is whole.
    """
    import tinyedge
    from tinyedge.api import find_target

    profiles = find_target(target).profiles
    if profile is not None and profile not in profiles:
        raise click.BadParameter(f"choose one of {', '.join(profiles)}", param_hint="--profile")
    place = out if out is not None else Path(model.name).with_suffix(".tinyedge")
    options: dict[str, Any] = {
        "target": target,
        "out": place,
        "dims": split_dims(dims),
        "precision": precision,
        "optimize": not no_optimize,
        "force": force,
    }
    if profile is not None:
        options["profile"] = profile
    if golden_inputs:
        options["golden_inputs"] = split_dims(golden_inputs)
    assumed: list[str] = []
    with stages() as progress:
        tinyedge.export_onnx(model, progress=progress.report, warn=assumed.append, **options)
        progress.finish()
    for text in assumed:
        complain(f"note: {text}")
    from tinyedge.export.bundle import read_manifest

    manifest = read_manifest(place)
    facts = summary(manifest, place)
    if as_json:
        say_json({"bundle": str(place), **facts, "seconds": progress.times})
        return 0
    if timing:
        rows = [(stage, seconds_of(seconds)) for stage, seconds in progress.times.items()]
        table(("stage", ">time"), [*rows, ("total", seconds_of(sum(progress.times.values())))])
    say(
        f"{place}: {several(facts['kernels'], 'kernel')}, {several(facts['launches'], 'launch')}, "
        f"weights {bytes_of(facts['weight_bytes'])}, peak memory {bytes_of(facts['peak_bytes'])}"
    )
    return 0


def summary(manifest: dict[str, Any], place: Path) -> dict[str, int]:
    """The key figures of a bundle."""
    files = (path for path in place.rglob("*") if path.is_file())
    return {
        "kernels": len(manifest["kernels"]),
        "launches": sum(step["op"] == "launch" for step in manifest["steps"]),
        "weight_bytes": sum(weight["bytes"] for weight in manifest["weights"]),
        "peak_bytes": manifest["peak_bytes"],
        "folder_bytes": sum(path.stat().st_size for path in files),
    }
