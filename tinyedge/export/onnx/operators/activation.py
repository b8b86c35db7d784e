"""Activation functions."""

from __future__ import annotations

from tinyedge.core.tensor import activations, mathematics
from tinyedge.core.tensor.tensor import Tensor
from tinyedge.export.onnx.registry import Node, operator


@operator("Relu")
def relu(node: Node, x: Tensor) -> Tensor:
    return x.relu()


@operator("LeakyRelu")
def leaky_relu(node: Node, x: Tensor) -> Tensor:
    return activations.leaky_relu(x, node.number("alpha", 0.01))


@operator("PRelu")
def prelu(node: Node, x: Tensor, slope: Tensor) -> Tensor:
    """Before opset 7 there is one slope a channel, or one in all."""
    if node.opset < 7 and x.ndim > 1:
        slope = slope.reshape((-1,) + (1,) * (x.ndim - 2))
    return activations.leaky_relu(x, slope)


@operator("ThresholdedRelu")
def thresholded_relu(node: Node, x: Tensor) -> Tensor:
    return (x > node.number("alpha", 1.0)).where(x, 0)


@operator("Sigmoid")
def sigmoid(node: Node, x: Tensor) -> Tensor:
    return x.sigmoid()


@operator("HardSigmoid")
def hard_sigmoid(node: Node, x: Tensor) -> Tensor:
    return activations.hard_sigmoid(x, node.number("alpha", 0.2), node.number("beta", 0.5))


@operator("HardSwish")
def hard_swish(node: Node, x: Tensor) -> Tensor:
    return activations.hard_swish(x)


@operator("Swish")
def swish(node: Node, x: Tensor) -> Tensor:
    alpha = node.number("alpha", 1.0)
    return x.silu() if alpha == 1.0 else x * (x * alpha).sigmoid()


@operator("Softplus")
def softplus(node: Node, x: Tensor) -> Tensor:
    return x.softplus()


@operator("Softsign")
def softsign(node: Node, x: Tensor) -> Tensor:
    return activations.softsign(x)


@operator("Mish")
def mish(node: Node, x: Tensor) -> Tensor:
    return mathematics.mish(x)


@operator("Gelu")
def gelu(node: Node, x: Tensor) -> Tensor:
    approximate = node.text("approximate", "none")
    if approximate not in ("none", "tanh"):
        raise node.invalid(f"approximate is {approximate!r}")
    return mathematics.gelu_by_tanh(x) if approximate == "tanh" else mathematics.gelu(x)


@operator("Elu")
def elu(node: Node, x: Tensor) -> Tensor:
    return activations.elu(x, node.number("alpha", 1.0))


@operator("Selu")
def selu(node: Node, x: Tensor) -> Tensor:
    alpha, gamma = activations.SELU
    return activations.selu(x, node.number("alpha", alpha), node.number("gamma", gamma))


@operator("Celu")
def celu(node: Node, x: Tensor) -> Tensor:
    return activations.celu(x, node.number("alpha", 1.0))


@operator("Shrink", limits="floats")
def shrink(node: Node, x: Tensor) -> Tensor:
    bias, limit = node.number("bias", 0.0), node.number("lambd", 0.5)
    dtype = x.dtype
    if not dtype.is_float:
        raise node.unsupported(f"its input is {dtype}", supported="floats")
    below = (x < -limit).where(x + bias, 0)
    return (x > limit).where(x - bias, below)
