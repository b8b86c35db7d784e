"""The pipeline: tensor graphs to a Program, as one visible list of stages."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tinyedge.core.compiler.assemble import assemble
from tinyedge.core.compiler.options import Options
from tinyedge.core.compiler.retype import retype_graphs
from tinyedge.core.compiler.stages import fold, form_kernels, lower, optimize, render
from tinyedge.core.compiler.state import Compilation
from tinyedge.core.compiler.target import Target
from tinyedge.core.tensor.graph import Graph, Graphs

STAGES: list[tuple[str, Callable[[Compilation], None]]] = [
    ("retype", retype_graphs),
    ("fold", fold),
    ("fuse", form_kernels),
    ("optimize", optimize),
    ("lower", lower),
    ("render", render),
    ("assemble", assemble),
]


def compile_graph(
    source: Graph | Graphs,
    target: Target,
    options: Options | None = None,
    *,
    stop_after: str = "",
    progress: Callable[[str], None] | None = None,
) -> Compilation:
    """Run the stages in order; with `stop_after`, only up to the named one.

    A single graph becomes the entry `main`.
    """
    chosen = options or Options()
    graphs = source if isinstance(source, Graphs) else Graphs({"main": source})
    caps = target.caps(chosen.profile)
    if chosen.fp64_reference:
        caps = caps.in_fp64()
    state = Compilation(graphs, target, chosen, caps)
    with _without_collections():
        for name, stage in STAGES:
            if progress is not None:
                progress(name)
            start = time.perf_counter()
            stage(state)
            state.seconds[name] = time.perf_counter() - start
            if name == stop_after:
                break
    return state


@contextmanager
def _without_collections() -> Iterator[None]:
    """Nodes hold each other in no cycles, so that looking for cycles again and again, as Python
    does when many objects are made, finds next to nothing.
    """
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()
