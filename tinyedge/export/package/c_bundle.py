"""What a bundle of a target for C carries for its user: the runtime, a program, the model's names.

The runtime's files are those of `c/` as they are; only model.h, and the cpu's table of kernels,
model.c, are of the model. What these define begins with the bundle's name, so that a program may
hold several, and with the hash of its manifest, so that it runs no other.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tinyedge.core.dtype import by_name
from tinyedge.core.errors import InputError
from tinyedge.core.program.program import Entry, Port, Program, State, Symbol, evaluate, launches
from tinyedge.export.bundle.manifest import INTEGER_LIMIT
from tinyedge.export.package.package import Extra

FOLDER = Path(__file__).resolve().parent / "c"
PROGRAM = ("main.c", "Makefile")


def _files(*patterns: str) -> tuple[str, ...]:
    return tuple(sorted(file.name for pattern in patterns for file in FOLDER.glob(pattern)))


@dataclass(frozen=True)
class Backend:
    """The part of the runtime that runs a target's bundles: its function in C, its files."""

    function: str
    files: tuple[str, ...]
    table: bool = False  # kernels are compiled with the program, from model.c


BACKENDS = {
    "cpu": Backend("te_cpu", _files("tinyedge_cpu*"), table=True),
    "qcom": Backend(
        "te_opencl", _files("tinyedge_opencl*", "tinyedge_device.c", "tinyedge_cache.c")
    ),
    "cuda": Backend("te_cuda", _files("tinyedge_cuda*", "tinyedge_device.c")),
}
# What all of them share.
RUNTIME = tuple(
    name
    for name in _files("tinyedge*")
    if not any(name in backend.files for backend in BACKENDS.values())
)


# What `model.h` defines of each.
PORT = ("NAME", "DTYPE", "CODES", "RANK", "SHAPE", "ELEMENTS", "BYTES")
SLICE = ("AXIS", "START", "SIZE", "OFFSET")


# Where a name of C cannot begin, or where the runtime's own names do.
# The last are short names of any model.
RESERVED = re.compile(
    r"[0-9]|TE(_|$)|TINYEDGE(_|$)|MODEL_(INPUT|OUTPUT|STATE|ENTRY|SYMBOL|BACKEND|KERNELS|PLAN)(_|$)"
)


def check_prefix(name: str) -> None:
    """Raise InputError unless a bundle may be called so."""
    if not re.fullmatch("[A-Za-z][A-Za-z0-9_]{0,63}", name):
        raise InputError(
            f"name {name!r:.80}",
            "names in C cannot begin with it",
            id="option.name",
            supported="a letter, then at most 63 letters, digits and underscores",
        )


def prefix_of(name: str) -> str:
    """What the names of a bundle's model.h begin with: capitals, digits and underscores."""
    plain = re.sub("[^A-Z0-9]+", "_", name.upper()).strip("_")
    if not plain:
        return "MODEL"
    return f"MODEL_{plain}" if RESERVED.match(plain) else plain


def runtime_files(program: Program, name: str = "model") -> dict[str, Extra]:
    """Name -> file or content of all that a bundle of `program` carries beside its own files.

    name: of the bundle, for the names in its C files.
    """
    prefix = prefix_of(name)
    backend = BACKENDS[program.target]
    names = (*RUNTIME, *backend.files)
    files: dict[str, Extra] = {f"runtime/{name}": FOLDER / name for name in names}
    files |= {name: FOLDER / name for name in PROGRAM}
    files["model.h"] = lambda plan: header(program, prefix, plan).encode("ascii")
    if backend.table:
        files["model.c"] = table(program, prefix).encode("ascii")
    return files


def table(program: Program, prefix: str) -> str:
    """`model.c`: the kernels, private to one file, and the table of them for te_create."""
    needs = _needs(program)
    lines = [
        "/* The kernels of this bundle, private to this file, and the table of them. */",
        '#include "model.h"',
        "",
        "/* Declared static here, so that several bundles can be linked into one program. */",
        *(f"static te_function {kernel.name};" for kernel in program.kernels),
        "",
        '#include "kernels.c"',
        "",
        "/* What they need of each buffer. */",
    ]
    rows = []
    for kernel, bytes in zip(program.kernels, needs, strict=True):
        buffers = ", ".join(
            f"{{{size}, {'true' if binding.access == 'read_write' else 'false'}}}"
            for size, binding in zip(bytes, kernel.bindings, strict=True)
        )
        lines.append(f"static const te_kernel_buffer buffers_{kernel.name}[] = {{{buffers}}};")
        rows.append(f'    {{"{kernel.name}", {kernel.name}, buffers_{kernel.name}, {len(bytes)}}},')
    lines += [
        "",
        f"static const te_kernel table[] = {{{'' if rows else '{0}'}",
        *rows,
        "};",
        "",
        f"const te_kernels {prefix.lower()}_kernels = {{{prefix}_PLAN, table, {len(rows)}}};",
        "",
    ]
    return "\n".join(lines)


def _needs(program: Program) -> list[tuple[int, ...]]:
    """The bytes that each kernel needs of each of its buffers: all launches of a kernel touch the
    same of them, so the smallest buffer will do. No buffer will do for one that is not launched.
    """
    needs = [(INTEGER_LIMIT,) * len(kernel.bindings) for kernel in program.kernels]
    for entry in program.entries:
        for launch in launches(entry.steps):
            bytes = (program.buffers[number].bytes for number in launch.buffers)
            needs[launch.kernel] = tuple(map(min, needs[launch.kernel], bytes))
    return needs


def header(program: Program, prefix: str, plan: str) -> str:
    """`model.h`: numbers, sizes and names of this model's inputs, outputs, states and entries.

    plan: the SHA-256 of the bundle's manifest.
    """
    lines = [
        *_backend(BACKENDS[program.target], prefix),
        f'#define {prefix}_PLAN "{plan}"',
        "",
        *_ports(f"{prefix}_INPUT", program.inputs, program),
        *_ports(f"{prefix}_OUTPUT", program.outputs, program),
        *_ports(f"{prefix}_STATE", program.states, program),
        *_enumeration(f"{prefix}_ENTRY", program.entries),
        *_enumeration(f"{prefix}_SYMBOL", program.symbols),
    ]
    return "\n".join(
        [
            "/* What this model takes and gives; symbolic sizes are the greatest. */",
            f"#if defined {prefix}_H && !defined {prefix}_{plan[:16].upper()}",
            f'#error "two bundles are called {prefix}: export one of them with --name"',
            "#endif",
            f"#ifndef {prefix}_H",
            f"#define {prefix}_H",
            f"#define {prefix}_{plan[:16].upper()}",
            "",
            '#include "tinyedge.h"',
            "",
            *(_forget_short_names(lines) if prefix == "MODEL" else ()),
            *lines,
            *(_short_names(lines, prefix) if prefix != "MODEL" else ()),
            "#endif",
            "",
        ]
    )


def _names(lines: Sequence[str], prefix: str) -> Iterator[str]:
    """What these lines define, without the prefix."""
    for line in lines:
        if found := re.match(rf"(?:#define |    ){prefix}_(\w+)", line):
            yield found[1]


def _forget_short_names(lines: Sequence[str]) -> Iterator[str]:
    """In the header of a bundle called `model`: these names are its own, whatever the header of
    another bundle, which came before, made short for.
    """
    yield "#ifdef TE_ONLY_MODEL"
    yield from (f"#undef MODEL_{name}" for name in _names(lines, "MODEL"))
    yield "#undef TE_ONLY_MODEL"
    yield "#endif"
    yield "#define TE_ONLY_MODEL(name) MODEL_##name"
    yield ""


def _short_names(lines: Sequence[str], prefix: str) -> Iterator[str]:
    """The same names with MODEL_, of the only model of a source file."""
    yield "/* The same, shorter, where this is the only model that is included. */"
    yield "#ifdef TE_ONLY_MODEL"
    yield "#undef TE_ONLY_MODEL"
    yield f"#define TE_ONLY_MODEL(name) several_models_are_included_say_{prefix}_##name"
    yield "#else"
    yield f"#define TE_ONLY_MODEL(name) {prefix}_##name"
    yield from (f"#define MODEL_{name} TE_ONLY_MODEL({name})" for name in _names(lines, prefix))
    yield "#endif"


def _backend(backend: Backend, prefix: str) -> Iterator[str]:
    """What runs this bundle, for te_open_options and te_context_options."""
    yield f"#define {prefix}_BACKEND {backend.function}()"
    if not backend.table:
        yield f"#define {prefix}_KERNELS NULL"
        return
    kernels = f"{prefix.lower()}_kernels"
    yield f"#define {prefix}_KERNELS &{kernels}"
    yield from (
        "#ifdef __cplusplus",
        'extern "C"',
        "#else",
        "extern",
        "#endif",
        f"const te_kernels {kernels};",
    )


def _ports(group: str, ports: Sequence[Port | State], program: Program) -> Iterator[str]:
    yield from _enumeration(group, ports, PORT)
    maxima = {symbol.name: symbol.max for symbol in program.symbols}
    for port, name in zip(ports, _identifiers([port.name for port in ports], PORT), strict=True):
        prefix = f"{group}_{name}"
        shape = [evaluate(size, maxima) for size in port.shape]
        elements = math.prod(shape)
        sizes = ", ".join(map(str, shape))
        yield f"#define {prefix}_NAME {_literal(port.name)}"
        yield f"#define {prefix}_DTYPE TE_{by_name(port.dtype).held.name.upper()}"
        if by_name(port.dtype).storage_type:
            yield f'#define {prefix}_CODES "{port.dtype}"'
        yield f"#define {prefix}_RANK {len(shape)}"
        if shape:
            yield f"#define {prefix}_SHAPE {{{sizes}}}"
        yield f"#define {prefix}_ELEMENTS {elements}"
        yield f"#define {prefix}_BYTES {elements * by_name(port.dtype).itemsize}"
        parts = port.slices if isinstance(port, Port) else ()
        for number, (part, label) in enumerate(
            zip(parts, _identifiers([part.name for part in parts], SLICE), strict=True)
        ):
            place = f"{prefix}_SLICE_{label}"
            yield f"#define {place} {number}"
            yield f"#define {place}_AXIS {part.axis}"
            yield f"#define {place}_START {part.start}"
            yield f"#define {place}_SIZE {part.size}"
            if math.prod(shape[: part.axis]) == 1:
                # One piece of memory: elements from the start of the output.
                yield f"#define {place}_OFFSET {part.start * math.prod(shape[part.axis + 1 :])}"
        yield ""


def _enumeration(
    group: str, records: Sequence[Port | State | Entry | Symbol], facts: Sequence[str] = ()
) -> Iterator[str]:
    names = _identifiers([record.name for record in records], facts)
    yield f"#define {group}_COUNT {len(names)}"
    if names:
        yield "enum {"
        yield from (f"    {group}_{name} = {i}," for i, name in enumerate(names))
        yield "};"
    yield ""


def _identifiers(names: Sequence[str], facts: Sequence[str] = ()) -> list[str]:
    """Names as capitals, digits and underscores. Those that fall together get a number, also where
    one falls together with a fact of another, such as its `_SHAPE`; none looks like a slice.
    """
    taken = {"COUNT"}
    result = []
    for name in names:
        plain = re.sub("[^A-Z0-9]+", "_", name.upper()).strip("_") or "UNNAMED"
        plain = plain.replace("_SLICE_", "_SLICE")
        unique, number = plain, 1
        while not taken.isdisjoint(own := {unique, *(f"{unique}_{fact}" for fact in facts)}):
            number += 1
            unique = f"{plain}_{number}"
        taken |= own
        result.append(unique)
    return result


def _literal(text: str) -> str:
    """A C string of any text, in UTF-8; three octal digits end by themselves."""
    printable = re.compile(r"[ !#->@-\[\]-~]")
    return (
        '"'
        + "".join(
            chr(byte) if printable.match(chr(byte)) else f"\\{byte:03o}" for byte in text.encode()
        )
        + '"'
    )
