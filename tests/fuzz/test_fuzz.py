"""A hundred random graphs on the cpu, some of them on the others, optimized and not."""

from __future__ import annotations

import pytest

from tests.fuzz.recipes import Step, generate, leaves
from tests.fuzz.runner import failures
from tests.fuzz.shrink import shrink
from tinyedge.core.compiler.options import Options
from tinyedge.core.program.device import Device

TOGETHER = 20


@pytest.mark.parametrize("optimize", [True, False], ids=["optimized", "plain"])
@pytest.mark.parametrize("first", range(0, 100, TOGETHER))
def test_on_the_cpu(first: int, optimize: bool, cpu_device: Device) -> None:
    recipes = {f"g{seed}": generate(seed) for seed in range(first, first + TOGETHER)}
    found = failures(recipes, "cpu", cpu_device, Options(optimize=optimize))
    assert not found, "\n\n".join(found)


@pytest.mark.parametrize("optimize", [True, False], ids=["optimized", "plain"])
def test_on_webgpu(optimize: bool, webgpu_device: Device) -> None:
    recipes = {f"g{seed}": generate(seed) for seed in range(111, 121)}
    found = failures(recipes, "webgpu", webgpu_device, Options(optimize=optimize))
    assert not found, "\n\n".join(found)


@pytest.mark.parametrize(
    "optimize",
    [True, pytest.param(False, marks=pytest.mark.slow)],  # PoCL compiles slowly
    ids=["optimized", "plain"],
)
def test_on_qcom(optimize: bool, qcom_device: Device) -> None:
    recipes = {f"g{seed}": generate(seed) for seed in range(121, 131)}
    found = failures(recipes, "qcom", qcom_device, Options(optimize=optimize))
    assert not found, "\n\n".join(found)


@pytest.mark.parametrize("optimize", [True, False], ids=["optimized", "plain"])
def test_on_cuda(optimize: bool, cuda_device: Device) -> None:
    recipes = {f"g{seed}": generate(seed) for seed in range(131, 151)}
    found = failures(recipes, "cuda", cuda_device, Options(optimize=optimize))
    assert not found, "\n\n".join(found)


# Found by longer runs: a loop that gcc 12 vectorizes wrongly, reductions over different axes.
ONCE_WRONG = (1093, 5056, 5661)


@pytest.mark.parametrize("optimize", [True, False], ids=["optimized", "plain"])
def test_what_was_wrong_once(optimize: bool, cpu_device: Device) -> None:
    recipes = {f"g{seed}": generate(seed) for seed in ONCE_WRONG}
    found = failures(recipes, "cpu", cpu_device, Options(optimize=optimize))
    assert not found, "\n\n".join(found)


def test_recipes_are_reproducible_and_varied() -> None:
    recipes = [generate(seed) for seed in range(100)]
    assert recipes == [generate(seed) for seed in range(100)]
    used = {step.op for recipe in recipes for step in recipe}
    assert used >= {"conv", "matmul", "gather", "concat", "window", "softmax", "where", "assign"}
    assert all(leaves(recipe) for recipe in recipes)


def test_shrinking() -> None:
    """A recipe that fails when it holds a flip is shrunk to little more than the flip."""
    recipe = next(
        r for r in map(generate, range(200)) if any(s.op == "flip" for s in r) and len(r) > 8
    )
    small = shrink(recipe, lambda r: any(step.op == "flip" for step in r))
    assert [step.op for step in small if step.op not in ("input", "weight")] == ["flip"]
    assert len(small) <= 2
    assert isinstance(small[0], Step)
