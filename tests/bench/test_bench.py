"""What the benchmark counts and compares is right; it never asserts on a time."""

from __future__ import annotations

import json
import math
import urllib.request
from collections import Counter
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from tests.bench import (
    baseline,
    cases,
    compare,
    cuda,
    exports,
    flops,
    kernels,
    page,
    report,
    size,
    split,
)
from tests.bench.chromium import VIDEO, open_chromium
from tests.bench.line import PIECE, Line, Way
from tests.bench.server import HINT, Server, Site
from tests.bench.side import PAGES, as_files
from tests.cuda.sass import Code
from tests.imported import import_graph
from tests.study import operations
from tinyedge.choices import choose_options, find_target
from tinyedge.core.compiler.compile import compile_graph

FLOAT = TensorProto.FLOAT


def weight(name: str, *shape: int) -> Any:
    return helper.make_tensor(name, FLOAT, shape, np.ones(shape, np.float32).tobytes(), raw=True)


def model(tmp_path: Path) -> Path:
    """x [1, 4, 8, 8] -> grouped Conv -> ConvTranspose -> Flatten -> Gemm; MatMul beside."""
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], "conv", group=2),
        helper.make_node("ConvTranspose", ["c", "t"], ["d"], "up", strides=[2, 2]),
        helper.make_node("Flatten", ["d"], ["f"]),
        helper.make_node("Gemm", ["f", "g"], ["y"], "dense", transB=1),
        helper.make_node("MatMul", ["x", "m"], ["z"]),
    ]
    weights = [
        weight("w", 6, 2, 3, 3),
        weight("t", 6, 5, 2, 2),
        weight("g", 7, 5 * 12 * 12),
        weight("m", 8, 3),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", FLOAT, ["n", 4, 8, 8])],
        [helper.make_tensor_value_info(name, FLOAT, None) for name in ("y", "z")],
        weights,
    )
    opset = [helper.make_opsetid("", 17)]
    path = tmp_path / "model.onnx"
    onnx.save(helper.make_model(graph, opset_imports=opset, ir_version=8), path)
    return path


def test_flops_by_hand(tmp_path: Path) -> None:
    arrays = {"x": np.zeros((1, 4, 8, 8), np.float32)}
    assert flops.count(model(tmp_path), arrays) == {
        "conv": 2 * (6 * 6 * 6) * (2 * 3 * 3),
        "up": 2 * (6 * 6 * 6) * (5 * 2 * 2),
        "dense": 2 * 7 * (5 * 12 * 12),
        "MatMul_4": 2 * (4 * 8 * 3) * 8,
    }


def test_launches_that_contract() -> None:
    counted = {"a": 1000, "b": 10}
    for nodes, work, right in [
        (["b", "relu"], 0, True),
        (["b+norm"], 10, True),
        ([], 5, True),
        (["renamed"], 900, True),
        (["add"], 4, False),
        ([], 0, False),
    ]:
        assert flops.contracts({"nodes": nodes, "flops": work}, counted) is right, nodes


def test_error_is_relative_to_the_largest_and_strict_about_the_rest() -> None:
    right = np.array([1.0, -4.0, np.inf])
    assert cases.error(np.array([1.2, -4.0, np.inf]), right) == pytest.approx(0.05)
    assert cases.error(np.array([1.0, -4.0, 9.0]), right) == np.inf
    assert cases.error(np.array([1.0, np.nan, np.inf]), right) == np.inf
    assert cases.error(np.array([[1, 2]]), np.array([1, 2])) == np.inf
    assert cases.error(np.array([1, 3]), np.array([1, 2])) == np.inf


def test_weights_are_left_out_of_what_is_fetched(tmp_path: Path) -> None:
    path = model(tmp_path)
    site = Site(
        {"bundle": tmp_path},
        {"case/model.onnx": path, "case/input-0.bin": bytes(10_000), "bundle/x.wgsl": bytes(100)},
    )
    (tmp_path / "weights-00000.bin").write_bytes(bytes(5000))
    paths = ["case/model.onnx", "case/input-0.bin", "bundle/x.wgsl", "bundle/weights-00000.bin"]
    files = size.fetched(site, dict.fromkeys(paths, 0))["files"]
    assert set(files) == {"model.onnx", "x.wgsl"}
    assert files["x.wgsl"]["bytes"] == 100
    # The one tensor of more than a kilobyte, g.
    assert path.stat().st_size - files["model.onnx"]["bytes"] == pytest.approx(4 * 7 * 720, abs=12)


def test_site_serves_nothing_outside_its_folders(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "secret").write_text("no")
    site = Site({"in": tmp_path / "in"})
    assert site.read("in/../secret") is None
    assert site.read("in//etc/passwd") is None


def test_only_webassembly_pages_may_run_it() -> None:
    """Ours runs under the strict policy."""
    with Server(Site()) as server:
        may_run = {"ours": False, "peer": True, "wasm": True, "litert": True, "fallback": True}
        for name, may in may_run.items():
            with urllib.request.urlopen(f"{server.url}{name}.html") as answer:
                assert ("wasm-unsafe-eval" in answer.headers["Content-Security-Policy"]) is may


def test_a_side_that_is_not_prepared_has_its_reason() -> None:
    result: dict[str, Any] = {}
    active = ["ours", "litert"]

    def refuse() -> None:
        raise RuntimeError("no such version")

    compare._try(result, active, "litert", refuse)
    assert result == {"litert": {"error": "no such version"}} and active == ["ours"]


def test_inputs_of_two_layouts_lie_beside_each_other() -> None:
    first, second = np.zeros((1, 2, 3), np.float32), np.ones((1, 3, 2), np.float32)
    files = as_files({"x": first}) | as_files({"x": second}, "litert")
    for list, array in (("case/inputs.json", first), ("case/litert.json", second)):
        (port,) = json.loads(files[list])
        assert port["shape"] == [*array.shape]
        assert files[f"case/{port['file']}"] == array.tobytes()


def test_the_others_inputs_are_those_of_their_models(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cases, "CACHE", tmp_path)
    case = cases.MORE["light_squeezenet"]
    runner = cases.session(case.path)
    arrays = cases.inputs(case, runner)
    assert {name: a.shape for name, a in arrays.items()} == {"data_0": (1, 3, 224, 224)}
    assert all(np.isfinite(value).all() for value in cases.expected(runner, arrays).values())


def test_live_set_of_a_plan(tmp_path: Path) -> None:
    """a -> b -> c, with b and a weight: at most two of three are alive at once."""
    sizes = [100, 300, 200]
    manifest = {
        "entries": [{"name": "main", "inputs": [0], "outputs": [0], "steps": [0, 2]}],
        "inputs": [{"buffer": 0}],
        "outputs": [{"buffer": 2}],
        "buffers": [{"arena": 0, "bytes": n, "weight": -1} for n in sizes]
        + [{"arena": -1, "bytes": 999, "weight": 0}],
        "steps": [{"op": "launch", "buffers": [1, 0, 3]}, {"op": "launch", "buffers": [2, 1]}],
        "arenas": [{"bytes": 600}],
        "kernels": [{}],
        "peak_bytes": 1599,
    }
    (tmp_path / "manifest.json").write_text(json.dumps(manifest))
    memory = size.memory(tmp_path)
    assert (memory["live_bytes"], memory["arena_bytes"]) == (500, 600)


def test_a_report_of_sides_that_failed() -> None:
    """A row for each model, the reason below, and Markdown that holds its columns."""
    entry = {
        "model": "pnet",
        "size": "48x48",
        "flops": 10,
        "contractions": 5,
        "export": {"error": "cannot | yet"},
        "ours": {"error": "cannot | yet"},
        "peer": {"error": "no adapter"},
        "litert": {"error": "not converted"},
        "wasm": {
            "run": {"cpu": {"median": 0.00025, "least": 0.0002, "greatest": 0.0003, "samples": 3}},
            "right": True,
        },
    }
    whole = {"models": [entry], "peer": "1", "chromium": "2", "processors": 2}
    assert "not yet" in report.text(whole)
    assert "pnet, peer: no adapter" in report.text(whole)
    assert "pnet, litert: not converted" in report.text(whole)
    (table,) = (t for t in report.tables(whole) if t[0].startswith("Other runtimes"))
    assert table[2] == [["pnet 48x48", "2.5e-04", "-", "-", "-", "right", "failing"]]
    both = whole | {"models": [entry, entry | {"model": "rnet"}]}
    assert "every model, litert: not converted" in report.text(both)
    (table,) = (t for t in report.tables(both) if t[0].startswith("Other runtimes"))
    assert not any("LiteRT.js" in heading for heading in table[1])
    for block in report.markdown(whole).split("\n\n"):
        rows = [line.replace("\\|", "") for line in block.splitlines() if line.startswith("|")]
        assert len({row.count("|") for row in rows}) <= 1


def sample(cpu: float) -> dict[str, Any]:
    return {"cpu": {"median": cpu, "least": cpu, "greatest": cpu, "samples": 1}}


def test_bars_beside_the_floor_and_an_older_bundle() -> None:
    """3 GFLOP at 2 a second are a floor of 1.5 seconds; 1.7 are within 1.15 of it, 1.8 are not."""

    def entry(name: str, seconds: float, peer: float) -> dict[str, Any]:
        sides = {side: {"run": sample(cpu)} for side, cpu in (("ours", seconds), ("before", 4.0))}
        if peer:
            sides["peer"] = {"run": sample(peer)}
        return {"model": name, "size": "", "flops": 3e9, "by_hand": {"median": 2.0}, **sides}

    found = [("a", 1.7, 19.0), ("b", 1.7, 10.0), ("c", 1.8, 0.0), ("d", 1.8, 16.0)]
    whole = {"models": [entry(*each) for each in found], "baseline": "abc"}
    _, headings, rows = report._floor(whole)
    assert [dict(zip(headings, row, strict=True))["floor, CPU s"] for row in rows] == ["1.50"] * 4
    assert [row[-3:] for row in rows] == [
        ["1.13x", "0.09x", "the floor and the peer"],
        ["1.13x", "0.17x", "the floor"],
        ["1.20x", "-", "neither"],
        ["1.20x", "0.11x", "the peer"],
    ]
    assert [row[2] for row in report._before(whole)[2]] == ["0.42x", "0.42x", "0.45x", "0.45x"]
    plots = report.plots(whole)
    assert set(plots) == {"chromium-run.svg"} and "tinyedge of abc: 0.42x" in str(plots)


def test_an_older_checkout_exports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The files of a commit are its own, and their export says what each stage took."""
    monkeypatch.setattr(cases, "CACHE", tmp_path)
    place = baseline.checkout("HEAD")
    assert (place / "tinyedge" / "api.py").is_file() and place == baseline.checkout("HEAD")
    with pytest.raises(RuntimeError, match="no commit 0000000"):
        baseline.checkout("0000000")
    case = cases.CASES["pnet"]
    now = exports.once(case, "webgpu", place)
    assert {"start", "import", "lower", "golden", "write"} <= set(now["stages"])
    assert sum(now["stages"].values()) <= now["total"] + 0.01
    (place / "tinyedge" / "api.py").write_text("raise ValueError('older')")
    before = exports.once(case, "webgpu", place)
    assert before == {"error": "ValueError: older"}


def test_bars_of_an_export() -> None:
    def side(compile: float, golden: float) -> dict[str, Any]:
        stages = {"start": 1.0, "import": 0.5, "lower": compile - 0.5, "golden": golden}
        return {"stages": stages, "total": 1.0 + compile + golden}

    now, before = side(2.0, 1.0), side(1.0, 0.5)
    rows = [
        {"model": "a", "size": "", "now": now, "before": before},
        {"model": "b", "size": "", "now": side(1.0, 1.5), "before": before},
        {"model": "c", "size": "", "now": now, "before": {"error": "no"}},
    ]
    _, _, table = exports.table({"exports": rows, "target": "webgpu"})
    assert [row[2] for row in table] == ["2.00 / 1.00", "1.00 / 1.00", "2.00 / -"]
    assert [row[-3:] for row in table] == [
        ["1.60x", "0.50x", "golden"],
        ["1.40x", "1.50x", "total"],
        ["-", "0.50x", "golden"],
    ]


@pytest.mark.browser
def test_launches_of_a_bundle_are_timed() -> None:
    """pnet: the contractions' FLOPs are found in its launches, and little else."""
    case = cases.CASES["pnet"]
    arrays = cases.inputs(case, cases.session(case.path))
    counted = flops.count(case.path, arrays)
    bundle = cases.export(case, golden=False)
    with ProcessPoolExecutor(1, get_context("spawn")) as own:  # a process has one browser
        measured = own.submit(kernels.measure, bundle, profiles=1, seconds=0, flops=counted)
        result = measured.result()
    launches = result["launches"]
    assert [launch["index"] for launch in launches] == list(range(len(launches)))
    assert 1 <= sum(launch["flops"] for launch in launches) / sum(counted.values()) < 1.2
    assert all(launch["milliseconds"] >= 0 for launch in launches)


@pytest.mark.browser
def test_what_a_page_feels() -> None:
    """Its process grows by its model and little more; a task that is not long counts as none."""
    bundle = cases.export(cases.CASES["pnet"], golden=False)
    felt = page.of_bundle(
        bundle, cases.inputs(cases.CASES["pnet"], cases.session(cases.CASES["pnet"].path))
    )
    weights = sum(file.stat().st_size for file in bundle.glob("weights-*"))
    assert felt["fetched over the line, MB"] > weights / 1e6 > 0
    assert 0 < felt["growth of the page's process, MB"] < weights / 1e6 + 16
    longest = felt["longest task, ms (0: below 50)"]
    assert longest == 0 or longest >= 50


@pytest.mark.browser
def test_what_a_page_asks_for_first() -> None:
    """A page with the hints of docs/page.md asks for each file once, as does one without."""
    case = cases.CASES["pnet"]
    bundle, arrays = (
        cases.export(case, golden=False),
        cases.inputs(case, cases.session(case.path)),
    )
    near = page.Pace(0.02, math.inf, math.inf)
    found = {side: page.of_bundle(bundle, arrays, side, near) for side in ("ours", "hinted")}
    assert found["ours"]["requests"] == found["hinted"]["requests"] > 8
    assert found["hinted"]["weights of the bundle, MB"] > 0


def test_hints_are_of_the_documentation() -> None:
    """They are in that page's head, and name what a bundle has."""
    found = page.hints()
    assert [Path(link.split('"')[3]).name for link in found] == [
        *("tinyedge.js", "loading.js", "manifest.json", "kernels.wgsl")
    ]
    site = Site({}, {}, {"hinted": found})
    with Server(site) as server:
        texts = {
            side: urllib.request.urlopen(f"{server.url}{side}.html?felt").read().decode()
            for side in ("ours", "hinted")
        }
    assert HINT.findall(texts["hinted"]) == found
    assert not HINT.findall(texts["ours"])
    # before the first script
    assert texts["hinted"].index(found[-1]) < texts["hinted"].index("<script")


def _of_the_camera() -> dict[str, float]:
    with open_chromium(*VIDEO) as chromium, Server(Site({"pages": PAGES})) as server:
        return page.watched(chromium, f"{server.url}camera-bare.html", 1.0)


@pytest.mark.browser
def test_frames_of_a_camera() -> None:
    """A frame is missed or it is computed; memory is there before and after."""
    with ProcessPoolExecutor(1, get_context("spawn")) as own:  # a process has one browser
        found = own.submit(_of_the_camera).result()
    assert found["frames presented"] > found["frames missed"] >= 0
    for what in ("JavaScript heap", "page's process", "GPU process"):
        assert found[f"{what}, start, MB"] > 0
        assert found[f"{what}, end, MB"] > 0


def test_a_line_counts_and_is_shared(tmp_path: Path) -> None:
    """Bytes of all connections pass one after the other; headers and what is posted count too."""
    way = Way(1024)
    assert [way.take(512, 5.0), way.take(256, 5.0), way.take(512, 9.0)] == [5.5, 5.75, 9.5]
    assert way.bytes == 1280
    far = Way(math.inf)
    assert [far.take(512, 5.0), far.take(256, 5.0)] == [5.0, 5.0]

    content = bytes(3 * PIECE + 1)
    (tmp_path / "x.bin").write_bytes(content)
    line = Line(latency=0.01, down=1e8, up=1e8)
    site = Site({"in": tmp_path})
    with Server(site, line) as server, ThreadPoolExecutor() as threads:
        asked = threads.map(urllib.request.urlopen, [f"{server.url}in/x.bin"] * 3)
        assert [answer.read() == content for answer in asked] == [True] * 3
        down, up = line.down.bytes, line.up.bytes
        assert line.requests == 3
        assert 3 * len(content) < down < 3 * len(content) + 3 * 1000
        assert 3 * len("GET /in/x.bin HTTP/1.1") < up < 3 * 1000
        words = {"longest": "x" * 5000}
        posted = threads.submit(
            urllib.request.urlopen, f"{server.url}said", data=json.dumps(words).encode()
        )
        said = site.said.get(timeout=60)
        assert said.words == words
        assert not posted.done()  # what says something waits until it is heard
        said.heard.set()
        assert posted.result().status == 204
        assert line.requests == 4
        assert line.up.bytes > up + 5000


def test_machine_code_is_counted() -> None:
    """Of made-up kernels: one that shares its tiles, one that spills, one of little work."""
    codes = {
        "shared": Code(120, 0, 4096, 0, Counter({"FFMA": 64, "LDG.E.128": 3, "LDG.E": 1})),
        "spills": Code(159, 64, 0, 0, Counter({"LDG.E": 4, "STL": 2})),
        "small": Code(20, 48, 0, 0, Counter({"LDG.E.128": 2})),
    }
    sources = {"shared": "", "spills": "", "small": "te_sin(x)"}
    found = cuda.facts(codes, sources, {"shared": 900, "spills": 95, "small": 5})
    assert (found["kernels"], found["registers"], found["most"]) == (3, 159, "spills")
    assert found["beyond"] == found["spilling"] == ["spills"]  # sines have a table in memory
    assert found["shared"] == 0.9 and found["alone"] == {"spills": 0.095}
    assert found["loads of 16 bytes"] == 0.5
    assert found["instructions"] == 76
    rows = [{"model": "m", "size": "8", "precision": "fp16", "arch": "sm_87", **found}]
    _, headings, ((*cells, shared, loads),) = cuda.table(rows)
    assert len(headings) == len(cells) + 2 and (shared, loads) == ("90%", "50%")
    assert cells[1:5] == ["fp16", "sm_87", "3", "76"]
    assert cells[5:] == ["159", "`spills`", "`spills`", "`spills`"]
    assert cuda.architecture("kernels-00087.cubin") == "sm_87"
    assert cuda.notes(rows) == ["without shared memory, m, fp16, sm_87: `spills` 10%"]


def test_kinds_of_launches() -> None:
    """By what kernels reduce, and by the nodes that they compute; and a manifest without some."""
    for kind, case in {
        "attention": operations.attention(2, 32, 16),
        "contractions": operations.matmul(32),
        "reductions": operations.layer_norm(8, 64),
        "element by element": operations.elementwise("multiply-add", 1000),
    }.items():
        graph, _ = import_graph(case.make().SerializeToString())
        state = compile_graph(graph, find_target("webgpu"), choose_options("webgpu"))
        assert set(split.kinds(state, {})) == {kind}
    # as a transform of Winograd's method: a convolution's node, and no sum
    assert split.kinds(state, {"Mul_0": 9}) == ["contractions"]
    steps = [{"op": "launch", "grid": [n, 1, 1]} for n in (7, 8)]
    steps.insert(1, {"op": "copy"})
    made_of = split.without({"steps": steps}, ["reductions", "attention"], ["attention"])
    assert [step.get("grid") for step in made_of["steps"]] == [[7, 1, 1], None, [0, 1, 1]]


def test_a_run_by_kind() -> None:
    """4 GFLOP at 2 a CPU second are a floor of 2; 3 of them take 2.25, at 1.33 a second."""
    row = {
        "model": "m",
        "size": "8",
        "pace": 2.0,
        "launches": {"contractions": 5, "attention": 2},
        "flops": {"contractions": 3e9, "attention": 1e9},
        "run": 3.0,
        "rest": 0.15,
        "kinds": {"contractions": 2.25, "attention": 0.3},
    }
    _, headings, ((*cells,),) = split.table({"models": [row]})
    found = dict(zip(headings, cells, strict=True))
    assert found["of the floor"] == found["of their floor"] == "1.50x"
    assert found["contractions: CPU s (launches)"] == "2.25, 75 % (5)"
    assert found["reductions: CPU s (launches)"] == "-"
    assert (found["rest"], found["sum of all, of a run"]) == ("0.15, 5 %", "0.90x")
