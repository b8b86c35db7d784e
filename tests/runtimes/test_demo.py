"""The page that lies in a bundle: what it takes, and what it makes of outputs."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tinyedge
from tinyedge.core.tensor.tensor import Tensor
from tinyedge.export.package.web import PAGE, web_file
from tinyedge.export.verify.browser import Browser

pytestmark = pytest.mark.browser

AXE = Path(__file__).parent / "js" / "node_modules" / "axe-core" / "axe.min.js"
HEIGHT, WIDTH = 24, 32
NAMES = ["sky", "sea", "land"]
BOXES = np.array([[[2, 3, 20, 12], [8, 6, 30, 22], [2, 3, 20, 13], [0, 0, 9, 9]]], np.float32)
SURE = np.array([[0.9, 0.6, 0.5, 0.1]], np.float32)
TEXT = np.frombuffer(b"a sentence", np.uint8)


def network(x: Tensor) -> dict[str, Tensor]:
    """Outputs of each kind, of a picture of values 0 to 1."""
    none = x.sum() * 0
    columns = np.arange(WIDTH, dtype=np.float32).reshape(1, 1, 1, WIDTH)
    classes = Tensor(np.arange(3, dtype=np.float32).reshape(1, 3, 1, 1))
    mask = none - (Tensor(columns) * (3 / WIDTH) - 0.5 - classes).abs()
    return {
        "classes": x.mean((2, 3)),
        "depth": x.mean((1,)).unsqueeze(1),
        "mask": mask.expand((1, 3, HEIGHT, WIDTH)),
        "boxes": none + Tensor(BOXES),
        "sure": none + Tensor(SURE),
        "wave": none + Tensor(np.sin(np.arange(4096, dtype=np.float32) / 50)),
        "text": (none + Tensor(TEXT.astype(np.float32))).cast(tinyedge.core.dtype.uint8),
    }


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("demo")
    return tinyedge.export_function(
        network,
        {"x": np.zeros((1, 3, HEIGHT, WIDTH), np.float32)},
        out=folder / "model.tinyedge",
        images={"x": "letterbox,0..1,max:128"},
        labels={"classes": NAMES, "mask[1]": NAMES},
    )


@pytest.fixture(scope="module")
def picture(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Green, and as wide as high: at both sides of it the model sees nothing."""
    from PIL import Image

    path = tmp_path_factory.mktemp("picture") / "green.png"
    Image.new("RGB", (40, 40), (0, 255, 0)).save(path)
    return path


@pytest.fixture
def page(browser: Browser, bundle: Path) -> Iterator[Any]:
    browser.violations.clear()
    with browser.page(bundle, start="") as opened:
        opened.get_by_role("button", name="Run").wait_for()
        yield opened
        assert opened.locator("#error").is_hidden()
    assert not browser.violations


def run(page: Any, runs: int = 1) -> None:
    page.get_by_label("Runs").fill(str(runs))
    page.get_by_role("button", name="Run").click()
    page.get_by_text(f"{runs} run").wait_for()
    page.get_by_text("Ready").wait_for()


def pixel(page: Any, label: str, x: int, y: int) -> list[int]:
    """Red, green, blue and alpha of a canvas."""
    found: list[int] = page.get_by_label(label).evaluate(
        "(c, [x, y]) => [...c.getContext('2d').getImageData(x, y, 1, 1).data]", [x, y]
    )
    return found


def test_outputs_are_seen_as_what_they_are(page: Any, picture: Path) -> None:
    run(page)  # of generated values, until there is a picture
    page.get_by_label("File for x").set_input_files(picture)
    page.get_by_label("What the model sees").wait_for()
    assert page.get_by_label("x.height").input_value() == "40"
    assert pixel(page, "What the model sees of x", 16, 12) == [0, 255, 0, 255]
    assert pixel(page, "What the model sees of x", 1, 12)[3] == 0, "beside a letterbox"
    run(page)
    card = page.locator(".card", has=page.get_by_role("heading", name="classes", exact=True))
    assert card.locator("td").first.text_content() == "sea"
    assert card.get_by_label("sea: 0.75000").count() == 1
    legend = page.locator(".card", has=page.get_by_label("Mask of mask")).locator("li")
    shares = [text.split(", ") for text in legend.all_text_contents()]
    assert sorted(name for name, _ in shares) == sorted(NAMES)
    assert pixel(page, "Mask of mask", 2, 12)[3] == 0, "the first class leaves the picture as it is"
    bright, dark = (sum(pixel(page, "Heat map of depth", x, 12)[:3]) for x in (16, 1))
    assert bright > dark
    boxes = page.locator(".card", has=page.get_by_label("Boxes of boxes")).locator("li")
    assert boxes.all_text_contents() == ["class 0 0.90", "class 0 0.60"], "the third is the first"
    assert page.get_by_label("Wave of wave").count() == 1
    assert page.get_by_text("a sentence", exact=True).count() == 1


def test_dropped_and_pasted_pictures(page: Any, picture: Path) -> None:
    content = list(picture.read_bytes())
    script = """([kind, name, content]) => {
      const data = new DataTransfer(), type = name.endsWith("png") ? "image/png" : "";
      data.items.add(new File([new Uint8Array(content)], name, {type}));
      document.dispatchEvent(
        kind === "drop"
          ? new DragEvent(kind, {dataTransfer: data})
          : new ClipboardEvent(kind, {clipboardData: data}),
      );
    }"""
    for kind in ("drop", "paste"):
        page.get_by_label("Values from").select_option("Generated")
        page.evaluate(script, [kind, "green.png", content])
        page.get_by_label("What the model sees").wait_for()
        assert page.get_by_label("Values from").input_value() == "Image"
        page.get_by_text("Ready").wait_for()
    run(page)
    page.get_by_label("Values from").select_option("Generated")
    busy = "([...given]) => { document.querySelector('#run').click(); (" + script + ")(given); }"
    page.evaluate(busy, ["drop", "green.png", content])
    page.get_by_label("What the model sees").wait_for()
    page.evaluate(script, ["drop", "notes.txt", [1]])
    page.get_by_text("No input takes this file").wait_for()
    page.get_by_role("button", name="Run").click()
    page.get_by_text("Ready").wait_for()


def test_files_that_are_none(page: Any, tmp_path: Path) -> None:
    """A file that is no picture is not taken, and what was said of it goes with its source."""
    broken, doubles = tmp_path / "broken.png", tmp_path / "doubles.npy"
    broken.write_bytes(b"none")
    np.save(doubles, np.zeros((HEIGHT, WIDTH, 3), np.float64))
    error = page.locator("#error")
    page.get_by_label("Values from").select_option("Image")
    page.get_by_label("File for x").set_input_files(broken)
    page.get_by_text("broken.png is no picture").wait_for()
    page.get_by_role("button", name="Run").click()
    page.get_by_text("Choose a file for x").wait_for()
    page.get_by_label("Values from").select_option(".npy file")
    assert error.is_hidden() and page.locator("#status").text_content() == "Ready"
    page.get_by_label("File for x").set_input_files(doubles)
    page.get_by_text("Ready").wait_for()
    page.get_by_role("button", name="Run").click()
    page.get_by_text("doubles.npy has float64, the input takes uint8").wait_for()
    page.get_by_label("Values from").select_option("Generated")
    assert error.is_hidden()
    run(page)


def test_no_camera(page: Any) -> None:
    """A run asks for it again, and says that it is not there."""
    page.evaluate(
        """() => {
          navigator.mediaDevices.getUserMedia = async () => {
            throw new DOMException("Requested device not found", "NotFoundError");
          };
        }"""
    )
    page.get_by_label("Values from").select_option("Camera")
    error = page.locator("#error")
    for _ in range(2):
        error.wait_for()
        assert error.text_content() == "Requested device not found"
        page.get_by_role("button", name="Run").click()
        page.get_by_text("That did not work.").wait_for()
    page.get_by_label("Values from").select_option("Generated")
    assert error.is_hidden()
    run(page)


def test_values_are_shown_in_windows(browser: Browser, tmp_path: Path) -> None:
    """Of three million values the page has a few as text, and other tasks come in between."""
    count = 3_000_000
    out = tinyedge.export_function(
        lambda x: x.expand((count // 2, 2)) + Tensor(np.arange(2, dtype=np.float32)),
        {"x": np.zeros((1, 2), np.float32)},
        out=tmp_path / "m",
        golden=False,
    )
    with browser.page(out, start="") as page:
        page.get_by_role("button", name="Run").wait_for()
        page.evaluate(
            """() => {
              globalThis.waits = 0;
              const later = globalThis.setTimeout;
              globalThis.setTimeout = (...given) => (globalThis.waits++, later(...given));
            }"""
        )
        run(page)
        assert page.evaluate("waits") >= count // (1 << 18)
        assert page.locator("#outputs *").count() < 100
        page.get_by_text("Values", exact=True).click()
        page.get_by_label("First value of output").fill(str(count - 3))
        page.get_by_label("First value of output").press("Tab")
        page.get_by_text(f"{count // 2 - 1}, 1").wait_for()
        assert page.locator("#outputs *").count() < 300
        page.get_by_label("Previous values").click()
        assert page.get_by_label("First value of output").input_value() == str(count - 23)


def test_the_camera(cinema: Any, bundle: Path) -> None:
    from tinyedge.serve import Server

    with Server(bundle) as server:
        context = cinema.new_context(permissions=["camera"])
        page = context.new_page()
        page.goto(server.url)
        page.get_by_role("button", name="Run").wait_for()
        page.get_by_label("Values from").select_option("Camera")
        page.get_by_text("Ready").wait_for()
        run(page)
        page.get_by_role("button", name="Live").click()
        page.get_by_text("a picture", exact=False).last.wait_for()
        page.get_by_text("ms a picture").wait_for()
        page.get_by_role("button", name="Stop").click()
        page.get_by_text("Ready").wait_for()
        assert page.locator("#error").is_hidden()
        assert pixel(page, "What the model sees of x", 16, 12)[3] == 255
        page.get_by_label("Values from").select_option("Generated")
        assert page.get_by_role("button", name="Live").count() == 0
        assert page.evaluate("document.querySelector('video').srcObject") is None
        context.close()


def test_where_the_time_goes(page: Any) -> None:
    run(page)
    page.get_by_role("button", name="Profile").click()
    page.get_by_text("the slowest nodes first").wait_for()
    launches = int(page.locator("#report-text").text_content().split()[0])
    assert page.locator("#timeline span").count() == launches > 3
    assert page.locator("#report-body meter").count() > 3
    assert "GFLOP/s" in page.locator("#report").inner_text()
    page.set_viewport_size({"width": 390, "height": 844})
    wide = (
        "(at) => document.querySelector(at).scrollWidth <= document.querySelector(at).clientWidth"
    )
    assert page.evaluate(wide, "html") and page.evaluate(wide, "#report .scroll"), "on a phone"
    about = page.locator("#about").text_content()
    assert "of memory" in about and f"{launches} launches" in about


def test_both_programs(browser: Browser, tmp_path: Path) -> None:
    pytest.importorskip("ziglang")
    out = tinyedge.export_function(
        lambda x: {"y": x.exp(), "i": x > 0.5},
        {"x": np.zeros((1, 8), np.float32)},
        out=tmp_path / "m",
        fallback="wasm",
    )
    assert "kernels.wgsl" not in (out / "index.html").read_text("utf-8"), "it may not be used"
    with browser.page(out, start="") as page:
        page.get_by_role("button", name="Run", exact=True).wait_for()
        code = page.locator("#code").text_content()
        assert "m.run({x: new Float32Array(8)});" in code and "out.y.data" in code
        page.get_by_role("button", name="WebGPU and WASM").click()
        page.get_by_text("by WebAssembly on").wait_for()
        assert page.locator("#report-body .figure").count() == 2, "numbers are not broken"
        page.set_viewport_size({"width": 390, "height": 844})
        label = "getComputedStyle(document.querySelector('#report-body .figure'), '::before')"
        assert page.evaluate(f"{label}.whiteSpace") == "normal", "on a phone its label wraps"
        page.set_viewport_size({"width": 1280, "height": 720})
        rows = dict(
            row.split("\t") for row in page.locator("#report-body").inner_text().split("\n")
        )
        assert set(rows) == {"y", "i"}
        assert float(rows["y"]) < 1e-5 and float(rows["i"]) == 0


def test_forms_of_boxes(page: Any) -> None:
    """Of detectors as they are exported: in pixels, of a picture of 64 x 32."""
    found = page.evaluate(
        """async () => {
          const {boxesOf} = await import("./demo_views.js");
          const picture = {width: 64, height: 32}, places = 64 * 32 * 21 / 1024;
          const f = (name, shape, values) =>
            [name, {name, dtype: "float32", shape, data: Float32Array.from(values)}];
          const grid = new Float32Array(6 * places);
          // One box of the second class, in its middle and size.
          [32, 16, 20, 10, 0.1, 0.75].forEach((value, row) => grid[row * places + 7] = value);
          const data = BigInt64Array.of(3n, 9n),
            kinds = ["k", {name: "k", dtype: "int64", shape: [2], data}];
          const all = {length: 4e5};
          const forms = [
            [f("b", [2, 4], [1, 2, 11, 12, 5, 5, 6, 6]), f("s", [2], [0.5, 0.125]), kinds],
            [f("b", [1, 2, 4], [0.25, 0.5, 0.5, 1, 0, 0, 1, 1]), f("s", [1, 2, 2], [0, 1, 0.5, 0])],
            [f("b", [1, 2, 4], [30, 16, 20, 10, 40, 9, 2, 2]), f("s", [1, 2, 1], [1, 0])],
            [f("d", [1, 2, 6], [1, 2, 11, 12, 0.5, 7, 0, 0, 0, 0, 0, 0])],
            [f("d", [1, 5], [0.25, 0.5, 0.5, 1, 1])],
            [f("d", [1, 6, places], grid)],
            [f("d", [1, 6, places + 1], [])],
            [f("b", [2, 4], [0, 0, 1, 1, 0, 0, 1, 1])],
            // So many that other tasks come in between, of which the best is the last.
            [f("b", [1e5, 4], Array.from(all, (_, i) => (i % 4 > 1 ? 9 : 8) + (i >= 399996))),
             f("s", [1e5], Array.from({length: 1e5}, (_, i) => 0.5 + i / 2e5))],
          ].map(async (given) => (await boxesOf(Object.fromEntries(given), picture))?.boxes.map(
            ({left, top, right, bottom, kind, score}) => [left, top, right, bottom, kind, score]));
          let waits = 0;
          const later = globalThis.setTimeout;
          globalThis.setTimeout = (...given) => (waits++, later(...given));
          return {found: await Promise.all(forms), waits};
        }"""
    )
    assert found["waits"] >= 2 * 1e5 * 9 // (1 << 18) - 1, "of 100,000 boxes"
    assert [box[:4] for box in found["found"].pop()] == [[9, 9, 10, 10], [8, 8, 9, 9]]
    assert found["found"] == [
        [[1, 2, 11, 12, 3, 0.5]],
        [[16, 16, 32, 32, 1, 1], [0, 0, 64, 32, 0, 0.5]],
        [[20, 11, 40, 21, 0, 1]],
        [[1, 2, 11, 12, 7, 0.5]],
        [[16, 16, 32, 32, 0, 1]],
        [[22, 11, 42, 21, 1, 0.75]],
        None,
        None,
    ]


def test_code_to_copy(page: Any) -> None:
    code = page.locator("#code").text_content()
    assert 'm.run({x: document.querySelector("img")})' in code and "out.classes.top(5)" in code


def test_names_of_any_letters(browser: Browser, tmp_path: Path, picture: Path) -> None:
    """Of a folder, whose percent sign is one, and of an input, which is declared in ASCII."""
    folder = tmp_path / "50% #é"
    shape = np.zeros((1, 3, 8, 8), np.float32)
    declared = {"é": "0..1,max:64"}
    tinyedge.export_function(lambda é: é * 2.0, {"é": shape}, out=folder, images=declared)
    for start in ("50% %23é/", "50%25%20%23%C3%A9/"):
        with browser.page(tmp_path, start=start) as page:
            page.get_by_label("File for é").set_input_files(picture)
            page.get_by_label("What the model sees of é").wait_for()
            run(page)
            assert page.locator("h1").text_content() == "50% #é"
            code = page.locator("#code").text_content()
            address = code.split('"')[1].removeprefix("./")
            assert page.evaluate(f"import('../{address}').then(({{load}}) => typeof load)")


def test_nothing_keeps_anyone_out(browser: Browser, bundle: Path, picture: Path) -> None:
    """axe-core's rules, by light and by dark, and on the screen of a phone."""
    if not AXE.exists() and not os.environ.get("CI"):
        pytest.skip(f"`npm ci` in {AXE.parents[2]} brings axe-core")
    with browser.page(bundle, start="") as page:
        page.get_by_role("button", name="Run").wait_for()
        page.set_viewport_size({"width": 360, "height": 740})
        page.get_by_label("Values from").select_option("Image")
        page.get_by_label("File for x").set_input_files(picture)
        run(page)
        page.get_by_text("Values", exact=True).first.click()
        page.get_by_role("button", name="Profile").click()
        page.get_by_text("the slowest nodes first").wait_for()
        assert page.evaluate("document.documentElement.scrollWidth") <= 360
        page.evaluate(AXE.read_text(encoding="utf-8"))
        for scheme in ("light", "dark"):
            page.emulate_media(color_scheme=scheme)
            found = page.evaluate("axe.run()")
            told = [
                {"id": rule["id"], "nodes": [node["html"][:200] for node in rule["nodes"]]}
                for rule in found["violations"]
            ]
            assert not told, json.dumps(told, indent=1)
            assert len(found["passes"]) > 20


def test_the_modules_of_the_page_fit_in_one() -> None:
    """Names at their tops are unique: a page of one file joins them."""
    names = []
    for name in PAGE:
        for line in web_file(f"src/{name}").read_text(encoding="utf-8").splitlines():
            words = line.removeprefix("export ").removeprefix("async ").split()
            if words and words[0] in ("const", "let", "function", "class") and line[0] != " ":
                names.append(words[1].split("(")[0])
    assert len(names) == len(set(names)) > 50
