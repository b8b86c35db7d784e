"""The steps that are measured are those of the models they are named after."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tests.bench.training import page
from tests.bench.training.__main__ import table
from tests.bench.training.models import CHARACTERS, CLASSES, made
from tests.bench.training.ours import Ours, counted, step
from tinyedge import Tensor
from tinyedge.choices import find_target
from tinyedge.core.compiler.compile import compile_graph


def _losses(model: str, optimizer: str, count: int) -> list[float]:
    ours = Ours(model, optimizer)
    try:
        return [ours() for _ in range(count)]
    finally:
        ours.close()


@pytest.mark.parametrize(("model", "weights"), [("cnn", 87_850), ("gpt", 826_112)])
def test_weights_of_the_models(model: str, weights: int) -> None:
    assert sum(array.size for array in made(model)[0].values()) == weights


@pytest.mark.parametrize(
    ("name", "launches", "megabytes"),
    [
        ("cnn:sgd", 50, 17),
        ("cnn:adam", 55, 17.5),
        ("gpt:adam", 225, 40),
        ("gpt again:adam", 270, 19.5),
    ],
)
def test_steps_are_short_and_small(name: str, launches: int, megabytes: float) -> None:
    program = compile_graph(step(*name.split(":")), find_target("cpu")).program
    assert program is not None
    counts = counted(program)
    assert counts["launches"] <= launches and counts["copies"] == 0
    assert counts["arena"] <= megabytes


def test_a_batch_is_learned() -> None:
    """From guesses, at the logarithm of the number of classes, to less than a third of that."""
    losses = _losses("cnn", "adam", 12)
    assert abs(losses[0] - math.log(CLASSES)) < 0.7 and losses[-1] < losses[0] / 3


def test_checkpoints_change_no_loss() -> None:
    plain, again = (_losses(model, "adam", 3) for model in ("gpt", "gpt again"))
    assert abs(plain[0] - math.log(CHARACTERS)) < 0.1 and plain[2] < plain[1] < plain[0]
    assert np.allclose(plain, again, rtol=1e-5)


def test_the_table() -> None:
    row = {"step": "cnn:sgd", "launches": 60, "copies": 2, "arena": 21.44, "wrong": ["torch: off"]}
    row |= {"times": {"tinyedge": [0.1, 0.2, 0.9], "torch": [0.1]}, "versions": {"torch": "2"}}
    lines = table([row | {"cold": {"tinyedge": 3.0, "torch": 1.0}}], ["torch"]).splitlines()
    assert lines[2] == "| cnn:sgd | 200 | 100 | 2.00x | 3.00x | 60 | 2 | 21.4 |"
    assert lines[-1] == "cnn:sgd, torch: off"


def test_weights_for_channels_last() -> None:
    """A product after a convolution takes what that gives in the other order."""
    rng = np.random.default_rng(0)
    filters, weight = rng.normal(size=(3, 2, 5, 5)), rng.normal(size=(7, 12))
    given = {"0.weight": Tensor(filters), "0.bias": Tensor(rng.normal(size=3))}
    found = page.turned({**given, "4.weight": Tensor(weight), "6.weight": Tensor(np.eye(7) + 1)})
    assert [found[name].shape for name in found] == [(5, 5, 2, 3), (3,), (12, 7), (7, 7)]
    assert (found["0.weight"][1, 4, 0] == filters[:, 0, 1, 4]).all()
    x = rng.normal(size=(1, 3, 2, 2))
    last = np.moveaxis(x, 1, -1).reshape(1, -1) @ found["4.weight"]
    assert np.allclose(last, x.reshape(1, -1) @ weight.T)


def test_the_table_of_pages() -> None:
    cpu = {"median": 0.2, "least": 0.1, "greatest": 0.25}
    side = {"cpu": cpu, "first": {"median": 1.0}, "objects": 0, "right": True, "losses": [2.3]}
    side["fetched"] = {"gzipped": 29_520}
    peer = side | {"cpu": {**cpu, "median": 2.0}, "objects": 9, "right": False, "losses": [2.4]}
    sides = {page.OURS: side, "tf.js, webgl": peer, "tf.js, wasm": {"error": "no kernel"}}
    result = {"sides": sides, "peer": "4", "chromium": "156"}
    lines = page.table(result).splitlines()
    assert lines[2] == "| tinyedge, webgpu | 200 | 100 to 250 |  | 1.00 | 0 | 29.5 |"
    assert lines[3] == "| tf.js, webgl | 2000 | 100 to 250 | 0.10x | 1.00 | 9 | 29.5 |"
    assert lines[4].startswith("| tf.js, wasm | no kernel |") and "2.4" in lines[-1]
    assert page.wrong(result)
