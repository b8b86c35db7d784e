"""Outputs on a canvas and in textures, against the same in numpy."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tinyedge
from tests.runtimes.site import evaluate, serving

pytestmark = pytest.mark.browser

H, W = 12, 20
RNG = np.random.default_rng(8)
INPUTS = {
    "depth": RNG.normal(5, 9, (1, H, W)).astype(np.float32),
    "half": RNG.random((H, W)).astype(np.float16),
    "rgb": RNG.random((1, 3, H, W)).astype(np.float32),
    "rgba": RNG.integers(0, 256, (1, H, W, 4), np.uint8),
    "beyond": RNG.uniform(-0.5, 1.5, (4, H, W)).astype(np.float32),
    "scores": RNG.normal(0, 1, (1, 7, H, W)).astype(np.float32),
    "numbers": RNG.integers(0, 9, (H, W), np.int32),
    "holes": RNG.normal(5, 9, (H, W)).astype(np.float32),
    "torn": RNG.normal(0, 1, (1, 6, H, W)).astype(np.float32),
    "batch": RNG.random((2, 1, H, W)).astype(np.float32),
}
INPUTS["torn"][0, 2, :5] = np.nan
INPUTS["holes"][::3, ::2] = np.nan
VIRIDIS = [[68, 1, 84], [59, 82, 139], [33, 145, 140], [94, 201, 98], [253, 231, 37]]
FIVE = [[250, 0, 0], [0, 250, 0], [0, 0, 250], [250, 250, 0], [0, 0, 0, 0]]

# What is painted, and how.
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "gray": ("half", {}),
    "range": ("depth", {"range": [-4, 16]}),
    "upside down": ("depth", {"range": [16, -4]}),
    "colors": ("depth", {"range": "auto", "colors": VIRIDIS}),
    "mask": ("half", {"colors": [[255, 0, 0, 0], [255, 0, 0, 255]]}),
    "rgb": ("rgb", {}),
    "rgb of another range": ("rgb", {"range": [0.25, 0.75]}),
    "rgba": ("rgba", {}),
    "rgba beyond its range": ("beyond", {}),
    "scores": ("scores", {}),
    "classes": ("scores", {"colors": FIVE}),
    "numbers": ("numbers", {"colors": FIVE}),
    "no number in places": ("holes", {"range": "auto", "colors": VIRIDIS}),
    "no score of a class": ("torn", {}),
    "no classes": ("numbers", {"range": "auto", "classes": False}),
}

SETUP = """
const model = await load("/", OPTIONS), names = Object.keys(INPUTS);
const inputs = Object.fromEntries(names.map((name) => [name, INPUTS[name]]));
const outputs = await model.run(inputs, {keep: true});
"""


def _setup(backend: str) -> str:
    given = {name: value.ravel().tolist() for name, value in INPUTS.items()}
    words = {"INPUTS": json.dumps(given), "OPTIONS": json.dumps({"backend": backend})}
    text = SETUP
    for word, value in words.items():
        text = f"const {word} = {value};\n" + text
    return text


@pytest.fixture(scope="module", params=["webgpu", "wasm"])
def backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Each input plus 0 is an output of a name of its own."""
    pytest.importorskip("ziglang")
    path = tmp_path_factory.mktemp("canvas") / "bundle"

    def function(**given: Any) -> dict[str, Any]:
        return {f"{name} out": value + 0 for name, value in given.items()}

    options: dict[str, Any] = {"golden": False, "fallback": "wasm"}
    tinyedge.export_function(function, INPUTS, target="webgpu", out=path, **options)
    return path


@pytest.fixture
def page(cinema: Any, bundle: Path) -> Iterator[Any]:
    (bundle / "blank.html").write_text("<!doctype html><title>blank</title>")
    with serving(bundle) as site:
        context = cinema.new_context()
        opened = context.new_page()
        opened.goto(site.url + "blank.html")
        yield opened
        context.close()


def test_canvas(page: Any, backend: str) -> None:
    got = evaluate(
        page,
        _setup(backend)
        + f"const cases = {json.dumps(CASES)};"
        + """
        const found = {}, flat = new OffscreenCanvas(300, 300).getContext("2d");
        // What a canvas shows it shows in the task that painted it.
        const take = (canvas) => {
          flat.clearRect(0, 0, 300, 300);
          flat.drawImage(canvas, 0, 0);
          return [...flat.getImageData(0, 0, canvas.width, canvas.height).data];
        };
        let canvas, pixels, maps = 0;
        const {submit} = GPUQueue.prototype, {mapAsync} = GPUBuffer.prototype;
        GPUBuffer.prototype.mapAsync = function (...given) {
          maps++;
          return mapAsync.apply(this, given);
        };
        GPUQueue.prototype.submit = function (...given) {
          submit.apply(this, given);
          if (canvas) pixels = take(canvas);
        };
        for (const [name, [output, options]] of Object.entries(cases)) {
          canvas = document.createElement("canvas");
          await model.toCanvas(outputs[output + " out"], canvas, options);
          pixels = model.backend === "wasm" ? take(canvas) : pixels;
          found[name] = {pixels, size: [canvas.width, canvas.height]};
        }
        return {...found, maps};
        """,
    )
    assert got["maps"] == 0, "nothing is read back"
    for name, (output, options) in CASES.items():
        assert got[name]["size"] == [W, H], name
        found = np.array(got[name]["pixels"]).reshape(H, W, 4).astype(float)
        wanted = _painted(INPUTS[output].astype(float), **options)
        # A canvas keeps colors by their alpha: of what is not seen there is little to compare.
        found[..., :3] *= found[..., 3:] / 255
        assert np.abs(found - wanted).max() <= 2, name


def _painted(
    values: np.ndarray[Any, Any], range: Any = None, colors: Any = None, classes: bool = True
) -> np.ndarray[Any, Any]:
    """[H, W, 4] of 0 to 255, red, green and blue by alpha."""
    values = np.squeeze(values)
    if values.ndim == 3 and values.shape[-1] == 4:
        part = values / 255
        return np.concatenate([part[..., :3] * part[..., 3:], part[..., 3:]], -1) * 255
    low, high = (np.nanmin(values), np.nanmax(values)) if range == "auto" else range or (0, 1)
    part = np.nan_to_num(np.clip((values - low) / (high - low), 0, 1))
    opaque = np.full((H, W, 1), 255.0)
    if values.ndim == 3 and len(values) in (3, 4):
        part = part.transpose(1, 2, 0)
        alpha = part[..., 3:] if len(values) == 4 else opaque / 255
        return np.concatenate([part[..., :3] * alpha, alpha], -1) * 255
    table = np.array([[*color, 255][:4] for color in colors or []], float)
    if values.ndim == 3 or (classes and values.max() > 1 and range is None):
        numbers = np.nanargmax(values, 0) if values.ndim == 3 else values.astype(int)
        if colors is None:
            table = np.array(
                [[67 * i % 256, 149 * i % 256, 221 * i % 256, 255] for i in np.arange(64)]
            )
        shown = table[numbers % len(table)].astype(float)
        shown[..., :3] *= shown[..., 3:] / 255
        return shown
    if colors is None:
        return np.concatenate([np.repeat(part[..., None] * 255, 3, -1), opaque], -1)
    table[:, :3] *= table[:, 3:] / 255
    places = np.arange(len(table)) / (len(table) - 1)
    return np.stack([np.interp(part, places, table[:, n]) for n in np.arange(4)], -1)


def test_refusals(page: Any, backend: str) -> None:
    got = evaluate(
        page,
        _setup(backend)
        + """
        const canvas = () => new OffscreenCanvas(9, 9), other = canvas(), {device} = model;
        const away = document.createElement("canvas");
        other.getContext("bitmaprenderer");
        away.transferControlToOffscreen();
        const {"rgb out": rgb, "scores out": scores, "half out": half} = outputs;
        const paint = (...given) => errorOf(() => model.toCanvas(...given));
        const faults = [
          paint({...rgb, gpu: undefined}, canvas()), paint(rgb, other), paint(rgb, {}),
          paint(outputs["batch out"], canvas()), paint(scores, canvas(), {classes: false}),
          paint(half, canvas(), {range: [0, NaN]}), paint(half, canvas(), {range: "all"}),
          paint(half, canvas(), {range: [1]}), paint(half, canvas(), {range: 5}),
          paint(half, canvas(), {range: null}), paint({...half, shape: [0, 5]}, canvas()),
          paint(half, canvas(), {colors: "red"}), paint(half, canvas(), {colors: [[1, 2]]}),
          paint(half, canvas(), {colors: null}), paint(half, canvas(), {colors: 5}),
          paint(half, canvas(), {colors: [5]}), paint(half, canvas(), {colors: [null]}),
          paint(half, canvas(), {color: [[1, 2, 3]]}), paint(scores, canvas(), {colors: []}),
          paint(half, away), paint(half, canvas(), {colors: [[256, 0, 0]]}),
          paint(half, canvas(), {colors: [[300, 0, 0, 9]]}), paint(half, canvas(), 5),
          paint(half, canvas(), {colors: [[0, -1, 0]]}), paint(scores, canvas(), {classes: "no"}),
          paint(half, canvas(), {colors: "viridis"}),
        ];
        const said = await Promise.all(faults), ids = said.map(({id}) => id);
        model.dispose();
        return [said.at(-1).next, ...ids, (await paint(rgb, canvas())).id];
        """,
    )
    assert "colors: lists of bytes" in got.pop(0)
    assert got == ["run.option"] * 26 + ["run.disposed"]


def test_textures(page: Any) -> None:
    """An output goes into a texture within its run, value by value."""
    got = evaluate(
        page,
        _setup("webgpu")
        + """
        const {device} = model, found = {};
        const texture = (format, size = [20, 12], usage = 17) =>
          device.createTexture({format, size, usage});
        const into = {
          "depth out": texture("r32float"), "rgb out": texture("rgba8unorm"),
          "rgba out": texture("rgba8unorm"), "numbers out": texture("r32float"),
        };
        const out = await model.run(inputs, {into});
        for (const [name, given] of Object.entries(into)) {
          const buffer = device.createBuffer({size: 256 * 12, usage: 9});
          const encoder = device.createCommandEncoder();
          encoder.copyTextureToBuffer({texture: given}, {buffer, bytesPerRow: 256}, [20, 12]);
          device.queue.submit([encoder.finish()]);
          await buffer.mapAsync(1);
          found[name] = [...new Uint8Array(buffer.getMappedRange())];
        }
        const refused = [];
        for (const each of [texture("r32float", [20, 13]), texture("r32float", [20, 12], 1),
                            texture("r32uint"), texture("depth32float")])
          refused.push(await idOf(model.run(inputs, {into: {"depth out": each}})));
        const {"depth out": depth, "half out": half} = out;
        return {found, refused, same: depth.gpu.texture === into["depth out"],
                data: "data" in depth, half: [...half.data]};
        """,
    )
    rows = {
        name: np.array(value, np.uint8).reshape(H, 256)[:, : 4 * W].copy()
        for name, value in got["found"].items()
    }
    for name in ("depth", "numbers"):
        values = rows[f"{name} out"].view(np.float32)
        np.testing.assert_array_equal(values, np.squeeze(INPUTS[name]).astype(np.float32))
    rgb = rows["rgb out"].reshape(H, W, 4)
    assert np.abs(rgb[..., :3] - INPUTS["rgb"][0].transpose(1, 2, 0) * 255.0).max() <= 1
    alpha = INPUTS["rgba"][0, ..., 3:] / 255
    shown = rows["rgba out"].reshape(H, W, 4).astype(float)
    assert np.abs(shown[..., :3] - INPUTS["rgba"][0, ..., :3] * alpha).max() <= 1
    assert got["refused"] == ["run.output.buffer"] * 2 + ["run.option"] * 2
    assert got["same"] and not got["data"]
    np.testing.assert_array_equal(got["half"], INPUTS["half"].ravel())


def test_pipelines_name_their_entry_points(cinema: Any, tmp_path: Path) -> None:
    """Those of kernels, of pictures that come and of pictures that go: Chromium 113 to 120 take no
    others.
    """
    tinyedge.export_function(
        lambda x: {"y": x * 2},
        {"x": np.ones((1, 3, H, W), np.float32)},
        images={"x": "0..255,max:64"},
        target="webgpu",
        golden=False,
        out=tmp_path / "model",
    )
    (tmp_path / "model" / "blank.html").write_text("<!doctype html><title>blank</title>")
    with serving(tmp_path / "model") as site:
        context = cinema.new_context()
        page = context.new_page()
        page.goto(site.url + "blank.html")
        stages = evaluate(
            page,
            """
            const stages = [];
            for (const kind of ["Compute", "Render"])
              for (const name of [`create${kind}Pipeline`, `create${kind}PipelineAsync`]) {
                const make = GPUDevice.prototype[name];
                GPUDevice.prototype[name] = function (descriptor) {
                  for (const [stage, {entryPoint} = {}] of Object.entries(descriptor))
                    if (/compute|vertex|fragment/.test(stage)) stages.push([stage, entryPoint]);
                  return make.call(this, descriptor);
                };
              }
            const model = await load("/"), picture = new ImageData(20, 12);
            const {y} = await model.run({x: picture}, {keep: ["y"]});
            await model.toCanvas(y, new OffscreenCanvas(1, 1), {range: "auto"});
            return stages;
            """,
        )
        context.close()
    assert {stage for stage, _ in stages} == {"compute", "vertex", "fragment"}
    assert len(stages) >= 5, "a kernel, a picture in, its range, a picture out"
    assert all(isinstance(name, str) for _, name in stages), stages
