"""What a bundle of a target for C carries for its user: the runtime, a program, the model's names.

The runtime's files are those of `c/` as they are; only model.h, and the cpu's table of kernels,
model.c, are of the model. What these define begins with the bundle's name, so that a program may
hold several, and with the hash of its manifest, so that it runs no other.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tinyedge.core.dtype import by_name
from tinyedge.core.errors import InputError
from tinyedge.core.program.program import (
    Entry,
    Port,
    Program,
    State,
    Symbol,
    Variant,
    evaluate,
    launches,
)
from tinyedge.export.bundle.manifest import INTEGER_LIMIT, MANIFEST, other_manifest
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
# What is linked only where a program calls it.
OPTIONAL = _files("tinyedge_states*", "tinyedge_image*")
# What all of them share.
RUNTIME = tuple(
    name
    for name in _files("tinyedge*")
    if name not in OPTIONAL and not any(name in backend.files for backend in BACKENDS.values())
)


# What `model.h` defines of each.
PORT = ("NAME", "DTYPE", "CODES", "RANK", "SHAPE", "ELEMENTS", "BYTES")
SLICE = ("AXIS", "START", "SIZE", "OFFSET")


# Where a name of C cannot begin, or where the runtime's own names do.
# The last are short names of any model.
RESERVED = re.compile(
    r"[0-9]|TE(_|$)|TINYEDGE(_|$)|"
    r"MODEL_(INPUT|OUTPUT|STATE|ENTRY|SYMBOL|BACKEND|KERNELS|PLAN|VARIANTS)(_|$)"
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


def runtime_files(
    program: Program, name: str = "model", variants: Sequence[Variant] = ()
) -> dict[str, Extra]:
    """Name -> file or content of all that a bundle of `program` carries beside its own files.

    name: of the bundle, for the names in its C files. variants: of a bundle of several programs
    all of them, the best first; the last is `program`.
    """
    prefix = prefix_of(name)
    backend = BACKENDS[program.target]
    names = (*RUNTIME, *OPTIONAL, *backend.files)
    files: dict[str, Extra] = {f"runtime/{name}": FOLDER / name for name in names}
    files |= {name: FOLDER / name for name in PROGRAM}
    files["model.h"] = lambda plans: header(program, prefix, plans, variants).encode("ascii")
    if backend.table and not variants:
        files["model.c"] = table(program, prefix).encode("ascii")
    for number, variant in enumerate(variants):
        file = f"model_{variant.name}.c" if variant.program is not program else "model.c"
        files[file] = table_of_variant(variants, number, prefix).encode("ascii")
    if variants:
        files["model.mk"] = flags_of_variants(variants).encode("ascii")
    return files


# What a C compiler for a kind of processor defines, for the instruction sets that only it has.
FLAGS = {"neon": "-mfpu=neon"}  # of a compiler, where its name for a set is not -mNAME
KINDS = {"neon": "defined __ARM_NEON", "": "defined __x86_64__ || defined __i386__"}


def flags_of_variants(variants: Sequence[Variant]) -> str:
    """`model.mk`, for the Makefile: the compiler's flags for each file of kernels."""
    lines = ["# The flags of each variant's kernels, where the compiler has them."]
    for variant in variants:
        file = f"model_{variant.name}" if variant is not variants[-1] else "model"
        flags = " ".join(FLAGS.get(word, f"-m{word}") for word in variant.requires)
        lines.append(f"SETS_{file} := {flags}".rstrip())
    return "\n".join([*lines, ""])


def table_of_variant(variants: Sequence[Variant], number: int, prefix: str) -> str:
    """`model_NAME.c`: what `table` gives, of one of several programs; nothing where it is compiled
    for another kind of processor.
    """
    variant, last = variants[number], number == len(variants) - 1
    kinds = {KINDS.get(word, KINDS[""]) for word in variant.requires}
    condition = " || ".join(sorted(kinds)) or "1"
    names = [_table_name(prefix, each, each is variants[-1]) for each in variants]
    manifest = MANIFEST if last else other_manifest(number)
    kernels = "kernels.c" if last else f"kernels-{number + 1:05}.c"
    needs = ", ".join([*(f'"{word}"' for word in variant.requires), "NULL"])
    count, lines = _table(variant.program, kernels)
    lines = [
        f"/* The kernels of this bundle for {variant.name}, private to this file, and the table of",
        "   them. */",
        '#include "model.h"',
        "",
        f"static const char *const needs[] = {{{needs}}};",
        "",
        f"#if {condition}",
        *lines,
        "#define TABLE table",
        f"#define COUNT {count}",
        "#else",
        "#define TABLE NULL",
        "#define COUNT 0",
        "#endif",
        "",
    ]
    if last:
        others = (f"extern const te_kernels {name};" for name in names[:-1])
        choices = ", ".join([*(f"&{name}" for name in names), "NULL"])
        lines += [
            *others,
            f"static const te_kernels *const choices[] = {{{choices}}};",
        ]
    else:
        lines.append(f"extern const te_kernels {names[number]};")
    plan = f"{prefix}_PLAN" if last else f"{prefix}_PLAN_{variant.name.upper()}"
    of = "choices" if last else "NULL"
    lines += [
        f'const te_kernels {names[number]} = {{{plan}, TABLE, COUNT, "{variant.name}", '
        f'"{manifest}", needs, {of}}};',
        "",
    ]
    return "\n".join(lines)


def _table_name(prefix: str, variant: Variant, last: bool) -> str:
    return f"{prefix.lower()}_kernels" + ("" if last else f"_{variant.name}")


def table(program: Program, prefix: str) -> str:
    """`model.c`: the kernels, private to one file, and the table of them for te_create."""
    count, lines = _table(program, "kernels.c")
    return "\n".join(
        [
            "/* The kernels of this bundle, private to this file, and the table of them. */",
            '#include "model.h"',
            "",
            *lines,
            f"const te_kernels {prefix.lower()}_kernels = {{{prefix}_PLAN, table, {count}}};",
            "",
        ]
    )


def _table(program: Program, file: str) -> tuple[int, list[str]]:
    """How many kernels a program has, and the lines that include them from a file and list them."""
    needs = _needs(program)
    lines = [
        "/* Declared static here, so that several bundles can be linked into one program. */",
        *(f"static te_function {kernel.name};" for kernel in program.kernels),
        "",
        f'#include "{file}"',
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
    ]
    return len(rows), lines


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


def header(
    program: Program, prefix: str, plans: Mapping[str, str], variants: Sequence[Variant] = ()
) -> str:
    """`model.h`: numbers, sizes and names of this model's inputs, outputs, states and entries.

    plans: the SHA-256 of the bundle's manifests, by their names.
    """
    plan = plans[MANIFEST]
    others = (
        f'#define {prefix}_PLAN_{variant.name.upper()} "{plans[other_manifest(number)]}"'
        for number, variant in enumerate(variants[:-1])
    )
    lines = [
        *_backend(BACKENDS[program.target], prefix),
        f'#define {prefix}_PLAN "{plan}"',
        *([f"#define {prefix}_VARIANTS {len(variants)}", *others] if variants else ()),
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
