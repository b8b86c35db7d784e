"""A compilation on its way: what the stages read and fill in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tinyedge.core.compiler.caps import Caps
from tinyedge.core.compiler.optimize.move import Move
from tinyedge.core.compiler.options import Options
from tinyedge.core.compiler.schedule.launches import Refusals, ScheduledLaunch, all_launches
from tinyedge.core.compiler.schedule.schedule import Schedule
from tinyedge.core.compiler.target import LoweredKernel, Target
from tinyedge.core.ir import ops
from tinyedge.core.ir.uop import UOp, toposort
from tinyedge.core.program.program import Program
from tinyedge.core.tensor.graph import Graph, Graphs


@dataclass
class CompiledEntry:
    """One graph on its way to steps."""

    name: str
    graph: Graph
    outputs: dict[str, UOp]
    updates: dict[str, UOp]
    names: dict[UOp, str]
    counts: dict[str, UOp]
    gradients: frozenset[UOp] = frozenset()  # of which states' new values are made in full
    schedule: Schedule = field(default_factory=Schedule)

    @property
    def roots(self) -> tuple[UOp, ...]:
        """All that is computed: counts, then outputs, then updates."""
        return (*self.counts.values(), *self.outputs.values(), *self.updates.values())

    def follow(self, done: Mapping[UOp, UOp]) -> None:
        """Take what every node has become."""
        self.counts = {name: done[node] for name, node in self.counts.items()}
        self.outputs = {name: done[node] for name, node in self.outputs.items()}
        self.updates = {name: done[node] for name, node in self.updates.items()}
        self.names = {done[n]: name for n, name in self.names.items() if n in done}
        self.gradients = frozenset(done[n] for n in self.gradients if n in done)


@dataclass
class Compilation:
    """Everything between graphs and their program; stages fill it in, `explain` prints it."""

    source: Graphs
    target: Target
    options: Options
    caps: Caps
    entries: list[CompiledEntry] = field(default_factory=list)
    refusals: Refusals = field(default_factory=Refusals)
    kernels: dict[UOp, CompiledKernel] = field(default_factory=dict)
    program: Program | None = None
    alive: int = 0  # bytes that the program's buffers need at once at most, of arenas the least
    # of reference values in "fp16", the buffers that hold in full what would be fp16
    rounded: frozenset[int] = frozenset()
    # of each convolution by Winograd's method, how far it is from the plain sum, of the greatest
    winograd: list[float] = field(default_factory=list)
    attention: int = 0  # sums of values by the softmax of scores that are one kernel
    seconds: dict[str, float] = field(default_factory=dict)

    @property
    def roots(self) -> tuple[UOp, ...]:
        """All that the entries compute."""
        return tuple(root for entry in self.entries for root in entry.roots)

    def follow(self, done: Mapping[UOp, UOp]) -> None:
        """Take what every node has become; nothing where nothing has changed."""
        for entry in self.entries if done else ():
            entry.follow(done)

    @property
    def launches(self) -> list[ScheduledLaunch]:
        """The launches of all entries, in order."""
        return [step for e in self.entries for step in all_launches(e.schedule.launches)]

    @property
    def symbols(self) -> dict[str, UOp]:
        """The sizes that a caller gives, by name."""
        counts = {name for entry in self.entries for name in entry.counts}
        graphs = [entry.graph for entry in self.entries]
        shapes = [port.shape for graph in graphs for port in (*graph.inputs, *graph.outputs)]
        shapes += [s.shape for launch in self.launches for s in launch.storages]
        shapes += [kept.shape for kept in self.source.states]
        sizes = [size for shape in shapes for size in shape if isinstance(size, UOp)]
        order = toposort((*sizes, *(launch.sink for launch in self.launches)))
        found = (node for node in order if node.op is ops.SYMBOL)
        return {node.arg.name: node for node in found if node.arg.name not in counts}


@dataclass
class CompiledKernel:
    """One distinct kernel on its way: meaning, moves, and what was printed."""

    name: str
    sink: UOp
    moved: UOp
    moves: list[Move]
    contraction: Mapping[str, tuple[int, ...]] | None = None
    expanded: UOp | None = None  # after its moves, without ranges of copies and vectors
    # slots of images that it would not take in whole pixels
    non_contiguous: set[int] = field(default_factory=set)
    text: LoweredKernel | None = None
    source: str = ""
    flops: int = 0
    groups: int = 0  # workgroups of one whose text others share; 0: as its own ranges say
