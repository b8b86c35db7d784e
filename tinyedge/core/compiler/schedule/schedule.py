"""A graph's schedule: what lies where, the kernels in order, loops over them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tinyedge.core.compiler.schedule.filters import filters_in_order
from tinyedge.core.compiler.schedule.forming import Former
from tinyedge.core.compiler.schedule.fuse import is_source
from tinyedge.core.compiler.schedule.held import hold_small_results
from tinyedge.core.compiler.schedule.kernels import KernelWriter
from tinyedge.core.compiler.schedule.launches import (
    Refusals,
    ScheduledStep,
    ScheduleOptions,
)
from tinyedge.core.compiler.schedule.loops import Homes, Step, iterations, launches
from tinyedge.core.compiler.schedule.placement import BodyGraph, Placer
from tinyedge.core.compiler.schedule.siblings import join_siblings
from tinyedge.core.compiler.schedule.updating import sum_in_updates
from tinyedge.core.ir import ops
from tinyedge.core.ir.buffers import Placement, TensorBuffer, row_major
from tinyedge.core.ir.loops import LoopBody
from tinyedge.core.ir.uop import UOp


@dataclass
class Schedule:
    """Launches in order, and where each input and output lies."""

    launches: list[ScheduledStep] = field(default_factory=list)
    inputs: Mapping[str, TensorBuffer] = field(default_factory=dict)
    outputs: Mapping[str, TensorBuffer] = field(default_factory=dict)
    steps: list[Step] = field(default_factory=list, repr=False)
    former: Former | None = field(default=None, repr=False)

    def refuse(self, refusals: Refusals) -> None:
        """Lay out otherwise what is refused: the kernels that touch it are formed anew, and so are
        all launches.
        """
        assert self.former is not None
        self.former.refuse(refusals)
        self.launches = launches(self.steps)


def schedule(
    outputs: Mapping[str, UOp],
    names: Mapping[UOp, str],
    options: ScheduleOptions,
    counts: Mapping[str, str] | None = None,
    exact: frozenset[UOp] = frozenset(),
) -> Schedule:
    """Kernels that compute the named outputs.

    names: the model's name of a tensor's node. counts: symbols of which the values are outputs, by
    their names; these come first, each after those that it depends on. exact: nodes that are never
    kept as fp16.
    """
    body = _Body(BodyGraph(outputs, names, options, keep_fp32=exact), Former(options))
    for symbol, name in (counts or {}).items():
        body.former.counts[symbol] = body.placer.outputs[body.graph.outputs[name]]
    steps = body.run()
    body.former.settle()
    if options.joined:
        steps = sum_in_updates(join_siblings(steps, body.former), body.former)
        steps = hold_small_results(steps, body.former)
        steps = filters_in_order(steps, body.former)
    return Schedule(launches(steps), body.placer.inputs, body.outputs, steps, body.former)


class _Body:
    """Schedules one graph, and those of its loops' iterations."""

    def __init__(self, graph: BodyGraph, former: Former) -> None:
        self.graph = graph
        self.former = former
        self.options = former.options
        self.placer = Placer(graph, former.options)
        self.writer = KernelWriter(graph, self.placer, former)
        self.carried: dict[UOp, list[TensorBuffer]] = {}  # where a loop's last values lie

    @property
    def outputs(self) -> dict[str, TensorBuffer]:
        """Where each output lies."""
        return {name: self.placer.outputs[root] for name, root in self.graph.outputs.items()}

    def run(self) -> list[Step]:
        """The graph's kernels in order."""
        decision = self.graph.decision
        tops: dict[UOp, list[UOp]] = {}  # chains that begin alike have assignments in common
        for top, parts in decision.parts.items():
            for part in parts:
                tops.setdefault(part, []).append(top)
        for node in self.graph.order:
            if node in tops:
                for top in tops[node]:
                    self.writer.part(node, top)
            elif node.op is ops.LOOP_CALL:
                self._loop(node)
            elif node.op is ops.LOOP_OUTPUT:
                home = self.carried[node.src[0]][node.arg.number]
                self.placer.placed[node] = Placement(home)
            elif node in decision.realized:
                self.writer.realize(node)
        for root in self.graph.roots:
            if is_source(root):
                self.writer.copy_source(root)
        return self.writer.steps

    def _loop(self, node: UOp) -> None:
        """A loop: its first values, then its iterations."""
        repeat = node.arg.repeat
        homes = [self._home(value) for value in repeat.carried]
        for home, first in zip(homes, node.src, strict=False):
            self.writer.kernel(first, Placement(home), root=False)
        inner = self._iteration(node, homes)
        swaps = inner.carry(homes, unrolled=repeat.trips is not None)
        self.writer.steps.extend(iterations(repeat, homes, inner.writer.steps, swaps))
        odd = repeat.trips is not None and repeat.trips % 2
        self.carried[node] = [swaps.get(home, home) if odd else home for home in homes]

    def _home(self, value: UOp) -> TensorBuffer:
        """Where a value lies that a loop carries from one iteration to the next."""
        dtype, layout = self.options.caps.stored_type(value.dtype), row_major(value.shape)
        return TensorBuffer("scratch", value.arg.source.name, dtype, value.shape, layout, value)

    def _iteration(self, node: UOp, homes: list[TensorBuffer]) -> _Body:
        """The kernels of one iteration of a loop, whose carried values lie in `homes`."""
        body: LoopBody = node.arg
        given = dict(zip(body.repeat.carried, map(Placement, homes), strict=True))
        outer = (self.placer.placed[n] for n in node.src[len(homes) :])
        given |= dict(zip(body.captured, outer, strict=True))
        names, exact = self.graph.inner_names, self.graph.inner_exact
        graph = BodyGraph(
            {str(number): result for number, result in enumerate(body.results)},
            {new: names[old] for new, old in body.origins.items() if old in names},
            self.options,
            given,
            body.repeat.carried,
            self.graph.keep_fp32 | {new for new, old in body.origins.items() if old in exact},
        )
        inner = _Body(graph, self.former)
        inner.run()
        return inner

    def carry(self, homes: list[TensorBuffer], *, unrolled: bool) -> Homes:
        """Bring an iteration's results to where the next one reads them: by a copy or, where all
        iterations are launches of their own, by buffers that take each other's place.
        """
        results = list(self.graph.outputs.values())[: len(homes)]
        nexts = [self.placer.outputs[result] for result in results]
        swaps: dict[TensorBuffer, TensorBuffer] = {}
        for result, home, new in zip(results, homes, nexts, strict=True):
            if new is home:
                continue
            if unrolled and nexts.count(new) == 1:
                swaps |= {home: new, new: home}
            else:  # read where it was written, not in another home, which has its next value
                self.placer.placed[result] = Placement(new)
                self.writer.kernel(result, Placement(home), root=False)
        return swaps
