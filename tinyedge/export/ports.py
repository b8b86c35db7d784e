"""What a bundle can hold of a graph: the number, names, shapes and sizes of its ports."""

from __future__ import annotations

import re
from collections.abc import Iterator

from tinyedge.core import ops
from tinyedge.core.compile import Graph, Port
from tinyedge.core.errors import InputError
from tinyedge.core.uop import UOp, as_node, toposort

PORTS = 1024
AXES = 8
NAME = 1024
SYMBOLS = 32

_FORBIDDEN = re.compile("[\x00-\x1f\x7f\ud800-\udfff]")


def check_ports(graph: Graph) -> None:
    """Raise InputError for what no bundle can hold, before anything is compiled."""
    symbols: set[str] = set()
    for kind, ports in (("input", graph.inputs), ("output", graph.outputs)):
        if len(ports) > PORTS:
            raise _limit(f"the {kind}s", f"there are {len(ports)}", f"up to {PORTS}")
        for port in ports:
            _check_name(f"{kind} {port.name!r:.80}", port.name)
            if len(port.shape) > AXES:
                because = f"it has {len(port.shape)} axes"
                raise _limit(f"{kind} {port.name!r:.80}", because, f"up to {AXES} axes")
            symbols.update(_symbols(port))
    if len(symbols) > SYMBOLS:
        raise _limit("the open sizes", f"there are {len(symbols)}", f"up to {SYMBOLS}")
    for name in sorted(symbols):
        _check_name(f"size {name!r:.80}", name)


def _symbols(port: Port) -> Iterator[str]:
    for node in toposort(as_node(size) for size in port.shape if isinstance(size, UOp)):
        if node.op is ops.SYMBOL:
            yield node.arg[0]


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
