"""A model as one HTML file, opened from the disk."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from tests.runtimes.site import serving
from tinyedge.cli import execute
from tinyedge.export.verify.browser import Browser

pytestmark = pytest.mark.browser

W = (np.arange(400_000) % 5).astype(np.float32).reshape(-1, 4)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """y = x w, of 1.6 MB, so that weights come in blocks."""
    path = tmp_path_factory.mktemp("model") / "model.onnx"
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"])],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, len(W)])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 4])],
        [numpy_helper.from_array(W, "w")],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    onnx.save(made, path)
    return path


def run(page: Any) -> list[float]:
    return list(
        page.evaluate(
            f"""async () => {{
              const model = await tinyedge.load();
              if (!(await model.verify()).passed) throw new Error("verify");
              const x = new Float32Array({len(W)}).fill(1);
              return [...(await model.run({{x}})).y.data];
            }}"""
        )
    )


@pytest.mark.parametrize("fallback", [(), ("--fallback", "wasm")], ids=["webgpu", "fallback"])
def test_it_runs_from_the_disk_and_from_a_server(
    model: Path, browser: Browser, tmp_path: Path, fallback: tuple[str, ...]
) -> None:
    out = tmp_path / "an app#1.html"
    assert execute(["export", str(model), "--single-file", str(out), *fallback]) == 0
    assert [path.name for path in tmp_path.iterdir()] == [out.name], "and nothing beside it"
    shutil.copy(out, tmp_path / "app.html")
    context = browser.chromium.new_context()
    failures: list[Any] = []
    try:
        with serving(tmp_path) as site:
            for address in (out.as_uri(), site.url + "app.html"):
                page = context.new_page()
                page.on("pageerror", lambda error: failures.append(error))
                page.goto(address)
                page.get_by_role("button", name="Run").wait_for()
                assert run(page) == W.sum(axis=0).tolist()
                code = page.locator("#code").text_content()
                assert "await tinyedge.load();" in code and "import" not in code
                page.close()
            assert set(site.asked) <= {"app.html"}, "it asks for nothing else"
    finally:
        context.close()
    assert not failures


def test_with_a_bundle(model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out, bundle = tmp_path / "app.html", tmp_path / "kept.tinyedge"
    command = ["export", str(model), "--single-file", str(out), "-o", str(bundle), "--json"]
    assert execute(command) == 0
    facts = json.loads(capsys.readouterr().out)
    assert (facts["bundle"], facts["single_file"]) == (str(bundle), str(out))
    assert out.is_file() and (bundle / "manifest.json").is_file()


@pytest.mark.parametrize(
    ("more", "says"),
    [(["--target", "cpu"], "cpu"), (["--single-file", "app.txt"], "no .html")],
)
def test_refusals(
    model: Path, capsys: pytest.CaptureFixture[str], more: list[str], says: str
) -> None:
    assert execute(["export", str(model), "--single-file", "app.html", *more]) == 2
    assert says in capsys.readouterr().err


def test_an_old_page_stays_where_the_new_one_fails(model: Path, tmp_path: Path) -> None:
    out = tmp_path / "app.html"
    out.mkdir()
    (out / "mine").write_text("mine")
    assert execute(["export", str(model), "--single-file", str(out)]) != 0
    assert [path.name for path in tmp_path.iterdir()] == ["app.html"]
    assert (out / "mine").read_text() == "mine"


def test_a_file_of_the_users_stays(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "index.html"
    out.write_text("<p>mine")
    command = ["export", str(model), "--single-file", str(out)]
    assert execute(command) == 1
    assert "[export.exists]" in capsys.readouterr().err and out.read_text() == "<p>mine"
    assert execute([*command, "--force"]) == 0
    # A page of a model is replaced as a bundle is.
    assert execute(command) == 0 and "mine" not in out.read_text()
