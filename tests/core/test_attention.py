"""Attention in one kernel: where a graph has it, what is launched then, and what it costs."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.agreement import (
    Inputs,
    Tolerance,
    assert_agreement,
    compiled,
    find_target,
    reference,
    run,
)
from tinyedge.choices import find_fallback
from tinyedge.core import dtype as dt
from tinyedge.core.compiler.optimize.attend import Sizes, cost, plain_cost, plan, weighed_rows
from tinyedge.core.compiler.options import Options
from tinyedge.core.compiler.state import Compilation
from tinyedge.core.ir import ops
from tinyedge.core.ir.uop import toposort
from tinyedge.core.program.device import Device
from tinyedge.core.tensor.tensor import Tensor

RNG = np.random.default_rng(5)
ROWS, KEYS, SUMMED, COLUMNS = 20, 24, 8, 12
CLOSE = {"y": Tolerance(greatest=1e-5)}
Form = Callable[[Inputs], Tensor]


def floats(*shape: int) -> np.ndarray[Any, Any]:
    return RNG.normal(size=shape).astype(np.float32)


def operands(inputs: Inputs, *batch: int) -> tuple[Tensor, Tensor, Tensor]:
    """A query, keys and values."""
    shapes = ((ROWS, SUMMED), (KEYS, SUMMED), (KEYS, COLUMNS))
    q, k, v = (inputs.new(floats(*batch, *shape)) for shape in shapes)
    return q, k, v


def plain(inputs: Inputs) -> Tensor:
    q, k, v = operands(inputs, 2)
    return (q @ k.transpose()).softmax(-1) @ v


def scaled_on_both(inputs: Inputs) -> Tensor:
    q, k, v = operands(inputs, 2, 3)
    return ((q * 0.5) @ (k * 0.7).transpose()).softmax(-1) @ v


def merged_heads(inputs: Inputs) -> Tensor:
    """As batched products of three axes, side by side again afterwards."""
    q, k, v = operands(inputs, 2, 3)
    weights = (q @ k.transpose() / math.sqrt(SUMMED)).softmax(-1)
    mixed = weights.reshape((6, ROWS, KEYS)) @ v.reshape((6, KEYS, COLUMNS))
    mixed = mixed.reshape((2, 3, ROWS, COLUMNS)).permute((0, 2, 1, 3))
    return mixed.reshape((2, ROWS, 3 * COLUMNS))


def values_on_the_left(inputs: Inputs) -> Tensor:
    """v' @ softmax(k @ q')'."""
    q, k, v = operands(inputs, 2)
    weights = (k @ q.transpose()).softmax(1)
    return v.transpose() @ weights


def shared_heads(inputs: Inputs) -> Tensor:
    """Of three heads each, by a repeated view and by broadcasting."""
    q, k, v = operands(inputs, 2)
    queries = inputs.new(floats(2, 3, ROWS, SUMMED))
    scores = queries @ k.unsqueeze(1).transpose()
    return scores.softmax(-1) @ v.unsqueeze(1) + q.sum() * 0.0


def causal(inputs: Inputs) -> Tensor:
    q, k, v = operands(inputs, 2)
    seen = Tensor.arange(KEYS).reshape((1, -1)) <= Tensor.arange(ROWS).reshape((-1, 1))
    return seen.where(q @ k.transpose(), -np.inf).softmax(-1) @ v


def boolean_mask(inputs: Inputs) -> Tensor:
    """True where a key is seen, for each head; of some rows few are, of none no key."""
    q, k, v = operands(inputs, 2)
    seen = floats(2, ROWS, KEYS) > 1
    seen[:, :, 7] = True
    return inputs.new(seen).where(q @ k.transpose(), -np.inf).softmax(-1) @ v


def boolean_mask_of_keys(inputs: Inputs) -> Tensor:
    """The same for all rows and heads, as a mask of padding is."""
    q, k, v = operands(inputs, 2)
    seen = np.arange(KEYS) < 17
    return inputs.new(seen).where(q @ k.transpose(), -np.inf).softmax(-1) @ v


def added_mask(inputs: Inputs) -> Tensor:
    q, k, v = operands(inputs, 2)
    mask = np.where(floats(ROWS, KEYS) > 0, 0, -10000.0).astype(np.float32)
    return (q @ k.transpose() * 0.3 + inputs.new(mask)).softmax(-1) @ v


def safe_softmax(inputs: Inputs) -> Tensor:
    """As exporters write it: rows of which nothing is seen are 0."""
    q, k, v = operands(inputs, 2)
    mask = np.where(floats(ROWS, KEYS) > 0, 0, -np.inf).astype(np.float32)
    mask[3] = -np.inf
    weights = (q @ k.transpose() + inputs.new(mask)).softmax(-1)
    return weights.isnan().where(0.0, weights) @ v


def rows_without_keys(inputs: Inputs) -> Tensor:
    """As ONNX defines Attention: rows are 0 of which the mask says so."""
    q, k, v = operands(inputs, 2)
    mask = np.where(floats(ROWS, KEYS) > 0, 0, -np.inf).astype(np.float32)
    mask[3] = -np.inf
    given = inputs.new(mask)
    weights = (q @ k.transpose() + given).softmax(-1)
    unseen = given.max(-1, keepdims=True).eq(-np.inf).unsqueeze(0).expand(weights.shape)
    return unseen.where(0.0, weights) @ v


def cached(inputs: Inputs) -> Tensor:
    q, k, v = operands(inputs, 2)
    before, values = inputs.new(floats(2, 5, SUMMED)), inputs.new(floats(2, 5, COLUMNS))
    keys = Tensor.concat([before, k], 1)
    return (q @ keys.transpose()).softmax(-1) @ Tensor.concat([values, v], 1)


FORMS = (
    *(plain, scaled_on_both, merged_heads, values_on_the_left, shared_heads, causal),
    *(boolean_mask, boolean_mask_of_keys, added_mask, safe_softmax, rows_without_keys, cached),
)


def attentions(state: Compilation) -> int:
    """How many are one kernel."""
    found = sum(node.op is ops.ATTEND for node in toposort(state.roots))
    assert found == state.attention
    return found


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.__name__)
def test_a_graph_that_has_it(form: Form, device: Device, target: str) -> None:
    """One kernel gives what the graph means, and no scores lie in memory."""
    inputs = Inputs()
    outputs = {"y": form(inputs)}
    expected = reference(outputs, inputs, fp64_reference=True)
    state = compiled(outputs, inputs, find_target(target))
    assert attentions(state) == 1
    sizes = {buffer.bytes for buffer in state.program.buffers}  # type: ignore[union-attr]
    scores = {4 * heads * ROWS * KEYS for heads in (2, 6)}
    assert sizes.isdisjoint(scores - {4 * array.size for array in inputs.arrays.values()})
    assert_agreement(run(outputs, inputs, target, device), expected, CLOSE)


def of_columns(inputs: Inputs, columns: int) -> Tensor:
    """48 rows and keys of heads of so many columns."""
    q, k, v = (inputs.new(floats(3, 48, columns)) for _ in range(3))
    return (q @ k.transpose() / math.sqrt(columns)).softmax(-1) @ v


@pytest.mark.parametrize("columns", [1, 2, 5, 33, 40, 48, 80, 96, 128])
def test_heads_of_any_size(columns: int, device: Device, target: str) -> None:
    """One kernel, in whose place no scores lie in memory."""
    inputs = Inputs()
    outputs = {"y": of_columns(inputs, columns)}
    state = compiled(outputs, inputs, find_target(target))
    if target == "qcom" and columns == 128:
        assert attentions(state) == 0  # sums of two rows are more than an Adreno's registers
    else:
        assert attentions(state) == 1
        sizes = {buffer.bytes for buffer in state.program.buffers}  # type: ignore[union-attr]
        assert columns == 48 or 4 * 3 * 48 * 48 not in sizes
    expected = reference(outputs, inputs, fp64_reference=True)
    assert_agreement(run(outputs, inputs, target, device), expected, CLOSE)


@pytest.mark.parametrize("profile", ["default", "avx512", "sse", "neon"])
def test_heads_of_any_size_on_the_cpu(profile: str) -> None:
    """A tile of enough rows exists for each, whatever tile is best for a product."""
    for columns in (1, 7, 20, 33, 40, 48, 56, 72, 80, 96, 112, 160, 192, 256):
        inputs = Inputs()
        y = of_columns(inputs, columns)
        assert (
            attentions(compiled({"y": y}, inputs, find_target("cpu"), Options(profile=profile)))
            == 1
        )
        caps = find_target("cpu").caps(profile)
        assert weighed_rows(128, 128, columns, caps)[0] >= 6
    for rows, one in ((4, 0), (5, 0), (6, 1)):
        inputs = Inputs()
        q, k, v = (inputs.new(floats(3, n, 96)) for n in (rows, 48, 48))
        y = (q @ k.transpose()).softmax(-1) @ v
        state = compiled({"y": y}, inputs, find_target("cpu"), Options(profile=profile))
        assert attentions(state) == one


def test_one_launch() -> None:
    inputs = Inputs()
    y = plain(inputs)
    assert len(compiled({"y": y}, inputs, find_target("webgpu")).launches) == 1
    options = Options(attention=False)
    assert len(compiled({"y": y}, inputs, find_target("webgpu"), options).launches) == 3


def kept(inputs: Inputs) -> dict[str, Tensor]:
    q, k, v = operands(inputs)
    scores = q @ k.transpose()
    weights = scores.softmax(-1)
    return {"scores": scores, "weights": weights, "y": weights @ v}


def test_what_else_is_read_stays_in_memory() -> None:
    """Weights or scores that are outputs too are computed as before."""
    for name in ("scores", "weights"):
        inputs = Inputs()
        made = kept(inputs)
        outputs = {key: made[key] for key in (name, "y")}
        assert attentions(compiled(outputs, inputs, find_target("webgpu"))) == 0
    inputs = Inputs()
    assert attentions(compiled({"y": kept(inputs)["y"]}, inputs, find_target("webgpu"))) == 1


def test_reference_values_are_of_the_plain_graph() -> None:
    inputs = Inputs()
    y = plain(inputs)
    for options in (Options(fp64_reference=True), Options(optimize=False)):
        place = find_target("cpu" if options.fp64_reference else "webgpu")
        assert attentions(compiled({"y": y}, inputs, place, options)) == 0


def test_no_softmax_is_none() -> None:
    """Another divisor, another maximum, another axis."""
    inputs = Inputs()
    q, k, v = operands(inputs)
    scores = q @ k.transpose()
    e = (scores - scores.max(-1, keepdims=True)).exp()
    lower = (scores - scores.min(-1, keepdims=True)).exp()
    square = inputs.new(floats(KEYS, KEYS))
    for weights in (
        e / (e + 1.0).sum(-1, keepdims=True),
        e / e.sum(0, keepdims=True),
        lower / lower.sum(-1, keepdims=True),
    ):
        assert attentions(compiled({"y": weights @ v}, inputs, find_target("webgpu"))) == 0
    across = (square @ square).softmax(0) @ v
    assert attentions(compiled({"y": across}, inputs, find_target("webgpu"))) == 0
    given = square.softmax(-1) @ v  # scores that are in memory already
    assert attentions(compiled({"y": given}, inputs, find_target("webgpu"))) == 0


def test_long_rows_on_the_cpu(device: Device, target: str) -> None:
    """Of more keys than there is room for: vectors along them, where registers hold a tile. Of as
    many as there is room for weights lie where the scores were.
    """
    if target != "cpu":
        pytest.skip("of the cpu")
    for keys, arrays, kernels in ((5200, 0, (1, 1, 0)), (2600, 1, (1, 1, 1)), (200, 2, (1, 1, 1))):
        inputs = Inputs()
        q, k, v = (inputs.new(floats(1, n, c)) for n, c in ((300, 8), (keys, 8), (keys, 16)))
        outputs = {"y": (q @ k.transpose()).softmax(-1) @ v}
        for profile, expected in zip(("avx512", "default", "sse"), kernels, strict=True):
            state = compiled(outputs, inputs, find_target("cpu"), Options(profile=profile))
            assert attentions(state) == expected
            if expected:
                assert list(state.kernels.values())[-1].source.count("] __attribute") == arrays
        got = run(outputs, inputs, target, device, Options(profile="avx512"))
        assert_agreement(got, reference(outputs, inputs, fp64_reference=True), CLOSE)


def test_scores_and_weights_of_a_tile_lie_beside_a_thread() -> None:
    """Of as many rows as a product's tile has, if there is room for them; few keys are no whole
    vectors, and few rows use nothing twice.
    """
    for profile, rows in (("avx512", 7), ("default", 6), ("neon", 6), ("sse", 6)):
        caps = find_target("cpu").caps(profile)
        assert weighed_rows(256, 128, 64, caps)[0] >= rows
        assert weighed_rows(256, 4096, 64, caps)[0] == 4
        assert weighed_rows(256, 4097, 64, caps)[0] == weighed_rows(3, 128, 64, caps)[0] == 0
        assert weighed_rows(256, 3, 64, caps)[0] == 0
    assert weighed_rows(256, 49, 64, find_target("cpu").caps("avx512"))[0] == 0
    inputs = Inputs()
    state = compiled({"y": plain(inputs)}, inputs, find_target("cpu"))
    stages = [n for n in toposort((state.launches[-1].sink,)) if n.op is ops.STAGE]
    assert not stages
    moved = list(state.kernels.values())[-1].moved
    assert sum(node.op is ops.STAGE for node in toposort((moved,))) == 2


@pytest.mark.parametrize("profile", ["default", "avx512", "sse", "neon", "wasm"])
def test_scores_are_computed_once(profile: str) -> None:
    """Also where few heads leave few groups of rows: columns are not shared out."""
    target = find_fallback("wasm", "webgpu") if profile == "wasm" else find_target("cpu")
    chosen = "default" if profile == "wasm" else profile
    for heads, rows, columns in ((3, 197, 64), (1, 64, 128), (1, 48, 96)):
        inputs = Inputs()
        q, k, v = (inputs.new(floats(heads, rows, n)) for n in (64, 64, columns))
        y = (q @ k.transpose()).softmax(-1) @ v
        state = compiled({"y": y}, inputs, target, Options(profile=chosen))
        kernel = list(state.kernels.values())[-1]
        grid = [n for n in toposort((kernel.moved,)) if n.op is ops.RANGE and n.arg.kind == "grid"]
        assert 2 <= math.prod(n.src[0].arg for n in grid) <= heads * math.ceil(rows / 4)


def test_a_layer_keeps_its_columns_innermost() -> None:
    """The heads' results lie side by side, as the product behind them reads them."""
    for target in ("cpu", "webgpu"):
        inputs = Inputs()
        x = inputs.new(floats(197, 192))
        parts = [x @ Tensor.weight(n, floats(192, 192)) for n in "qkv"]
        heads = [part.reshape((197, 3, 64)).permute((1, 0, 2)) for part in parts]
        mixed = (heads[0] @ heads[1].transpose()).softmax(-1) @ heads[2]
        y = mixed.permute((1, 0, 2)).reshape((197, 192)) @ Tensor.weight("o", floats(192, 192))
        state = compiled({"y": y}, inputs, find_target(target))
        assert attentions(state) == 1
        (launch,) = (
            each
            for each in state.launches
            if any(n.op is ops.ATTEND_LOOP for n in toposort((each.sink,)))
        )
        made = launch.storages[0]
        assert made.shape[made.layout.order[-1]] == 64


VIT = Sizes(591, 197, 64, 64, 197)


def test_threads_share_the_keys_of_few_rows() -> None:
    caps = find_target("webgpu").caps("default")
    few, many = Sizes(64, 512, 64, 64, 64), Sizes(64 * 1024, 512, 64, 64, 1024)
    assert plan(few, caps).threads > 1
    assert plan(many, caps).threads == 1
    assert plan(few, replace(caps, shared=0)).threads == 1


def test_rows_of_a_thread_fit_registers() -> None:
    caps = find_target("webgpu").caps("default")
    for columns in (4, 32, 64, 128, 256, 1024):
        chosen = plan(Sizes(4096, 512, 64, columns, 512), caps)
        assert chosen.rows * chosen.columns <= caps.max_vector_registers / 2
        assert columns // 4 % chosen.columns == 0
    cuda = find_target("cuda").caps("default")
    assert plan(Sizes(768, 128, 64, 64, 128), cuda).threads == 2
    assert plan(Sizes(768, 128, 32, 32, 128), cuda).threads > 2


def test_costs() -> None:
    """One launch or three, whichever took less time where both were measured; scores that would
    fill a device's memory are never stored.
    """
    caps = find_target("webgpu").caps("default")
    small, bert = Sizes(768, 64, 32, 32, 64), Sizes(768, 128, 64, 64, 128)
    for sizes in (small, bert, VIT, Sizes(49152, 4096, 64, 64, 4096)):
        assert cost(sizes, caps) < plain_cost(sizes, caps)
    for sizes in (Sizes(1536, 128, 64, 64, 128), Sizes(6144, 512, 64, 64, 512)):
        assert cost(sizes, caps) > plain_cost(sizes, caps)


def test_threads_share_keys_where_that_pays_for_their_text() -> None:
    """Each part that threads combine is text, which a device compiles before its first run."""
    caps = find_target("webgpu").caps("default")
    assert plan(Sizes(1536, 128, 32, 32, 128), caps).threads == 1
    assert plan(VIT, caps).threads < plan(VIT, replace(caps, shares_sizes=False)).threads


def test_rows_of_a_head_share_what_they_load() -> None:
    """As many as registers allow, also where more threads would be busy otherwise; one where a
    head has one.
    """
    caps = find_target("webgpu").caps("default")
    assert plan(Sizes(768, 64, 32, 32, 64), caps).rows == 4
    assert plan(Sizes(1536, 128, 64, 64, 128), caps).rows == 2
    assert plan(Sizes(12, 128, 64, 64, 1), caps).rows == 1


def test_fp16_export(device: Device, target: str) -> None:
    if target == "cpu":
        pytest.skip("the cpu keeps no fp16 values")
    inputs = Inputs()
    outputs = {"y": causal(inputs)}
    state = compiled(outputs, inputs, find_target(target), Options(precision="fp16"))
    assert attentions(state) == 1
    expected = reference(outputs, inputs)
    got = run(outputs, inputs, target, device, Options(precision="fp16"))
    assert_agreement(got, expected, {"y": Tolerance(greatest=5e-3)})


def test_halves_between_softmax_and_product() -> None:
    """Weights that are rounded to halves are not rounded any more."""
    inputs = Inputs()
    q, k, v = operands(inputs, 2)
    weights = (q @ k.transpose()).softmax(-1).cast(dt.float16).cast(dt.float32)
    assert attentions(compiled({"y": weights @ v}, inputs, find_target("webgpu"))) == 1
