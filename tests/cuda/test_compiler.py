"""Kernels to machine code: by which compiler, for which architecture, and what is refused."""

from __future__ import annotations

import dataclasses
import hashlib
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

import tinyedge
from tests import models
from tests.realmodels import cases
from tinyedge.core.errors import DeviceError, InputError, InternalError
from tinyedge.export.bundle.reading import read, read_manifest
from tinyedge.targets.cuda import compiler
from tinyedge.targets.cuda.render import prelude

KERNEL = """extern "C" __global__ void __launch_bounds__(32) {name}(
    float *__restrict__ b0) {{
    b0[threadIdx.x] = {value};
}}
"""
ROOT = Path(__file__).resolve().parents[2]


def file(*values: str) -> str:
    """A kernel file: kernels k0, k1, .. that store the values."""
    kernels = (KERNEL.format(name=f"k{i}", value=value) for i, value in enumerate(values))
    return "\n".join((prelude(), *kernels))


def test_both_compilers_are_here() -> None:
    """What the tests of this folder need; else they would prove less than they say."""
    versions = [nvrtc.version for nvrtc in compiler._installed()]
    assert versions == sorted(versions, reverse=True)
    assert versions[0] >= (13, 0) and (12, 6) in versions


def test_files_of_each_architecture() -> None:
    files = compiler.build(file("1.0f", "te_exp(2.0f)"), ["sm_90", "sm_87"], pytest.fail)
    assert list(files) == [
        *("kernels-00087.cubin", "kernels-00087.ptx"),
        *("kernels-00090.cubin", "kernels-00090.ptx"),
    ]
    for name, content in files.items():
        if name.endswith("cubin"):
            assert content.startswith(b"\x7fELF")
        else:
            assert f".target sm_{int(name[8:13])}".encode() in content
            assert content.count(b".visible .entry k") == 2 and b"\0" not in content
    # PTX of CUDA 12.6 has version 8.5: what the driver of JetPack 6 loads.
    assert b".version 8.5\n" in files["kernels-00087.ptx"]


def test_the_same_bytes_in_every_process() -> None:
    script = (
        "import hashlib, sys\n"
        "from tests.cuda.test_compiler import compiler, file\n"
        "files = compiler.build(file('te_tanh(1.0f)'), ['sm_87', 'sm_90'], print)\n"
        "print(hashlib.sha256(repr(files).encode()).hexdigest())\n"
    )
    files = compiler.build(file("te_tanh(1.0f)"), ["sm_87", "sm_90"], pytest.fail)
    environment = {**os.environ, "PYTHONHASHSEED": "1"}
    command = [sys.executable, "-c", script]
    result = subprocess.run(
        command, cwd=ROOT, env=environment, check=True, capture_output=True, text=True
    )
    assert result.stdout.strip() == hashlib.sha256(repr(files).encode()).hexdigest()


def test_architectures() -> None:
    assert compiler.check([]) == ("sm_87",)
    assert compiler.check(["sm_120", "sm_87", "sm_87"]) == ("sm_87", "sm_120")
    for wrong in ("sm_70", "sm_999", "87", "sm_90a", "compute_87", "", "sm_87 "):
        with pytest.raises(InputError, match="no installed NVRTC compiles for it") as caught:
            compiler.check([wrong])
        assert caught.value.id == "option.arch"
        assert caught.value.supported.startswith("sm_75, sm_80")


def with_versions(monkeypatch: pytest.MonkeyPatch, *versions: compiler.Version) -> list[str]:
    """Pretend that NVRTC is installed in these versions, newest first; what is warned."""
    real = compiler._installed()[0]
    found = tuple(dataclasses.replace(real, version=version) for version in versions)
    monkeypatch.setattr(compiler, "_search", lambda: found)
    return []


@pytest.mark.parametrize(
    ("versions", "orin", "other", "warns"),
    [
        ([(13, 5), (12, 9), (12, 6), (12, 4)], (12, 6), (13, 5), False),
        ([(13, 5), (12, 4)], (12, 4), (13, 5), False),
        ([(13, 5), (12, 9)], (12, 9), (13, 5), True),
        ([(13, 5)], (13, 5), (13, 5), True),
    ],
)
def test_which_version_compiles(
    versions: Sequence[compiler.Version],
    orin: compiler.Version,
    other: compiler.Version,
    warns: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """For Orin none that is newer than its driver, where there is one; else a warning says so."""
    warned = with_versions(monkeypatch, *versions)
    assert compiler._choose("sm_90", warned.append).version == other
    assert not warned
    assert compiler._choose("sm_87", warned.append).version == orin
    assert bool(warned) == warns
    if warns:
        name = "{}.{}".format(*orin)
        assert f"sm_87 is compiled by NVRTC {name}" in warned[0]
        assert "JetPack 6" in warned[0] and "nvidia-cuda-nvrtc-cu12==12.6.*" in warned[0]


def test_without_nvrtc(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(compiler, "_search", lambda: ())
    model = models.path("pnet")
    with pytest.raises(DeviceError, match=r"pip install '\.\[cuda\]'") as caught:
        tinyedge.export_onnx(model, target="cuda", out=tmp_path / "m", dims={"M1": 24, "M2": 16})
    assert caught.value.id == "device.compiler"
    assert not (tmp_path / "m").exists()


def test_a_refused_kernel_is_named() -> None:
    with pytest.raises(InternalError, match="no_such") as caught:
        compiler.build(file("1.0f", "no_such(2.0f)", "3.0f"), ["sm_87"], pytest.fail)
    assert (caught.value.subject, caught.value.id) == ("kernel 'k1'", "device.compile")
    assert "NVRTC 12.6 for sm_87" in caught.value.because
    with pytest.raises(InternalError, match="the kernels"):
        compiler.build("int x = no_such;\n" + file("1.0f"), ["sm_87"], pytest.fail)


def test_a_bundle_holds_them(tmp_path: Path) -> None:
    bundle = tinyedge.export_onnx(
        models.path("pnet"),
        target="cuda",
        out=tmp_path / "m",
        dims=dict(cases.CASES["pnet"].dims),
        arch="sm_90, sm_87",
        warn=lambda text: None,
    )
    manifest = read_manifest(bundle)
    assert manifest["options"]["compiled"][0] == "sm_87 by NVRTC 12.6"
    names = [record["name"] for record in manifest["files"]]
    assert names == sorted(names)
    assert [name for name in names if name.startswith("kernels")] == [
        *("kernels-00087.cubin", "kernels-00087.ptx"),
        *("kernels-00090.cubin", "kernels-00090.ptx", "kernels.cu"),
    ]
    for record in (manifest["prelude"], *manifest["kernels"]):
        assert names[record["file"]] == "kernels.cu"
    program = read(bundle).program
    text = (bundle / "kernels.cu").read_text(encoding="ascii")
    assert compiler.build(text, ["sm_87", "sm_90"], pytest.fail) == program.binaries
    (bundle / "kernels-00087.cubin").write_bytes(b"\x7fELF")
    with pytest.raises(tinyedge.BundleError) as caught:
        read(bundle)
    assert caught.value.id == "bundle.file.size"
