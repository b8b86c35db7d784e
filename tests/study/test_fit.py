"""The fit of the cost rules' constants chooses as the compiler does; it never asserts on a time."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from onnx import helper

from tests.study import __main__, fit, fit_single, report
from tinyedge.core.compiler import winograd
from tinyedge.core.compiler.optimize import tiles


def small() -> list[fit.Shape]:
    return [
        fit.convolution((1, 16, 8, 8), (16, 16, 3, 3), 1, 1),
        fit.product(7, 24, 48),
    ]


@pytest.fixture(scope="module")
def found() -> fit.Measured:
    return fit.measure_tiles(small()[1], "default", False, 1)


def test_shapes_of_a_network_are_there_once() -> None:
    shapes = fit.shapes(["resnet18"])
    names = [shape.name for shape in shapes]
    assert len(set(names)) == len(names) == 12
    assert "3x224x224, 7x7/2 to 64" in names and "1x512 by 512x1000" in names
    assert [shape.convolution for shape in shapes if shape.convolution] == [
        (64, 64, 56, 56),
        (128, 128, 28, 28),
        (256, 256, 14, 14),
        (512, 512, 7, 7),
    ]


def test_candidates_fit_the_registers() -> None:
    for profile, registers in (("default", 16), ("avx512", 33), ("sse", 16)):
        some = fit.candidates(profile, [7, 56])
        assert {(7, 1), (some[-1])} <= set(some) <= set(fit.candidates(profile, dense=True))
        assert all(a * b + b + 1 <= registers for a, b in some)


def test_the_rule_chooses_as_a_compile_does(found: fit.Measured) -> None:
    """With other constants the kernels are those that the compiler makes with them."""
    assert len(found.seconds) > 2
    now = fit.tile_constants("default")
    own = fit.text_of(fit.compiled(found.shape, "default"))
    assert fit.chosen_text(found, "default", now, 1) == own
    for sums, load_cost in ((1, 0.0), (30, 3)):
        values = {"SUMS_IN_FLIGHT": sums, "SUMS_SPILLED": sums, "load_cost": load_cost}
        text = fit.chosen_text(found, "default", values, 1)
        with fit.rule("default", values):
            assert text == fit.text_of(fit.compiled(found.shape, "default"))
        assert text in found.seconds and found.loss(text) >= 0
    assert fit.tile_constants("default") == now


def test_every_candidate_computes_the_same() -> None:
    for shape in small():
        want = None
        for tile in fit.candidates("default", [7, 8]):
            with fit.constants(tiles, fit.only(tile)):
                program = fit.compiled(shape, "default")
            with fit.Replay(program, fit.device.open(threads=1)) as replay:
                (got,) = replay.run(shape.inputs).values()
            want = got if want is None else want
            np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)


def test_a_loss_says_how_far_it_may_be_off() -> None:
    made = fit.Measured(small()[0])
    made.rounds = {"best": [1.0, 1.1, 9.0], "own": [3.0, 2.0, 2.4], "once": [5.0]}
    made.seconds = {text: min(rounds) for text, rounds in made.rounds.items()}
    assert made.loss("own") == 1.0
    assert made.unknown("own") == pytest.approx(0.1 + 0.2)
    assert made.unknown("best") == pytest.approx(0.1)
    assert made.unknown("once") == pytest.approx(0.1)


def test_all_kernels_are_measured_in_each_round() -> None:
    asked: list[Any] = []

    def seconds(program: Any, inputs: Any, runs: int) -> float:
        asked.append(program)
        return float(len(asked))

    with fit.constants(fit, {"seconds_of": seconds}):
        made = fit.measure_tiles(small()[1], "default", False, 1)
    kernels = len(made.programs)
    assert asked == [*made.programs.values()] * fit.ROUNDS
    assert min(made.seconds.values()) == 1 and max(made.seconds.values()) == kernels


def test_agreement_is_of_ranks(found: fit.Measured) -> None:
    now = fit.tile_constants("default")
    kept = dict(found.seconds)
    try:
        cost = {}
        for tile, text in found.tiles.items():
            with fit.constants(tiles, fit.only(tile)):
                calls = [c for c in found.calls if c[0] != tiles.MANY_ROWS]
                cost[text] = min(fit.answer((c[0], tile[1], *c[2:]), "default")[0] for c in calls)
        found.seconds.update(cost)  # as if the cost were right
        assert fit.agreement(found, "default", now) > 0.9
        found.seconds.update({text: -each for text, each in cost.items()})
        assert fit.agreement(found, "default", now) < -0.9
    finally:
        found.seconds.clear()
        found.seconds.update(kept)


def test_a_transform_is_chosen_as_the_compiler_does() -> None:
    measured = fit.measure_winograd(small()[0], "default", 1)
    assert set(measured.seconds) == {"plain", "F4", "F2"}
    dear = {"TRANSFORM": 1e6, "FILTER": 8.0, "LEAST_GAIN": 1.0}
    assert fit.chosen_transform(measured, dear) == "plain"
    free = {"TRANSFORM": 0.0, "FILTER": 0.0, "LEAST_GAIN": 1.0}
    assert fit.chosen_transform(measured, free) == "F4"
    now = {name: getattr(winograd, name) for name in fit.WINOGRAD_GRIDS}
    with fit.constants(winograd, free):
        assert "winograd4" in str(fit.compiled(small()[0], "default", 1e9).weights)
    for shape in fit.shapes(["resnet18"]):
        if shape.convolution:
            program = fit.compiled(shape, "default", 1e9)
            names = [weight.name for weight in program.weights]
            taken = fit.chosen_transform(fit.Measured(shape), now)
            assert any(f"winograd{taken[1]}" in n for n in names) == (taken != fit.PLAIN)


def test_constants_change_only_for_a_gain() -> None:
    now = {"a": 1.0}
    grid = {"a": (1.0, 2.0, 4.0)}
    for losses, want in (
        ({1.0: 0.1, 2.0: 0.098, 4.0: 0.099}, 1.0),
        ({1.0: 0.1, 2.0: 0.05, 4.0: 0.05}, 2.0),
    ):
        fitted, told = fit.search(grid, now, lambda p, losses=losses: losses[p["a"]])
        assert fitted == {"a": want} and told["now"] == 0.1
        fitted, _ = fit.search(grid, now, lambda p, losses=losses: losses[p["a"]], 0.06)
        assert fitted == now  # the gain is less than what is known


def test_the_report(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(fit, "shapes", lambda models, make=None: [] if make else small())
    monkeypatch.setattr(
        fit, "GRIDS", {"SUMS_IN_FLIGHT": (10,), "SUMS_SPILLED": (14,), "load_cost": (1.0,)}
    )
    monkeypatch.setattr(fit, "WINOGRAD_GRIDS", {"TRANSFORM": (12.0,), "FILTER": (8.0,)})
    monkeypatch.setattr(fit_single, "WINDOWS", ())
    monkeypatch.setattr(fit_single, "COLUMNS", ())
    assert __main__.main(["fit", "resnet18", "--rounds", "1"]) == 0
    said = capsys.readouterr().out
    assert "| load_cost | 1 | 1 |" in said
    assert "as good as any" in said
    assert "| BORDERS | 0.1 | 0.1 |" in said and "BORDERS decides kernels of 0 of 0" in said
    result: dict[str, Any] = fit.measure(["resnet18"], "default", False, 1, lambda _: None)
    assert [row["now_loss"] >= 0 for row in result["shapes"]] == [True, True]
    assert report.plots(fit.head([], "cpu", "default") | result) == {}


def alone(models: list[str]) -> list[fit.Shape]:
    """A shape of each constant's kind, which it decides."""
    node = helper.make_node("Conv", ["x", "w"], ["y"], group=8, strides=[1, 1], pads=[1] * 4)
    channels = fit_single.window(node, (1, 8, 24, 160), (8, 1, 3, 3))
    assert channels is not None and channels.inputs["x"].shape == (1, 24, 160, 8)
    assert fit_single.window(node, (1, 8, 24, 160), (16, 1, 3, 3)) is None
    first = fit_single.picture((1, 3, 120, 120), (32, 3, 3, 3), 1, 1)
    narrowing = [fit.product(*sizes) for sizes in ((3136, 96, 24), (784, 144, 32), (98, 16, 96))]
    inputs = {f"x{n}": each.inputs["x"] for n, each in enumerate(narrowing)}

    def products(**given: Any) -> Any:
        return tuple(narrowing[n].function(x) for n, x in enumerate(given.values()))

    network = fit.Shape("products", products, inputs)
    made = {"BORDERS": channels, "GAIN": fit.product(15, 24, 1000), "NUMBER": first}
    return [{**made, "LOSS": network}[name] for name in models]


@pytest.mark.parametrize("name", fit_single.CONSTANTS)
def test_a_constant_is_fitted_to_shapes_that_it_decides(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Each value's kernels are the compiler's own, and the fastest ones' value is taken."""
    constant = fit_single.CONSTANTS[name]
    (made,) = alone([name])
    kernels_of_every_value = fit.product(1, 8, 8)
    monkeypatch.setitem(
        fit_single.CONSTANTS,
        name,
        replace(constant, shapes=lambda models: [made, kernels_of_every_value]),
    )
    asked: list[str] = []

    def seconds(program: Any, inputs: Any, runs: int = 0) -> Any:
        asked.append(fit.text_of(program))
        taken = 1.0 + (asked[-1] == own)
        return taken if constant.target == "cpu" else (0.0, taken)

    own = fit.text_of(fit.compiled(made, "default", target=constant.target))
    monkeypatch.setattr(fit, "seconds_of", seconds)
    monkeypatch.setattr(fit_single, "device_seconds", seconds)
    result = fit_single.measure(name, [], "default", 1, lambda _: None)
    (row,) = result["rows"]
    assert row["tried"] == len({*asked}) > 1 and own in asked
    assert row["now_loss"] == 1.0 and row["fitted_loss"] == 0.0
    assert result["fitted"] != result["now"] == {name: getattr(constant.module, name)}
    assert {each["value"]: each["loss"] for each in result["values"]}[result["fitted"][name]] == 0
    assert result["shapes"] == 2
