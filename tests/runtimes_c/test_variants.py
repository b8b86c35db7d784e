"""Bundles of several programs in C: the best for the processor, another one by name, none."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

import tinyedge
from tests.runtimes_c import build
from tests.runtimes_c.test_models import EMULATOR, build_bundle
from tinyedge.export.bundle.reading import Choice
from tinyedge.model import lacking
from tinyedge.targets.cpu.caps import REQUIRES

X86 = shutil.which("qemu-x86_64") or ""
ORDER = ("avx512", "default", "sse")
needs_emulator = pytest.mark.skipif(not X86, reason="no emulator of other x86 processors")


def exported(folder: Path, profile: str = ",".join(ORDER)) -> Path:
    rng = np.random.default_rng(1)
    w = rng.normal(size=(40, 96)).astype(np.float32)
    return tinyedge.export_function(
        lambda x: (x @ w).relu(),
        {"x": rng.normal(size=(12, 40)).astype(np.float32)},
        target="cpu",
        out=folder / "product.tinyedge",
        profile=profile,
    )


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = exported(tmp_path_factory.mktemp("variants"))
    build_bundle(folder)
    return folder


def runs(folder: Path, *options: object, before: Sequence[str] = ()) -> tuple[int, str]:
    """The exit code of build/run, and all it says but an emulator's warnings."""
    command = [*before, str(folder / "build" / "run"), str(folder), *map(str, options)]
    done = subprocess.run(command, capture_output=True, text=True)
    said = done.stdout + done.stderr
    return done.returncode, re.sub("^qemu.*\n", "", said, flags=re.MULTILINE)


def test_the_best_is_picked_and_each_that_can_be_run_agrees(bundle: Path) -> None:
    lacks = {name: lacking("cpu", Choice(name, REQUIRES[name])) for name in ORDER}
    best = next(name for name in ORDER if not lacks[name])
    code, said = runs(bundle, "--self-test")
    assert code == 0 and said.startswith(f"variant {best}\n") and "0 wrong" in said
    for name in ORDER:
        code, said = runs(bundle, "--self-test", "--variant", name)
        if lacks[name]:
            assert code == 3 and f"variant {name} needs {lacks[name][0]}" in said
        else:
            assert code == 0 and said.startswith(f"variant {name}\n") and "0 wrong" in said


def test_wrong_names(bundle: Path, tmp_path: Path) -> None:
    code, said = runs(bundle, "--variant", "altivec")
    assert code == 2 and "api.argument: there is no variant altivec; there are " in said
    assert said.rstrip().endswith(", ".join(ORDER))
    single = exported(tmp_path, "sse")
    build_bundle(single)
    code, said = runs(single, "--variant", "sse")
    assert code == 2 and "the bundle has no variants" in said


def test_another_manifest_is_refused(bundle: Path, tmp_path: Path) -> None:
    """The program knows the hash of each of the manifests."""
    folder = Path(shutil.copytree(bundle, tmp_path / "copy"))
    for number in (1, 2):
        path = folder / f"manifest-{number:05}.json"
        path.write_bytes(path.read_bytes().replace(b'"tool":"tiny', b'"tool":"Tiny'))
    code, said = runs(folder, "--self-test", "--variant", "sse")
    assert code == 0, said
    for name in ("default", "avx512"):
        code, said = runs(folder, "--variant", name)
        assert code == 3 and ("bundle.plan" in said or "lacks" in said)


@needs_emulator
@pytest.mark.parametrize(
    "processor, name", [("Haswell", "default"), ("Nehalem", "sse"), ("core2duo", "sse")]
)
def test_on_lesser_processors(bundle: Path, processor: str, name: str) -> None:
    """The program starts there, and runs what the processor can."""
    emulator = (X86, "-cpu", processor)
    code, said = runs(bundle, "--self-test", before=emulator)
    assert code == 0 and said.startswith(f"variant {name}\n") and "0 wrong" in said
    code, said = runs(bundle, "--self-test", "--variant", "avx512", before=emulator)
    assert code == 3 and "device.limits: variant avx512 needs avx512f" in said


WITHOUT_A_CHOICE = """
#include "model.h"
#include <stdio.h>
int main(int count, char **words) {
    te_model *model;
    te_context *context;
    te_error error;
    te_open_options open = {.size = sizeof open, .folder = words[1], .plan = MODEL_PLAN};
    const te_kernels *kernels = MODEL_KERNELS;
    te_context_options create = {.size = sizeof create, .backend = te_cpu(), .kernels = kernels};
    (void)count;
    if (te_open(&open, &model, &error)) return puts(error.text), 1;
    if (te_create(model, &create, &context, &error)) puts(error.text);
    else puts(kernels->variant);
    te_destroy(context);
    te_close(model);
    return 0;
}
"""


@needs_emulator
def test_without_a_choice_the_last_is_run_where_it_can_be(tmp_path: Path) -> None:
    folder = exported(tmp_path, "avx512,default")
    build_bundle(folder)
    (tmp_path / "plain.c").write_text(WITHOUT_A_CHOICE)
    objects = (folder / "build" / "libtinyedge.a", "-pthread", "-lm")
    include = (f"-I{folder}", f"-I{folder / 'runtime'}")
    program = tmp_path / "plain"
    build.run(build.CC, *build.STRICT, *include, "-o", program, tmp_path / "plain.c", *objects)
    assert build.run(X86, "-cpu", "max", program, folder).splitlines()[-1] == "default"
    said = build.run(X86, "-cpu", "Nehalem", program, folder)
    assert said == "device.limits: variant default needs avx2, which this processor lacks\n"
    code, said = runs(folder, before=(X86, "-cpu", "Nehalem"))
    assert code == 3
    assert said == (
        "device.limits: no variant fits this processor: avx512 needs avx512f, default needs avx2\n"
    )


@pytest.mark.slow
@pytest.mark.skipif(not EMULATOR, reason="no arm64 emulator")
def test_each_kind_of_processor_has_its_own(tmp_path: Path) -> None:
    """One bundle for x86 and ARM; kernels of the other kind are not compiled."""
    pytest.importorskip("ziglang")
    folder = exported(tmp_path, "avx512,default,neon")
    zig = f"{sys.executable} -m ziglang cc"
    build_bundle(folder, f"CC={zig} -target aarch64-linux-musl")
    code, said = runs(folder, "--self-test", before=(EMULATOR,))
    assert code == 0 and said.startswith("variant neon\n") and "0 wrong" in said
    assert "k0" not in build.run("nm", folder / "build" / "model_avx512.o")
    build_bundle(folder, f"CC={zig} -target x86_64-linux-musl")
    if X86:
        code, said = runs(folder, "--self-test", before=(X86, "-cpu", "max"))
        assert code == 0 and said.startswith("variant default\n") and "0 wrong" in said
