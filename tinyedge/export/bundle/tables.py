"""`python -m tinyedge.export.bundle.tables` writes what readers and documents have of schema.py.

It runs in a checkout: what it writes are files of the repository, whole (C) or between two marks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sized
from pathlib import Path

from tinyedge.core.dtype import by_name
from tinyedge.export.bundle import schema as s

ROOT = Path(__file__).resolve().parents[3]
C = "tinyedge/export/package/c/tinyedge_schema.h"
C_TYPES = "tinyedge/export/package/c/tinyedge_types.h"
CHECK_JS = "web/src/runtime/check.js"
TYPES_JS = "web/src/runtime/types.js"
DOCUMENT = "tinyedge/export/bundle/bundle.md"

MADE = "made of schema.py by python -m tinyedge.export.bundle.tables"


def files() -> dict[Path, str]:
    """What the files should hold."""
    return {
        ROOT / C: c_tables(),
        ROOT / C_TYPES: c_types(),
        ROOT / CHECK_JS: _between(CHECK_JS, "// records: ", "// records end", js_records()),
        ROOT / TYPES_JS: _between(TYPES_JS, "// storage: ", "// storage end", js_storage()),
        ROOT / DOCUMENT: _between(DOCUMENT, "<!-- fields: ", "<!-- fields end -->", fields_table()),
    }


def _between(file: str, start: str, end: str, text: str) -> str:
    """A file with what stands between two marks, which are lines, replaced."""
    lines = (ROOT / file).read_text(encoding="utf-8").split("\n")
    first = next(n for n, line in enumerate(lines) if line.strip().startswith(start))
    last = next(n for n, line in enumerate(lines) if line.strip() == end)
    return "\n".join([*lines[: first + 1], text, *lines[last:]])


def records() -> dict[str, s.Record]:
    """All records by their names in C, each once, those of others within before them."""
    found: dict[str, s.Record] = {}

    def visit(kind: s.Kind) -> None:
        if isinstance(kind, s.Array):
            visit(kind.item)
        elif kind is s.STEP:
            for record in s.STEPS.values():
                visit(record)
        elif isinstance(kind, s.Record):
            for field in _c_fields(kind):
                visit(field.kind)
            found.setdefault(kind.name, kind)

    visit(s.ROOT)
    return found


def _c_fields(record: s.Record) -> list[s.Field]:
    """Those that the reader in C knows."""
    return [field for field in record.fields if field.feature not in s.NOT_IN_C]


def arrays() -> dict[str, s.Array]:
    """All arrays by their names in C."""
    found: dict[str, s.Array] = {}
    pending: list[s.Kind] = [field.kind for r in records().values() for field in _c_fields(r)]
    for kind in pending:
        if isinstance(kind, s.Array):
            found.setdefault(kind.name, kind)
            pending.append(kind.item)
    return found


# C.

_WIDTH = 100


def _wrapped(words: list[str], indent: str = "    ") -> Iterator[str]:
    line = indent
    for word in words:
        if len(line) + len(word) + 1 > _WIDTH - 1:
            yield line.rstrip()
            line = indent
        line += word + " "
    yield line.rstrip()


def _most(number: int) -> str:
    return "TE_INTEGER_LIMIT" if number == s.LIMIT else f"INT64_C({number})"


def c_tables() -> str:
    """tinyedge_schema.h."""
    found, listed = records(), arrays()
    keys = sorted({field.key for record in found.values() for field in _c_fields(record)})
    features = [name for name in s.FEATURES if name not in s.NOT_IN_C]
    steps = [record.name for record in s.STEPS.values()]
    ordered = [n for n in found if n not in (*steps, "FREE", "REQUIREMENTS", "ROOT")]
    names = [
        *(kind.name for kind in (*s.INTEGERS, *s.TEXTS, *s.CHOICES)),
        s.STORAGE_TYPE.name, s.DTYPE.name, s.EXPRESSION.name, s.STEP.name,
        *listed, "FREE", *ordered, *steps, "REQUIREMENTS", "ROOT",
    ]  # fmt: skip
    lines = [
        f"/* The format's records, {MADE}. Included by",
        "   tinyedge_fields.c alone, which says what the macros mean. */",
        "",
        "/* Every key, in one piece of memory: tables hold places in it, small and without a "
        "linker. */",
        "#define KEYS(X) \\",
        *(f"{line} \\" for line in _wrapped([f"X({key})" for key in keys])),
        "",
        "typedef struct keys {",
        "    KEYS(FIELD_OF)",
        "} keys;",
        "",
        "/* What a value may be: a number, a text, an array, a record. */",
        "typedef enum type {",
        *_wrapped([f"{name}," for name in names]),
        "} type;",
        "",
        f"static const char features[][{_longest(features)}] = {{",
        *_wrapped([f'"{name}",' for name in features]),
        "};",
        "",
        f"static const char operators[][{_longest(s.OPERATORS)}] = {{",
        *_wrapped([f'"{name}",' for name in s.OPERATORS]),
        "};",
        "",
        f"static const char ops[][{_longest(s.STEPS)}] = {{ /* in the order of te_op */",
        *_wrapped([f'"{name}",' for name in s.STEPS]),
        "};",
        "",
        f"static const number_rule numbers[{s.TEXT.name}] = {{",
        *(f"    [{k.name}] = {{INT64_C({k.least}), {_most(k.most)}}}," for k in s.INTEGERS),
        "};",
        "",
        f"static const rule rules[FREE - {s.TEXT.name}] = {{",
        *(f"    RULE({kind.name}, {kind.least}, {kind.most}, 0, 0)," for kind in s.TEXTS),
        f"    RULE({s.EXPRESSION.name}, 1, {s.TOKENS}, 0, TE_N_TOKENS),",
        *(
            f"    RULE({a.name}, {a.least}, {a.most}, {a.item.name}, "
            f"{'TE_N_' + a.total if a.total else 0}),"
            for a in listed.values()
        ),
        "};",
        "",
        "static const member members[] = {",
    ]
    for name in ("FREE", *ordered, *steps, "REQUIREMENTS", "ROOT"):
        fields = sorted(_c_fields(found[name]), key=lambda field: field.key)
        lines.append(f"    {{HEAD, {name}, 0}},")
        lines += _wrapped([f"{_member(field)}," for field in fields]) if fields else ()
    return "\n".join([*lines, "    {HEAD, FREE, 0},", "};", ""])


_C_KINDS = {"b": "BIT", "i": "SIGNED", "u": "UNSIGNED", "f": "FLOAT"}


def c_types() -> str:
    """tinyedge_types.h: of each element type its name, bytes, kind, and what may hold it."""
    lines = [f"/* Rows of element types, {MADE}. */"]
    for name, kept in s.STORAGE.items():
        dtype = by_name(name)
        holders = " | ".join(f"1 << TE_{other.upper()}" for other in kept)
        lines.append(f'{{"{name}", {dtype.itemsize}, {_C_KINDS[dtype.kind]}, {holders}}},')
    return "\n".join([*lines, ""])


def _longest(names: Iterable[Sized]) -> int:
    """Bytes of the longest of some texts, with the end of a C string."""
    return max(map(len, names)) + 1


def _member(field: s.Field) -> str:
    kind = field.kind.name
    if not field.keep:
        return f"SKIP({field.key}, {kind})"
    if field.keep == "0":
        return f"PLACE({field.key}, {kind}, 0)"
    record, dot, member = field.keep.partition(".")
    if not dot:
        return f"LIMIT({field.key}, {kind}, {record})"
    return f"AS({record}, {field.key}, {kind}, {member})"


# JavaScript.


def js_records() -> str:
    """The tables of check.js, without what this reader does not know."""
    used = Counter(_scalars(s.ROOT))
    named = {k.name: _js_scalar(k) for k in (*s.INTEGERS, *s.TEXTS) if used[k.name] > 1}
    lines = [f"const {name} = {text};" for name, text in named.items()]
    lines.append("const FREE = record({}, true);")
    for record in (s.RANGE, s.SLICE, s.OUTPUT, s.STATE):
        lines.append(f"const {record.name} = {_js(record, named, whole=True)};")
    lines.append(
        "const STEPS = {"
        + ", ".join(f"{op}: {_js(r, named, whole=True)}" for op, r in s.STEPS.items())
        + "};"
    )
    return "\n".join([*lines, f"const ROOT = {_js(s.ROOT, named, whole=True)};"])


def _scalars(kind: s.Kind) -> Iterator[str]:
    """The names of what this reader checks, as often as its tables have it."""
    if isinstance(kind, s.Array):
        yield from _scalars(kind.item)
    elif isinstance(kind, s.Record):
        for field in kind.fields:
            if field.feature not in s.NOT_IN_SCRIPT:
                yield from _scalars(field.kind)
    elif kind is s.STEP:
        for record in s.STEPS.values():
            yield from _scalars(record)
    else:
        yield kind.name


def _js_scalar(kind: s.Kind) -> str:
    if isinstance(kind, s.Integer):
        most = "" if kind.most == s.LIMIT else f", {kind.most}"
        return f"int({kind.least}{most})" if kind.least or most else "int()"
    if isinstance(kind, s.Text):
        if kind.pattern:
            span = f"{kind.least}" if kind.least == kind.most else f"{kind.least},{kind.most}"
            return f"matches(/^(?={kind.pattern}$).{{{span}}}$/)"
        return f"text({kind.least}, {kind.most})"
    assert isinstance(kind, s.Choice)
    values = (str(v).lower() if isinstance(v, bool) else f'"{v}"' for v in kind.values)
    return f"oneOf({', '.join(values)})"


def _js(kind: s.Kind, named: Mapping[str, str], *, whole: bool = False) -> str:
    if isinstance(kind, s.Special):
        return kind.script
    if isinstance(kind, s.Array):
        least = f", {kind.least}" if kind.least else ""
        return f"list({_js(kind.item, named)}, {kind.most}{least})"
    if not isinstance(kind, s.Record):
        return kind.name if kind.name in named else _js_scalar(kind)
    if kind is s.FREE:
        return "FREE"
    if kind.name in ("RANGE", "SLICE", "PORT", "STATE") and not whole:
        return f"plain({kind.name})" if kind.rule == "input" else kind.name
    fields = [f for f in kind.fields if f.feature not in s.NOT_IN_SCRIPT]
    members = ", ".join(f"{field.key}: {_js(field.kind, named)}" for field in fields)
    text = f"record({{{members}}}{', true' if kind.open else ''})"
    return f"stored({text})" if kind.rule else text


def js_storage() -> str:
    """The storage types of types.js: a line for each type, which is the first."""
    return "\n".join(f'    "{" ".join(kept)}",' for kept in s.STORAGE.values())


# The document.


def fields_table() -> str:
    """The root's keys: what they hold, and what that means."""
    rows = ["| root key | value | |", "|---|---|---|"]
    for field in s.ROOT.fields:
        rows.append(f"| {field.key} | {_said(field.kind)} | {field.says} |")
    return "\n".join(rows)


def _said(kind: s.Kind) -> str:
    if isinstance(kind, s.Record):
        if not kind.fields:
            return "free"
        parts = (_said_field(field) for field in kind.fields)
        return ("free, with " if kind.open else "") + "{" + ", ".join(parts) + "}"
    if isinstance(kind, s.Array):
        if kind.least == kind.most:
            return f"[{_said(kind.item)}] = {kind.most}"
        return f"[{_said(kind.item)}] <= {kind.most}" + (f", >= {kind.least}" if kind.least else "")
    if isinstance(kind, s.Choice):
        words = (str(v).lower() if isinstance(v, bool) else f'"{v}"' for v in kind.values)
        return " or ".join(words)
    if isinstance(kind, s.Integer):
        most = "2^53-1" if kind.most == s.LIMIT else str(kind.most)
        plain = (kind.least, kind.most) == (0, s.LIMIT)
        return kind.says or ("int" if plain else f"{kind.least}..{most}")
    return kind.says


def _said_field(field: s.Field) -> str:
    if field.kind is s.INT:
        return field.key
    if field.kind in (s.DTYPE, s.STORAGE_TYPE, s.NAME):
        return field.key
    return f"{field.key}: {_said(field.kind)}"


def main() -> None:
    for path, text in files().items():
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")
            print(path.relative_to(ROOT))


if __name__ == "__main__":
    main()
