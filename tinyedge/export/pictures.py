"""Pictures: inputs that take pictures of any size, which the bundle resamples and scales itself.

An input is declared by words, `letterbox:114,antialias,rgb,imagenet`. In place of it the model gets
an input of the same name that takes a picture's bytes, and two kernels that make the old one of it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Union

import numpy as np

from tinyedge.core import dtype as dt
from tinyedge.core.errors import InputError
from tinyedge.core.ir import ops
from tinyedge.core.ir.reference import evaluate
from tinyedge.core.ir.rewrite import substitute
from tinyedge.core.ir.shapes import product, symbol
from tinyedge.core.ir.uop import Size, UOp, toposort
from tinyedge.core.tensor.base import fixed
from tinyedge.core.tensor.graph import Graph, Port, node_name
from tinyedge.core.tensor.tensor import Tensor
from tinyedge.export.limits import LARGEST
from tinyedge.export.near import did_you_mean
from tinyedge.export.ports import show
from tinyedge.export.resample import CHROMA, colors_of, line, ratios, resampled

Words = Union[str, Sequence[str]]

FITS = ("stretch", "cover", "letterbox")
FILTERS = ("antialias", "bilinear", "nearest")
COLORS = {"rgb": 3, "bgr": 3, "gray": 1}
SOURCES = {"rgb": 3, "rgba": 4, "gray": 1, "nv12": 1}  # and the channels of each
# What is taken from a value of 0 to 255, and what the rest is divided by.
SCALES = {
    "0..255": ((0.0,), (1.0,)),
    "0..1": ((0.0,), (255.0,)),
    "-1..1": ((127.5,), (127.5,)),
    "imagenet": ((123.675, 116.28, 103.53), (58.395, 57.12, 57.375)),
}
SIDE = 2048  # pixels, the greatest side of a picture where none is given
GREATEST = 16384
LAYOUTS = ("nchw", "nhwc", "chw", "hwc", "hw", "nhw", "ntchw", "ncthw", "nthwc")

KNOWN = (
    "stretch, cover, letterbox or letterbox:PAD; antialias, bilinear or nearest; rgb, bgr or gray; "
    "imagenet, 0..1, -1..1, 0..255, or mean:A/B/C and std:A/B/C of values 0 to 255; a layout such "
    "as nchw; from:rgb, rgba, gray or nv12, with bt601, bt709, full; max:SIDE"
)

_NUMBER = r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?"
_NUMBERS = re.compile(rf"{_NUMBER}(?:/{_NUMBER})*", re.ASCII)


@dataclass(frozen=True)
class Picture:
    """How a picture becomes an input."""

    fit: str = "stretch"
    pad: tuple[float, ...] = (0.0,)
    filter: str = "antialias"
    colors: str = ""  # "": gray where the input has one channel, else rgb
    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()
    layout: str = ""  # "": as the shape suggests
    source: str = "rgb"
    matrix: str = "bt601"
    full: bool = False
    side: int = SIDE
    said: Mapping[str, str] = field(default_factory=dict)  # the word that said each


def parse(name: str, spec: Words, source: str = "rgb") -> Picture:
    """A picture from its words. source: what it is made of where they do not say. Raises
    InputError.
    """
    words = spec.split(",") if isinstance(spec, str) else list(spec)
    made = Picture(source=source)
    for word in words:
        for part, value in _meaning(name, word).items():
            if part in made.said and (part != "mean" or made.said[part] != word):
                because = f"{made.said[part]!r} and {word!r} are given"
                raise _refused(name, because, "picture.twice", "one word for each")
            said = {**made.said, part: word}
            made = replace(made, said=said, **{part: value})
    if bool(made.mean) != bool(made.std):
        lacks = "std" if made.mean else "mean"
        raise _refused(name, f"it has no {lacks}", "picture.scale", "mean:A/B/C together with std")
    if made.colors == "bgr" and made.said.get("mean", "").strip() == "imagenet":
        made = replace(made, mean=made.mean[::-1], std=made.std[::-1])
    if not all(_is_small(number) for number in made.mean):
        raise _refused(name, "its mean is no float32", "picture.scale", "finite numbers")
    if not all(number and _is_small(1 / number) for number in made.std):
        fix = "numbers other than 0, whose inverses are float32"
        raise _refused(name, "its std is 0 or nearly", "picture.scale", fix)
    if not all(0 <= number <= 255 for number in made.pad):
        raise _refused(name, "its PAD is none of a picture's", "picture.scale", "0 to 255")
    return made


def _is_small(number: float) -> bool:
    """Whether a number is finite as a float32."""
    return abs(number) <= float(np.finfo(np.float32).max)


def _meaning(name: str, word: Any) -> dict[str, Any]:
    """What a word says, by the field's name."""
    simple: dict[str, dict[str, Any]] = {
        **{w: {"fit": w} for w in FITS},
        **{w: {"filter": w} for w in FILTERS},
        **{w: {"colors": w} for w in COLORS},
        **{w: {"mean": mean, "std": std} for w, (mean, std) in SCALES.items()},
        **{w: {"layout": w} for w in LAYOUTS},
        **{w: {"matrix": w} for w in CHROMA},
        **{f"from:{w}": {"source": w} for w in SOURCES},
        "full": {"full": True},
    }
    text = word.strip() if isinstance(word, str) else ""
    if text in simple:
        return simple[text]
    key, _, value = text.partition(":")
    if key in ("mean", "std") and _NUMBERS.fullmatch(value):
        return {key: _numbers(value)}
    if key == "letterbox" and _NUMBERS.fullmatch(value):
        return {"fit": key, "pad": _numbers(value)}
    if key == "max" and value.isascii() and value.isdecimal() and 1 <= int(value) <= GREATEST:
        return {"side": int(value)}
    if key == "max" and value.isascii() and value.isdecimal():
        because = f"{word!r}: a side has 1 to {GREATEST} pixels"
        fix = f"leave it out for {SIDE}, or say the greatest side that a picture of yours has"
        raise _refused(name, because, "picture.word", f"max:1 to max:{GREATEST}", fix)
    fix = did_you_mean(key, (*simple, "letterbox", "mean", "std", "max"))
    fix = fix or "docs/pictures.md says what each of these means"
    raise _refused(name, f"{word!r} is no word for it", "picture.word", KNOWN, fix)


def _numbers(text: str) -> tuple[float, ...]:
    return tuple(map(float, text.split("/")))


def with_pictures(
    graphs: Mapping[str, Graph], pictures: Mapping[str, Words], source: str = "rgb"
) -> tuple[dict[str, Graph], list[dict[str, Any]]]:
    """The graphs with inputs for pictures in place of those named; what the manifest records.

    pictures: words by the input's name; it becomes one in every entry that has it. source: what a
    picture is made of by default. Raises InputError.
    """
    found = dict(graphs)
    records = []
    for name, spec in pictures.items():
        port = _reader(graphs, name)
        picture = _completed(name, port, parse(name, spec, source))
        value, ports = _built(port, picture)
        taken = {p.name for g in graphs.values() for p in g.inputs} & {p.name for p in ports[1:]}
        for other in taken:
            because = f"the model has an input {other!r}, as its second plane would be called"
            raise _refused(name, because, "picture.name", "pictures from rgb, rgba or gray")
        for entry, graph in found.items():
            if any(p.name == name for p in graph.inputs):
                found[entry] = _fed(graph, port, value, ports)
        records.append(_record(name, port, picture))
    return found, records


def _reader(graphs: Mapping[str, Graph], name: str) -> Port:
    """The input of a name; the same in every entry that has it."""
    every = [port for graph in graphs.values() for port in graph.inputs]
    ports = [port for port in every if port.name == name]
    if not ports:
        names = ", ".join(repr(n) for n in dict.fromkeys(port.name for port in every))
        raise _refused(name, "the model has no such input", "picture.input", names)
    if any((p.dtype, p.shape) != (ports[0].dtype, ports[0].shape) for p in ports):
        because = "; ".join(dict.fromkeys(map(show, ports)))
        raise _refused(name, because, "picture.input", "one type and shape in all entries")
    return ports[0]


def _completed(name: str, port: Port, picture: Picture) -> Picture:
    """With the layout and colors that the shape says. Raises InputError."""
    if not all(isinstance(size, int) and size for size in port.shape):
        because, fix = f"it is {show(port)}", "fix them by --dim"
        raise _refused(name, because, "picture.shape", "inputs of fixed sizes", fix)
    if not (port.dtype.is_float or port.dtype is dt.uint8):
        raise _refused(name, f"it is {port.dtype}", "picture.dtype", "floats and uint8")
    layouts = [picture.layout] if picture.layout else LAYOUTS
    fits = [w for w in layouts if len(w) == len(port.shape) and _channels(w, port) in (1, 3)]
    if picture.colors:
        fits = [w for w in fits if _channels(w, port) == COLORS[picture.colors]]
    fits = [w for w in fits if "c" in w] or fits  # an axis of 1 or 3 is that of the channels
    if len(fits) != 1:
        because = f"it is {show(port)}, " + (f"{' or '.join(fits)}" if fits else "no such layout")
        raise _refused(name, because, "picture.layout", f"a layout: {', '.join(LAYOUTS)}")
    channels = _channels(fits[0], port)
    numbers = {"mean": picture.mean, "std": picture.std, "pad": picture.pad}
    for word, values in numbers.items():
        if len(values) not in (0, 1, channels):
            because = f"{word} has {len(values)} numbers for {channels} channels"
            raise _refused(name, because, "picture.scale", "one number, or one for each channel")
    if not picture.mean:
        if port.dtype.is_float:
            because = "nothing says how values of 0 to 255 become floats"
            raise _refused(name, because, "picture.scale", ", ".join(SCALES) + ", mean: with std:")
        picture = replace(picture, mean=(0.0,), std=(1.0,))
    colors = picture.colors or ("gray" if channels == 1 else "rgb")
    return replace(picture, layout=fits[0], colors=colors)


def _channels(layout: str, port: Port) -> Size:
    return port.shape[layout.index("c")] if "c" in layout else 1


def _built(port: Port, picture: Picture) -> tuple[Tensor, tuple[Port, ...]]:
    """The input's value, and the ports that it is made of."""
    sizes = dict(zip(picture.layout, port.shape, strict=True))
    frames = product(sizes.get(letter, 1) for letter in "nt")
    out = fixed(sizes["h"]), fixed(sizes["w"])
    several = () if frames == 1 else (frames,)
    elements = fixed(frames) * SOURCES[picture.source] * picture.side**2
    if elements > LARGEST:
        because = f"{frames} of {picture.side} x {picture.side} pixels have {elements} values"
        fix = f"a smaller side, as max:{picture.side // 2}"
        raise _refused(port.name, because, "picture.size", f"up to {LARGEST} values", fix)
    height, width = (symbol(f"{port.name}.{word}", 1, picture.side) for word in ("height", "width"))
    seen = height, width
    shape = (*several, *seen, SOURCES[picture.source])
    ports = [Port(port.name, dt.uint8, shape, picture=True)]
    if picture.source == "nv12":
        less = ((size + 1) // 2 for size in seen)
        ports = [Port(port.name, dt.uint8, shape[:-1])]
        ports.append(Port(f"{port.name}.uv", dt.uint8, (*several, *less, 2)))
    planes = []
    for each in ports:
        shape = (frames, *each.shape[len(several) :])
        shape = (*shape, 1) if len(shape) == 3 else shape
        planes.append(Tensor.input(each.name, each.shape, each.dtype).reshape(shape))
    scales = ratios(picture.fit, seen, out)
    rows, columns = (
        line(size, o, ratio, picture.filter)
        for size, o, ratio in zip(seen, out, scales, strict=True)
    )
    colors = colors_of(picture.colors, picture.source, picture.matrix, picture.full)
    light = resampled(planes, rows, columns, colors)
    if picture.source == "nv12":
        light = light.clip(0.0, 255.0)
    if picture.colors != "gray" and light.shape[-1] == 1:
        light = light.expand((*light.shape[:-1], 3))
    if picture.fit == "letterbox":
        inside = rows.inside.reshape((1, out[0], 1, 1)) & columns.inside.reshape((1, 1, out[1], 1))
        light = inside.where(light, _constant(picture.pad))
    return _scaled(light, port, picture), tuple(ports)


def _scaled(light: Tensor, port: Port, picture: Picture) -> Tensor:
    """[frames, height, width, channels] of 0 to 255 in the input's range, type and layout."""
    std = np.array(picture.std)
    if any(picture.mean):
        light = light - _constant(picture.mean)
    if any(each != 1 for each in picture.std):
        light = light * _constant(1 / std)
    if not port.dtype.is_float:
        light = light.round().clip(0.0, 255.0)
    layout = picture.layout
    sizes = dict(zip(layout, port.shape, strict=True))
    light = light.reshape([sizes.get(letter, 1) for letter in "nthwc"])
    dropped = [i for i, letter in enumerate("nthwc") if letter not in layout]
    order = ["nthwc".index(letter) for letter in layout]
    return light.permute(order + dropped).reshape(port.shape).cast(port.dtype)


def _constant(values: Any) -> Tensor:
    return Tensor(np.array(values, np.float32))


def _fed(graph: Graph, port: Port, value: Tensor, ports: tuple[Port, ...]) -> Graph:
    """The graph with an input computed from others; its kernels are called by its name."""
    outputs, updates = (
        [p for p in each if p.node is not None] for each in (graph.outputs, graph.updates)
    )
    roots = [*(p.node for p in outputs), *(p.node for p in updates)]
    roots += [*graph.counts.values(), *graph.names]
    every = tuple(root for root in roots if root is not None)
    read = {node: value.node for node in toposort(every) if _reads(node, port.name)}
    new = substitute(every, read)
    found = dict(zip(roots, new, strict=True))
    return replace(
        graph,
        inputs=tuple(p for each in graph.inputs for p in (ports if each == port else (each,))),
        outputs=tuple(replace(p, node=found[p.node]) for p in outputs),
        updates=tuple(replace(p, node=found[p.node]) for p in updates),
        counts={name: found[node] for name, node in graph.counts.items()},
        names={
            value.node: node_name(f"picture {port.name}"),
            **{found[node]: text for node, text in graph.names.items()},
        },
    )


def _reads(node: UOp, name: str) -> bool:
    """Whether a node is the input of a name."""
    return node.op is ops.BUFFER and (
        (node.arg.source.kind, node.arg.source.name) == ("input", name)
    )


def _record(name: str, port: Port, picture: Picture) -> dict[str, Any]:
    """What a runtime must know to give a picture and to map places of the result back."""
    sizes = dict(zip(picture.layout, port.shape, strict=True))
    return {
        "input": ascii(name)[1:-1],  # as a manifest may hold it
        "from": picture.source,
        "fit": picture.fit,
        "width": sizes["w"],
        "height": sizes["h"],
        "max": picture.side,
        "words": _words(picture),
        "dtype": str(port.dtype),
        "shape": list(port.shape),
    }


def _words(picture: Picture) -> str:
    """All that a picture's declaration says, so that `parse` needs nothing else."""
    pad = f":{_text(picture.pad)}" if picture.fit == "letterbox" else ""
    scale = f"mean:{_text(picture.mean)}", f"std:{_text(picture.std)}"
    words = (picture.fit + pad, picture.filter, picture.colors, *scale, picture.layout)
    source = (f"from:{picture.source}", picture.matrix, *["full"] * picture.full)
    return ",".join((*words, *source, f"max:{picture.side}"))


def _text(numbers: Sequence[float]) -> str:
    return "/".join(map(repr, numbers))


def values_of(
    name: str, record: Mapping[str, Any], inputs: Mapping[str, Any], symbols: Mapping[str, int]
) -> Any:
    """What the model's own input of that name gets, as an array, by what a manifest records of the
    picture. inputs: the bytes, by the names of the bundle's inputs. Raises InputError.
    """
    shape, dtype = (
        record.get("shape"),
        {each.name: each for each in dt.ALL}.get(str(record.get("dtype"))),
    )
    if not isinstance(record.get("words"), str) or not isinstance(shape, list) or dtype is None:
        because = "the bundle does not say how pictures become values"
        fix = "export the model again with this version"
        raise _refused(name, because, "picture.record", "bundles that record it", fix)
    port = Port(name, dtype, tuple(shape))
    value, ports = _built(port, _completed(name, port, parse(name, record["words"])))
    given = {each.name: inputs[each.name] for each in ports}
    return evaluate([value.node], given, symbols)[0]


def _refused(name: str, because: str, id: str, supported: str, next: str = "") -> InputError:
    subject = f"picture {name!r:.80}"
    return InputError(subject, because, id=id, supported=supported, next=next)
