"""Models that draw random numbers: from a state of the bundle, the same on every target."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import tinyedge
from tests.export.hostile import info, model
from tests.imported import import_model
from tinyedge import Tensor, random
from tinyedge.core.errors import InputError, UnsupportedOp
from tinyedge.core.program.device import Device
from tinyedge.export.verify.verify import verify

X = np.linspace(0.1, 0.9, 4000, dtype=np.float32).reshape(40, 100)
SHAPE = {"shape": [40, 100]}


def _save(path: Path, nodes: list[Any], outputs: list[str], **inputs: Any) -> Path:
    given = {"x": X, **inputs}
    used = {name for node in nodes for name in node.input}
    proto = model(
        nodes,
        inputs=[info("x", list(X.shape))] if "x" in used else [],
        outputs=outputs,
        weights=[
            numpy_helper.from_array(np.asarray(v), n)
            for n, v in given.items()
            if n in used and n != "x"
        ],
        opset=22,
    )
    onnx.save(proto, path)
    return path


def _node(op: str, inputs: list[str] | None = None, outputs: str = "y", **attributes: Any) -> Any:
    return helper.make_node(op, inputs or [], outputs.split(), op.lower(), **attributes)


def _export(path: Path, target: str = "cpu", **more: Any) -> Path:
    return tinyedge.export_onnx(path, target=target, out=path.with_suffix(".tinyedge"), **more)


EVERY = [
    _node("RandomUniform", outputs="u", low=-2.0, high=6.0, **SHAPE),
    _node("RandomUniformLike", ["x"], "v"),
    _node("RandomNormal", outputs="n", mean=1.0, scale=3.0, seed=5.0, **SHAPE),
    _node("RandomNormalLike", ["x"], "m"),
    _node("Bernoulli", ["x"], "b"),
    _node("Multinomial", ["x"], "c", sample_size=50),
    _node("Dropout", ["x", "ratio", "training"], "d kept"),
]
OUTPUTS = ["u", "v", "n", "m", "b", "c", "d", "kept"]
GIVEN = {"ratio": np.float32(0.25), "training": np.bool_(True)}


@pytest.fixture
def every(tmp_path: Path) -> Path:
    return _save(tmp_path / "every.onnx", EVERY, OUTPUTS, **GIVEN)


@pytest.mark.parametrize("halves", [False, True])
def test_verified_on_every_target(target: str, device: Device, every: Path, halves: bool) -> None:
    precision = "fp16" if halves and target != "cpu" else "fp32"  # the cpu keeps no halves
    assert verify(_export(every, target, precision=precision), device).agrees


def test_distributions(every: Path) -> None:
    with tinyedge.load(_export(every)) as bundle:
        first, second = bundle.run({"x": X}), bundle.run({"x": X})
        assert [state.name for state in bundle.states] == ["random.key"]
        bundle.reset()
        again = bundle.run({"x": X})
    assert all((first[name] == again[name]).all() for name in OUTPUTS)
    assert all((first[name] != second[name]).any() for name in OUTPUTS)
    u, v, n, m = (first[name].astype(float) for name in "uvnm")
    assert -2 <= u.min() < -1.9 and 5.9 < u.max() < 6 and abs(u.mean() - 2) < 0.15
    assert 0 <= v.min() and v.max() < 1 and abs(v.mean() - 0.5) < 0.02
    assert abs(n.mean() - 1) < 0.2 and abs(n.std() - 3) < 0.15
    assert abs(m.mean()) < 0.07 and abs(m.std() - 1) < 0.05
    assert abs(np.corrcoef(n.ravel(), m.ravel())[0, 1]) < 0.06
    assert set(np.unique(first["b"])) == {0, 1} and abs((first["b"] - X).mean()) < 0.03
    assert first["c"].dtype == np.int32 and first["c"].shape == (40, 50)
    assert 0 <= first["c"].min() and first["c"].max() < 100
    kept = first["kept"]
    assert abs(kept.mean() - 0.75) < 0.03
    np.testing.assert_allclose(first["d"], np.where(kept, X / np.float32(0.75), 0), 1e-6)


def test_chances_of_classes(tmp_path: Path) -> None:
    """Logarithms of chances that do not sum to one."""
    logits = np.log(np.array([[0.2, 0.6, 1.2]], np.float32))
    node = _node("Multinomial", ["logits"], sample_size=20000, dtype=TensorProto.INT64)
    with tinyedge.load(_export(_save(tmp_path / "m.onnx", [node], ["y"], logits=logits))) as bundle:
        y = bundle.run({})["y"]
    shares = np.bincount(y.ravel(), minlength=3) / y.size
    np.testing.assert_allclose(shares, [0.1, 0.3, 0.6], atol=0.015)


def test_the_state_is_a_key(tmp_path: Path) -> None:
    """What is drawn follows from the state, the node's number and its seed, as is told."""
    nodes = [
        _node("RandomUniform", outputs="a", **SHAPE),
        _node("RandomUniform", outputs="b", **SHAPE),
        _node("RandomUniform", outputs="c", seed=3.0, **SHAPE),
        _node("RandomUniform", outputs="d", seed=3.0, **SHAPE),
    ]
    path = _save(tmp_path / "m.onnx", nodes, list("abcd"))
    start = random.key(12345).numpy()
    with tinyedge.load(_export(path, state_init={"random.key": start})) as bundle:
        for _ in range(2):
            key = Tensor(bundle.get_state("random.key"))
            found = bundle.run({})
            for number, name in enumerate("ab", 1):
                expected = random.uniform(random.fold_in(key, number), (40, 100))
                assert (found[name] == expected.numpy()).all()
            seed = random.key(int(np.float32(3).view(np.uint32)))
            seeded = Tensor.stack(random.threefry(seed, key[0], key[1]))
            assert (found["c"] == random.uniform(seeded, (40, 100)).numpy()).all()
            assert (found["c"] == found["d"]).all()
            after = random.fold_in(key, 0).numpy()
            assert (bundle.get_state("random.key") == after).all()


def test_whether_to_train_is_an_input(tmp_path: Path) -> None:
    node = _node("Dropout", ["x", "ratio", "training"], "y kept", seed=7)
    inputs = [
        info("x", list(X.shape)),
        helper.make_tensor_value_info("ratio", TensorProto.FLOAT, []),
        helper.make_tensor_value_info("training", TensorProto.BOOL, []),
    ]
    proto = model([node], inputs=inputs, outputs=["y", "kept"], opset=22)
    onnx.save(proto, tmp_path / "m.onnx")
    with tinyedge.load(_export(tmp_path / "m.onnx")) as bundle:
        run = {"x": X, "ratio": np.float32(0.5), "training": np.bool_(False)}
        calm = bundle.run(run)
        assert (calm["y"] == X).all() and calm["kept"].all()
        wild = bundle.run({**run, "training": np.bool_(True)})
        assert abs(wild["kept"].mean() - 0.5) < 0.03
        assert (wild["y"] == np.where(wild["kept"], X * 2, 0)).all()
        none = bundle.run({**run, "training": np.bool_(True), "ratio": np.float32(1.0)})
        assert not none["y"].any() and not none["kept"].any()


def test_old_dropout_trains_unless_it_is_a_test() -> None:
    for opset, more, drops in ((6, {}, True), (6, {"is_test": 1}, False), (7, {}, False)):
        node = _node("Dropout", ["x"], ratio=0.5, **more)
        proto = model([node], inputs=[info("x", [4, 5])], outputs=["y"], opset=opset)
        assert (import_model(proto.SerializeToString()).draws is not None) == drops


def test_no_randomness_no_state(tmp_path: Path) -> None:
    node = _node("Dropout", ["x", "ratio"], "y kept")
    with tinyedge.load(_export(_save(tmp_path / "m.onnx", [node], ["y"], **GIVEN))) as bundle:
        assert not bundle.states


def test_in_an_unrolled_loop_iterations_differ_and_others_are_refused(tmp_path: Path) -> None:
    body = helper.make_graph(
        [
            _node("Identity", ["c"], "c_out"),
            _node("RandomUniform", outputs="drawn", shape=[5]),
        ],
        "body",
        [
            helper.make_tensor_value_info("i", TensorProto.INT64, []),
            helper.make_tensor_value_info("c", TensorProto.BOOL, []),
        ],
        [
            helper.make_tensor_value_info("c_out", TensorProto.BOOL, []),
            helper.make_tensor_value_info("drawn", TensorProto.FLOAT, [5]),
        ],
    )
    loop = helper.make_node("Loop", ["n", "go"], ["y"], "loop", body=body)
    weights = [numpy_helper.from_array(np.bool_(True), "go")]
    many = numpy_helper.from_array(np.int64(3), "n")
    proto = model([loop], inputs=[], outputs=["y"], weights=[*weights, many], opset=22)
    onnx.save(proto, tmp_path / "m.onnx")
    with tinyedge.load(_export(tmp_path / "m.onnx")) as bundle:
        y = bundle.run({})["y"]
    assert y.shape == (3, 5) and len(np.unique(y)) == 15
    count = [helper.make_tensor_value_info("n", TensorProto.INT64, [])]
    proto = model([loop], inputs=count, outputs=["y"], weights=weights, opset=22)
    with pytest.raises(UnsupportedOp, match="each iteration of a loop"):
        import_model(proto.SerializeToString(), bounds={"loop": 9})


def test_names_that_are_taken(tmp_path: Path) -> None:
    node = _node("RandomUniformLike", ["random.key"])
    proto = model([node], inputs=[info("random.key", [4])], outputs=["y"], opset=22)
    onnx.save(proto, tmp_path / "m.onnx")
    with pytest.raises(InputError, match=r"random\.key[\s\S]*has that name"):
        _export(tmp_path / "m.onnx")


def test_dropout_in_a_training_step(cpu_device: Device, tmp_path: Path) -> None:
    """The gradient flows where elements were kept; each run of any entry advances the state."""
    nodes = [
        _node("Dropout", ["x", "ratio", "training"], "d kept"),
        _node("MatMul", ["d", "w"], "y"),
    ]
    w = np.ones((100, 1), np.float32)
    path = _save(tmp_path / "m.onnx", nodes, ["y", "kept"], w=w, **GIVEN)
    out = _export(path, train="w", loss="mse_loss:y", optimizer="sgd:lr=0.1")
    with tinyedge.load(out) as bundle:
        assert {state.name for state in bundle.states} == {"random.key", "w", "sgd.step"}
        kept = bundle.run({"x": X}, "main")["kept"]
        bundle.reset()
        target = np.zeros((40, 1), np.float32)
        bundle.run({"x": X, "target": target, "lr": np.float32(0.1)}, "train")
        d = np.where(kept, X / np.float32(0.75), 0).astype(np.float64)
        expected = w - 0.1 * d.T @ (2 * d @ w) / 40
        np.testing.assert_allclose(bundle.get_state("w"), expected, 1e-4)
        assert (bundle.run({"x": X}, "main")["kept"] != kept).any()
    assert verify(out, cpu_device).agrees
