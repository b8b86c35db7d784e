"""Bundles on an adapter of WebGPU's compatibility mode; real models are in tests/realmodels."""

from __future__ import annotations

from pathlib import Path

import pytest

import tinyedge
from tests.process_replay import corpus
from tests.runtimes.compatible import Compatible

GRAPHS = ("convolution", "depthwise", "softmax", "layer_norm", "pooling", "concatenation")


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    paths = {name: tmp_path / f"{name}.onnx" for name in GRAPHS}
    for name, path in paths.items():
        path.write_bytes(corpus.GRAPHS[name]().SerializeToString())
    first, *others = GRAPHS
    return tinyedge.export_onnx(
        paths[first],
        entries={name: paths[name] for name in others},
        dims={"rows": 8, "columns": 5},
        out=tmp_path / "b",
    )


@pytest.mark.browser
def test_an_adapter_of_the_compatibility_mode(bundle: Path, compatible: Compatible) -> None:
    with compatible.page(bundle) as page:
        seen = page.evaluate(
            """async () => {
              const {load} = await import("/tinyedge.js");
              const model = await load("/"), {passed, cases} = await model.verify();
              const entry = "softmax", inputs = await model.example({entry});
              const {device} = model, size = [100, 12], format = "r32float";
              const texture = device.createTexture({format, size, usage: 17});
              const {y} = await model.run(inputs, {entry});
              await model.run(inputs, {entry, into: {y: texture}});
              const buffer = device.createBuffer({size: 512 * 12, usage: 9});
              const encoder = device.createCommandEncoder();
              encoder.copyTextureToBuffer({texture}, {buffer, bytesPerRow: 512}, size);
              device.queue.submit([encoder.finish()]);
              await buffer.mapAsync(1);
              const rows = new Float32Array(buffer.getMappedRange());
              const at = (i) => rows[(i % 100) + 128 * Math.floor(i / 100)];
              const painted = y.data.every((value, i) => value === at(i));
              return {asked, passed, cases: cases.length, painted};
            }"""
        )
    asked = ["core", "compatibility"]
    assert seen == {"asked": asked, "passed": True, "cases": len(GRAPHS), "painted": True}
