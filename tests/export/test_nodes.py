"""Values of nodes as goldens: what there is of them, and which one is named where one differs."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import tinyedge
from tinyedge.cli import execute
from tinyedge.core.errors import InputError
from tinyedge.export.bundle.reading import read
from tinyedge.export.verify.browser import Browser

CHAIN = ("Exp", "Sqrt", "Tanh", "Neg")


def save(path: Path, nodes: list[Any], outputs: list[str], **inputs: list[Any]) -> Path:
    shown = [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in inputs.items()]
    made = [helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in outputs]
    model = helper.make_model(
        helper.make_graph(nodes, "g", shown, made),
        opset_imports=[helper.make_opsetid("", 17)],
        ir_version=8,
    )
    onnx.save(model, path)
    return path


@pytest.fixture
def chain(tmp_path: Path) -> Path:
    """x -> exp -> sqrt -> tanh -> neg, of 1 KB each."""
    nodes = [
        helper.make_node(op, ["x" if i == 0 else f"v{i - 1}"], [f"v{i}"], name=f"the {op}")
        for i, op in enumerate(CHAIN)
    ]
    return save(tmp_path / "m.onnx", nodes, ["v3"], x=["N", 256])


def nodes_of(bundle: Path, entry: str = "nodes.main") -> list[str]:
    found = read(bundle).program
    return [name for each in found.entries if each.name == entry for name in each.outputs]


@pytest.mark.parametrize(
    ("most", "kept"),
    [(4096, CHAIN), (4095, ("Sqrt", "Neg")), (1024, ("Tanh",)), (1023, ())],
)
def test_as_many_as_fit(chain: Path, tmp_path: Path, most: int, kept: tuple[str, ...]) -> None:
    out, said = tmp_path / "m", list[str]()
    tinyedge.export_onnx(
        chain, target="cpu", out=out, dims={"N": 1}, debug_goldens=most, warn=said.append
    )
    left = f"--debug-goldens leaves out {4 - len(kept)} of 4 nodes: all take 4,096 bytes"
    assert [left in text for text in said] == [True] * (kept != CHAIN)
    assert nodes_of(out) == [f"the {op}" for op in kept]
    with tinyedge.load(out) as m:
        x = np.linspace(-1, 1, 256, dtype=np.float32).reshape(1, 256)
        assert set(m.run({"x": x})) == {"v3"}, "the model's own entry is as it was"
        if "Sqrt" in kept:
            found = m.run({"x": x}, "nodes.main")["the Sqrt"]
            np.testing.assert_allclose(found, np.exp(x / 2), rtol=1e-5)
    if not kept:
        assert execute(["verify", str(out), "--nodes", "--trust"]) == 1


def damaged(bundle: Path, kernels: str, old: str, new: str) -> None:
    """Replace a word of the kernels; the manifest has the hash of what is there then."""
    file, manifest = bundle / kernels, bundle / "manifest.json"
    content = file.read_bytes()
    assert old.encode() in content and len(old) == len(new)
    changed = content.replace(old.encode(), new.encode())
    file.write_bytes(changed)
    hashes = [hashlib.sha256(each).hexdigest() for each in (content, changed)]
    text = manifest.read_text("ascii")
    assert hashes[0] in text
    manifest.write_text(text.replace(*hashes), "ascii")


def test_the_first_that_differs(
    chain: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bundle = str(tmp_path / "m")
    command = ["export", str(chain), "-t", "cpu", "-o", bundle, "--dim", "N=2"]
    assert execute([*command, "--debug-goldens", "100000"]) == 0
    check = ["verify", bundle, "--trust"]
    assert execute([*check, "--nodes"]) == 0
    assert "4 nodes are compared; 0 differ" in capsys.readouterr().out
    damaged(tmp_path / "m", "kernels.c", "sqrtf(", "fabsf(")
    assert execute([*check, "--nodes"]) == 1
    out = capsys.readouterr().out
    assert "4 nodes are compared; 3 differ" in out
    assert "the first node that differs is 'the Sqrt'" in out and "the Exp" not in out
    assert execute([*check, "--nodes", "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["node"] == "the Sqrt"
    assert execute(check) == 1
    assert "the Sqrt" not in capsys.readouterr().out, "verify compares the model's outputs"
    assert execute([*check, "--nodes", "--against", str(chain)]) == 2


def verified_in_browser(bundle: Path) -> int:
    """The exit code, from another process: playwright allows one of its drivers in a thread."""
    command = [sys.executable, "-m", "tinyedge", "verify", str(bundle), "--nodes", "--browser"]
    return subprocess.run(command, capture_output=True, timeout=300, check=False).returncode


@pytest.mark.browser
def test_a_page_names_it(browser: Browser, chain: Path, tmp_path: Path) -> None:
    out = tmp_path / "m"
    tinyedge.export_onnx(chain, out=out, dims={"N": 2}, debug_goldens=10**6)
    good = browser.verify(out, nodes=True)
    assert good["passed"] and good["node"] is None
    assert [o["name"] for o in good["cases"][0]["outputs"]] == [f"the {op}" for op in CHAIN]
    assert [case["entry"] for case in browser.verify(out)["cases"]] == ["main"]
    assert verified_in_browser(out) == 0
    damaged(out, "kernels.wgsl", "select(sqrt(", "select(ceil(")
    bad = browser.verify(out, nodes=True)
    assert not bad["passed"] and bad["node"] == "the Sqrt"
    assert verified_in_browser(out) == 1
    with browser.page(out, start="") as page:
        page.get_by_role("button", name="Compare nodes").click()
        page.get_by_text("The first node that differs is the Sqrt.").wait_for()


@pytest.mark.browser
def test_a_page_without_nodes_refuses(browser: Browser, chain: Path, tmp_path: Path) -> None:
    """Nothing that was compared is no success."""
    out = tmp_path / "m"
    tinyedge.export_onnx(chain, out=out, dims={"N": 2})
    with browser.page(out, start="") as page:
        found = page.evaluate(
            """async () => {
              const m = await (await import("./tinyedge.js")).load("./");
              const {id, next} = await m.compare().catch((error) => error);
              return [id, next, (await m.verify()).passed];
            }"""
        )
    assert found == ["verify.nothing", "export it with --debug-goldens", True]
    assert verified_in_browser(out) == 1


def test_states_pictures_and_entries(tmp_path: Path) -> None:
    """Nodes of every entry; those of updates of states too; a node in a loop is none."""
    frame = save(
        tmp_path / "frame.onnx",
        [helper.make_node("Abs", ["x"], ["y"], name="frame's")],
        ["y"],
        x=[1, 3, 4, 4],
    )
    main = save(
        tmp_path / "main.onnx",
        [
            helper.make_node("Exp", ["x"], ["e"], name="e's"),
            helper.make_node("Add", ["e", "h"], ["h2"], name="sum"),
            helper.make_node("Neg", ["e"], ["y"], name="y's"),
        ],
        ["y", "h2"],
        x=[1, 3, 4, 4],
        h=[1, 3, 4, 4],
    )
    out = tmp_path / "m"
    options: dict[str, Any] = {"states": {"h": "h2"}, "entries": {"frame": frame}}
    options |= {"images": {"x": "0..1,max:8"}, "debug_goldens": 10**6}
    tinyedge.export_onnx(main, target="cpu", out=out, **options)
    assert sorted(nodes_of(out)) == ["e's", "picture x", "sum", "y's"]
    assert nodes_of(out, "nodes.frame") == ["picture x", "frame's"]
    assert execute(["verify", str(out), "--nodes", "--trust"]) == 0
    with tinyedge.load(out) as m:
        picture = np.zeros((4, 4, 3), np.uint8)
        for _ in range(2):
            assert m.run({"x": picture}, "nodes.main")["sum"].max() == 1
        assert m.get_state("h").max() == 0, "it changes no state"


def test_rounding_is_no_fault(tmp_path: Path) -> None:
    """Values differ by 1 % at most, and bytes of quantizers, which may be one off, are left out."""
    scale = helper.make_node("Constant", [], ["s"], value_float=0.02)
    ops = ("QuantizeLinear", "DequantizeLinear")
    nodes = [
        helper.make_node(op, [x, "s"], [y], name=op)
        for op, x, y in zip(ops, "xq", "qy", strict=True)
    ]
    model = save(tmp_path / "m.onnx", [scale, *nodes], ["y"], x=[1, 8])
    out = tmp_path / "m"
    tinyedge.export_onnx(model, target="cpu", out=out, debug_goldens=10**6)
    assert nodes_of(out) == ["DequantizeLinear"]
    tolerances = {golden.entry: golden.tolerance for golden in read(out).goldens()}
    assert tolerances == {"main": 100, "nodes.main": 10_000}


def test_nothing_fits(chain: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        tinyedge.export_onnx(chain, out=tmp_path / "m", dims={"N": 1}, debug_goldens=0)
    assert caught.value.id == "debug.bytes"
