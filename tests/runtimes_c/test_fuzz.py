"""libFuzzer on the C reader and the runtime behind it, with address and undefined sanitizers."""

from __future__ import annotations

import json
import os
import re
import shutil
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.attacks import make
from tests.bundles import programs as bundles
from tests.runtimes_c import build
from tests.targets import programs
from tinyedge.export.bundle.manifest import encode
from tinyedge.export.bundle.writing import write

FLAGS = ("-fsanitize=fuzzer,address,undefined", "-fno-sanitize-recover=all", "-g", "-O1")

# Seconds of the slow test; a longer run: TINYEDGE_FUZZ_SECONDS=3600.
SECONDS = int(os.environ.get("TINYEDGE_FUZZ_SECONDS", "60"))

KEPT = Path(__file__).with_name("corpus.tar.xz")  # text that reaches different code

_EMPTY = "int LLVMFuzzerTestOneInput(const void *d, unsigned long n) { return !d && n; }"

pytestmark = pytest.mark.skipif(
    not build.supports("clang", *FLAGS, text=_EMPTY), reason="no libFuzzer"
)


@pytest.fixture(scope="module")
def fuzzer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("fuzz") / "fuzz"
    return build.program(out, "fuzz.c", (*FLAGS, "-DTINYEDGE_FUZZ"), compiler="clang")


def smaller(manifest: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The manifest without its free parts, then also without goldens."""
    plain = {**manifest, "options": {}, "tool": ""}
    yield plain
    yield {**plain, "golden": []}


def corpus(folder: Path) -> Path:
    """Manifests of every program of the tests, of the attacks that keep canonical JSON, and what
    long runs found: after one, `-merge=1` what is kept and what it found, and pack that anew.
    """
    folder.mkdir()
    with tarfile.open(KEPT) as kept:
        kept.extractall(folder, filter="data")
    scratch = folder.parent / "scratch"
    makers = [
        *(bundles.plain, bundles.everything, bundles.pictures),
        *(lambda make=make: make("cpu") for make in (programs.addition, programs.symbolic)),
        *(lambda make=make: make("cpu") for make in (programs.counter, programs.ports)),
        lambda: programs.repeat("cpu"),
    ]
    number = 0
    for maker in makers:
        program = maker()
        scratch.mkdir()
        goldens = bundles.goldens(program) if program.target != "cpu" else ()
        manifest = write(program, scratch, goldens=goldens)
        for text in (manifest, *smaller(manifest)):
            (folder / f"seed{number}").write_bytes(encode(text))
            number += 1
        shutil.rmtree(scratch)
    make.make(scratch)
    for path in scratch.glob("*/manifest.json"):
        if path.is_file() and path.stat().st_size < 8192:
            shutil.copyfile(path, folder / path.parent.name)
    shutil.rmtree(scratch)
    return folder


def dictionary(file: Path, folder: Path) -> Path:
    """Keys and words of all seeds, as libFuzzer splices them in."""
    words = {"[]", "{}", "-1", "0", "9007199254740991", "true", "false", ",\\x0a", "[\\x0a"}
    for path in folder.glob("seed*"):
        text = path.read_text("ascii")
        json.loads(text)
        words |= set(re.findall(r'"[A-Za-z_$][A-Za-z0-9_.]{0,30}":?', text))
    lines = ['"' + word.replace('"', '\\"') + '"' for word in sorted(words)]
    file.write_text("\n".join(lines) + "\n")
    return file


def fuzz(fuzzer: Path, tmp_path: Path, *limits: str) -> str:
    seeds = corpus(tmp_path / "corpus")
    words = dictionary(tmp_path / "words", seeds)
    found = tmp_path / "found"
    found.mkdir()
    arguments = (f"-dict={words}", f"-artifact_prefix={tmp_path}/", "-max_len=8192", "-timeout=20")
    result = build.subprocess.run(
        [str(fuzzer), str(found), str(seeds), *arguments, *limits],
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr[-4000:]
    return result.stderr


def test_seeds_and_a_moment_more(fuzzer: Path, tmp_path: Path) -> None:
    assert "Done" in fuzz(fuzzer, tmp_path, "-runs=3000")


@pytest.mark.slow
def test_a_minute(fuzzer: Path, tmp_path: Path) -> None:
    said = fuzz(fuzzer, tmp_path, f"-max_total_time={SECONDS}")
    done = re.search(r"Done (\d+) runs", said)
    assert done is not None
    assert int(done[1]) > 10_000
