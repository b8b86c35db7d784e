"""Kernels that differ in sizes alone take as few tiles as costs little."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.agreement import Inputs, assert_agreement, compiled, find_target, reference, replay
from tests.core.test_sizes import copies, layers
from tinyedge.core.compiler.optimize.choose import choose
from tinyedge.core.compiler.optimize.common_tiles import LOSS, Chosen, common_tiles
from tinyedge.core.compiler.optimize.move import ranges
from tinyedge.core.compiler.optimize.tiles import tile_cost
from tinyedge.core.compiler.state import Compilation
from tinyedge.core.ir.uop import UOp
from tinyedge.core.program.device import Device

# As MobileNetV2's that narrow: many pixels of few channels, and the other way round.
NARROWING = [(12544, 32, 16), (3136, 96, 24), (784, 144, 32)]

# A GPU that takes many threads to be busy: the fewer rows a product has, the smaller its tiles, of
# one vector each.
_WEBGPU = find_target("webgpu")
_DEFAULT = _WEBGPU.profiles["default"]
_ONE_VECTOR = tuple(size for size in _DEFAULT.tiles if size[1] == 1)
_WIDE = replace(_DEFAULT, threads_to_saturate=4096, tiles=_ONE_VECTOR)
WIDE = replace(_WEBGPU, profiles={"default": _WIDE})


def chosen(*shapes: tuple[int, int, int], target: str = "webgpu") -> tuple[Compilation, list[UOp]]:
    """Products as they are compiled, and each with the moves that are best for it alone."""
    inputs = Inputs()
    state = compiled(
        layers(inputs, *shapes), inputs, WIDE if target == "webgpu" else find_target(target)
    )
    alone = [choose(k.sink, state.caps, k.contraction)[0] for k in state.kernels.values()]
    return state, alone


def test_kernels_of_several_tiles_become_one(webgpu_device: Device) -> None:
    state, alone = chosen(*NARROWING)
    assert [copies(moved) for moved in alone] == [8, 4, 2]
    assert [copies(kernel.moved) for kernel in state.kernels.values()] == [4, 4, 4]
    inputs = Inputs()
    outputs = layers(inputs, *NARROWING)
    program = compiled(outputs, inputs, WIDE).program
    assert program is not None
    assert len(program.kernels) == 1
    expected = reference(outputs, inputs, fp64_reference=True)
    assert_agreement(replay(program, webgpu_device, inputs.arrays), expected)


def test_only_what_costs_little_is_given_up() -> None:
    """49 rows in tiles of 2 are 50; in tiles of 4, which the others take, they are 52."""
    state, alone = chosen((196, 64, 384), (784, 64, 384), (49, 64, 384))
    assert [copies(moved) for moved in alone] == [4, 8, 2]
    assert [copies(kernel.moved) for kernel in state.kernels.values()] == [4, 4, 2]


@pytest.mark.parametrize("shapes", [NARROWING, [(196, 64, 384), (784, 64, 384), (98, 16, 96)]])
def test_the_estimate_of_each_grows_by_the_loss_at_most(shapes: list[tuple[int, int, int]]) -> None:
    state, alone = chosen(*shapes)
    kernels = list(state.kernels.values())
    given = [
        Chosen(k.sink, k.contraction, moved, choose(k.sink, state.caps, k.contraction)[1])
        for k, moved in zip(kernels, alone, strict=True)
    ]
    found = common_tiles(given, state.caps, choose)
    assert found
    for position, (moved, _) in found.items():
        before, after = (_cost(state, kernels[position].sink, m) for m in (alone[position], moved))
        assert before <= after <= before * (1 + LOSS)


def _cost(state: Compilation, sink: UOp, moved: UOp) -> float:
    """Of a product whose last axis has vectors of 4: computed from its ranges anew."""
    sizes = {r.arg.number: (r.arg.kind, int(r.src[0].arg)) for r in ranges(moved)}
    threads = 1
    for kind, size in sizes.values():
        threads *= size if kind in ("loop", "local", "grid") else 1
    results = 1
    for r in ranges(sink):
        results *= int(r.src[0].arg) if r.arg.kind == "loop" else 1
    rows = copies(moved)
    return tile_cost((rows, 1), threads * rows * 4 / results, threads, state.caps)


def test_other_targets_keep_the_best_tile_of_each() -> None:
    state, alone = chosen(*NARROWING, target="cuda")
    assert [kernel.moved for kernel in state.kernels.values()] == alone
