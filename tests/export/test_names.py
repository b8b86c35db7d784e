"""Names that are words of WGSL, C, C++, OpenCL, CUDA, JavaScript or Python, on every target."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

import tinyedge
from tests.names import ALL, ROLES, WORDS, counter, counters, named_model
from tests.runtimes_c import build
from tinyedge.core.errors import InputError
from tinyedge.core.program.device import Device
from tinyedge.core.program.replay import Replay
from tinyedge.export.bundle.reading import read


@pytest.mark.parametrize("iteration", range(ROLES))
def test_inputs_outputs_weights_and_nodes(
    iteration: int, target: str, device: Device, tmp_path: Path
) -> None:
    model, feeds, right = named_model(iteration)
    onnx.save(model, tmp_path / "switch.onnx")
    bundle = tinyedge.export_onnx(
        tmp_path / "switch.onnx", target=target, out=tmp_path / "class", golden=False
    )
    with Replay(read(bundle).program, device, poison=True) as replay:
        found = replay.run(feeds)
    assert set(found) == set(right)
    for name, value in right.items():
        np.testing.assert_array_equal(found[name], value, err_msg=name)


def test_states_entries_and_files(target: str, device: Device, tmp_path: Path) -> None:
    words, bundle = counters(tmp_path, target)
    with Replay(read(bundle).program, device, poison=True) as replay:
        for run in range(1, 3):
            for word in words:
                given = {f"var {word}": np.array([1, 2], np.float32)}
                found = replay.run(given, "main" if word == "while" else word)
                expected = np.array([run, 2 * run], np.float32)
                np.testing.assert_array_equal(found[f"new {word}"], expected)
                np.testing.assert_array_equal(replay.get_state(word), expected)


@pytest.mark.parametrize("iteration", range(ROLES))
def test_the_bundles_own_program(iteration: int, tmp_path: Path) -> None:
    """C and C++ take `model.h`; no name of it is defined twice; the program finds every port."""
    model, feeds, right = named_model(iteration)
    onnx.save(model, tmp_path / "m.onnx")
    folder = tinyedge.export_onnx(tmp_path / "m.onnx", target="cpu", out=tmp_path / "b")
    text = (folder / "model.h").read_text("ascii")
    defined = re.findall(r"^(?:#define|   ) (MODEL_\w+)", text, re.MULTILINE)
    assert len(defined) > 6 * (len(feeds) + len(right)) and len(set(defined)) == len(defined)
    (tmp_path / "use.c").write_text('#include "model.h"\nint main(void) { return 0; }\n')
    for compiler in ("cc", "c++") if shutil.which("c++") else ("cc",):
        language = ("-x", "c++") if compiler == "c++" else ("-std=c99",)
        include = ("-I", folder, "-I", folder / "runtime")
        strict = ("-Wall", "-Wextra", "-Wpedantic", "-Werror", *include)
        build.run(compiler, *language, *strict, "-c", "-o", tmp_path / "o", tmp_path / "use.c")
    build.run("make", "-s", "-C", folder, "CFLAGS=-O1 -Werror")
    program = folder / "build" / "run"
    assert " 0 wrong" in build.run(program, folder, "--self-test")
    pairs = list(zip(feeds.items(), right.items(), strict=False))
    for start in range(0, len(pairs), 64):  # so many does it take
        options: list[Any] = []
        for (x, array), (y, _) in pairs[start : start + 64]:
            np.save(tmp_path / f"in{len(options)}.npy", array)
            options += ["--input", f"{x}={tmp_path / f'in{len(options)}.npy'}"]
            options += ["--output", f"{y}={tmp_path / f'out{len(options)}.npy'}"]
        build.run(program, folder, *options)
        for number, (_, (y, value)) in enumerate(pairs[start : start + 64]):
            found = np.load(tmp_path / f"out{4 * number + 2}.npy")
            np.testing.assert_array_equal(found, value, err_msg=y)


def test_a_port_named_as_a_fact_of_another(tmp_path: Path) -> None:
    """An image and its shape, for instance, and parts of outputs."""
    names = ["image", "image_shape", "IMAGE", "image_slice_left", "count", "image_name_2"]
    nodes = [helper.make_node("Neg", [name], [f"{name}_"]) for name in names]
    inputs = [helper.make_tensor_value_info(name, 1, [4]) for name in names]
    outputs = [helper.make_tensor_value_info(f"{name}_", 1, [4]) for name in names]
    graph = helper.make_graph(nodes, "g", inputs, outputs)
    opset = [helper.make_opsetid("", 17)]
    onnx.save(helper.make_model(graph, opset_imports=opset, ir_version=8), tmp_path / "m.onnx")
    folder = tinyedge.export_onnx(
        tmp_path / "m.onnx",
        target="cpu",
        out=tmp_path / "b",
        slices={"image_": {"left": "0..2", "left_axis": "2..4"}},
        golden=False,
    )
    text = (folder / "model.h").read_text("ascii")
    defined = re.findall(r"^(?:#define|   ) (MODEL_\w+)", text, re.MULTILINE)
    assert sorted(set(defined)) == sorted(defined)


@pytest.mark.parametrize("role", ["input", "output"])
@pytest.mark.parametrize(("length", "fits"), [(1024, True), (1025, False), (10_000, False)])
def test_long_names(role: str, length: int, fits: bool, tmp_path: Path) -> None:
    name = "n" * length
    names = {"state": "s", "given": "x", "output": "y"} | {
        {"input": "given", "output": "output"}[role]: name
    }
    path = counter(tmp_path / "m.onnx", **names)
    if fits:
        bundle = tinyedge.export_onnx(path, target="cpu", out=tmp_path / "b", golden=False)
        assert name in (bundle / "manifest.json").read_text()
        return
    with pytest.raises(InputError, match=f"its name has {length} characters") as caught:
        tinyedge.export_onnx(path, target="cpu", out=tmp_path / "b", golden=False)
    assert caught.value.id == "model.limit" and len(str(caught.value)) < 500


def test_long_names_of_nodes_and_weights(tmp_path: Path) -> None:
    graph = helper.make_graph(
        [
            helper.make_node("Neg", ["x"], ["v" * 10_000], name="n" * 10_000),
            helper.make_node("Add", ["v" * 10_000, "w" * 10_000], ["y"], name="m" * 10_000),
        ],
        "g",
        [helper.make_tensor_value_info("x", 1, [2])],
        [helper.make_tensor_value_info("y", 1, [2])],
        [helper.make_tensor("w" * 10_000, 1, [2], [3, 4])],
    )
    opset = [helper.make_opsetid("", 17)]
    onnx.save(helper.make_model(graph, opset_imports=opset, ir_version=8), tmp_path / "m.onnx")
    bundle = tinyedge.export_onnx(tmp_path / "m.onnx", target="cpu", out=tmp_path / "b")
    with tinyedge.load(bundle) as loaded:
        assert loaded.run({"x": np.ones(2, np.float32)})["y"].tolist() == [2, 3]


@pytest.mark.parametrize("name", ["a\nb", "\x7f", "\x1b[2J", "w" * 1025])
def test_weights_that_a_manifest_cannot_name(name: str, target: str, tmp_path: Path) -> None:
    graph = helper.make_graph(
        [helper.make_node("Add", ["x", name], ["y"], name=name)],
        "g",
        [helper.make_tensor_value_info("x", 1, [2])],
        [helper.make_tensor_value_info("y", 1, [2])],
        [helper.make_tensor(name, 1, [2], [3, 4])],
    )
    opset = [helper.make_opsetid("", 17)]
    onnx.save(helper.make_model(graph, opset_imports=opset, ir_version=8), tmp_path / "m.onnx")
    bundle = tinyedge.export_onnx(
        tmp_path / "m.onnx", target=target, out=tmp_path / "b", golden=False
    )
    (weight,) = read(bundle).program.weights
    assert weight.name.isprintable() and 1 <= len(weight.name) <= 1024


def test_the_words() -> None:
    assert len(WORDS) > 150 and len(set(ALL)) == len(ALL)
