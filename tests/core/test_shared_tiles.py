"""Contractions on GPUs with workgroup memory: operands come through tiles that threads share."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from math import prod

import numpy as np
import pytest

from tests.agreement import (
    Inputs,
    Tolerance,
    assert_agreement,
    compiled,
    find_target,
    reference,
    replay,
)
from tests.core.test_tiles import convolution
from tinyedge.core.compiler.counters import workgroup_bytes
from tinyedge.core.compiler.optimize.move import IllegalMove
from tinyedge.core.compiler.optimize.reductions import reductions
from tinyedge.core.compiler.optimize.shared_tiles import STEPS, Work, choose_tile
from tinyedge.core.compiler.options import Options
from tinyedge.core.compiler.state import Compilation, CompiledKernel
from tinyedge.core.ir import ops
from tinyedge.core.ir.lowered import workgroup_buffers
from tinyedge.core.ir.uop import UOp, toposort
from tinyedge.core.program.device import Device
from tinyedge.core.tensor.tensor import Tensor

# Channels, filters, side of the picture and of the filter, step, groups: every shape of a
# convolution with more than one channel a group.
NETWORKS = {
    "MobileNetV2": [
        *((3, 32, 224, 3, 2, 1), (32, 16, 112, 1, 1, 1), (16, 96, 112, 1, 1, 1)),
        *((96, 24, 56, 1, 1, 1), (24, 144, 56, 1, 1, 1), (144, 24, 56, 1, 1, 1)),
        *((144, 32, 28, 1, 1, 1), (32, 192, 28, 1, 1, 1), (192, 32, 28, 1, 1, 1)),
        *((192, 64, 14, 1, 1, 1), (64, 384, 14, 1, 1, 1), (384, 64, 14, 1, 1, 1)),
        *((384, 96, 14, 1, 1, 1), (96, 576, 14, 1, 1, 1), (576, 96, 14, 1, 1, 1)),
        *((576, 160, 7, 1, 1, 1), (160, 960, 7, 1, 1, 1), (960, 160, 7, 1, 1, 1)),
        *((960, 320, 7, 1, 1, 1), (320, 1280, 7, 1, 1, 1)),
    ],
    "ResNet": [
        *((3, 64, 224, 7, 2, 1), (64, 64, 56, 3, 1, 1), (64, 128, 56, 3, 2, 1)),
        *((128, 128, 28, 3, 1, 1), (128, 256, 28, 3, 2, 1), (256, 256, 14, 3, 1, 1)),
        *((256, 512, 14, 3, 2, 1), (512, 512, 7, 3, 1, 1), (64, 256, 56, 1, 1, 1)),
        *((256, 64, 56, 1, 1, 1), (256, 512, 56, 1, 2, 1), (1024, 256, 14, 1, 1, 1)),
        *((2048, 512, 7, 1, 1, 1), (1024, 2048, 14, 1, 2, 1), (128, 128, 28, 3, 1, 32)),
    ],
    "YOLO": [
        *((3, 16, 320, 3, 2, 1), (16, 32, 160, 3, 2, 1), (32, 32, 80, 1, 1, 1)),
        *((16, 16, 80, 3, 1, 1), (48, 32, 80, 1, 1, 1), (64, 64, 40, 3, 1, 1)),
        *((384, 128, 20, 1, 1, 1), (256, 128, 10, 1, 1, 1), (64, 80, 40, 3, 1, 1)),
        *((80, 80, 40, 1, 1, 1), (128, 255, 10, 1, 1, 1)),
    ],
    "U-Net": [
        *((1, 32, 128, 3, 1, 1), (32, 32, 128, 3, 1, 1), (64, 64, 64, 3, 1, 1)),
        *((256, 512, 16, 3, 1, 1), (1024, 512, 16, 3, 1, 1), (64, 2, 128, 1, 1, 1)),
    ],
}
# What has no tile: so few filters, or steps of a sum, that nothing is shared.
SMALL = {(1, 32, 128, 3, 1, 1), (64, 2, 128, 1, 1, 1), (128, 128, 28, 3, 1, 32)}
SHAPES = sorted({shape for shapes in NETWORKS.values() for shape in shapes})


def cuda(outputs: dict[str, Tensor], inputs: Inputs) -> Compilation:
    return compiled(outputs, inputs, find_target("cuda"), Options(winograd=0))


def kernel_of(state: Compilation, flops: int) -> CompiledKernel:
    """The one that does as many operations, or a few more."""
    return min(state.kernels.values(), key=lambda kernel: abs(kernel.flops - flops))


def inner_loads(kernel: CompiledKernel) -> Iterator[UOp]:
    """What a kernel's sums load."""
    assert kernel.text is not None
    for node in kernel.text.linear.statements:
        if node.op is ops.SET:
            yield from (n for n in toposort(node.src[1:]) if n.op is ops.LOAD)


def _sums(kernel: CompiledKernel) -> Iterator[UOp]:
    assert kernel.text is not None
    yield from (n for n in kernel.text.linear.statements if n.op is ops.ACCUMULATOR)


def check(kernel: CompiledKernel, sums: int) -> None:
    """A tile in workgroup memory, of whole workgroups, which threads read without a test, each for
    so many sums. Products over sums of their own have tiles of their own.
    """
    assert kernel.text is not None
    statements, threads = kernel.text.linear.statements, kernel.text.geometry.threads
    assert 64 <= threads <= 256
    products = len({found.src[1:] for found in reductions(kernel.moved)})
    barriers = sum(node.op is ops.BARRIER for node in statements)
    assert products <= barriers <= 2 * products
    assert 0 < workgroup_bytes(kernel.text) <= 32 * 1024
    loads = list(inner_loads(kernel))
    assert loads and all(n.src[0].op is ops.SHARED and not n.arg for n in loads)
    assert sum(node.dtype.lanes for node in _sums(kernel)) >= sums


@pytest.mark.parametrize("shape", SHAPES, ids=lambda s: "-".join(map(str, s)))
def test_convolutions(shape: tuple[int, ...]) -> None:
    """Of every network, and which have none."""
    channels, filters, side, kernel, step, groups = shape
    state = cuda(*convolution(*shape))
    flops = 2 * prod((filters, channels // groups, kernel, kernel)) * ((side - 1) // step + 1) ** 2
    made = kernel_of(state, flops)
    assert made.text is not None
    if shape in SMALL:
        assert not workgroup_buffers(made.text.linear.statements)
    else:
        check(made, sums=8)


def _values(inputs: Inputs, *shape: int) -> Tensor:
    return inputs.new(np.random.default_rng(sum(shape)).normal(size=shape).astype(np.float32))


def plain(inputs: Inputs) -> Tensor:
    return _values(inputs, 64, 48) @ _values(inputs, 48, 40)


def odd(inputs: Inputs) -> Tensor:
    """Neither rows nor columns nor steps are whole vectors."""
    return (_values(inputs, 33, 13 * 3) @ _values(inputs, 13 * 3, 29)).relu()


def prime(inputs: Inputs) -> Tensor:
    """No part of the sum's 37 steps is a tile's; one operand has no other elements behind them."""
    return _values(inputs, 24, 37) @ _values(inputs, 37, 40).relu()


def two_primes(inputs: Inputs) -> Tensor:
    """A sum of 4 * 41 steps: parts of 4 are too short."""
    return _values(inputs, 3, 20, 41 * 4) @ _values(inputs, 41 * 4, 18)


def batched(inputs: Inputs) -> Tensor:
    scores = _values(inputs, 2, 3, 19, 32) @ _values(inputs, 2, 3, 32, 24)
    return scores @ _values(inputs, 2, 3, 24, 16)


def einsum(inputs: Inputs) -> Tensor:
    """b h i d, b h j d -> b i h j, of operands whose steps lie together."""
    a, b = _values(inputs, 2, 18, 3, 24), _values(inputs, 2, 20, 3, 24)
    return (a.permute((0, 2, 1, 3)) @ b.permute((0, 2, 3, 1))).permute((0, 2, 1, 3))


def residual(inputs: Inputs) -> Tensor:
    """What is summed is added to the result as well: only the sum reads a tile of it."""
    x = _values(inputs, 1, 32, 9, 9)
    weight = Tensor.weight("w", np.random.default_rng(0).normal(size=(32, 32, 1, 1)))
    return x.conv(weight.cast(x.dtype)) + x


def two_products(inputs: Inputs) -> Tensor:
    """As a block of a ResNet ends: the sums are of different lengths."""
    rng = np.random.default_rng(4)
    weights = [rng.normal(size=(32, n, 1, 1)).astype(np.float32) for n in (24, 48)]
    main = _values(inputs, 1, 24, 9, 9).conv(Tensor.weight("m", weights[0]))
    beside = _values(inputs, 1, 48, 17, 17).conv(Tensor.weight("b", weights[1]), strides=(2, 2))
    return (main + beside).relu()


def transposed(inputs: Inputs) -> Tensor:
    weight = np.random.default_rng(1).normal(size=(24, 16, 2, 2)).astype(np.float32)
    return _values(inputs, 1, 24, 9, 7).conv_transpose(Tensor.weight("w", weight), strides=(2, 2))


def grouped(inputs: Inputs) -> Tensor:
    weight = np.random.default_rng(2).normal(size=(32, 16, 3, 3)).astype(np.float32)
    pads = ((1, 1), (1, 1))
    return _values(inputs, 1, 32, 11, 10).conv(Tensor.weight("w", weight), pads=pads, groups=2)


def first_layer(inputs: Inputs) -> Tensor:
    weight = np.random.default_rng(3).normal(size=(16, 3, 7, 7)).astype(np.float32)
    pads = ((3, 3), (3, 3))
    return _values(inputs, 1, 3, 20, 20).conv(Tensor.weight("w", weight), pads=pads, strides=(2, 2))


PRODUCTS = (
    *(plain, odd, prime, two_primes, batched, einsum),
    *(residual, two_products, transposed, grouped, first_layer),
)


@pytest.mark.parametrize("precision", ["fp32", "fp16"])
@pytest.mark.parametrize("build", PRODUCTS, ids=lambda build: build.__name__)
def test_values(build: Callable[[Inputs], Tensor], precision: str, cuda_device: Device) -> None:
    inputs = Inputs()
    outputs = {"y": build(inputs)}
    state = compiled(outputs, inputs, find_target("cuda"), Options(precision=precision, winograd=0))
    assert state.program is not None
    for kernel in state.kernels.values():
        if kernel.contraction:
            check(kernel, sums=8)
    expected = reference(outputs, inputs, fp64_reference=True)
    tolerances = {"y": Tolerance(greatest=1e-2)} if precision == "fp16" else None
    assert_agreement(replay(state.program, cuda_device, inputs.arrays), expected, tolerances)


LARGE = 4 * 16  # sums of a thread, of the largest tile


def _large(inputs: Inputs) -> Tensor:
    return _values(inputs, 1024, 64) @ _values(inputs, 64, 1024)


@pytest.mark.parametrize(
    ("function", "sums"),
    [
        (lambda y: y.relu(), LARGE),
        (lambda y: y * y.sigmoid(), 4 * 12),
        (lambda y: y.gelu(), 4 * 12),
        (lambda y: y.tanh(), 4 * 12),
    ],
    ids=["relu", "silu", "gelu", "tanh"],
)
def test_functions_of_results_take_registers(
    function: Callable[[Tensor], Tensor], sums: int
) -> None:
    """A compiler computes those of all results at once, so that a thread has fewer results."""
    inputs = Inputs()
    (kernel,) = cuda({"y": function(_large(inputs))}, inputs).kernels.values()
    assert sum(node.dtype.lanes for node in _sums(kernel)) == sums


def test_functions_before_a_sum_take_none() -> None:
    inputs = Inputs()
    y = _values(inputs, 1024, 64).exp() @ _values(inputs, 64, 1024)
    *_, kernel = cuda({"y": y}, inputs).kernels.values()
    assert sum(node.dtype.lanes for node in _sums(kernel)) == LARGE


def test_what_is_loaded_under_conditions_takes_registers() -> None:
    """8 vectors for a tile of 12 of sums, of which 6 are tested at the border, are too many."""
    state = cuda(*convolution(16, 32, 160, 3, 2, 1))
    kernel = kernel_of(state, 2 * 32 * 16 * 9 * 80**2)
    assert sum(node.dtype.lanes for node in _sums(kernel)) == 4 * 6
    plain = choose_tile(Work(6400, 32), state.caps)
    assert (plain.results, plain.filled(STEPS)) == (12, 8)


def test_no_tile_fits_in_registers() -> None:
    caps = find_target("cuda").profiles["default"]
    with pytest.raises(IllegalMove, match="no tile of 3 sums and 96 steps fits in registers"):
        choose_tile(Work(4096, 256, steps=96, sums=3, tested=True), caps)


def test_a_loop_of_many_sums_stays_a_loop() -> None:
    """NVRTC is told so from 48 sums of a thread on, of the loop over a tile's steps alone."""
    inputs = Inputs()
    outputs = {"y": _large(inputs), "z": _values(inputs, 64, 48) @ _values(inputs, 48, 40)}
    large, small = sorted(cuda(outputs, inputs).kernels.values(), key=lambda k: -k.flops)
    assert sum(node.dtype.lanes for node in _sums(small)) < 48 <= LARGE
    assert "#pragma" not in small.source
    (line,) = (n for n, text in enumerate(large.source.split("\n")) if "#pragma" in text)
    first, loop = large.source.split("\n")[line : line + 2]
    assert first.strip() == "#pragma unroll 1" and loop.strip().startswith("for (int ")
    assert large.source.count("for (") == 2


def test_stores_of_tiles_that_are_rounded_up_have_no_limits() -> None:
    """Their condition says that they are inside; loads have none, and limits."""
    inputs = Inputs()
    (kernel,) = cuda({"y": odd(inputs) + _values(inputs, 33, 29)}, inputs).kernels.values()
    stores = [line for line in kernel.source.split("\n") if re.match(r" *if \(.*b0\[", line)]
    limited = re.findall(r"int (i\d+) = .*te_min", kernel.source)
    assert stores and limited
    assert not any(re.search(rf"b0\[[^\]]*\b{name}\b", s) for s in stores for name in limited)


@pytest.mark.parametrize("name", ["webgpu", "qcom"])
@pytest.mark.parametrize("build", PRODUCTS, ids=lambda build: build.__name__)
def test_other_targets_have_tiles_by_profile(
    build: Callable[[Inputs], Tensor], name: str, request: pytest.FixtureRequest
) -> None:
    inputs = Inputs()
    outputs = {"y": build(inputs)}
    state = compiled(outputs, inputs, find_target(name), Options(profile="shared", winograd=0))
    assert state.program is not None
    for kernel in state.kernels.values():
        if kernel.contraction:
            check(kernel, sums=8)
            assert kernel.text is not None and workgroup_bytes(kernel.text) <= 16 * 1024
    expected = reference(outputs, inputs, fp64_reference=True)
    device: Device = request.getfixturevalue(f"{name}_device")
    assert_agreement(replay(state.program, device, inputs.arrays), expected)


def test_wide_tiles_of_webgpu(webgpu_device: Device) -> None:
    """Eight rows by two vectors a thread, where enough threads are left."""
    inputs = Inputs()
    outputs = {"y": _values(inputs, 512, 40) @ _values(inputs, 40, 512)}
    state = compiled(outputs, inputs, find_target("webgpu"), Options(profile="wide"))
    assert state.program is not None
    (kernel,) = state.kernels.values()
    assert len(list(_sums(kernel))) == 16
    expected = reference(outputs, inputs, fp64_reference=True)
    assert_agreement(replay(state.program, webgpu_device, inputs.arrays), expected)
