"""Pictures that a kernel reads from textures, where another entry point reads their bytes."""

from __future__ import annotations

from tinyedge.core.compiler.target import LoweredArg
from tinyedge.core.dtype import DType
from tinyedge.core.ir import ops
from tinyedge.core.ir.polynomial import build, proves_nonnegative, split_atom, terms
from tinyedge.core.ir.rules import index as ix
from tinyedge.core.ir.uop import Size, UOp, as_node


def place_of(argument: LoweredArg, address: UOp) -> tuple[UOp, UOp] | None:
    """The line, counted over all pictures, and the column of the pixel that has what lies at an
    address of the bytes' buffer; None where they are not to be seen without a division.

    All channels of a pixel have the same, so that compilers read it once.
    """
    assert argument.picture is not None
    width = argument.param.arg.shape[-2]
    lanes = argument.param.dtype.lanes
    channels = argument.picture[1]
    number = address if lanes == channels else _quotient(address, channels) if lanes == 1 else None
    if number is None or not isinstance(width, UOp):
        return None
    line, column = split_atom(terms(number), width)
    rest = terms(width - 1 - build(column))
    if not (proves_nonnegative(column) and proves_nonnegative(rest)):
        return None
    return build(line), build(column)


def _quotient(address: Size, channels: int) -> UOp | None:
    """An address divided by the channels, rounded down: of the lesser of two the lesser quotient.
    None where more than a constant is left.
    """
    node = as_node(address)
    if node.op in (ops.MIN, ops.MAX):
        a, b = (_quotient(each, channels) for each in node.src)
        if a is None or b is None:
            return None
        return as_node((ix.minimum if node.op is ops.MIN else ix.maximum)(a, b))
    polynomial = terms(node)
    rest = {m: factor for m, factor in polynomial.items() if m and factor % channels}
    whole = {m: factor // channels for m, factor in polynomial.items() if m not in rest}
    if not rest:
        return build({m: factor for m, factor in whole.items() if factor})
    (monomial, factor), *more = rest.items()
    if more or factor != 1 or len(monomial) > 1 or polynomial.get((), 0) % channels:
        return None
    inner = _quotient(monomial[0], channels) if monomial[0].op in (ops.MIN, ops.MAX) else None
    return None if inner is None else as_node(build(whole) + inner)


def textures(argument: LoweredArg, first: int) -> list[str]:
    """What reads pictures from textures, which are bound from a number on, as a buffer of their
    bytes would be read. Behind them is bound how: of each the steps in its texture for one pixel
    to the right and one down, then where it begins, and whether it is decoded; width and height.
    `decodes` is for where one is: software adapters compute both sides of a branch.
    """
    assert argument.picture is not None
    frames, channels = argument.picture
    seen = [f"textureLoad(seen{number}, at, 0)" for number in range(frames)]
    cases = [f"        case {n}u: {{ light = {text}; }}" for n, text in enumerate(seen) if n]
    return [
        *(
            f"@group(0) @binding({first + number}) var seen{number}: texture_2d<f32>;"
            for number in range(frames)
        ),
        f"@group(0) @binding({first + frames}) "
        f"var<uniform> place: array<vec4<f32>, {2 * frames + 1}>;",
        "override decodes: bool = false;",
        "fn pixel(line: u32, column: u32) -> vec4<u32> {",
        f"    let height = u32(place[{2 * frames}].y);",
        f"    let frame = {'line / height' if cases else '0u'};",
        "    let x = f32(column) + 0.5;",
        "    let y = f32(line - frame * height) + 0.5;",
        "    let steps = place[2u * frame];",
        "    let start = place[2u * frame + 1u];",
        "    let at = vec2<i32>(steps.xy * x + steps.zw * y + start.xy);",
        f"    var light = {seen[0]};" if not cases else "    var light: vec4<f32>;",
        *(["    switch (frame) {", *cases] if cases else ()),
        *([f"        default: {{ light = {seen[0]}; }}", "    }"] if cases else ()),
        "    return te_bytes(light, decodes && start.z > 0.0);",
        "}",
        "fn numbered(number: u32) -> vec4<u32> {",
        f"    let width = u32(place[{2 * frames}].x);",
        "    return pixel(number / width, number % width);",
        "}",
        *_texel(argument.param.dtype, channels),
    ]


def _texel(dtype: DType, channels: int) -> list[str]:
    """What gives an element, of a type, of a buffer of bytes."""
    lanes = [f"(at * {dtype.lanes}u + {n}u)" for n in range(dtype.lanes)]
    if dtype.lanes == 1:
        lanes = ["at"]
    if channels == dtype.lanes > 1:
        values = ["numbered(at)"]
    elif channels == 1:
        values = [f"te_gray(numbered({lane}))" for lane in lanes]
    else:
        values = [f"numbered({lane} / {channels}u)[{lane} % {channels}u]" for lane in lanes]
    type = "u32" if dtype.lanes == 1 else f"vec{dtype.lanes}<u32>"
    return [f"fn texel(at: u32) -> {type} {{ return {type}({', '.join(values)}); }}"]
