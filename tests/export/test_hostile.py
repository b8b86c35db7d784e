"""Hostile models: each answered quickly by an error of a known kind, or imported."""

from __future__ import annotations

import itertools
import re
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from onnx import helper

from tests.export.fuzz import answer, fuzz, random_nodes
from tests.export.hostile import CASES, NAMES, OPEN, OPTIONS, info, model, node
from tests.export.hostile.confined import Server
from tests.export.hostile.graphs import squares
from tests.imported import import_model, inspect_model
from tests.measured import within
from tinyedge.core.errors import InputError, ModelError, UnsupportedOp
from tinyedge.core.ir.reference import evaluate
from tinyedge.export.onnx import registry

SECONDS = 2.0
COMMAND_SECONDS = 4.0
MEMORY = 512 << 20
SUBJECT = r"/|model\.onnx|ONNX node '|(input|output|initializer|value|function) '|the (sub)?graph"

# What an inspection finds, where an import finds something else.
INSPECTED = {
    "no file": {"inspect.missing"},
    "a folder": {"bundle.manifest.missing"},
    "open size": {"imported"},
    "negative input": {"imported"},
}


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with Server() as started:
        yield started


@pytest.mark.parametrize("name", CASES)
def test_answered(name: str, tmp_path: Path, server: Server) -> None:
    """In seconds of processor time, in little memory, by an error that says what to do."""
    build, ids = CASES[name]
    answer = server.answer(build(tmp_path), tmp_path)
    assert answer.id in ((ids,) if isinstance(ids, str) else ids), answer
    assert within(answer.cpu, SECONDS) and answer.peak < MEMORY
    if answer.id != "imported":
        assert answer.because and answer.next
        assert re.match(SUBJECT, answer.subject), answer.subject


@pytest.mark.parametrize("command", ["inspect", "export"])
@pytest.mark.parametrize("name", [*CASES, *OPEN])
def test_commands(name: str, command: str, tmp_path: Path, server: Server) -> None:
    """The whole of a command takes little more: what the importer lets through is compiled."""
    build, ids, dims = OPEN[name] if name in OPEN else (*CASES[name], [])
    options = [option for size in dims for option in ("--dim", size)]
    options += OPTIONS if command == "export" else ()
    answer = server.answer(build(tmp_path), tmp_path, command, options)
    allowed = {ids} if isinstance(ids, str) else {*ids}
    if command == "inspect":
        allowed |= INSPECTED.get(name, {"refused"} if allowed != {"imported"} else set())
    assert answer.id in allowed, answer
    assert within(answer.cpu, COMMAND_SECONDS) and answer.peak < MEMORY
    if answer.id not in ("imported", "refused"):
        assert answer.because


def test_sizes_that_grow_without_end() -> None:
    """Shape arithmetic that overflows int64, or is a polynomial of many terms, is not known."""
    with pytest.raises(UnsupportedOp) as caught:
        import_model(squares(60).SerializeToString(), dims={"n": "1..100"})
    assert caught.value.id == "model.unsupported"


@pytest.mark.parametrize("name", NAMES)
def test_strange_names(name: str) -> None:
    source = model([node("Relu", [name], ["y"], name=name)], inputs=[info(name, [2])])
    imported = import_model(source.SerializeToString())
    (value,) = evaluate([imported.outputs["y"].node], {name: np.array([-1, 1], np.float32)})
    assert value.tolist() == [0, 1]


def test_all_unsupported_nodes_are_named_at_once() -> None:
    nodes = [
        node("Frobnicate", ["x"], ["a"], name="first"),
        node("Relu", ["a"], ["b"], name="after"),
        node("ImageDecoder", ["x"], ["c"], name="second"),
        node("Add", ["b", "c"], ["y"], name="last"),
    ]
    source = model(nodes).SerializeToString()
    with pytest.raises(UnsupportedOp) as caught:
        import_model(source)
    text = str(caught.value)
    assert "'first' (Frobnicate, opset 17)" in text and "'second' (ImageDecoder" in text
    assert "after" not in text and "last" not in text
    report = {entry.op: entry for entry in inspect_model(source).operators}
    assert set(report) == {"Frobnicate", "Relu", "ImageDecoder", "Add"}
    assert [op for op, entry in report.items() if entry.supported] == ["Add", "Relu"]


def test_open_sizes_give_options_to_copy() -> None:
    """They are to be added to what was typed, of which the importer does not know all."""
    source = model([node("Relu", ["x"])], inputs=[info("x", ["b", 3, None, "w 1"])])
    with pytest.raises(InputError) as caught:
        import_model(source.SerializeToString())
    assert caught.value.next == "add --dim 'x[2]=224' --dim 'w 1=224'"
    with pytest.raises(InputError) as caught:
        import_model(source.SerializeToString(), dims={"w 1": 8})
    assert caught.value.next == "add --dim 'x[2]=224'"


def test_a_long_chain() -> None:
    nodes = [node("Relu", ["x"], ["v0"])]
    nodes += [node("Neg", [f"v{i}"], [f"v{i + 1}"]) for i in range(20_000)]
    start = time.process_time()
    imported = import_model(model(nodes, outputs=("v20000",)).SerializeToString())
    assert within(time.process_time() - start, 30)
    (value,) = evaluate([imported.outputs["v20000"].node], {"x": np.ones((2, 3), np.float32)})
    assert value[0, 0] == 1


def test_nodes_in_any_order() -> None:
    nodes = [node("Add", ["a", "b"]), node("Neg", ["a"], ["b"]), node("Relu", ["x"], ["a"])]
    imported = import_model(model(nodes).SerializeToString())
    (value,) = evaluate([imported.outputs["y"].node], {"x": np.ones((2, 3), np.float32)})
    assert not value.any()


def test_a_function_is_inlined_under_the_name_of_its_node() -> None:
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("local", 1)]
    leaky = helper.make_node("LeakyRelu", ["a"], ["b"])
    reference = leaky.attribute.add()
    reference.name, reference.ref_attr_name, reference.type = "alpha", "slope", 1
    function = helper.make_function("local", "f", ["a"], ["b"], [leaky], imports, ["slope"])
    call = helper.make_node("f", ["x"], ["y"], domain="local", name="outer", slope=0.5)
    source = model([call], functions=[function])
    source.opset_import.append(imports[1])
    imported = import_model(source.SerializeToString())
    (value,) = evaluate([imported.outputs["y"].node], {"x": -np.ones((2, 3), np.float32)})
    assert (value == -0.5).all()
    assert list(imported.names.values()) == ["outer/LeakyRelu_0"]


@pytest.mark.filterwarnings("ignore")
def test_changed_models() -> None:
    found = fuzz(100, seed=1)
    assert len(found) >= 4


@pytest.mark.filterwarnings("ignore")
def test_random_nodes() -> None:
    found = random_nodes(20, seed=1)
    assert found["imported"] > 20 and found.keys() >= {"model.node", "model.unsupported"}


@pytest.mark.parametrize("domain", ["", "com.microsoft"])
def test_operands_that_are_missing_or_of_another_kind(domain: str) -> None:
    """Of every operator, in every place: no error but ours, and no fault of ours."""
    made = [node("SequenceConstruct", ["x"], ["s"]), node("Cast", ["x"], ["i"], to=7)]
    answers = set()
    operators = registry.names(domain)
    assert len(operators) > 15
    for op, count in itertools.product(operators, range(5)):
        for place, odd, rest in itertools.product(range(count), ("", "s"), ("x", "i")):
            operands = [odd if n == place else rest for n in range(count)]
            nodes = [*made, node(op, operands, domain=domain)]
            answers.add(answer(model(nodes, opset=22, domains=[domain] if domain else [])))
    assert answers <= {"imported", "model.node", "model.unsupported"}


@pytest.mark.parametrize("operands", [["x"], ["x", ""], ["s", ""], ["empty"], ["refused"]])
def test_operators_that_onnx_defines_by_the_types_of_operands(operands: list[str]) -> None:
    """onnx's own code, which makes the definition, crashes where a type is not what it expects."""
    kind = helper.make_tensor_value_info("a", 1, None), helper.make_tensor_value_info("b", 1, None)
    body = helper.make_graph([node("Neg", ["a"], ["b"])], "body", [kind[0]], [kind[1]])
    nodes = [
        node("SequenceConstruct", ["x"], ["s"]),
        node("SequenceEmpty", [], ["empty"]),
        node("Frobnicate", ["x"], ["refused"]),
        node("SequenceMap", operands, ["mapped"], body=body),
        node("SequenceLength", ["mapped"], ["y"]),
    ]
    with pytest.raises(ModelError):
        import_model(model(nodes).SerializeToString())
