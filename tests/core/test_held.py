"""Small results that the next kernel computes anew: which are, and what their kernels do."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.agreement import (
    HALF_TOLERANCE,
    Inputs,
    Tolerance,
    assert_agreement,
    compiled,
    find_target,
    reference,
    replay,
)
from tests.core.test_moves import floats
from tinyedge.core.compiler.optimize.blocks import Partials
from tinyedge.core.compiler.optimize.move import IllegalMove, numbers
from tinyedge.core.compiler.options import Options
from tinyedge.core.compiler.state import Compilation
from tinyedge.core.ir import ops
from tinyedge.core.ir.spec import stage_length
from tinyedge.core.ir.uop import UOp, toposort
from tinyedge.core.program.device import Device
from tinyedge.core.tensor.tensor import Tensor

Outputs = dict[str, Tensor]


def layer(x: Tensor, columns: int) -> Tensor:
    rows = x.shape[-1]
    assert isinstance(rows, int)
    weight = Tensor.weight("", floats(rows, columns) / rows**0.5)
    return x @ weight + Tensor.weight("", floats(columns))


def layers(inputs: Inputs) -> Outputs:
    """The two layers of a squeeze-and-excite block, of sizes that no vector divides."""
    return {"y": layer(layer(inputs.new(floats(1, 60)), 15).relu(), 90).sigmoid()}


def squeezed(inputs: Inputs) -> Outputs:
    """The whole block: means, two layers, and the scaled tensor."""
    x = inputs.new(floats(1, 96, 14, 14))
    scale = layer(layer(x.mean((2, 3)), 24).relu(), 96).sigmoid()
    return {"y": x * scale.reshape((1, 96, 1, 1))}


def _state(build: Callable[[Inputs], Outputs], target: str, optimize: bool = True) -> Compilation:
    inputs = Inputs()
    return compiled(build(inputs), inputs, find_target(target), Options(optimize=optimize))


def _stages(sink: UOp) -> list[UOp]:
    return [n for n in toposort((sink,)) if n.op is ops.STAGE]


@pytest.mark.parametrize("precision", ["fp32", "fp16"])
@pytest.mark.parametrize("build", [layers, squeezed])
def test_they_agree(
    build: Callable[[Inputs], Outputs], precision: str, target: str, device: Device
) -> None:
    inputs = Inputs()
    outputs = build(inputs)
    state = compiled(outputs, inputs, find_target(target), Options(precision=precision))
    assert state.program is not None
    held = sum(bool(_stages(launch.sink)) for launch in state.launches)
    assert held == bool(state.caps.room)
    expected = reference(outputs, inputs)
    given = {"y": Tolerance(greatest=HALF_TOLERANCE)} if precision == "fp16" else None
    assert_agreement(replay(state.program, device, inputs.arrays), expected, given)


def test_one_launch_computes_both_layers(target: str) -> None:
    """Where there is memory for a stage."""
    state = _state(layers, target)
    if not state.caps.room:
        assert len(state.launches) == 2
        return
    (launch,) = state.launches
    (stage,) = _stages(launch.sink)
    assert stage_length(stage) == 15
    assert [s.role for s in launch.storages].count("scratch") == 0


def test_all_threads_compute_what_is_held() -> None:
    """15 sums of 60 are too few for 64 threads: they are computed in six parts."""

    def build(inputs: Inputs) -> Outputs:
        return {"y": layer(layer(inputs.new(floats(1, 60)), 15).relu(), 256)}

    (launch,) = (state := _state(build, "webgpu")).launches
    kernel = state.kernels[launch.sink]
    assert kernel.text is not None
    assert kernel.text.geometry.workgroup == (64, 1, 1)
    assert [stage_length(stage) for stage in _stages(kernel.moved)] == [90, 15]


def test_on_a_processor_it_is_computed_once() -> None:
    """There are as many groups as times that a stage is filled."""
    (launch,) = (state := _state(layers, "cpu")).launches
    kernel = state.kernels[launch.sink]
    assert kernel.text is not None and kernel.text.geometry.grid == (1,)


def _large(inputs: Inputs) -> Outputs:
    return {"y": layer(layer(inputs.new(floats(1, 512)), 512).relu(), 512)}


def _read_twice(inputs: Inputs) -> Outputs:
    hidden = layer(inputs.new(floats(1, 60)), 15).relu().realize()
    return {"y": layer(hidden, 90), "z": layer(hidden, 24).tanh()}


def _wanted(inputs: Inputs) -> Outputs:
    hidden = layer(inputs.new(floats(1, 60)), 15).relu().realize()
    return {"hidden": hidden, "y": layer(hidden, 90)}


def _by_rows(inputs: Inputs) -> Outputs:
    """Each row of the second product needs one of the first: a workgroup computes few of them."""
    return {"y": layer(layer(inputs.new(floats(32, 60)), 15).relu(), 90)}


def _single(inputs: Inputs) -> Outputs:
    """One number, which has no range that a stage could have."""
    return {"y": layer(layer(inputs.new(floats(1, 60)), 1).relu(), 90)}


@pytest.mark.parametrize("build", [_large, _read_twice, _wanted, _by_rows, _single])
def test_what_stays_apart(build: Callable[[Inputs], Outputs], target: str) -> None:
    state = _state(build, target)
    assert not any(_stages(launch.sink) for launch in state.launches)


@pytest.mark.parametrize(
    ("width", "hidden", "launches"), [(672, 28, 1), (1152, 48, 1), (2304, 48, 2), (1156, 48, 2)]
)
def test_what_workgroups_repeat_is_little(width: int, hidden: int, launches: int) -> None:
    """A second workgroup would compute 48 sums of 2304 again, which takes longer than a launch. 256
    threads have at most two vectors each, equally many: 1156 is 289 of them.
    """

    def build(inputs: Inputs) -> Outputs:
        return {"y": layer(layer(inputs.new(floats(1, width)), hidden).relu(), width)}

    state = _state(build, "webgpu")
    assert len(state.launches) == launches
    if launches == 1:
        (kernel,) = state.kernels.values()
        assert kernel.text is not None and kernel.text.geometry.grid == (1, 1, 1)


@pytest.mark.parametrize(("size", "launches"), [(5, 1), (56, 2)])
def test_means_are_held_by_what_is_held(size: int, launches: int) -> None:
    """A layer of which the next needs all, of means of which the layer needs all: three results in
    one launch, where the image is small.
    """

    def build(inputs: Inputs) -> Outputs:
        means = inputs.new(floats(1, 96, size, size)).mean((2, 3))
        return {"y": layer(layer(means, 24).relu(), 96).sigmoid()}

    state = _state(build, "webgpu")
    assert len(state.launches) == launches
    lengths = [stage_length(stage) for stage in _stages(state.launches[-1].sink)]
    assert lengths == [96, 24][launches - 1 :]


def _chain(inputs: Inputs) -> Outputs:
    """Each of three layers needs all of the one before."""
    y = inputs.new(floats(1, 60))
    for columns in (15, 30, 90):
        y = layer(y, columns).relu()
    return {"y": y}


def test_a_chain_of_layers_is_one_launch(target: str, device: Device) -> None:
    inputs = Inputs()
    outputs = _chain(inputs)
    state = compiled(outputs, inputs, find_target(target), Options())
    assert state.program is not None
    assert len(state.launches) == (1 if state.caps.room else 3)
    assert_agreement(replay(state.program, device, inputs.arrays), reference(outputs, inputs))


def test_plain_kernels_hold_nothing(target: str) -> None:
    assert len(_state(layers, target, optimize=False).launches) == 2


def test_parts_are_of_a_stages_sum() -> None:
    state = _state(layers, "webgpu")
    (launch,) = state.launches
    sink = launch.sink
    free = max(numbers(sink)) + 1
    (stage,) = _stages(sink)
    (inner,) = (n for n in toposort((stage,)) if n.op is ops.REDUCE_LOOP)
    number = inner.src[1].arg.number
    (outer,) = (n for n in toposort((sink,)) if n.op is ops.REDUCE_LOOP and n is not inner)
    for move, text in [
        (Partials(stage.src[1].arg.number, 3, free), "it is staged"),
        (Partials(number, 7, free), "60 by 7"),
        (Partials(number, 60, free), "60 by 60"),
        (Partials(number, 4, number), "is taken"),
        (Partials(outer.src[1].arg.number, 3, free), "it is of no stage's one sum"),
    ]:
        with pytest.raises(IllegalMove, match=text):
            move.apply(sink, state.caps)
    moved = Partials(number, 4, free).apply(sink, state.caps)
    assert [stage_length(s) for s in _stages(moved)] == [60, 15]
