"""ai.onnx.preview.training: gradients, and steps of optimizers over any number of tensors."""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from tinyedge.core.gradient.reverse import pull_back
from tinyedge.core.ir.rewrite import replaced
from tinyedge.core.tensor.mathematics import expm1
from tinyedge.core.tensor.tensor import Tensor
from tinyedge.export.onnx.context import Call, Scope, nested
from tinyedge.export.onnx.equality import show
from tinyedge.export.onnx.ordering import Reads
from tinyedge.export.onnx.registry import REFUSED, Node, operator

DOMAIN = "ai.onnx.preview.training"

Step = Callable[..., Sequence[Tensor]]


def _stepped(node: Node, tensors: Sequence[Tensor], kinds: int, step: Step) -> list[Tensor]:
    """A step for each of n tensors. Operands and results are n of one kind, then n of the next."""
    count, rest = divmod(len(tensors), kinds)
    if rest or not count:
        raise node.invalid(f"it has {len(tensors)} tensors, {kinds} kinds of them")
    made = [step(*tensors[number::count]) for number in range(count)]
    return [results[kind] for kind in range(kinds - 1) for results in made]


def _penalized(node: Node, x: Tensor, gradient: Tensor) -> Tensor:
    """The gradient with that of norm_coefficient / 2 * |x|^2."""
    weight = node.number("norm_coefficient", 0.0)
    return gradient + weight * x if weight else gradient


@operator("Adagrad", domain=DOMAIN)
def adagrad(node: Node, rate: Tensor, iteration: Tensor, *tensors: Tensor) -> list[Tensor]:
    decay, epsilon = node.number("decay_factor", 0.0), node.number("epsilon", 1e-6)
    shrunk = (rate / (1.0 + iteration.cast(rate.dtype) * decay)).reshape(())

    def step(x: Tensor, gradient: Tensor, squares: Tensor) -> Sequence[Tensor]:
        slope = _penalized(node, x, gradient)
        total = squares + slope * slope
        return x - shrunk * slope / (total.sqrt() + epsilon), total

    return _stepped(node, tensors, 3, step)


@operator("Adam", domain=DOMAIN)
def adam(node: Node, rate: Tensor, iteration: Tensor, *tensors: Tensor) -> list[Tensor]:
    """The corrections of the averages' start apply from iteration 1 on."""
    alpha, beta = node.number("alpha", 0.9), node.number("beta", 0.999)
    epsilon, after = node.number("epsilon", 1e-6), node.number("norm_coefficient_post", 0.0)
    rate, iteration = rate.reshape(()), iteration.reshape(())
    iterations = iteration.cast(rate.dtype)
    adapted = rate * _without(beta, iterations).sqrt() / _without(alpha, iterations)
    adapted = (iteration > 0).where(adapted, rate)

    def step(x: Tensor, gradient: Tensor, mean: Tensor, square: Tensor) -> Sequence[Tensor]:
        slope = _penalized(node, x, gradient)
        mean = alpha * mean + (1.0 - alpha) * slope
        square = beta * square + (1.0 - beta) * (slope * slope)
        return (1.0 - after) * (x - adapted * mean / (square.sqrt() + epsilon)), mean, square

    return _stepped(node, tensors, 4, step)


def _without(base: float, iterations: Tensor) -> Tensor:
    """1 - base^iterations, for 0 <= base < 1 and iterations > 0."""
    return -expm1(iterations * math.log(base)) if base else Tensor(1.0, iterations.dtype)


@operator("Momentum", domain=DOMAIN)
def momentum(node: Node, rate: Tensor, iteration: Tensor, *tensors: Tensor) -> list[Tensor]:
    alpha, beta = node.number("alpha", 0.0), node.number("beta", 0.0)
    mode = node.text("mode", "standard")
    if mode not in ("standard", "nesterov"):
        raise node.invalid(f"mode is {mode!r}")
    rate = rate.reshape(())
    scale = (iteration > 0).reshape(()).where(Tensor(beta, rate.dtype), 1.0)

    def step(x: Tensor, gradient: Tensor, velocity: Tensor) -> Sequence[Tensor]:
        slope = _penalized(node, x, gradient)
        velocity = alpha * velocity + scale * slope
        along = velocity if mode == "standard" else slope + alpha * velocity
        return x - rate * along, velocity

    return _stepped(node, tensors, 3, step)


@operator(
    "Gradient",
    domain=DOMAIN,
    limits="of tensors made in the graph that it is in; nothing between counts elements",
)
def gradient(node: Node, *tensors: Tensor) -> Generator[Call, list[Any], Any]:
    """The derivatives of the sum of the tensor named `y` by those named `xs`, at the operands.

    What lies between is imported once more, of tensors that stand for these.
    """
    xs, zs = node.text_list("xs") or [], node.text_list("zs") or []
    if len(xs) + len(zs) != len(tensors) or len({*xs, *zs}) < len(tensors):
        raise node.invalid(f"xs {xs} and zs {zs} do not name its {len(tensors)} inputs")
    y = node.text("y", "")
    places = [Tensor.input(name, x.shape, x.dtype) for name, x in zip(xs, tensors, strict=False)]
    counted = len(node.context.counts.made)
    given = dict(zip((*xs, *zs), (*places, *tensors[len(xs) :]), strict=True))
    results = yield _between(node, given, y)
    if REFUSED in results:
        return [REFUSED] * len(xs)
    (result,) = results
    if not isinstance(result, Tensor) or not result.dtype.is_float:
        raise node.unsupported(f"y is {show(result)}", supported="a tensor of floats")
    if len(node.context.counts.made) > counted:
        raise node.unsupported(
            f"how many elements a tensor between xs and {y!r} has is counted at run time",
            supported="tensors of sizes known before",
        )
    ones = Tensor.full(result.shape, 1, result.dtype)
    back = pull_back([result], [ones], places)
    values = {place.node: x.node for place, x in zip(places, tensors, strict=False)}
    done = replaced([found.node for found in back.gradients], values)
    return [Tensor(done[found.node]) for found in back.gradients]


def _between(node: Node, given: Mapping[str, Any], y: str) -> Call:
    """The nodes beside a Gradient that lead from given values to y, in a scope of their own."""
    site, reads = node.call_site, Reads()
    made = {name: proto for proto in site.nodes for name in proto.output if name}
    needed: set[int] = set()
    waiting = [y]
    while waiting:
        name = waiting.pop()
        proto = made.get(name) if name not in given else None
        if proto is None or id(proto) in needed:
            continue
        needed.add(id(proto))
        waiting += reads.of(proto)
        waiting += [a.s.decode() for a in proto.attribute if _is_gradient(proto) and a.name == "y"]
    nodes = [proto for proto in site.nodes if id(proto) in needed]
    if not nodes and y not in given:
        raise node.unsupported(
            f"no node beside it makes y, {y!r}", supported="a y of the graph that it is in"
        )
    scope = Scope(site.scope)
    scope.values.update(given)
    return replace(site, nodes=nodes, scope=scope, results=[y], prefix=nested(f"{node.name}/{y}"))


def _is_gradient(proto: Any) -> bool:
    return bool(proto.op_type == "Gradient" and proto.domain == DOMAIN)
