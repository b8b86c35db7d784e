"""What inputs may hold, and what a run that is refused leaves as it was."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import onnx
import pytest
from onnx import TensorProto, helper

import tinyedge
from tests.runtimes.site import Site, evaluate

pytestmark = pytest.mark.browser

TYPES = {
    "uint8": (TensorProto.UINT8, "1, 256", "1, -1", "0, 255"),
    "int8": (TensorProto.INT8, "200, 1", "1, -129", "-128, 127"),
    "uint16": (TensorProto.UINT16, "65536, 1", "1, -1", "0, 65535n"),
    "int16": (TensorProto.INT16, "32768, 1", "1, 0.5", "-32768, 32767"),
    "float16": (TensorProto.FLOAT16, "70000, 1", "1, '1'", "1, 65504"),
    "bool": (TensorProto.BOOL, "2, 1", "1, undefined", "false, 1"),
}


def export(
    path: Path, nodes: list[Any], inputs: list[Any], outputs: list[Any], **more: Any
) -> None:
    graph = helper.make_graph(nodes, "g", inputs, outputs)
    opsets = [helper.make_opsetid("", 17)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=8)
    onnx.save(model, path.with_suffix(".onnx"))
    tinyedge.export_onnx(
        path.with_suffix(".onnx"), target="webgpu", out=path, fallback="wasm", golden=False, **more
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`addition`: each input as floats; `rows`: a state of N rows to which an input is added."""
    root, made = tmp_path_factory.mktemp("bundles"), helper.make_tensor_value_info
    nodes = [helper.make_node("Cast", [name], [f"{name}s"], to=1) for name in TYPES]
    inputs = [made(name, kind, [2]) for name, (kind, *_) in TYPES.items()]
    export(root / "addition", nodes, inputs, [made(f"{name}s", 1, [2]) for name in TYPES])
    ports = [made(name, 1, ["N", 4]) for name in ("x", "s")]
    nodes = [helper.make_node("Add", ["x", "s"], ["t"])]
    states = {"s": "t:keep"}
    outputs = [made("t", 1, ["N", 4])]
    export(root / "rows", nodes, ports, outputs, dims={"N": "1..8"}, states=states)
    return root


@pytest.mark.parametrize("backend", ["webgpu", "wasm"])
def test_values_that_the_type_does_not_hold(page: Any, site: Site, backend: str) -> None:
    """Also where numbers of more bits store them."""
    cases = "".join(
        f"['{name}', [[{first}], [{second}], Array(2)], [{right}]],"
        for name, (_, first, second, right) in TYPES.items()
    )
    got = evaluate(
        page,
        f"""
        const model = await load("/addition/", {{backend: "{backend}"}});
        const errors = {{}}, values = {{}};
        const zeros = Object.fromEntries(model.inputs.map(({{name}}) => [name, [0, 0]]));
        for (const [name, wrong, right] of [{cases}]) {{
          errors[name] = [];
          for (const each of wrong)
            errors[name].push((await errorOf(() => model.run({{...zeros, [name]: each}}))).id);
          const outputs = await model.run({{...zeros, [name]: right}});
          values[name] = Array.from(outputs[name + "s"].data);
        }}
        return [errors, values];
        """,
    )
    errors, values = got
    assert errors == dict.fromkeys(TYPES, ["run.range"] * 3)
    assert values == {
        "uint8": [0, 255],
        "int8": [-128, 127],
        "uint16": [0, 65535],
        "int16": [-32768, 32767],
        "float16": [1, 65504],
        "bool": [0, 1],
    }


@pytest.mark.parametrize("backend", ["webgpu", "wasm"])
def test_a_refused_run_leaves_the_sizes_of_states(page: Any, site: Site, backend: str) -> None:
    got = evaluate(
        page,
        f"""
        const model = await load("/rows/", {{backend: "{backend}"}});
        const rows = (n) => ({{x: {{data: new Float32Array(4 * n).fill(1), shape: [n, 4]}}}});
        const aborted = {{signal: AbortSignal.abort()}};
        await model.run(rows(5));
        const refused = [
          await errorOf(() => model.run({{...rows(2), y: 1}})),
          await errorOf(() => model.run({{x: {{data: new Uint8Array(8), shape: [2, 4]}}}})),
          await errorOf(() => model.run(rows(2), {{keep: ["u"]}})),
          await errorOf(() => model.run(rows(2), aborted)),
        ];
        const state = await model.getState("s");
        await model.setState("s", new Float32Array(20).fill(3));
        const after = (await model.run(rows(5))).t.data;
        await model.run(rows(2));
        const fewer = await model.getState("s");
        return [refused.map(({{id}}) => id), state.shape, after[19], fewer.shape];
        """,
    )
    ids = ["run.input", "run.dtype", "run.option", "AbortError"]
    assert got == [ids, [5, 4], 4, [2, 4]]


def test_options_that_are_no_records(page: Any) -> None:
    got = evaluate(
        page,
        """
        const map = new Map([["kernels.wgsl", "/rows/kernels.wgsl"]]);
        const errors = [
          await errorOf(() => load("/rows/", {files: map})),
          await errorOf(() => load("/rows/", {limits: map})),
        ];
        const model = await load("/rows/", {fetch: null});
        errors.push(await errorOf(() => model.run({x: []}, {symbols: map})));
        return errors.map(({id, because}) => [id, because]);
        """,
    )
    assert got == [*[["load.option", "it is Map"]] * 2, ["run.option", "it is Map"]]
