"""What a bundle can hold of graphs: the number, names, shapes and sizes of their ports."""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterator

from tinyedge.core.errors import InputError
from tinyedge.core.ir import ops
from tinyedge.core.ir.uop import Shape, UOp, as_node, toposort
from tinyedge.core.program.ports import say
from tinyedge.core.tensor.expressions import expression
from tinyedge.core.tensor.graph import Graphs, Port, State

ENTRIES = 64
PORTS = 1024
AXES = 8
NAME = 1024
SYMBOLS = 32
LOOPS = 8  # of which only a run knows the number of iterations, inside each other

_FORBIDDEN = re.compile("[\x00-\x1f\x7f\ud800-\udfff]")


def check_ports(source: Graphs) -> None:
    """Raise InputError for what no bundle can hold, before anything is compiled."""
    if len(source.entries) > ENTRIES:
        because = f"there are {len(source.entries)}"
        raise _limit("the entries", because, f"up to {ENTRIES}")
    for name in source.entries:
        _check_name(f"entry {name!r:.80}", name)
    graphs = source.entries.values()
    states = {state.name for state in source.states}
    groups: dict[str, dict[Hashable, Port | State]] = {
        "input": {g.key(p): p for g in graphs for p in g.inputs if p.name not in states},
        "output": {g.key(p): p for g in graphs for p in g.outputs},
        "state": {state.name: state for state in source.states},
    }
    symbols: dict[str, UOp] = {}
    for kind, ports in groups.items():
        if len(ports) > PORTS:
            raise _limit(f"the {kind}s", f"there are {len(ports)}", f"up to {PORTS}")
        for port in ports.values():
            _check_name(f"{kind} {port.name!r:.80}", port.name)
            if len(port.shape) > AXES:
                because = f"it has {len(port.shape)} axes"
                raise _limit(f"{kind} {port.name!r:.80}", because, f"up to {AXES} axes")
            for symbol in _symbols(port):
                _check_equal(symbols.setdefault(symbol.arg.name, symbol), symbol)
    if len(symbols) > SYMBOLS:
        raise _limit("the open sizes", f"there are {len(symbols)}", f"up to {SYMBOLS}")
    for name in sorted(symbols):
        _check_name(f"size {name!r:.80}", name)
    for output in groups["output"].values():
        for part in output.slices if isinstance(output, Port) else ():
            _check_name(f"slice {part.name!r:.80} of output {output.name!r:.80}", part.name)


def _check_equal(one: UOp, other: UOp) -> None:
    if one is not other:
        raise InputError(
            f"size {one.arg.name!r:.80}",
            "it has other bounds in another entry",
            id="entry.size",
            next="give the size the same range in all entries, or another name",
        )


def _symbols(port: Port | State) -> Iterator[UOp]:
    for node in toposort(as_node(size) for size in port.shape if isinstance(size, UOp)):
        if node.op is ops.SYMBOL:
            yield node


def show(port: Port) -> str:
    """A port's type and shape in words."""
    return f"{port.dtype} [{show_shape(port.shape)}]"


def show_shape(shape: Shape) -> str:
    """Sizes as a person writes them."""
    return ", ".join(say(expression(size)) for size in shape)


def _check_name(subject: str, name: str) -> None:
    characters = len(name) + sum(character > "\uffff" for character in name)
    if not 1 <= characters <= NAME:
        raise _limit(
            subject, f"its name has {characters} characters", f"names of 1 to {NAME} characters"
        )
    if _FORBIDDEN.search(name):
        raise _limit(subject, "its name holds a control character", "printable names")


def _limit(subject: str, because: str, supported: str) -> InputError:
    return InputError(
        subject,
        because,
        id="model.limit",
        supported=supported,
        next="change the model's inputs and outputs",
    )
