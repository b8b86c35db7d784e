"""The importer and the compiler's front with their options as keywords, as tests write them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tinyedge import api
from tinyedge.core.compiler.options import Options
from tinyedge.core.compiler.state import Compilation
from tinyedge.core.tensor.graph import Graph, Graphs
from tinyedge.export import onnx, source
from tinyedge.export.limits import Limits, choose_limits
from tinyedge.export.options import ImportOptions

OPTIONS = ("dims", "bounds", "outputs", "constants", "limits", "allow_unused")


def options_of(given: dict[str, Any]) -> ImportOptions:
    """Takes the options of importing out of keywords. limits: a record, or a dict by name."""
    found = {name: given.pop(name) for name in OPTIONS if name in given}
    limits = found.get("limits")
    if limits is not None and not isinstance(limits, Limits):
        found["limits"] = choose_limits(limits)
    return ImportOptions(**{name: value for name, value in found.items() if value is not None})


def import_model(model: Any, **given: Any) -> onnx.ImportedModel:
    return onnx.import_model(model, options_of(given), **given)


def inspect_model(model: Any, **given: Any) -> onnx.Inspection:
    return onnx.inspect_model(model, options_of(given), **given)


def import_graph(model: Any, **given: Any) -> tuple[Graph, tuple[str, ...]]:
    return source.import_graph(model, options_of(given), **given)


def source_of(main: Any, **given: Any) -> tuple[Graphs, list[str], dict[str, Any], int | None]:
    return source.source_of(main, options_of(given), **given)


def compile_model(model: Any, target: str, options: Options, **given: Any) -> Compilation:
    importing = options_of(given)
    limits = importing.limits
    options = replace(options, folded_work=limits.folded_work, folded_growth=limits.folded_growth)
    return api.compile_model(model, target, options, importing, **given)
