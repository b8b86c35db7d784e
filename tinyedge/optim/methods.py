"""The optimizers themselves, by their published rules; defaults are those of PyTorch."""

from __future__ import annotations

import math

from tinyedge.core import dtype as dt
from tinyedge.core.tensor.base import fixed
from tinyedge.core.tensor.matrices import MOST_STEPS, newton_schulz
from tinyedge.core.tensor.tensor import Tensor
from tinyedge.optim.optimizer import Optimizer, Rate, Slots, one_minus_power

NEWTON_SCHULZ = (3.4445, -4.7750, 2.0315)  # coefficients of one step of Muon's iteration


def _fraction(name: str, value: float) -> float:
    if not 0 <= value < 1:
        raise ValueError(f"{name} of {value}: it must be at least 0 and below 1")
    return value


def _least(name: str, value: float) -> float:
    if not 0 <= value < math.inf:
        raise ValueError(f"{name} of {value}: it must be finite, and not negative")
    return value


class SGD(Optimizer):
    """Gradient descent, with momentum as in I. Sutskever and others, On the importance of
    initialization and momentum in deep learning, 2013.

    The first update's momentum is the gradient itself. weight_decay: that part of a parameter is
    added to its gradient. nesterov: the step looks ahead along the momentum.
    """

    def __init__(
        self,
        lr: Rate = 1e-3,
        *,
        momentum: float = 0.0,
        dampening: float = 0.0,
        weight_decay: float = 0.0,
        nesterov: bool = False,
    ) -> None:
        super().__init__(lr)
        if nesterov and (not momentum or dampening):
            raise ValueError("nesterov needs a momentum, and no dampening")
        self.momentum = _fraction("momentum", momentum)
        self.dampening = _least("dampening", dampening)
        self.weight_decay = _least("weight_decay", weight_decay)
        self.nesterov = nesterov
        self.slots = ("momentum",) if momentum else ()

    def direction(self, gradient: Tensor, slots: Slots, step: Tensor) -> tuple[Tensor, Slots]:
        if not self.momentum:
            return gradient, {}
        later = slots["momentum"] * self.momentum + gradient * (1.0 - self.dampening)
        velocity = step.eq(1.0).where(gradient, later) if self.dampening else later
        along = gradient + velocity * self.momentum if self.nesterov else velocity
        return along, {"momentum": velocity}

    def rule(
        self, parameter: Tensor, gradient: Tensor, slots: Slots, rate: Tensor, step: Tensor
    ) -> tuple[Tensor, Slots]:
        if self.weight_decay:
            gradient = gradient + parameter * self.weight_decay
        along, after = self.direction(gradient, slots, step)
        return parameter - along * rate, after


class LARS(SGD):
    """Layer-wise rates: Y. You and others, Large Batch Training of Convolutional Networks, 2017.

    Each parameter's rate is scaled by trust * |parameter| / (|gradient| + weight_decay *
    |parameter|), or not at all where one of them is 0.
    """

    def __init__(
        self,
        lr: Rate = 1e-3,
        *,
        momentum: float = 0.9,
        weight_decay: float = 1e-4,
        nesterov: bool = False,
        trust: float = 1e-3,
    ) -> None:
        super().__init__(lr, momentum=momentum, weight_decay=weight_decay, nesterov=nesterov)
        self.trust = _least("trust", trust)

    def rule(
        self, parameter: Tensor, gradient: Tensor, slots: Slots, rate: Tensor, step: Tensor
    ) -> tuple[Tensor, Slots]:
        size, slope = _norm(parameter), _norm(gradient)
        scale = self.trust * size / (slope + self.weight_decay * size)
        ratio = ((size > 0) & (slope > 0)).where(scale, 1.0)
        decayed = (gradient + parameter * self.weight_decay) * (ratio * rate)
        along, after = self.direction(decayed, slots, step)
        return parameter - along, after


class Adam(Optimizer):
    """D. Kingma, J. Ba, Adam: A Method for Stochastic Optimization, 2015, algorithm 1.

    weight_decay: that part of a parameter is added to its gradient. betas: how much of the means
    of gradients and of their squares is kept.
    """

    slots = ("mean", "square")

    def __init__(
        self,
        lr: Rate = 1e-3,
        *,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
    ) -> None:
        super().__init__(lr)
        if not isinstance(betas, (tuple, list)) or len(betas) != 2:
            raise TypeError(f"betas of {betas!r}: they are two, as (0.9, 0.999)")
        self.betas = _fraction("beta", betas[0]), _fraction("beta", betas[1])
        self.eps = _least("eps", eps)
        self.weight_decay = _least("weight_decay", weight_decay)

    def direction(self, gradient: Tensor, slots: Slots, step: Tensor) -> tuple[Tensor, Slots]:
        one, two = self.betas
        mean = slots["mean"] * one + gradient * (1.0 - one)
        square = slots["square"] * two + gradient * gradient * (1.0 - two)
        size = (square / one_minus_power(two, step)).sqrt() + self.eps
        return mean / one_minus_power(one, step) / size, {"mean": mean, "square": square}

    def rule(
        self, parameter: Tensor, gradient: Tensor, slots: Slots, rate: Tensor, step: Tensor
    ) -> tuple[Tensor, Slots]:
        if self.weight_decay:
            gradient = gradient + parameter * self.weight_decay
        along, after = self.direction(gradient, slots, step)
        return parameter - along * rate, after


class AdamW(Adam):
    """I. Loshchilov, F. Hutter, Decoupled Weight Decay Regularization, 2019.

    weight_decay: that part of a parameter, times the rate, is taken from it.
    """

    def __init__(
        self,
        lr: Rate = 1e-3,
        *,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 1e-2,
    ) -> None:
        super().__init__(lr, betas=betas, eps=eps, weight_decay=weight_decay)

    def rule(
        self, parameter: Tensor, gradient: Tensor, slots: Slots, rate: Tensor, step: Tensor
    ) -> tuple[Tensor, Slots]:
        along, after = self.direction(gradient, slots, step)
        return parameter - (along + parameter * self.weight_decay) * rate, after


class LAMB(Adam):
    """Y. You and others, Large Batch Optimization for Deep Learning: Training BERT in 76 minutes,
    2020, algorithm 2.

    The step of each parameter is as long as the parameter, times the rate; as long as Adam's where
    one of them is 0.
    """

    def __init__(
        self,
        lr: Rate = 1e-3,
        *,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-6,
        weight_decay: float = 0.0,
    ) -> None:
        super().__init__(lr, betas=betas, eps=eps, weight_decay=weight_decay)

    def rule(
        self, parameter: Tensor, gradient: Tensor, slots: Slots, rate: Tensor, step: Tensor
    ) -> tuple[Tensor, Slots]:
        along, after = self.direction(gradient, slots, step)
        along = along + parameter * self.weight_decay
        size, length = _norm(parameter), _norm(along)
        ratio = ((size > 0) & (length > 0)).where(size / length, 1.0)
        return parameter - along * (ratio * rate), after


class RMSprop(Optimizer):
    """T. Tieleman, G. Hinton, Lecture 6.5 of Neural Networks for Machine Learning, 2012.

    alpha: how much of the mean of squares is kept. centered: by the variance, not the squares.
    """

    def __init__(
        self,
        lr: Rate = 1e-2,
        *,
        alpha: float = 0.99,
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        momentum: float = 0.0,
        centered: bool = False,
    ) -> None:
        super().__init__(lr)
        self.alpha = _fraction("alpha", alpha)
        self.eps = _least("eps", eps)
        self.weight_decay = _least("weight_decay", weight_decay)
        self.momentum = _fraction("momentum", momentum)
        self.centered = centered
        more = (("momentum",) if momentum else ()) + (("mean",) if centered else ())
        self.slots = ("square", *more)

    def rule(
        self, parameter: Tensor, gradient: Tensor, slots: Slots, rate: Tensor, step: Tensor
    ) -> tuple[Tensor, Slots]:
        if self.weight_decay:
            gradient = gradient + parameter * self.weight_decay
        keep, take = self.alpha, 1.0 - self.alpha
        after = {"square": slots["square"] * keep + gradient * gradient * take}
        variance = after["square"]
        if self.centered:
            after["mean"] = slots["mean"] * keep + gradient * take
            variance = variance - after["mean"] * after["mean"]
        along = gradient / (variance.sqrt() + self.eps)
        if self.momentum:
            along = after["momentum"] = slots["momentum"] * self.momentum + along
        return parameter - along * rate, after


class Adagrad(Optimizer):
    """J. Duchi, E. Hazan, Y. Singer, Adaptive Subgradient Methods for Online Learning and
    Stochastic Optimization, 2011.

    decay: the rate of update t is divided by 1 + (t - 1) * decay.
    """

    slots = ("sum",)

    def __init__(
        self,
        lr: Rate = 1e-2,
        *,
        decay: float = 0.0,
        weight_decay: float = 0.0,
        initial: float = 0.0,
        eps: float = 1e-10,
    ) -> None:
        super().__init__(lr)
        self.decay = _least("decay", decay)
        self.weight_decay = _least("weight_decay", weight_decay)
        self.initial = _least("initial", initial)
        self.eps = _least("eps", eps)

    def first(self, parameter: Tensor) -> Slots:
        return {name: slot + self.initial for name, slot in super().first(parameter).items()}

    def rule(
        self, parameter: Tensor, gradient: Tensor, slots: Slots, rate: Tensor, step: Tensor
    ) -> tuple[Tensor, Slots]:
        if self.weight_decay:
            gradient = gradient + parameter * self.weight_decay
        total = slots["sum"] + gradient * gradient
        slowed = rate / (1.0 + (step - 1.0) * self.decay)
        return parameter - gradient / (total.sqrt() + self.eps) * slowed, {"sum": total}


class Muon(Optimizer):
    """K. Jordan and others, Muon: An optimizer for hidden layers in neural networks, 2024.

    A matrix moves along the nearest orthogonal one to its momentum, found by five steps of a
    Newton-Schulz iteration. A filter is a matrix of a row for each output. Parameters of fewer than
    two axes, which are no matrices, are updated by AdamW at `other_lr`.
    """

    slots = ("momentum", "mean", "square")

    def __init__(
        self,
        lr: Rate = 1e-3,
        *,
        momentum: float = 0.95,
        nesterov: bool = True,
        weight_decay: float = 0.1,
        steps: int = 5,
        eps: float = 1e-7,
        other_lr: Rate = 1e-3,
    ) -> None:
        super().__init__(lr)
        self.momentum = _fraction("momentum", momentum)
        self.nesterov = nesterov
        self.weight_decay = _least("weight_decay", weight_decay)
        if not 1 <= steps <= MOST_STEPS:
            raise ValueError(f"{steps} steps: there must be 1 to {MOST_STEPS}")
        self.steps = steps
        self.eps = _least("eps", eps)
        self.others = AdamW(other_lr, weight_decay=weight_decay)

    def first(self, parameter: Tensor) -> Slots:
        """Only the slots that a parameter's rule has are as large as it."""
        zeros = super().first(parameter)
        unused = self.others.slots if parameter.ndim >= 2 else ("momentum",)
        none = Tensor.full((0,) * parameter.ndim, 0, zeros["mean"].dtype)
        return {name: none if name in unused else slot for name, slot in zeros.items()}

    def rule(
        self, parameter: Tensor, gradient: Tensor, slots: Slots, rate: Tensor, step: Tensor
    ) -> tuple[Tensor, Slots]:
        if parameter.ndim < 2:
            rate = self.others.at(step.cast(dt.int32) - 1, parameter.dtype)
            value, after = self.others.rule(parameter, gradient, slots, rate, step)
            return value, {**slots, **after}
        velocity = slots["momentum"] * self.momentum + gradient * (1.0 - self.momentum)
        along = gradient * (1.0 - self.momentum) + velocity * self.momentum
        matrix = (along if self.nesterov else velocity).flatten(1)
        rows, columns = map(fixed, matrix.shape)
        step_length = rate * math.sqrt(max(1.0, rows / columns))
        along = newton_schulz(matrix, self.steps, NEWTON_SCHULZ, self.eps)
        kept = parameter - parameter * self.weight_decay * rate
        return kept - along.reshape(parameter.shape) * step_length, {**slots, "momentum": velocity}


def _norm(x: Tensor) -> Tensor:
    return (x * x).blocked_sum().sqrt()
