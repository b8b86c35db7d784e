"""The CTC loss beside all paths counted one by one, its gradient, and the loss on every target."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from tests.agreement import Inputs, assert_agreement, run
from tinyedge import Tensor, grad, nn
from tinyedge.core import dtype as dt
from tinyedge.core.ir.reference import evaluate

STEPS, BATCH, CLASSES = 5, 5, 3
TARGETS = np.array([[1, 2, 1], [1, 1, 2], [2, 2, 2], [1, 2, 0], [2, 0, 0]], np.int32)
LENGTHS = np.array([3, 2, 3, 0, 1], np.int32)
GIVEN = np.array([5, 4, 4, 3, 5], np.int32)  # steps; the third does not fit


def logs(classes: int = CLASSES) -> Any:
    raw = np.random.default_rng(2).normal(size=(STEPS, BATCH, classes))
    return raw - np.log(np.exp(raw).sum(-1, keepdims=True))


def counted(values: Any, target: list[int], blank: int) -> float:
    """-log of the chances of all paths that show a target."""
    total = 0.0
    for path in itertools.product(range(values.shape[1]), repeat=len(values)):
        shown = [label for label, _ in itertools.groupby(path) if label != blank]
        if shown == target:
            total += float(np.exp(sum(values[step, label] for step, label in enumerate(path))))
    return -np.log(total) if total else np.inf


def expected(values: Any, blank: int = 0, targets: Any = TARGETS) -> Any:
    rows = zip(GIVEN, targets, LENGTHS, strict=True)
    return np.array(
        [counted(values[:t, n], [*row[:s]], blank) for n, (t, row, s) in enumerate(rows)]
    )


def loss(values: Any, targets: Any = TARGETS, **more: Any) -> Tensor:
    x = values if isinstance(values, Tensor) else Tensor(values)
    return nn.ctc_loss(x, Tensor(targets), Tensor(GIVEN), Tensor(LENGTHS), **more)


def known(x: Tensor) -> Any:
    return np.asarray(evaluate([x.node], {})[0])


@pytest.mark.parametrize("blank", [0, 2])
def test_all_paths_are_counted(blank: int) -> None:
    targets = np.where(TARGETS == blank, 0, TARGETS) if blank else TARGETS
    right = expected(logs(), blank, targets)
    found = known(loss(logs(), targets, blank=blank, reduction="none"))
    np.testing.assert_allclose(found, right, 1e-9)
    assert np.isinf(right).any() and np.isfinite(right).sum() >= 3


def test_reductions() -> None:
    right = np.where(np.isinf(expected(logs())), 0, expected(logs()))
    none = loss(logs(), reduction="none", zero_infinity=True)
    np.testing.assert_allclose(known(none), right, 1e-9)
    total = loss(logs(), reduction="sum", zero_infinity=True)
    np.testing.assert_allclose(known(total), right.sum(), 1e-9)
    mean = loss(logs(), zero_infinity=True)
    np.testing.assert_allclose(known(mean), (right / np.maximum(LENGTHS, 1)).mean(), 1e-9)
    assert np.isinf(known(loss(logs())))


@pytest.mark.parametrize("size", [0, 1])
def test_short_targets(size: int) -> None:
    """None of a class at all, and of one."""
    even = np.log(np.full((3, 1, 4), 0.25))
    given = [np.ones((1, size), np.int32), np.array([3], np.int32), np.array([size], np.int32)]
    found = known(nn.ctc_loss(Tensor(even), *map(Tensor, given), reduction="none"))
    np.testing.assert_allclose(found, [counted(even[:, 0], [1] * size, 0)], 1e-9)


def test_the_gradient() -> None:
    """By differences; of what does not fit it is 0, and never NaN."""
    values = logs()

    def value(x: Any) -> float:
        return float(known(loss(x, zero_infinity=True)))

    found = known(grad(lambda x: loss(x, zero_infinity=True))(Tensor(values)))
    for place in np.ndindex(*values.shape):
        step = np.zeros_like(values)
        step[place] = 1e-6
        slope = (value(values + step) - value(values - step)) / 2e-6
        assert found[place] == pytest.approx(slope, abs=1e-7)
    assert not found[:, 2].any()


def test_on_every_target(target: str, device: Any) -> None:
    inputs = Inputs()
    x = inputs.new(logs().astype(np.float32))
    gradient = grad(lambda x: loss(x, zero_infinity=True))(x)
    outputs = {"loss": loss(x, zero_infinity=True), "gradient": gradient}
    found = run(outputs, inputs, target, device)
    right = np.where(np.isinf(expected(logs())), 0, expected(logs()))
    wanted = (right / np.maximum(LENGTHS, 1)).mean()
    exact = known(grad(lambda x: loss(x, zero_infinity=True))(Tensor(logs())))
    assert_agreement(found, {"loss": np.float32(wanted), "gradient": exact.astype(np.float32)})


def test_what_does_not_fit_is_refused() -> None:
    x, lengths = Tensor(logs()), Tensor(LENGTHS)
    with pytest.raises(ValueError, match=r"\[T, N, C\]"):
        nn.ctc_loss(x[0], Tensor(TARGETS), lengths, lengths)
    with pytest.raises(ValueError, match="targets of float32"):
        nn.ctc_loss(x, Tensor(TARGETS).cast(dt.float32), lengths, lengths)
    with pytest.raises(ValueError, match="input lengths"):
        nn.ctc_loss(x, Tensor(TARGETS), lengths[:3], lengths)
    with pytest.raises(ValueError, match="blank 7"):
        loss(logs(), blank=7)
