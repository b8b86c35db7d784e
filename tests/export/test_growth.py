"""What an export takes: work in proportion to the model, weights once in memory, no large copies.

Work is counted in calls of functions, which no other process on the machine changes.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, numpy_helper

from tests.export.hostile import info, model, node
from tests.export.hostile.files import sparse
from tests.export.stress import LINKS, build
from tests.imported import import_model
from tests.realmodels.weights import topology
from tinyedge import load
from tinyedge.api import compile_graph, export_onnx
from tinyedge.choices import choose_options, find_target
from tinyedge.cli import main
from tinyedge.core.errors import ModelError
from tinyedge.core.program.replay import Replay

LENGTH = 120  # links; a kernel holds at most 200 nodes, so these are several kernels
QUICK = ("clip", "casts", "skewed", "shuffle", "pad_reflect", "sequences", "split", "normalized")


def _calls(source: bytes, target: str) -> int:
    """How many calls it takes to import and to compile a model."""
    count = 0

    def profile(frame: Any, event: str, argument: Any) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(profile)
    try:
        graph = import_model(source).graph()
        compile_graph(graph, find_target(target), choose_options(target))
    finally:
        sys.setprofile(None)
    return count


def _grows(family: str, shape: str, target: str) -> None:
    small, large = (
        _calls(build(family, shape, number * LENGTH).SerializeToString(), target)
        for number in (1, 2)
    )
    assert large <= 2.4 * small, f"{large} calls, {small} for half as many {family}"
    assert small < 8_000_000


@pytest.mark.parametrize("family", QUICK)
def test_twice_the_chain_is_twice_the_work(family: str) -> None:
    _grows(family, "chain", "webgpu")


@pytest.mark.slow
@pytest.mark.parametrize("target", ["webgpu", "qcom", "cpu"])
@pytest.mark.parametrize("shape", ["chain", "ladder", "fan", "summed"])
@pytest.mark.parametrize("family", LINKS)
def test_twice_the_model_is_twice_the_work(family: str, shape: str, target: str) -> None:
    _grows(family, shape, target)


@pytest.mark.parametrize("target", ["webgpu", "qcom", "cuda", "cpu"])
def test_a_chain_of_clips_is_no_text_without_end(target: str) -> None:
    """Some languages spell a maximum with its operand twice."""
    graph = import_model(build("clip", "chain", 60).SerializeToString()).graph()
    compiled = compile_graph(graph, find_target(target), choose_options(target))
    assert compiled.program is not None
    assert sum(len(kernel.source) for kernel in compiled.program.kernels) < 100_000


def test_what_is_named_under_a_condition_is_right(tmp_path: Path) -> None:
    """A row of 13 is filled up to whole vectors: stores are guarded, their values long."""
    nodes, x = [], "x"
    for number in range(40):
        nodes.append(node("Clip", [x, f"low {number}", f"high {number}"], [f"y{number}"]))
        nodes.append(node("Mul", [f"y{number}", "factor"], [f"z{number}"]))
        x = f"z{number}"
    ends = {f"{end} {n}": sign * (1 + n / 64) for n in range(40) for end, sign in ENDS.items()}
    ends["factor"] = 1.01
    weights = [numpy_helper.from_array(np.float32(value), name) for name, value in ends.items()]
    source = model(nodes, inputs=[info("x", [5, 13])], outputs=[x], weights=weights)
    path = tmp_path / "m.onnx"
    path.write_bytes(source.SerializeToString())
    given = np.linspace(-2, 2, 65, dtype=np.float32).reshape(5, 13)
    expected = given.astype(np.float64)
    for number in range(40):
        expected = expected.clip(-1 - number / 64, 1 + number / 64) * float(np.float32(1.01))
    with load(export_onnx(path, target="cpu", out=tmp_path / "b", golden=False)) as loaded:
        np.testing.assert_allclose(loaded.run({"x": given})[x], expected, rtol=1e-5)


ENDS = {"low": -1, "high": 1}


@pytest.mark.parametrize(("integers", "runs"), [(False, 1), (True, 2)])
def test_a_golden_case_runs_again_only_on_other_inputs(
    integers: bool, runs: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where all is NaN, generated integers are made smaller; without any nothing would differ."""
    inputs = [info("x", [9]), info("n", [9], TensorProto.INT32)][: 1 + integers]
    nodes = [node("Sub", ["x", "two"], ["d"]), node("Log", ["d"], ["y"])]
    outputs = ["y"]
    if integers:
        nodes.append(node("Neg", ["n"], ["m"]))
        outputs.append("m")
    two = numpy_helper.from_array(np.float32(2), "two")
    source = model(nodes, inputs=inputs, outputs=outputs, weights=[two])
    count = 0
    run = Replay.run

    def counted(self: Replay, *arguments: Any) -> Any:
        nonlocal count
        count += 1
        return run(self, *arguments)

    monkeypatch.setattr(Replay, "run", counted)
    export_onnx(_saved(tmp_path, source), out=tmp_path / "b", warn=lambda text: None)
    assert count == runs


# Bytes.


def _amplifier(folder: Path, rows: int, count: int, operator: str) -> Path:
    """Many products of one weight, each by a number of its own."""
    values = np.random.default_rng(0).standard_normal((rows, rows)).astype(np.float32)
    weights, nodes, x = [numpy_helper.from_array(values, "w")], [], "x"
    for number in range(count):
        weights.append(numpy_helper.from_array(np.float32(1 + number / 7), f"s{number}"))
        nodes.append(node("Mul", ["w", f"s{number}"], [f"p{number}"]))
        nodes.append(node(operator, [x, f"p{number}"], [f"x{number}"]))
        x = f"x{number}"
    source = model(nodes, inputs=[info("x", [rows, rows])], outputs=[x], weights=weights)
    path = folder / "m.onnx"
    path.write_bytes(source.SerializeToString())
    return path


@pytest.mark.parametrize("target", ["webgpu", "cpu"])
@pytest.mark.parametrize(("rows", "count"), [(256, 200), (512, 60)])
def test_products_of_a_weight_are_not_stored_one_by_one(
    rows: int, count: int, target: str, tmp_path: Path
) -> None:
    path = _amplifier(tmp_path, rows, count, "Add")
    bundle = export_onnx(path, target=target, out=tmp_path / "b", golden=False)
    assert sum(f.stat().st_size for f in bundle.iterdir()) <= 16 * path.stat().st_size
    if target == "cpu":
        values = np.random.default_rng(0).standard_normal((rows, rows)).astype(np.float32)
        factors = sum(float(np.float32(1 + number / 7)) for number in range(count))
        with load(bundle) as loaded:
            y = loaded.run({"x": np.zeros((rows, rows), np.float32)})[f"x{count - 1}"]
        np.testing.assert_allclose(y, values * factors, rtol=1e-3, atol=1e-2 * count)


def _overlapping(folder: Path) -> Path:
    """Weights of 1 MiB each that begin 4 bytes after each other in one file of external data."""
    values = np.random.default_rng(0).standard_normal((1 << 18) + 24, np.float32)
    (folder / "data.bin").write_bytes(values.tobytes())
    weights, names = [], ["x"]
    for number in range(24):
        made = TensorProto(name=f"part{number}", data_type=TensorProto.FLOAT, dims=[1 << 18])
        made.data_location = TensorProto.EXTERNAL
        for key, value in {"location": "data.bin", "offset": 4 * number, "length": 1 << 20}.items():
            made.external_data.add(key=key, value=str(value))
        weights.append(made)
        names.append(made.name)
    inputs = [info("x", [1 << 18])]
    source = model([node("Sum", names, ["y"])], inputs=inputs, weights=weights)
    return _saved(folder, source)


def _sparse(folder: Path) -> Path:
    """A weight of 3 million numbers, of which one is not 0."""
    return _one_sparse(folder, 3 << 20)


def _one_sparse(folder: Path, size: int) -> Path:
    source = model([node("Add", ["x", "w"])], inputs=[info("x", [size])])
    source.graph.sparse_initializer.append(sparse(size, 5))
    return _saved(folder, source)


def _saved(folder: Path, source: Any) -> Path:
    path = folder / "m.onnx"
    path.write_bytes(source.SerializeToString())
    return path


@pytest.mark.parametrize("made", [(_overlapping, "part0"), (_sparse, "w")])
def test_a_bundle_of_many_times_the_model_is_refused(
    made: tuple[Any, str], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    build, name = made
    path = build(tmp_path)
    with pytest.raises(ModelError, match="the bundle") as caught:
        export_onnx(path, out=tmp_path / "b")
    assert caught.value.id == "model.limit" and f"weight '{name}'" in caught.value.because
    assert "--limit bundle_growth=N" in caught.value.next
    assert not (tmp_path / "b").exists()
    with pytest.raises(SystemExit) as ended:
        main(["inspect", str(path)])
    assert ended.value.code == 1
    assert "--limit bundle_growth=N" in capfd.readouterr().out
    bundle = export_onnx(path, out=tmp_path / "b", limits={"bundle_growth": 1 << 20}, golden=False)
    assert (bundle / "manifest.json").exists()


def test_a_bundle_that_trains_is_held_to_it_too(tmp_path: Path) -> None:
    nodes = [node("Add", ["x", "w"], ["a"]), node("Mul", ["a", "scale"], ["y"])]
    scale = numpy_helper.from_array(np.ones(1, np.float32), "scale")
    source = model(nodes, inputs=[info("x", [3 << 20])], weights=[scale])
    source.graph.sparse_initializer.append(sparse(3 << 20, 5))
    path = _saved(tmp_path, source)
    with pytest.raises(ModelError, match="the bundle") as caught:
        export_onnx(path, out=tmp_path / "b", train="scale", loss="mse_loss:y")
    assert "weight 'w'" in caught.value.because


def test_a_small_bundle_may_be_many_times_the_model(tmp_path: Path) -> None:
    """Such as one of a table that an operator computes."""
    path = _one_sparse(tmp_path, 1 << 18)
    bundle = export_onnx(path, out=tmp_path / "b", golden=False)
    assert sum(f.stat().st_size for f in bundle.iterdir()) > 16 * path.stat().st_size


PEAK = """
import sys
from tinyedge import export_onnx
from tinyedge.cli import main
model, what, target, out = sys.argv[1:]
if what == "inspect":
    try:
        main(["inspect", model, "--target", target])
    except SystemExit as ended:
        assert not ended.code
else:
    export_onnx(model, target=target, out=out, golden=what == "golden", warn=lambda text: None)
status = open("/proc/self/status").read()
print("peak", status.split("VmHWM:")[1].split()[0])
"""


def _peak(*arguments: object) -> int:
    """Bytes of memory that a process had at most, files that it mapped included."""
    command = [sys.executable, "-c", PEAK, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=Path(__file__).parents[2])
    assert done.returncode == 0, done.stderr
    return int(done.stdout.split()[-1]) * 1024


def _layers(folder: Path, kind: str, megabytes: int) -> Path:
    """A chain of products with matrices of 16 MiB each."""
    random = np.random.default_rng(0)
    rows, columns = {"float32": (2048, 2048), "int4": (4096, 8192)}[kind]
    weights, nodes, x = [], [], "x"
    for number in range(megabytes // 16):
        shape = (rows, columns) if number % 2 == 0 else (columns, rows)
        name = f"w{number}"
        if kind == "int4":
            raw = random.bytes(16 << 20)
            made = TensorProto(name=name, data_type=TensorProto.INT4, dims=shape, raw_data=raw)
            scale = random.random((shape[0] // 64, shape[1])).astype(np.float32)
            weights += [made, numpy_helper.from_array(scale, f"s{number}")]
            nodes.append(
                node("DequantizeLinear", [name, f"s{number}"], [f"d{name}"], axis=0, block_size=64)
            )
            name = f"d{name}"
        else:
            values = random.standard_normal(shape, np.float32)
            weights.append(numpy_helper.from_array(values, name))
        nodes.append(node("MatMul", [x, name], [f"x{number}"]))
        x = f"x{number}"
    source = model(nodes, inputs=[info("x", [1, rows])], outputs=[x], weights=weights, opset=21)
    path = folder / "m.onnx"
    path.write_bytes(source.SerializeToString())
    return path


@pytest.mark.slow
@pytest.mark.parametrize("target", ["webgpu", "cpu", "qcom"])
@pytest.mark.parametrize("what", ["inspect", "export", "golden"])
@pytest.mark.parametrize("kind", ["float32", "int4"])
def test_weights_are_in_memory_about_once(
    kind: str, what: str, target: str, tmp_path: Path
) -> None:
    path = _layers(tmp_path, kind, 128)
    peak = _peak(path, what, target, tmp_path / "b")
    assert peak <= 2 * path.stat().st_size + (300 << 20), f"{peak >> 20} MiB"


@pytest.mark.slow
@pytest.mark.parametrize("name", ["vgg19", "zfnet512", "bvlc_alexnet"])
def test_the_weights_of_large_models_are_in_memory_about_once(name: str, tmp_path: Path) -> None:
    """The largest of our library, of 230 to 550 MB."""
    path = tmp_path / "m.onnx"
    path.write_bytes(topology(name).SerializeToString())
    peak = _peak(path, "golden", "webgpu", tmp_path / "b")
    assert peak <= 2 * path.stat().st_size + (300 << 20), f"{peak >> 20} MiB"
