"""What goes into a bundle: models and functions as graphs, with their states and slices."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Union

import numpy as np

from tinyedge.core import dtype as dtypes
from tinyedge.core.errors import InputError
from tinyedge.core.tensor.graph import Graph, Graphs, Port
from tinyedge.core.tensor.tensor import Tensor
from tinyedge.export.labels import Labels, labels_of
from tinyedge.export.nodes import with_nodes
from tinyedge.export.options import ImportOptions
from tinyedge.export.pictures import Words, with_pictures
from tinyedge.export.ports import check_ports
from tinyedge.export.slices import Specs, with_slices
from tinyedge.export.stamps import Stamp, stamp
from tinyedge.export.states import Spec, own_states, with_states

if TYPE_CHECKING:
    from tinyedge.export.onnx import ImportedModel

MAIN = "main"  # the entry of the model itself

Number = Union[bool, int, float]

# One entry's model: an ONNX file, a function over tensors with its example inputs, or a graph.
Entry = Union[str, Path, tuple[Callable[..., Any], Any], Graph]


def source_of(
    main: Entry,
    options: ImportOptions | None = None,
    *,
    entries: Mapping[str, Entry] | None = None,
    states: Mapping[str, Spec] | None = None,
    state_init: Mapping[str, Any] | None = None,
    slices: Specs | None = None,
    images: Mapping[str, Words] | None = None,
    pixels: str = "rgb",
    labels: Labels | None = None,
    debug_goldens: int | None = None,
    files: dict[Path, Stamp | None] | None = None,
) -> tuple[Graphs, list[str], dict[str, Any], int | None]:
    """What is compiled, what to warn of, what a manifest records of it, and the bytes of all
    models with their external data and the states' first values; None where functions or graphs,
    which have no file, are among them.

    options: of all models; their dims, bounds and constants may name sizes, nodes and inputs of any
    entry, and their outputs are those of the first. state_init: arrays. images: inputs that become
    pictures, whose bytes are `pixels` where they do not say. labels: names of outputs' classes.
    debug_goldens: bytes of the nodes' values that become outputs of entries of their own. files:
    gets what was read.
    Raises ModelError, InputError.
    """
    opened: dict[Path, Stamp | None] = {} if files is None else files
    options = options or ImportOptions()
    graphs, assumed, size = _graphs(main, entries or {}, options, opened)
    graphs, pictures = with_pictures(graphs, images or {}, pixels)
    graphs, kept, fed = with_states(graphs, states or {}, state_init or {})
    graphs = with_slices(graphs, slices or {})
    named = labels_of(graphs.values(), labels) if labels is not None else []
    nodes: list[str] = []
    left_out: list[str] = []
    if debug_goldens is not None:
        graphs, nodes, left_out = with_nodes(graphs, debug_goldens)
    source = Graphs(graphs, kept)
    check_ports(source)
    record = {
        "dims": sorted(_plain(f"{name}={size}") for name, size in options.dims.items()),
        "bounds": sorted(_plain(f"{name}={most}") for name, most in options.bounds.items()),
        "outputs": [_plain(name) for name in options.output_names],
        "assumed": [_plain(text) for text in assumed],
        "constants": [{"name": n, "value": repr(v)} for n, v in options.constants.items()],
        "states": [{"name": name, "output": output} for name, output in fed.items()],
        "images": pictures,
        "labels": named,
        "nodes": nodes,
    }
    if size is not None:
        size += sum(np.asarray(values).nbytes for values in (state_init or {}).values())
    record = {name: values for name, values in record.items() if values}
    return source, [*assumed, *left_out], record, size


def _graphs(
    main: Entry,
    entries: Mapping[str, Entry],
    options: ImportOptions,
    files: dict[Path, Stamp | None],
) -> tuple[dict[str, Graph], list[str], int | None]:
    """Graphs by the entry's name, what had to be assumed, and the bytes of the models."""
    from tinyedge.export.onnx import import_model
    from tinyedge.export.onnx.dims import no_size
    from tinyedge.export.onnx.inputs import no_constant

    if MAIN in entries:
        raise InputError(
            f"entry {MAIN!r}",
            "that is the name of the model itself",
            id="entry.name",
            next="give the entry another name",
        )
    options = replace(options, allow_unused=bool(entries))
    others = replace(options, outputs=None, variables=frozenset())
    graphs: dict[str, Graph] = {}
    assumed: list[str] = []
    models: list[ImportedModel] = []
    for name, source in {MAIN: main, **entries}.items():
        if isinstance(source, Graph):
            graphs[name] = source
        elif isinstance(source, tuple):
            graphs[name] = trace(*source)
        else:
            model = import_model(source, options if name == MAIN else others)
            graphs[name] = model.graph()
            models.append(model)
            files[Path(source)] = None  # parsed by now: what becomes of it does not matter
            files.update({path: stamp(status) for path, status in model.files.items()})
            assumed += [t if name == MAIN else f"entry {name!r}: {t}" for t in model.warnings]
    for key in options.dims:
        if all(key in model.unknown for model in models):
            raise no_size(key, (node.arg.name for model in models for node in model.symbols))
    for key in options.constants:
        if all(key in model.unknown for model in models):
            known = [i.name for model in models for i in model.inputs]
            fixed = [n for n in options.constants if any(n not in m.unknown for m in models)]
            raise no_constant(key, dict.fromkeys([*known, *fixed]))
    size = sum(model.bytes for model in models) if len(models) == len(graphs) else None
    return graphs, assumed, size


def import_graph(
    path: str | Path, options: ImportOptions | None = None
) -> tuple[Graph, tuple[str, ...]]:
    """An ONNX file as a graph to compile, and what had to be assumed."""
    from tinyedge.export.onnx import import_model

    model = import_model(path, options)
    return model.graph(), model.warnings


def alone(graph: Graph) -> Graphs:
    """A graph as the only entry, with the states that it updates by itself."""
    return Graphs({MAIN: graph}, own_states((graph,)))


def trace(function: Callable[..., Any], example_inputs: Mapping[str, Any] | Sequence[Any]) -> Graph:
    """A function's graph, from one call with lazy tensors. Raises InputError."""
    if isinstance(example_inputs, Mapping):
        named = {name: np.asarray(array) for name, array in example_inputs.items()}
    else:
        named = {f"input_{i}": np.asarray(array) for i, array in enumerate(example_inputs)}
    _check_call(function, example_inputs)
    ports = [Port(n, _element_type(n, a), a.shape) for n, a in named.items()]
    tensors = {p.name: Tensor.input(p.name, p.shape, p.dtype) for p in ports}
    if isinstance(example_inputs, Mapping):
        result = function(**tensors)
    else:
        result = function(*tensors.values())
    if isinstance(result, Tensor):
        results = {"output": result}
    elif isinstance(result, Mapping):
        results = dict(result)
    else:
        several = result if isinstance(result, (tuple, list)) else (result,)
        results = {f"output_{i}": tensor for i, tensor in enumerate(several)}
    for name, tensor in results.items():
        if not isinstance(tensor, Tensor):
            raise InputError(
                f"output {name!r} of the function",
                f"it is of type {type(tensor).__name__}",
                id="function.output",
                supported="a Tensor, a tuple or list of them, a dict of them by name",
            )
    outputs = tuple(Port(n, t.dtype, t.shape, t.node) for n, t in results.items())
    return Graph(tuple(ports), outputs)


def _check_call(function: Callable[..., Any], examples: Mapping[str, Any] | Sequence[Any]) -> None:
    """Raise InputError unless the function takes the examples as its arguments."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return
    try:
        if isinstance(examples, Mapping):
            signature.bind(**examples)
        else:
            signature.bind(*examples)
    except TypeError as error:
        raise InputError(
            "the function's inputs",
            str(error),
            id="function.input",
            supported=", ".join(signature.parameters) or "no parameters",
            next="name the example inputs as the function's parameters, or give them in order",
        ) from None


def _element_type(name: str, array: Any) -> dtypes.DType:
    try:
        return dtypes.from_numpy(array.dtype)
    except TypeError as error:
        raise InputError(f"input {name!r}", str(error), id="function.input") from None


def _plain(text: str) -> str:
    """Text of a model as the manifest may hold it: printable ASCII."""
    return ascii(text)[1:-1]
