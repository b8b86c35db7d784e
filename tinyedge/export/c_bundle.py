"""What a bundle of a target for C carries for its user: the runtime, a program, the model's names.

The runtime's files are those of `c/` as they are; only model.h, and the cpu's table of kernels,
model.c, are of the model.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tinyedge.core.dtype import by_name
from tinyedge.core.program import Entry, Port, Program, State, Symbol, evaluate
from tinyedge.export.bundle import kernel_file

FOLDER = Path(__file__).resolve().parent / "c"
RUNTIME = (
    "tinyedge.h",
    "tinyedge_internal.h",
    "tinyedge.c",
    "tinyedge_manifest.c",
    "tinyedge_fields.c",
    "tinyedge_records.c",
    "tinyedge_check.c",
    "tinyedge_values.c",
    "tinyedge_run.c",
    "tinyedge_golden.c",
    "tinyedge_sha256.c",
    "tinyedge_folder.c",
    "tinyedge_time.c",
)
PROGRAM = ("main.c", "Makefile")


@dataclass(frozen=True)
class Backend:
    """The part of the runtime that runs a target's bundles: its function in C, its files."""

    function: str
    files: tuple[str, ...]
    table: bool = False  # kernels are compiled with the program, from model.c


BACKENDS = {
    "cpu": Backend("te_cpu", ("tinyedge_cpu.c",), table=True),
    "qcom": Backend("te_opencl", ("tinyedge_opencl.c", "tinyedge_device.c", "tinyedge_cache.c")),
    "cuda": Backend("te_cuda", ("tinyedge_cuda.c", "tinyedge_device.c")),
}


# What `model.h` defines of each.
PORT = ("NAME", "DTYPE", "CODES", "RANK", "SHAPE", "ELEMENTS", "BYTES")
SLICE = ("AXIS", "START", "SIZE", "OFFSET")


def runtime_files(program: Program) -> dict[str, Path | bytes]:
    """Name -> file or content of all that a bundle of `program` carries beside its own files."""
    backend = BACKENDS[program.target]
    names = (*RUNTIME, *backend.files)
    files: dict[str, Path | bytes] = {f"runtime/{name}": FOLDER / name for name in names}
    files |= {name: FOLDER / name for name in PROGRAM}
    files["model.h"] = header(program).encode("ascii")
    if backend.table:
        files["model.c"] = table(program).encode("ascii")
    return files


def table(program: Program) -> str:
    """`model.c`: the kernels, private to one file, and the table of them for te_create."""
    digest = hashlib.sha256(kernel_file(program).encode("ascii")).hexdigest()
    names = [kernel.name for kernel in program.kernels]
    rows = [f'    {{"{name}", {name}}},' for name in names]
    return "\n".join(
        [
            "/* The kernels of this bundle, private to this file, and the table of them. */",
            '#include "model.h"',
            "",
            "/* Declared static here, so that several bundles can be linked into one program. */",
            *(f"static te_function {name};" for name in names),
            "",
            '#include "kernels.c"',
            "",
            f"static const te_kernel table[] = {{{'' if rows else '{0}'}",
            *rows,
            "};",
            "",
            "const te_kernels TE_MODEL_KERNELS = {",
            f'    "{digest}", table, {len(names)}}};',
            "",
        ]
    )


def header(program: Program) -> str:
    """`model.h`: numbers, sizes and names of this model's inputs, outputs, states and entries."""
    lines = [
        "/* What this model takes and gives; sizes are the greatest where they are symbolic. */",
        "#ifndef TINYEDGE_MODEL_H",
        "#define TINYEDGE_MODEL_H",
        "",
        '#include "tinyedge.h"',
        "",
        *_backend(BACKENDS[program.target]),
        "",
        *_ports("INPUT", program.inputs, program),
        *_ports("OUTPUT", program.outputs, program),
        *_ports("STATE", program.states, program),
        *_enumeration("ENTRY", program.entries),
        *_enumeration("SYMBOL", program.symbols),
        "#endif",
        "",
    ]
    return "\n".join(lines)


def _backend(backend: Backend) -> Iterator[str]:
    """What runs this bundle, for te_context_options."""
    yield f"#define MODEL_BACKEND {backend.function}()"
    if not backend.table:
        yield "#define MODEL_KERNELS NULL"
        return
    yield "#define MODEL_KERNELS &TE_MODEL_KERNELS"
    yield from (
        "",
        "/* Several bundles in one program: compile each model.c with its own names. */",
        "#ifndef TE_MODEL_KERNELS",
        "#define TE_MODEL_KERNELS tinyedge_kernels",
        "#endif",
        "#ifdef __cplusplus",
        'extern "C"',
        "#else",
        "extern",
        "#endif",
        "const te_kernels TE_MODEL_KERNELS;",
    )


def _ports(group: str, ports: Sequence[Port | State], program: Program) -> Iterator[str]:
    yield from _enumeration(group, ports, PORT)
    maxima = {symbol.name: symbol.max for symbol in program.symbols}
    for port, name in zip(ports, _identifiers([port.name for port in ports], PORT), strict=True):
        prefix = f"MODEL_{group}_{name}"
        shape = [evaluate(size, maxima) for size in port.shape]
        elements = math.prod(shape)
        sizes = ", ".join(map(str, shape))
        yield f"#define {prefix}_NAME {_literal(port.name)}"
        yield f"#define {prefix}_DTYPE TE_{by_name(port.dtype).held.name.upper()}"
        if by_name(port.dtype).carrier:
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
    yield f"#define MODEL_{group}_COUNT {len(names)}"
    if names:
        yield "enum {"
        yield from (f"    MODEL_{group}_{name} = {i}," for i, name in enumerate(names))
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
