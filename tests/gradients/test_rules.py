"""Each row's rule, and functions composed of many, beside differences of values in doubles."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.agreement import Inputs, disagreement, reference, run
from tests.gradients.cases import CASES, FAMILIES, Case
from tinyedge import Tensor, grad, jvp, stop_gradient, vjp
from tinyedge.core import dtype as dt
from tinyedge.core.gradient.batch import RULES as BATCHED
from tinyedge.core.gradient.rules import CONSTANT, ENCLOSING, LATER, MADE, RULES
from tinyedge.core.ir import ops

STEP = 1e-5
TWICE = (
    *("exp", "sin", "cos", "tanh", "sigmoid", "softplus", "silu", "erf", "log", "sqrt", "div"),
    *("pow", "mul", "prod of a zero", "softmax", "log_softmax", "norm", "matmul", "conv"),
    *("layer norm", "loop", "prod of zeros", "checkpoint", "checkpoint of checkpoints"),
)


def constants(arrays: Any) -> list[Tensor]:
    return [Tensor.weight("w", array) for array in arrays]


def difference(case: Case, directions: list[Any]) -> Any:
    """The derivative along directions, by a central difference."""
    ahead, back = (
        case.function(
            *constants(a + sign * STEP * d for a, d in zip(case.arrays, directions, strict=True))
        )
        for sign in (1, -1)
    )
    return (ahead.numpy() - back.numpy()) / (2 * STEP)


def directions(case: Case) -> list[Any]:
    rng = np.random.default_rng(3)
    return [rng.normal(size=array.shape) for array in case.arrays]


def test_every_row_has_a_rule_or_a_reason() -> None:
    for row in ops.TABLE.values():
        homes = (
            *(row in RULES, row in CONSTANT, row in ENCLOSING),
            row.group in LATER or row in MADE,
        )
        assert sum(homes) == 1, row
        assert all(reason.strip() for reason in CONSTANT.values())


def test_every_row_knows_batches() -> None:
    for row in ops.TABLE.values():
        homes = (
            *(row in BATCHED, row.elementwise, row.group in ("source", "loop")),
            row.group in LATER or row in MADE,
        )
        assert sum(homes) == 1, row


@pytest.mark.parametrize("name", CASES)
def test_along_a_direction(name: str) -> None:
    case = CASES[name]
    along = directions(case)
    value, derivative = jvp(case.function, constants(case.arrays), constants(along))
    expected = difference(case, along)
    assert np.allclose(value.numpy(), case.function(*constants(case.arrays)).numpy(), rtol=1e-12)
    scale = max(1e-3, np.abs(expected).max())
    assert np.abs(derivative.numpy() - expected).max() <= 1e-5 * scale


@pytest.mark.parametrize("name", CASES)
def test_pulled_back(name: str) -> None:
    """The gradients by all arguments, beside the derivatives along directions."""
    case = CASES[name]
    along = directions(case)
    outputs, pull = vjp(case.function, *constants(case.arrays))
    weights = np.random.default_rng(4).normal(size=outputs.shape)
    gradients = pull(Tensor.weight("g", weights) if weights.shape else Tensor(float(weights)))
    assert [g.shape for g in gradients] == [a.shape for a in case.arrays]
    total = sum((g.numpy() * d).sum() for g, d in zip(gradients, along, strict=True))
    expected = (difference(case, along) * weights).sum()
    assert abs(total - expected) <= 1e-5 * max(1e-2, abs(expected))


@pytest.mark.parametrize("name", TWICE)
def test_second_derivatives(name: str) -> None:
    case = CASES[name]
    weights = Tensor.weight("v", np.random.default_rng(5).normal(size=_shape(case)))

    def loss(*values: Tensor) -> Tensor:
        return (case.function(*values) * weights).sum()

    gradient = grad(loss, tuple(range(len(case.arrays))))
    second = Case(name, lambda *values: gradient(*values)[0], case.arrays)
    along = directions(second)
    _, derivative = jvp(second.function, constants(case.arrays), constants(along))
    expected = difference(second, along)
    assert np.abs(derivative.numpy() - expected).max() <= 1e-5 * max(1e-2, np.abs(expected).max())


def _shape(case: Case) -> Any:
    return case.function(*constants(case.arrays)).shape


@settings(max_examples=60, deadline=None)
@given(
    st.integers(1, 9), st.integers(1, 4), st.integers(1, 4), st.integers(1, 4), st.integers(0, 3)
)
def test_windows_of_all_kinds(more: int, size: int, stride: int, dilation: int, pad: int) -> None:
    """<window(x), y> = <x, gradient of it by y>, exactly, as the numbers are small integers."""
    length = (size - 1) * dilation + more
    x = np.arange(2.0 * length).reshape(2, length)

    def function(a: Tensor) -> Tensor:
        return a.pad([(0, 0), (pad, 0)]).window(1, size, stride, dilation)

    outputs, pull = vjp(function, Tensor.weight("x", x))
    y = np.arange(float(np.prod(outputs.shape))).reshape(outputs.shape) % 7
    (gradient,) = pull(Tensor.weight("y", y))
    assert (outputs.numpy() * y).sum() == (x * gradient.numpy()).sum()


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(1, 4), min_size=1, max_size=4), st.data())
def test_broadcasts_of_all_shapes(shape: list[int], data: st.DataObject) -> None:
    other = [data.draw(st.sampled_from([1, size])) for size in shape]
    other = other[data.draw(st.integers(0, len(shape))) :]
    a = Tensor.weight("a", np.arange(1.0, np.prod(shape) + 1).reshape(shape))
    b = (
        Tensor.weight("b", np.full(other, 0.5))
        if other
        else Tensor(0.5) * Tensor.weight("c", np.ones(()))
    )
    if not other:
        b = Tensor.weight("b", np.array([0.5])).reshape(())
    by_a, by_b = grad(lambda x, y: (x * y).sum(), (0, 1))(a, b)
    assert (by_a.numpy() == 0.5).all() and by_a.shape == a.shape
    assert by_b.numpy().sum() == a.numpy().sum() and by_b.shape == b.shape


def test_ties_share() -> None:
    x = Tensor.weight("x", np.array([2.0, 1.0, 2.0, 2.0]))
    assert np.allclose(grad(lambda a: a.max())(x).numpy(), [1 / 3, 0, 1 / 3, 1 / 3])
    y = Tensor.weight("y", np.array([2.0, 5.0, 0.0, 2.0]))
    by_x, by_y = grad(lambda a, b: a.maximum(b).sum(), (0, 1))(x, y)
    assert by_x.numpy().tolist() == [0.5, 0, 1, 0.5] and by_y.numpy().tolist() == [0.5, 1, 0, 0.5]


def test_what_was_not_chosen_has_no_part() -> None:
    """Also where its derivative is infinite, or no number."""
    x = Tensor.weight("x", np.array([0.0, 1.0, -1.0]))
    at = grad(lambda a: (a > 0).where(a.log(), 0.0).sum())(x).numpy()
    assert at.tolist() == [0, 1, 0]
    at = grad(lambda a: (a > 0).where(a.sqrt() * a.log(), a).sum())(x).numpy()
    assert at.tolist() == [1, 1, 1]
    at = grad(lambda a: (a > 0).where(1.0 / a, a.exp()).sum())(x).numpy()
    assert np.allclose(at, [1, -1, np.exp(-1)])
    rows = Tensor.weight("rows", np.array([[0.0, 0.0], [3.0, 4.0]]))

    def sizes(a: Tensor) -> Tensor:
        squares = (a * a).sum(1)
        return (squares > 0).where(squares.sqrt(), 0.0).sum()

    assert np.allclose(grad(sizes)(rows).numpy(), [[0, 0], [0.6, 0.8]])


def test_a_gradient_that_is_zero_has_a_derivative() -> None:
    """d/dx of x^2 y at x = 0 has one by x and y, although the gradient is 0 there."""
    zero = Tensor.weight("x", np.array([0.0]))
    one = Tensor.weight("y", np.array([1.0]))

    def by_y(x: Tensor, y: Tensor) -> Tensor:
        return grad(lambda b: (x.sin() * b.log()).sum())(y).sum()

    assert grad(by_y)(zero, one).numpy().tolist() == [1.0]


def test_stopped() -> None:
    x = Tensor.weight("x", np.array([3.0]))
    assert grad(lambda a: (stop_gradient(a) * a).sum())(x).numpy().tolist() == [3.0]


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.__name__)
def test_every_target_agrees(family: Any, target: str, device: Any) -> None:
    inputs = Inputs()
    outputs: dict[str, Tensor] = {}
    for case in list(family())[:40]:
        values = [inputs.new(array.astype(np.float32)) for array in case.arrays]
        pulled = vjp(case.function, *values)
        cotangent = np.random.default_rng(6).normal(size=pulled[0].shape).astype(np.float32)
        for number, gradient in enumerate(pulled[1](inputs.new(cotangent))):
            outputs[f"{case.name} by {number}"] = gradient
    expected = reference(outputs, inputs, fp64_reference=True)
    actual = run(outputs, inputs, target, device)
    wrong = {name: disagreement(actual[name], expected[name]) for name in outputs}
    assert not {name: why for name, why in wrong.items() if why}


def test_types() -> None:
    """Halves have halves; through a cast the gradient has the operand's type."""
    x = Tensor.weight("x", np.array([1.5, 2.0], np.float16))
    gradient = grad(lambda a: (a.cast(dt.float32) * 3.0).sum())(x)
    assert gradient.dtype is dt.float16 and gradient.numpy().tolist() == [3, 3]
