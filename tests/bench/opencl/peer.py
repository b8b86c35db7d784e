"""tinygrad: installed for this benchmark alone, and given models as it can read them."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from tests.bench.cases import CACHE

VERSION = "0.14.0"
FOLDER = CACHE / f"tinygrad-{VERSION}"


def install() -> None:
    """pip install into a folder of its own, once. Raises RuntimeError."""
    if FOLDER.is_dir():
        return
    print(f"installing tinygrad {VERSION}", file=sys.stderr)
    partial = FOLDER.with_suffix(".partial")
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps"]
    command += ["--disable-pip-version-check", "--target", str(partial), f"tinygrad=={VERSION}"]
    shutil.rmtree(partial, ignore_errors=True)
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"pip could not install tinygrad:\n{done.stderr.strip()[-500:]}")
    partial.rename(FOLDER)


def clang() -> str | None:
    """clang, or one of its versions beside each other that Debian installs."""
    names = ("clang", *(f"clang-{version}" for version in range(30, 9, -1)))
    return next(filter(None, map(shutil.which, names)), None)


def environment(device: str) -> dict[str, str]:
    """The variables of a process that runs tinygrad on a device of its, as "CL". It compiles in
    that process, so that its seconds are counted; with clang what runs on the processor, as small
    parts of a model may on any device.
    """
    compiler = clang()
    return {"DEV": device, "PARALLEL": "0", **({"CC": compiler} if compiler else {})}


def readable(path: Path, out: Path) -> Path:
    """A model's file; or `out`, a copy in which what tinygrad cannot read is said in another way.

    Optional inputs that are given as constants of no elements are left out instead.
    """
    import onnx

    model = onnx.load(path)
    empty = {
        node.output[0]
        for node in model.graph.node
        if node.op_type == "Constant" and any(0 in value.t.dims for value in node.attribute)
    }
    if not empty:
        return path
    kept = [node for node in model.graph.node if not empty.intersection(node.output)]
    for node in kept:
        node.input[:] = ["" if name in empty else name for name in node.input]
    del model.graph.node[:]
    model.graph.node.extend(kept)
    out.parent.mkdir(parents=True, exist_ok=True)
    onnx.save(model, out)
    return out
