"""Pictures as inputs: files and Pillow's images as the bytes that a bundle's kernels read."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from typing import Any

import numpy as np

from tinyedge.core.errors import RunError
from tinyedge.core.program.ports import describe
from tinyedge.core.program.program import Port, Program

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
        if port := values.get(stored):
            if _is_picture(value):
                because = f"entry {entry!r} takes the values that the model reads, not a picture"
                next = "give an array; other entries take the picture"
                raise _refused(name, because, "run.dtype", describe(port), next)
            continue
        if isinstance(value, (bytes, bytearray, memoryview)):
            because = f"it is {type(value).__name__}, whose width nobody knows"
            next = "of a file's content: PIL.Image.open(io.BytesIO(data))"
            raise _refused(name, because, "run.dtype", "a file's name, an image or an array", next)
        if _is_picture(value):
            found[name] = _pixels(name, value, source)
        elif isinstance(value, (list, tuple)) and value and all(map(_is_picture, value)):
            frames = [_pixels(name, each, source) for each in value]
            if len({frame.shape for frame in frames}) > 1:
                sizes = " and ".join(sorted({f"{f.shape[1]}x{f.shape[0]}" for f in frames}))
                because = f"its frames are of {sizes} pixels"
                raise _refused(name, because, "run.shape", "frames of one size")
            found[name] = np.stack(frames)
        else:
            _check_channels(name, value, source)
    return found


def _check_is_no_file(program: Program, sources: Mapping[str, str], name: str, value: Any) -> None:
    """Refuse the name of a file for an input that was not declared as a picture."""
    if not isinstance(value, (str, os.PathLike)) or ascii(name)[1:-1] in sources:
        return
    port = next((each for each in program.inputs if each.name == name), None)
    if port is not None:
        because = f"it is the name of a file, {str(value)!r:.200}, and no picture is declared"
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
        from PIL import Image, ImageOps
    except ImportError:
        raise _refused(
            name,
            "Pillow is not installed, which reads pictures",
            "run.input",
            "an array of uint8 [height, width, channels]",
            "pip install '.[pictures]' in a checkout of tinyedge",
        ) from None
    shown = repr(str(value))[:200]
    try:
        with _image(Image, value) as image:
            if image.mode.startswith(WIDE):
                because = f"{shown} is in mode {image.mode!r}, whose values have more than 8 bits"
                raise _refused(name, because, "run.input", "values of 0 to 255, as an array")
            array = np.asarray(ImageOps.exif_transpose(image).convert(MODES[source]))
    except RunError:
        raise
    except Exception as error:  # a damaged file raises whatever its decoder does: SyntaxError, ...
        because = f"{shown} cannot be read: {error}"
        raise _refused(name, because, "run.input", "a picture that Pillow reads") from error
    return array if array.ndim == 3 else array[..., None]


def _image(pillow: Any, value: Any) -> Any:
    """What is closed after its use: a file, but no image of the caller's."""
    if isinstance(value, (str, os.PathLike)):
        return pillow.open(value)
    return contextlib.nullcontext(value)


def _refused(name: str, because: str, id: str, supported: str, next: str = "") -> RunError:
    return RunError(f"input {name!r}", because, id=id, supported=supported, next=next)
