"""Pictures as inputs of a page, against what Python makes of the same pixels."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tinyedge
from tests.runtimes.firefox import told
from tests.runtimes.site import serving
from tests.runtimes.test_browser_life import evaluate
from tests.runtimes.test_browser_recover import LOSING
from tinyedge.export import resample
from tinyedge.export.verify.browser import Browser

pytestmark = pytest.mark.browser

RNG = np.random.default_rng(5)
PICTURE = RNG.integers(0, 256, (47, 31, 3), np.uint8)

# Words of each bundle and the input's shape.
BUNDLES = {
    "color": ("letterbox:114,imagenet,max:256", (1, 3, 20, 30)),
    "cover": ("cover,0..1,max:256", (24, 24, 3)),
    "rgb": ("from:rgb,bilinear,-1..1,bgr,max:256", (3, 16, 16)),
    "gray": ("from:gray,0..1,max:256", (1, 16, 16)),
    "light": ("0..1,max:256", (1, 47, 31)),
    "frames": ("0..1,max:256", (2, 3, 8, 9)),
    "many": ("0..1,max:64", (17, 3, 4, 4)),
    "two": ("cover,0..1,max:256", (3, 16, 16)),
    "nv12": ("from:nv12,0..1,max:256", (1, 3, 8, 8)),
}

# `img`, a canvas `off` and its ImageData `data` show the picture.
SETUP = """
const img = new Image();
img.src = "/picture.png";
await img.decode();
const {width, height} = img;
const off = new OffscreenCanvas(width, height), context = off.getContext("2d");
context.drawImage(img, 0, 0);
const data = context.getImageData(0, 0, width, height);
const numbers = ({output}) => [...output.data];
const textureOf = ({device}, format) =>
  device.createTexture({size: [width, height], format, usage: 22});
const write = ({device}, texture) =>
  device.queue.writeTexture({texture}, data.data, {bytesPerRow: 4 * width}, [width, height]);
"""


def _export(folder: Path, name: str, target: str, **options: Any) -> None:
    words, shape = BUNDLES[name]
    tinyedge.export_function(
        lambda x: x * 1.0,
        {"x": np.zeros(shape, np.float32)},
        target=target,
        out=folder / name,
        images={"x": words},
        golden=False,
        **options,
    )


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The bundles of a page, and beside them the same for Python."""
    from PIL import Image

    folder = tmp_path_factory.mktemp("pictures")
    for name in BUNDLES:
        _export(folder / "page", name, "webgpu")
        _export(folder / "python", name, "cpu")
    for file in (folder / "page" / "color").glob("*.js"):
        shutil.copy(file, folder / "page")
    Image.fromarray(PICTURE).save(folder / "page" / "picture.png")
    taken = Image.Exif()
    taken[0x112] = 6  # the camera was turned
    options: dict[str, Any] = {"quality": 100, "subsampling": 0, "exif": taken}
    Image.fromarray(PICTURE).save(folder / "page" / "turned.jpg", **options)
    return folder


@pytest.fixture
def page(browser: Browser, root: Path) -> Iterator[Any]:
    yield from _opened(browser.chromium, root / "page")


@pytest.fixture
def screen(cinema: Any, root: Path) -> Iterator[Any]:
    yield from _opened(cinema, root / "page")


def _opened(chromium: Any, folder: Path) -> Iterator[Any]:
    with serving(folder) as site:
        context = chromium.new_context()
        page = context.new_page()
        page.goto(site.url)
        yield page
        context.close()


def _expected(root: Path, name: str, picture: Any) -> Any:
    from PIL import Image

    shown = Image.fromarray(picture) if isinstance(picture, np.ndarray) else picture
    with tinyedge.load(root / "python" / name) as model:
        return np.array(model.run({"x": shown})["output"]).ravel()


def _is_near(found: Any, wanted: Any) -> None:
    assert np.abs(np.array(found) - wanted).max() <= 1e-3


def _gray(picture: Any) -> Any:
    """What "light" makes of pixels, unrounded."""
    return (picture @ np.array(resample.LUMA) / 255).ravel()


SOURCES = """
const m = await load("/color/"), canvas = document.createElement("canvas"), {device} = m;
Object.assign(canvas, {width, height}).getContext("2d").drawImage(img, 0, 0);
const turned = new Image();
turned.src = "/turned.jpg";
await turned.decode();
const texture = (format) => {
  const made = textureOf(m, format);
  if (format === "bgra8unorm")
    device.queue.copyExternalImageToTexture({source: img}, {texture: made}, [width, height]);
  else write(m, made);
  return made;
};
const found = {}, light = await load("/light/", {device});
let read = 0;
for (const {prototype} of [CanvasRenderingContext2D, OffscreenCanvasRenderingContext2D]) {
  const {getImageData} = prototype;
  prototype.getImageData = function (...given) { read++; return getImageData.apply(this, given); };
}
for (const [name, x] of Object.entries({
  img, canvas, off, data, turned,
  bitmap: await createImageBitmap(img),
  frame: new VideoFrame(off, {timestamp: 0}),
  texture: texture("rgba8unorm"), srgb: texture("rgba8unorm-srgb"), bgra: texture("bgra8unorm"),
}))
  found[name] = [numbers(await m.run({x})), name === "turned" ? [] : numbers(await light.run({x}))];
m.dispose();
const {launches, passes, runs} = m.stats;
return {found, read, spent: [launches / runs, passes / runs], steps: m.manifest.steps.length};
"""


@pytest.mark.parametrize("where", ["page", "screen"])
def test_sources(where: str, request: pytest.FixtureRequest, root: Path) -> None:
    """All that shows a picture gives what Python gives; photographs are turned as they were
    taken; of an sRGB texture the stored values count. Gray is not rounded. Pictures take no launch
    but the bundle's, of which two are more than the model's one.
    """
    from PIL import Image

    got = evaluate(request.getfixturevalue(where), SETUP + SOURCES)
    assert got["spent"] == [got["steps"], 1] and got["steps"] <= 3
    assert got["read"] == 0, "pixels do not come back from a canvas"
    found = got["found"]
    turned = _expected(root, "color", Image.open(root / "page" / "turned.jpg"))
    wanted = _expected(root, "color", PICTURE)
    _is_near(found.pop("turned")[0], turned)
    assert len(found) == 9
    for values, gray in found.values():
        _is_near(values, wanted)
        _is_near(gray, _gray(PICTURE))


def test_what_is_seen_and_where(page: Any, root: Path) -> None:
    """A part, turned clockwise, then mirrored; what is at a place of the input is found again."""
    found = evaluate(
        page,
        SETUP
        + """
        const crop = {x: 3, y: 5, width: 20, height: 11}, found = [];
        const m = await load("/color/"), image = textureOf(m, "rgba8unorm");
        write(m, image);
        for (const x of [
          {image: img, crop}, {image: data, crop, rotate: 90}, {image: off, crop, rotate: 180},
          {image: img, rotate: -90}, {image: off, mirror: true},
          {image, crop, rotate: 270, mirror: true},
        ]) {
          const out = await m.run({x}), {at, matrix} = out.placement.x;
          found.push({values: numbers(out), middle: at(15, 10), matrix, keys: Object.keys(out)});
        }
        return found;
        """,
    )
    part = PICTURE[5:16, 3:23]
    wanted = [part, np.rot90(part, -1), np.rot90(part, 2), np.rot90(PICTURE), PICTURE[:, ::-1]]
    wanted.append(np.rot90(part)[:, ::-1])
    middles = [(13, 10.5)] * 3 + [(15.5, 23.5)] * 2 + [(13, 10.5)]
    for each, picture, middle in zip(found, wanted, middles, strict=True):
        _is_near(each["values"], _expected(root, "color", np.ascontiguousarray(picture)))
        np.testing.assert_allclose(each["middle"], middle)
        assert each["keys"] == ["output"]
    # 20 x 11 in 30 x 20: two thirds of a pixel for each, and rows beyond the picture.
    np.testing.assert_allclose(found[0]["matrix"], [2 / 3, 0, 0, 2 / 3, 3, 5 + 5.5 - 20 / 3])
    # Of 11 x 20 in 30 x 20, turned by 270 degrees and mirrored: right is up, down is left.
    matrix = [0, -1, -1, 0, 3 + 10 + 10, 5 + 5.5 + 15]
    np.testing.assert_allclose(found[5]["matrix"], matrix, atol=1e-9)


def test_other_declarations(page: Any, root: Path) -> None:
    """Three bytes or one for each pixel, a cover, several frames, and more than a kernel binds."""
    found = evaluate(
        page,
        SETUP
        + """
        const found = {}, large = await load("/rgb/");
        // Of a device whose textures are smaller than the picture.
        Object.defineProperty(large.device, "limits", {value: {maxTextureDimension2D: 46}});
        large.device.createTexture = null;
        found.large = numbers(await large.run({x: img}));
        for (const name of ["cover", "rgb", "gray"])
          found[name] = numbers(await (await load(`/${name}/`)).run({x: img}));
        const frames = await load("/frames/"), texture = textureOf(frames, "rgba8unorm");
        write(frames, texture);
        const both = [{image: texture, mirror: true}, {image: data, rotate: 180}];
        const out = await frames.run({x: both});
        const {launches} = frames.stats, many = await load("/many/", {device: frames.device});
        const all = Array.from({length: 17}, (_, i) => ({image: off, mirror: i === 16}));
        found.many = numbers(await many.run({x: all}));
        const places = out.placement.x.length;
        all[3] = texture;
        const id = await idOf(many.run({x: all}));
        return {...found, frames: numbers(out), places, launches, id};
        """,
    )
    for name in ("cover", "rgb", "gray"):
        _is_near(found[name], _expected(root, name, PICTURE))
    _is_near(found["large"], found["rgb"])
    with tinyedge.load(root / "python" / "frames") as model:
        both = np.stack([PICTURE[:, ::-1], np.rot90(PICTURE, 2)])
        _is_near(found["frames"], np.array(model.run({"x": both})["output"]).ravel())
    with tinyedge.load(root / "python" / "many") as model:
        every = np.stack([PICTURE] * 16 + [PICTURE[:, ::-1]])
        _is_near(found["many"], np.array(model.run({"x": every})["output"]).ravel())
    assert (found["places"], found["id"]) == (2, "run.input") and found["launches"] <= 3


def test_two_inputs(page: Any, root: Path) -> None:
    """Both as pictures, one as bytes, and pictures that one kernel reads."""
    site = root / "page"
    shape = np.zeros((3, 16, 16), np.float32)
    images = dict.fromkeys("ab", "cover,0..1,max:256")
    for name, model in {"minus": lambda a, b: a.exp() - b, "sum": lambda a, b: a + b}.items():
        tinyedge.export_function(
            model, {"a": shape, "b": shape}, out=site / name, images=images, golden=False
        )
    found = evaluate(
        page,
        SETUP
        + """
        const bytes = {data: data.data, shape: [height, width, 4]};
        const b = {image: img, rotate: 180}, found = [];
        for (const name of ["minus", "sum"]) {
          const m = await load(`/${name}/`);
          for (const a of [off, bytes]) found.push(numbers(await m.run({a, b})));
        }
        return found;
        """,
    )
    a, b = (_expected(root, "two", np.ascontiguousarray(np.rot90(PICTURE, n))) for n in (0, 2))
    for values, wanted in zip(found, [np.exp(a) - b] * 2 + [a + b] * 2, strict=True):
        _is_near(values, wanted)


def test_pictures_are_read_at_once_and_textures_used_again(page: Any, root: Path) -> None:
    """What is drawn after `run` was called does not matter, also where a bitmap must be made, as in
    Firefox; runs are in order.
    """
    script = """
        const m = await load("/color/");
        const {createTexture} = m.device, sizes = [];
        m.device.createTexture = function (descriptor) {
          sizes.push(descriptor.size);
          return createTexture.call(this, descriptor);
        };
        const shoot = async (source) => {
          context.putImageData(data, 0, 0);
          const first = m.run({x: source()});
          context.fillRect(0, 0, width, height);
          const black = m.run({x: off});
          return [numbers(await first), numbers(await black)];
        };
        const found = [];
        for (let i = 0; i < 4; i++) found.push(await shoot(() => off));
        const {copyExternalImageToTexture} = GPUQueue.prototype;
        // What the GPU has against a picture in a texture that was used before.
        const gone = textureOf(m, "rgba8unorm");
        gone.destroy();
        GPUQueue.prototype.copyExternalImageToTexture = function (from, to, size) {
          return copyExternalImageToTexture.call(this, from, {texture: gone}, size);
        };
        const fault = await idOf(m.run({x: off}));
        let refused = 0;
        GPUQueue.prototype.copyExternalImageToTexture = function (from, ...more) {
          if (from.source instanceof ImageBitmap || from.source instanceof OffscreenCanvas)
            return copyExternalImageToTexture.call(this, from, ...more);
          refused++;
          throw new TypeError("no such source");
        };
        found.push(await shoot(() => new VideoFrame(off, {timestamp: 0})));
        return {found, textures: sizes.length, refused, fault};
    """
    got = evaluate(page, SETUP + script)
    wanted = [_expected(root, "color", each) for each in (PICTURE, np.zeros_like(PICTURE))]
    for pair in got["found"]:
        for values, right in zip(pair, wanted, strict=True):
            _is_near(values, right)
    assert got["textures"] == 3 and got["refused"] == 1, "two, and the one of this test"
    assert got["fault"] == "run.input.buffer"


def test_pipelines_come_with_the_load(page: Any, root: Path) -> None:
    """A picture makes none, whether the kernels or image.js come first, and what is no picture
    waits for none. Of a texture that is used again the bind group is there.
    """
    held: list[Any] = []
    page.route("**/image.js", lambda route: held.append(route))
    page.route("**/go", lambda route: (held.pop().continue_(), route.fulfill(status=204)))
    got = evaluate(
        page,
        SETUP
        + """
        const {createComputePipelineAsync, createBindGroup} = GPUDevice.prototype, entries = [];
        let groups = 0, first = true, go;
        const held = new Promise((resolve) => (go = resolve));
        GPUDevice.prototype.createComputePipelineAsync = async function (descriptor) {
          const {entryPoint} = descriptor.compute;
          entries.push(entryPoint);
          const asks = first;
          first = false;
          if (asks) await fetch("/go");
          if (entryPoint === "picture") await held;
          return createComputePipelineAsync.call(this, descriptor);
        };
        GPUDevice.prototype.createComputePipeline = null;
        GPUDevice.prototype.createBindGroup = function (descriptor) {
          groups++;
          return createBindGroup.call(this, descriptor);
        };
        const found = [];
        for (const name of ["color", "cover"]) {
          const m = await load(`/${name}/`), bytes = {data: data.data, shape: [height, width, 4]};
          const values = [numbers(await m.run({x: bytes}))], compiled = entries.splice(0);
          go();
          const before = groups, counts = [];
          for (let i = 0; i < 3; i++) {
            values.push(numbers(await m.run({x: img})));
            counts.push(groups - before);
          }
          const pictures = compiled.filter((name) => name === "picture").length;
          found.push([values, [compiled.at(-1), pictures, entries.length, counts]]);
        }
        return found;
        """,
    )
    for name, (values, counts) in zip(("color", "cover"), got, strict=True):
        for each in values:
            _is_near(each, _expected(root, name, PICTURE))
        assert counts == ["picture", 1, 0, [1, 1, 1]], name


def test_textures_of_runs_that_never_begin(page: Any) -> None:
    """Pictures that gave way to later ones, whose run was aborted or whose model was disposed."""
    got = evaluate(
        page,
        SETUP
        + """
        const m = await load("/color/"), made = [];
        const {createTexture} = m.device;
        m.device.createTexture = function (...given) {
          made.push(given);
          return createTexture.apply(this, given);
        };
        const runs = [], stop = new AbortController();
        for (let i = 0; i < 30; i++) runs.push(m.run({x: off}, {latest: true}));
        const found = (await Promise.all(runs)).map((out) => !!out);
        for (let i = 0; i < 3; i++) runs.push(m.run({x: off}, {signal: stop.signal}));
        stop.abort();
        await Promise.allSettled(runs);
        await m.run({x: off});
        const first = made.length;
        m.dispose();
        const after = await idOf(m.run({x: off}));
        return {found, made: first, after, none: made.length === first};
        """,
    )
    assert got["found"][0] and got["found"][-1] and got["found"].count(True) <= 3
    # Two in flight, the one that waits, and the one that takes its place.
    assert got["made"] <= 4
    assert (got["after"], got["none"]) == ("run.disposed", True)


def test_another_device(page: Any, root: Path) -> None:
    """A picture that is given when the device is known to be lost comes to the next one."""
    got = evaluate(
        page,
        LOSING
        + SETUP
        + """
        const m = await load("/color/");
        await m.run({x: off});
        await lose();
        const next = m.run({x: off});
        context.fillRect(0, 0, width, height);
        const first = numbers(await next);
        context.putImageData(data, 0, 0);
        return {first, then: numbers(await m.run({x: off})), opened};
        """,
    )
    for values in (got["first"], got["then"]):
        _is_near(values, _expected(root, "color", PICTURE))
    assert got["opened"] == 2


def test_refusals(page: Any) -> None:
    found = evaluate(
        page,
        SETUP
        + """
        const m = await load("/color/"), other = await load("/nv12/"), found = [];
        const {device} = m, closed = await createImageBitmap(img);
        closed.close();
        const format = "rgba8unorm";
        const texture = (usage) => device.createTexture({size: [9, 9], format, usage});
        const gone = texture(6);
        gone.destroy();
        const broken = new Image();
        broken.src = "/nothing.png";
        const small = new OffscreenCanvas(9, 8);
        small.getContext("2d");
        const away = new ImageData(4, 4);
        structuredClone(away.data, {transfer: [away.data.buffer]});
        found.push([await idOf(m.run({x: away}))]);
        for (const x of [
          closed, broken, document.createElement("video"), new OffscreenCanvas(300, 9),
          {image: img, crop: {x: 30, width: 2}}, {image: img, crop: {x: 0.5}},
          {image: img, crop: {w: 1}},
          {image: img, rotate: 45}, {image: img, zoom: 2}, {image: img, crop: 5},
          {image: img, mirror: "yes"}, texture(2), gone, new Blob([]),
        ])
          found.push([await idOf(m.run({x})), ""]);
        found.push([await idOf(other.run({x: img, "x.uv": img}))]);
        const frames = await load("/frames/");
        const file = await (await fetch("/picture.png")).arrayBuffer();
        for (const x of [file, new Uint8Array(file)]) found.push([await idOf(m.run({x}))]);
        const said = [];
        const integers = device.createTexture({size: [9, 9], format: "rgba8uint", usage: 6});
        const promise = createImageBitmap(img);
        const {lacking} = await m.run({x: texture(2)}).catch(({because: lacking}) => ({lacking}));
        for (const x of [promise, {image: promise}, document.body, new Float32Array(9), integers])
          said.push(await m.run({x}).catch(({id, because}) => [id, because]));
        for (const x of [[img, null], [small, "a"], [], [img, , img]])
          said.push(await frames.run({x}).catch(({id, because}) => [id, because]));
        for (const x of [[img, small], [img], img]) found.push([await idOf(frames.run({x}))]);
        found.push([await idOf(m.run({x: [img, img]}))]);
        let unheard = 0;
        device.addEventListener("uncapturederror", () => unheard++);
        const stencil = device.createTexture({size: [9, 9], format: "stencil8", usage: 6});
        const bound = await m.run({x: stencil}).catch(({id, because}) => [id, because]);
        const good = await m.run({x: img});
        const ids = found.map(([id]) => id);
        const wide = {x: new OffscreenCanvas(300, 9)},
          large = await m.run(wide).catch(({because, next}) => [because, next]);
        const texts = {x: {image: img, crop: {width: "5", height: "5"}, rotate: 180}};
        const text = await m.run(texts).catch(({because}) => because);
        return {ids, good: good.output.data[0], said, bound, unheard, lacking, large, text};
        """,
    )
    first, *ids = found["ids"]
    assert first == "run.input"
    assert ids[:3] == ["run.input"] * 3 and ids[3] == "run.shape"
    assert ids[4:12] == ["run.input"] * 8
    assert ids[12:15] == ["run.input.buffer", "run.dtype", "run.input"]
    assert ids[15:] == ["run.dtype"] * 2 + ["run.shape"] * 4
    assert found["lacking"] == "its texture lacks TEXTURE_BINDING"
    assert found["text"] == "its crop is 5 x 5 at 0, 0", "texts would be put behind each other"
    assert found["large"] == ["it is 300 x 9", "give a smaller one, or export with max:300"]
    kinds = ("Promise", "Promise", "HTMLBodyElement", "Float32Array")
    said = [["run.dtype", f"it is {kind}, no picture"] for kind in kinds]
    said.append(["run.input", "its texture cannot be read"])
    frames = ("1 is Null", "1 is String", "0 is Undefined", "1 is Undefined")
    said += [["run.dtype", f"its frame {frame}, no picture"] for frame in frames]
    assert found["said"] == said
    assert found["bound"][0] == "run.input.buffer" and "Stencil8" in found["bound"][1]
    assert not found["unheard"]


def test_the_processor(browser: Browser, tmp_path: Path, root: Path) -> None:
    """Where there is no GPU the same pictures give the same, gray is not rounded, and what is
    transparent has its color.
    """
    from PIL import Image

    pytest.importorskip("ziglang")
    clear = np.concatenate([PICTURE, RNG.integers(0, 256, (47, 31, 1), np.uint8)], -1)
    clear[:20, ..., 3] = 0
    Image.fromarray(clear).save(tmp_path / "clear.png")
    for name in ("color", "rgb", "gray", "light"):
        _export(tmp_path, name, "webgpu", fallback="wasm")
    for file in (*(tmp_path / "color").glob("*.js"), root / "page" / "picture.png"):
        shutil.copy(file, tmp_path)
    for page in _opened(browser.chromium, tmp_path):
        found = evaluate(
            page,
            SETUP
            + """
            const options = {backend: "wasm"}, found = {};
            for (const name of ["rgb", "gray"])
              found[name] = numbers(await (await load(`/${name}/`, options)).run({x: img}));
            const m = await load("/color/", options);
            const light = await load("/light/", options);
            found.light = [];
            const bitmapped = await createImageBitmap(img);
            for (const x of [img, off, data, bitmapped, new VideoFrame(off, {timestamp: 0})])
              found.light.push(numbers(await light.run({x})));
            const clear = new Image();
            clear.src = "/clear.png";
            await clear.decode();
            const bitmap = await createImageBitmap(clear, {premultiplyAlpha: "none"});
            const all = {width, height};
            found.clear = [];
            for (const x of [clear, bitmap, {image: clear, crop: all, mirror: true}])
              found.clear.push(numbers(await light.run({x})));
            found.color = numbers(await m.run({x: new VideoFrame(off, {timestamp: 0})}));
            found.data = numbers(await m.run({x: data}));
            const part = {crop: {x: 3, y: 5, width: 20, height: 11}, rotate: 90, mirror: true};
            const {at} = (await m.run({x: off})).placement.x, parts = [];
            for (const image of [img, data])
              parts.push(numbers(await m.run({x: {image, ...part}})));
            const half = new ImageData(width, height, {pixelFormat: "rgba-float16"});
            data.data.forEach((value, i) => (half.data[i] = i % 4 < 3 ? value / 255 : (i % 3) / 8));
            found.half = numbers(await m.run({x: half}));
            const wide = new OffscreenCanvas(width, height), colorSpace = "display-p3";
            const inWide = wide.getContext("2d", {colorSpace});
            inWide.drawImage(img, 0, 0);
            const there = inWide.getImageData(0, 0, width, height, {colorSpace});
            for (let i = 3; i < there.data.length; i += 4) there.data[i] = 0;
            found.wide = numbers(await m.run({x: there}));
            const drawn = async (opacity, size = 'width="30" height="20"') => {
              const shape = new Image(), rect = '<rect width="30" height="20" fill="#c85028"';
              const svg = `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 30 20" ${size}>`;
              shape.src = `data:image/svg+xml,${encodeURIComponent(
                `${svg}${rect} opacity="${opacity}"/></svg>`)}`;
              await shape.decode();
              return numbers(await m.run({x: shape}));
            };
            found.drawn = [await drawn(1), await drawn(0.5), await drawn(0.99, "")];
            const gone = new ImageData(4, 4), early = document.createElement("video");
            structuredClone(gone.data, {transfer: [gone.data.buffer]});
            for (const name of ["videoWidth", "videoHeight"])
              Object.defineProperty(early, name, {value: 9});
            const foreign = new Image();
            foreign.src = img.src.replace("127.0.0.1", "localhost");
            await foreign.decode();
            const ids = [];
            for (const x of [gone, early, foreign]) ids.push(await idOf(m.run({x})));
            return {...found, parts, ids, at: at(15, 10), backend: m.backend};
            """,
        )
    assert found["backend"] == "wasm" and found["at"] == [15.5, 23.5]
    for name in ("rgb", "gray", "color"):
        _is_near(found[name], _expected(root, name, PICTURE))
    for name in ("data", "half"):
        _is_near(found[name], found["color"])
    for values in found["light"]:
        _is_near(values, _gray(PICTURE))
    for values, shown in zip(found["clear"], [PICTURE, PICTURE, PICTURE[:, ::-1]], strict=True):
        _is_near(values, _gray(shown))
    # Bytes of the wider colors are coarser.
    assert np.abs(np.array(found["wide"]) - found["color"]).max() <= 2 / 57.12
    for values in found["drawn"]:
        assert np.abs(np.array(values) - found["drawn"][0]).max() <= 2 / 57.12
    assert found["ids"] == ["run.input"] * 3
    part = np.ascontiguousarray(np.rot90(PICTURE[5:16, 3:23], -1)[:, ::-1])
    for values in found["parts"]:
        _is_near(values, _expected(root, "color", part))


def test_the_page(browser: Browser, root: Path) -> None:
    """The page of a bundle takes the file of a picture, of whatever size."""
    with browser.page(root / "page" / "color", start="") as page:
        page.get_by_role("button", name="Run").wait_for()
        assert page.get_by_label("x.height (1 to 256)").input_value() == "20"
        page.get_by_role("button", name="Run").click()
        page.get_by_text("with upload").wait_for()
        page.get_by_label("Values from").first.select_option("Image")
        page.get_by_label("File for x").set_input_files(root / "page" / "picture.png")
        for button in ("Run", "Profile"):
            page.get_by_role("button", name=button).click()
            page.get_by_text("Ready").wait_for()
        assert page.get_by_text("That did not work").count() == 0
        low = _expected(root, "color", PICTURE).min()
        assert page.get_by_text(f"from {low:.5g}"[:10]).count() == 1


def test_firefox(root: Path, tmp_path: Path) -> None:
    """Its WebGPU, which is wgpu, takes fewer kinds of pictures: of the others bitmaps are made."""
    script = """
        import("./tinyedge.js").then(async ({load}) => {
          const wanted = await (await fetch("wanted.json")).json();
          const m = await load("./color/"), texture = textureOf(m, "rgba8unorm");
          write(m, texture);
          const frame = new VideoFrame(off, {timestamp: 0}), found = [];
          for (const x of [img, off, data, await createImageBitmap(img), frame, texture]) {
            const values = numbers(await m.run({x}));
            found.push(values.every((value, i) => Math.abs(value - wanted[i]) <= 1e-3));
          }
          await say(found, wanted.length);
        }).catch(({id, message}) => say(id, message));
    """
    site = shutil.copytree(root / "page", tmp_path / "site")
    wanted = _expected(root, "color", PICTURE)
    (site / "wanted.json").write_text(json.dumps(wanted.tolist()))
    said = told(site, SETUP + script, webgpu=True)
    assert said == ",".join(["true"] * 6) + f":{wanted.size}"


def test_video(screen: Any) -> None:
    """A video's frame and the camera's are what a canvas shows of them; nothing is left behind."""
    got = evaluate(
        screen,
        SETUP
        + """
        const m = await load("/color/"), video = document.createElement("video");
        video.muted = true;
        const camera = {video: {width: 160, height: 120}};
        video.srcObject = await navigator.mediaDevices.getUserMedia(camera);
        await video.play();
        const made = {createTexture: 0, createBuffer: 0};
        for (const name in made) {
          const create = m.device[name];
          m.device[name] = function (...given) {
            made[name]++;
            return create.apply(this, given);
          };
        }
        const counts = [];
        for (let i = 0; i < 30; i++) {
          await new Promise((resolve) => video.requestVideoFrameCallback(resolve));
          await m.run({x: video});
          if (i % 10 === 1) counts.push({...made});
        }
        video.pause();
        const shown = new OffscreenCanvas(video.videoWidth, video.videoHeight);
        shown.getContext("2d").drawImage(video, 0, 0);
        const [seen, drawn] = [await m.run({x: video}), await m.run({x: shown})];
        video.srcObject.getTracks().forEach((track) => track.stop());
        const size = [shown.width, shown.height];
        return {counts, seen: numbers(seen), drawn: numbers(drawn), size};
        """,
    )
    assert got["size"] == [160, 120]
    assert got["counts"][0] == got["counts"][-1]
    assert np.std(got["seen"]) > 0.1
    # The browser rounds colors of the two ways by itself: one step of 255 each.
    assert np.abs(np.array(got["seen"]) - got["drawn"]).max() <= 2 / 57.12
