"""What `--dim` takes: names that are arithmetic on others, whole shapes; constants and links."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper, parser

import tinyedge
from tests.imported import import_model, source_of
from tinyedge.core.errors import InputError, ModelError, RunError, UnsupportedOp
from tinyedge.core.ir.reference import evaluate, size_value
from tinyedge.core.ir.uop import UOp
from tinyedge.export.limits import choose_limits


def _ports(*shapes: tuple[str, list[Any] | None]) -> bytes:
    """A model that adds nothing up: each input goes through Identity."""
    nodes = [helper.make_node("Identity", [name], [f"{name}_out"]) for name, _ in shapes]
    inputs = [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in shapes]
    outputs = [
        helper.make_tensor_value_info(f"{n}_out", TensorProto.FLOAT, None) for n, _ in shapes
    ]
    graph = helper.make_graph(nodes, "g", inputs, outputs)
    opsets = [helper.make_opsetid("", 17)]
    source: bytes = helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString()
    return source


PAST = ("past", [1, "past_length"])
TOKENS = ("tokens", [1, "tokens in"])


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("past_length + tokens in", lambda p, t: p + t),
        ("past_length+1", lambda p, t: p + 1),
        ("2*(past_length + 3) - tokens in", lambda p, t: 2 * (p + 3) - t),
        ("(past_length + tokens in) // 2 * 2", lambda p, t: (p + t) // 2 * 2),
    ],
)
def test_sizes_that_are_named_as_arithmetic_on_others(text: str, value: Any) -> None:
    data = _ports(("mask", [1, text]), PAST, TOKENS)
    imported = import_model(data, dims={"past_length": "0..20", "tokens in": "1..4"})
    (size,) = imported.inputs[0].shape[1:]
    assert {node.arg.name for node in imported.symbols} == {"past_length", "tokens in"}
    for past, tokens in ((0, 1), (20, 4), (7, 2)):
        found = size_value(size, {"past_length": past, "tokens in": tokens})
        assert found == value(past, tokens)
    fixed = import_model(data, dims={"past_length": 5, "tokens in": 3})
    assert fixed.inputs[0].shape == (1, value(5, 3))


PASTS = ((0, 1), (20, 4), (7, 2), (20, 1))  # and how many are new


def part_after_the_past(sum: str = "past + new") -> bytes:
    """A model that gives what of `mask`, which is as long as the sum, lies after `past`."""
    nodes = [
        helper.make_node("Shape", ["past"], ["length"], start=1, end=2),
        helper.make_node("Slice", ["mask", "length", "end", "axis"], ["y"]),
    ]
    shapes = {"past": [1, "past"], "mask": [1, sum]}
    inputs = [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in shapes.items()]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)]
    whole = {"end": np.array([2**31 - 1]), "axis": np.array([1])}
    weights = [numpy_helper.from_array(array, name) for name, array in whole.items()]
    graph = helper.make_graph(nodes, "g", inputs, outputs, weights)
    opsets = [helper.make_opsetid("", 17)]
    source: bytes = helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString()
    return source


def test_a_size_that_only_a_sum_has(tmp_path: Path) -> None:
    """`new` is no axis of an input: it is open like one, and a run finds it."""
    data = part_after_the_past()
    with pytest.raises(InputError, match=r"new of mask\[1\] \(past \+ new\).*\n.*\n.*--dim new=64"):
        import_model(data, dims={"past": 4})
    assert import_model(data, dims={"past": 4, "new": 2}).inputs[1].shape == (1, 6)
    assert import_model(data, dims={"past": 4, "past + new": 9}).inputs[1].shape == (1, 9)
    dims = {"past": "0..20", "new": "1..4"}
    path = tmp_path / "m.onnx"
    path.write_bytes(data)
    bundle = tinyedge.export_onnx(path, target="cpu", out=tmp_path / "b", dims=dims)
    with tinyedge.load(bundle) as model:
        for past, new in PASTS:
            mask = np.arange(past + new, dtype="f4")[None]
            found = model.run({"past": np.ones((1, past), "f4"), "mask": mask})["y"]
            np.testing.assert_array_equal(found, mask[:, past:])
        for length, new in ((7, -13), (25, 5), (20, 0)):
            arrays = {"past": np.ones((1, 20), "f4"), "mask": np.ones((1, length), "f4")}
            with pytest.raises(RunError, match=f"is {length}, which makes new {new}, but .* 1..4"):
                model.run(arrays)


def _run(directory: Path, data: bytes, dims: dict[str, Any], runs: Any) -> list[bool]:
    """Whether a model of Identities takes inputs of these lengths: of each its second axis."""
    (directory / "m.onnx").write_bytes(data)
    bundle = tinyedge.export_onnx(
        directory / "m.onnx", target="cpu", out=directory / "b", dims=dims, golden=False
    )
    taken = []
    with tinyedge.load(bundle) as model:
        for lengths in runs:
            arrays = {name: np.ones((1, n), "f4") for name, n in lengths.items()}
            try:
                found = model.run(arrays)
                taken.append(all(found[f"{n}_out"].shape == a.shape for n, a in arrays.items()))
            except RunError as error:
                assert error.id == "run.shape"
                taken.append(False)
    return taken


def test_a_size_that_a_multiple_or_several_sums_have(tmp_path: Path) -> None:
    dims = {"past": "0..20", "new": "2..8:2", "other": "1..3"}
    shapes = {"doubled": "2*new", "mask": "past + 3*new", "both": "other + new", "less": "30 - new"}
    data = _ports(*((name, [1, text]) for name, text in shapes.items()), ("p", [1, "past"]))
    fits = {"doubled": 12, "mask": 25, "both": 8, "less": 24, "p": 7}
    others = [{**fits, name: length + 1} for name, length in fits.items() if name != "both"]
    odd = {"doubled": 10, "mask": 22, "both": 7, "less": 25, "p": 7}  # new is 5, which is no step
    assert _run(tmp_path, data, dims, [fits, *others, odd]) == [True] + 5 * [False]


@pytest.mark.parametrize("text", ["past * new", "past + new // 2", "past + new * new", "new - new"])
def test_a_size_that_no_run_could_find_is_none(text: str) -> None:
    """By such a length `new` could be any of several, or none: the text is a name."""
    data = _ports(("mask", [1, text]), ("p", [1, "past"]))
    imported = import_model(data, dims={"past": "0..20", text: "1..9"})
    assert {node.arg.name for node in imported.symbols} == {"past", text}
    with pytest.raises(InputError, match="no such symbolic size"):
        import_model(data, dims={"past": "0..20", "new": "1..4"})
    if text != "new - new":  # nothing of which is a size
        (size,) = import_model(data, dims={"past": "0..20", "new": 4}).inputs[0].shape[1:]
        wanted = {"past * new": 12, "past + new // 2": 5, "past + new * new": 19}
        assert size_value(size, {"past": 3}) == wanted[text]


@pytest.mark.parametrize(
    ("steps", "right"),
    [
        ("t = Cast<to = 2>(s); y = Cast<to = 7>(t)", lambda n: n % 256),
        ("t = Cast<to = 3>(s); y = Cast<to = 7>(t)", lambda n: (n + 128) % 256 - 128),
        ("t = Cast<to = 12>(s); u = Sub(t, f); y = Cast<to = 7>(u)", lambda n: (n - 5) % 2**32),
        ("t = Cast<to = 6>(s); u = Mul(t, k); y = Cast<to = 7>(u)", lambda n: n * 10**8 - 2**32),
    ],
)
def test_sizes_wrap_around_in_narrow_types(steps: str, right: Any) -> None:
    """What is computed of a size is a size only where its type holds it for all sizes."""
    constants = """f = Constant<value: tensor = uint32 {5}>();
        k = Constant<value: tensor = int32 {100000000}>()"""
    lines = " ".join(f"{constants}; s = Shape(x); {steps}".replace(";", " ").split())
    head = '<ir_version: 9, opset_import: ["" : 17]> g (float[L] x) => (int64[1] y)'
    data = parser.parse_model(f"{head} {{ {lines} }}").SerializeToString()
    node = import_model(data, dims={"L": "1..300"}).outputs["y"].node
    length = 22 if "k)" in steps else 3 if "f)" in steps else 300
    (found,) = evaluate([node], {"x": np.zeros(length, np.float32)}, {"L": length})
    assert found.tolist() == [right(length)]


def test_sums_of_two_sizes_that_are_no_axes_are_names() -> None:
    data = _ports(("mask", [1, "a + b"]), PAST)
    dims = {"past_length": 4, "a + b": "1..9"}
    assert [node.arg.name for node in import_model(data, dims=dims).symbols] == ["a + b"]


@pytest.mark.parametrize(
    "text",
    ["batch-size", "past_length - 1 - ", "past_length + other", "past_length // tokens in", "a + b"]
    + ["past_length tokens in", "Max(1, past_length)", "(past_length", "3", "past_length // 0"],
)
def test_other_texts_are_names(text: str) -> None:
    data = _ports(("mask", [1, text]), PAST, TOKENS)
    dims = {"past_length": 4, "tokens in": 2, text: "1..9"}
    imported = import_model(data, dims=dims)
    assert [node.arg.name for node in imported.symbols] == [text]


def test_computed_sizes_that_do_not_fit_are_refused() -> None:
    data = _ports(("mask", [1, "past_length - tokens in"]), PAST, TOKENS)
    dims = {"past_length": "0..20", "tokens in": "1..4"}
    with pytest.raises(InputError, match="it is -4 to 19"):
        import_model(data, dims=dims)
    data = _ports(("mask", [1, "past_length + tokens in"]), PAST, TOKENS)
    with pytest.raises(InputError, match=r"computed from other sizes, as 1\.\.24"):
        import_model(data, dims={**dims, "past_length + tokens in": 9})
    import_model(data, dims={**dims, "past_length + tokens in": "0..99"})


def test_inputs_without_a_rank_are_given_a_shape() -> None:
    data = _ports(("x", None))
    with pytest.raises(UnsupportedOp, match=re.escape("--dim 'x=[1,3,?,?]'")):
        import_model(data)
    imported = import_model(data, dims={"x": "[1, 3, H, 2..8:2, ?]", "H": 5, "x[4]": 6})
    shape = imported.inputs[0].shape
    assert (*shape[:3], shape[4]) == (1, 3, 5, 6)
    assert (
        isinstance(shape[3], UOp)
        and size_value(shape[3], {"x[3]": 6}) == 6
        and str(imported.sizes["x[3]"]) == "2..8:2"
    )
    assert import_model(data, dims={"x": "[]"}).inputs[0].shape == ()
    with pytest.raises(InputError, match=re.escape("these input sizes are open: x[1]")):
        import_model(data, dims={"x": "[2,?]"})


@pytest.mark.parametrize(
    ("dims", "because"),
    [
        ({"x": "[1,2,3]"}, "has 2 axes"),
        ({"x": "[1,5]"}, "fixes this size to 4"),
        ({"x": "[N,M]"}, "the model has 4 on axis 1"),
        ({"x": "[3,?]", "x[0]": 5}, "the shape given for the input says 3"),
        ({"y": "[3,4]"}, "no such input"),
        ({"x": "[3,,]"}, "axes"),
        ({"x": "[3,-2]"}, "the model has 4"),
    ],
)
def test_shapes_that_do_not_fit_the_model(dims: dict[str, str], because: str) -> None:
    data = _ports(("x", ["N", 4]))
    assert import_model(data, dims={"x": "[3,?]"}).inputs[0].shape == (3, 4)
    assert import_model(data, dims={"x": "[N,4]", "N": 2}).inputs[0].shape == (2, 4)
    with pytest.raises(InputError, match=because):
        import_model(data, dims=dims)


def test_a_mask_is_as_long_as_past_and_tokens(tmp_path: Path) -> None:
    """A decoder whose mask has a length that is named as a sum."""
    nodes = [
        helper.make_node("Concat", ["past", "x"], ["all"], axis=1),
        helper.make_node("Mul", ["all", "mask"], ["y"]),
    ]
    shapes = {"past": [1, "past"], "x": [1, "tokens"], "mask": [1, "past + tokens"]}
    inputs = [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in shapes.items()]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)]
    graph = helper.make_graph(nodes, "g", inputs, outputs)
    path = tmp_path / "m.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), path)
    dims = {"past": "0..20", "tokens": "1..4"}
    bundle = tinyedge.export_onnx(path, target="cpu", out=tmp_path / "b", dims=dims, golden=False)
    with tinyedge.load(bundle) as model:
        for past, tokens in ((20, 1), (0, 3)):
            arrays = {"past": np.ones((1, past), "f4"), "x": np.full((1, tokens), 2, "f4")}
            mask = np.arange(past + tokens, dtype="f4")[None]
            found = model.run({**arrays, "mask": mask})["y"]
            np.testing.assert_array_equal(found[0], mask[0] * np.repeat([1, 2], [past, tokens]))
        arrays = {"past": np.ones((1, 20), "f4"), "x": np.ones((1, 1), "f4")}
        with pytest.raises(RunError, match="axis 1 is 7, not 21"):
            model.run({**arrays, "mask": np.ones((1, 7), "f4")})


def test_constants_hold_for_every_entry(tmp_path: Path) -> None:
    def write(name: str, inputs: list[str]) -> Path:
        node = helper.make_node("Sum", inputs, [f"{name}_out"])
        ports = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [2]) for n in inputs]
        result = [helper.make_tensor_value_info(f"{name}_out", TensorProto.FLOAT, [2])]
        graph = helper.make_graph([node], "g", ports, result)
        onnx.save(helper.make_model(graph), tmp_path / f"{name}.onnx")
        return tmp_path / f"{name}.onnx"

    entries = {"b": write("b", ["x", "rate"]), "c": write("c", ["x"])}
    constants = {"rate": 16000, "gain": 2}
    source, _, record, _ = source_of(
        write("a", ["gain", "x"]), entries=entries, constants=constants
    )
    found = {name: [port.name for port in graph.inputs] for name, graph in source.entries.items()}
    assert found == {"main": ["x"], "b": ["x"], "c": ["x"]} and len(record["constants"]) == 2
    with pytest.raises(InputError, match=r"'speed'.*\n.*no such input"):
        source_of(tmp_path / "a.onnx", entries=entries, constants={"speed": 1})


def _linked(folder: Path, target: Path) -> Path:
    """A model in a folder whose weight lies in `w.bin`, a link to a target file."""
    folder.mkdir(parents=True)
    weight = numpy_helper.from_array(np.arange(4, dtype="f4"), "w")
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, [4])]
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [4])]
    nodes = [helper.make_node("Add", ["x", "w"], ["y"])]
    model = helper.make_model(helper.make_graph(nodes, "g", inputs, outputs, [weight]))
    onnx.save(
        model, folder / "m.onnx", save_as_external_data=True, location="w.bin", size_threshold=0
    )
    target.parent.mkdir(parents=True, exist_ok=True)
    (folder / "w.bin").rename(target)
    (folder / "w.bin").symlink_to(os.path.relpath(target, folder))
    return folder / "m.onnx"


def test_links_into_the_same_cache_are_followed(tmp_path: Path) -> None:
    """As Hugging Face's tools lay it out; the model itself is such a link, too."""
    root = tmp_path / "models--org--name"
    model = _linked(root / "snapshots" / "rev" / "onnx", root / "blobs" / "5eed")
    model.rename(root / "blobs" / "c0de")
    model.symlink_to("../../../blobs/c0de")
    assert import_model(model).outputs
    elsewhere = tmp_path / "link"
    elsewhere.symlink_to(model.parent, target_is_directory=True)
    assert import_model(elsewhere / "m.onnx").outputs


@pytest.mark.parametrize(
    "place", ["secret", "models--org--name/blobs2/x", "models--org--name/refs"]
)
def test_other_links_are_refused(tmp_path: Path, place: str) -> None:
    (tmp_path / "models--org--name" / "blobs").mkdir(parents=True)
    folder = tmp_path / "models--org--name" / "snapshots" / "rev"
    model = _linked(folder, tmp_path / place)
    with pytest.raises(ModelError, match="--allow-links"):
        import_model(model)
    assert import_model(model, limits=choose_limits({"links": 1})).outputs


def test_a_link_through_a_blob_is_refused(tmp_path: Path) -> None:
    """A blob that is a link itself leads out of the cache."""
    root = tmp_path / "models--org--name"
    model = _linked(root / "snapshots" / "rev", tmp_path / "secret")
    (root / "blobs").mkdir()
    (root / "blobs" / "5eed").symlink_to(tmp_path / "secret")
    (model.parent / "w.bin").unlink()
    (model.parent / "w.bin").symlink_to("../../blobs/5eed")
    with pytest.raises(ModelError, match="not a plain file"):
        import_model(model)


def test_links_without_a_cache_are_refused(tmp_path: Path) -> None:
    model = _linked(tmp_path / "model", tmp_path / "data" / "w.bin")
    with pytest.raises(ModelError, match="--allow-links"):
        import_model(model)


def test_names_in_a_shape() -> None:
    data = _ports(("x", None))
    assert import_model(data, dims={"x": "[2,-1]", "x[1]": 3}).inputs[0].shape == (2, 3)
    for wrong in ("[1:2,3]", "[1.5,3]", "[1e3,3]", "[٣,3]", "[,3]", "[3,a]b]"):
        with pytest.raises(InputError):
            import_model(data, dims={"x": wrong})
    with pytest.raises(UnsupportedOp, match="how many axes"):
        import_model(data, dims={"x[0]": 2})


def _three(mask: str) -> bytes:
    return _ports(("c", [1, "past"]), ("q", [1, "new"]), ("m", [1, mask]))


@pytest.mark.parametrize("key", ["past + new", "m[1]"])
def test_a_size_that_others_give_needs_none(key: str) -> None:
    data = _three("past + new")
    dims: dict[str, int | str] = {"past": "0..20", "new": "1..4"}
    (warning,) = import_model(data, dims={**dims, key: "1..24"}).warnings
    assert "'past + new' is computed from other sizes, as 1..24" in warning
    with pytest.raises(InputError, match=r"computed from other sizes, as 1\.\.24"):
        import_model(data, dims={**dims, key: 7})


@pytest.mark.parametrize("key", ["past + seq", "m[1]"])
def test_a_sum_is_a_size_of_its_own_where_it_is_given_one(key: str) -> None:
    imported = import_model(_three("past + seq"), dims={"past": "0..20", "new": 1, key: 7})
    assert imported.inputs[2].shape == (1, 7)
    assert [symbol.arg.name for symbol in imported.symbols] == ["past"]
