"""Sequences and optional values, which exist only while a model is imported."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, parser, save

import tinyedge
from tests.export.hostile import info, model
from tests.imported import import_model
from tinyedge.core.errors import InputError, ModelError, UnsupportedOp
from tinyedge.core.ir.reference import evaluate
from tinyedge.core.program.device import Device
from tinyedge.export.bundle.reading import read
from tinyedge.export.verify.verify import verify

X = np.arange(12, dtype=np.float32).reshape(2, 6)


def sequence(name: str, optional: bool = False) -> Any:
    kind = helper.make_tensor_type_proto(TensorProto.FLOAT, None)
    kind = helper.make_sequence_type_proto(kind)
    if optional:
        kind = helper.make_optional_type_proto(kind)
    return helper.make_value_info(name, kind)


def split(*outputs: str) -> Any:
    """x [2, 6] in two parts of three columns, as a sequence."""
    nodes = [helper.make_node("SplitToSequence", ["x"], ["parts"], axis=1)]
    nodes += [helper.make_node("SequenceInsert", ["parts", "x"], ["more"])]
    proto = model(nodes, inputs=[info("x", [2, 6])], outputs=outputs, opset=17)
    for output in proto.graph.output:
        output.CopyFrom(sequence(output.name))
    return proto


def test_a_sequence_becomes_outputs() -> None:
    imported = import_model(split("more").SerializeToString())
    assert list(imported.outputs) == [f"more_{number}" for number in range(7)]
    assert any("'more' is a sequence" in text for text in imported.warnings)
    got = evaluate([tensor.node for tensor in imported.outputs.values()], {"x": X})
    np.testing.assert_array_equal(got[2], X[:, 2:3])
    np.testing.assert_array_equal(got[6], X)


def test_names_of_elements_must_be_free() -> None:
    proto = split("more")
    proto.graph.node.append(helper.make_node("Relu", ["x"], ["more_3"]))
    proto.graph.output.append(info("more_3", [2, 6]))
    with pytest.raises(InputError, match=r"'more_3'\], as others are"):
        import_model(proto.SerializeToString())


def test_a_bundle_with_a_sequence(tmp_path: Path, cpu_device: Device) -> None:
    path = tmp_path / "model.onnx"
    save(split("parts", "more"), path)
    tinyedge.export_onnx(path, target="cpu", out=tmp_path / "bundle")
    report = verify(tmp_path / "bundle", cpu_device, against=path)
    assert all(case.agrees for case in report.cases)
    names = read(tmp_path / "bundle").program.entries[0].outputs
    assert len(names) == 13 and {"parts_0", "parts_5", "more_6"} <= set(names)


@pytest.mark.parametrize("optional", [False, True])
def test_a_sequence_as_input_is_refused(optional: bool) -> None:
    node = helper.make_node("SequenceLength", ["many"], ["y"])
    nodes = [node]
    if optional:
        node.input[0] = "there"
        nodes = [helper.make_node("OptionalGetElement", ["many"], ["there"]), node]
    proto = model(nodes, inputs=[sequence("many", optional)], opset=18)
    with pytest.raises(InputError, match=r"input 'many'[\s\S]*how many tensors") as refused:
        import_model(proto.SerializeToString())
    assert "SequenceConstruct" in refused.value.next
    given = import_model(proto.SerializeToString(), constants={"many": [X, X[0]]})
    assert evaluate([given.outputs["y"].node], {})[0] == 2


@pytest.mark.parametrize("given", [True, False])
def test_an_optional_input(given: bool) -> None:
    """It has to be given, unless it is said at export that it is not."""
    nodes = [helper.make_node("OptionalHasElement", ["x"], ["y"])]
    proto = model(nodes, inputs=[info("x", [2, 6])], opset=18)
    kind = helper.make_optional_type_proto(proto.graph.input[0].type)
    proto.graph.input[0].type.CopyFrom(kind)
    source = proto.SerializeToString()
    imported = import_model(source) if given else import_model(source, constants={"x": None})
    assert [each.name for each in imported.inputs] == (["x"] if given else [])
    assert bool(evaluate([imported.outputs["y"].node], {"x": X})[0]) == given
    assert any("is optional" in text for text in imported.warnings) == given


def test_an_absent_output_is_refused() -> None:
    kind = helper.make_tensor_type_proto(TensorProto.FLOAT, [2])
    node = helper.make_node("Optional", [], ["y"], type=kind)
    proto = model([node], opset=18)
    proto.graph.output[0].type.CopyFrom(helper.make_optional_type_proto(kind))
    with pytest.raises(InputError, match=r"output 'y'[\s\S]*absent optional"):
        import_model(proto.SerializeToString())


def test_identity_of_a_sequence() -> None:
    proto = split("more")
    proto.graph.node.append(helper.make_node("Identity", ["more"], ["same"]))
    proto.graph.node.append(helper.make_node("SequenceLength", ["same"], ["y"]))
    proto.graph.output[0].CopyFrom(info("y", [], TensorProto.INT64))
    outputs = import_model(proto.SerializeToString()).outputs
    assert evaluate([outputs["y"].node], {"x": X})[0] == 7


@pytest.mark.parametrize("new_axis", [0, 1])
def test_tensors_that_cannot_be_joined(new_axis: int) -> None:
    """The error is the model's, not ours."""
    nodes = [
        helper.make_node("SplitToSequence", ["x"], ["parts"], axis=1),
        helper.make_node("SequenceInsert", ["parts", "x"], ["more"]),
        helper.make_node("ConcatFromSequence", ["more"], ["y"], axis=0, new_axis=new_axis),
    ]
    with pytest.raises(ModelError, match=r"ConcatFromSequence[\s\S]*\[2, 6\]|\[1, 2, 6\]"):
        import_model(model(nodes, inputs=[info("x", [2, 6])]).SerializeToString())


@pytest.mark.parametrize("many", [False, True])
def test_an_optional_of_a_value(many: bool) -> None:
    """Of a tensor, or of a sequence; also chosen by a condition of the run."""
    inside = "k = SequenceConstruct(x, x) o = Optional(k)" if many else "o = Optional(x)"
    taken = "z = ConcatFromSequence<axis = 0>(e)" if many else "z = Identity(e)"
    proto = parser.parse_model(f"""<ir_version: 10, opset_import: ["" : 21]>
        g (float[2] x, bool c) => (float[n] y, bool there) {{
            {inside} there = OptionalHasElement(o) e = OptionalGetElement(o) {taken}
            p = If(c)<then_branch = t () => (optional(float[n]) a) {{ a = Optional(z) }},
                else_branch = f () => (optional(float[n]) b) {{ w = Neg(z) b = Optional(w) }}>
            y = OptionalGetElement(p) }}""")
    imported = import_model(proto.SerializeToString())
    x = np.array([1, -2], np.float32)
    nodes = [tensor.node for tensor in imported.outputs.values()]
    found, there = evaluate(nodes, {"x": x, "c": np.array(False)})
    assert there and found.tolist() == [-1, 2] * (1 + many)


def test_a_sequence_in_turns_of_the_run_is_refused() -> None:
    proto = parser.parse_model("""<ir_version: 10, opset_import: ["" : 21]>
        g (float[3] x, int64 n) => (float[k] y) {
            t = Constant<value = bool {1}>() e = SequenceConstruct(x)
            s = Loop(n, t, e)<body = b (int64 i, bool c, seq(float[k]) v)
                => (bool go, seq(float[m]) w) { go = Identity(c) w = SequenceInsert(v, x) }>
            y = ConcatFromSequence<axis = 0>(s) }""")
    with pytest.raises(UnsupportedOp, match=r"Loop_2[\s\S]*carries a sequence"):
        import_model(proto.SerializeToString(), bounds={"Loop_2": 5})
