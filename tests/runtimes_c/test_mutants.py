"""Changed plans with a bundle's own kernels: nothing outside of memory is touched, whatever a
manifest says, and a program that knows its manifest takes no other.
"""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import parser

import tinyedge
from tests.runtimes_c import build
from tests.runtimes_c.mutate import Mutator, repair
from tinyedge.export.bundle.manifest import encode

RNG = np.random.default_rng(8)
needs_sanitizers = pytest.mark.skipif(
    not build.supports(build.CC, *build.SANITIZE), reason="no sanitizers"
)


def _function(folder: Path) -> Path:
    """Several kernels over one arena: products, a convolution, sums."""
    kernel = RNG.normal(size=(4, 3, 3, 3)).astype(np.float32)
    weights = RNG.normal(size=(144, 8)).astype(np.float32)

    def forward(x: Any) -> Any:
        y = x.conv(tinyedge.Tensor.weight("k", kernel)).relu()
        flat = y.reshape((1, 144)) @ tinyedge.Tensor.weight("w", weights)
        return {"y": y, "scores": flat.softmax(1), "sum": flat.sum(1)}

    return tinyedge.export_function(
        forward, {"x": np.zeros((1, 3, 8, 8), np.float32)}, target="cpu", out=folder / "f.tinyedge"
    )


def _onnx(folder: Path, text: str, **options: Any) -> Path:
    path = folder / "m.onnx"
    onnx.save(parser.parse_model(text), path)
    return tinyedge.export_onnx(path, target="cpu", out=folder / "m.tinyedge", **options)


HEAD = '<ir_version: 8, opset_import: ["" : 18]>'


def _sizes(folder: Path) -> Path:
    text = f"""{HEAD} g (float[H, 3, W] x, float[3, W, H] z) => (y, s, r)
        <float[1] two = {{2}}, int64[1] axis = {{2}}> {{
        t = Transpose <perm = [2, 0, 1]> (z)
        a = Add (x, t)
        b = Transpose <perm = [1, 0, 2]> (a)
        y = MatMul (b, z)
        s = ReduceSum (a, axis)
        p = Mul (a, two)
        q = Transpose <perm = [2, 1, 0]> (p)
        r = Softmax <axis = 0> (q)
    }}"""
    return _onnx(folder, text, dims={"H": "2..12:2", "W": "1..9"})


def _states(folder: Path) -> Path:
    def step(x: Any, kept: Any, queue: Any) -> Any:
        return {
            "y": x + kept + queue.sum(0),
            "kept_out": (x * kept + 1).tanh(),
            "row": x.reshape((1, 12)) * 2,
        }

    def other(x: Any, queue: Any) -> Any:
        return {"last": queue[3] - x, "row": x.reshape((1, 12)) + 1}

    x = np.ones(12, np.float32)
    queue = np.zeros((4, 12), np.float32)
    return tinyedge.export_function(
        step,
        {"x": x, "kept": x, "queue": queue},
        target="cpu",
        out=folder / "s.tinyedge",
        states={"kept": "kept_out", "queue": "row:shift"},
        state_init={"kept": x},
        entries={"other": (other, {"x": x, "queue": queue})},
        slices={"y": {"head": (0, 5)}},
    )


def _loop(folder: Path) -> Path:
    """A loop that a run ends, and sizes that only a run knows."""
    text = f"""{HEAD} g (float[6, 5] x, int64[7] i) => (y, m, e, top, where)
        <int64 most = {{9}}, bool yes = {{1}}, int64[1] k = {{3}}, float zero = {{0}},
         int64[2, 1] j = {{4, 1}}, float[2, 5] z = {{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}}> {{
        y = Loop (most, yes, x)
            <body = body (int64 n, bool c, float[6, 5] v) => (bool going, float[6, 5] w)
             <float grow = {{1.5}}, float fifty = {{50}}> {{
                w = Mul (v, grow)
                largest = ReduceMax <keepdims = 0> (w)
                going = Less (largest, fifty)
            }}>
        g = Gather (x, i)
        u = Greater (g, zero)
        where = NonZero (u)
        m = ScatterND (x, j, z)
        top, e = TopK (x, k)
    }}"""
    return _onnx(folder, text)


BUNDLES: dict[str, Callable[[Path], Path]] = {
    "function": _function,
    "sizes": _sizes,
    "states": _states,
    "loop": _loop,
}


def _program(bundle: Path) -> Path:
    """What runs mutants of a bundle, by the runtime with sanitizers."""
    flags = (*build.SANITIZE, "-I", bundle, f"-I{build.c_bundle.FOLDER}")
    kernels = bundle.with_suffix(".o")
    build.run(build.CC, *flags, "-std=gnu11", "-w", "-c", "-o", kernels, bundle / "model.c")
    out = bundle.with_suffix(".mutants")
    source = build.HERE / "mutants.c"
    runtime = build.objects(build.CC, build.SANITIZE)
    files = (source, kernels, *runtime, "-pthread", "-lm")
    build.run(build.CC, *build.STRICT, *flags, "-o", out, *files)
    return out


def _run(bundle: Path, program: Path, seed: int, accepted: int) -> int:
    """Run mutants until so many were accepted, and return how many there were in all."""
    mutator = Mutator(json.loads((bundle / "manifest.json").read_text("ascii")), seed)
    found = total = 0
    while found < accepted:
        file = bundle.with_suffix(f".{total}")
        texts = list(mutator.mutants(min(2000, max(100, 3 * (accepted - found)))))
        file.write_bytes(b"".join(struct.pack("<I", len(text)) + text for text in texts))
        environment = {"ASAN_OPTIONS": "detect_leaks=0"}
        said = build.run(program, bundle, file, env=environment)
        counts = re.findall(r"\d+", said)
        found += int(counts[0]) + int(counts[2])
        total += len(texts)
        file.unlink()
        assert total < 100 * accepted, said
    return total


def _counts(manifest: Any) -> None:
    manifest["steps"][0]["grid"] = [4096, 1, 1]


def _no_symbols(manifest: Any) -> None:
    for kernel in manifest["kernels"]:
        kernel["symbols"] = False


def _greater_sizes(manifest: Any) -> None:
    """Of a symbol that no port has any more, in launches that are as they were."""
    for port in (*manifest["inputs"], *manifest["outputs"]):
        port["shape"] = [1]
    for symbol in manifest["symbols"]:
        symbol["max"] = symbol["min"] + 1000 * symbol["step"]


def _small_arena(manifest: Any) -> None:
    """All of memory is one buffer's."""
    manifest["arenas"] = [{"bytes": 256}]
    for buffer in manifest["buffers"]:
        if buffer["arena"] == 0:
            buffer |= {"offset": 0, "bytes": 256}
    for port in (*manifest["inputs"], *manifest["outputs"]):
        port["shape"] = [1]


@needs_sanitizers
@pytest.mark.parametrize(
    ("change", "accepted"),
    [(_counts, 1), (_no_symbols, 1), (_greater_sizes, 1), (_small_arena, 0)],
)
def test_plans_made_to_leave_their_memory(
    change: Callable[[Any], None], accepted: int, tmp_path: Path
) -> None:
    bundle = _sizes(tmp_path)
    manifest = json.loads((bundle / "manifest.json").read_text("ascii"))
    change(manifest)
    repair(manifest)
    manifest["golden"] = []
    text = encode(manifest)
    file = tmp_path / "texts"
    file.write_bytes(struct.pack("<I", len(text)) + text)
    said = build.run(_program(bundle), bundle, file, env={"ASAN_OPTIONS": "detect_leaks=0"})
    assert said == f"{accepted} accepted, {1 - accepted} refused, 0 slow\n"


@needs_sanitizers
@pytest.mark.parametrize("name", BUNDLES)
def test_mutants(name: str, tmp_path: Path) -> None:
    bundle = BUNDLES[name](tmp_path)
    _run(bundle, _program(bundle), 1, 80)


@needs_sanitizers
@pytest.mark.slow
@pytest.mark.parametrize("name", BUNDLES)
def test_ten_thousand_mutants(name: str, tmp_path: Path) -> None:
    bundle = BUNDLES[name](tmp_path)
    _run(bundle, _program(bundle), 2, 2500)
