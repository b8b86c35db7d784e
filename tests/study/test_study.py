"""What the study measures is right: every side computes the same; it never asserts on a time."""

from __future__ import annotations

import json
import math
import xml.etree.ElementTree
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from tests.bench import cases as bench
from tests.bench import flops
from tests.bench.worker import SideError
from tests.imported import import_model
from tests.study import (
    __main__,
    child,
    converters,
    figures,
    fits,
    hand,
    models,
    networks,
    operate,
    operations,
    overhead,
    plot,
    quantized,
    report,
    scale,
    sides,
)
from tests.study.operations import Case
from tests.study.sides import Effort

QUICK = Effort(rounds=1, block=0.0, shared=0.0, warm=0.0, most_warm=1)
HERE = ("tinyedge", "hand", "numpy", "onnxruntime")  # the sides that need no other environment
CONVERTED = tuple(converters.CONVERTERS)  # that run models which they convert
INSTALLED = (
    *HERE,
    *(("torch",) if sides.TORCH.exists() else ()),
    *(("tinygrad",) if sides.peer.FOLDER.is_dir() else ()),
    *(side for side in CONVERTED if converters.python(side).exists()),
    *(("avx512",) if hand.lanes() == 16 else ()),
)

# Small ones of each kind, with what the kernels must get right beside whole tiles and vectors: rows
# and columns that are left over, images narrower than a tile, a block of channels, odd counts.
SMALL = {
    case.name: case
    for case in (
        operations.elementwise("copy", 1003),
        operations.elementwise("multiply-add", 1003),
        operations.elementwise("multiply-add", 300_007),
        operations.elementwise("sum", 1003),
        operations.elementwise("softmax", 1003),
        operations.softmax_rows(7_000),
        operations.layer_norm(3, 96),
        operations.matmul(70),
        operations.matmul(275),
        operations.convolution("conv 3x3", 14, 16, 40, 3),
        operations.convolution("conv 3x3", 8, 256, 48, 3),
        operations.convolution("conv 3x3", 6, 8, 24, 3),
        operations.convolution("conv 1x1", 5, 24, 36, 1),
        operations.convolution("first layer 7x7/2", 32, 3, 64, 7, 2),
        operations.convolution("depthwise 3x3", 9, 32, 32, 3, depthwise=True),
        operations.convolution("depthwise 3x3/2", 10, 48, 48, 3, 2, depthwise=True),
        operations.attention(2, 37, 64),
        operations.attention(1, 130, 32),
    )
}


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """What the study keeps, in a folder of this run."""
    folder = tmp_path_factory.mktemp("study")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sides, "CACHE", folder)
        patch.setattr(sides, "KERNELS", folder / "kernels")
        yield folder


@pytest.fixture(scope="module")
def measured(cache: Path) -> dict[str, Any]:
    """All small operations on all sides that are installed."""
    names = [side for side in INSTALLED if side not in (*CONVERTED, "avx512")]
    return operate.measure(SMALL, names, QUICK, lambda _: None, split=False)


@pytest.mark.parametrize("name", SMALL)
def test_all_sides_compute_the_same(name: str, measured: dict[str, Any]) -> None:
    """As onnxruntime does, to what single precision leaves of sums in another order."""
    case = SMALL[name]
    (row,) = (r for r in measured["rows"] if f"{r['kind']} {r['size']}" == name)
    assert set(row["sides"]) == {side for side in measured["sides"] if side in case.sides}
    assert not [facts["error"] for facts in row["sides"].values() if "error" in facts]
    for side, facts in row["sides"].items():
        assert facts["off"] < 2e-5, side
        assert facts["cpu"]["least"] <= facts["cpu"]["median"] <= facts["cpu"]["greatest"]


@pytest.mark.parametrize("tile", hand.tiles(), ids=str)
def test_every_tile_computes_the_same(tile: tuple[int, int], cache: Path) -> None:
    """The fastest is chosen by time, so each must be right where it can be taken."""
    kernels = hand.compiled(cache / "kernels", tile)
    tried = 0
    for case in SMALL.values():
        if case.kind not in hand.TILED:
            continue
        model = case.make()
        weights = [onnx.numpy_helper.to_array(tensor) for tensor in model.graph.initializer]
        arrays = case.arrays()
        try:
            run, result = hand.KINDS[case.kind](
                kernels, list(arrays.values()), weights, case.numbers
            )
        except ValueError:  # the tile is larger than the image
            continue
        run()
        (right,) = bench.expected(bench.session(model.SerializeToString()), arrays).values()
        assert bench.error(result(), right) < 2e-5, case.name
        tried += 1
    assert tried >= 5


def test_weights_by_hand_begin_at_a_cache_line() -> None:
    """As limits go: vectors across two lines take longer."""
    for tile in hand.tiles():
        packed = hand.panels(np.ones((5, 70), np.float32), tile[1] * hand.lanes())
        assert packed.ctypes.data % 64 == 0 and packed.sum() == 350


def test_a_long_softmax_by_hand(cache: Path) -> None:
    """Beyond the caches it goes block by block: the greatest comes late, and the end is odd."""
    count = (1 << 22) + 5003
    x = np.linspace(-3, 3, count, dtype=np.float32)
    out = hand.aligned(x.shape)
    kernels = hand.compiled(cache / "kernels", hand.tiles()[0])
    kernels("softmax", x, out, 1, count)()
    right = np.exp(x.astype(np.float64) - 3)
    right /= right.sum()
    np.testing.assert_allclose(out, right, rtol=3e-5)


@pytest.mark.parametrize("name", SMALL)
def test_work_and_traffic_are_those_of_the_graph(name: str, tmp_path: Path) -> None:
    """FLOPs of contractions as tests/bench counts them; bytes of inputs, weights and outputs."""
    case = SMALL[name]
    model = case.make()
    onnx.save(model, tmp_path / "m.onnx")
    arrays = case.arrays()
    counted = sum(flops.count(tmp_path / "m.onnx", arrays).values())
    if counted:
        assert case.flops == counted
    moved = [*arrays.values(), *map(onnx.numpy_helper.to_array, model.graph.initializer)]
    moved += bench.expected(bench.session(tmp_path / "m.onnx"), arrays).values()
    assert case.bytes == sum(array.nbytes for array in moved)


def test_a_side_that_fails_has_its_error(cache: Path, tmp_path: Path) -> None:
    """The others are measured; the same process answers for the next task."""
    case = SMALL["matmul 70"]
    model = tmp_path / "m.onnx"
    onnx.save(case.make(), model)
    arrays = case.arrays()
    files = sides.save(tmp_path, arrays)
    right = bench.expected(bench.session(model), arrays)
    broken = sides.Task(model, tmp_path, files, 1, "no such kind", {}, sides.KERNELS)
    whole = sides.Task(model, tmp_path, files, 1, case.kind, case.numbers, sides.KERNELS)
    with sides.Sides(("numpy", "onnxruntime")) as running:
        found = sides.compare(running, running.names, broken, right, QUICK, lambda _: None)
        assert "no such kind" in found["numpy"]["error"]
        assert found["onnxruntime"]["off"] == 0
        again = sides.compare(running, ["numpy"], whole, right, QUICK, lambda _: None)
        assert again["numpy"]["off"] < 1e-5
        why = sides.refusal(model, tmp_path / "m.tinyedge", dims={"nothing": 3})
        assert "nothing" in why
        refused = {"tinyedge": why, "ncnn": "not installed"}
        sole = sides.compare(running, [*refused], whole, right, QUICK, lambda _: None, refused)
        assert sole == {"tinyedge": {"error": why}, "ncnn": {"error": "not installed"}}
        with pytest.raises(SideError, match="no such side"):
            running.start("no such side", whole, 60.0)


def test_a_side_that_cannot_be_installed_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(side: str) -> None:
        raise RuntimeError(f"{side} is not installed:\n no such version")

    monkeypatch.setattr(converters, "install", refuse)
    assert sides.install(["numpy", "ncnn"], lambda _: None) == {
        "ncnn": "ncnn is not installed: no such version"
    }


def test_outputs_of_other_layouts_and_integers() -> None:
    right = np.arange(24).reshape(1, 2, 3, 4)
    moved = np.moveaxis(right, 1, -1).astype(np.int32)
    assert bench.as_said(moved, right).dtype == np.int64
    assert sides.difference({"y": moved}, {"y": right}) == 0
    assert math.isinf(sides.difference({"y": right[0]}, {"y": right}))


def test_which_arrays_of_ncnn_have_no_batch_axis() -> None:
    """As pnnx's example of each converted model says it."""
    script = """
            ex.input("in0", ncnn.Mat(in0.numpy(), batch_index=0).clone())
            ex.input("in1", ncnn.Mat(in1.numpy()).clone())
            _, out0 = ex.extract("out0")
            out.append(torch.from_numpy(out0.numpy(batch_index=1)))
    """
    assert {name: child._batch(script, name) for name in child._blobs(script)} == {
        **{"in0": 0, "in1": None, "out0": 1}
    }


def test_what_fails_is_said_once_for_each_reason() -> None:
    bad = {
        "torch": {"error": "operator `X`\n{{y}}"},
        "tinyedge": {"off": 0.5},
        "onnxruntime": {"off": 0.0},
    }
    rows = [{"kind": kind, "size": "", "sides": bad} for kind in ("one", "two", "one")]
    assert figures.failures(rows) == [
        "torch, one, two: `operator 'X' {{y}}`",
        "tinyedge, one, two: off by 5.0e-01 from onnxruntime",
    ]


def test_tinyedge_without_an_answer_fails_the_command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The table is printed all the same. Another side's failure is no failure of the command."""
    facts = {"machine": sides.machine(), "versions": {}, "sides": ["tinyedge"], "threads": [1]}
    whole = {**facts, "study": "models", "target": "cpu", "fma": 1e9}
    for side, status in (("tinyedge", 1), ("torch", 0)):
        row = {"kind": "net", "size": "", "threads": 1, "flops": 0, "sides": {side: {"error": "X"}}}
        monkeypatch.setitem(__main__.STUDIES, "models", lambda _, r=row: {**whole, "rows": [r]})
        assert __main__.main(["models"]) == status
        said = capsys.readouterr()
        assert f"{side}, net: `X`" in said.out
        assert ("tinyedge gave no answer: net" in said.err) == bool(status)


def test_what_is_installed_is_said_before(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said: list[str] = []
    monkeypatch.setattr(converters, "ENVIRONMENTS", tmp_path)
    monkeypatch.setattr(converters, "install", lambda side: said.append(f"{side} begins"))
    sides.install(["tinyedge", "ncnn", "litert"], said.append)
    first, *begun = said
    assert "ncnn (0.2 GB), litert (2.6 GB)" in first and "--sides" in first
    assert begun == ["ncnn begins", "litert begins"]
    (tmp_path / "ncnn").mkdir()
    (tmp_path / "ncnn" / "requirements.txt").touch()
    sides.install(["ncnn"], said.append)
    assert said[3:] == ["ncnn begins"]


def test_wrong_outputs_show() -> None:
    right = {"y": np.array([1.0, 4.0], np.float32), "z": np.array([2.0], np.float32)}
    assert sides.difference({**right, "y": np.array([1.0, 3.0], np.float32)}, right) == 0.25
    assert math.isinf(sides.difference({"y": right["y"]}, right))


def test_a_chain_has_a_launch_for_each_product(cache: Path) -> None:
    """Else the slope over its length is not that of a launch."""
    bundle = overhead._bundle(cache / "chain", overhead.chain(4))
    steps = json.loads((bundle / "manifest.json").read_text("ascii"))["steps"]
    assert [step["op"] for step in steps].count("launch") == 4


def test_a_bundle_built_with_kept_objects_is_the_same_library(cache: Path) -> None:
    """The second takes the runtime's objects from the first."""
    first = overhead._bundle(cache / "first", overhead.chain(1))
    kept = cache / "runtime"
    assert (kept / "stamp").is_file() and not (kept / "model.o").exists()
    second = overhead._bundle(cache / "second", overhead.chain(1))
    libraries = [path / "build" / "libtinyedge.so" for path in (first, second)]
    assert libraries[0].read_bytes() == libraries[1].read_bytes()


@pytest.mark.parametrize("name", ["gpt_step", "mobilenet_v2", "rnet"])
def test_networks_agree_on_all_sides(
    name: str, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(overhead, "wake", lambda _: 1e-6)
    # what each is known to convert rightly
    more = {"rnet": ("litert", "avx512"), "mobilenet_v2": ("ncnn",)}
    wanted = ("tinyedge", "onnxruntime", "torch", *more.get(name, ()))
    names = [side for side in wanted if side in INSTALLED]
    result = models.measure([name], names, [1, 2], QUICK, lambda _: None)
    assert [row["threads"] for row in result["rows"]] == [1, 2]
    for row in result["rows"]:
        assert {side: facts.get("error") for side, facts in row["sides"].items()} == dict.fromkeys(
            names
        )
        assert max(facts["off"] for facts in row["sides"].values()) < 1e-4
    text = report.markdown(result)
    assert text.count("geometric mean") == 2
    for table in text.split("\n\n"):
        assert len({line.count("|") for line in table.splitlines()}) == 1  # a cell each
    (together,) = result["together"]
    keys = {f"{side}, {n}" for side in ("tinyedge", "onnxruntime") for n in (1, 2)}
    assert set(together["sides"]) == keys and together["launches"] > 0
    assert max(facts["off"] for facts in together["sides"].values()) < 1e-4
    assert "2 threads beside 1, by turns" in text
    for side in set(names) - {"tinyedge", "avx512"}:
        assert f"| of {side} |" in text


@pytest.mark.parametrize(
    "name, millions, parameters",
    [
        # of the papers and of torchvision: multiplies and adds (half the FLOPs), weights
        ("mobilenet_v2", 300, 3.5),
        ("resnet18", 1_814, 11.7),
        ("resnet50", 4_089, 25.6),
        ("efficientnet_b0", 385, 5.3),
    ],
)
def test_networks_have_the_published_sizes(
    name: str, millions: float, parameters: float, tmp_path: Path
) -> None:
    model = networks.NETWORKS[name]()
    onnx.save(model, tmp_path / "m.onnx")
    counted = sum(flops.count(tmp_path / "m.onnx", networks.feeds(model)).values())
    assert counted / 2e6 == pytest.approx(millions, rel=0.01)
    weights = sum(math.prod(tensor.dims) for tensor in model.graph.initializer)
    assert weights / 1e6 == pytest.approx(parameters, rel=0.02)


def test_growth_of_two_sizes(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    axis = scale.Axis((2, 4), lambda n: networks.plain(n, 8, 4))
    monkeypatch.setattr(scale, "AXES", {"layers": axis})
    result = scale.measure(["layers"], QUICK, lambda _: None)
    first, second = result["rows"]
    assert (first["nodes"], second["nodes"]) == (4, 8)
    assert max(first["off"], second["off"]) < 1e-5
    assert second["launches"] > first["launches"]
    assert {slope["of"] for slope in result["slopes"]} == {
        "export against nodes",
        "run against flops",
        "run on two threads by the clock against flops",
    }
    text = report.markdown(result)
    assert "| layers | 4 | 8 |" in text
    for line in text.split("**Slopes**")[0].splitlines():
        assert line.count("|") in (0, 11), line


@pytest.mark.parametrize("a, b", [(3e-6, 2e-9), (0.0, 5e-9)])
def test_a_line_is_found_again(a: float, b: float) -> None:
    sizes = (1_000, 10_000, 1_000_000)
    found = fits.line({n: a + b * n for n in sizes})
    assert found.a == pytest.approx(a, abs=1e-12) and found.b == pytest.approx(b)
    with pytest.raises(ValueError, match="two sizes"):
        fits.line({1: 1.0})


def test_lines_that_fall_short_of_zero_begin_there() -> None:
    """Time that grows faster than n gives a negative a, which no run has."""
    found = fits.line({1: 1.0, 2: 4.0, 4: 16.0})
    assert found.a == 0 and found.b > 0


def test_where_two_lines_meet() -> None:
    slow, quick = fits.Line(10.0, 1.0), fits.Line(2.0, 3.0)
    assert slow.meets(quick) == quick.meets(slow) == 4.0
    assert fits.Line(1.0, 1.0).meets(fits.Line(2.0, 2.0)) is None


def test_powers() -> None:
    assert fits.power({n: 7.0 * n**1.5 for n in (2, 8, 64)}) == pytest.approx(1.5)
    assert fits.geometric_mean([0.5, 8.0]) == pytest.approx(2.0)


def test_fits_take_rows_of_one_size_bound_by_memory() -> None:
    def row(kind: str, size: str, bound: str, ours: float, theirs: float) -> dict[str, Any]:
        times = {"tinyedge": ours, "numpy": theirs}
        found = {side: {"cpu": {"median": seconds}} for side, seconds in times.items()}
        return {"kind": kind, "size": size, "bound": bound, "sides": found}

    rows = [
        row("sum", "1K", "memory", 2e-6, 4.5e-6),
        row("sum", "10K", "memory", 11e-6, 9e-6),
        row("sum", "10M", "memory", 1.0, 1.0),
        row("matmul", "1024", "arithmetic", 1.0, 1.0),
        row("matmul", "2048", "arithmetic", 8.0, 8.0),
    ]
    ours, theirs = operate.fitted(rows)
    assert ours["kind"] == theirs["kind"] == "sum"
    assert (ours["a"], ours["b"]) == pytest.approx((1e-6, 1e-9))
    assert theirs["equal"] == pytest.approx(6_000)


def _axis_labels(text: str) -> set[str]:
    root = xml.etree.ElementTree.fromstring(text)
    return {element.text or "" for element in root.iter("{http://www.w3.org/2000/svg}text")}


def test_plots_are_svg(measured: dict[str, Any], tmp_path: Path) -> None:
    """Whole XML, a mark for each measurement, what the axes are; names are escaped."""
    report.write_plots(measured, tmp_path)
    text = (tmp_path / "roofline.svg").read_text("utf-8")
    counted = sum(
        "cpu" in row["sides"].get(side, {})
        for row in measured["rows"]
        for side in ("hand", "tinyedge", "onnxruntime")
        if row["flops"]
    )
    assert text.count("<title>") == counted > 30
    assert {"FLOP a byte", "GFLOP/s", "tinyedge", "roof, memory"} <= _axis_labels(text)
    odd = plot.svg("a < b & c", "x", "y", [plot.Series("<s>", [(1, 1), (10, 5)])])
    assert {"a < b & c", "<s>"} <= _axis_labels(odd)
    with pytest.raises(ValueError, match="nothing to plot"):
        plot.svg("empty", "x", "y", [])


def test_bars_begin_at_one() -> None:
    """Half is as long as double, to the other side."""
    halves = plot.bars("bars", ["a", "b"], [plot.Bars("<s>", [0.5, None]), plot.Bars("t", [1, 2])])
    root = xml.etree.ElementTree.fromstring(halves)
    rects = [each for each in root.iter() if each.findall("{*}title")]
    widths = [float(rect.attrib["width"]) for rect in rects]
    assert widths[1] == 0 and widths[0] == pytest.approx(widths[2], abs=0.2)
    less, _, more = (float(rect.attrib["x"]) for rect in rects)
    assert more == pytest.approx(less + widths[0], abs=0.2)


def test_a_logarithmic_axis() -> None:
    axis = plot.Axis(1, 10_000, 100, 500)
    assert [axis.at(value) for value in (1, 100, 10_000)] == pytest.approx([100, 300, 500])
    assert axis.ticks() == [1, 10, 100, 1000, 10_000]
    assert plot.Axis(3, 30, 0, 1).ticks() == [5, 10, 20]
    assert [plot.shown(value) for value in (0.5, 20, 3e3, 1e7)] == ["0.5", "20", "3K", "10M"]


def test_the_table_of_operations(measured: dict[str, Any]) -> None:
    """Every case has a row, the machine's limit and the versions are named."""
    text = report.markdown(measured)
    for name in SMALL:
        assert f"| {name} |" in text
    for table in text.split("\n\n"):
        assert len({line.count("|") for line in table.splitlines()}) == 1  # a cell each
    assert "GFLOP/s on one thread" in text and "onnxruntime 1." in text
    (row,) = (r for r in measured["rows"] if r["kind"] == "copy")
    rate = report.bandwidth(row, "hand")
    assert rate == row["bytes"] / row["sides"]["hand"]["cpu"]["median"]
    assert report.copy_rate(measured["rows"], 1) == rate


def test_numbers_as_text() -> None:
    assert [figures.digits(v) for v in (0, 0.012345, 12.345, 123456.7)] == [
        *("0", "0.0123", "12.3", "123457"),
    ]
    assert [figures.time(v) for v in (2.5, 0.0025, -2.5e-6, 2.5e-8)] == [
        *("2.5 s", "2.5 ms", "-2.5 us", "25 ns"),
    ]


def test_the_command_line(
    cache: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: Any
) -> None:
    """A table on standard output, the same in JSON; unknown names are refused with those known."""
    small: Mapping[str, Case] = {name: SMALL[name] for name in ("sum 1.003K", "copy 1.003K")}
    monkeypatch.setattr(operations, "cases", lambda **_: small)
    file = tmp_path / "found.json"
    words = ["sum", "--sides", "hand", "tinyedge", "--rounds", "1", "--json", str(file)]
    assert __main__.main([*words, "--plots", str(tmp_path / "plots")]) == 0
    printed = capsys.readouterr().out
    found = json.loads(file.read_text("utf-8"))
    assert [row["kind"] for row in found["rows"]] == ["sum"]
    assert printed.strip() == report.markdown(found).strip()
    assert (tmp_path / "plots" / "roofline.svg").is_file()
    with pytest.raises(SystemExit):
        __main__.main(["no-such-kind"])
    assert "there are copy, sum" in capsys.readouterr().err.replace("sum, copy", "copy, sum")


def test_networks_in_8_bits() -> None:
    """Drawn alike each time; every filter is int8, and tinyedge takes them as they are."""
    first, again = (quantized.int8(lambda: networks.plain(2, 8, 8)) for _ in range(2))
    assert first.SerializeToString() == again.SerializeToString()
    filters = [t.data_type for t in first.graph.initializer if len(t.dims) == 4]
    assert filters == [onnx.TensorProto.INT8] * 2
    assert len(import_model(first.SerializeToString()).outputs) == 1


def test_the_largest_matrices_are_asked_for() -> None:
    """And tinygrad, which takes half a minute for one, is not."""
    assert "matmul 4096" not in operations.cases()
    assert "tinygrad" not in operations.cases(huge=True)["matmul 4096"].sides
    assert "tinygrad" in operations.cases(huge=True)["matmul 2048"].sides
