"""What layers are: trees with names, first values, and what training changes."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from tests.agreement import Inputs, disagreement, reference, run
from tinyedge import Tensor, grad, nn, optim, random, value_and_grad
from tinyedge.core import dtype as dt
from tinyedge.core.gradient import trees
from tinyedge.core.ir.reference import evaluate


def known(x: Tensor) -> Any:
    return np.asarray(evaluate([x.node], {})[0])


def held(tree: Any) -> Any:
    """The tree with the values that its tensors have."""
    return trees.mapped(lambda leaf: Tensor(known(leaf), leaf.dtype), tree)


def test_names_are_those_of_torch() -> None:
    model = nn.Sequential(
        nn.Conv2d(1, 2, 3),
        nn.relu,
        nn.BatchNorm(2),
        nn.Sequential(nn.Linear(2, 2), nn.GRU(2, 3, 2, bidirectional=True)),
        nn.MultiHeadAttention(4, 2),
    )
    gates = [
        f"3.1.{kind}_l{layer}{way}"
        for layer in (0, 1)
        for way in ("", "_reverse")
        for kind in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
    ]
    norms = ["2.weight", "2.bias", "2.running_mean", "2.running_var"]
    heads = [f"4.{name}" for name in ("in_proj_weight", "in_proj_bias", "out_proj.weight")]
    assert [*nn.state_dict(model)] == [
        *("0.weight", "0.bias", *norms, "3.0.weight", "3.0.bias", *gates, *heads),
        "4.out_proj.bias",
    ]


class Net(nn.Module):
    def __init__(self) -> None:
        self.inner = [nn.Linear(3, 4), nn.Linear(4, 2)]
        self.shift = Tensor.weight("shift", np.ones(2, np.float32))
        self.times = 2

    def __call__(self, x: Tensor) -> Tensor:
        return self.inner[1](self.inner[0](x).tanh()) * self.times + self.shift


def test_a_module_of_ones_own_is_a_tree() -> None:
    model = Net()
    assert [*nn.state_dict(model)] == [
        *("inner.0.weight", "inner.0.bias", "inner.1.weight", "inner.1.bias", "shift")
    ]
    doubled = trees.mapped(lambda leaf: leaf * 2, model)
    assert isinstance(doubled, Net) and doubled.times == 2
    assert (known(doubled.shift) == 2).all() and (known(model.shift) == 1).all()


def test_a_state_is_loaded_whole_or_refused() -> None:
    model = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm(2))
    state = {name: known(leaf) + 1 for name, leaf in nn.state_dict(model).items()}
    loaded = nn.load_state_dict(model, {**state, "1.num_batches_tracked": np.int64(7)})
    assert (known(loaded[0].weight) == state["0.weight"]).all()
    assert (known(loaded[1].running_var.value) == 2).all()
    short = {name: value for name, value in state.items() if name != "0.bias"}
    with pytest.raises(ValueError, match=r"missing: 0\.bias; not wanted: other"):
        nn.load_state_dict(model, {**short, "other": state["0.bias"]})
    with pytest.raises(ValueError, match=r"0\.bias is \[3\], the model's is \[2\]"):
        nn.load_state_dict(model, {**state, "0.bias": np.zeros(3)})


@pytest.mark.parametrize(
    "layer, name, bound",
    (
        (lambda key: nn.Linear(64, 300, key=key), "weight", 1 / 8),
        (lambda key: nn.Linear(64, 4000, key=key), "bias", 1 / 8),
        (lambda key: nn.Conv2d(8, 90, 3, groups=2, key=key), "weight", 1 / 6),
        (lambda key: nn.ConvTranspose2d(90, 8, 3, groups=2, key=key), "weight", 1 / 6),
        (lambda key: nn.LSTM(20, 64, key=key), "weight_hh_l0", 1 / 8),
        (lambda key: nn.MultiHeadAttention(48, 4, key=key), "in_proj_weight", math.sqrt(6 / 192)),
    ),
)
def test_first_values_fill_torchs_range(layer: Any, name: str, bound: float) -> None:
    values = known(getattr(layer(random.key(1)), name)).ravel()
    assert 0.99 * bound < np.abs(values).max() <= bound
    assert abs(values.std() - bound / math.sqrt(3)) < 0.05 * bound
    again = known(getattr(layer(random.key(1)), name)).ravel()
    other = known(getattr(layer(random.key(2)), name)).ravel()
    assert (values == again).all() and (values != other).any()


def test_layers_without_a_key_differ_and_a_seed_repeats_them() -> None:
    nn.seed(5)
    first, second = (known(nn.Linear(3, 3).weight) for _ in range(2))
    nn.seed(5)
    assert (first == known(nn.Linear(3, 3).weight)).all() and (first != second).any()


def test_dropout_draws_in_training_alone() -> None:
    layer, x = nn.Dropout(0.5), Tensor.weight("x", np.ones((40, 50), np.float32))
    assert layer(x) is x
    with nn.training(random.key(1)):
        one, two = known(layer(x)), known(layer(x))
    assert set(np.unique(one).tolist()) == {0.0, 2.0} and (one != two).any()
    with nn.training(random.key(1)):
        assert (known(layer(x)) == one).all()
    with nn.training(), pytest.raises(ValueError, match=r"nn\.training\(key\)"):
        layer(x)
    assert layer(x) is x


def test_an_optimizer_leaves_running_means_alone() -> None:
    """Those that decay weights, too; and the new means are those of the forward pass."""
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm(4))
    x = Tensor.weight("x", np.random.default_rng(0).normal(size=(8, 3)).astype(np.float32))

    def loss(model: Any) -> Any:
        with nn.training() as run:
            value = (model(x) * model(x)).mean()
        return value, run.updated(model)

    opt = optim.AdamW(0.1, weight_decay=0.5)
    state = opt.init(model)
    (_, moved), gradients = value_and_grad(loss, has_aux=True)(model)
    after, state = held(opt.update(moved, gradients, state))
    means = known(model[0](x)).mean(0)
    expected = 0.1 * means + 0.9 * 0.1 * means  # twice in one pass
    assert np.allclose(known(after[1].running_mean.value), expected, atol=1e-6)
    assert (known(after[1].weight) != 1).all()
    assert state["mean"][1].running_mean is None


def test_one_buffer_used_twice_moves_twice() -> None:
    norm = nn.BatchNorm(1, momentum=0.5)
    ones = Tensor.weight("x", np.array([[1.0], [3.0]], np.float32))
    with nn.training() as run:
        norm(ones)
        norm(ones)
    assert known(run.updated(norm).running_mean.value).tolist() == [1.5]
    assert known(norm.running_mean.value).tolist() == [0.0]


@pytest.mark.parametrize(
    "call, message",
    (
        (lambda x: nn.Conv2d(3, 4, 3)(x), r"Conv2d of \[2, 3, 8\]: it takes 4 axes"),
        (lambda x: nn.Conv1d(4, 4, 3)(x), r"conv of \[2, 3, 8\]"),
        (lambda x: nn.Conv1d(3, 4, 3, groups=2), "3 and 4 channels in 2 groups"),
        (lambda x: nn.Conv1d(3, 3, (3, 3)), "kernel"),
        (lambda x: nn.LayerNorm(7)(x), r"over \[7\] of \[2, 3, 8\]"),
        (lambda x: nn.GroupNorm(2, 3), "3 channels in 2 groups"),
        (lambda x: nn.MultiHeadAttention(8, 3), "a width of 8 in 3 heads"),
        (lambda x: nn.max_pool(2, padding=2)(x), "at most half"),
        (lambda x: nn.RNN(8, 4)(x[0]), r"RNN of \[3, 8\]: it takes 3 axes"),
        (lambda x: nn.Dropout(1.5), "a dropout rate of 1.5"),
        (lambda x: nn.mse_loss(x, x, reduction="average"), "it is 'mean', 'sum' or 'none'"),
        (lambda x: nn.cross_entropy(x, x[0]), r"targets \[3, 8\] for logits \[2, 3, 8\]"),
    ),
)
def test_what_does_not_fit_is_refused(call: Any, message: str) -> None:
    x = Tensor.weight("x", np.zeros((2, 3, 8), np.float32))
    with pytest.raises(ValueError, match=message):
        call(x)


@pytest.mark.parametrize("wrong", [-1, 3])
def test_the_loss_of_no_class_is_not_a_number(wrong: int) -> None:
    """And changes no weight: the gradient is that of the others."""
    logits = Tensor(np.array([[1.0, -2.0, 0.5], [0.0, 1.0, 2.0]], np.float32))
    for loss in (nn.cross_entropy, nn.nll_loss):
        target = Tensor(np.array([1, wrong], np.int32))
        value, gradient = value_and_grad(lambda x: loss(x, target))(logits)  # noqa: B023
        expected = grad(lambda x: loss(x, Tensor(np.array([1, 0], np.int32))))(logits)  # noqa: B023
        assert np.isnan(value.numpy())
        assert np.array_equal(gradient.numpy()[0], expected.numpy()[0])
        assert not gradient.numpy()[1].any()


def test_a_row_of_padding_is_0_and_stays_so() -> None:
    layer = nn.Embedding(5, 3, padding=-2)
    assert (known(layer.weight)[3] == 0).all() and (known(layer.weight)[2] != 0).any()
    indices = Tensor(np.array([3, 2, 3]))
    slope = value_and_grad(lambda m: m(indices).sum())(layer)[1].weight
    assert (known(slope)[:, 0] == [0, 0, 1, 0, 0]).all()


def test_halves_have_halves() -> None:
    layer = nn.Linear(3, 2, dtype=dt.float16)
    assert layer.weight.dtype is dt.float16 and layer.bias.dtype is dt.float16


def test_a_training_step_on_every_target(target: str, device: Any) -> None:
    """A small network of a convolution, a norm, dropout and a loss: the step's loss and the
    parameters after it.
    """
    nn.seed(1)
    model = nn.Sequential(
        nn.Conv2d(1, 3, 3),
        nn.BatchNorm(3),
        nn.relu,
        nn.max_pool(2),
        nn.flatten,
        nn.Dropout(0.25),
        nn.Linear(12, 4),
    )
    inputs = Inputs()
    rng = np.random.default_rng(2)
    x = inputs.new(rng.normal(size=(5, 1, 6, 6)).astype(np.float32))
    y = inputs.new(rng.integers(0, 4, 5).astype(np.int32))
    key = inputs.new(np.array([1, 2], np.uint32))

    def loss(model: Any) -> Any:
        with nn.training(key) as run:
            value = nn.cross_entropy(model(x), y)
        return value, run.updated(model)

    (value, moved), gradients = value_and_grad(loss, has_aux=True)(model)
    opt = optim.SGD(0.1)
    after, _ = opt.update(moved, gradients, opt.init(model))
    outputs = {"loss": value, **dict(trees.named(after))}
    found, expected = run(outputs, inputs, target, device), reference(outputs, inputs)
    for name, value in expected.items():
        assert not disagreement(found[name], value), name
    assert (
        known(model[1].running_mean.value).tolist() == [0, 0, 0] != found["1.running_mean"].tolist()
    )
