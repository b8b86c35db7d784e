"""Bundles on an adapter of WebGPU's compatibility mode: Chromium's of OpenGL ES."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import tinyedge
from tests.process_replay import corpus
from tinyedge.export.verify import browser

GRAPHS = ("convolution", "depthwise", "softmax", "layer_norm", "pooling", "concatenation")

# As where there is no core adapter: this machine has both.
SCRIPT = """async () => {
  const ask = GPU.prototype.requestAdapter, asked = [];
  let found;
  GPU.prototype.requestAdapter = async function (options) {
    asked.push(options.featureLevel ?? "core");
    return options.featureLevel ? (found = await ask.call(this, options)) : null;
  };
  const {load} = await import("/tinyedge.js");
  const model = await load("/"), {passed, cases} = await model.verify();
  const core = found.features.has("core-features-and-limits");
  return {asked, core, passed, cases: cases.length};
}"""


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


@pytest.fixture
def seen(bundle: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.setattr(browser, "SOFTWARE", "--use-webgpu-adapter=opengles")

    def look() -> Any:
        chromium = browser.open_browser()
        try:
            with chromium.page(bundle) as page:
                return page.evaluate(SCRIPT)
        finally:
            chromium.close()

    # In a thread of its own: playwright has one driver a thread, and other tests keep one.
    with ThreadPoolExecutor(1) as thread:
        yield thread.submit(look).result()


@pytest.mark.browser
def test_an_adapter_of_the_compatibility_mode(seen: Any) -> None:
    assert seen == {
        "asked": ["core", "compatibility"],
        "core": False,
        "passed": True,
        "cases": len(GRAPHS),
    }
