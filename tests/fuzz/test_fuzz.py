"""A hundred random graphs on the cpu, some of them on the others, optimized and not."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.agreement import compiled, find_target
from tests.fuzz.recipes import Step, disagreements, expectations, generate, leaves
from tests.fuzz.runner import drafted, failures
from tests.fuzz.shrink import shrink
from tests.fuzz.structures import members
from tinyedge.core.compiler.options import Options
from tinyedge.core.program.device import Device
from tinyedge.export.package.package import write_bundle
from tinyedge.export.verify.browser import Browser

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


@pytest.mark.parametrize("seed", [0, 1])
def test_kernels_that_read_their_sizes(seed: int, webgpu_device: Device) -> None:
    """Four of each structure in one program: what differs in sizes alone shares kernels."""
    recipes = members(seed, 4)
    state = compiled(*drafted(recipes), find_target("webgpu"))
    assert sum(kernel.groups > 0 for kernel in state.kernels.values()) >= 40
    found = failures(recipes, "webgpu", webgpu_device, Options())
    assert not found, "\n\n".join(found)


@pytest.mark.browser
def test_kernels_that_read_their_sizes_in_a_browser(browser: Browser, tmp_path: Path) -> None:
    tensors, inputs = drafted(members(2, 4))
    expected, scales = expectations(tensors, inputs)
    program = compiled(tensors, inputs, find_target("webgpu")).program
    assert program is not None
    bundle = write_bundle(program, tmp_path / "model.tinyedge")
    actual, stats = browser.run_in_page(bundle, inputs.arrays)
    assert stats["pipelines"] == len(program.kernels)
    assert stats["pipelines"] < 0.6 * stats["launches"]
    found = disagreements(actual, expected, scales)
    assert not found, "\n".join(found)
