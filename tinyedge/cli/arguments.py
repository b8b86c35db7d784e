"""Arguments that several commands take: sizes, input arrays."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

import click
import numpy as np

from tinyedge.choices import PRECISIONS, find_target, say_profiles
from tinyedge.core.dtype import DType, by_name
from tinyedge.core.errors import RunError
from tinyedge.core.program.ports import Array, describe
from tinyedge.core.program.program import Entry, Program, evaluate
from tinyedge.export.arrays import is_array
from tinyedge.export.bundle.golden import GoldenInput, generate
from tinyedge.export.bundle.reading import Bundle
from tinyedge.export.limits import USUAL
from tinyedge.pictures import frames_of, next_of, next_path, opened, takes_pictures, usual_sizes

INPUTS = click.option(
    "--input",
    "inputs",
    multiple=True,
    metavar="NAME=FILE.npy",
    help="An input array; of an input that was declared by --image, also a file of a picture. For "
    "several frames give the option once for each, in order.",
)

DIMS = click.option(
    "--dim",
    "dims",
    multiple=True,
    metavar="NAME=V",
    help="A symbolic size: NAME is a symbol or INPUT[AXIS]; V is n or lo..hi or lo..hi:step.",
)
BOUNDS = click.option(
    "--bound",
    "bounds",
    multiple=True,
    metavar="NODE=N",
    help="The most iterations of a loop, or elements of a result, that only a run will know.",
)
CONSTANTS = click.option(
    "--constant",
    "constants",
    multiple=True,
    metavar="INPUT=NUMBER",
    help="An input that is always this number, or true or false: it is an input no more.",
)
LIMITS = click.option(
    "--limit",
    "limits",
    multiple=True,
    metavar="NAME=N",
    help="What a model may ask for, where the usual is too little: "
    + ", ".join(f"{name}={most}" for name, most in USUAL.items() if name != "links")
    + ".",
)
ALLOW_LINKS = click.option(
    "--allow-links",
    is_flag=True,
    help="Follow links from the model's folder to its data, wherever they lead.",
)
OUTPUTS = click.option(
    "--outputs",
    "outputs",
    multiple=True,
    metavar="NAME,..",
    help="Values to take in place of the model's outputs: any that its nodes make. What these do "
    "not need is left out.",
)
KEEP_GOING = click.option(
    "--keep-going",
    is_flag=True,
    help="If something is refused, name what a smaller graph could still export.",
)
PRECISION = click.option(
    "--precision",
    type=click.Choice(PRECISIONS),
    help="How floats are kept in memory. Default: fp16 for qcom, else fp32.",
)

NO_WINOGRAD = click.option(
    "--no-winograd",
    is_flag=True,
    help="Convolutions as plain sums: slower, but smaller, and an infinity stays where it is.",
)

THOSE = (
    "The devices to compile for. Without it: default, which are all that are usual (cpu: AVX2). "
    "Others: wide, shared (webgpu); sse, avx512, neon (cpu); buffers, local, shared (qcom)."
)
PROFILE = click.option(
    "--profile",
    metavar="NAME",
    help=THOSE,
)
PROFILES = click.option(
    "--profile",
    metavar="NAME,..",
    help=f"{THOSE} Several (cpu): one program for each, of which the best that the machine can run "
    "is picked when the bundle is loaded.",
)


def check_profiles(names: Sequence[str], target: str) -> None:
    """Raise BadParameter for names of --profile that the target lacks, or that come again."""
    known = find_target(target).profiles
    unknown = [name for name in names if name not in known]
    if unknown:
        said = ", ".join(map(repr, unknown))
        raise click.BadParameter(
            f"{said}: choose of {say_profiles(target)}, as --target has them",
            param_hint="--profile",
        )
    twice = [name for place, name in enumerate(names) if name in names[:place]]
    if twice:
        raise click.BadParameter(f"{twice[0]!r} is given twice", param_hint="--profile")


def split_dims(dims: Sequence[str]) -> dict[str, str]:
    """`NAME=SIZE` arguments."""
    return split_pairs(dims, "--dim", "NAME=SIZE")


def split_pairs(texts: Sequence[str], option: str, form: str) -> dict[str, str]:
    """`NAME=VALUE` arguments of an option, split at the last `=`. form: how the option takes
    them.
    """
    result: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.rpartition("=")
        if not equals or not name or not value:
            raise click.BadParameter(f"{text!r} is not {form}", param_hint=option)
        if name in result:
            raise click.BadParameter(f"{name!r} is given twice", param_hint=option)
        result[name] = value
    return result


def split_constants(texts: Sequence[str]) -> dict[str, bool | int | float]:
    """`INPUT=NUMBER` arguments of --constant."""
    return {
        name: _constant(value)
        for name, value in split_pairs(texts, "--constant", "INPUT=NUMBER").items()
    }


def _constant(text: str) -> bool | int | float:
    if text in ("true", "false"):
        return text == "true"
    for kind in (int, float) if text.isascii() and "_" not in text else ():
        try:
            return kind(text)
        except ValueError:
            continue
    raise click.BadParameter(f"{text!r} is no number", param_hint="--constant")


def sizes(dims: Sequence[str]) -> dict[str, int]:
    """`NAME=NUMBER` arguments of --dim."""
    return numbers(dims, "--dim", "NAME=SIZE")


def split_limits(texts: Sequence[str], allow_links: bool) -> dict[str, int]:
    """`NAME=N` arguments of --limit, and what --allow-links says."""
    limits = numbers(texts, "--limit", "NAME=N")
    return {**limits, "links": 1} if allow_links else limits


def numbers(texts: Sequence[str], option: str, form: str) -> dict[str, int]:
    """`NAME=NUMBER` arguments of an option."""
    result: dict[str, int] = {}
    for name, value in split_pairs(texts, option, form).items():
        if not re.fullmatch(r"[0-9]{1,18}", value):
            raise click.BadParameter(
                f"{value!r} is not a number of up to 18 digits", param_hint=option
            )
        result[name] = int(value)
    return result


def find_entry(program: Program, name: str | None) -> Entry:
    """The entry of that name, or the first."""
    for entry in program.entries:
        if name is None or entry.name == name:
            return entry
    names = ", ".join(repr(entry.name) for entry in program.entries)
    raise RunError(f"entry {name!r}", "there is no such entry", id="run.entry", supported=names)


def read_inputs(
    program: Program, entry: Entry, given: Sequence[str], steps: int = 1
) -> dict[str, Array]:
    """Arrays from `NAME=FILE.npy` arguments; with one input, `FILE.npy` alone will do. A declared
    picture may be a file of one, or as many files as it takes; of several runs, so many for each.

    Names may contain `=`: the split is where the text before it names an input.
    """
    files: dict[str, list[str]] = {}
    for argument in given:
        name, file = _split_input(entry, argument)
        if name not in entry.inputs:
            raise RunError(
                f"input {name!r}",
                "the model has no such input",
                id="run.input",
                supported=signature(program, entry),
            )
        files.setdefault(name, []).append(file)
    return {name: _read_input(program, entry, name, each, steps) for name, each in files.items()}


def _read_input(
    program: Program, entry: Entry, name: str, files: Sequence[str], steps: int
) -> Array:
    """What an input's files hold, one after the other; of several runs, with an axis of them."""
    pictured = takes_pictures(program, name)
    if len(files) > 1 and (not pictured or any(map(is_array, files))):
        because = f"{name!r} is given twice; only pictures may be several"
        raise click.BadParameter(because, param_hint="--input")
    if not pictured or is_array(files[0]):
        array = _read_array(Path(files[0]), name)
        opened(program, {name: array}, entry.name)  # refuses what is no such picture
        return array
    count = frames_of(program, name)
    runs = steps if len(files) == steps * count else 1
    each = len(files) // runs
    parts = [
        opened(program, {name: list(files[start : start + each])}, entry.name)[name]
        for start in range(0, len(files), each)
    ]
    if len({part.shape for part in parts}) > 1:
        shown = " and ".join(sorted({str(list(part.shape)) for part in parts}))
        raise RunError(
            f"input {name!r}",
            f"its pictures are of several sizes: {shown}",
            id="run.shape",
            supported="pictures of one size in all steps",
            next="scale them to one size first",
        )
    return np.stack(parts) if runs > 1 else parts[0]


def _split_input(entry: Entry, argument: str) -> tuple[str, str]:
    if len(entry.inputs) == 1 and "=" not in argument:
        return entry.inputs[0], argument
    parts = argument.split("=")
    for cut in range(1, len(parts)):
        name = "=".join(parts[:cut])
        if name in entry.inputs:
            return name, "=".join(parts[cut:])
    if len(parts) == 1:
        raise click.BadParameter(f"{argument!r} is not NAME=FILE.npy", param_hint="--input")
    return parts[0], "=".join(parts[1:])


def _read_array(path: Path, name: str) -> Array:
    from tinyedge.export.arrays import read_array

    try:
        return read_array(path)
    except ValueError as error:
        next = "" if is_array(path) else next_of(name)
        raise RunError(
            f"input {name!r}, file {str(path)!r}",
            str(error),
            id="run.file",
            supported="a file written by numpy.save",
            next=next if path.is_file() else next_path(str(path)),
        ) from None


def generated_inputs(
    program: Program,
    entry: Entry,
    symbols: Mapping[str, int],
    ranges: Mapping[str, tuple[float, float]],
    seed: int,
    run: int = 0,
) -> dict[str, Array]:
    """Reproducible inputs for an entry's run number `run`, from the goldens' generator; pictures
    are as large as the model makes them, other sizes default to maxima. ranges: of inputs whose
    values lie between other ends than usual.
    """
    named = {symbol.name: symbol.max for symbol in program.symbols}
    named |= usual_sizes(program, entry) | dict(symbols)
    arrays: dict[str, Array] = {}
    for position, port in enumerate(program.inputs_of(entry).values()):
        shape = tuple(evaluate(size, named) for size in port.shape)
        least, most = ranges.get(port.name, (None, None))
        arrays[port.name] = generate(
            port.dtype,
            shape,
            seed=seed,
            run=run,
            position=position,
            minimum=least,
            maximum=most,
        )
    return arrays


def ranges_of(
    bundle: Bundle, entry: Entry, given: Collection[str]
) -> dict[str, tuple[float, float]]:
    """Where the numbers of an entry's golden case lie, of the inputs that are not given: those of
    targets below the classes, a learning rate where it was set.
    """
    ports = bundle.program.inputs_of(entry).values()
    wanted = {port.name for port in ports if port.name not in given}
    ranges: dict[str, tuple[float, float]] = {}
    for case in bundle.goldens() if wanted else ():
        if case.entry != entry.name:
            continue
        for port, record in zip(ports, case.inputs, strict=True):
            ends = _ends(by_name(port.dtype), record)
            if port.name in wanted and ends is not None:
                ranges[port.name] = ends
    return ranges


def _ends(kind: DType, record: GoldenInput) -> tuple[float, float] | None:
    """The least and the greatest of an input's numbers; None of codes that are no integers."""
    if record.data is None:
        return record.minimum, record.maximum
    if kind.is_int:
        return (int(record.data.min()), int(record.data.max())) if record.data.size else None
    if record.data.dtype.kind != "f":
        return None
    finite = record.data[np.isfinite(record.data)]
    return (float(finite.min()), float(finite.max())) if finite.size else None


def inputs_of_step(
    program: Program, entry: Entry, arrays: Mapping[str, Array], step: int, steps: int
) -> dict[str, Array]:
    """The inputs of one of several runs: arrays with one more axis, of `steps`, hold one for
    each.
    """
    ranks = {port.name: len(port.shape) for port in program.inputs_of(entry).values()}
    return {
        name: array[step] if array.ndim == ranks[name] + 1 and len(array) == steps > 1 else array
        for name, array in arrays.items()
    }


def free_sizes(program: Program, entry: Entry, given: Mapping[str, int]) -> dict[str, int]:
    """The given sizes that no input's shape determines."""
    shown = {size for port in program.inputs_of(entry).values() for size in port.shape}
    return {name: size for name, size in given.items() if name not in shown}


def signature(program: Program, entry: Entry) -> str:
    """The inputs of an entry in words."""
    return "; ".join(map(describe, program.inputs_of(entry).values())) or "no inputs"
