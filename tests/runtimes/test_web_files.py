"""What of `web/` goes into a bundle: the compressed runtime, the types, the page."""

from __future__ import annotations

import gzip
import hashlib
import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.targets import programs
from tinyedge.export.package.package import write_bundle
from tinyedge.export.package.web import MODULES, runtime_files, types, web_file
from tinyedge.export.verify.browser import Browser

WEB = Path(__file__).resolve().parents[2] / "web"
TARGET = "webgpu"
# What build.js says: the modules of tinyedge.js, and those of the files beside it.
LISTS = ("MODULES", "FILES")


def test_the_shipped_runtime_is_small_and_fresh() -> None:
    shipped = web_file("src/tinyedge.js").read_bytes()
    assert len(gzip.compress(shipped, 9)) <= 12 * 1024
    build = (WEB / "build.js").read_text()
    main, beside = (build.partition(f"{what} = ")[2].partition(";")[0] for what in LISTS)
    names = [*re.findall(r'"(\w+)"', main), "tinyedge"]
    for modules in re.findall(r"\[\[(.*?)\]", beside):
        names += re.findall(r'"(\w+)"', modules)
    files = [WEB / "src" / "runtime" / f"{name}.js" for name in names]
    assert sorted(files) == sorted((WEB / "src" / "runtime").iterdir())
    source = hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()
    parts = {name: web_file(f"src/{name}").read_bytes() for name in MODULES}
    sizes = {name: len(gzip.compress(part, 9)) for name, part in parts.items()}
    assert sizes.pop("image.js") <= 4 * 1024
    assert sizes.pop("wasm.js") + sizes.pop("threads.js") <= 4 * 1024
    assert sum(sizes.values()) <= 9 * 1024
    for text in (shipped, *parts.values()):
        first = text.split(b"\n")[0].decode()
        assert first.endswith(source[:8]), "run `npm run build` in web/"
        assert b"eval(" not in text and b"Function(" not in text


def test_types_name_the_model(tmp_path: Path) -> None:
    program = programs.addition(TARGET)
    odd = replace(program.inputs[0], name='*/ "x\u00e9', shape=("*/\n", 64))
    text = types(replace(program, inputs=(odd, program.inputs[1])))
    assert r'"*/ \"x\u00e9": InputValue<"float32">;' in text
    assert '"c": Output<Float32Array, "tail">;' in text
    assert text.count("*/\n") == text.count("/**")
    _check_types(
        tmp_path,
        text,
        'import {load} from "./tinyedge.js";\n'
        'const model = await load("./m/");\n'
        "const x = new Float32Array(256);\n"
        'const {c} = await model.run({"*/ \\"x\\u00e9": x, "b:0": {data: x, shape: [4, 64]}});\n'
        "const first: number = c.data[0];\n"
        "// @ts-expect-error a missing input\n"
        'await model.run({"b:0": x});\n'
        "// @ts-expect-error another element type\n"
        'await model.run({"*/ \\"x\\u00e9": new Int32Array(256), "b:0": x});\n'
        "// @ts-expect-error another element type, with a shape\n"
        'await model.run({"*/ \\"x\\u00e9": x, "b:0": {data: new Uint8Array(9), shape: [9]}});\n'
        "// @ts-expect-error no such size\n"
        'await model.run({"*/ \\"x\\u00e9": x, "b:0": x}, {symbols: {M: 4}});\n'
        "console.log(first);\n",
    )


def test_types_name_states_and_entries(tmp_path: Path) -> None:
    text = types(programs.counter(TARGET))
    assert 'export type EntryName = "main" | "peek";' in text
    assert '"memory": Float32Array;' in text
    _check_types(
        tmp_path,
        text,
        'import {load} from "./tinyedge.js";\n'
        'const model = await load("./m/");\n'
        'const {total} = await model.run({}, {entry: "peek"});\n'
        'const memory: Float32Array = (await model.getState("memory")).data;\n'
        'await model.setState("memory", memory);\n'
        "// @ts-expect-error no such entry\n"
        'await model.run({}, {entry: "other"});\n'
        "// @ts-expect-error no such state\n"
        'await model.getState("other");\n'
        "console.log(total?.data[0]);\n",
    )


def test_types_name_pictures(tmp_path: Path) -> None:
    program = programs.addition(TARGET)
    odd = replace(program.inputs[0], name="\u00e9", shape=("h", "w", 3))
    frames = replace(program.inputs[1], shape=(2, "h", "w", 3))
    images = [{"input": r"\xe9"}, {"input": frames.name}]
    text = types(
        replace(program, inputs=(odd, frames), options={**program.options, "images": images})
    )
    _check_types(
        tmp_path,
        text,
        'import {load} from "./tinyedge.js";\n'
        'const model = await load("./m/");\n'
        'const image = document.createElement("video");\n'
        "const part = {image, crop: {x: 1, width: 20}, rotate: 90, mirror: true};\n"
        'const {placement} = await model.run({"\\u00e9": part, "b:0": [image, image]});\n'
        'const [x]: number[] = placement["\\u00e9"].at(1, 2);\n'
        'new OffscreenCanvas(9, 9).getContext("2d")!.setTransform(...placement["b:0"][1].matrix);\n'
        "// @ts-expect-error one picture for several frames\n"
        'await model.run({"\\u00e9": image, "b:0": image});\n'
        "console.log(x);\n",
    )


def _compiler() -> Path:
    """That of TypeScript."""
    compiler = WEB / "node_modules" / ".bin" / "tsc"
    if not compiler.exists():
        pytest.skip("npm install in web/ brings the compiler")
    return compiler


def _check_types(folder: Path, text: str, page: str) -> None:
    """A page of a model whose types are `text`."""
    compiler = _compiler()
    (folder / "tinyedge.d.ts").write_text(text)
    (folder / "page.ts").write_text(page)
    result = subprocess.run(
        [
            *(compiler, "--noEmit", "--strict", "--target", "es2022", "--module", "es2022"),
            *("--moduleResolution", "bundler"),
            *(WEB / "node_modules/@webgpu/types/dist/index.d.ts", folder / "page.ts"),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stdout


@pytest.mark.skipif(not (WEB / "node_modules").exists(), reason="npm install in web/")
def test_sources_are_typed_and_built(tmp_path: Path) -> None:
    run = ["npx", "--no-install"]
    checked = subprocess.run([*run, "tsc"], cwd=WEB, capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stdout
    for name in ("build.js", "package.json", "src"):
        source = WEB / name
        copy = shutil.copytree if source.is_dir() else shutil.copy
        copy(source, tmp_path / name)
    (tmp_path / "node_modules").symlink_to(WEB / "node_modules")
    subprocess.run(["node", "build.js"], cwd=tmp_path, check=True)
    for name in ("tinyedge.js", *MODULES):
        assert (tmp_path / "src" / name).read_bytes() == (WEB / "src" / name).read_bytes()


def test_types_name_what_a_run_gives(tmp_path: Path) -> None:
    """What is kept, or sent elsewhere, has no data; what may be left out may be undefined."""
    text = types(programs.symbolic(TARGET))
    assert 'export type SymbolName = "N" | "M";' in text
    _check_types(
        tmp_path,
        text,
        'import {load, requirements, TinyedgeError} from "./tinyedge.js";\n'
        'const model = await load("./m/", {powerPreference: "low-power"});\n'
        'const {limits}: {limits: Record<string, number>} = await requirements("./m/");\n'
        'const x = await model.inputBuffer("x");\n'
        "const given = {x, bias: [1, 2, 3]}, symbols = {N: 4};\n"
        'const {y} = await model.run(given, {symbols, keep: ["y"]});\n'
        "const buffer: GPUBuffer = y.gpu.buffer;\n"
        "const canvas = new OffscreenCanvas(9, 9);\n"
        'await model.toCanvas(y, canvas, {range: "auto", colors: [[1, 2, 3]]});\n'
        "// @ts-expect-error it was kept\n"
        "y.data;\n"
        "// @ts-expect-error all were kept\n"
        "(await model.run(given, {keep: true})).y.data;\n"
        "const plain = await model.run(given, {keep: []});\n"
        "const all: Float32Array = plain.y.data;\n"
        "// @ts-expect-error it was not kept\n"
        "plain.y.gpu;\n"
        "// @ts-expect-error nor can it be painted\n"
        "await model.toCanvas(plain.y, canvas);\n"
        "const sent = await model.run(given, {into: {y: {buffer, offset: 256}}});\n"
        "const there: GPUBuffer = sent.y.gpu.buffer;\n"
        "// @ts-expect-error it went elsewhere\n"
        "sent.y.data;\n"
        "declare const texture: GPUTexture;\n"
        "const into = {y: texture};\n"
        "const painted: GPUTexture = (await model.run(given, {into})).y.gpu.texture;\n"
        "// @ts-expect-error no such output\n"
        "await model.run(given, {into: {z: buffer}});\n"
        "// @ts-expect-error no such output\n"
        'await model.run(given, {keep: ["z"]});\n'
        "const latest = await model.run(given, {latest: true});\n"
        "// @ts-expect-error it may have given way\n"
        "latest.y;\n"
        "const some: Float32Array | undefined = latest?.y.data;\n"
        "try { await model.run(given); } catch (error) {\n"
        "  if (error instanceof TinyedgeError) {\n"
        '    if (error.id === "device.lost") console.log(all, some, there, painted, limits);\n'
        "    // @ts-expect-error no such id\n"
        '    if (error.id === "device.gone") console.log(error);\n'
        "  }\n"
        "}\n",
    )


def test_types_name_all_errors() -> None:
    """Those of the runtime's sources, and what they make of the parts of an id."""
    sources = [file.read_text() for file in (WEB / "src" / "runtime").iterdir()]
    named = {
        each
        for text in sources
        for each in re.findall(r'"((?:load|run|device|replay|bundle|verify)\.[a-z0-9.]+)"', text)
    }
    made = {each for text in sources for each in re.findall(r"fail\(\s*`([^`]+)`", text)}
    assert made == {
        "${id}.hash", "${id}.size", "${id}.missing", "run.${kind}.buffer",
        "bundle.${id}", "bundle.${key}",
    }  # fmt: skip
    stems = {"bundle.file", "bundle.manifest"}
    named -= stems
    named |= {f"{stem}.{end}" for stem in stems for end in ("hash", "size", "missing")}
    named |= {f"run.{kind}.buffer" for kind in ("input", "output")}
    checks = (WEB / "src" / "runtime" / "check.js").read_text()
    named |= {f"bundle.{key}" for key in re.findall(r'known\("([a-z]+)",', checks)}
    repacks = (WEB / "src" / "runtime" / "wasm.js").read_text()
    named |= {f"bundle.{stage}" for stage in re.findall(r'need\(\s*"([a-z]+)",', repacks)}
    union = web_file("src/tinyedge.d.ts").read_text().partition("export type ErrorId =")[2]
    assert sorted(named) == re.findall(r'"(.*?)"', union.partition(";")[0])


@pytest.mark.browser
def test_the_page(browser: Browser, tmp_path: Path) -> None:
    program = programs.symbolic(TARGET)
    bundle = write_bundle(program, tmp_path / "model.tinyedge", extras=runtime_files(program))
    browser.violations.clear()
    failures: list[Any] = []
    with browser.page(bundle, start="") as page:
        page.on("pageerror", lambda error: failures.append(error))
        page.get_by_role("button", name="Run").wait_for()
        page.get_by_label("N (1 to 8)").fill("2")
        page.get_by_label("Runs").fill("3")
        page.get_by_role("button", name="Run").click()
        page.get_by_text("3 runs with upload").wait_for()
        assert page.get_by_text("float32 [32]").count() == 1
        page.get_by_role("button", name="Verify").click()
        page.get_by_text("[verify.nothing]").wait_for()
        page.get_by_role("button", name="Profile").click()
        page.get_by_text("double_it").wait_for()
        page.get_by_label("Values from").first.select_option(".npy file")
        page.get_by_role("button", name="Run").click()
        page.get_by_text("Choose a file for x").wait_for()
    (bundle / "kernels.wgsl").write_text("broken")
    with browser.page(bundle, start="") as page:
        page.get_by_text("[bundle.file.size]").wait_for()
    assert not failures and not browser.violations
