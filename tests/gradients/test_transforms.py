"""What functions are given, what they give, and what is refused."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from tinyedge import Tensor, checkpoint, grad, jit, jvp, nn, optim, value_and_grad, vjp, vmap
from tinyedge.core import dtype as dt
from tinyedge.core.ir import ops
from tinyedge.core.ir.uop import toposort


def weight(*values: float) -> Tensor:
    return Tensor.weight("w", np.array(values, np.float64))


@dataclass
class Linear:
    weight: Tensor
    bias: Tensor
    name: str = "linear"

    def __call__(self, x: Tensor) -> Tensor:
        return (x * self.weight + self.bias).sum()


def test_trees() -> None:
    model = {"a": Linear(weight(1, 2), weight(3, 4)), "b": [weight(5, 6), None]}
    x = weight(7, 8)

    def loss(m: dict, x: Tensor) -> Tensor:
        return m["a"](x) + (m["b"][0] * x).sum()

    value, gradients = value_and_grad(loss)(model, x)
    assert value.numpy() == 7 + 16 + 7 + 35 + 48
    assert isinstance(gradients["a"], Linear) and gradients["a"].name == "linear"
    assert gradients["a"].weight.numpy().tolist() == [7, 8]
    assert gradients["a"].bias.numpy().tolist() == [1, 1]
    assert gradients["b"][0].numpy().tolist() == [7, 8] and gradients["b"][1] is None


def test_arguments() -> None:
    a, b = weight(2), weight(5)
    by_both = grad(lambda x, y: (x * x * y).sum(), (0, 1))(a, b)
    assert [g.numpy().tolist() for g in by_both] == [[20], [4]]
    assert grad(lambda x, y: (x * x * y).sum(), -1)(a, b).numpy().tolist() == [4]
    with pytest.raises(TypeError, match="argument 2 of 2"):
        grad(lambda x, y: x.sum(), 2)(a, b)


def test_equal_values_are_variables_of_their_own() -> None:
    """Nodes of equal constants are one node; parameters are not."""
    zero, other = Tensor.full((2,), 0, dt.float32), Tensor.full((2,), 0, dt.float32)
    assert zero.node is other.node
    first, second = grad(lambda a, b: (a + 2.0 * b).sum(), (0, 1))(zero, other)
    assert first.numpy().tolist() == [1, 1] and second.numpy().tolist() == [2, 2]


def test_one_tensor_at_two_places_is_one_variable() -> None:
    tied = weight(3)
    gradients = grad(lambda m: (m[0] * m[1]).sum())([tied, tied])
    assert [g.numpy().tolist() for g in gradients] == [[6], [6]]


def test_what_else_is_read_is_constant() -> None:
    outer = weight(4)
    assert grad(lambda x: (x * outer).sum())(outer).numpy().tolist() == [4]


def test_aux() -> None:
    (value, aux), gradient = value_and_grad(lambda x: (x.sum(), {"twice": x * 2.0}), has_aux=True)(
        weight(1, 2)
    )
    assert value.numpy() == 3 and aux["twice"].numpy().tolist() == [2, 4]
    assert gradient.numpy().tolist() == [1, 1]
    gradient, aux = grad(lambda x: (x.sum(), x * 2.0), has_aux=True)(weight(1, 2))
    assert aux.numpy().tolist() == [2, 4] and gradient.numpy().tolist() == [1, 1]


def test_unused() -> None:
    assert grad(lambda x, y: x.sum(), 1)(weight(1), weight(2, 3)).numpy().tolist() == [0, 0]


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda x: x * 2.0, r"float64 \[2\]: the function must give a scalar"),
        (lambda x: 3.0, "float: the function must give a tensor"),
        (lambda x: x.sum().cast(dt.int32), "int32"),
    ],
)
def test_no_loss(function, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        grad(function)(weight(1, 2))


def test_integers_have_no_gradient() -> None:
    with pytest.raises(TypeError, match="int32: only floats"):
        grad(lambda x: x.cast(dt.float32).sum())(Tensor.weight("i", np.arange(3, dtype=np.int32)))


def test_arrays_and_numbers_are_variables() -> None:
    a, w = Tensor(np.array([0, 1, 2], np.float32)), np.array([5, 6, 7], np.float32)

    def loss(x: Any) -> Tensor:
        return (a * x).sum()

    assert grad(loss)(w).numpy().tolist() == [0, 1, 2]
    for number in (np.float32(2), 2.0):
        value, gradient = value_and_grad(loss)(number)
        assert value.numpy() == 6 and gradient.numpy() == 3 and gradient.dtype is dt.float32
    tree = {"w": w, "b": (0.5, [w])}
    gradients = grad(lambda t: loss(t["w"] * t["w"] + t["b"][0] + t["b"][1][0]))(tree)
    assert gradients["w"].numpy().tolist() == [0, 13, 30]  # one array at two places
    assert gradients["b"][1][0].numpy().tolist() == [0, 13, 30]
    assert gradients["b"][0].numpy() == 3
    _, pull = vjp(loss, w)
    assert pull(2.0)[0].numpy().tolist() == [0, 2, 4]
    assert jvp(loss, (w,), (np.ones(3, np.float32),))[1].numpy() == 3
    assert grad(lambda x: checkpoint(loss)(x))(w).numpy().tolist() == [0, 1, 2]
    assert checkpoint(loss)(w).numpy() == 20 and jit(grad(loss))(w).numpy().tolist() == [0, 1, 2]
    assert vmap(lambda x: x.sum())(np.ones((2, 3))).numpy().tolist() == [3, 3]
    layer = nn.RMSNorm(3)
    layer.weight = w  # its epsilon is an option, and stays
    gradient = grad(lambda layer: layer(a).sum())(layer)
    assert gradient.epsilon == layer.epsilon
    assert gradient.weight.numpy() == pytest.approx(a.numpy() / np.sqrt(5 / 3), rel=1e-5)
    for nothing in (3, [1, 2], "w", True):
        with pytest.raises(TypeError, match="no tensors, arrays or floats"):
            grad(lambda x: a.sum())(nothing)
    with pytest.raises(TypeError, match="int32: only floats"):
        grad(lambda x: x.cast(dt.float32).sum())(np.arange(3, dtype=np.int32))


def test_objects_that_are_no_trees() -> None:
    class Scale:
        def __init__(self) -> None:
            self.factor = weight(2)

        def __call__(self, x: Tensor) -> Tensor:
            return x * self.factor

    model = nn.Sequential(Scale(), nn.relu)
    for call in (grad(lambda m: m(weight(3)).sum()), nn.state_dict, optim.Adam().init):
        with pytest.raises(TypeError, match="Scale has tensors in 'factor', and is no tree"):
            call(model)


def test_vjp_and_jvp() -> None:
    outputs, pull = vjp(lambda a, b: {"sum": a + b, "product": a * b}, weight(2), weight(3))
    assert outputs["product"].numpy().tolist() == [6]
    by_a, by_b = pull({"sum": weight(1), "product": weight(10)})
    assert by_a.numpy().tolist() == [31] and by_b.numpy().tolist() == [21]
    with pytest.raises(ValueError, match="cotangents: missing: product"):
        pull({"sum": weight(1)})
    with pytest.raises(ValueError, match=r"cotangents: float64 \[2\] for float64 \[1\]"):
        pull({"sum": weight(1, 2), "product": weight(1)})
    value, along = jvp(
        lambda a, b: (a * b, a.floor().cast(dt.int32)),
        (weight(2), weight(3)),
        (weight(1), weight(10)),
    )
    assert value[0].numpy().tolist() == [6] and along[0].numpy().tolist() == [23]
    assert along[1].dtype is dt.int32 and along[1].numpy().tolist() == [0]


def test_derivatives_share_the_values() -> None:
    """Nothing is computed once for the value and once more for the gradient."""
    x = Tensor.input("x", (4,), dt.float32)
    value, gradient = value_and_grad(lambda a: a.exp().sum())(x)
    nodes = toposort([value.node, gradient.node])
    assert sum(node.op is ops.EXP for node in nodes) == 1


def test_a_loop_is_run_once_forward() -> None:
    x = Tensor.input("x", (4,), dt.float32)

    def function(a: Tensor) -> Tensor:
        return Tensor.loop([a], lambda value: [value.tanh()], trips=5)[0].sum()

    value, gradient = value_and_grad(function)(x)
    nodes = toposort([value.node, gradient.node])
    assert sum(node.op is ops.LOOP for node in nodes) == 2


def test_functions_of_functions_keep_their_names() -> None:
    def loss(x: Tensor) -> Tensor:
        """A loss."""
        return x.sum()

    for made in (grad(loss), value_and_grad(loss), vmap(loss)):
        assert made.__name__ == "loss" and made.__doc__ == "A loss."
