"""Inputs that take pictures: their kernels against the resampling written out in float64."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import tinyedge
from tests.agreement import find_target
from tinyedge.cli import execute
from tinyedge.core import dtype as dt
from tinyedge.core.compiler.compile import compile_graph
from tinyedge.core.errors import InputError, RunError
from tinyedge.core.program.replay import Replay
from tinyedge.core.tensor.graph import Graph, Graphs, Port
from tinyedge.core.tensor.tensor import Tensor
from tinyedge.export.bundle.reading import read
from tinyedge.export.pictures import parse, with_pictures
from tinyedge.export.verify.verify import verify
from tinyedge.remarks import remarks

MEAN, STD = np.array([123.675, 116.28, 103.53]), np.array([58.395, 57.12, 57.375])
RNG = np.random.default_rng(3)

# Words, the input's shape, the picture's height and width, and what the words mean.
CASES: list[tuple[str, tuple[int, ...], tuple[int, int], dict[str, Any]]] = [
    ("letterbox:114,imagenet", (1, 3, 20, 30), (47, 31), {"fit": "letterbox", "pad": 114}),
    ("cover,imagenet,bgr", (1, 3, 20, 20), (33, 75), {"fit": "cover", "order": [2, 1, 0]}),
    ("stretch,imagenet", (24, 16, 3), (9, 130), {"fit": "stretch"}),
    ("imagenet,bilinear", (1, 3, 12, 12), (40, 7), {"fit": "stretch", "filter": "bilinear"}),
    ("imagenet,nearest", (1, 3, 12, 12), (40, 7), {"fit": "stretch", "filter": "nearest"}),
    ("imagenet", (1, 3, 8, 8), (1, 1), {"fit": "stretch"}),
    ("imagenet,letterbox,from:rgba", (3, 16, 16), (16, 16), {"fit": "letterbox", "pad": 0}),
]


def _matrix(size: int, out: int, scale: float, filter: str) -> tuple[Any, Any]:
    """[out, size] shares of an axis' pixels in each of the result's, and which lie inside."""
    center = (np.arange(out) + 0.5 - out / 2) * scale + size / 2
    if filter == "nearest":
        near = np.clip(np.floor(center + 1e-9), 0, size - 1).astype(int)
        return np.eye(size)[near], (center >= 0) & (center < size)
    width = max(scale, 1.0) if filter == "antialias" else 1.0
    distance = np.abs(np.arange(size)[None, :] + 0.5 - center[:, None])
    shares = np.maximum(1 - distance / width, 0)
    total = shares.sum(1, keepdims=True)
    return shares / np.where(total == 0, 1, total), (center >= 0) & (center < size)


def _expected(
    picture: Any, out: Sequence[int], fit: str, filter: str = "antialias", pad: float = 0
) -> Any:
    """[height, width, channels] of 0 to 255, in float64."""
    sizes = picture.shape[:2]
    scales = [size / o for size, o in zip(sizes, out, strict=True)]
    if fit != "stretch":
        scales = [max(scales) if fit == "letterbox" else min(scales)] * 2
    (rows, in_rows), (columns, in_columns) = (
        _matrix(size, o, scale, filter) for size, o, scale in zip(sizes, out, scales, strict=True)
    )
    result = np.einsum("yi,ijc,xj->yxc", rows, picture.astype(np.float64), columns)
    if fit == "letterbox":
        result[~(in_rows[:, None] & in_columns[None, :])] = pad
    return result


def _graphs(words: str, shape: tuple[int, ...], dtype: dt.DType = dt.float32) -> Graphs:
    """A model that gives back its input, which is a picture."""
    x = Tensor.input("x", shape, dtype)
    y = x + 0 if dtype is dt.uint8 else x * 1.0
    graph = Graph((Port("x", dtype, shape),), (Port("y", dtype, shape, y.node),))
    return Graphs(with_pictures({"main": graph}, {"x": f"{words},max:160"})[0])


def _run(words: str, shape: tuple[int, ...], device: Any, target: str, **inputs: Any) -> Any:
    compiled = compile_graph(_graphs(words, shape), find_target(target))
    assert len(compiled.launches) <= 3  # that of the model, and two
    assert compiled.program is not None
    with Replay(compiled.program, device) as replay:
        return replay.run(inputs)["y"]


def _is_near(found: Any, wanted: Any) -> None:
    assert found.shape == wanted.shape
    assert np.abs(found - wanted).max() <= 1e-3


@pytest.mark.parametrize("target", ["cpu", "webgpu", "qcom", "cuda"])
@pytest.mark.parametrize(("words", "shape", "sizes", "meant"), CASES, ids=[c[0] for c in CASES])
def test_reference(
    words: str,
    shape: tuple[int, ...],
    sizes: tuple[int, int],
    meant: dict[str, Any],
    target: str,
    request: pytest.FixtureRequest,
) -> None:
    device = request.getfixturevalue(f"{target}_device")
    channels = 4 if "rgba" in words else 3
    picture = RNG.integers(0, 256, (*sizes, channels), np.uint8)
    order = meant.get("order", [0, 1, 2])
    last = shape[-1] == 3
    out = shape[:2] if last else shape[-2:]
    options = {key: value for key, value in meant.items() if key != "order"}
    wanted = ((_expected(picture[..., :3], out, **options) - MEAN) / STD)[..., order]
    found = _run(words, shape, device, target, x=picture)
    _is_near(found, (wanted if last else wanted.transpose(2, 0, 1)).reshape(shape))


@pytest.mark.parametrize("target", ["cpu", "webgpu", "qcom", "cuda"])
def test_gray_and_nv12(target: str, request: pytest.FixtureRequest) -> None:
    """Colors are mixed as the standards say, and luma has twice the size of chroma."""
    device = request.getfixturevalue(f"{target}_device")
    picture = RNG.integers(0, 256, (30, 21, 3), np.uint8)
    gray = _expected(picture, (8, 9), "stretch") @ np.array([[0.299], [0.587], [0.114]])
    _is_near(_run("0..1,gray", (1, 8, 9), device, target, x=picture)[0], gray[..., 0] / 255)

    luma = RNG.integers(16, 236, (15, 22), np.uint8)
    chroma = RNG.integers(100, 156, (8, 11, 2), np.uint8)
    full = chroma.repeat(2, 0).repeat(2, 1)[:15, :22]
    planes = np.concatenate([luma[..., None], full], -1)
    light, u, v = np.moveaxis(_expected(planes, (8, 8), "stretch"), -1, 0)
    light, u, v = (light - 16) / 219, (u - 128) / 224, (v - 128) / 224
    mixed = [light + 1.402 * v, light - 0.344136 * u - 0.714136 * v, light + 1.772 * u]
    wanted = np.clip(np.stack(mixed), 0, 1)
    found = _run("0..1,from:nv12", (3, 8, 8), device, target, x=luma, **{"x.uv": chroma})
    _is_near(found, wanted)


def test_planes_of_two_pictures() -> None:
    """The chroma has half of the luma's rows and columns, rounded up."""
    from tinyedge.targets.cpu import device as cpu

    compiled = compile_graph(_graphs("0..1,from:nv12", (3, 8, 8)), find_target("cpu"))
    assert compiled.program is not None
    assert [symbol.name for symbol in compiled.program.symbols] == ["x.height", "x.width"]
    luma, chroma = np.zeros((15, 22), np.uint8), np.zeros((8, 12, 2), np.uint8)
    with (
        Replay(compiled.program, cpu.open()) as replay,
        pytest.raises(RunError, match=r"'x.uv'[^$]*axis 1 is 12, not 11"),
    ):
        replay.run({"x": luma, "x.uv": chroma})


def test_frames_of_bytes() -> None:
    """Several frames, and a model that takes bytes, which are rounded."""
    compiled = compile_graph(_graphs("nhwc", (2, 6, 5, 3), dt.uint8), find_target("cpu"))
    frames = RNG.integers(0, 256, (2, 31, 17, 3), np.uint8)
    from tinyedge.targets.cpu import device as cpu

    assert compiled.program is not None
    with Replay(compiled.program, cpu.open()) as replay:
        found = replay.run({"x": frames})["y"]
    wanted = np.stack([_expected(frame, (6, 5), "stretch") for frame in frames])
    assert found.dtype == np.uint8
    assert np.abs(found - wanted).max() <= 0.5 + 1e-3


def test_files(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """A bundle takes a picture's file; a larger one than it was exported for is refused."""
    from PIL import Image

    picture = RNG.integers(0, 256, (19, 23, 3), np.uint8)
    Image.fromarray(picture).save(tmp_path / "cat.png")
    tinyedge.export_function(
        lambda x: x * 2.0,
        {"x": np.zeros((1, 3, 8, 8), np.float32)},
        target="cpu",
        out=tmp_path / "m",
        images={"x": "cover,-1..1,max:64"},
    )
    wanted = (_expected(picture, (8, 8), "cover") - 127.5) / 127.5 * 2
    with tinyedge.load(tmp_path / "m") as model:
        found = model.run({"x": tmp_path / "cat.png"})["output"]
        _is_near(found[0], wanted.transpose(2, 0, 1))
        assert np.array_equal(found, model.run({"x": picture})["output"])
        assert np.array_equal(found, model.run({"x": Image.fromarray(picture)})["output"])
        said = r"65 x 9 pixels[^$]*up to 64 pixels a side[^$]*make it smaller[^$]*max:65"
        with pytest.raises(RunError, match=said):
            model.run({"x": Image.fromarray(np.zeros((9, 65, 3), np.uint8))})
        with pytest.raises(RunError, match=r"x.width is 1..64"):
            model.run({"x": np.zeros((9, 65, 3), np.uint8)})
        for file, said in (
            (
                tmp_path / "dog.png",
                "dog.png' cannot be read: No such file[^$]*check the file's path",
            ),
            (tmp_path, "cannot be read: Is a directory"),
            (tmp_path / "m" / "manifest.json", "no picture that Pillow knows[^$]*make a PNG"),
            ([tmp_path / "cat.png"] * 2, "2 pictures are given, and it takes 1"),
        ):
            with pytest.raises(RunError, match=said):
                model.run({"x": file})
        capfd.readouterr()
        assert execute(["run", str(tmp_path / "m")]) == 1
        assert "add --input 'x=FILE.png', or --random" in capfd.readouterr().err
        run = ["run", str(tmp_path / "m"), "--out", str(tmp_path / "out"), "--input"]
        assert execute([*run, f"x={tmp_path / 'cat.png'}"]) == 0
        assert np.array_equal(found, np.load(tmp_path / "out" / "output.npy"))
        with pytest.raises(RunError, match=r"4 channels[^$]*give 3 channels[^$]*from:rgba"):
            model.run({"x": np.zeros((9, 9, 4), np.uint8)})
        damaged = (tmp_path / "cat.png").read_bytes().replace(b"IDAT", b"X")
        (tmp_path / "cut.png").write_bytes(damaged)
        with pytest.raises(RunError, match="cannot be read"):
            model.run({"x": tmp_path / "cut.png"})
        with pytest.raises(RunError, match=r"whose width nobody knows[^$]*io\.BytesIO"):
            model.run({"x": damaged})
        Image.fromarray(np.full((5, 4), 700, np.uint16)).save(tmp_path / "deep.png")
        with pytest.raises(RunError, match="more than 8 bits"):
            model.run({"x": tmp_path / "deep.png"})
        with pytest.raises(RunError, match=r"x.height is 1..64"):
            model.run({"x": Image.new("RGB", (3, 0))})


def test_files_of_several_pictures(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """An input of frames takes one file each, and so do several runs."""
    from PIL import Image

    pictures = RNG.integers(0, 256, (3, 19, 23, 3), np.uint8)
    files = [tmp_path / f"{number}.png" for number in range(3)]
    for file, picture in zip(files, pictures, strict=True):
        Image.fromarray(picture).save(file)
    Image.fromarray(pictures[0, :9]).save(tmp_path / "flat.png")
    bundle, out = tmp_path / "m", tmp_path / "out"
    for frames in (2, 1):
        tinyedge.export_function(
            lambda x: x * 2.0,
            {"x": np.zeros((frames, 3, 8, 8), np.float32)},
            target="cpu",
            out=bundle,
            images={"x": "cover,-1..1,max:64"},
        )
        with tinyedge.load(bundle) as model:
            last = [files[2]] if frames == 1 else files[:2]
            wanted = model.run({"x": [*last]})["output"]
        given = [word for file in files[:2] for word in ("--input", f"x={file}")]
        more = ["--steps", "3", "--input", f"x={files[2]}"] if frames == 1 else []
        assert execute(["run", str(bundle), "--out", str(out), *given, *more]) == 0
        assert np.array_equal(wanted, np.load(out / "output.npy"))
        for odd, said in (
            (
                [f"x={tmp_path / 'flat.png'}"] * (frames > 1),
                "pictures are of 23x19 and 23x9 pixels",
            ),
            ([f"x={files[1]}", f"x={files[2]}"], f"3 pictures are given, and it takes {frames}"),
        ):
            words = [word for each in odd for word in ("--input", each)]
            capfd.readouterr()
            assert execute(["run", str(bundle), "--out", str(out), *given[:2], *words]) == bool(odd)
            assert not odd or said in capfd.readouterr().err
    assert execute(["bench", str(bundle), "--runs", "1", "--dim", "x.height=16"]) == 0
    said = capfd.readouterr().out
    assert "x [16, 8, 3];" in said and "of another size by --dim x.width=N\n" in said


def test_a_picture_beyond_what_devices_bind() -> None:
    """The note names the word that makes it smaller."""
    x = Tensor.input("x", (1, 3, 8, 8), dt.float32)
    graph = Graph((Port("x", dt.float32, x.shape),), (Port("y", dt.float32, x.shape, x.node),))
    graphs, records = with_pictures({"main": graph}, {"x": "0..1,max:4096,from:rgba"})
    target = find_target("webgpu")
    caps = target.caps("default")
    (said,) = remarks(Graphs(graphs), target, 4096**2 * 16, caps, records)
    assert "'x' of up to 4096 x 4096 pixels takes 268435456 bytes" in said
    assert said.endswith("--image x=..,max:2896") and 2896**2 * 16 <= caps.binding_bytes


@pytest.mark.parametrize(
    ("words", "shape", "id"),
    [
        ("letterbocks:9,0..1", (1, 3, 8, 8), "picture.word"),
        ("cover,stretch,0..1", (1, 3, 8, 8), "picture.twice"),
        ("mean:1/2/3", (1, 3, 8, 8), "picture.scale"),
        ("rgb", (1, 3, 8, 8), "picture.scale"),
        ("0..1", (1, 5, 8, 8), "picture.layout"),
        ("0..1", (1, 3, 8, 3), "picture.layout"),
        ("mean:1/2,std:1", (1, 3, 8, 8), "picture.scale"),
        ("mean:1e39,std:1", (1, 3, 8, 8), "picture.scale"),
        ("mean:1,std:1e-300", (1, 3, 8, 8), "picture.scale"),
        ("letterbox:256,0..1", (1, 3, 8, 8), "picture.scale"),
    ],
)
def test_refusals(words: str, shape: tuple[int, ...], id: str) -> None:
    with pytest.raises(InputError) as caught:
        _graphs(words, shape)
    assert caught.value.id == id
    if id == "picture.word":
        assert caught.value.next == "did you mean 'letterbox'?"


def test_more_values_than_kernels_count() -> None:
    """Two frames of rgba with sides of 16384 are 2^31 values."""
    x = Tensor.input("x", (2, 3, 8, 8), dt.float32)
    graph = Graph((Port("x", dt.float32, x.shape),), (Port("y", dt.float32, x.shape, x.node),))
    with pytest.raises(InputError, match="2147483648 values"):
        with_pictures({"main": graph}, {"x": "0..1,from:rgba,max:16384"})


def test_words() -> None:
    with pytest.raises(InputError, match=r"max:99999[^$]*max:16384"):
        parse("x", "max:99999")
    made = parse("x", "letterbox:114, bgr,mean:1/2.5/-3,std:1,max:640")
    assert (made.fit, made.pad, made.colors, made.side) == ("letterbox", (114.0,), "bgr", 640)
    assert (made.mean, made.std) == ((1.0, 2.5, -3.0), (1.0,))


def test_no_such_input() -> None:
    graph = Graph((), ())
    with pytest.raises(InputError, match="no such input"):
        with_pictures({"main": graph}, {"x": "0..1"})


@pytest.mark.parametrize(
    "words",
    ["cover,bgr,imagenet,from:rgba,max:24", "letterbox:9,bilinear,-1..1,from:nv12,full,max:24"],
)
def test_against_the_model(words: str, tmp_path: Path, cpu_device: Any) -> None:
    """onnxruntime gets the values that the declaration makes of the picture."""
    pytest.importorskip("onnxruntime")
    weight = numpy_helper.from_array(RNG.normal(size=(2, 3, 3, 3)).astype(np.float32), "w")
    ports = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
        for name, shape in (("x", [1, 3, 10, 12]), ("y", [1, 2, 8, 10]))
    ]
    nodes = [helper.make_node("Conv", ["x", "w"], ["y"])]
    graph = helper.make_graph(nodes, "g", ports[:1], ports[1:], [weight])
    path, out = tmp_path / "m.onnx", tmp_path / "m"
    opsets = [helper.make_opsetid("", 17)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), path)
    tinyedge.export_onnx(path, target="cpu", out=out, images={"x": words})
    launches = [step.nodes for step in read(out).program.entries[0].steps]
    assert set(launches[:-1]) == {("picture x",)}, "the kernels that prepare it are called by it"
    report = verify(out, cpu_device, path)
    assert [case.reference for case in report.cases][1:] == ["onnxruntime"] * 2
    assert report.agrees


@pytest.mark.parametrize(
    ("words", "shape", "textures"),
    [
        ("from:rgba", (1, 3, 8, 8), 1),
        ("from:gray", (16, 1, 8, 8), 16),
        ("from:rgb", (17, 3, 8, 8), 0),
        ("from:nv12", (3, 8, 8), 0),
    ],
)
def test_textures(words: str, shape: tuple[int, ...], textures: int) -> None:
    """On webgpu the kernel that reads a picture also takes textures, as many as a device binds."""
    program = compile_graph(_graphs(f"0..1,{words}", shape), find_target("webgpu")).program
    assert program is not None
    readers = [k for k in program.kernels if "picture" in [each.dtype for each in k.bindings]]
    assert len(readers) == (textures > 0)
    for kernel in program.kernels:
        count = textures if kernel in readers else 0
        assert kernel.source.count(": texture_2d<f32>;") == count
        assert kernel.source.count("fn picture(") == (count > 0)
