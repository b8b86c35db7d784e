"""`tinyedge export`."""

from __future__ import annotations

import hashlib
import os
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

import click

from tinyedge.api import MOST_STEPS
from tinyedge.cli.arguments import (
    ALLOW_LINKS,
    BOUNDS,
    CONSTANTS,
    DIMS,
    KEEP_GOING,
    LIMITS,
    NO_WINOGRAD,
    OUTPUTS,
    PRECISION,
    PROFILES,
    check_profiles,
    numbers,
    split_constants,
    split_dims,
    split_limits,
    split_pairs,
)
from tinyedge.cli.output import (
    bytes_of,
    complain,
    complain_text,
    print_fallback,
    print_variants,
    say,
    say_json,
    seconds_of,
    several,
    stages,
    table,
)
from tinyedge.core.compiler.winograd import MOST_ERROR
from tinyedge.core.errors import InputError
from tinyedge.model import TARGETS


@click.command("export")
@click.argument("model", type=click.Path(path_type=Path))
@click.option("-t", "--target", type=click.Choice(TARGETS), default="webgpu", show_default=True)
@click.option(
    "-o",
    "--out",
    type=click.Path(path_type=Path),
    help="The bundle. Default: the model's name with .tinyedge, in the current folder.",
)
@DIMS
@BOUNDS
@CONSTANTS
@LIMITS
@ALLOW_LINKS
@OUTPUTS
@KEEP_GOING
@PRECISION
@click.option("--no-optimize", is_flag=True, help="Plain kernels, as the tests compare with.")
@NO_WINOGRAD
@PROFILES
@click.option(
    "--arch",
    metavar="SM,..",
    help="cuda: the architectures to compile kernels for. Default: sm_87, Jetson Orin.",
)
@click.option(
    "--fallback",
    type=click.Choice(["wasm"]),
    help="webgpu: a program for WebAssembly too, for pages that find no GPU. Needs ziglang.",
)
@click.option(
    "--single-file",
    type=click.Path(path_type=Path),
    metavar="FILE.html",
    help="webgpu: write one page that has the model in it and runs from a disk too; the bundle is "
    "kept only with --out.",
)
@click.option(
    "--state",
    "states",
    multiple=True,
    metavar="INPUT=OUTPUT",
    help="Keep INPUT on the device between runs; OUTPUT is its next value. OUTPUT:shift[@AXIS]: a "
    "queue, of which OUTPUT is the newest entries. OUTPUT..:keep: it stays an output too.",
)
@click.option(
    "--state-init",
    "state_init",
    multiple=True,
    metavar="INPUT=FILE.npy",
    help="A state's first value. Default: zeros.",
)
@click.option(
    "--entry",
    "entries",
    multiple=True,
    metavar="NAME=MODEL.onnx",
    help="One more model in the bundle, which shares weights, states and memory.",
)
@click.option(
    "--slice",
    "slices",
    multiple=True,
    metavar="OUTPUT[AXIS]:NAME=START..END",
    help="A named part of an output, END not included. Without [AXIS], of its last axis.",
)
@click.option(
    "--slices",
    "slice_file",
    type=click.Path(path_type=Path),
    metavar="FILE.json",
    help='Many of them: {"OUTPUT": {"NAME": [START, END], ..}, ..}.',
)
@click.option(
    "--train",
    "train",
    multiple=True,
    metavar="PATTERN",
    help="Weights to train, by their names in the model, as 'head.*': each run of an entry `train` "
    "is a step of training, and updates them.",
)
@click.option(
    "--loss",
    "losses",
    multiple=True,
    metavar="LOSS:OUTPUT",
    help="With --train: what a step makes smaller, as cross_entropy:scores. OUTPUT is any value of "
    "the model; several losses are summed.",
)
@click.option(
    "--optimizer",
    metavar="NAME:OPTION=V,..",
    help="With --train: sgd, adam, adamw, rmsprop, adagrad, lars, lamb or muon, as adam:lr=1e-3. "
    "Default: adam.",
)
@click.option(
    "--batch",
    type=click.IntRange(1),
    help="With --train: examples of a step, where the model's first axes are open.",
)
@click.option(
    "--loss-scale",
    type=float,
    help="With --train: what the loss is multiplied by for its gradients, so that fp16 holds them. "
    "Default: 1024 with --precision fp16, else none.",
)
@click.option(
    "--image",
    "images",
    multiple=True,
    metavar="INPUT=WORDS",
    help="INPUT takes pictures of any size, as letterbox,rgb,imagenet or "
    "cover,bgr,mean:104/117/123,std:1. docs/pictures.md lists the words.",
)
@click.option(
    "--labels",
    "labels",
    multiple=True,
    metavar="[OUTPUT=]FILE",
    help="Names of an output's classes, one a line. OUTPUT[AXIS]=FILE where that could mean "
    "several axes.",
)
@click.option(
    "--golden-input",
    "golden_inputs",
    multiple=True,
    metavar="NAME=FILE.npy",
    help="A real input for the golden cases. Default: generated ones.",
)
@click.option(
    "--golden-steps",
    type=click.IntRange(1, MOST_STEPS),
    help="Runs of a golden case, one after the other. Default: 8 with states, else 1; 2 with "
    "--train.",
)
@click.option(
    "--debug-goldens",
    "debug_goldens",
    type=click.IntRange(1),
    metavar="BYTES",
    help="Give the nodes' values too, of so many bytes, by entries of their own, so that verify "
    "--nodes names the first node that differs. For finding a fault.",
)
@click.option(
    "--name",
    help="What the names in the bundle's C files begin with. Default: the bundle's own name.",
)
@click.option(
    "--force",
    is_flag=True,
    help="Replace a bundle even if it holds other files, but none that is read here.",
)
@click.option("--timing", is_flag=True, help="Print the time of every stage.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(
    model: Path,
    target: str,
    out: Path | None,
    dims: tuple[str, ...],
    bounds: tuple[str, ...],
    constants: tuple[str, ...],
    limits: tuple[str, ...],
    allow_links: bool,
    outputs: tuple[str, ...],
    keep_going: bool,
    precision: str | None,
    no_optimize: bool,
    no_winograd: bool,
    profile: str | None,
    arch: str | None,
    fallback: str | None,
    single_file: Path | None,
    states: tuple[str, ...],
    state_init: tuple[str, ...],
    entries: tuple[str, ...],
    slices: tuple[str, ...],
    slice_file: Path | None,
    train: tuple[str, ...],
    losses: tuple[str, ...],
    optimizer: str | None,
    batch: int | None,
    loss_scale: float | None,
    images: tuple[str, ...],
    labels: tuple[str, ...],
    golden_inputs: tuple[str, ...],
    golden_steps: int | None,
    debug_goldens: int | None,
    name: str | None,
    force: bool,
    timing: bool,
    as_json: bool,
) -> int:
    """Compile MODEL, an ONNX file, into a bundle: a folder with kernels, weights and a plan.

    Nothing is needed of the device it will run on. The old bundle stays until the new one is whole.

    \b
    A model with memory, and another one that fills its queue of frames:
      tinyedge export drive.onnx --state hidden=hidden_out \\
        --entry frame=frame.onnx --state frames=frames_out:shift \\
        --slice outputs:plan=0..100

    \b
    A model whose last layer a page trains:
      tinyedge export model.onnx --train 'head.*' --loss cross_entropy:scores --batch 16
    """
    import tinyedge
    from tinyedge.choices import find_fallback
    from tinyedge.export.package.package import usual_place

    if profile is not None:
        check_profiles(profile.split(","), target)
    if fallback is not None:
        find_fallback(fallback, target)
    training = {
        "--loss": losses,
        "--optimizer": optimizer,
        "--batch": batch,
        "--loss-scale": loss_scale,
    }
    _check_training(
        train, [option for option, value in training.items() if value not in (None, ())]
    )
    place = out if out is not None else usual_place(model)
    kept = single_file is None or out is not None
    if single_file is not None:
        _check_single_file(single_file, target, force)
        if not kept:
            folder = tempfile.TemporaryDirectory(prefix="tinyedge-")
            place = Path(click.get_current_context().with_resource(folder), place)
    options: dict[str, Any] = {
        "target": target,
        "out": place,
        "dims": split_dims(dims),
        "bounds": numbers(bounds, "--bound", "NODE=N"),
        "constants": split_constants(constants),
        "limits": split_limits(limits, allow_links),
        "outputs": outputs or None,
        "precision": precision,
        "optimize": not no_optimize,
        "winograd": not no_winograd,
        "arch": arch,
        "fallback": fallback,
        "states": split_pairs(states, "--state", "INPUT=OUTPUT"),
        "state_init": split_pairs(state_init, "--state-init", "INPUT=FILE.npy"),
        "entries": split_pairs(entries, "--entry", "NAME=MODEL.onnx"),
        "slices": _slices(slices, slice_file),
        "images": split_pairs(images, "--image", "INPUT=WORDS"),
        "labels": _labels(labels),
        "golden_inputs": split_pairs(golden_inputs, "--golden-input", "NAME=FILE.npy"),
        "train": train or None,
        "loss": losses or None,
        "optimizer": optimizer or "adam",
        "batch": batch,
        "loss_scale": loss_scale,
        "golden_steps": golden_steps,
        "debug_goldens": debug_goldens,
        "name": name,
        "force": force,
    }
    if profile is not None:
        options["profile"] = profile
    assumed: list[str] = []
    with stages() as progress:
        try:
            tinyedge.export_onnx(model, progress=progress.report, warn=assumed.append, **options)
        except InputError as error:
            if not keep_going:
                raise
            return _kept_going(model, options, error, as_json)
        progress.finish()
    for text in assumed:
        complain(f"note: {text}")
    if single_file is not None:
        from tinyedge.export.package.single import write_single_file

        write_single_file(place, single_file)
    from tinyedge.export.bundle.reading import fallback_of, read_manifest, variants_of

    manifest = read_manifest(place)
    facts: dict[str, Any] = {**summary(manifest, place), "variants": variants_of(place)}
    facts["integrity"] = hashlib.sha256((place / "manifest.json").read_bytes()).hexdigest()
    facts["fallback"] = fallback_of(place)
    if as_json:
        written = {"bundle": str(place) if kept else None}
        if single_file is not None:
            written["single_file"] = str(single_file)
        say_json({**written, **facts, "seconds": progress.times})
        return 0
    if timing:
        rows = [(stage, seconds_of(seconds)) for stage, seconds in progress.times.items()]
        table(("stage", ">time"), [*rows, ("total", seconds_of(sum(progress.times.values())))])
    if count := manifest["options"].get("winograd"):
        say(
            f"{several(count, 'convolution')} by Winograd's method, on random data within "
            f"{MOST_ERROR:g} of plain sums; --no-winograd: as these"
        )
    if single_file is not None:
        say(f"{single_file}: {bytes_of(single_file.stat().st_size)}, a page to open in a browser")
    say(
        f"{place if kept else model}: {several(facts['kernels'], 'kernel')}, "
        f"{several(facts['launches'], 'launch')}, "
        f"weights {bytes_of(facts['weight_bytes'])}, peak memory {bytes_of(facts['peak_bytes'])}"
    )
    print_variants(facts["variants"])
    print_fallback(facts["fallback"])
    say(f"SHA-256 of manifest.json: {facts['integrity']}")
    return 0


def _check_training(train: tuple[str, ...], given: list[str]) -> None:
    """Refuse options of training without --train, and --train without a loss."""
    if given and not train:
        raise click.UsageError(f"{' and '.join(given)}: for --train, which names weights to train")
    if train and "--loss" not in given:
        raise click.UsageError("--train needs --loss, as --loss cross_entropy:scores")


def _check_single_file(path: Path, target: str, force: bool) -> None:
    from tinyedge.export.package.single import check_single_file

    if target != "webgpu":
        raise click.BadParameter(f"pages run no bundle for {target}", param_hint="--single-file")
    if path.suffix.lower() not in (".html", ".htm"):
        raise click.BadParameter(f"{str(path)!r} is no .html", param_hint="--single-file")
    if not force:
        check_single_file(path)


def _kept_going(model: Path, options: dict[str, Any], error: InputError, as_json: bool) -> int:
    """Say what could be exported in spite of the model's refusals; raise any other error."""
    from tinyedge.cli.remaining import print_remaining, remaining
    from tinyedge.export.onnx import inspect_model
    from tinyedge.export.options import choose_import

    given = ("dims", "bounds", "outputs", "constants", "limits")
    found = inspect_model(model, choose_import(**{name: options[name] for name in given}))
    if not found.refused:
        raise error
    facts = remaining(found, model, options)
    complain_text(str(error))
    if as_json:
        say_json(
            {
                "unsupported": {name: e.because for name, e in found.refused.items()},
                "remaining": facts,
            }
        )
    else:
        print_remaining(facts)
    return 1


def _labels(texts: tuple[str, ...]) -> Any:
    """Files by output; a file alone where no output is said."""
    if len(texts) == 1 and ("=" not in texts[0] or Path(texts[0]).is_file()):
        return texts[0]
    return split_pairs(texts, "--labels", "OUTPUT=FILE") or None


def _slices(texts: tuple[str, ...], file: Path | None) -> dict[str, dict[str, Any]]:
    """The slices of a file, and those of arguments."""
    from tinyedge.export.slices import parse_slice, read_slices

    found = read_slices(file) if file is not None else {}
    for text in texts:
        try:
            output, name, ends = parse_slice(text)
        except ValueError as error:
            raise click.BadParameter(str(error), param_hint="--slice") from None
        if name in found.setdefault(output, {}):
            raise click.BadParameter(f"{name!r} is given twice", param_hint="--slice")
        found[output][name] = ends
    return found


def summary(manifest: dict[str, Any], place: Path) -> dict[str, int]:
    """The key figures of a bundle."""
    return {
        "kernels": len(manifest["kernels"]),
        "launches": sum(step["op"] == "launch" for step in manifest["steps"]),
        "weight_bytes": sum(weight["bytes"] for weight in manifest["weights"]),
        "peak_bytes": manifest["peak_bytes"],
        "folder_bytes": _bytes_in(place),
    }


def _bytes_in(folder: Path) -> int:
    """The size of all files in a folder; of none that another export removes meanwhile."""
    total = 0
    for root, _, names in os.walk(folder):
        for name in names:
            with suppress(OSError):
                total += os.lstat(os.path.join(root, name)).st_size
    return total
