"""A training step of a model, as an entry beside it: its loss, and its states' next values.

The entry reads the model's inputs, a target for each loss and the learning rate, and gives the
loss. What is trained is a state of the bundle, called as in the model's file, that every entry
reads; what the optimizer keeps are states, too: `adam.step`, `adam.mean.fc.weight`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import numpy as np

from tinyedge.core import dtype as dt
from tinyedge.core.dtype import DType
from tinyedge.core.errors import InputError, UnsupportedOp
from tinyedge.core.gradient.reverse import depending, pull_back
from tinyedge.core.ir import ops
from tinyedge.core.ir.reference import evaluate
from tinyedge.core.ir.uop import UOp, toposort
from tinyedge.core.tensor.graph import Graph, Graphs, Port, State
from tinyedge.core.tensor.tensor import Tensor
from tinyedge.export.onnx import import_model, reader
from tinyedge.export.onnx.imported import ImportedModel
from tinyedge.export.onnx.inputs import dims_of, type_of
from tinyedge.export.onnx.selection import values_of
from tinyedge.export.onnx.variables import types_of
from tinyedge.export.options import ImportOptions
from tinyedge.export.ports import check_ports
from tinyedge.export.states import own_states
from tinyedge.export.train.advice import advice
from tinyedge.export.train.spec import LOSSES, OF_CLASSES, RATE, Loss, Training, unknown

ENTRY = "train"
SCALE = "loss_scale"


class Step:
    """A step of one model. names: of its weights that are trained. golden_inputs: those that
    generated ones would not do for. advice: what its caller should know.
    """

    def __init__(self, path: str | Path, training: Training, options: ImportOptions) -> None:
        self.training = training
        model = reader.read(path, options.limits)
        named = losses_of(training, model.proto.graph)
        self.advice = tuple(advice(named, model.proto.graph))
        chosen = matching(training, types_of(model))
        dims = with_batch(training, model.proto.graph, options)
        outputs = [loss.output for loss in named]
        inner = replace(options, dims=dims, outputs=list(dict.fromkeys(outputs)), allow_unused=True)
        self._losses = named
        self._options = inner
        self.golden_inputs: dict[str, Any] = {RATE: np.float32(training.rate)}
        found = self._imported(path, chosen)
        self.names = self._trained(found, chosen)
        if len(self.names) < len(chosen):  # the others stay constant, and fold
            found = self._imported(path, self.names)
        self.graph, self.states = self._step(found)

    @property
    def record(self) -> list[str]:
        """What a manifest says of the step."""
        told = [f"{loss.name}:{loss.output}" for loss in self._losses]
        return [ascii(text)[1:-1] for text in (*told, self.training.optimizer, *self.names)]

    def _imported(self, path: str | Path, names: Sequence[str]) -> ImportedModel:
        found = import_model(path, replace(self._options, variables=frozenset(names)))
        if found.counts.nodes:
            raise UnsupportedOp(
                f"entry {ENTRY!r}",
                "the loss depends on sizes that only a run knows",
                id="train.sizes",
                next="name a value before these as the loss' output",
            )
        return found

    def _loss(self, found: ImportedModel) -> tuple[Tensor, list[Port]]:
        """The sum of the losses, and the ports of their targets."""
        total: Tensor | None = None
        ports: list[Port] = []
        for loss in self._losses:
            output = found.outputs.get(loss.output)
            if output is None or not output.dtype.is_float:
                kind = "a sequence" if output is None else f"of {output.dtype}"
                raise _no_loss(loss, f"it is {kind}", "a tensor of floats")
            name = "target" if len(self._losses) == 1 else f"target_{loss.output}"
            port = _target(name, loss, output)
            ports.append(port)
            self.golden_inputs.update(_example(port, loss, output))
            values = output if output.dtype.bits >= 32 else output.cast(dt.float32)
            target = Tensor.input(name, port.shape, port.dtype)
            if port.dtype.is_float:
                target = target.cast(values.dtype)
            try:
                value = LOSSES[loss.name](values, target)
            except (TypeError, ValueError) as error:
                raise _no_loss(loss, str(error), "a shape that the loss takes") from None
            total = value if total is None else total + value
        assert total is not None
        return total.cast(dt.float32), ports

    def _trained(self, found: ImportedModel, chosen: Sequence[str]) -> list[str]:
        """The weights that the loss' gradient reaches. Raises InputError where one that the
        loss is computed from has none, or where none is left.
        """
        loss, _ = self._loss(found)
        order = toposort((loss.node,))
        nodes = _variables(loss.node, found.variables)
        active = depending((loss.node,), set(nodes.values()))
        reached = loss.node in active
        names = [name for name in chosen if name in nodes and _flows(nodes[name], order, active)]
        stopped = [name for name in chosen if name in nodes and name not in names]
        if stopped:
            raise self._stopped(found, nodes[stopped[0]], stopped[0], order)
        if not names or not reached:
            raise InputError(
                f"--train {', '.join(map(repr, self.training.patterns))}",
                "the loss does not depend on what it names",
                id="train.unused",
                supported=", ".join(map(repr, chosen[:20])),
                next="name an output for the loss that is computed from these",
            )
        return names

    def _stopped(
        self, found: ImportedModel, start: UOp, name: str, order: Sequence[UOp]
    ) -> InputError:
        """Where the way from a variable ends: at the last node that has no derivative."""
        active = depending((order[-1],), {start})
        ends = [n for n in order if n not in active and any(s in active for s in n.src)]
        return UnsupportedOp(
            f"parameter {name!r}",
            f"no gradient reaches it: {_named_by(found, ends[-1], order)} has no derivative",
            id="train.derivative",
            next="choose a pattern that leaves it out, or a loss of a value before that node",
        )

    def _step(self, found: ImportedModel) -> tuple[Graph, tuple[State, ...]]:
        loss, targets = self._loss(found)
        arrays = {name: found.variables[name] for name in self.names}
        nodes = _variables(loss.node, self.names)
        model = {name: Tensor(nodes[name]) for name in self.names}
        optimizer = self.training.make_optimizer(Tensor.input(RATE, (), dt.float32))
        scaling = self.training.make_scale(optimizer)
        named = _Slots(self.training.optimizer, optimizer.slots)
        first = named.of((scaling or optimizer).init(model))
        slots = {
            name: Tensor.input(name, value.shape, value.dtype) if value.size else value
            for name, value in first.items()
        }
        state = named.tree(slots)
        one = Tensor.full((), 1, loss.dtype)
        seed = one if scaling is None else scaling.scaled(one, state)
        back = pull_back([loss], [seed], [*model.values()])
        gradients = dict(zip(model, back.gradients, strict=True))
        after, after_state = (scaling or optimizer).update(model, gradients, state)
        kept = {**model, **slots}
        new = {**after, **named.of(after_state)}
        initial = {**arrays, **{name: _value_of(value) for name, value in first.items()}}
        names = [name for name in kept if kept[name].size]
        inputs = found.ports
        own = [*targets, Port(RATE, dt.float32, ())]
        taken = [*(port.name for port in inputs), *model]
        _check_names(taken, [*(port.name for port in own), *slots])
        ports = [Port(name, kept[name].dtype, kept[name].shape) for name in names]
        updates = [Port(n, new[n].dtype, new[n].shape, new[n].node) for n in names]
        if found.draws is not None:
            updates.append(found.draws)
        output = Port("loss", dt.float32, (), back.outputs[0].node)
        states = tuple(
            State(name, kept[name].dtype, kept[name].shape, initial=initial[name]) for name in names
        )
        return Graph((*inputs, *own, *ports), (output,), found.names, tuple(updates)), states

    def added_to(self, source: Graphs) -> Graphs:
        """The step as an entry beside others, which read what is trained from the same states.

        These have been imported with `names` as variables.
        """
        if ENTRY in source.entries:
            raise InputError(
                f"entry {ENTRY!r}",
                "that is the name of the training step",
                id="entry.name",
                next="give the entry another name",
            )
        taken = [port.name for graph in source.entries.values() for port in graph.inputs]
        _check_names(taken, [s.name for s in self.states if s.name not in self.names])
        entries = {name: self._reading(graph) for name, graph in source.entries.items()}
        states = {state.name: state for state in own_states((self.graph,))}
        states.update({state.name: state for state in (*source.states, *self.states)})
        whole = Graphs({**entries, ENTRY: self.graph}, tuple(states.values()))
        check_ports(whole)
        return whole

    def _reading(self, graph: Graph) -> Graph:
        roots = [port.node for port in (*graph.outputs, *graph.updates) if port.node is not None]
        used = {n.arg.source.name for n in toposort(roots) if _is_variable(n, self.names)}
        ports = [Port(s.name, s.dtype, s.shape) for s in self.states if s.name in used]
        return replace(graph, inputs=(*graph.inputs, *ports))


def _variables(root: UOp, names: Any) -> dict[str, UOp]:
    return {n.arg.source.name: n for n in toposort((root,)) if _is_variable(n, names)}


def _is_variable(node: UOp, names: Any) -> bool:
    return (
        node.op is ops.BUFFER and node.arg.source.kind == "input" and node.arg.source.name in names
    )


def _flows(node: UOp, order: Sequence[UOp], active: set[UOp]) -> bool:
    """Whether the gradient of the last node of an order flows to a node."""
    reaching = {order[-1]} & active
    for each in reversed(order):
        if each in reaching:
            reaching.update(source for source in each.src if source in active)
    return node in reaching


def _named_by(found: ImportedModel, node: UOp, order: Sequence[UOp]) -> str:
    """The ONNX node whose result is a node, or is computed from it first."""
    after = {node}
    for each in order:
        if each in after or any(source in after for source in each.src):
            after.add(each)
            if each in found.names:
                return f"ONNX node {found.names[each]!r} (`{node.op.name}`)"
    return f"`{node.op.name}`"


def losses_of(training: Training, graph: Any) -> tuple[Loss, ...]:
    """The losses with the values that they are of. Raises InputError."""
    outputs = [value.name for value in graph.output]
    known = values_of(graph)
    found = []
    for loss in training.losses:
        if not loss.output and len(outputs) == 1:
            loss = replace(loss, output=outputs[0])
        if loss.output not in known:
            because = "the model has no such value" if loss.output else "it names no output"
            shown = f"the model's outputs {', '.join(map(repr, outputs))}; any value of its nodes"
            subject = f"loss {loss.name!r} of {loss.output!r}"
            raise unknown(subject, because, "train.output", loss.output, known, shown)
        found.append(loss)
    if len({loss.output for loss in found}) < len(found):
        raise InputError("the losses", "two are of one value", id="train.loss")
    return tuple(found)


def matching(training: Training, types: Mapping[str, tuple[DType, int]]) -> list[str]:
    """The weights that patterns name, in the model's order: of floats, and no scalars.

    Raises InputError for a pattern that names none of these.
    """
    floats = [n for n, (t, axes) in types.items() if t.is_float and not t.storage_type and axes]
    chosen: dict[str, None] = {}
    for pattern in training.patterns:
        hit = [name for name in types if name == pattern or fnmatchcase(name, pattern)]
        if not hit:
            because = f"none of the model's {len(types)} weights has such a name"
            shown = f"{', '.join(map(repr, floats[:8]))}{', ...' if len(floats) > 8 else ''}"
            raise unknown(
                f"--train {pattern!r:.200}", because, "train.pattern", pattern, floats, shown
            )
        fitting = [name for name in hit if name in floats]
        if not fitting:
            dtype, axes = types[hit[0]]
            kind = f"a scalar of {dtype}" if not axes and dtype.is_float else f"of {dtype}"
            raise InputError(
                f"--train {pattern!r:.200}",
                f"weight {hit[0]!r} is {kind}, which no gradient changes",
                id="train.integers",
                supported="tensors of float16, float32 or float64",
                next="choose a pattern that names such",
            )
        chosen.update(dict.fromkeys(fitting))
    return [name for name in floats if name in chosen]


def with_batch(training: Training, graph: Any, options: ImportOptions) -> dict[str, int | str]:
    """Sizes of a step: the open leading axes of the model's inputs are the batch. InputError."""
    dims = dict(options.dims)
    if training.batch is None:
        return dims
    stored = {tensor.name for tensor in graph.initializer} | set(options.constants)
    shapes = {
        value.name: dims_of(type_of(value).tensor_type.shape)
        for value in graph.input
        if value.name not in stored
    }
    leading = {name: shape[0] for name, shape in shapes.items() if shape}
    is_open = [name for name, size in leading.items() if not isinstance(size, int)]
    if not is_open and training.batch not in leading.values():
        sizes = ", ".join(f"{name!r} has {size}" for name, size in leading.items())
        raise InputError(
            f"batch {training.batch}",
            f"the model's leading sizes are fixed: {sizes or 'it has no inputs'}",
            id="train.batch",
            next="leave --batch out, or make the model's first axis symbolic",
        )
    for name in is_open:
        size = leading[name]
        for key in (size, f"{name}[0]"):
            if isinstance(key, str):
                dims.pop(key, None)
        dims[f"{name}[0]"] = training.batch
    return dims


def _target(name: str, loss: Loss, output: Tensor) -> Port:
    """What a loss compares an output [N, C, *S] with: classes [N, *S], or numbers of its shape."""
    if loss.name in OF_CLASSES:
        if not output.ndim:
            raise _no_loss(loss, "it is a scalar", "logits [N, C, ...]")
        axis = min(1, output.ndim - 1)
        return Port(name, dt.int32, (*output.shape[:axis], *output.shape[axis + 1 :]))
    return Port(name, dt.float32, output.shape)


def _example(port: Port, loss: Loss, output: Tensor) -> dict[str, Any]:
    """A target that a generated one would not do for, where its sizes are fixed."""
    if not all(isinstance(size, int) for size in output.shape):
        return {}
    numbers, shape = np.random.default_rng(1), tuple(map(int, port.shape))  # type: ignore[arg-type]
    if loss.name in OF_CLASSES:
        classes = int(output.shape[min(1, output.ndim - 1)])  # type: ignore[arg-type]
        return {port.name: numbers.integers(0, classes, shape).astype(np.int32)}
    if loss.name in ("binary_cross_entropy", "binary_cross_entropy_with_logits", "kl_div"):
        return {port.name: numbers.random(shape, np.float32)}
    return {}


def _no_loss(loss: Loss, because: str, supported: str) -> InputError:
    return InputError(
        f"loss {loss.name!r} of {loss.output!r}", because, id="train.output", supported=supported
    )


class _Slots:
    """The names that an optimizer's state for a dict of parameters has as states of a bundle."""

    def __init__(self, prefix: str, slots: Sequence[str]) -> None:
        self._prefix, self._slots = prefix, slots

    def of(self, state: Mapping[str, Any]) -> dict[str, Tensor]:
        """Tensors by name: `adam.step`, `adam.mean.fc.weight`; `loss_scale` where the loss is."""
        if "state" in state:
            own = {SCALE: state["scale"], f"{SCALE}.steps": state["steps"]}
            return {**self.of(state["state"]), **own}
        named = {f"{self._prefix}.step": state["step"]}
        for slot in self._slots:
            values = state[slot].items()
            named.update({f"{self._prefix}.{slot}.{name}": value for name, value in values})
        return named

    def tree(self, named: Mapping[str, Tensor]) -> dict[str, Any]:
        """The state whose tensors have these names."""
        tree: dict[str, Any] = {"step": named[f"{self._prefix}.step"]}
        for slot in self._slots:
            start = f"{self._prefix}.{slot}."
            tree[slot] = {n[len(start) :]: v for n, v in named.items() if n.startswith(start)}
        if SCALE not in named:
            return tree
        return {"scale": named[SCALE], "steps": named[f"{SCALE}.steps"], "state": tree}


def _value_of(tensor: Tensor) -> Any:
    """A first value, None for zeros."""
    (value,) = evaluate([tensor.node], {})
    value = np.asarray(value, tensor.dtype.numpy)
    return value if value.any() else None


def _check_names(taken: Sequence[str], own: Sequence[str]) -> None:
    for name in own:
        if name in taken:
            raise InputError(
                f"entry {ENTRY!r}",
                f"the model has an input or weight {name!r}, which the step needs as a name",
                id="train.name",
                next="rename that one in the model's file",
            )
