"""Writes docs/operators.md, the table of operators per target: `python scripts/operator_table.py`.

Everything in it comes from the code: the importer's registry, what ONNX says of its operators, and
the targets' element types.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import onnx  # noqa: E402

import tinyedge.export.onnx  # noqa: E402, F401 (registers the operators)
from tinyedge.choices import find_target  # noqa: E402
from tinyedge.core.dtype import DType  # noqa: E402
from tinyedge.export.onnx import registry  # noqa: E402
from tinyedge.export.onnx.reader import DTYPES, OLDEST_OPSET  # noqa: E402
from tinyedge.model import TARGETS  # noqa: E402

PAGE = ROOT / "docs" / "operators.md"

HEAD = """\
# Operators

`python scripts/operator_table.py` writes this page from the code, and a test compares the two. It
is for onnx {version}, whose newest operator set is {opset}; models of operator sets from {oldest}
on are read. `tinyedge inspect model.onnx` says of every node of a model whether it can be exported,
and why not.

* **yes**: within the limits of the last column, on constants and on what a run computes. What an
  operator does not take is refused by the node's name, before anything is written.
* *By its definition*: ONNX defines the operator by others, which take its place.
* *From constants and shapes*: it may depend on the inputs' shapes, but not on their values.
* *Fixed* sizes: `--dim` gives them one value, not a range.
* *Below a bound*, *counted*: a run computes how many there are, and memory is reserved for as many
  as the inputs allow or [`--bound`](sizes.md#numbers-that-only-a-run-knows) says.
* Of one output one axis can be counted. A dynamic axis is refused, by the node's name, where it
  must be equal to another size, have a least length (windows, negative pads), be computed in an
  iteration of a loop, come from two branches of an `If`, or feed a state.
* Sequences and optionals are resolved at export: what they hold must be known then.
* Strings and complex numbers are refused everywhere.

| in a target's column | |
|---|---|
{marks}

## Element types

What a target computes with where it is not the type itself. Inputs and outputs keep the type that
the model declares.

"""

MARKS = {
    "1": (("float64",), "float64 is computed in float32, which an export says by name"),
    "2": (
        ("int64", "uint64"),
        "64-bit integers are computed in 32 bits; constants and inputs that "
        "[do not fit](limits.md#numbers) are refused",
    ),
}
ELEMENTS = {onnx.TensorProto.DataType.Name(code).lower(): dtype for code, dtype in DTYPES.items()}


def page() -> str:
    """The page's text."""
    marks = "\n".join(_row((f"yes ({mark})", text)) for mark, (_, text) in MARKS.items())
    newest = onnx.defs.onnx_opset_version()
    head = HEAD.format(version=onnx.__version__, opset=newest, oldest=OLDEST_OPSET, marks=marks)
    lines = [head.rstrip(), "", *_types()]
    for domain in ("", *(each for each in registry.domains() if each)):
        lines += ["", f"## {domain or 'ai.onnx'}", "", *_operators(domain)]
    return "\n".join(lines) + "\n"


def _row(cells: Sequence[str]) -> str:
    return re.sub(" +", " ", f"| {' | '.join(cells)} |")


def _heading(cells: Sequence[str]) -> Iterator[str]:
    yield _row(cells)
    yield "|" + "---|" * len(cells)


def _types() -> Iterator[str]:
    """The table of element types; those that no target computes otherwise are listed below it."""
    yield from _heading(("element type", *TARGETS))
    same = []
    for dtype in DTYPES.values():
        computed = [_computed(dtype, target) for target in TARGETS]
        if any(name != dtype.name for name in computed):
            yield _row((dtype.name, *("" if name == dtype.name else name for name in computed)))
        else:
            same.append(dtype.name)
    yield ""
    yield (
        f"As they are on every target: {', '.join(same)}. Narrow integers wrap around as ONNX has "
        "it, also where wider ones compute them."
    )


def _computed(dtype: DType, target: str) -> str:
    """The name of the type that a target computes with."""
    name = dtype.computed.name
    return find_target(target).caps().computed_as.get(name, name)


def _operators(domain: str) -> Iterator[str]:
    """The table of a domain: of ONNX's own one all operators, of the others those we have."""
    ours = registry.names(domain)
    schemas: dict[str, Any] = {}
    for schema in onnx.defs.get_all_schemas_with_history():
        older = schemas.get(schema.name)
        if schema.domain == domain and (
            older is None or older.since_version < schema.since_version
        ):
            schemas[schema.name] = schema
    yield from _heading(("operator", "since", *TARGETS, "limits"))
    for name in ours if domain else sorted({*schemas, *ours}):
        yield _operator(domain, name, schemas.get(name))
    if domain:
        yield ""
        yield "Every other operator of this domain is refused by its name."


def _operator(domain: str, name: str, schema: Any) -> str:
    """An operator's row. schema: the newest one, None where ONNX does not define the operator."""
    found = registry.lookup(domain, name, sys.maxsize)
    reason = _refusal(schema, found)
    since = "" if schema is None else str(schema.since_version)
    if schema is not None and schema.deprecated:
        since = f"until {schema.since_version - 1}"
    if reason:
        return _row((name, since, *("refused" for _ in TARGETS), reason))
    formals = () if schema is None else (*schema.inputs, *schema.outputs)
    types = {ELEMENTS[each].name for each in _elements(formals) & ELEMENTS.keys()}
    limits = found.limits if found is not None else "by its definition"
    cells = []
    for target in TARGETS:
        narrow = types & find_target(target).caps().computed_as.keys()
        marks = [mark for mark, (those, _) in MARKS.items() if narrow.intersection(those)]
        cells.append(f"yes ({', '.join(marks)})" if marks else "yes")
    return _row((name, since, *cells, limits))


def _refusal(schema: Any, found: registry.Operator | None) -> str:
    """Why an operator is refused; empty if it is not."""
    if found is not None:
        return found.refused
    single = onnx.defs.OpSchema.FormalParameterOption.Single
    for formal in schema.inputs:
        kinds = _elements([formal])
        if formal.option == single and kinds and not kinds & ELEMENTS.keys():
            return f"takes only {' or '.join(sorted(kinds))}"
    if schema.has_function:
        for node in schema.function_body.node:
            if not _is_there(node.op_type, node.domain):
                return f"its definition needs {node.op_type}"
    elif not schema.has_context_dependent_function:
        return "the importer has none"
    return ""


def _is_there(name: str, domain: str) -> bool:
    """Whether an operator is imported, itself or by its definition."""
    newest = onnx.defs.onnx_opset_version()
    found = registry.lookup(domain, name, newest)
    return not _refusal(onnx.defs.get_schema(name, newest, domain), found)


def _elements(formals: Sequence[Any]) -> set[str]:
    """ONNX's names of the element types that operands and results may have."""
    kinds = " ".join(kind for formal in formals for kind in formal.types)
    return set(re.findall(r"tensor\((\w+)\)", kinds))


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
