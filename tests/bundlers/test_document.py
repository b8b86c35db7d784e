"""Each block of docs/page.md is run as it stands, or checked by TypeScript's compiler."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tinyedge
from tests.bundlers.test_bundlers import HERE, WEB
from tests.runtimes.site import Site, serving

pytestmark = pytest.mark.browser

DOCUMENT = Path(__file__).parents[2] / "docs" / "page.md"
NAMES = ("red", "green", "blue")
CLASSIFIER, CAMERA, THREE = "An image classifier in ten lines", "The camera", "three.js"
WORKER, ELSEWHERE = "A worker that keeps the page responsive", "A CDN, and caches"
# Of what stands under these every block is run, the last in tests/runtimes/test_browser_network.py.
RUN = (CLASSIFIER, CAMERA, WORKER, THREE, ELSEWHERE, "Offline")
FOLDER = "model.tinyedge"
DENO = HERE.parent / "runtimes" / "js" / "node_modules" / ".bin" / "deno"
CDN = "https://cdn.example.com/model-1/"

# What the reference's blocks take as given, and packages that they import.
GIVEN = """
import {load as open, Model, Picture} from "./model.tinyedge/tinyedge.js";
declare global {
  const m: Model, image: Picture, load: typeof open;
  const out: Awaited<ReturnType<Model["run"]>>, tinyedge: {load(): Promise<Model>};
  const other: import("./any/tinyedge.js").Model;
  const imageOf: (request: Request) => Promise<ImageBitmap>;
  const video: HTMLVideoElement, canvas: HTMLCanvasElement, values: Float32Array<ArrayBuffer>;
  const shape: number[], show: (values: Float32Array) => void;
}
"""
PACKAGES = """
declare module "node:fs/promises" { export const readFile: (file: URL) => Promise<BlobPart>; }
declare module "webgpu" { export const create: (options: string[]) => GPU, globals: object; }
declare module "*.wasm" { const module: WebAssembly.Module; export default module; }
"""


def blocks() -> list[tuple[str, str]]:
    """Each block, with the heading that it stands under."""
    found: list[tuple[str, str]] = []
    heading = ""
    for part in re.split(r"\n\n(?=\S)|\n(?=#)", DOCUMENT.read_text()):
        if part.startswith("#"):
            heading = part.partition("\n")[0].strip("# ")
        block = re.search(r"(?:^    .*\n?|^\n)+\Z", part, re.MULTILINE)
        for text in [] if block is None else re.split(r"\n\n(?=    // \w+\.js\n)", block.group()):
            found.append((heading, textwrap.dedent(text).strip() + "\n"))
    return found


def block(heading: str, beginning: str = "") -> str:
    """The one block under a heading that begins so."""
    (text,) = (t for h, t in blocks() if h == heading and t.startswith(beginning))
    return text


@pytest.fixture(scope="module")
def classifier(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Which color a picture has most of. Its folder holds the page's pictures too."""
    from PIL import Image

    folder = tmp_path_factory.mktemp("page")
    (folder / "names.txt").write_text("\n".join(NAMES))
    tinyedge.export_function(
        lambda image: {"scores": image.mean((2, 3)), "features": image * 2},
        {"image": np.zeros((1, 3, 32, 32), np.float32)},
        target="webgpu",
        fallback="wasm",
        out=folder / FOLDER,
        images={"image": "cover,imagenet"},
        labels={"scores": folder / "names.txt"},
    )
    for place, name in enumerate(NAMES):
        color = [0, 0, 0]
        color[place] = 200
        Image.new("RGB", (40, 30), tuple(color)).save(folder / f"{name}.png")
    return folder


@pytest.fixture
def site(classifier: Path, tmp_path: Path) -> Iterator[Site]:
    shutil.copytree(classifier, tmp_path / "site")
    with serving(tmp_path / "site") as served:
        yield served


@pytest.fixture
def page(cinema: Any) -> Iterator[Any]:
    context = cinema.new_context(permissions=["camera"])
    yield context.new_page()
    context.close()


def shown(page: Any, site: Site, html: str) -> None:
    (site.folder / "index.html").write_text(html)
    page.goto(site.url + "index.html")


def says(page: Any, words: str) -> None:
    page.wait_for_function("(words) => document.querySelector('output').value === words", arg=words)


@pytest.mark.parametrize("name", NAMES)
def test_the_classifier(name: str, page: Any, site: Site) -> None:
    """In ten lines; nothing but the folder's files is asked for, and nothing by a run.

    A file may be chosen before the model is there.
    """
    html = block(CLASSIFIER, "<!doctype")
    assert len(html.splitlines()) == 10
    sent: list[Any] = []
    page.on("request", lambda request: sent.append(request))
    shown(page, site, html)
    choose = "document.querySelector('input').onchange"
    page.wait_for_function(f"{choose} !== null")
    page.set_input_files("input", site.folder / f"{name}.png")
    says(page, name)
    asked = {request.url for request in sent}
    page.evaluate("document.querySelector('output').value = 'none'")
    page.evaluate(f"{choose}({{target: document.querySelector('input')}})")
    says(page, name)
    assert {request.url for request in sent} == asked
    assert {(request.method, request.post_data) for request in sent} == {("GET", None)}
    files = {request.url.removeprefix(site.url) for request in sent} - {"favicon.ico"}
    files.remove("index.html")
    assert files and all(file.startswith(f"{FOLDER}/") for file in files)
    kept = "[document.cookie, localStorage.length, sessionStorage.length]"
    assert page.evaluate(kept) == ["", 0, 0]
    assert page.evaluate("(async () => (await indexedDB.databases()).length)()") == 0


def test_a_photograph(page: Any, site: Site) -> None:
    """As a phone takes it: larger than a picture may be, and turned by its file."""
    from PIL import Image

    turned = Image.Exif()
    turned[0x0112] = 6
    Image.new("RGB", (4032, 3024), (0, 200, 0)).save(site.folder / "photo.jpg", exif=turned)
    shown(page, site, block(CLASSIFIER, "<!doctype"))
    page.set_input_files("input", site.folder / "photo.jpg")
    says(page, "green")


def test_the_camera(page: Any, site: Site) -> None:
    """Chromium's own camera is mostly green."""
    shown(page, site, block(CAMERA, "<!doctype"))
    says(page, "green")
    page.evaluate("document.querySelector('output').value = 'none'")
    says(page, "green")


def test_the_worker(page: Any, site: Site) -> None:
    for name in ("page.js", "worker.js"):
        (site.folder / name).write_text(block(WORKER, f"// {name}"))
    html = '<!doctype html><input type="file"><output></output>'
    shown(page, site, html + '<script type="module" src="page.js"></script>')
    page.set_input_files("input", site.folder / "blue.png")
    says(page, "blue")


def test_three(page: Any, site: Site) -> None:
    """A scene of one color is what the model sees, as the texture that it was rendered to."""
    (site.folder / "classify.js").write_text(block(THREE))
    shutil.copytree(HERE / "node_modules" / "three" / "build", site.folder / "three")
    modules = {"three/webgpu": "./three/three.webgpu.js", "three": "./three/three.webgpu.js"}
    imports = f'<script type="importmap">{{"imports": {modules}}}</script>'.replace("'", '"')
    shown(page, site, f"<!doctype html>{imports}<output></output>")
    for color in (0x0000FF, 0xFF0000):
        script = """async (color) => {
          const {classify} = await import("./classify.js"), three = await import("three/webgpu");
          const scene = new three.Scene();
          scene.background = new three.Color(color);
          return classify(scene, new three.PerspectiveCamera());
        }"""
        assert page.evaluate(script, color) == ("blue" if color == 0x0000FF else "red")


def test_a_cdn(page: Any, site: Site, classifier: Path, tmp_path: Path) -> None:
    """With the headers of the page, which another site's isolated page needs."""
    lines = block(ELSEWHERE, "Cache-Control").splitlines()
    headers = dict(line.split(": ", 1) for line in lines)
    shutil.copytree(classifier / FOLDER, tmp_path / "cdn" / "model-1")
    isolated = {"same-origin": "Opener", "require-corp": "Embedder"}
    site.more = {f"Cross-Origin-{what}-Policy": value for value, what in isolated.items()}
    with serving(tmp_path / "cdn") as cdn:
        cdn.more = headers
        here = block(ELSEWHERE, "import").replace(CDN, f"{cdn.url}model-1/")
        (site.folder / "main.js").write_text(here)
        shown(page, site, "<!doctype html>")
        script = "async () => (await (await import('./main.js')).model.verify()).passed"
        assert page.evaluate("crossOriginIsolated") is True
        assert page.evaluate(script) is True
        del cdn.more["Access-Control-Allow-Origin"]
        (site.folder / "again.js").write_text(here.replace("tinyedge.js", "tinyedge.js?again"))
        refused = "import('./again.js').then(() => 'loaded', ({name}) => name)"
        assert page.evaluate(refused) == "TypeError"


@pytest.mark.parametrize("program", ["node", "deno"])
def test_without_a_page(program: str, classifier: Path, tmp_path: Path) -> None:
    """The files come from the disk; of a white picture all colors are one less its mean."""
    command = {"node": ["node"], "deno": [DENO, "run", "--allow-read", "--no-lock"]}[program]
    if not Path(shutil.which(command[0]) or "").is_file() and not os.environ.get("CI"):
        pytest.skip(f"{program} is not there")
    shutil.copytree(classifier / FOLDER, tmp_path / FOLDER)
    (tmp_path / "classify.mjs").write_text(block("Deno and Node", "// classify"))
    done = subprocess.run(
        [*command, "classify.mjs"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    backend, _, listed = done.stdout.partition(" ")
    assert backend == "wasm"
    # 1 less ImageNet's mean, by its deviation: 2.64, 2.43 and 2.25.
    found = re.findall(r'label: ["\'](\w+)["\'],\s+value: (\d\.\d\d)', listed)
    assert found == [("blue", "2.63"), ("green", "2.42"), ("red", "2.24")]


def test_files_that_a_page_asks_for_early(classifier: Path) -> None:
    html = block("load", "<link")
    hrefs = re.findall(r'href="([^"]+)"', html)
    assert len(hrefs) == len(html.splitlines())
    assert all((classifier / name).is_file() for name in hrefs)


def test_all_others_have_right_types(classifier: Path, tmp_path: Path) -> None:
    """Those in JavaScript, and those in TypeScript under the compiler's strict rules."""
    compiler = WEB / "node_modules" / ".bin" / "tsc"
    if not compiler.exists():
        pytest.skip("npm install in web/ brings the compiler")
    shutil.copytree(classifier / FOLDER, tmp_path / FOLDER)
    (tmp_path / "any").mkdir()
    shutil.copy(WEB / "src" / "tinyedge.d.ts", tmp_path / "any")
    (tmp_path / "given.d.ts").write_text(GIVEN)
    (tmp_path / "packages.d.ts").write_text(PACKAGES)
    # No scripts of a page: tests/test_docs.py checks commands, and test_bundlers.py runs the build.
    plain = ("<", "tinyedge ", "// build.mjs")
    files = []
    for number, (heading, text) in enumerate(blocks()):
        if text.startswith(plain) or heading in RUN:
            continue
        files.append(tmp_path / f"{number}-{re.sub('[^a-z]+', '-', heading.lower())}.ts")
        files[-1].write_text(text + "\nexport {};\n")
    done = subprocess.run(
        [
            *(compiler, "--noEmit", "--strict", "--noImplicitAny", "false"),
            *("--target", "esnext", "--module", "esnext", "--moduleResolution", "bundler"),
            *("--lib", "esnext,dom,dom.iterable"),
            WEB / "node_modules/@webgpu/types/dist/index.d.ts",
            *(tmp_path / "given.d.ts", tmp_path / "packages.d.ts", *files),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    assert files
