"""Pictures as inputs: files and Pillow's images as the bytes that a bundle's kernels read."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tinyedge.core.errors import RunError
from tinyedge.core.program.ports import describe
from tinyedge.core.program.program import Entry, Port, Program, evaluate

MODES = {"rgb": "RGB", "rgba": "RGBA", "gray": "L"}  # Pillow's names
CHANNELS = {"rgb": 3, "rgba": 4, "gray": 1}
WIDE = ("I", "F")  # modes that Pillow cuts off at 255


def takes_pictures(program: Program, name: str) -> bool:
    """Whether an input was declared as a picture."""
    return ascii(name)[1:-1] in _sources(program)


def _sources(program: Program) -> dict[str, str]:
    """What the pictures of a program are made of, by the inputs' names in the manifest."""
    return {each["input"]: each["from"] for each in program.options.get("images", ())}


def _values(program: Program, entry: str | None) -> dict[str, Port]:
    """The inputs of an entry (None: the first) that are others than earlier entries have of the
    same name, by their names in the manifest: a step of training takes values where the model
    takes a picture.
    """
    first: dict[str, int] = {}
    for each in program.entries:
        ports = {ascii(p.name)[1:-1]: (n, p) for n, p in program.inputs_of(each).items()}
        for name, (number, _) in ports.items():
            first.setdefault(name, number)
        if entry in (None, each.name):
            return {name: port for name, (number, port) in ports.items() if number != first[name]}
    return {}


def opened(
    program: Program, inputs: Mapping[str, Any], entry: str | None = None
) -> Mapping[str, Any]:
    """The inputs of an entry with pictures as arrays; others, arrays too, as they are. Raises
    RunError.
    """
    sources = _sources(program)
    for name, value in inputs.items():
        _check_is_no_file(program, sources, name, value)
    if not sources:
        return inputs
    found, values = dict(inputs), _values(program, entry)
    for name, value in inputs.items():
        stored = ascii(name)[1:-1]
        source = sources.get(stored)
        if source is None:
            continue
        given = _pictures(value)
        if port := values.get(stored):
            if given:
                because = f"entry {entry!r} takes the values that the model reads, not a picture"
                next = "give an array; other entries take the picture"
                raise _refused(name, because, "run.dtype", describe(port), next)
            continue
        if isinstance(value, (bytes, bytearray, memoryview)):
            because = f"it is {type(value).__name__}, whose width nobody knows"
            next = "of a file's content: PIL.Image.open(io.BytesIO(data))"
            raise _refused(name, because, "run.dtype", "a file's name, an image or an array", next)
        if given:
            frames = _frames(name, given, source, frames_of(program, name))
            _check_side(program, name, frames)
            found[name] = frames
        else:
            _check_channels(name, value, source)
    return found


def frames_of(program: Program, name: str) -> int:
    """How many pictures an input takes that was declared as one: its frames, or 1."""
    shape = next(port.shape for port in program.inputs if port.name == name)
    axes = 4 if _sources(program)[ascii(name)[1:-1]] in MODES else 3  # nv12: planes of bytes
    return evaluate(shape[0], {}) if len(shape) == axes else 1


def usual_sizes(program: Program, entry: Entry) -> dict[str, int]:
    """The symbols of an entry's pictures at the sizes that the model makes of them, as far as they
    may be so large.
    """
    most = {symbol.name: symbol.max for symbol in program.symbols}
    images = {each["input"]: each for each in program.options.get("images", ())}
    ports = {ascii(port.name)[1:-1]: port for port in program.inputs_of(entry).values()}
    sizes: dict[str, int] = {}
    for name, image in images.items():
        wanted = image["height"], image["width"]
        open_sizes = [s for s in (ports[name].shape if name in ports else ()) if s in most]
        sizes |= {s: min(n, most[s]) for s, n in zip(open_sizes, wanted, strict=False)}
    return sizes


def _frames(name: str, given: Sequence[Any], source: str, count: int) -> np.ndarray[Any, Any]:
    """[height, width, channels] of one picture, [frames, ..] of several."""
    if len(given) != count:
        are = "1 picture is" if len(given) == 1 else f"{len(given)} pictures are"
        because = f"{are} given, and it takes {count}"
        next = f"give {count}, in order: a list in Python, an --input {name}=FILE for each"
        raise _refused(name, because, "run.shape", _several(count), next if count > 1 else "")
    frames = [_pixels(name, each, source) for each in given]
    if len({frame.shape for frame in frames}) > 1:
        sizes = " and ".join(sorted({f"{f.shape[1]}x{f.shape[0]}" for f in frames}))
        because = f"its pictures are of {sizes} pixels"
        next = "scale them to one size first"
        raise _refused(name, because, "run.shape", _several(count), next)
    return np.stack(frames) if count > 1 else frames[0]


def _check_side(program: Program, name: str, pixels: np.ndarray[Any, Any]) -> None:
    """Refuse pictures [.., height, width, channels] beyond the greatest side of the input."""
    sides = {symbol.name: symbol.max for symbol in program.symbols}
    shapes = [port.shape for port in program.inputs if port.name == name]
    height, width = pixels.shape[-3:-1]
    side = max(height, width)
    most = min((sides[size] for size in shapes[0] if size in sides), default=side)
    if side > most:
        because = f"the picture is {width} x {height} pixels"
        supported = f"pictures of up to {most} pixels a side"
        next = f"make it smaller first, or export with --image {name}=..,max:{side}"
        raise _refused(name, because, "run.shape", supported, next)


def _several(count: int) -> str:
    return "one picture" if count == 1 else f"{count} pictures of one size"


def _pictures(value: Any) -> list[Any]:
    """The pictures that a value is; none where it is something else."""
    given = list(value) if isinstance(value, (list, tuple)) else [value]
    return given if all(map(_is_picture, given)) else []


def _check_is_no_file(program: Program, sources: Mapping[str, str], name: str, value: Any) -> None:
    """Refuse the names of files for an input that was not declared as a picture."""
    files = [each for each in _pictures(value) if isinstance(each, (str, os.PathLike))]
    if not files or ascii(name)[1:-1] in sources:
        return
    port = next((each for each in program.inputs if each.name == name), None)
    if port is not None:
        because = f"it is the name of a file, {str(files[0])!r:.200}, and no picture is declared"
        raise _refused(name, because, "run.dtype", describe(port), next_of(name))


def next_of(name: str) -> str:
    """What to do where a file that is no array is given for an input that takes arrays."""
    return f"give an array; for pictures export with --image {name}=WORDS (docs/pictures.md)"


def _check_channels(name: str, value: Any, source: str) -> None:
    """Refuse an array of other channels than the picture is made of."""
    shape, wanted = tuple(getattr(value, "shape", ())), CHANNELS.get(source)
    if wanted is None or len(shape) < 3 or shape[-1] == wanted:
        return
    words = [word for word, channels in CHANNELS.items() if channels == shape[-1]]
    again = f", or export with --image {name}=..,from:{words[0]}" if words else ""
    because = f"its last axis has {shape[-1]} channels, and pictures are given as {source} here"
    supported = f"uint8 [.., height, width, {wanted}]"
    next = f"give {wanted} channels, or a file of the picture{again}"
    raise _refused(name, because, "run.shape", supported, next)


def _is_picture(value: Any) -> bool:
    """Whether a value is a file's name or one of Pillow's images."""
    return isinstance(value, (str, os.PathLike)) or (
        hasattr(value, "convert") and hasattr(value, "getbands")
    )


def _pixels(name: str, value: Any, source: str) -> np.ndarray[Any, Any]:
    """[height, width, channels], turned as the file says that it was taken."""
    if source not in MODES:
        because = f"it takes the planes of {source}"
        raise _refused(name, because, "run.input", f"arrays for {name} and {name}.uv")
    try:
        from PIL import Image, ImageOps, UnidentifiedImageError
    except ImportError:
        raise _refused(
            name,
            "Pillow is not installed, which reads pictures",
            "run.input",
            "an array of uint8 [height, width, channels]",
            "pip install '.[pictures]' in a checkout of tinyedge",
        ) from None
    shown = repr(str(value))[:200]
    array = f"an array of uint8 [height, width, {CHANNELS[source]}]"
    try:
        with _image(Image, value) as image:
            if image.mode.startswith(WIDE):
                because = f"{shown} is in mode {image.mode!r}, whose values have more than 8 bits"
                raise _refused(name, because, "run.input", "values of 0 to 255, as an array")
            pixels = np.asarray(ImageOps.exif_transpose(image).convert(MODES[source]))
    except RunError:
        raise
    except Exception as error:  # a damaged file raises whatever its decoder does: SyntaxError, ...
        supported = f"a picture that Pillow reads, or {array}"
        because, next = f"{shown} cannot be read: {error}", f"make a PNG of it, or {array}"
        if isinstance(error, UnidentifiedImageError):
            because = f"{shown} cannot be read: it is damaged, or no picture that Pillow knows"
        elif isinstance(error, OSError) and error.strerror:  # the system's, not a decoder's
            because, next = f"{shown} cannot be read: {error.strerror}", next_path(str(value))
        raise _refused(name, because, "run.input", supported, next) from error
    return pixels if pixels.ndim == 3 else pixels[..., None]


def next_path(path: str) -> str:
    """What to do where the system does not read the file of a path."""
    where = "" if os.path.isabs(path) else " from the folder where this runs"
    return f"check the file's path{where}, and that you may read it"


def _image(pillow: Any, value: Any) -> Any:
    """What is closed after its use: a file, but no image of the caller's."""
    if isinstance(value, (str, os.PathLike)):
        return pillow.open(value)
    return contextlib.nullcontext(value)


def _refused(name: str, because: str, id: str, supported: str, next: str = "") -> RunError:
    return RunError(f"input {name!r}", because, id=id, supported=supported, next=next)
