"""ai.onnx.preview.training: one step of an optimizer, over any number of tensors."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from tinyedge.core.tensor.mathematics import expm1
from tinyedge.core.tensor.tensor import Tensor
from tinyedge.export.onnx.registry import Node, operator

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
