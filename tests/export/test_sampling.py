"""Reading between elements, and regions of images: beside onnxruntime and other operators."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from onnx import helper, numpy_helper

from tests.export.hostile import info, model
from tests.export.test_operators import compare, floats
from tests.imported import import_model
from tinyedge.core.errors import InputError
from tinyedge.core.ir.reference import evaluate


@pytest.mark.parametrize("seed", range(12))
def test_deformable_convolution(seed: int) -> None:
    """Offsets far outside, strides, dilations, groups of channels and of offsets, masks."""
    rng = random.Random(seed)
    groups, kinds = rng.choice([1, 2]), rng.choice([1, 2, 4])
    kernel = [rng.randint(1, 3), rng.randint(1, 3)]
    strides, dilations = [rng.randint(1, 2), 1], [1, rng.randint(1, 2)]
    pads = [rng.randint(0, 2) for _ in range(4)]
    sizes = (7, 8)
    out = [
        (sizes[a] + pads[a] + pads[a + 2] - (kernel[a] - 1) * dilations[a] - 1) // strides[a] + 1
        for a in (0, 1)
    ]
    taps = kinds * kernel[0] * kernel[1]
    mask = floats(2, taps, *out, seed=4) if rng.random() < 0.5 else None
    bias = floats(6, seed=3) if rng.random() < 0.5 else None
    operands = [
        floats(2, 4, *sizes),
        floats(6, 4 // groups, *kernel, seed=1),
        3 * floats(2, 2 * taps, *out, seed=2),
        bias,
        mask,
    ]
    compare(
        "DeformConv",
        19,
        operands,
        group=groups,
        offset_group=kinds,
        pads=pads,
        strides=strides,
        dilations=dilations,
    )


@pytest.mark.parametrize("spatial", [1, 2, 3])
def test_deformable_convolution_without_offsets_is_a_convolution(spatial: int) -> None:
    """Over any number of axes; whole offsets read whole elements further on."""
    x, weight = floats(2, 2, *(6, 7, 5)[:spatial]), floats(3, 2, *(2,) * spatial, seed=1)
    sizes = tuple(size - 1 for size in x.shape[2:])
    offset = np.zeros((2, spatial * 2**spatial, *sizes), np.float32)
    names = ["x", "w", "o"]
    shapes = [info("x", list(x.shape)), info("o", list(offset.shape))]
    weights = [numpy_helper.from_array(weight, "w")]

    def run(op: str, operands: list[str], **feeds: Any) -> Any:
        node = helper.make_node(op, operands, ["y"])
        inputs = [value for value in shapes if value.name in operands]
        proto = model([node], inputs=inputs, weights=weights, opset=22)
        imported = import_model(proto.SerializeToString())
        return evaluate([imported.outputs["y"].node], feeds)[0]

    plain = run("Conv", ["x", "w"], x=x)
    np.testing.assert_allclose(run("DeformConv", names, x=x, o=offset), plain, atol=1e-5)
    moved = run("DeformConv", names, x=x, o=offset + 1)
    inner = (slice(None),) * 2 + (slice(None, -1),) * spatial
    ahead = (slice(None),) * 2 + (slice(1, None),) * spatial
    np.testing.assert_allclose(moved[inner], plain[ahead], atol=1e-5)


def test_deformable_convolution_of_other_offsets_is_refused() -> None:
    shapes = {"x": [1, 2, 5, 5], "w": [1, 2, 2, 2], "o": [1, 7, 4, 4]}
    inputs = [info(name, shape) for name, shape in shapes.items()]
    node = helper.make_node("DeformConv", list(shapes), ["y"])
    with pytest.raises(InputError, match="offsets of"):
        import_model(model([node], inputs=inputs, opset=22).SerializeToString())


@pytest.mark.parametrize("scale", [1.0, 0.75])
@pytest.mark.parametrize("shape", [[1, 1], [3, 2], [7, 9]])
def test_max_roi_pool(shape: list[int], scale: float) -> None:
    """Regions that are small, empty, turned round, partly or wholly outside, and at halves."""
    rois = [
        [0, 1, 1, 5, 5],
        [1, 0.5, 0.4, 20, 3.5],
        [1, 6, 6, 2, 2],
        [0, -3, -3, 1, 1],
        [0, 9, 9, 12, 12],
        [1, 2, 2, 2, 2],
    ]
    operands = [floats(2, 3, 7, 8) - 5, np.array(rois, np.float32)]
    compare("MaxRoiPool", 7, operands, pooled_shape=shape, spatial_scale=scale)


@pytest.mark.parametrize("mode", ["bilinear", "nearest", "bicubic"])
@pytest.mark.parametrize("border", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("align", [0, 1])
def test_grid_sample_beyond_the_borders(mode: str, border: str, align: int) -> None:
    grid = 1.6 * np.tanh(floats(2, 5, 6, 2, seed=3))
    x = floats(2, 3, 4, 5)
    compare("GridSample", 16, [x, grid], mode=mode, padding_mode=border, align_corners=align)
